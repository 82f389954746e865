//! The order of things to come: which CPU goes on when.

use std::collections::BinaryHeap;

/// "Never", as a time in ps.
pub(crate) const NEVER: u64 = u64::MAX;

/// When a CPU goes on. Smaller is earlier: by time, then by the CPU's rank in ties.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Key(u128);

/// What an entry of the queue is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// The CPU goes on, unless it has been given another time since: its generation says so.
    Run(u32),
    /// The CPU's timer goes off, if it still stands at this time and the CPU waits.
    Timer,
}

/// Marks an entry as a timer's; the bits below it hold a generation otherwise.
const TIMER: u32 = 1 << 31;

impl Key {
    /// `order` is a CPU's [`order_of`].
    #[inline]
    pub(crate) const fn new(time_ps: u64, order: u64, kind: Kind) -> Self {
        let low = match kind {
            Kind::Run(generation) => generation & !TIMER,
            Kind::Timer => TIMER,
        };
        Self((time_ps as u128) << 64 | order as u128 | low as u128)
    }
    #[inline]
    pub(crate) const fn time_ps(self) -> u64 {
        (self.0 >> 64) as u64
    }
    #[inline]
    pub(crate) const fn cpu(self) -> usize {
        (self.0 as u64 >> 32 & 0xffff) as usize
    }
    #[inline]
    pub(crate) const fn kind(self) -> Kind {
        let low = self.0 as u32;
        if low & TIMER != 0 { Kind::Timer } else { Kind::Run(low) }
    }
}

/// A CPU's place in ties, with its number: ranks are a permutation, so two CPUs never tie.
pub(crate) const fn order_of(rank: usize, cpu: usize) -> u64 {
    (rank as u64) << 48 | (cpu as u64) << 32
}

/// A queue of keys, earliest first.
#[derive(Default)]
pub(crate) struct EventHeap(BinaryHeap<std::cmp::Reverse<Key>>);

impl EventHeap {
    #[inline]
    pub(crate) fn push(&mut self, key: Key) {
        self.0.push(std::cmp::Reverse(key));
    }
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Key> {
        self.0.pop().map(|key| key.0)
    }
    /// Whether nothing comes before `key`.
    #[inline]
    pub(crate) fn is_first(&self, key: Key) -> bool {
        self.0.peek().is_none_or(|top| top.0 > key)
    }
    /// Takes out the earliest and puts `key` in; `None` if `key` itself is the earliest.
    #[inline]
    pub(crate) fn exchange(&mut self, key: Key) -> Option<Key> {
        let mut top = self.0.peek_mut()?;
        if top.0 > key {
            return None;
        }
        let first = top.0;
        top.0 = key;
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_order_by_time_then_rank_and_keep_their_parts() {
        let early = Key::new(5, order_of(9, 3), Kind::Run(77));
        let tie = Key::new(5, order_of(10, 1), Kind::Timer);
        assert!(early < tie && tie < Key::new(6, order_of(0, 0), Kind::Run(0)));
        assert_eq!((early.time_ps(), early.cpu(), early.kind()), (5, 3, Kind::Run(77)));
        assert_eq!((tie.cpu(), tie.kind()), (1, Kind::Timer));
    }

    #[test]
    fn exchange_returns_the_earliest_and_keeps_the_rest_in_order() {
        let key = |time| Key::new(time, order_of(0, 0), Kind::Run(0));
        let mut heap = EventHeap::default();
        assert_eq!(heap.exchange(key(1)), None);
        [30, 10, 20].into_iter().for_each(|time| heap.push(key(time)));
        assert!(heap.is_first(key(9)) && !heap.is_first(key(11)));
        assert_eq!(heap.exchange(key(9)), None);
        assert_eq!(heap.exchange(key(25)), Some(key(10)));
        let rest: Vec<_> = std::iter::from_fn(|| heap.pop()).map(Key::time_ps).collect();
        assert_eq!(rest, [20, 25, 30]);
    }
}
