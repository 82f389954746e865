//! Consistency checks of an address space's tables.

use super::entry::{Pte, PteFlags};
use super::level::{ENTRIES, Level};
use super::{PageTable, PtRef};
use alloc::vec::Vec;
use mmscale_arch::{Machine, Order, Pfn, USER_END, Vpn};
use mmscale_frames::frame::FrameState;

/// The contents of an address space.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TableAudit {
    /// Tables by level, lowest first.
    pub tables: [u64; Level::COUNT],
    /// Entries that map one page, the zero page excluded.
    pub pages: u64,
    /// Entries that map 512 pages.
    pub huge: u64,
    /// Entries that map the zero page.
    pub zero: u64,
    /// Entries of pages that are not in memory.
    pub swapped: u64,
}

/// An inconsistency.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TableDefect {
    /// The entry for this page is not allowed at this level.
    Entry(Level, Vpn),
    /// The frame is used as a table but was not allocated.
    NotHeld(Pfn),
    /// The frame is linked in two places of the tables.
    Twice(Pfn),
    /// The entry for this page maps a free frame.
    MapsFree(Vpn),
    /// The number of tables differs from the count.
    Count,
    /// The number of pages differs from the count: pages counted, pages found.
    Resident(i64, i64),
}

impl core::fmt::Display for TableDefect {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Entry(level, page) => write!(f, "page {:#x}: bad {level:?} entry", page.get()),
            Self::NotHeld(pfn) => write!(f, "frame {}: a table, but not held", pfn.index()),
            Self::Twice(pfn) => write!(f, "frame {}: a table in two places", pfn.index()),
            Self::MapsFree(page) => write!(f, "page {:#x}: maps a free frame", page.get()),
            Self::Resident(counted, found) => {
                write!(f, "{counted} pages counted, {found} found")
            }
            Self::Count => f.write_str("the tables are miscounted"),
        }
    }
}

impl core::error::Error for TableDefect {}

impl<A: Machine> PageTable<A> {
    /// Checks all tables: each is an allocated frame that is linked once, each entry is allowed at
    /// its level, no mapped frame is free, and the counts match. Runs while nothing changes the
    /// address space.
    pub fn verify(&self, on: PtRef<'_, A>) -> Result<TableAudit, TableDefect> {
        let (mut audit, mut tables) = (TableAudit::default(), Vec::new());
        self.verify_table(on, (self.root(), Level::Pgd), Vpn::ZERO, &mut audit, &mut tables)?;
        tables.sort_unstable();
        if let Some(twice) = tables.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(TableDefect::Twice(twice[0]));
        }
        let counted = u64::from(self.tables()) == audit.tables.iter().sum::<u64>();
        if !counted {
            return Err(TableDefect::Count);
        }
        let found = (audit.pages + audit.huge * ENTRIES as u64 + audit.swapped) as i64;
        let counted = self.resident.exactly();
        if counted == found { Ok(audit) } else { Err(TableDefect::Resident(counted, found)) }
    }
    fn verify_table(
        &self,
        on: PtRef<'_, A>,
        (table, level): (Pfn, Level),
        start: Vpn,
        audit: &mut TableAudit,
        tables: &mut Vec<Pfn>,
    ) -> Result<(), TableDefect> {
        if !on.frames.frames().word(table).is(FrameState::Held, Order::ZERO) {
            return Err(TableDefect::NotHeld(table));
        }
        tables.push(table);
        audit.tables[level as usize] += 1;
        for at in 0..ENTRIES {
            let entry = Pte::of(A::table_load(table, at));
            if entry.is_none() {
                continue;
            }
            let page = start.offset(at as u64 * level.entry_pages());
            let bad = TableDefect::Entry(level, page);
            if page.addr() >= USER_END {
                return Err(bad);
            }
            if !entry.is_table() {
                verify_leaf(on, level, page, entry, audit)?;
            } else if level == Level::Pte || entry.is_mapped() || entry.as_swap().is_some() {
                return Err(bad);
            } else {
                self.verify_table(on, (entry.frame(), level.down()), page, audit, tables)?;
            }
        }
        Ok(())
    }
}

fn verify_leaf<A: Machine>(
    on: PtRef<'_, A>,
    level: Level,
    page: Vpn,
    entry: Pte,
    audit: &mut TableAudit,
) -> Result<(), TableDefect> {
    let bad = TableDefect::Entry(level, page);
    if level > Level::Pmd {
        return Err(bad);
    }
    if entry.as_swap().is_some() {
        audit.swapped += 1;
        return Ok(());
    }
    let Some(pfn) = entry.pfn() else { return Err(bad) };
    if entry.is_huge() != (level == Level::Pmd) || entry.is_present() == hidden(entry) {
        return Err(bad);
    }
    let end = pfn.index() + level.entry_pages() as usize;
    if end > on.frames.frames().len() {
        return Err(bad);
    }
    if matches!(on.frames.frames().word(pfn).state(), FrameState::Free | FrameState::Cached) {
        return Err(TableDefect::MapsFree(page));
    }
    match (entry.flags().contains(PteFlags::ZERO), entry.is_huge()) {
        (true, _) => audit.zero += 1,
        (false, true) => audit.huge += 1,
        (false, false) => audit.pages += 1,
    }
    Ok(())
}

fn hidden(entry: Pte) -> bool {
    entry.flags().contains(PteFlags::PROT_NONE)
}
