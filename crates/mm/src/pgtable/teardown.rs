//! Freeing tables.

use super::entry::Pte;
use super::gather::{Gather, Sink};
use super::level::{ENTRIES, Level, piece};
use super::{PageTable, PtRef};
use mmscale_arch::{Func, Machine, Op, Pfn, Span, VmaRange, Vpn};

/// The state of a teardown.
struct Teardown<'g, 't, A: Machine, S: Sink> {
    on: PtRef<'g, A>,
    gather: &'g mut Gather<'t, A>,
    sink: &'g mut S,
    /// Tables that cover pages outside of this range stay.
    bounds: VmaRange,
}

impl<A: Machine> PageTable<A> {
    /// Unlinks the tables of `range` (`free_pgtables`), all of whose entries were cleared: those
    /// that cover no page outside `bounds`, which extends from the end of the previous VMA to the
    /// start of the next. They are freed through the gather after a flush, when no CPU can be
    /// reading them. The root stays.
    ///
    /// No other task can lock the VMAs of the range any more, or finds them by the tree: they were
    /// removed, or they are locked for good and mmap_lock is held for writing.
    pub fn free_tables<'t>(
        &'t self,
        on: PtRef<'_, A>,
        gather: &mut Gather<'t, A>,
        sink: &mut impl Sink,
        range: VmaRange,
        bounds: VmaRange,
    ) {
        let _span = Span::<A>::enter(Func::FreePgtables);
        let mut teardown = Teardown { on, gather, sink, bounds };
        teardown.level(self.root(), Level::Pgd, range);
    }
    /// Unlinks the table of the lowest level for `page`, if there is one, whose entries the caller
    /// has cleared. It is freed through the gather.
    ///
    /// The address space is retired, its VMAs are locked for good, and only the caller uses this
    /// table. Other tasks may use neighbouring tables.
    pub(crate) fn free_claimed<'t>(
        &'t self,
        on: PtRef<'_, A>,
        gather: &mut Gather<'t, A>,
        sink: &mut impl Sink,
        page: Vpn,
    ) {
        A::work(Op::TableWalk, 1);
        let found = self.walk([Level::Pgd, Level::Pud, Level::Pmd], page);
        let entry = Pte::of(found.entry);
        if found.depth == 2 && entry.is_table() {
            debug_assert!(is_empty::<A>(entry.frame()), "a table with entries is freed");
            A::work(Op::PteClear, 1);
            A::table_swap(found.table, Level::Pmd.index(page), 0);
            gather.add_table(on, sink, Level::Pte.table_start(page), entry.frame());
        }
    }
}

impl<A: Machine, S: Sink> Teardown<'_, '_, A, S> {
    /// Unlinks the tables below the entries for `range` of a table.
    fn level(&mut self, table: Pfn, level: Level, range: VmaRange) {
        let mut rest = Some(range);
        while let Some(left) = rest {
            let (first, last) = (level.index(left.start()), level.index(range.last()));
            let Some((index, word)) = A::table_scan(table, first..last + 1) else { break };
            let skipped = (index - first) as u64 * level.entry_pages();
            let page = left.start().max(level.entry_start(left.start()).offset(skipped));
            let part = piece(left, page, level.entry_pages());
            rest = VmaRange::new(part.end(), range.end());
            let entry = Pte::of(word);
            assert!(entry.is_table(), "tables are freed under a huge page at {page:?}: {entry:?}");
            let below = level.down();
            if level != Level::Pmd {
                self.level(entry.frame(), below, part);
            }
            let whole = piece(VmaRange::USER, page, level.entry_pages());
            if self.bounds.covers(whole) {
                debug_assert!(is_empty::<A>(entry.frame()), "a table with entries is freed");
                A::work(Op::PteClear, 1);
                A::table_swap(table, level.index(page), 0);
                self.gather.add_table(self.on, self.sink, page_of(whole), entry.frame());
            }
        }
    }
}

const fn page_of(range: VmaRange) -> Vpn {
    range.start()
}

fn is_empty<A: Machine>(table: Pfn) -> bool {
    (0..ENTRIES).all(|index| Pte::of(A::table_load(table, index)).is_none())
}
