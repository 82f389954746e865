//! Reads of the memory of another address space (`process_vm_readv`).
//!
//! | step, for up to 1024 pages | locks of the address space that is read |
//! |---|---|
//! | pin the folios; fault in missing pages | mmap_lock, read; by page that of its table |
//! | copy each page to the reader, which may fault | none: the pins keep the folios |
//! | unpin | none |
//!
//! A fault that waits for its page releases mmap_lock, once, as each fault does. A page that is not
//! there is charged to the group of the address space that is read.
//!
//! A pin is a reference, so a page that is pinned is unmapped, moved and reclaimed as one with any
//! other reference. Linux counts pins of small folios in the same word, with 1024 for each. Before
//! that it gives the address space that is read a copy of its own of an anonymous page that it
//! shares with others (`FAULT_FLAG_UNSHARE`); here the shared page is pinned.

use super::{Handled, Patience};
use crate::pgtable::{Direction, Leaf, MemAccess, Pte, PteFlags};
use crate::space::change::Vmas;
use crate::space::zap::folio_of;
use crate::space::{KILLED, MmRef, Space, SpaceError, VmaRange, Vpn};
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Acquire;
use mmscale_arch::{Atomic, Func, Machine, PageSize, Pfn, Span};

/// The most pages that are pinned at a time: pointers of two pages (`PVM_MAX_KMALLOC_PAGES`).
const PINNED_MAX: u64 = 1024;

/// A page that a reader copies from.
struct Pin {
    frame: Pfn,
    /// Its folio, of which the pin has a reference. `None`: the zero page, which stays.
    folio: Option<Pfn>,
}

/// A range that is read.
struct Pinning<'a, A: Machine> {
    reader: &'a Space<A>,
    /// The pages that are not pinned yet.
    rest: VmaRange,
    /// That of the next fault.
    patience: Patience,
    pins: Vec<Pin>,
}

impl<A: Machine> Space<A> {
    /// Copies the pages of `range` in `from` to this address space, the caller's, at `to`
    /// (`process_vm_readv`). The caller is a [user](Space::try_get) of `from`, or `from` is its
    /// own. Returns the number of pages that were copied: fewer if a page of either side has no
    /// VMA or cannot be accessed, or if the caller is killed.
    ///
    /// `Fault`: not even the first page was copied.
    pub fn read_from(
        &self,
        on: MmRef<'_, A>,
        from: &Self,
        range: VmaRange,
        to: Vpn,
    ) -> Result<u64, SpaceError> {
        let _span = Span::<A>::enter(Func::ProcessVmRw);
        let mut copied = 0;
        while copied < range.pages() {
            let at = range.start().offset(copied);
            let end = at.offset(PINNED_MAX).min(range.end());
            let pins = from.pin(on, self, VmaRange::raw(at.get(), end.get()));
            let fine = self.copy_pinned(on, &pins, to.offset(copied));
            pins.iter().filter_map(|pin| pin.folio).for_each(|folio| on.memory.put(folio));
            copied += fine;
            if at.offset(fine) < end {
                break;
            }
        }
        if copied > 0 || range.pages() == 0 { Ok(copied) } else { Err(SpaceError::Fault) }
    }
    /// Copies pinned pages to the caller's memory at `to`. Returns the number of pages.
    fn copy_pinned(&self, on: MmRef<'_, A>, pins: &[Pin], to: Vpn) -> u64 {
        let pages = (0..).map(|at| to.offset(at)).zip(pins);
        let copy = |&(page, pin): &(Vpn, &Pin)| {
            let copy = |frame| {
                // Both may map the same page of a file.
                if frame != pin.frame {
                    A::copy_shared_page(pin.frame, frame);
                }
            };
            page < Vpn::USER_END && self.access(on, page, MemAccess::Write, copy).is_ok()
        };
        pages.take_while(copy).count() as u64
    }
    /// Pins the pages of `range` for `reader`, up to the first that cannot be read
    /// (`pin_user_pages_remote`).
    fn pin(&self, on: MmRef<'_, A>, reader: &Self, range: VmaRange) -> Vec<Pin> {
        let patience = self.patience();
        let mut pinning = Pinning { reader, rest: range, patience, pins: Vec::new() };
        loop {
            let vmas = self.lock.read();
            let waits = self.pin_locked(on, &vmas, &mut pinning);
            drop(vmas);
            let Some(folio) = waits else { return pinning.pins };
            on.swap.wait_before_retry(on.memory, folio);
            pinning.patience = Patience::Sleep;
        }
    }
    /// Pins pages until one is being read from the device, whose folio it returns with a reference.
    fn pin_locked(
        &self,
        on: MmRef<'_, A>,
        vmas: &Vmas<A>,
        pinning: &mut Pinning<'_, A>,
    ) -> Option<Pfn> {
        for (vma, part) in vmas.in_range(pinning.rest) {
            if part.start() != pinning.rest.start() {
                return None;
            }
            for page in Direction::Forward.pages(part) {
                let pin = loop {
                    // Pairs with the exchange in `Space::kill` (victim.rs); no other data passes.
                    if pinning.reader.state.load_uncharged(Acquire) & KILLED != 0 {
                        return None;
                    }
                    if let Some(pin) = self.pin_page(on, page) {
                        break pin;
                    }
                    let (seen, _) = self.table.lookup(page).unwrap_or((Pte::NONE, PageSize::Base));
                    let read = MemAccess::Read;
                    match self.handle_fault(on, &vma, page, read, seen, pinning.patience).ok()? {
                        Handled::Wait(folio) => return Some(folio),
                        Handled::Done => pinning.patience = self.patience(),
                    }
                };
                pinning.pins.push(pin);
                let after = page.offset(1);
                pinning.rest = VmaRange::raw(after.get(), pinning.rest.end().get());
            }
        }
        None
    }
    /// Pins a page that is there (`follow_page_pte`, `follow_huge_pmd`).
    fn pin_page(&self, on: MmRef<'_, A>, page: Vpn) -> Option<Pin> {
        let one = VmaRange::raw(page.get(), page.get() + 1);
        let pin = |pte: Pte, within: usize| {
            let base = pte.pfn().filter(|_| pte.is_present())?;
            let zero = pte.flags().contains(PteFlags::ZERO);
            let folio = (!zero).then(|| folio_of(base, pte.flags()));
            folio.inspect(|&folio| on.memory.folios.get(folio));
            Some(Pin { frame: Pfn::new(base.index() + within), folio })
        };
        match self.table.leaves(on.paging, one, Direction::Forward).next()? {
            Leaf::Ptes(ptes, _) => pin(ptes.get(page), 0),
            Leaf::Huge(entries, _) => {
                let first = super::huge_range(page).start();
                pin(entries.get(page), (page.get() - first.get()) as usize)
            }
        }
    }
}
