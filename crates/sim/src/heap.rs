//! The order of things to come: which CPU goes on when.
//!
//! An implicit heap with four children to a node: keys of one word, so that the four children are
//! half a cache line and their minimum needs no branch. What an entry is for stands apart.

/// "Never", as a time in ps.
pub(crate) const NEVER: u64 = u64::MAX;
/// Bits of a CPU's rank in an order word.
const RANK_BITS: u32 = 12;
/// The end of time, in ps: 75 minutes. Times in keys stay below it.
pub(crate) const END_PS: u64 = 1 << (64 - RANK_BITS);

const _: () = assert!(mmscale_mm::arch::MAX_CPUS <= 1 << RANK_BITS);

/// When a CPU goes on: smaller is earlier, by time, then by the CPU's rank. Ranks are a
/// permutation, so two CPUs never tie.
#[inline]
pub(crate) const fn order_of(time_ps: u64, rank: u16) -> u64 {
    let time_ps = if time_ps < END_PS { time_ps } else { END_PS - 1 };
    time_ps << RANK_BITS | rank as u64
}

/// The time in an order word.
#[inline]
pub(crate) const fn time_of(order: u64) -> u64 {
    order >> RANK_BITS
}

/// What an entry of the queue is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// The CPU goes on, unless it has been given another time since: its generation says so.
    Run(u32),
    /// The CPU's timer goes off, if it still stands at this time and the CPU waits.
    Timer,
}

/// An entry of the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    order: u64,
    what: u64,
}

/// Marks an entry as a timer's; the bits below it hold a generation otherwise.
const TIMER: u64 = 1 << 32;

impl Entry {
    #[inline]
    pub(crate) const fn new(order: u64, cpu: u16, kind: Kind) -> Self {
        let low = match kind {
            Kind::Run(generation) => generation as u64,
            Kind::Timer => TIMER,
        };
        Self { order, what: (cpu as u64) << 48 | low }
    }
    #[inline]
    pub(crate) const fn time_ps(self) -> u64 {
        time_of(self.order)
    }
    #[inline]
    pub(crate) const fn cpu(self) -> usize {
        (self.what >> 48) as usize
    }
    #[inline]
    pub(crate) const fn kind(self) -> Kind {
        if self.what & TIMER != 0 { Kind::Timer } else { Kind::Run(self.what as u32) }
    }
}

/// A queue of entries, earliest first.
#[derive(Default)]
pub(crate) struct EventHeap {
    orders: Vec<u64>,
    whats: Vec<u64>,
}

impl EventHeap {
    pub(crate) fn len(&self) -> usize {
        self.orders.len()
    }
    pub(crate) fn push(&mut self, entry: Entry) {
        let mut at = self.orders.len();
        self.orders.push(entry.order);
        self.whats.push(entry.what);
        while at != 0 {
            let parent = (at - 1) / 4;
            if self.orders[parent] <= entry.order {
                break;
            }
            self.orders[at] = self.orders[parent];
            self.whats[at] = self.whats[parent];
            at = parent;
        }
        self.orders[at] = entry.order;
        self.whats[at] = entry.what;
    }
    pub(crate) fn pop(&mut self) -> Option<Entry> {
        let last = Entry { order: self.orders.pop()?, what: self.whats.pop()? };
        if self.orders.is_empty() { Some(last) } else { Some(self.replace_first(last)) }
    }
    /// Whether nothing comes before `order`.
    #[inline]
    pub(crate) fn is_first(&self, order: u64) -> bool {
        self.orders.first().is_none_or(|&first| first > order)
    }
    /// The time of the earliest; the end of time if there is none.
    #[inline]
    pub(crate) fn first_time_ps(&self) -> u64 {
        self.orders.first().map_or(END_PS, |&first| time_of(first))
    }
    /// Takes out the earliest and puts `entry` in; `None` if `entry` itself is the earliest.
    #[inline]
    pub(crate) fn exchange(&mut self, entry: Entry) -> Option<Entry> {
        if self.is_first(entry.order) { None } else { Some(self.replace_first(entry)) }
    }
    /// Keeps the entries that `keep` wants.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(Entry) -> bool) {
        let (orders, whats) = (std::mem::take(&mut self.orders), std::mem::take(&mut self.whats));
        for (order, what) in orders.into_iter().zip(whats) {
            if keep(Entry { order, what }) {
                self.push(Entry { order, what });
            }
        }
    }
    /// Puts `entry` in the place of the earliest, of a queue that is not empty.
    #[inline]
    fn replace_first(&mut self, entry: Entry) -> Entry {
        let first = Entry { order: self.orders[0], what: self.whats[0] };
        let (orders, whats) = (&mut self.orders[..], &mut self.whats[..]);
        let mut at = 0;
        loop {
            let child = 4 * at + 1;
            let best = match orders.get(child..child + 4) {
                Some(&[a, b, c, d]) => {
                    let (left, low) = if b < a { (1, b) } else { (0, a) };
                    let (right, high) = if d < c { (3, d) } else { (2, c) };
                    child + if high < low { right } else { left }
                }
                _ => match (child..orders.len()).min_by_key(|&child| orders[child]) {
                    Some(best) => best,
                    None => break,
                },
            };
            if orders[best] >= entry.order {
                break;
            }
            orders[at] = orders[best];
            whats[at] = whats[best];
            at = best;
        }
        orders[at] = entry.order;
        whats[at] = entry.what;
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SplitMix64;

    fn entry(time: u64) -> Entry {
        Entry::new(order_of(time, 0), 0, Kind::Run(0))
    }

    #[test]
    fn entries_order_by_time_then_rank_and_keep_their_parts() {
        assert!(order_of(5, 9) < order_of(5, 10) && order_of(5, 4095) < order_of(6, 0));
        assert!(order_of(NEVER, 0) > order_of(1 << 50, 4095));
        let run = Entry::new(order_of(5, 9), 4095, Kind::Run(u32::MAX));
        assert_eq!((run.time_ps(), run.cpu(), run.kind()), (5, 4095, Kind::Run(u32::MAX)));
        assert_eq!(Entry::new(0, 1, Kind::Timer).kind(), Kind::Timer);
    }

    #[test]
    fn exchange_returns_the_earliest_unless_the_new_one_is() {
        let mut heap = EventHeap::default();
        assert_eq!(heap.exchange(entry(1)), None);
        [30, 10, 20].into_iter().for_each(|time| heap.push(entry(time)));
        assert!(heap.is_first(order_of(9, 0)) && !heap.is_first(order_of(11, 0)));
        assert_eq!(heap.exchange(entry(9)), None);
        assert_eq!(heap.exchange(entry(25)), Some(entry(10)));
        let rest: Vec<_> = std::iter::from_fn(|| heap.pop()).map(Entry::time_ps).collect();
        assert_eq!(rest, [20, 25, 30]);
    }

    #[test]
    fn random_use_gives_what_sorting_gives() {
        let mut rng = SplitMix64::new(3);
        for size in 0..70 {
            let (mut heap, mut sorted) = (EventHeap::default(), Vec::new());
            for _ in 0..size {
                let time = rng.below(1000);
                heap.push(entry(time));
                sorted.push(time);
            }
            for _ in 0..size {
                let time = rng.below(1000);
                if let Some(first) = heap.exchange(entry(time)) {
                    sorted.sort_unstable();
                    assert_eq!(std::mem::replace(&mut sorted[0], time), first.time_ps());
                }
            }
            heap.retain(|entry| entry.time_ps() % 3 != 0);
            sorted.retain(|time| time % 3 != 0);
            sorted.sort_unstable();
            assert_eq!(heap.len(), sorted.len());
            let rest: Vec<_> = std::iter::from_fn(|| heap.pop()).map(Entry::time_ps).collect();
            assert_eq!(rest, sorted);
        }
    }
}
