//! What reclaim asks of address spaces.

use crate::swap::SwapEntry;
use crate::tlb::{Batch, Leave};
use mmscale_arch::{Machine, Pfn};

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
pub trait Rmap<A: Machine> {
    /// Clears ACCESSED in every entry that maps the folio; what was found (`folio_referenced`).
    fn referenced(&self, pfn: Pfn) -> References;
    /// Takes every entry that maps the folio out, with what `to` says in its place; whether no
    /// entry maps it now (`try_to_unmap`). With [`UnmapTo::Swap`] the translations go when `batch`
    /// is flushed: until then CPUs may read the folio, and write to it if an entry was dirty. So
    /// it stays in the swap cache, where whoever faults on the slot finds it. The caller holds the
    /// folio's lock.
    ///
    /// DIRTY is set on the folio if an entry was dirty. One reference and one mapping of the folio
    /// are dropped for each entry that is taken out. With [`UnmapTo::Swap`] the slot is duplicated
    /// (`Swap::dup`) before the entry names it. With [`UnmapTo::Drop`] an
    /// entry through which the page was written since it was given up stays, and the answer is no.
    /// Entries of mappings that are locked in memory stay too.
    fn unmap(&self, pfn: Pfn, to: UnmapTo, batch: &mut Batch) -> bool;
    /// Frees frames that wait for CPUs to forget them: those that no CPU uses by now, or all, and
    /// waits for the CPUs. Returns how many, in pages. Sleeps with [`Leave::All`].
    fn leave_limbo(&self, leave: Leave) -> u32 {
        let _ = leave;
        0
    }
    /// Whether there is a limbo.
    fn has_limbo(&self) -> bool {
        false
    }
    /// Instead of [`Rmap::flush`]: the folios of which entries were taken out for `batch` wait in
    /// limbo until no CPU uses them. They come back with [`super::Reclaim::leave_limbo`], whoever
    /// sees to that. `false`: they cannot wait, and nothing was done. Nobody has their locks.
    fn park(&self, batch: &mut Batch, folios: &[Pfn]) -> bool {
        let _ = (batch, folios);
        false
    }
    /// Makes sure that no CPU uses what was taken out for `batch` (`try_to_unmap_flush`). Sleeps.
    fn flush(&self, batch: &mut Batch);
}
