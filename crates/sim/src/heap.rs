//! The queue of events: which CPU resumes when.
//!
//! An implicit heap with four children to a node: entries of one word, so that the four children
//! are half a cache line and their minimum needs no branch. An entry does not say what it is for.
//! The CPU knows the order word of its next turn and the time of its timer; any other entry for it
//! is out of date.

/// "Never", as a time in ps.
pub(crate) const NEVER: u64 = u64::MAX;
/// Bits of a CPU's rank in an order word.
const RANK_BITS: u32 = 12;
/// The end of time, in ps: 75 minutes. Times in keys stay below it.
pub(crate) const END_PS: u64 = 1 << (64 - RANK_BITS);

const _: () = assert!(mmscale_arch::MAX_CPUS <= 1 << RANK_BITS);

/// Returns the order word of a CPU that resumes at `time_ps`: smaller is earlier, by time, then by
/// the CPU's rank. Ranks are a permutation, so two CPUs never have equal words.
#[inline]
pub(crate) const fn order_of(time_ps: u64, rank: u16) -> u64 {
    // One less than the last time that fits, so that no word is `NEVER`.
    let time_ps = if time_ps < END_PS - 2 { time_ps } else { END_PS - 2 };
    time_ps << RANK_BITS | rank as u64
}

/// Returns the time in an order word.
#[inline]
pub(crate) const fn time_of(order: u64) -> u64 {
    order >> RANK_BITS
}

/// Returns the rank in an order word.
#[inline]
pub(crate) const fn rank_of(order: u64) -> usize {
    (order & ((1 << RANK_BITS) - 1)) as usize
}

/// The children of a node; [`NEVER`] where there is none.
#[derive(Clone, Copy)]
#[repr(align(32))]
struct Children([u64; 4]);

impl Children {
    /// Returns the index and the value of the earliest child.
    #[inline]
    fn first(&self) -> (usize, u64) {
        let [a, b, c, d] = self.0;
        let (left, low) = if b < a { (1, b) } else { (0, a) };
        let (right, high) = if d < c { (3, d) } else { (2, c) };
        if high < low { (right, high) } else { (left, low) }
    }
}

/// A queue of order words, earliest first. Node 0 is the earliest; the children of node `n` are
/// the nodes from `4 n + 1` to `4 n + 4`.
pub(crate) struct EventHeap {
    /// Node 0; [`NEVER`] if the queue is empty.
    first: u64,
    len: usize,
    /// All other nodes, by parent.
    children: Vec<Children>,
}

impl EventHeap {
    pub(crate) const fn new() -> Self {
        Self { first: NEVER, len: 0, children: Vec::new() }
    }
    pub(crate) fn len(&self) -> usize {
        self.len
    }
    /// Returns the earliest; [`NEVER`] if there is none.
    #[inline]
    pub(crate) fn first(&self) -> u64 {
        self.first
    }
    #[inline]
    fn node(&mut self, at: usize) -> &mut u64 {
        &mut self.children[(at - 1) / 4].0[(at - 1) % 4]
    }
    pub(crate) fn push(&mut self, mut order: u64) {
        let mut at = self.len;
        self.len += 1;
        if at == 0 {
            self.first = order;
            return;
        }
        if at.div_ceil(4) > self.children.len() {
            self.children.push(Children([NEVER; 4]));
        }
        while at > 4 {
            let parent = (at - 1) / 4;
            let above = *self.node(parent);
            if above <= order {
                break;
            }
            *self.node(at) = above;
            at = parent;
        }
        if at <= 4 && order < self.first {
            std::mem::swap(&mut self.first, &mut order);
        }
        *self.node(at) = order;
    }
    /// Removes the earliest and returns it; [`NEVER`] if there is none.
    #[inline]
    pub(crate) fn pop(&mut self) -> u64 {
        if self.len > 1 {
            return self.pop_of_several();
        }
        self.len = 0;
        std::mem::replace(&mut self.first, NEVER)
    }
    fn pop_of_several(&mut self) -> u64 {
        let at = self.len - 1;
        self.len = at;
        let last = std::mem::replace(self.node(at), NEVER);
        self.replace_first(last)
    }
    /// Iterates over all entries, the earliest first, and removes them.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = u64> + '_ {
        std::iter::from_fn(|| Some(self.pop()).filter(|&order| order != NEVER))
    }
    /// Whether no entry precedes `order`.
    #[inline]
    pub(crate) fn is_first(&self, order: u64) -> bool {
        self.first > order
    }
    /// Returns the time of the earliest; the end of time if there is none.
    #[inline]
    pub(crate) fn first_time_ps(&self) -> u64 {
        if self.len == 0 { END_PS } else { time_of(self.first) }
    }
    /// Removes the earliest and adds `order`; `None` if `order` itself is the earliest.
    #[inline]
    pub(crate) fn exchange(&mut self, order: u64) -> Option<u64> {
        if self.is_first(order) { None } else { Some(self.replace_first(order)) }
    }
    /// Keeps the orders for which `keep` returns true.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(u64) -> bool) {
        let mut all = std::mem::replace(self, Self::new());
        all.drain().filter(|&order| keep(order)).for_each(|order| self.push(order));
    }
    /// Replaces the earliest entry by `order`; the queue is not empty.
    #[inline]
    fn replace_first(&mut self, order: u64) -> u64 {
        let first = self.first;
        let mut hole = &mut self.first;
        // The children of node `at` are the `skip`th of the rest.
        let (mut at, mut skip, mut rest) = (0, 0, &mut self.children[..]);
        while let Some((children, further)) = rest.get_mut(skip..).and_then(<[_]>::split_first_mut)
        {
            let (best, low) = children.first();
            if low >= order {
                break;
            }
            *hole = low;
            hole = &mut children.0[best];
            skip = 3 * at + best;
            at = 4 * at + 1 + best;
            rest = further;
        }
        *hole = order;
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SplitMix64;

    fn entry(time: u64) -> u64 {
        order_of(time, 0)
    }

    #[test]
    fn entries_order_by_time_then_rank_and_keep_both() {
        assert!(order_of(5, 9) < order_of(5, 10) && order_of(5, 4095) < order_of(6, 0));
        assert!(order_of(NEVER, 0) > order_of(1 << 50, 4095));
        assert!(order_of(NEVER, 4095) < NEVER);
        let order = order_of(5, 4095);
        assert_eq!((time_of(order), rank_of(order)), (5, 4095));
    }

    #[test]
    fn exchange_returns_the_earliest_unless_the_new_one_is() {
        let mut heap = EventHeap::new();
        assert_eq!((heap.first(), heap.first_time_ps()), (NEVER, END_PS));
        assert_eq!(heap.exchange(entry(1)), None);
        [30, 10, 20].into_iter().for_each(|time| heap.push(entry(time)));
        assert!(heap.is_first(order_of(9, 0)) && !heap.is_first(order_of(11, 0)));
        assert_eq!(heap.exchange(entry(9)), None);
        assert_eq!(heap.exchange(entry(25)), Some(entry(10)));
        let rest: Vec<_> = heap.drain().map(time_of).collect();
        assert_eq!(rest, [20, 25, 30]);
    }

    #[test]
    fn random_use_gives_what_sorting_gives() {
        let mut rng = SplitMix64::new(3);
        for size in 0..200 {
            let (mut heap, mut sorted) = (EventHeap::new(), Vec::new());
            for _ in 0..size {
                let time = rng.below(1000);
                heap.push(entry(time));
                sorted.push(time);
            }
            for _ in 0..size {
                let time = rng.below(1000);
                if let Some(first) = heap.exchange(entry(time)) {
                    sorted.sort_unstable();
                    assert_eq!(std::mem::replace(&mut sorted[0], time), time_of(first));
                }
            }
            heap.retain(|order| !time_of(order).is_multiple_of(3));
            sorted.retain(|time| time % 3 != 0);
            sorted.sort_unstable();
            assert_eq!(heap.len(), sorted.len());
            let rest: Vec<_> = heap.drain().map(time_of).collect();
            assert_eq!(rest, sorted);
        }
    }
}
