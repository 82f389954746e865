//! The reverse map as reclaim uses it.

use crate::swap::SwapEntry;
use crate::tlb::{Leave, UnmapBatch};
use mmscale_arch::{Machine, Pfn};

/// Result of checking the entries that map a folio.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct References {
    /// Entries through which the folio was used since the last check.
    pub accessed: u32,
    /// A mapping of the folio is locked in memory: reclaim skips it.
    pub locked: bool,
    /// A lock of the reverse map was taken, so that not all entries were checked.
    pub contended: bool,
}

/// The replacement for a page-table entry that is cleared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnmapTo {
    /// The slot, whose count grows by one for each entry.
    Swap(SwapEntry),
    /// Nothing: the content may be dropped (`MADV_FREE`).
    Drop,
}

/// The reverse map: from a folio to the page-table entries that map it. Implemented by the owner of
/// the address spaces. `referenced` and `unmap` take page-table locks and do not sleep under them;
/// the caller has a reference to the folio and holds no spin lock.
pub trait Rmap<A: Machine> {
    /// Clears ACCESSED in every entry that maps the folio; returns the findings
    /// (`folio_referenced`).
    fn referenced(&self, pfn: Pfn) -> References;
    /// Clears every entry that maps the folio and stores the replacement `to`; returns whether no
    /// entry maps it now (`try_to_unmap`). The caller holds the folio's lock.
    ///
    /// Sets DIRTY on the folio if an entry was dirty. Drops one reference and one mapping of the
    /// folio for each cleared entry. Entries of mappings that are locked in memory stay.
    ///
    /// With [`UnmapTo::Swap`] the slot is duplicated (`Swap::dup`) before the entry names it. The
    /// TLB flush is deferred to `batch`: until the batch is flushed, CPUs may read the folio, and
    /// write to it if an entry was dirty. So the folio stays in the swap cache, where a fault on
    /// the slot finds it.
    ///
    /// With [`UnmapTo::Drop`] an entry stays if the page was written through it since `MADV_FREE`,
    /// and the result is `false`.
    fn unmap(&self, pfn: Pfn, to: UnmapTo, batch: &mut UnmapBatch) -> bool;
    /// Releases frames from limbo: those that no CPU uses any more, or all after waiting for the
    /// CPUs. Returns the number of freed pages. Sleeps with [`Leave::All`].
    fn leave_limbo(&self, leave: Leave) -> u32 {
        let _ = leave;
        0
    }
    /// Returns whether there is a limbo.
    fn has_limbo(&self) -> bool {
        false
    }
    /// Puts the folios whose entries `batch` deferred into limbo, instead of [`Rmap::flush`]. They
    /// are passed to [`super::Reclaim::leave_limbo`] once no CPU uses them. Returns `false`, and
    /// does nothing, if they cannot wait. The folios are not locked.
    fn park(&self, batch: &mut UnmapBatch, folios: &[Pfn]) -> bool {
        let _ = (batch, folios);
        false
    }
    /// Flushes the translations that `batch` deferred (`try_to_unmap_flush`). Sleeps.
    fn flush(&self, batch: &mut UnmapBatch);
}
