//! A memory manager with swap and reclaim, and a program whose pages are in a table of entries with
//! one lock each: the smallest program that reclaim can work on. For any machine.
//!
//! Page `n` and page `n ^ 1` may share a folio.

use mmscale_arch::sync::SpinLock;
use mmscale_arch::{LockClass, Machine, NodeId, Order, Pfn};
use mmscale_frames::page_alloc::Gfp;
use mmscale_mm::folio::{FolioFlags, FolioInit};
use mmscale_mm::lru::LruRef;
use mmscale_mm::memcg::GroupId;
use mmscale_mm::mm::{Mm, MmConfig};
use mmscale_mm::reclaim::{Reclaim, ReclaimRef, References, Rmap, UnmapTo};
use mmscale_mm::swap::{Swap, SwapAudit, SwapConfig, SwapEntry, SwapError};
use mmscale_mm::tlb::UnmapBatch;

/// The entry of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Entry {
    None,
    Page { pfn: Pfn, accessed: bool, dirty: bool },
    Swapped(SwapEntry),
}

pub(crate) struct Paged<A: Machine> {
    pub(crate) mm: Mm<A>,
    pub(crate) swap: Swap<A>,
    pub(crate) reclaim: Reclaim<A>,
    table: Vec<SpinLock<A, Entry>>,
    group: GroupId,
}

/// The device could not read a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lost;

impl<A: Machine> Paged<A> {
    pub(crate) fn new(config: &MmConfig, swap: SwapConfig, pages: usize) -> Self {
        Self {
            mm: Mm::new(config).expect("a sound configuration"),
            swap: Swap::new(swap),
            reclaim: Reclaim::new(config.map.node_count()),
            table: (0..pages).map(|_| SpinLock::new(LockClass::Pte, Entry::None)).collect(),
            group: GroupId::new(config.groups - 1),
        }
    }
    pub(crate) fn memory(&self) -> LruRef<'_, A> {
        self.mm.memory()
    }
    pub(crate) fn scope(&self) -> ReclaimRef<'_, A, Self> {
        ReclaimRef { memory: self.memory(), swap: &self.swap, rmap: self }
    }
    pub(crate) fn entry(&self, page: usize) -> Entry {
        *self.table[page].lock()
    }
    /// Reads a page, and writes `stamp` to it if there is one; returns the old content.
    pub(crate) fn touch(&self, page: usize, stamp: Option<u64>) -> Result<u64, Lost> {
        loop {
            let mut entry = self.table[page].lock();
            let seen = *entry;
            if let Entry::Page { pfn, dirty, .. } = seen {
                *entry = Entry::Page { pfn, accessed: true, dirty: dirty || stamp.is_some() };
                if let Some(stamp) = stamp {
                    A::write_stamp(pfn, stamp);
                }
                return Ok(A::read_stamp(pfn));
            }
            drop(entry);
            match seen {
                Entry::Swapped(slot) => self.swap_in(page, slot)?,
                _ => self.make(page),
            }
        }
    }
    /// Retries `f` after reclaim while it fails for lack of memory.
    fn with_memory<T, E>(&self, mut f: impl FnMut() -> Result<T, E>) -> T {
        let node = A::node_of(A::cpu());
        for _ in 0..200 {
            if let Ok(done) = f() {
                return done;
            }
            self.memory().drain_stocks();
            let group = (self.group != GroupId::ROOT).then_some(self.group);
            if self.reclaim.direct(self.scope(), node, 1, group) == 0 {
                A::cond_resched();
            }
        }
        panic!("out of memory: {:?} {:?}", self.reclaim.counters(), self.swap.counters())
    }
    fn make(&self, page: usize) {
        let flags = FolioFlags::ANON | FolioFlags::SWAP_BACKED | FolioFlags::UPTODATE;
        let what = FolioInit { group: self.group, flags, mapping: 1, index: page as u64 };
        let node = A::node_of(A::cpu());
        let memory = self.memory();
        let pfn = self.with_memory(|| memory.alloc_folio(node, Order::ZERO, Gfp::KERNEL, what));
        A::clear_block(pfn, Order::ZERO);
        let mut entry = self.table[page].lock();
        if *entry != Entry::None {
            drop(entry);
            return self.memory().put(pfn);
        }
        self.memory().add_map(pfn);
        *entry = Entry::Page { pfn, accessed: false, dirty: false };
        drop(entry);
        self.memory().add(pfn);
    }
    fn swap_in(&self, page: usize, slot: SwapEntry) -> Result<(), Lost> {
        let (memory, swap, node) = (self.memory(), &self.swap, A::node_of(A::cpu()));
        let read =
            self.with_memory(|| match swap.read_in(memory, slot, node, self.group, Gfp::KERNEL) {
                Err(SwapError::NoMemory(_)) => Err(()),
                other => Ok(other),
            });
        let pfn = match read {
            Ok(pfn) => pfn,
            Err(SwapError::Io) => return Err(Lost),
            Err(_) => return Ok(()),
        };
        swap.lock_folio(memory, pfn);
        let mut entry = self.table[page].lock();
        if *entry == Entry::Swapped(slot) && swap.holds(memory, pfn, slot) {
            memory.folios.set_mapping(pfn, 1, page as u64);
            memory.add_map(pfn);
            *entry = Entry::Page { pfn, accessed: true, dirty: false };
            drop(entry);
            swap.free(memory, slot, 1);
            if swap.is_half_full() {
                swap.free_swap(memory, pfn);
            }
            swap.unlock_folio(memory, pfn);
        } else {
            drop(entry);
            swap.unlock_folio(memory, pfn);
            swap.free_swap_cache(memory, pfn);
            memory.put(pfn);
        }
        Ok(())
    }
    /// Maps the folio of `page` at `page ^ 1`, which is empty, too.
    pub(crate) fn share(&self, page: usize) {
        let seen = {
            let entry = self.table[page].lock();
            match *entry {
                Entry::Page { pfn, .. } => {
                    self.memory().folios.get(pfn);
                    self.memory().add_map(pfn);
                }
                Entry::Swapped(slot) => self.swap.dup(slot),
                Entry::None => {}
            }
            *entry
        };
        let mut twin = self.table[page ^ 1].lock();
        assert_eq!(*twin, Entry::None);
        *twin = seen;
    }
    pub(crate) fn unmap_page(&self, page: usize) {
        let seen = core::mem::replace(&mut *self.table[page].lock(), Entry::None);
        let memory = self.memory();
        match seen {
            Entry::Page { pfn, dirty, .. } => {
                // The other page may write to it through the same folio.
                if dirty {
                    memory.folios.set(pfn, FolioFlags::DIRTY);
                }
                memory.remove_maps(pfn, 1);
                self.swap.free_swap_cache(memory, pfn);
                memory.release(&[(pfn, 1)]);
            }
            Entry::Swapped(slot) => self.swap.free(memory, slot, 1),
            Entry::None => {}
        }
    }
    /// `MADV_PAGEOUT` of one page; returns the number of pages that it has freed.
    pub(crate) fn page_out(&self, page: usize) -> u32 {
        let Some(pfn) = self.hold(page) else { return 0 };
        let isolated = self.memory().isolate(pfn);
        // The isolation's reference is enough; this one would keep the folio.
        self.memory().put(pfn);
        if isolated { self.reclaim.reclaim_pages(self.scope(), &[pfn]) } else { 0 }
    }
    /// `MADV_FREE` of one page.
    pub(crate) fn give_up(&self, page: usize) {
        let mut entry = self.table[page].lock();
        if let Entry::Page { pfn, .. } = *entry {
            *entry = Entry::Page { pfn, accessed: false, dirty: false };
            self.memory().folios.clear(pfn, FolioFlags::DIRTY);
            self.memory().lazyfree(pfn);
        }
    }
    /// Returns the page's folio with a reference.
    pub(crate) fn hold(&self, page: usize) -> Option<Pfn> {
        let entry = self.table[page].lock();
        let Entry::Page { pfn, .. } = *entry else { return None };
        self.memory().folios.get(pfn);
        Some(pfn)
    }
    pub(crate) fn flags(&self, page: usize) -> FolioFlags {
        match self.entry(page) {
            Entry::Page { pfn, .. } => self.memory().folios.word(pfn).flags(),
            _ => FolioFlags::empty(),
        }
    }
    pub(crate) fn audit(&self) -> SwapAudit {
        let named = (0..self.table.len()).filter_map(|page| match self.entry(page) {
            Entry::Swapped(slot) => Some(slot),
            _ => None,
        });
        self.swap.verify(self.memory(), named).expect("swap adds up")
    }
    /// Unmaps everything and checks that nothing is left, after the memory manager was shut down.
    pub(crate) fn end(&self) {
        (0..self.table.len()).for_each(|page| self.unmap_page(page));
        self.swap.prune(self.memory());
        self.mm.quiesce();
        assert_eq!(self.audit(), SwapAudit::default());
        let audit = self.memory().verify().expect("the LRU adds up");
        assert_eq!(audit.folios, 0, "{audit:?}");
        assert_eq!(self.mm.verify().expect("the frames add up").held, 0);
    }
}

impl<A: Machine> Rmap<A> for Paged<A> {
    fn referenced(&self, pfn: Pfn) -> References {
        let page = self.memory().folios.index(pfn) as usize;
        let mut found = References::default();
        for page in [page, page ^ 1] {
            let mut entry = self.table[page].lock();
            if let Entry::Page { pfn: mapped, accessed, dirty } = *entry
                && mapped == pfn
            {
                found.accessed += u32::from(accessed);
                *entry = Entry::Page { pfn, accessed: false, dirty };
            }
        }
        found
    }
    fn unmap(&self, pfn: Pfn, to: UnmapTo, _: &mut UnmapBatch) -> bool {
        let memory = self.memory();
        let page = memory.folios.index(pfn) as usize;
        for page in [page, page ^ 1] {
            let mut entry = self.table[page].lock();
            let Entry::Page { pfn: mapped, dirty, .. } = *entry else { continue };
            if mapped != pfn {
                continue;
            }
            if dirty {
                memory.folios.set(pfn, FolioFlags::DIRTY);
            }
            match to {
                UnmapTo::Swap(slot) => {
                    self.swap.dup(slot);
                    *entry = Entry::Swapped(slot);
                }
                UnmapTo::Drop if dirty => continue,
                UnmapTo::Drop => *entry = Entry::None,
            }
            memory.remove_maps(pfn, 1);
            memory.put(pfn);
        }
        memory.folios.word(pfn).maps() == 0
    }
    fn flush(&self, _: &mut UnmapBatch) {
        // No CPU caches a translation of this table.
    }
}

pub(crate) const NODE: NodeId = NodeId::new(0);
