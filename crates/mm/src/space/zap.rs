//! Unmapping pages: entries are taken out of the tables, frames go into the gather, and after the
//! flush the LRU drops their references.

use super::{MmRef, Space, UnmapPolicy, Vma, VmaFlags, VmaRange, Vpn};
use crate::lru::BATCH;
use crate::pgtable::{
    Direction, Gather, Gathered, Hold, Leaf, PmdTable, PteFlags, PteTable, Room, Sink,
};
use crate::reclaim::ReclaimRef;
use crate::tlb::{Flushed, Leave};
use mmscale_arch::{ExitEvent, Func, Machine, Op, Order, PageSize, Pfn, Span, Trace, ZapBy};

/// Pages of a huge page.
pub(super) const HUGE_PAGES: u64 = PageSize::Huge.pages();
/// The order of a huge page's folio.
pub(super) const HUGE_ORDER: Order = match Order::new(9) {
    Some(order) => order,
    None => panic!("no order for huge pages"),
};
const _: () = assert!(HUGE_ORDER.pages() as u64 == HUGE_PAGES);

/// Marks the entry of a single page that is part of a huge folio.
pub(super) const PIECE: PteFlags = PteFlags::SOFT;

/// Drops the references of unmapped frames.
pub(super) struct Retire<'a, A: Machine>(pub(super) MmRef<'a, A>);

impl<A: Machine> Sink for Retire<'_, A> {
    fn release(&mut self, _: &Flushed, frames: &[Gathered]) {
        for some in frames.chunks(BATCH) {
            // A folio that is not mapped any more would be kept by its swap slot only.
            some.iter().for_each(|frame| self.0.swap.free_swap_cache(self.0.memory, frame.pfn));
            let mut folios = [(Pfn::new(0), 0); BATCH];
            for (folio, frame) in folios.iter_mut().zip(some) {
                *folio = (frame.pfn, frame.count);
            }
            self.0.memory.release(&folios[..some.len()]);
        }
    }
}

impl<A: Machine> MmRef<'_, A> {
    /// Frees frames that leave limbo; returns their number in pages. Called in a task without
    /// locks; sleeps with [`Leave::All`].
    pub fn leave_limbo(self, leave: Leave) -> u32 {
        let mut sink = Retire(self);
        let left = self.paging.tlb.leave_limbo(leave, |proof, frames| {
            for some in frames.chunks(BATCH) {
                let mut gathered = [Gathered { pfn: Pfn::new(0), count: 0 }; BATCH];
                for (to, frame) in gathered.iter_mut().zip(some) {
                    *to = Gathered { pfn: frame.pfn, count: frame.count };
                }
                sink.release(proof, &gathered[..some.len()]);
            }
        });
        let scope = ReclaimRef { memory: self.memory, swap: self.swap, rmap: &self };
        let batches = self
            .paging
            .tlb
            .leave_limbo_batches(leave, |folios| self.reclaim.leave_limbo(scope, folios));
        left as u32 + batches
    }
}

/// Returns the folio of the frame that an entry maps.
#[inline]
pub(super) fn folio_of(pfn: Pfn, flags: PteFlags) -> Pfn {
    if flags.contains(PIECE) { Pfn::new(pfn.index() & !(HUGE_PAGES as usize - 1)) } else { pfn }
}

/// Whether the unmapped pages were locked in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Locked {
    No,
    Yes,
}

/// Whether the pages of `vma` are locked in memory.
pub(super) fn locked_of(vma: &Vma) -> Locked {
    if vma.flags.contains(VmaFlags::LOCKED) { Locked::Yes } else { Locked::No }
}

/// The treatment of a folio that only the swap cache has, when its slot's last entry is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Swapped {
    /// It is freed immediately (`free_swap_and_cache`).
    Free,
    /// It goes into the gather and is freed with others.
    Gather,
}

/// How many huge pages are unmapped per acquisition of their table's lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum HugeZap {
    /// One.
    One,
    /// All adjacent ones.
    Row,
}

/// How pages are unmapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Zap {
    /// The protection of the entries against other walkers.
    pub(super) hold: Hold,
    /// The treatment of folios in the swap cache.
    pub(super) swapped: Swapped,
    pub(super) huge: HugeZap,
}

impl Zap {
    /// As Linux does.
    const PLAIN: Self = Self { hold: Hold::Lock, swapped: Swapped::Free, huge: HugeZap::One };
    /// For a walker that has claimed the pages.
    pub(super) const fn claimed(hold: Hold) -> Self {
        Self { hold, swapped: Swapped::Gather, huge: HugeZap::Row }
    }
}

impl<A: Machine> Space<A> {
    /// Drains this CPU's LRU batches if that is the policy before memory is unmapped.
    pub(super) fn drain_before_unmap(&self, on: MmRef<'_, A>) {
        if self.config.unmap == UnmapPolicy::Drain {
            on.memory.blanket_drain();
        }
    }
    /// Unmaps `range` (`unmap_page_range`). If the gather is full it is flushed and its frames are
    /// freed; the rest stays in it. The caller makes sure that no other task removes the VMAs of
    /// `range`: it holds mmap_lock or their locks, or has removed them. Returns `false` if a huge
    /// page had to be split and there was no memory for the table: that huge page stays.
    pub(super) fn zap<'t>(
        &'t self,
        on: MmRef<'_, A>,
        gather: &mut Gather<'t, A>,
        range: VmaRange,
        locked: Locked,
    ) -> bool {
        self.zap_with(on, gather, range, locked, Zap::PLAIN)
    }
    /// Like [`Space::zap`], with the way of unmapping chosen by the caller.
    pub(super) fn zap_with<'t>(
        &'t self,
        on: MmRef<'_, A>,
        gather: &mut Gather<'t, A>,
        range: VmaRange,
        locked: Locked,
        how: Zap,
    ) -> bool {
        let _span = Span::<A>::enter(Func::UnmapPageRange);
        let mut sink = Retire(on);
        let mut all = true;
        let mut leaves = self.table.leaves_held(on.paging, range, Direction::Forward, how.hold);
        while let Some(leaf) = leaves.next() {
            let part = leaf.range();
            let next = match leaf {
                Leaf::Ptes(mut ptes, part) => {
                    self.zap_ptes(on, gather, &mut ptes, part, (locked, how.swapped))
                }
                Leaf::Huge(mut pmd, part) if part.pages() == HUGE_PAGES => {
                    let end = if how.huge == HugeZap::Row { range.end() } else { part.end() };
                    let row = VmaRange::raw(part.start().get(), end.get());
                    let (done, room) = self.zap_huge(on, gather, &mut pmd, row, locked);
                    drop(pmd);
                    leaves.back_to(done, range);
                    (room == Room::Full).then_some(done)
                }
                Leaf::Huge(pmd, part) => {
                    drop(pmd);
                    if self.split_huge_page(on, part.start()).is_ok() {
                        leaves.back_to(part.start(), range);
                    } else {
                        all = false;
                    }
                    continue;
                }
            };
            if let Some(at) = next {
                gather.flush(on.paging, &mut sink);
                if part.contains(at) {
                    leaves.back_to(at, range);
                }
            }
            A::cond_resched();
        }
        all
    }
    /// Unmaps the pages of one table. Returns where to continue if the gather is full.
    fn zap_ptes(
        &self,
        on: MmRef<'_, A>,
        gather: &mut Gather<'_, A>,
        ptes: &mut PteTable<'_, A>,
        part: VmaRange,
        (locked, swapped): (Locked, Swapped),
    ) -> Option<Vpn> {
        let unit = (part.start().get() / HUGE_PAGES) as u32;
        A::trace(Trace::Exit(ExitEvent::TableZap { asid: self.asid(), unit, by: ZapBy::Walk }));
        let (mut empty, mut next) = (0, part.start());
        while next < part.end() {
            let page = next;
            next = page.offset(1);
            let pte = ptes.take(page);
            if pte.is_none() {
                empty += 1;
                continue;
            }
            if let Some(entry) = pte.as_swap() {
                let left = match swapped {
                    Swapped::Free => {
                        self.forget_swap(on, entry);
                        None
                    }
                    Swapped::Gather => self.forget_swap_but_folio(on, entry),
                };
                if let Some(folio) = left
                    && gather.add(on.paging, folio, 1) == Room::Full
                {
                    A::work(Op::PteScan, empty);
                    return Some(next);
                }
                continue;
            }
            if pte.is_present() {
                gather.note(page, PageSize::Base);
            }
            let flags = pte.flags();
            let Some(pfn) = pte.pfn().filter(|_| !flags.contains(PteFlags::ZERO)) else {
                continue;
            };
            let folio = folio_of(pfn, flags);
            let mut count = 1;
            if flags.contains(PIECE) {
                count += take_pieces(gather, ptes, VmaRange::new(next, part.end()), folio);
                next = page.offset(count.into());
            }
            self.unmap_folio(on, folio, count, locked);
            if gather.add(on.paging, folio, count) == Room::Full {
                A::work(Op::PteScan, empty);
                return Some(next);
            }
        }
        A::work(Op::PteScan, empty);
        None
    }
    /// Unmaps the huge page at the start of `row` and those that follow it in the same table.
    /// Returns where to continue, and whether the gather has room.
    fn zap_huge(
        &self,
        on: MmRef<'_, A>,
        gather: &mut Gather<'_, A>,
        pmd: &mut PmdTable<'_, A>,
        row: VmaRange,
        locked: Locked,
    ) -> (Vpn, Room) {
        let mut page = row.start();
        loop {
            let pte = pmd.take(page);
            let mut room = Room::More;
            if let Some(pfn) = pte.pfn() {
                if pte.is_present() {
                    gather.note(page, PageSize::Huge);
                }
                self.unmap_folio(on, pfn, 1, locked);
                room = gather.add(on.paging, pfn, 1);
            }
            page = page.offset(HUGE_PAGES);
            let is_in_row = page.offset(HUGE_PAGES) <= row.end() && pmd.maps(page);
            if room == Room::Full || !is_in_row {
                return (page, room);
            }
        }
    }
    /// Drops the mappings of `count` entries of the folio that were taken, but not the references.
    pub(super) fn unmap_folio(&self, on: MmRef<'_, A>, folio: Pfn, count: u32, locked: Locked) {
        let _span = Span::<A>::enter(Func::FolioRemoveRmapPtes);
        A::work(Op::UnmapPage, 1);
        on.memory.remove_maps(folio, count);
        if locked == Locked::Yes && on.is_anonymous(folio) {
            (0..count).for_each(|_| on.memory.munlock(folio));
        }
    }
}

/// Takes the entries at the start of `rest` that map pieces of `folio`, and returns their number:
/// their mappings are removed together with that of the entry before them.
fn take_pieces<A: Machine>(
    gather: &mut Gather<'_, A>,
    ptes: &mut PteTable<'_, A>,
    rest: Option<VmaRange>,
    folio: Pfn,
) -> u32 {
    let mut count = 0;
    for page in rest.into_iter().flat_map(|rest| Direction::Forward.pages(rest)) {
        let pte = ptes.get(page);
        let is_piece = pte.flags().contains(PIECE) && pte.as_swap().is_none();
        if !is_piece || pte.pfn().map(|pfn| folio_of(pfn, PIECE)) != Some(folio) {
            break;
        }
        ptes.take(page);
        if pte.is_present() {
            gather.note(page, PageSize::Base);
        }
        count += 1;
    }
    count
}
