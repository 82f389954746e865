//! Claims on the page tables of a dying address space: each is emptied by one walker, and none is
//! looked at twice.
//!
//! The tables of the lowest level are numbered by the pages that they stand for. What nobody has
//! claimed is one stretch of these numbers, in one word. The exit takes tables from its low end,
//! whoever helps from its high end, until the two meet: so there is no lock for which both come,
//! whatever the VMAs are, and the one who finds nothing left is done.
//!
//! # While the process still runs
//! A reaper may begin before the last thread has ended. Then CPUs may still translate by the
//! entries that it takes out, so its gather flushes, and tables stay where they are.
//!
//! # When the address space is dead
//! The exit begins with the last thread's end. It takes mmap_lock for writing, for which a reaper
//! gives way between two tables: both spin for a moment before they sleep. It locks every VMA for
//! good, so that neither faults nor the reverse map find anything, and retires the address space's
//! translations: one flush for all that is to come ([`crate::tlb::Retired`]). From then on a walker
//! unlinks each table that it has emptied, and frees frames and tables at once.
//!
//! Nobody else can be at an entry that was claimed then: the claim is as good as a lock, and no
//! table is locked.
//!
//! # Pages that are in swap too
//! The folio that the swap cache still has for a slot goes into the gather when the slot's last
//! entry goes. So it is taken off its list together with others, not by itself under a table's
//! lock, where all walkers would come for the lruvec's lock once for each such page.
//!
//! Lock order: as for zapping; the word itself is no lock.

use super::change::Vmas;
use super::mmap::locked_of;
use super::reap::is_reapable;
use super::zap::Zap;
use super::{Backing, CHANGED, DEAD, EXITING, LEFT, ReapLock, Reaped, Space, VmaRange, Vpn};
use crate::lru::MANY;
use crate::table::{Direction, ENTRIES, Gather, Gathered, HUGE_AT_ONCE, Hold, Sink};
use crate::tlb::Flushed;
use core::ops::Range;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use mmscale_arch::sync::ReadGuard;
use mmscale_arch::{Atomic, ExitEvent, Func, Machine, Op, Pfn, Span, Trace, ZapBy, planted};

/// Pages that a table stands for.
const UNIT_PAGES: u64 = ENTRIES as u64;
/// Tables that an address space can have.
const UNITS: u32 = (Vpn::USER_END.get() / UNIT_PAGES) as u32;
const _: () = assert!(Vpn::USER_END.get() / UNIT_PAGES < u32::MAX as u64);

/// Frames and tables that are worth being freed together.
const FREED_AT_ONCE: usize = MANY;

/// Where frames of a dead address space go: as elsewhere, but more of them at a time.
struct RetireMany<'a, A: Machine>(Backing<'a, A>);

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

/// From which end somebody claims.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The lowest first: the exit.
    Low,
    /// The highest first: whoever helps.
    High,
}

impl End {
    const fn direction(self) -> Direction {
        match self {
            Self::Low => Direction::Forward,
            Self::High => Direction::Reverse,
        }
    }
}

/// A stretch of numbers of which each is given to one claimant, from either end.
pub struct Claims<A: Machine> {
    /// The end of the stretch, and its beginning in the low half.
    left: A::AtomicU64,
}

const fn pack(left: Range<u32>) -> u64 {
    (left.end as u64) << 32 | left.start as u64
}

const fn unpack(word: u64) -> Range<u32> {
    word as u32..(word >> 32) as u32
}

impl<A: Machine> Claims<A> {
    /// Nobody has claimed any of the numbers below `count`.
    pub fn new(count: u32) -> Self {
        Self { left: A::AtomicU64::new(pack(0..count)) }
    }
    /// What nobody has claimed or passed over.
    pub fn left(&self) -> Range<u32> {
        unpack(self.left.load(Acquire))
    }
    /// Claims the first numbers from `end` on for which there is something to do: `find` says which
    /// of a stretch these are, if any. It may be asked again when somebody else has come in
    /// between, and what it passes over is asked for by nobody any more.
    pub fn take(
        &self,
        end: End,
        find: impl Fn(Range<u32>) -> Option<Range<u32>>,
    ) -> Option<Range<u32>> {
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
                (Some(found), End::Low) => found.end..left.end,
                (Some(found), End::High) => left.start..found.start,
            };
            if planted!(ClaimInTwoSteps) {
                self.left.store(pack(rest), Release);
                return found;
            }
            match self.left.compare_exchange(seen, pack(rest), AcqRel, Acquire) {
                Ok(_) => return found,
                Err(other) => seen = other,
            }
        }
    }
    /// Everything below `count` may be claimed anew. Nobody claims meanwhile.
    fn reset(&self, count: u32) {
        self.left.store(pack(0..count), Release);
    }
}

/// The pages of some tables.
fn pages_of(units: Range<u32>) -> VmaRange {
    VmaRange::raw(u64::from(units.start) * UNIT_PAGES, u64::from(units.end) * UNIT_PAGES)
}

impl<A: Machine> Space<A> {
    /// The claims of a new address space.
    pub(super) fn new_claims() -> Claims<A> {
        Claims::new(UNITS)
    }
    /// Claims a table, or some huge pages. mmap_lock is held.
    fn claim(&self, vmas: &Vmas<A>, end: End) -> Option<Range<u32>> {
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
    /// The first table of some, or huge pages, in which a VMA may have pages.
    fn find_units(&self, vmas: &Vmas<A>, units: Range<u32>, way: Direction) -> Option<Range<u32>> {
        let mut rest = Some(pages_of(units));
        while let Some(range) = rest {
            A::work(Op::VmaFind, 1);
            let mut areas = vmas.areas(range);
            let next = match way {
                Direction::Forward => areas.next(),
                Direction::Reverse => areas.next_back(),
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
    /// Empties what was claimed, and frees its tables if nobody can be looking at them. mmap_lock
    /// is held.
    fn zap_claimed<'t>(
        &'t self,
        on: Backing<'_, A>,
        vmas: &Vmas<A>,
        gather: &mut Gather<'t, A>,
        units: Range<u32>,
    ) {
        let range = pages_of(units.clone());
        let dead = self.state.load(Acquire) & DEAD != 0;
        let how = Zap::claimed(if dead { Hold::Claim } else { Hold::Lock });
        for (area, part) in vmas.areas(range) {
            if dead || is_reapable(&area) {
                let done = self.zap_with(on, gather, part, locked_of(&area), how);
                debug_assert!(done, "no huge page reaches across the end of a VMA");
            } else {
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
        // Of a dead address space that costs no flush, and leaves less to be done when the two ends
        // have met. Huge pages are worth a flush: so nobody has to take a page for the gather.
        let is_due = match gather.has_only_huge() {
            true => gather.is_short_of(HUGE_AT_ONCE as usize),
            false => dead && gather.len() >= FREED_AT_ONCE,
        };
        if is_due {
            gather.flush(on.paging, &mut sink);
        }
    }
    /// A reaper's part. `more` is asked before each table: `false` ends it, with all that it has
    /// claimed done.
    pub(super) fn reap_claims<'t>(
        &'t self,
        on: Backing<'_, A>,
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
            let Some(units) = self.claim(held, End::High) else { break };
            self.zap_claimed(on, held, &mut gather, units);
            if self.exit_begins() || self.lock.has_waiters() {
                // The exit wants to begin, or another change to be made. The exit lets readers in
                // as soon as it has begun, so whoever would not wait for others waits for that.
                drop(vmas.take());
                vmas = self.lock_again(how);
                if vmas.is_none() {
                    result = Reaped::Busy;
                } else if self.is_skipped() {
                    break;
                }
            }
        }
        // What is left to do is to free frames that nobody else knows of.
        drop(vmas);
        gather.finish(on.paging, &mut RetireMany(on));
        result
    }
    /// Whether the exit is there, and the address space not dead yet.
    fn exit_begins(&self) -> bool {
        self.state.load(Acquire) & (EXITING | DEAD) == EXITING
    }
    /// mmap_lock for reading, for a reaper that has given way.
    fn lock_again(&self, how: ReapLock) -> Option<ReadGuard<'_, A, Vmas<A>>> {
        if self.state.load(Acquire) & EXITING == 0 {
            return self.lock_to_reap(how);
        }
        let soon = self.lock.try_read_once(|| !self.exit_begins());
        soon.or_else(|| self.lock_to_reap(ReapLock::Wait))
    }
    /// The walk of the exit. The address space is dead.
    pub(super) fn zap_unclaimed<'t>(
        &'t self,
        on: Backing<'_, A>,
        vmas: &Vmas<A>,
        gather: &mut Gather<'t, A>,
    ) {
        while let Some(units) = self.claim(vmas, End::Low) {
            self.zap_claimed(on, vmas, gather, units);
        }
        // Whoever helps may not be done yet.
        gather.flush(on.paging, &mut RetireMany(on));
    }
    /// Takes the pages out that a reaper had to leave while threads were still running. The
    /// address space is dead, and mmap_lock is held for writing: before, somebody may still be at
    /// these VMAs' other tables, and free them.
    pub(super) fn zap_left<'t>(
        &'t self,
        on: Backing<'_, A>,
        vmas: &Vmas<A>,
        gather: &mut Gather<'t, A>,
    ) {
        if self.state.load(Acquire) & LEFT == 0 {
            return;
        }
        let _span = Span::<A>::enter(Func::UnmapVmas);
        let how = Zap::claimed(Hold::Claim);
        for (area, part) in vmas.areas(VmaRange::USER) {
            if !is_reapable(&area) {
                self.zap_with(on, gather, part, locked_of(&area), how);
            }
        }
    }
    /// From here on the address space is dead. mmap_lock is held for writing, and every VMA.
    pub(super) fn die(&self, on: Backing<'_, A>) {
        self.table.retire(on.paging);
        let before = self.state.fetch_or(DEAD, AcqRel);
        if before & CHANGED != 0 {
            // Pages may have moved to where a reaper has been.
            self.reopen_claims();
        }
    }
    fn reopen_claims(&self) {
        self.claims.reset(UNITS);
        A::trace(Trace::Exit(ExitEvent::ClaimsOpen { asid: self.asid() }));
    }
}
