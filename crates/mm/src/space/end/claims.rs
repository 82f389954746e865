//! Claims on the page tables of a dying address space: one walker empties each table, and no table
//! is visited twice.
//!
//! The lowest-level tables are numbered by the pages that they map. The unclaimed tables are one
//! range of these numbers, in one word:
//!
//! ```text
//! word: end (32 bits) | start (32 bits)
//!
//! 0         start                  end       UNITS
//! | claimed | unclaimed            | claimed |
//!             exit ->     <- helpers
//! ```
//!
//! The exit claims tables at the low end, helpers at the high end, until the two meet. So no lock
//! is contended, whatever the VMAs are, and a walker that finds nothing left is done. Each claim is
//! one compare-and-exchange of the word; a table without a VMA is skipped with the claim of the
//! next one.
//!
//! # While the process still runs
//! A reaper may begin before the last thread has exited. CPUs may still translate by the entries
//! that it takes, so its gather flushes, its tables are locked, and tables are not freed.
//!
//! # When the address space is dead
//! The exit begins when the last thread has ended. It takes mmap_lock for writing; a reaper
//! releases mmap_lock for it between two tables. Both spin before they sleep. The exit locks every
//! VMA for good, so that neither faults nor the reverse map find one, and retires the address
//! space's translations: one flush for everything that is to come ([`crate::tlb::Retired`]). After
//! that, a walker unlinks each table that it has emptied, and frees frames and tables without
//! another flush.
//!
//! No other task uses the entries of a claimed table then: the claim replaces the table's lock.
//!
//! # Pages that are also in the swap cache
//! When the last entry that names a slot is taken, the slot's folio in the swap cache goes into the
//! gather. The folio is then taken off its LRU list in a batch, and not by itself under a table's
//! lock, where all walkers would contend for the lruvec lock once per page.
//!
//! Lock order: as for zapping; the word itself is not a lock.
//!
//! Orderings: a walker reads nothing that another walker wrote before its claim; mmap_lock and
//! `state` order everything else.

use super::reap::is_reapable;
use crate::lru::MANY;
use crate::pgtable::{Direction, ENTRIES, Gather, Gathered, HUGE_AT_ONCE, Hold, Sink};
use crate::space::change::Vmas;
use crate::space::zap::{Zap, locked_of};
use crate::space::{CHANGED, DEAD, LEFT, MmRef, ReapLock, Reaped, Space, VmaRange, Vpn, is_unused};
use crate::tlb::Flushed;
use core::ops::Range;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use mmscale_arch::sync::ReadGuard;
use mmscale_arch::{Atomic, ExitEvent, Func, Machine, Op, Pfn, Span, Trace, ZapBy};

/// Pages that one lowest-level table maps.
const UNIT_PAGES: u64 = ENTRIES as u64;
/// Lowest-level tables that an address space can have.
const UNITS: u32 = (Vpn::USER_END.get() / UNIT_PAGES) as u32;
const _: () = assert!(Vpn::USER_END.get() / UNIT_PAGES < u32::MAX as u64);

/// Frames and tables in the gather from which on they are freed, in a dead address space.
const FREED_AT_ONCE: usize = MANY;

/// Frees the frames of a dead address space: like `Retire`, in larger batches.
struct RetireMany<'a, A: Machine>(MmRef<'a, A>);

impl<A: Machine> Sink for RetireMany<'_, A> {
    fn release(&mut self, _: &Flushed, frames: &[Gathered]) {
        let on = self.0;
        for some in frames.chunks(MANY) {
            some.iter().for_each(|frame| on.swap.free_swap_cache(on.memory, frame.pfn));
            let mut folios = [(Pfn::new(0), 0); MANY];
            for (folio, frame) in folios.iter_mut().zip(some) {
                *folio = (frame.pfn, frame.count);
            }
            on.memory.release_many(&folios[..some.len()]);
        }
    }
}

/// The end of the unclaimed range at which a walker claims.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClaimEnd {
    /// The lowest first: the exit.
    Low,
    /// The highest first: helpers.
    High,
}

impl ClaimEnd {
    const fn direction(self) -> Direction {
        match self {
            Self::Low => Direction::Forward,
            Self::High => Direction::Reverse,
        }
    }
}

/// A range of numbers, each of which one claimant gets, from either end.
pub struct Claims<A: Machine> {
    /// The unclaimed range: its end in the high half, its start in the low half.
    left: A::AtomicU64,
}

const fn pack(left: Range<u32>) -> u64 {
    (left.end as u64) << 32 | left.start as u64
}

const fn unpack(word: u64) -> Range<u32> {
    word as u32..(word >> 32) as u32
}

impl<A: Machine> Claims<A> {
    /// Creates claims on the numbers below `count`, all unclaimed.
    pub fn new(count: u32) -> Self {
        Self { left: A::AtomicU64::new(pack(0..count)) }
    }
    /// The range that is neither claimed nor skipped.
    pub fn left(&self) -> Range<u32> {
        // Pairs with the exchange in `take` on other CPUs; no other data passes.
        unpack(self.left.load(Acquire))
    }
    /// Claims the first numbers, counted from `end`, for which there is work: `find` returns them
    /// for an unclaimed range, or `None`. It is called again if another walker claims meanwhile.
    /// Numbers that it passes over are skipped for all walkers.
    pub fn take(
        &self,
        end: ClaimEnd,
        find: impl Fn(Range<u32>) -> Option<Range<u32>>,
    ) -> Option<Range<u32>> {
        // Pairs with the exchange below on other CPUs, and by way of mmap_lock with `reset`.
        let mut seen = self.left.load(Acquire);
        loop {
            let left = unpack(seen);
            if left.is_empty() {
                return None;
            }
            let found = find(left.clone());
            debug_assert!(
                found.as_ref().is_none_or(|found| {
                    left.start <= found.start && found.start < found.end && found.end <= left.end
                }),
                "{found:?} of {left:?}"
            );
            let rest = match (&found, end) {
                (None, _) => left.end..left.end,
                (Some(found), ClaimEnd::Low) => found.end..left.end,
                (Some(found), ClaimEnd::High) => left.start..found.start,
            };
            // Pairs with itself on other CPUs: each number goes to one walker.
            match self.left.compare_exchange(seen, pack(rest), AcqRel, Acquire) {
                Ok(_) => return found,
                Err(other) => seen = other,
            }
        }
    }
    /// Makes everything below `count` unclaimed again. No walker claims meanwhile.
    fn reset(&self, count: u32) {
        // Pairs with the loads in `take`, by way of mmap_lock, which is held for writing.
        self.left.store(pack(0..count), Release);
    }
}

/// The pages that the tables `units` map.
fn pages_of(units: Range<u32>) -> VmaRange {
    VmaRange::raw(u64::from(units.start) * UNIT_PAGES, u64::from(units.end) * UNIT_PAGES)
}

impl<A: Machine> Space<A> {
    /// Creates the claims of an address space: all tables are unclaimed.
    pub(crate) fn new_claims() -> Claims<A> {
        Claims::new(UNITS)
    }
    /// Claims a table, or a row of huge pages. mmap_lock is held.
    fn claim(&self, vmas: &Vmas<A>, end: ClaimEnd) -> Option<Range<u32>> {
        let units = self.claims.take(end, |left| self.find_units(vmas, left, end.direction()))?;
        for unit in units.clone() {
            A::trace(Trace::Exit(ExitEvent::TableZap {
                asid: self.asid(),
                unit,
                by: ZapBy::Claim,
            }));
        }
        Some(units)
    }
    /// Finds the first table of `units`, or row of huge pages, that a VMA may have pages in.
    fn find_units(&self, vmas: &Vmas<A>, units: Range<u32>, way: Direction) -> Option<Range<u32>> {
        let mut rest = Some(pages_of(units));
        while let Some(range) = rest {
            A::work(Op::VmaFind, 1);
            let mut iter = vmas.in_range(range);
            let next = match way {
                Direction::Forward => iter.next(),
                Direction::Reverse => iter.next_back(),
            };
            let (_, part) = next?;
            if let Some(found) = self.table.first_share(part, way) {
                let first = (found.start().get() / UNIT_PAGES) as u32;
                return Some(first..found.end().get().div_ceil(UNIT_PAGES) as u32);
            }
            rest = way.after(range, part);
        }
        None
    }
    /// Empties what was claimed, and frees the tables if the address space is dead. mmap_lock is
    /// held.
    fn zap_claimed<'t>(
        &'t self,
        on: MmRef<'_, A>,
        vmas: &Vmas<A>,
        gather: &mut Gather<'t, A>,
        units: Range<u32>,
    ) {
        let range = pages_of(units.clone());
        // Pairs with the exchange in `die`. mmap_lock keeps it unchanged during the claim.
        let dead = self.state.load(Acquire) & DEAD != 0;
        let how = Zap::claimed(if dead { Hold::Claim } else { Hold::Lock });
        for (vma, part) in vmas.in_range(range) {
            if dead || is_reapable(&vma) {
                let done = self.zap_with(on, gather, part, locked_of(&vma), how);
                debug_assert!(done, "no huge page extends across the end of a VMA");
            } else {
                // Pairs with the load in `zap_left`, by way of mmap_lock.
                self.state.fetch_or(LEFT, AcqRel);
            }
        }
        let mut sink = RetireMany(on);
        if dead {
            let table_of = |unit: u32| pages_of(unit..unit + 1).start();
            for unit in units {
                self.table.free_claimed(on.paging, gather, &mut sink, table_of(unit));
            }
        }
        // In a dead address space freeing early costs no flush, and leaves less to do when the two
        // ends have met. Huge pages are worth a flush of their own: no page need be allocated for
        // the gather.
        let is_due = match gather.has_only_huge() {
            true => gather.is_short_of(HUGE_AT_ONCE as usize),
            false => dead && gather.len() >= FREED_AT_ONCE,
        };
        if is_due {
            gather.flush(on.paging, &mut sink);
        }
    }
    /// Zaps as a helper. `more` is called before each table; if it returns false, the helper stops,
    /// and everything that it has claimed is done.
    pub(super) fn reap_claims<'t>(
        &'t self,
        on: MmRef<'_, A>,
        how: ReapLock,
        vmas: ReadGuard<'t, A, Vmas<A>>,
        more: impl Fn() -> bool,
    ) -> Reaped {
        let mut gather = Gather::new_dying(&self.table);
        gather.widen();
        let mut vmas = Some(vmas);
        let mut result = Reaped::Done;
        while let Some(held) = &vmas {
            if !more() {
                result = Reaped::Partly;
                break;
            }
            let Some(units) = self.claim(held, ClaimEnd::High) else { break };
            self.zap_claimed(on, held, &mut gather, units);
            if self.exit_begins() || self.lock.has_waiters() {
                // The exit, or a change, waits for mmap_lock. The exit downgrades the lock soon
                // after it has it, so even `ReapLock::Try` waits for that.
                drop(vmas.take());
                vmas = self.lock_again(how);
                if vmas.is_none() {
                    result = Reaped::Busy;
                } else if self.is_skipped() {
                    break;
                }
            }
        }
        // The frames that are left are in this gather only: mmap_lock is not needed to free them.
        drop(vmas);
        gather.finish(on.paging, &mut RetireMany(on));
        result
    }
    /// Whether the exit has started and the address space is not dead yet.
    fn exit_begins(&self) -> bool {
        // Pairs with the exit of the last user (users.rs) and with `die`. A hint: mmap_lock orders
        // the rest.
        let state = self.state.load(Acquire);
        is_unused(state) && state & DEAD == 0
    }
    /// Takes mmap_lock for reading again, for a reaper that has released it.
    fn lock_again(&self, how: ReapLock) -> Option<ReadGuard<'_, A, Vmas<A>>> {
        // Pairs with the exit of the last user (users.rs). A hint, as in `exit_begins`.
        if !is_unused(self.state.load(Acquire)) {
            return self.lock_to_reap(how);
        }
        let soon = self.lock.try_read_once(|| !self.exit_begins());
        soon.or_else(|| self.lock_to_reap(ReapLock::Wait))
    }
    /// The exit's walk. The address space is dead.
    pub(super) fn zap_unclaimed<'t>(
        &'t self,
        on: MmRef<'_, A>,
        vmas: &Vmas<A>,
        gather: &mut Gather<'t, A>,
    ) {
        while let Some(units) = self.claim(vmas, ClaimEnd::Low) {
            self.zap_claimed(on, vmas, gather, units);
        }
        // Helpers may still be at work.
        gather.flush(on.paging, &mut RetireMany(on));
    }
    /// Unmaps the pages that a reaper had to skip while threads were running. The address space is
    /// dead, and mmap_lock is held for writing: with it held for reading, another walker may still
    /// free the other tables of these VMAs.
    pub(super) fn zap_left<'t>(
        &'t self,
        on: MmRef<'_, A>,
        vmas: &Vmas<A>,
        gather: &mut Gather<'t, A>,
    ) {
        // Pairs with the exchange in `zap_claimed`, by way of mmap_lock: no reaper holds it.
        if self.state.load(Acquire) & LEFT == 0 {
            return;
        }
        let _span = Span::<A>::enter(Func::UnmapVmas);
        let how = Zap::claimed(Hold::Claim);
        for (vma, part) in vmas.in_range(VmaRange::USER) {
            if !is_reapable(&vma) {
                self.zap_with(on, gather, part, locked_of(&vma), how);
            }
        }
    }
    /// Makes the address space dead. mmap_lock is held for writing, and every VMA's lock too.
    pub(super) fn die(&self, on: MmRef<'_, A>) {
        self.table.retire(on.paging);
        // Pairs with the load in `zap_claimed`: its walker sees the address space retired. Sees
        // `CHANGED` of `Space::change` (mod.rs) by way of mmap_lock.
        let before = self.state.fetch_or(DEAD, AcqRel);
        if before & CHANGED != 0 {
            // Pages may have moved to a table that a reaper has passed.
            self.reopen_claims();
        }
    }
    fn reopen_claims(&self) {
        self.claims.reset(UNITS);
        A::trace(Trace::Exit(ExitEvent::ClaimsOpen { asid: self.asid() }));
    }
}
