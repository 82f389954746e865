//! Pages that were unmapped, on their way to be freed (`mmu_gather`).
//!
//! An entry is taken out, its frame goes into the gather; only when no CPU can translate to it any
//! more, which is what a flush proves, the frame is handed on. So one flush serves many pages.
//!
//! As in Linux: room for 8 frames comes with the gather, more comes in pages of 510, up to 19 of
//! them; if there is no memory for another, the gather is full earlier. With `claims` room for 32
//! comes with it: many huge pages, for which no page need be taken from their zone.

use super::{ENTRIES, PageTable, Paging};
use crate::smp::Wait;
use crate::tlb::{Extent, Flushed, Parked, Retired, Tables};
use core::sync::atomic::Ordering::{AcqRel, SeqCst};
use mmscale_arch::{Atomic, Func, Machine, Order, PageSize, Pfn, Span, VmaRange, Vpn, planted};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::Gfp;

/// Frames that fit without a page.
const BUNDLE: usize = 8;
/// The same in a gather that was widened.
const WIDE: usize = 32;
/// Frames that fit into a page; two words of it are Linux's own.
const PER_PAGE: usize = ENTRIES - 2;
/// Pages at most: about 10,000 frames.
const PAGES_MAX: usize = 10_000 / PER_PAGE;
/// Frames that are handed on at a time: four of the LRU's batches of 31.
const CHUNK: usize = 4 * 31;
/// Frames after which other tasks get a chance.
const RESCHED_EVERY: usize = 512;

const COUNT_SHIFT: u32 = 32;
const TABLE: u64 = 1 << 63;

/// Frames that no CPU translates to any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gathered {
    /// The first.
    pub pfn: Pfn,
    /// How many in a row, of one folio; one reference for each.
    pub count: u32,
}

/// Where frames go.
pub trait Sink {
    /// These frames were mapped, and `proof` says that no CPU can use them by that any more.
    /// Called with nothing held.
    fn release(&mut self, proof: &Flushed, frames: &[Gathered]);
}

impl<F: FnMut(&Flushed, &[Gathered])> Sink for F {
    fn release(&mut self, proof: &Flushed, frames: &[Gathered]) {
        self(proof, frames);
    }
}

/// Whether a gather can take more.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    /// At least one more.
    More,
    /// None: [`Gather::flush`] before the next, with no lock held.
    Full,
}

/// Frames and tables that wait for a flush.
///
/// End it with [`Gather::finish`]: frames in one that is dropped are lost.
#[must_use]
pub struct Gather<'t, A: Machine> {
    table: &'t PageTable<A>,
    bundle: [u64; WIDE],
    /// How many of the bundle there are.
    room: usize,
    pages: [Option<Pfn>; PAGES_MAX],
    /// Frames in all batches.
    len: usize,
    /// Pages that there are.
    made: usize,
    /// First page and the end of what was unmapped since the last flush.
    range: Option<(Vpn, Vpn)>,
    /// The smallest size among it.
    size: PageSize,
    /// All of the address space is unmapped.
    whole: bool,
    /// Whether tables are among what waits.
    tables: Tables,
    promise: Promise,
}

/// What whoever gathers has promised about the pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Promise {
    /// They are gone for every CPU when a flush returns.
    Gone,
    /// Nothing: the frames may wait in limbo.
    Nothing,
}

impl<'t, A: Machine> Gather<'t, A> {
    /// For unmapping parts of an address space (`tlb_gather_mmu`).
    pub fn new(table: &'t PageTable<A>) -> Self {
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
    /// For unmapping all of it at its end (`tlb_gather_mmu_fullmm`): what is flushed is flushed
    /// as a whole.
    pub fn new_whole(table: &'t PageTable<A>) -> Self {
        let mut gather = Self::new(table);
        gather.whole = true;
        gather
    }
    /// The same for an address space whose process is dying, and by somebody who promises nothing:
    /// with `requests` frames go into limbo instead of waiting for a flush.
    pub fn new_dying(table: &'t PageTable<A>) -> Self {
        let mut gather = Self::new(table);
        gather.promise = Promise::Nothing;
        gather
    }
    /// Makes room for 32 frames without a page. Nothing waits yet.
    pub fn widen(&mut self) {
        debug_assert!(self.is_empty(), "frames would be lost");
        self.room = WIDE;
    }
    /// Whether `count` more frames might need a page, or another one.
    pub fn is_short_of(&self, count: usize) -> bool {
        self.len + count >= self.room + self.made * PER_PAGE
    }
    /// Whether huge pages were noted since the last flush, and nothing else.
    pub fn has_only_huge(&self) -> bool {
        self.range.is_some() && self.size == PageSize::Huge
    }
    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// The number of entries that wait.
    pub fn len(&self) -> usize {
        self.len
    }
    /// The entry for `page` was taken out or lost rights; it was present.
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
    /// `count` frames from `pfn` on, of one folio, were mapped by entries that were taken out and
    /// noted. Under the tables' lock. There is room: see what the last call said.
    #[inline]
    pub fn add(&mut self, on: Paging<'_, A>, pfn: Pfn, count: u32) -> Room {
        self.push(u64::from(count) << COUNT_SHIFT | pfn.index() as u64);
        self.room(on)
    }
    fn push(&mut self, word: u64) {
        match self.len.checked_sub(self.room) {
            None => self.bundle[self.len] = word,
            Some(at) => match self.pages.get(at / PER_PAGE) {
                Some(&Some(page)) => A::table_store(page, at % PER_PAGE, word),
                _ => panic!("a full gather was given another frame"),
            },
        }
        self.len += 1;
    }
    /// Looks for room for one more.
    #[inline]
    fn room(&mut self, on: Paging<'_, A>) -> Room {
        if self.len < self.room + self.made * PER_PAGE { Room::More } else { self.grow(on) }
    }
    #[cold]
    fn grow(&mut self, on: Paging<'_, A>) -> Room {
        if self.made == PAGES_MAX {
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
                None => panic!("a gather has lost a page"),
            },
        }
    }
    /// A table for pages from `page` on was unlinked. Nothing is locked.
    pub(super) fn add_table(
        &mut self,
        on: Paging<'_, A>,
        sink: &mut impl Sink,
        page: Vpn,
        table: Pfn,
    ) {
        self.note(page, PageSize::Base);
        self.table.tables.fetch_sub(1, AcqRel);
        self.tables = Tables::Freed;
        self.push(TABLE | table.index() as u64);
        if self.room(on) == Room::Full {
            self.flush(on, sink);
        }
    }
    /// Makes sure that no CPU uses what was noted; the frames wait on. Also under a table's lock.
    /// Where the address space is retired that is so already.
    pub fn flush_tlb(&mut self, on: Paging<'_, A>) -> Flushed {
        self.flush_tlb_for(on, Wait::Spin)
    }
    fn flush_tlb_for(&mut self, on: Paging<'_, A>, wait: Wait) -> Flushed {
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
    /// Flushes, if anything was noted, and hands on all that waits. Nothing is locked.
    pub fn flush(&mut self, on: Paging<'_, A>, sink: &mut impl Sink) {
        if self.len == 0 && self.range.is_none() {
            // Entries that reclaim has taken out look unmapped to the caller as well.
            if self.table.retired().is_none() {
                on.tlb.settle(self.table.asid);
            }
            return;
        }
        let _span = Span::<A>::enter(Func::TlbFlushMmu);
        if self.park(on) {
            return;
        }
        let proof = if planted!(GatherUnflushed) {
            Retired::again(self.table.asid).flushed()
        } else {
            self.flush_tlb_for(on, Wait::Sleep)
        };
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
    /// Puts all that waits into limbo, if that may be and there is room.
    fn park(&mut self, on: Paging<'_, A>) -> bool {
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
    /// Flushes and hands on, for the last time (`tlb_finish_mmu`). If another gather on the same
    /// address space is under way, whatever it has taken out and not flushed yet is flushed too:
    /// its pages look unmapped to the caller already.
    pub fn finish(mut self, on: Paging<'_, A>, sink: &mut impl Sink) {
        let _span = Span::<A>::enter(Func::TlbFinishMmu);
        let promised = self.promise == Promise::Gone && self.table.retired().is_none();
        if promised && self.table.gathers.load(SeqCst) > 1 && !planted!(GatherOthersIgnored) {
            self.whole = true;
            self.note(Vpn::ZERO, PageSize::Base);
        }
        self.flush(on, sink);
        for page in self.pages.iter_mut().filter_map(Option::take) {
            A::table_drop(page);
            on.frames.free_pages(page, Order::ZERO);
        }
        self.table.gathers.fetch_sub(1, SeqCst);
    }
}

const _: () = assert!(PAGES_MAX == 19);
