//! Page tables: words in frames, which are changed under a lock and read without it.

use crate::memory::{Id, Memory};
use crate::world::{Table, here, with};
use core::sync::atomic::Ordering::{self, AcqRel, Release};
use mmscale_arch::Pfn;
use std::collections::BTreeMap;

/// Applies `f` to entry `index` of the table at `pfn`: to the entry's name and last value.
fn with_entry<R>(pfn: Pfn, index: usize, f: impl FnOnce(&Memory, &Id, &mut u64) -> R) -> R {
    with(|w| {
        let mut tables = w.tables.borrow_mut();
        assert!(!w.freed_tables.borrow().contains(&pfn), "a page table is used after it was freed");
        let empty = || Table { last: Box::new([0; 512]), ids: BTreeMap::new() };
        let table = tables.entry(pfn).or_insert_with(empty);
        f(&w.memory, table.ids.entry(index).or_default(), &mut table.last[index])
    })
}

pub(crate) fn load(pfn: Pfn, index: usize, order: Ordering) -> u64 {
    with_entry(pfn, index, |memory, id, last| memory.load(here(), id, *last, order))
}

pub(crate) fn store(pfn: Pfn, index: usize, value: u64) {
    with_entry(pfn, index, |memory, id, last| {
        memory.store(here(), id, *last, value, Release);
        *last = value;
    });
}

pub(crate) fn swap(pfn: Pfn, index: usize, value: u64) -> u64 {
    with_entry(pfn, index, |memory, id, last| {
        memory.modify(here(), id, *last, value, AcqRel);
        core::mem::replace(last, value)
    })
}

pub(crate) fn compare_exchange(pfn: Pfn, index: usize, old: u64, new: u64) -> Result<u64, u64> {
    with_entry(pfn, index, |memory, id, last| {
        if *last != old {
            return Err(*last);
        }
        memory.modify(here(), id, old, new, AcqRel);
        Ok(core::mem::replace(last, new))
    })
}

/// Forgets the table at `pfn`. No CPU may use it until its frame is cleared for another one.
pub(crate) fn drop(pfn: Pfn) {
    with(|w| {
        w.tables.borrow_mut().remove(&pfn);
        w.freed_tables.borrow_mut().insert(pfn);
    });
}

/// Empties the frame at `pfn`, which may become a table.
pub(crate) fn clear(pfn: Pfn) {
    with(|w| {
        w.tables.borrow_mut().remove(&pfn);
        w.freed_tables.borrow_mut().remove(&pfn);
    });
}
