//! Unmapped pages that wait for a TLB flush before they are freed (`mmu_gather`).
//!
//! An entry is cleared and its frame is added to the gather. After a flush has proved that no CPU
//! can translate to the frame any more, the frame is passed to the sink. One flush serves many
//! pages.
//!
//! As in Linux, a gather has room for 8 frames in itself, and allocates pages for 510 frames each,
//! at most 19. If a page cannot be allocated, or the policy of gathers is `small`, it is full
//! earlier. With `claims` a gather has room for 32 frames in itself, enough for many huge pages
//! without a page from their zone.

use super::{ENTRIES, PageTable, PtRef};
use crate::smp::{GatherPolicy, Wait};
use crate::tlb::{Extent, Flushed, Parked, Tables};
use core::sync::atomic::Ordering::{AcqRel, SeqCst};
use mmscale_arch::{Atomic, Func, Machine, Order, PageSize, Pfn, Span, VmaRange, Vpn};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::Gfp;

/// Frames that fit without a page.
const BUNDLE: usize = 8;
/// Frames that fit without a page in a widened gather.
const WIDE: usize = 32;
/// Frames that fit into a page; Linux uses two words of it for its header.
const PER_PAGE: usize = ENTRIES - 2;
/// Maximum of pages: about 10,000 frames.
const PAGES_MAX: usize = 10_000 / PER_PAGE;
/// Frames passed to the sink in one call: four of the LRU's batches of 31.
const CHUNK: usize = 4 * 31;
/// Frames after which other tasks may run.
const RESCHED_EVERY: usize = 512;

const COUNT_SHIFT: u32 = 32;
const TABLE: u64 = 1 << 63;

/// Frames to which no CPU translates any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gathered {
    /// The first frame.
    pub pfn: Pfn,
    /// Number of consecutive frames, all of one folio; one reference for each.
    pub count: u32,
}

/// The receiver of the frames.
pub trait Sink {
    /// Takes frames that were mapped; `proof` shows that no CPU can use them by the old
    /// translations. Called with no lock held.
    fn release(&mut self, proof: &Flushed, frames: &[Gathered]);
}

impl<F: FnMut(&Flushed, &[Gathered])> Sink for F {
    fn release(&mut self, proof: &Flushed, frames: &[Gathered]) {
        self(proof, frames);
    }
}

/// Whether a gather has room.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    /// For at least one more frame.
    More,
    /// For none: call [`Gather::flush`] before the next, with no lock held.
    Full,
}

/// Frames and tables that wait for a flush.
///
/// Ended by [`Gather::finish`]; the frames of a gather that is dropped are leaked.
#[must_use]
pub struct Gather<'t, A: Machine> {
    table: &'t PageTable<A>,
    bundle: [u64; WIDE],
    /// Number of words of `bundle` in use.
    room: usize,
    pages: [Option<Pfn>; PAGES_MAX],
    /// Frames in the bundle and in all pages.
    len: usize,
    /// Pages that were allocated.
    made: usize,
    /// The first unmapped page since the last flush, and the end.
    range: Option<(Vpn, Vpn)>,
    /// The smallest page size in `range`.
    size: PageSize,
    /// The whole address space is unmapped.
    whole: bool,
    /// Whether tables are among the waiting frames.
    tables: Tables,
    promise: Promise,
}

/// The caller's promise about the unmapped pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Promise {
    /// No CPU uses them when a flush returns.
    Gone,
    /// Nothing: the frames may wait in limbo.
    Nothing,
}

impl<'t, A: Machine> Gather<'t, A> {
    /// Creates a gather for unmapping a part of an address space (`tlb_gather_mmu`).
    pub fn new(table: &'t PageTable<A>) -> Self {
        // Before the first entry is cleared. Pairs with the load in `finish` of another gather: one
        // that finds an entry cleared, under the table's lock, sees this count too.
        table.gathers.fetch_add(1, SeqCst);
        Self {
            table,
            bundle: [0; WIDE],
            room: BUNDLE,
            pages: [None; PAGES_MAX],
            len: 0,
            made: 0,
            range: None,
            size: PageSize::Huge,
            whole: false,
            tables: Tables::Kept,
            promise: Promise::Gone,
        }
    }
    /// Creates a gather for unmapping all of an address space at its end (`tlb_gather_mmu_fullmm`):
    /// each flush covers the whole.
    pub fn new_whole(table: &'t PageTable<A>) -> Self {
        let mut gather = Self::new(table);
        gather.whole = true;
        gather
    }
    /// Creates a gather for the address space of a dying process, for a caller that makes no
    /// promise: with `requests` its frames go into limbo instead of waiting for a flush.
    pub fn new_dying(table: &'t PageTable<A>) -> Self {
        let mut gather = Self::new(table);
        gather.promise = Promise::Nothing;
        gather
    }
    /// Makes room for 32 frames without a page. The gather must be empty.
    pub fn widen(&mut self) {
        debug_assert!(self.is_empty(), "frames would be lost");
        self.room = WIDE;
    }
    /// Returns whether `count` more frames might need a further page.
    pub fn is_short_of(&self, count: usize) -> bool {
        self.len + count >= self.room + self.made * PER_PAGE
    }
    /// Returns whether huge pages, and nothing else, were noted since the last flush.
    pub fn has_only_huge(&self) -> bool {
        self.range.is_some() && self.size == PageSize::Huge
    }
    /// Returns whether no frame waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// Returns the number of waiting entries.
    pub fn len(&self) -> usize {
        self.len
    }
    /// Records that the entry for `page`, which was present, was cleared or lost permissions.
    #[inline]
    pub fn note(&mut self, page: Vpn, size: PageSize) {
        let end = page.offset(size.pages());
        self.range = Some(match self.range {
            Some((first, last)) => (first.min(page), last.max(end)),
            None => (page, end),
        });
        if size == PageSize::Base {
            self.size = PageSize::Base;
        }
    }
    /// Adds `count` frames starting at `pfn`, of one folio, whose entries were cleared and noted.
    /// Called under the tables' lock, with room for one: see the last returned [`Room`].
    #[inline]
    pub fn add(&mut self, on: PtRef<'_, A>, pfn: Pfn, count: u32) -> Room {
        self.push(u64::from(count) << COUNT_SHIFT | pfn.index() as u64);
        self.room(on)
    }
    fn push(&mut self, word: u64) {
        match self.len.checked_sub(self.room) {
            None => self.bundle[self.len] = word,
            Some(at) => match self.pages.get(at / PER_PAGE) {
                Some(&Some(page)) => A::table_store(page, at % PER_PAGE, word),
                _ => panic!("a frame is added to a full gather"),
            },
        }
        self.len += 1;
    }
    /// Checks for room for one more frame, and allocates a page if needed.
    #[inline]
    fn room(&mut self, on: PtRef<'_, A>) -> Room {
        if self.len < self.room + self.made * PER_PAGE { Room::More } else { self.grow(on) }
    }
    #[cold]
    fn grow(&mut self, on: PtRef<'_, A>) -> Room {
        if self.made == PAGES_MAX || on.tlb.smp().config().gather == GatherPolicy::Small {
            return Room::Full;
        }
        let kind = MigrateType::Unmovable;
        let Ok(page) = on.frames.alloc_pages(Order::ZERO, kind, Gfp::NOWAIT) else {
            return Room::Full;
        };
        self.pages[self.made] = Some(page);
        self.made += 1;
        Room::More
    }
    fn word(&self, at: usize) -> u64 {
        match at.checked_sub(self.room) {
            None => self.bundle[at],
            Some(at) => match self.pages[at / PER_PAGE] {
                Some(page) => A::table_load(page, at % PER_PAGE),
                None => panic!("a page of a gather is missing"),
            },
        }
    }
    /// Adds an unlinked table of pages starting at `page`. No lock is held.
    pub(super) fn add_table(
        &mut self,
        on: PtRef<'_, A>,
        sink: &mut impl Sink,
        page: Vpn,
        table: Pfn,
    ) {
        self.note(page, PageSize::Base);
        // A count. Other tasks read it relaxed: see `PageTable::free`.
        self.table.tables.fetch_sub(1, AcqRel);
        self.tables = Tables::Freed;
        self.push(TABLE | table.index() as u64);
        if self.room(on) == Room::Full {
            self.flush(on, sink);
        }
    }
    /// Flushes the noted range on all CPUs; the frames keep waiting. Also under a table's lock. If
    /// the address space is retired, no flush is needed.
    pub fn flush_tlb(&mut self, on: PtRef<'_, A>) -> Flushed {
        self.flush_tlb_for(on, Wait::Spin)
    }
    fn flush_tlb_for(&mut self, on: PtRef<'_, A>, wait: Wait) -> Flushed {
        let tables = core::mem::replace(&mut self.tables, Tables::Kept);
        if let Some(retired) = self.table.retired() {
            (self.range, self.size) = (None, PageSize::Huge);
            return retired.flushed();
        }
        let range = self.range.take().and_then(|(first, end)| VmaRange::new(first, end));
        let extent = match range {
            Some(range) if !self.whole => Extent::Range(range, self.size),
            _ => Extent::All,
        };
        self.size = PageSize::Huge;
        on.tlb.flush_with(self.table.asid, extent, tables, wait)
    }
    /// Flushes if anything was noted, and passes all waiting frames to the sink. No lock is held.
    pub fn flush(&mut self, on: PtRef<'_, A>, sink: &mut impl Sink) {
        if self.len == 0 && self.range.is_none() {
            // Entries cleared by reclaim look unmapped to the caller as well.
            if self.table.retired().is_none() {
                on.tlb.flush_batched_pending(self.table.asid);
            }
            return;
        }
        let _span = Span::<A>::enter(Func::TlbFlushMmu);
        if self.park(on) {
            return;
        }
        let proof = self.flush_tlb_for(on, Wait::Sleep);
        let mut chunk = [Gathered { pfn: Pfn::new(0), count: 0 }; CHUNK];
        let mut filled = 0;
        for at in 0..self.len {
            let word = self.word(at);
            let pfn = Pfn::new((word & u64::from(u32::MAX)) as usize);
            if word & TABLE != 0 {
                super::free_table(on, pfn);
            } else {
                chunk[filled] = Gathered { pfn, count: (word >> COUNT_SHIFT) as u32 };
                filled += 1;
            }
            if filled == CHUNK || filled > 0 && at + 1 == self.len {
                sink.release(&proof, &chunk[..filled]);
                filled = 0;
            }
            if (at + 1).is_multiple_of(RESCHED_EVERY) {
                A::cond_resched();
            }
        }
        self.len = 0;
    }
    /// Puts all waiting frames into limbo, if the promise allows it and there is room.
    fn park(&mut self, on: PtRef<'_, A>) -> bool {
        let waits = self.promise == Promise::Nothing
            && self.tables == Tables::Kept
            && on.tlb.has_limbo()
            && self.table.retired().is_none();
        if !waits {
            return false;
        }
        let range = self.range.and_then(|(first, end)| VmaRange::new(first, end));
        let extent = range.map_or(Extent::All, |range| Extent::Range(range, self.size));
        let begun = on.tlb.begin(self.table.asid, extent);
        let frames = (0..self.len).map(|at| {
            let word = self.word(at);
            let pfn = Pfn::new((word & u64::from(u32::MAX)) as usize);
            Parked { pfn, count: (word >> COUNT_SHIFT) as u32 }
        });
        if !on.tlb.park(begun, frames) {
            return false;
        }
        (self.range, self.size, self.len) = (None, PageSize::Huge, 0);
        true
    }
    /// Flushes and passes on the frames for the last time (`tlb_finish_mmu`). If another gather of
    /// the same address space is in progress, flushes the entries that it has cleared and not
    /// flushed yet too: their pages already look unmapped to the caller.
    pub fn finish(mut self, on: PtRef<'_, A>, sink: &mut impl Sink) {
        let _span = Span::<A>::enter(Func::TlbFinishMmu);
        let promised = self.promise == Promise::Gone && self.table.retired().is_none();
        // Pairs with the add in `new` and the subtraction below: if this gather is alone, entries
        // that others have cleared are flushed.
        if promised && self.table.gathers.load(SeqCst) > 1 {
            self.whole = true;
            self.note(Vpn::ZERO, PageSize::Base);
        }
        self.flush(on, sink);
        for page in self.pages.iter_mut().filter_map(Option::take) {
            A::table_drop(page);
            on.frames.free_pages(page, Order::ZERO);
        }
        // Pairs with the load above, in another gather: the flush of this one is over.
        self.table.gathers.fetch_sub(1, SeqCst);
    }
}

const _: () = assert!(PAGES_MAX == 19);
