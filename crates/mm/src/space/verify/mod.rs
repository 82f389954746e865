//! Checks that address spaces, page tables and folios agree: for tests, and for the end of a run.

#[cfg(test)]
mod corruption_tests;

use super::zap::{PIECE, folio_of};
use super::{MmRef, Space, TreeDefect, VmaRange, Vpn};
use crate::folio::FolioFlags;
use crate::lru::{LruViolation, StatPages};
use crate::pgtable::{Direction, Leaf, Pte, PteFlags, TableDefect};
use crate::space::TreeId;
use crate::swap::SwapEntry;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use mmscale_arch::{Asid, Machine, Pfn};
use mmscale_frames::vmstat::NodeItem::FilePages;

/// Sums over all address spaces.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct SpaceAudit {
    /// Address spaces.
    pub spaces: u64,
    /// VMAs.
    pub vmas: u64,
    /// Pages of VMAs.
    pub pages: u64,
    /// Entries that map frames, without the zero page; a huge page counts as one.
    pub mapped: u64,
    /// Swap slots that entries name, once for each entry.
    pub swapped: Vec<SwapEntry>,
}

/// An inconsistency.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpaceDefect {
    /// The tree of VMAs is broken.
    Tree(TreeDefect),
    /// The slots of VMAs are broken, or a VMA's lock is held.
    Slots,
    /// The VMA that starts at this page has another range than the tree says.
    Range(Vpn),
    /// The counts of pages are wrong.
    Pages,
    /// The page tables are broken.
    Table(TableDefect),
    /// This page is mapped without a VMA.
    Stray(Vpn),
    /// This page is writable, but its VMA does not allow writing.
    Rights(Vpn),
    /// The folio: the mappings that it counts, and the mappings found in page tables.
    Maps(Pfn, u32, u32),
    /// The folio has fewer references than mappings.
    References(Pfn),
    /// The tree of a file's VMAs: the VMAs that it counts, and those found in address spaces.
    Linked(TreeId, u32, u32),
    /// The promised pages: what is counted, and what the VMAs have.
    Promised(i64, i64),
    /// A statistic of pages in page caches is wrong.
    Stat(LruViolation),
    /// The folio is marked exclusive but mapped by several address spaces, or it is writable but
    /// not marked exclusive.
    Shared(Pfn),
}

impl core::fmt::Display for SpaceDefect {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Tree(why) => write!(f, "the VMA tree: {why:?}"),
            Self::Slots => f.write_str("the slots of VMAs are broken, or one is locked"),
            Self::Range(page) => write!(f, "the VMA at page {:#x} has another range", page.get()),
            Self::Pages => f.write_str("the pages of the VMAs are miscounted"),
            Self::Table(why) => write!(f, "the page tables: {why}"),
            Self::Stray(page) => write!(f, "page {:#x} is mapped without a VMA", page.get()),
            Self::Rights(page) => {
                write!(f, "page {:#x} is writable but its VMA is not", page.get())
            }
            Self::Maps(pfn, counted, found) => {
                write!(f, "folio {}: {counted} mappings, {found} found", pfn.index())
            }
            Self::Shared(pfn) => {
                write!(f, "folio {}: writable or marked exclusive, but shared", pfn.index())
            }
            Self::Linked(tree, counted, found) => {
                write!(f, "tree {} of a file: {counted} VMAs, {found} found", tree.index())
            }
            Self::Promised(counted, found) => {
                write!(f, "{counted} pages are promised, VMAs have {found}")
            }
            Self::Stat(why) => why.fmt(f),
            Self::References(pfn) => {
                write!(f, "folio {}: fewer references than mappings", pfn.index())
            }
        }
    }
}

impl core::error::Error for SpaceDefect {}

/// How a folio is mapped.
#[derive(Clone, Copy)]
struct FolioMappings {
    entries: u32,
    /// The first address space found to map it.
    by: Asid,
    /// Whether another address space maps it too.
    shared: bool,
    /// Whether an entry allows writing.
    written: bool,
}

type Maps = BTreeMap<Pfn, FolioMappings>;

/// The VMAs of each file and tree that are found in address spaces.
type FoundLinks = BTreeMap<(usize, TreeId), u32>;

impl<A: Machine> MmRef<'_, A> {
    /// Checks all address spaces: trees and tables are sound, every mapped page is in a VMA and has
    /// no more rights than it, every folio counts its mappings correctly, and only exclusive folios
    /// are writable. Called while nothing changes.
    pub fn verify(self) -> Result<SpaceAudit, SpaceDefect> {
        let mut audit = SpaceAudit::default();
        let mut maps = Maps::new();
        let mut result = Ok(());
        self.spaces.each(|space| {
            if result.is_ok() {
                result = space.verify(self, &mut audit, &mut maps);
            }
        });
        result?;
        for (pfn, word) in self.memory.folios.iter() {
            let found = maps.remove(&pfn);
            let alone = word.has(FolioFlags::EXCLUSIVE);
            let anonymous = word.has(FolioFlags::ANON);
            let wrong = |found: FolioMappings| if alone { found.shared } else { found.written };
            if anonymous && found.is_some_and(wrong) {
                return Err(SpaceDefect::Shared(pfn));
            }
            let found = found.map_or(0, |found| found.entries);
            if word.maps() != found {
                return Err(SpaceDefect::Maps(pfn, word.maps(), found));
            }
            if word.refs() < word.maps() {
                return Err(SpaceDefect::References(pfn));
            }
        }
        self.verify_links()?;
        self.verify_promised()?;
        self.verify_file_pages().map_err(SpaceDefect::Stat)?;
        match maps.first_key_value() {
            Some((&pfn, found)) => Err(SpaceDefect::Maps(pfn, 0, found.entries)),
            None => Ok(audit),
        }
    }
}

impl<A: Machine> MmRef<'_, A> {
    /// Checks that each VMA that maps a file is in one of the file's trees, and nothing else.
    fn verify_links(self) -> Result<(), SpaceDefect> {
        let mut links = FoundLinks::new();
        self.spaces.each(|space| {
            let vmas = space.lock.read();
            let maps = vmas.tree.iter().filter_map(|entry| vmas.vma(entry.value).file);
            maps.for_each(|map| *links.entry((map.id.index(), map.tree)).or_default() += 1);
        });
        let files = self.spaces.files().lock().files.clone();
        for file in files.iter().flatten() {
            for (tree, counted) in file.mappings().counts() {
                let found = links.remove(&(file.id().index(), tree)).unwrap_or(0);
                if counted != found {
                    return Err(SpaceDefect::Linked(tree, counted, found));
                }
            }
        }
        let lost = links.first_key_value();
        lost.map_or(Ok(()), |(&(_, tree), &found)| Err(SpaceDefect::Linked(tree, 0, found)))
    }
    /// Checks the promised memory.
    fn verify_promised(self) -> Result<(), SpaceDefect> {
        let mut found = 0;
        self.spaces.each(|space| {
            let vmas = space.lock.read();
            let promised = vmas.tree.iter().map(|entry| vmas.vma(entry.value));
            let promised = promised.filter(|vma| vma.is_promised());
            found += promised.map(|vma| vma.range.pages() as i64).sum::<i64>();
        });
        let counted = self.spaces.committed().exactly();
        if counted == found { Ok(()) } else { Err(SpaceDefect::Promised(counted, found)) }
    }
    /// Checks the statistics of pages in page caches: those of files, and, for nodes only, the swap
    /// cache.
    fn verify_file_pages(self) -> Result<(), LruViolation> {
        let memory = self.memory;
        let (mut in_files, mut swapped) = (StatPages::new(), StatPages::new());
        let files = self.spaces.files().lock().files.clone();
        for file in files.iter().flatten() {
            file.folios().for_each(|pfn| in_files.add(&memory, pfn, FilePages));
        }
        for (pfn, word) in memory.folios.iter() {
            if word.has(FolioFlags::SWAP_CACHE) {
                swapped.add(&memory, pfn, FilePages);
            }
        }
        in_files.verify(&memory, FilePages, |node| swapped.on(&memory, node))
    }
}

impl<A: Machine> Space<A> {
    fn verify(
        &self,
        on: MmRef<'_, A>,
        audit: &mut SpaceAudit,
        maps: &mut Maps,
    ) -> Result<(), SpaceDefect> {
        let vmas = self.lock.read();
        vmas.tree.verify().map_err(SpaceDefect::Tree)?;
        if !vmas.slots().verify() || vmas.slots().len() != vmas.tree.len() {
            return Err(SpaceDefect::Slots);
        }
        let (mut pages, mut locked) = (0, 0);
        for entry in vmas.tree.iter() {
            let vma = vmas.vma(entry.value);
            if vma.range != entry.range {
                return Err(SpaceDefect::Range(entry.range.start()));
            }
            if vmas.slots().get(entry.value).is_none_or(|lock| !lock.is_free()) {
                return Err(SpaceDefect::Slots);
            }
            pages += vma.range.pages();
            if vma.flags.contains(super::VmaFlags::LOCKED) {
                locked += vma.range.pages();
            }
        }
        if (pages, locked) != (vmas.pages, vmas.locked_pages) {
            return Err(SpaceDefect::Pages);
        }
        audit.spaces += 1;
        audit.vmas += vmas.tree.len() as u64;
        audit.pages += pages;
        self.table.verify(on.paging).map_err(SpaceDefect::Table)?;
        for leaf in self.table.leaves(on.paging, VmaRange::USER, Direction::Forward) {
            match leaf {
                Leaf::Ptes(ptes, part) => {
                    for page in Direction::Forward.pages(part) {
                        self.verify_entry(&vmas, page, ptes.get(page), audit, maps)?;
                    }
                }
                Leaf::Huge(pmd, part) => {
                    let page = part.start();
                    self.verify_entry(&vmas, page, pmd.get(page), audit, maps)?;
                }
            }
        }
        Ok(())
    }
    fn verify_entry(
        &self,
        vmas: &super::change::Vmas<A>,
        page: Vpn,
        pte: Pte,
        audit: &mut SpaceAudit,
        maps: &mut Maps,
    ) -> Result<(), SpaceDefect> {
        if pte.is_none() {
            return Ok(());
        }
        let vma = vmas.at(page).ok_or(SpaceDefect::Stray(page))?;
        if pte.is_huge() && !vma.range.covers(super::fault::huge_range(page)) {
            return Err(SpaceDefect::Stray(page));
        }
        if let Some((_, word)) = pte.as_swap() {
            audit.swapped.push(SwapEntry::from_word(word));
            return Ok(());
        }
        let flags = pte.flags();
        if flags.contains(PteFlags::WRITE) && !vma.prot.is_writable()
            || pte.is_present() && vma.prot.is_empty()
        {
            return Err(SpaceDefect::Rights(page));
        }
        if let Some(pfn) = pte.pfn().filter(|_| !flags.contains(PteFlags::ZERO)) {
            let (folio, by) = (folio_of(pfn, flags), self.asid());
            audit.mapped += 1;
            let new = FolioMappings { entries: 0, by, shared: false, written: false };
            let mapped = maps.entry(folio).or_insert(new);
            mapped.entries += 1;
            mapped.shared |= mapped.by != by;
            // Pages of a huge folio may be shared and others written to.
            mapped.written |= flags & (PteFlags::WRITE | PIECE) == PteFlags::WRITE;
        }
        Ok(())
    }
}
