//! Names of data, from its place and from the code that uses it.

use crate::symbols::Table;

/// Regions of the kernel's addresses on x86-64 with page tables of four levels and without
/// randomised addresses (Documentation/arch/x86/x86_64/mm.rst).
const DIRECT_MAP: u64 = 0xffff_8880_0000_0000;
const VMALLOC: u64 = 0xffff_c900_0000_0000;
const RECORDS_OF_PAGES: u64 = 0xffff_ea00_0000_0000;
const BEHIND_RECORDS: u64 = 0xffff_eb00_0000_0000;
const IMAGE: u64 = 0xffff_ffff_8000_0000;

/// Stacks of each CPU on which exceptions from user mode begin, and other data of entries.
const ENTRIES: u64 = 0xffff_fe00_0000_0000;
const BEHIND_ENTRIES: u64 = 0xffff_fe80_0000_0000;
/// Addresses that are fixed when the kernel is built, for registers of devices such as the
/// interrupt controller of each CPU.
const FIXED: u64 = 0xffff_ffff_ff00_0000;

/// Whether a stack is one on which a CPU begins an exception, before it goes to the task's own.
pub(super) const fn is_entry_stack(address: u64) -> bool {
    ENTRIES <= address && address < BEHIND_ENTRIES
}

/// Whether an address is that of registers. Each CPU finds its own interrupt controller there.
pub(super) const fn is_device(address: u64) -> bool {
    address >= FIXED
}

/// A kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Region {
    /// Pages by their physical address: objects, page tables, per-CPU data.
    Direct,
    /// Memory that is mapped page by page, stacks among it.
    Mapped,
    /// The records of pages, `struct page`.
    Pages,
    /// The kernel's image, and its variables.
    Image,
    Other,
}

pub(super) const fn region(address: u64) -> Region {
    match address {
        IMAGE.. => Region::Image,
        RECORDS_OF_PAGES..BEHIND_RECORDS => Region::Pages,
        VMALLOC..RECORDS_OF_PAGES => Region::Mapped,
        DIRECT_MAP..VMALLOC => Region::Direct,
        _ => Region::Other,
    }
}

/// Returns the name of the data in a line. `locks` are the classes of locks in it, and `function`
/// is the one that uses it most. Parts of compilers' names and checks of lists say nothing.
pub(super) fn name(table: &Table, address: u64, locks: &[&str], function: &str) -> String {
    match region(address) {
        Region::Pages => "struct page".to_owned(),
        Region::Image => match table.variable_near(address) {
            Some(variable) => variable.to_owned(),
            None => format!("data of {function}"),
        },
        _ => match locks {
            [] => format!("data of {function}"),
            [class, ..] => format!("line of {class}"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_named_by_place_then_by_lock_then_by_function() {
        let table = Table::of("ffffffff82000000 D node_data\nffffffff82000100 D jiffies\n");
        let named = |address, locks: &[&str]| name(&table, address, locks, "rmqueue_bulk");
        assert_eq!(named(0xffff_ea00_0000_1000, &["zone"]), "struct page");
        assert_eq!(named(0xffff_ffff_8200_0040, &[]), "node_data");
        assert_eq!(named(0xffff_8880_0000_1000, &["zone"]), "line of zone");
        assert_eq!(named(0xffff_8880_0000_1000, &[]), "data of rmqueue_bulk");
    }
}
