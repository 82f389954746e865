//! What reclaim asks of address spaces.

use crate::arch::{Arch, Pfn};
use crate::swap::SwapEntry;

/// What the entries that map a folio said.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct References {
    /// Entries through which it was used since reclaim last asked.
    pub accessed: u32,
    /// Whether a mapping of it is locked in memory: reclaim leaves it alone.
    pub locked: bool,
}

/// What stands in the place of an entry that is taken out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnmapTo {
    /// The slot, whose count grows by one for each entry.
    Swap(SwapEntry),
    /// Nothing: the content may go (`MADV_FREE`).
    Drop,
}

/// From a folio to the page-table entries that map it. Implemented by whoever knows the address
/// spaces. Both functions take page-table locks and do not sleep under them; the caller has a
/// reference to the folio and holds no spin lock.
pub trait Rmap<A: Arch> {
    /// Clears ACCESSED in every entry that maps the folio; what was found (`folio_referenced`).
    fn referenced(&self, pfn: Pfn) -> References;
    /// Takes every entry that maps the folio out, with what `to` says in its place, and flushes the
    /// translations; whether no entry maps it now (`try_to_unmap`). The caller holds the folio's
    /// lock.
    ///
    /// DIRTY is set on the folio if an entry was dirty. One reference and one mapping of the folio
    /// are dropped for each entry that is taken out. With [`UnmapTo::Swap`] the slot is duplicated
    /// (`Swap::dup`) before the entry names it. With [`UnmapTo::Drop`] an
    /// entry through which the page was written since it was given up stays, and the answer is no.
    /// Entries of mappings that are locked in memory stay too.
    fn unmap(&self, pfn: Pfn, to: UnmapTo) -> bool;
}
