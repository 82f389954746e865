//! The kernel's addresses: free, in use, or in limbo.

use alloc::collections::TryReserveError;
use alloc::vec::Vec;
use mmscale_arch::{VmaRange, Vpn};

/// Unmapped addresses that a CPU may still translate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Lazy {
    pub(super) range: VmaRange,
    /// Number of flushes of the kernel's range that had begun at the unmap: a later one frees it.
    pub(super) generation: u64,
    pub(super) since_ns: u64,
}

/// The reason why no addresses were allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    /// No free range is long enough.
    NoAddresses,
    /// The table must be enlarged to this many ranges first: see [`RangeStorage::for_stretches`].
    NoRoom(usize),
}

/// Memory of the table of addresses. Allocated with no lock held, installed under its lock.
#[derive(Default)]
pub(super) struct RangeStorage {
    free: Vec<VmaRange>,
    lazy: Vec<Lazy>,
}

impl RangeStorage {
    /// Allocates room for `count` ranges that are in use or in limbo, and the free ones between
    /// them.
    pub(super) fn for_stretches(count: usize) -> Result<Self, TryReserveError> {
        let mut room = Self::default();
        room.lazy.try_reserve_exact(count)?;
        room.free.try_reserve_exact(count.saturating_add(1))?;
        Ok(room)
    }
    fn stretches(&self) -> usize {
        self.lazy.capacity().min(self.free.capacity().saturating_sub(1))
    }
}

/// All addresses. Has no lock of its own.
///
/// Allocating addresses reserves the room to free them, so freeing needs no memory.
pub(super) struct Ranges {
    /// Free ranges by address, no two of which are adjacent, and the ranges in limbo. Between two
    /// free ranges lies an allocated one, so there is at most one more of them.
    storage: RangeStorage,
    /// Number of ranges in use or in limbo.
    taken: usize,
    pub(super) lazy_pages: u64,
    /// Number of flushes that have begun.
    pub(super) generation: u64,
}

impl Ranges {
    /// Creates the table with all of `whole` free and no room yet.
    pub(super) fn new(whole: VmaRange) -> Self {
        let storage = RangeStorage { free: alloc::vec![whole], lazy: Vec::new() };
        Self { storage, taken: 0, lazy_pages: 0, generation: 0 }
    }
    /// Allocates the lowest free range of `pages` pages. If `room` is larger than the table's
    /// memory, the two are exchanged, and the caller frees the old memory with no lock held.
    pub(super) fn take(
        &mut self,
        pages: u64,
        room: &mut RangeStorage,
    ) -> Result<VmaRange, Refusal> {
        self.move_into(room);
        if self.taken >= self.storage.stretches() {
            return Err(Refusal::NoRoom((2 * self.taken).max(ROOM_MIN)));
        }
        let free = &mut self.storage.free;
        let fits = |range: &VmaRange| range.pages() >= pages;
        let at = free.iter().position(fits).ok_or(Refusal::NoAddresses)?;
        let from = free[at];
        let taken = VmaRange::with_pages(from.start(), pages).ok_or(Refusal::NoAddresses)?;
        match VmaRange::new(taken.end(), from.end()) {
            Some(rest) => free[at] = rest,
            None => drop(free.remove(at)),
        }
        self.taken += 1;
        Ok(taken)
    }
    fn move_into(&mut self, room: &mut RangeStorage) {
        if room.stretches() > self.storage.stretches() {
            room.free.append(&mut self.storage.free);
            room.lazy.append(&mut self.storage.lazy);
            core::mem::swap(room, &mut self.storage);
        }
    }
    /// Puts allocated addresses, which are unmapped now, into limbo.
    pub(super) fn defer(&mut self, range: VmaRange, now_ns: u64) {
        assert!(self.storage.lazy.len() < self.taken, "addresses are unmapped twice, or in parts");
        let generation = self.generation;
        self.storage.lazy.push(Lazy { range, generation, since_ns: now_ns });
        self.lazy_pages += range.pages();
    }
    /// Begins a flush; returns its number and the range from the first to the last page that it
    /// must cover. Returns `None` if limbo is empty.
    pub(super) fn begin_flush(&mut self) -> Option<(u64, VmaRange)> {
        let lazy = &self.storage.lazy;
        let start = lazy.iter().map(|lazy| lazy.range.start()).min()?;
        let end = lazy.iter().map(|lazy| lazy.range.end()).max()?;
        self.generation += 1;
        VmaRange::new(start, end).map(|hull| (self.generation, hull))
    }
    /// Ends the flush of that number: frees the addresses that were in limbo when it began. Returns
    /// when the oldest of these entered limbo, in ns.
    pub(super) fn end_flush(&mut self, generation: u64) -> Option<u64> {
        let mut oldest = None;
        let mut at = 0;
        while at < self.storage.lazy.len() {
            if self.storage.lazy[at].generation >= generation {
                at += 1;
                continue;
            }
            let Lazy { range, since_ns, .. } = self.storage.lazy.swap_remove(at);
            self.lazy_pages -= range.pages();
            oldest = Some(oldest.map_or(since_ns, |before: u64| before.min(since_ns)));
            self.give(range);
        }
        oldest
    }
    /// Frees an allocated range and merges it with its neighbours.
    fn give(&mut self, range: VmaRange) {
        let free = &mut self.storage.free;
        let at = free.partition_point(|free| free.start() < range.start());
        let (before, after) = (at.checked_sub(1).map(|before| free[before]), free.get(at).copied());
        let is_apart = before.is_none_or(|before| before.end() <= range.start())
            && after.is_none_or(|after| range.end() <= after.start());
        assert!(is_apart && self.taken > 0, "addresses are freed twice");
        self.taken -= 1;
        let before = before.filter(|before| before.end() == range.start());
        let after = after.filter(|after| after.start() == range.end());
        let start = before.map_or(range.start(), |before| before.start());
        let end = after.map_or(range.end(), |after| after.end());
        let joined = at - usize::from(before.is_some())..at + usize::from(after.is_some());
        free.splice(joined, VmaRange::new(start, end));
    }
    /// Returns the pages of all free ranges, and the number of these ranges.
    pub(super) fn free(&self) -> (u64, usize) {
        let free = &self.storage.free;
        (free.iter().map(|range| range.pages()).sum(), free.len())
    }
}

/// Minimum of room that is allocated, in ranges: 3 KiB.
const ROOM_MIN: usize = 64;

/// Returns the default maximum of pages in limbo: 32 MiB for each doubling of the CPUs
/// (`lazy_max_pages` of Linux: a flush costs more with more CPUs).
pub(super) fn lazy_max_of(cpus: usize) -> u64 {
    const STEP: u64 = 32 << (20 - mmscale_arch::PAGE_SHIFT);
    u64::from(usize::BITS - cpus.leading_zeros()) * STEP
}

/// The kernel's range: 64 GiB of addresses. They do not conflict with programs' pages, because
/// translations are tagged with the address space.
pub(super) const KERNEL_RANGE: (Vpn, u64) = (Vpn::new(1 << 30), 1 << 24);

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, pages: u64) -> VmaRange {
        VmaRange::with_pages(Vpn::new(start), pages).unwrap()
    }
    fn with_room(whole: VmaRange, stretches: usize) -> Ranges {
        let mut ranges = Ranges::new(whole);
        ranges.move_into(&mut RangeStorage::for_stretches(stretches).unwrap());
        ranges
    }
    fn take(ranges: &mut Ranges, pages: u64) -> Option<VmaRange> {
        ranges.take(pages, &mut RangeStorage::default()).ok()
    }

    #[test]
    fn addresses_are_free_only_after_a_flush_that_began_later() {
        let mut ranges = with_room(range(100, 10), 8);
        assert_eq!(take(&mut ranges, 4), Some(range(100, 4)));
        assert_eq!(take(&mut ranges, 6), Some(range(104, 6)));
        assert_eq!(ranges.take(1, &mut RangeStorage::default()), Err(Refusal::NoAddresses));
        ranges.defer(range(100, 4), 7);
        let (first, hull) = ranges.begin_flush().unwrap();
        assert_eq!(hull, range(100, 4));
        // Unmapped while the flush is in progress: it may have passed a CPU by then.
        ranges.defer(range(104, 6), 9);
        assert_eq!((take(&mut ranges, 1), ranges.lazy_pages), (None, 10));
        assert_eq!(ranges.end_flush(first), Some(7));
        assert_eq!((ranges.lazy_pages, ranges.free()), (6, (4, 1)));
        assert_eq!(take(&mut ranges, 5), None);
        let (second, hull) = ranges.begin_flush().unwrap();
        assert_eq!((hull, ranges.end_flush(second)), (range(104, 6), Some(9)));
        assert_eq!((ranges.free(), ranges.begin_flush()), ((10, 1), None));
    }

    #[test]
    fn stretches_join_their_neighbours() {
        let mut ranges = with_room(range(0, 9), 8);
        let parts: Vec<_> = (0..3).map(|_| take(&mut ranges, 3).unwrap()).collect();
        for (nth, free) in [(0, 1), (2, 2), (1, 1)] {
            ranges.give(parts[nth]);
            assert_eq!(ranges.free().1, free);
        }
        assert_eq!(take(&mut ranges, 9), Some(range(0, 9)));
    }

    #[test]
    fn who_has_taken_addresses_needs_no_memory_to_give_them_back() {
        const COUNT: usize = 128;
        // In all orders that a step of `stride` gives.
        for stride in (1..COUNT).step_by(2) {
            let mut ranges = Ranges::new(range(0, COUNT as u64));
            let mut room = RangeStorage::default();
            for nth in 0..COUNT as u64 {
                if let Err(Refusal::NoRoom(count)) = ranges.take(1, &mut room) {
                    room = RangeStorage::for_stretches(count).unwrap();
                    assert_eq!(ranges.take(1, &mut room), Ok(range(nth, 1)));
                }
            }
            let at = |ranges: &Ranges| {
                (ranges.storage.free.as_ptr().addr(), ranges.storage.lazy.as_ptr().addr())
            };
            let before = at(&ranges);
            for nth in 0..COUNT {
                ranges.defer(range((nth * stride % COUNT) as u64, 1), 0);
                if nth % 3 == 2 {
                    let (number, _) = ranges.begin_flush().unwrap();
                    ranges.end_flush(number);
                }
                assert_eq!(at(&ranges), before, "the table has moved: it has grown");
            }
        }
    }

    #[test]
    fn without_room_nothing_is_taken() {
        let mut ranges = with_room(range(0, 9), 2);
        let mut taken = [0, 1].map(|_| take(&mut ranges, 1).unwrap());
        let Err(Refusal::NoRoom(count)) = ranges.take(1, &mut RangeStorage::default()) else {
            panic!("there is room for two")
        };
        assert!(count > 2 && ranges.free() == (7, 1));
        ranges.defer(taken[0], 0);
        let mut room = RangeStorage::for_stretches(count).unwrap();
        taken[0] = ranges.take(1, &mut room).unwrap();
        // The addresses that were in limbo or free still are.
        assert_eq!((taken[0], ranges.lazy_pages, ranges.free()), (range(2, 1), 1, (6, 1)));
    }

    #[test]
    #[should_panic(expected = "freed twice")]
    fn addresses_are_not_freed_twice() {
        let mut ranges = with_room(range(0, 9), 8);
        ranges.give(range(3, 1));
    }

    #[test]
    #[should_panic(expected = "in parts")]
    fn addresses_are_not_unmapped_in_parts() {
        let mut ranges = with_room(range(0, 9), 8);
        take(&mut ranges, 4);
        [range(0, 2), range(2, 2)].into_iter().for_each(|part| ranges.defer(part, 0));
    }

    #[test]
    fn limbo_has_room_for_more_on_more_cpus() {
        assert_eq!([1, 2, 16, 512].map(lazy_max_of), [8192, 16384, 40960, 81920]);
    }
}
