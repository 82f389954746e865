//! Copying entries to another address space, for fork.

use super::entry::{Pte, PteFlags};
use super::level::Level;
use super::range::{Direction, Leaf};
use super::{PageTable, PtRef, TableError};
use crate::tlb::Extent;
use mmscale_arch::{Func, Machine, PageSize, Span, VmaRange, Vpn};

/// The decision about one entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyPte {
    /// The copy maps nothing there.
    Skip,
    /// The copy gets this entry; the original does not change.
    Copy(Pte),
    /// The copy gets this entry without `WRITE`, and the original loses `WRITE`.
    Share(Pte),
    /// Both get this entry, which maps nothing and replaces one that maps nothing.
    Both(Pte),
}

/// The reason why a copy ended early. The entries copied before stay in place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyError<E> {
    /// A table could not be allocated.
    Table(TableError),
    /// The callback refused an entry.
    Entry(E),
}

/// Whether entries of the original lost write permission that CPUs may still have cached.
#[must_use]
#[derive(Debug, Default)]
pub struct Downgraded {
    any: bool,
}

impl Downgraded {
    /// Flushes the original's translations, if any lost permissions. Called at the end of a fork,
    /// also after an error.
    pub fn flush<A: Machine>(self, on: PtRef<'_, A>, table: &PageTable<A>) {
        if self.any {
            let _ = table.flush(on, Extent::All);
        } else {
            on.tlb.flush_batched_pending(table.asid);
        }
    }
}

/// Entries that are copied before the source table's lock is exchanged for the copy's.
const BATCH: usize = 32;

/// Approved entries that are not in the copy yet.
struct CopyBatch {
    entries: [(Vpn, Pte); BATCH],
    len: usize,
}

impl CopyBatch {
    fn is_full(&self) -> bool {
        self.len == BATCH
    }
    fn push(&mut self, page: Vpn, pte: Pte) {
        self.entries[self.len] = (page, pte);
        self.len += 1;
    }
}

impl<A: Machine> PageTable<A> {
    /// Copies the entries of `range` to `to`, which no task uses yet (`copy_page_range`).
    ///
    /// Calls `decide` for each entry that is not empty, in order, under its table's lock, with the
    /// page and its size; `decide` takes the references that the copy needs. After it has approved
    /// an entry, copying that entry cannot fail.
    ///
    /// The source's VMAs are locked for writing. The caller flushes `downgraded` after the last
    /// range, also after an error.
    pub fn copy_range<E>(
        &self,
        on: PtRef<'_, A>,
        to: &Self,
        range: VmaRange,
        downgraded: &mut Downgraded,
        mut decide: impl FnMut(Vpn, PageSize, Pte) -> Result<CopyPte, E>,
    ) -> Result<(), CopyError<E>> {
        let _span = Span::<A>::enter(Func::CopyPageRange);
        let mut left = Some(range);
        while let Some(rest) = left {
            let Some((place, found)) = self.find_leaf(rest, Direction::Forward) else { break };
            // Allocate the copy's tables first: after that nothing can fail.
            let page = found.start();
            let made = match place {
                super::range::LeafTable::Ptes(_) => to.pte_table(on, page),
                super::range::LeafTable::Huge(_) => to.pmd_table(on, page),
            };
            made.map_err(CopyError::Table)?;
            let Some(leaf) = self.leaves(on, found, Direction::Forward).next() else {
                left = Direction::Forward.after(rest, found);
                continue;
            };
            let end = match leaf {
                Leaf::Huge(mut pmd, _) => {
                    let page = Level::Pmd.entry_start(page);
                    let copy = decide(page, PageSize::Huge, pmd.get(page));
                    let copy = copy.map_err(CopyError::Entry)?;
                    let copied = apply_decision(&mut pmd, page, copy, downgraded);
                    drop(pmd);
                    if let Some(pte) = copied {
                        to.lock_pmd(on, page).map_err(CopyError::Table)?.fill(page, pte);
                    }
                    found.end()
                }
                Leaf::Ptes(mut ptes, part) => {
                    let mut batch = CopyBatch { entries: [(Vpn::ZERO, Pte::NONE); BATCH], len: 0 };
                    let mut refused = Ok(());
                    let mut at = part.start();
                    while at < part.end() && !batch.is_full() && refused.is_ok() {
                        let pte = ptes.get(at);
                        if !pte.is_none() {
                            match decide(at, PageSize::Base, pte) {
                                Ok(copy) => {
                                    let copied = apply_decision(&mut ptes, at, copy, downgraded);
                                    copied.into_iter().for_each(|pte| batch.push(at, pte));
                                }
                                Err(why) => refused = Err(CopyError::Entry(why)),
                            }
                        }
                        at = at.offset(1);
                    }
                    drop(ptes);
                    to.fill_batch(on, &batch).map_err(CopyError::Table)?;
                    refused?;
                    at
                }
            };
            left = VmaRange::new(end, range.end());
            A::cond_resched();
        }
        Ok(())
    }
    fn fill_batch(&self, on: PtRef<'_, A>, batch: &CopyBatch) -> Result<(), TableError> {
        let Some(&(first, _)) = batch.entries[..batch.len].first() else { return Ok(()) };
        let mut ptes = self.lock_pte(on, first)?;
        batch.entries[..batch.len].iter().for_each(|&(page, pte)| ptes.fill(page, pte));
        Ok(())
    }
}

/// Applies the decision to the original; returns the copy's entry.
fn apply_decision<A: Machine, const LEVEL: u8>(
    table: &mut super::slot::LockedTable<'_, A, LEVEL>,
    page: Vpn,
    copy: CopyPte,
    downgraded: &mut Downgraded,
) -> Option<Pte> {
    match copy {
        CopyPte::Skip => None,
        CopyPte::Copy(pte) => Some(pte),
        CopyPte::Both(pte) => {
            table.take(page);
            table.fill(page, pte);
            Some(pte)
        }
        CopyPte::Share(pte) => {
            let before = table.get(page);
            if before.is_mapped() && before.flags().contains(PteFlags::WRITE) {
                table.clear(page, PteFlags::WRITE);
                downgraded.any = true;
            }
            Some(pte.without(PteFlags::WRITE))
        }
    }
}
