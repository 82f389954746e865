//! Names of data, from its place and from the code that uses it.

use crate::symbols::Table;

/// Regions of the kernel's addresses on x86-64 with page tables of four levels and without
/// randomised addresses (Documentation/arch/x86/x86_64/mm.rst).
pub(super) const DIRECT_MAP: u64 = 0xffff_8880_0000_0000;
const VMALLOC: u64 = 0xffff_c900_0000_0000;
pub(super) const RECORDS_OF_PAGES: u64 = 0xffff_ea00_0000_0000;
const BEHIND_RECORDS: u64 = 0xffff_eb00_0000_0000;
pub(super) const IMAGE: u64 = 0xffff_ffff_8000_0000;

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

/// Facts about a line that is to be named.
pub(super) struct Seen<'a> {
    /// The address in it that is used most.
    pub(super) address: u64,
    /// The member that is there by the types of the kernel, such as `mm_struct mmap_lock`.
    pub(super) object: Option<String>,
    /// Whether it is in the data of a CPU.
    pub(super) is_of_cpu: bool,
    /// The classes of locks in it.
    pub(super) locks: &'a [&'a str],
    /// The function that writes it first in the recording, or that uses it most if none does.
    pub(super) function: &'a str,
}

/// The begins of the names of caches of memory that any code allocates by its size.
const BY_SIZE: &str = "kmalloc-";
/// The begins of the names of functions that allocate, free, clear, link or check memory for
/// others, and so say nothing of the data.
const HELPERS: [&str; 11] = [
    "__list_",
    "kmem_cache_",
    "__kmem_cache_",
    "kmalloc",
    "__kmalloc",
    "kfree",
    "__kfree",
    "slab_",
    "___slab_",
    "__slab_",
    "memset",
];

/// Whether a function uses data on behalf of its caller.
pub(super) fn is_helper(function: &str) -> bool {
    HELPERS.iter().any(|begin| function.starts_with(begin))
}

/// Returns the name of the data in a line.
pub(super) fn name(table: &Table, seen: Seen<'_>) -> String {
    let Seen { address, object, is_of_cpu, locks, function } = seen;
    let beside = || match locks {
        [] => String::new(),
        [class, ..] => format!(", on the line of {class}"),
    };
    match (region(address), object) {
        (Region::Pages, _) => "struct page".to_owned(),
        (Region::Image, _) => match table.variable_near(address) {
            Some(variable) => variable.to_owned(),
            None => format!("data of {function}"),
        },
        (_, Some(object)) if object.starts_with(BY_SIZE) => {
            format!("{object} of {function}{}", beside())
        }
        (_, Some(object)) => object + &beside(),
        (_, None) => match locks {
            [] if is_of_cpu => format!("per-CPU data of {function}"),
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
        let named = |address, locks: &[&str]| {
            let (object, is_of_cpu) = (None, false);
            name(&table, Seen { address, object, is_of_cpu, locks, function: "rmqueue_bulk" })
        };
        assert_eq!(named(0xffff_ea00_0000_1000, &["zone"]), "struct page");
        assert_eq!(named(0xffff_ffff_8200_0040, &[]), "node_data");
        assert_eq!(named(0xffff_8880_0000_1000, &["zone"]), "line of zone");
        assert_eq!(named(0xffff_8880_0000_1000, &[]), "data of rmqueue_bulk");
        let typed = |object: Option<&str>, locks| {
            let (address, object) = (0xffff_8880_0000_1000, object.map(str::to_owned));
            name(&table, Seen { address, object, is_of_cpu: true, locks, function: "zap" })
        };
        assert_eq!(typed(Some("zone lock"), &[]), "zone lock");
        assert_eq!(typed(Some("zone lock"), &["zone"]), "zone lock, on the line of zone");
        assert_eq!(typed(None, &[]), "per-CPU data of zap");
        assert_eq!(typed(Some("kmalloc-64 0x0"), &[]), "kmalloc-64 0x0 of zap");
    }
}
