//! Invalidations that all CPUs apply without an interrupt.
//!
//! Some machines broadcast the invalidations of every address space (arm64). Others do so only for
//! address spaces with a number that is the same on all CPUs, and have few of these numbers: x86
//! with INVLPGB, where the number is called a global ASID. As in Linux since 6.15, such a machine
//! gives one to an address space when a flush has interrupted three other CPUs, and takes it back
//! at the end of the address space. Until then, and for all others, CPUs are called.
//!
//! | state | a flush | a CPU that loads the address space |
//! |---|---|---|
//! | `LOCAL` | calls CPUs | compares generations |
//! | `JOINING` | broadcasts an invalidation of everything, then calls CPUs | compares generations |
//! | `GLOBAL` | broadcasts | flushes nothing |
//!
//! `JOINING` lasts until one flush has completed, as in Linux, where CPUs change to the global ASID
//! when they are interrupted.
//!
//! # Ordering
//! A CPU that loads a `GLOBAL` address space must have no old translation of it:
//!
//! | flusher | flusher that joins |
//! |---|---|
//! | 1. clear the page-table entry | a. store `JOINING` |
//! | 2. increment the generation | b. broadcast |
//! | 3. load the state | c. call CPUs; store `GLOBAL` |
//!
//! All are SeqCst. If 3 precedes a, then 1 precedes b: the broadcast removes the old translation
//! from every CPU, and later walks see the cleared entry. If a precedes 3, the flusher broadcasts
//! itself.
//!
//! Only the policies that call CPUs (`stock`, `posted`) use this. With `requests`, frames may wait
//! for generations, which a broadcast does not change.
//!
//! Differences from Linux: it looks for active CPUs in one jiffy of 32 only, so an address space
//! joins up to 32 jiffies later. Reclaim there broadcasts one invalidation of everything for a
//! batch; here it does so for `GLOBAL` address spaces, and calls the CPUs of others.

use super::mm_context::{GLOBAL, JOINING, LOCAL, MmContext};
use super::{BROADCAST_CEILING, Extent, FlushBy, SINGLE_FLUSH_CEILING, Tables, Tlb, trace};
use crate::smp::BroadcastPolicy;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use mmscale_arch::sync::PreemptGuard;
use mmscale_arch::{Asid, Atomic, Broadcast, Machine, Op};

/// Other CPUs that a flush has interrupted when the address space joins: it is then active on four
/// (`consider_global_asid`).
const CALLED: u32 = 3;
/// Pages that one instruction invalidates (`InvlpgbCountMax` + 1 of Zen 3).
const PAGES_AT_ONCE: u64 = 8;

/// How a flush reaches the CPUs.
#[derive(Clone, Copy)]
pub(super) enum Reach {
    Calls,
    Both(Broadcast),
    Broadcast(Broadcast),
}

impl<A: Machine> Tlb<A> {
    /// Returns the broadcast of a machine that needs nothing else for any address space.
    pub(super) fn broadcast_for_all() -> Option<Broadcast> {
        A::tlb_broadcast().filter(|_| A::tlb_broadcast_spaces().is_none())
    }
    /// Returns the broadcast of a machine that needs a global number, if it is used.
    fn broadcast_for_some(&self) -> Option<Broadcast> {
        let used = self.flush_by() == FlushBy::Call
            && self.smp.config().broadcast == BroadcastPolicy::Stock;
        A::tlb_broadcast().filter(|_| used && A::tlb_broadcast_spaces().is_some())
    }
    /// Returns the broadcast for translations of the kernel.
    pub(super) fn broadcast_for_kernel(&self) -> Option<Broadcast> {
        Self::broadcast_for_all().or_else(|| self.broadcast_for_some())
    }
    /// Returns how a flush reaches the CPUs, after it has cleared entries and started a generation.
    pub(super) fn reach(&self, context: &MmContext<A>) -> Reach {
        let Some(broadcast) = self.broadcast_for_some() else { return Reach::Calls };
        // Step 3: against the exchange in `consider_global` (a). Pairs with the store in `joined`.
        match context.global.load_uncharged(SeqCst) {
            LOCAL => Reach::Calls,
            JOINING => Reach::Both(broadcast),
            _ => Reach::Broadcast(broadcast),
        }
    }
    /// Returns whether a CPU that loads the address space needs no flush.
    pub(super) fn is_global(&self, context: &MmContext<A>) -> bool {
        // Pairs with the store in `joined` (c): the broadcast has removed old translations.
        self.broadcast_for_some().is_some() && context.global.load_uncharged(SeqCst) == GLOBAL
    }
    /// Broadcasts an invalidation and waits until all CPUs have applied it.
    pub(super) fn broadcast(broadcast: Broadcast, asid: Asid, extent: Extent) {
        let _pinned = PreemptGuard::<A>::new();
        let extent = match A::tlb_broadcast_spaces() {
            None => Self::broadcast_to_all(extent),
            Some(_) => Self::broadcast_at_once(extent),
        };
        broadcast(asid, extent.range());
        trace::<A>(extent, 0);
    }
    fn broadcast_to_all(extent: Extent) -> Extent {
        let extent = extent.at_most(BROADCAST_CEILING);
        match extent.units() {
            Some(units) => A::work(Op::TlbFlushPage, units as u32),
            None => A::work(Op::TlbFlushAll, 1),
        }
        extent
    }
    fn broadcast_at_once(extent: Extent) -> Extent {
        let extent = extent.at_most(SINGLE_FLUSH_CEILING);
        let instructions = extent.units().map_or(1, |units| units.div_ceil(PAGES_AT_ONCE));
        A::work(Op::TlbFlushPage, instructions as u32);
        extent
    }
    /// Gives the address space a global number, if a flush has called enough CPUs and a number is
    /// free.
    pub(super) fn consider_global(&self, context: &MmContext<A>, tables: Tables, called: u32) {
        // For freed tables lazy CPUs are called too, which are not active.
        if called < CALLED || tables == Tables::Freed || self.broadcast_for_some().is_none() {
            return;
        }
        let Some(spaces) = A::tlb_broadcast_spaces() else { return };
        // Relaxed: only a count.
        if self.globals.fetch_add(1, Relaxed) >= spaces
            || context.global.compare_exchange(LOCAL, JOINING, SeqCst, SeqCst).is_err()
        {
            self.globals.fetch_sub(1, Relaxed);
        }
    }
    /// Records that a broadcast of everything and the calls after it have completed since the
    /// address space was `JOINING`.
    pub(super) fn joined(&self, context: &MmContext<A>) {
        // Step c: pairs with the loads in `reach` and `is_global`.
        context.global.store(GLOBAL, SeqCst);
    }
    /// Takes the global number back, at the end of the address space.
    pub(super) fn leave_global(&self, context: &MmContext<A>) {
        // No partner: no CPU uses or loads the address space, and the locks of `Numbers` pass its
        // number on.
        if self.broadcast_for_some().is_some() && context.global.load(SeqCst) != LOCAL {
            context.global.store(LOCAL, SeqCst);
            self.globals.fetch_sub(1, Relaxed);
        }
    }
}
