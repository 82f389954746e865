//! Draining one CPU, all CPUs or dead CPUs, and disabling the batches.
//!
//! # Drain generations
//! `generation` counts the drains of all CPUs that have begun. A caller is served by another's
//! drain if that began after the call. Whether it did is decided by two stores and two loads:
//!
//! | CPU that gathers, and a later caller of `drain_all` | drain of all CPUs |
//! |---|---|
//! | a. a CPU sets a `busy` flag, Relaxed; the caller knows | 1. increments `generation` |
//! | b. the caller: full fence | 2. full fence |
//! | c. loads `generation`, drains its own CPU | 3. loads each `busy` flag, queues the work |
//! | d. takes the mutex, loads `generation` again | 4. waits for the work, releases the mutex |
//!
//! The caller is served if d finds another value than c. Without the fences a store may wait in a
//! CPU's store buffer while a later load completes: a after c, and 1 after 3. Then c loads the old
//! generation, 3 loads an unset flag, d finds a change, and the caller returns although the folios
//! are still gathered. With both fences c sees 1 or 3 sees a. In the first case d finds no change
//! and the caller drains itself. In the second the drain includes the CPU that gathers.
//!
//! Step 1 must precede step 3 in the program too. Otherwise 3 could read the flag before a, c load
//! the old generation, and d the incremented one.
//!
//! The contents of a batch need no order: the work runs on the CPU that gathered them.
//!
//! # Which CPUs
//! Work is queued only on CPUs that have something gathered, for a forced drain too. *Forced* only
//! means that another's drain does not serve the caller ([`LruRef::batches_off`]).

use super::{BatchKind, LruRef, Pending};
use crate::work::WorkItem;
use core::sync::atomic::Ordering::SeqCst;
use mmscale_arch::sync::{IrqGuard, NoPreempt, PreemptGuard};
use mmscale_arch::{Atomic, CpuId, CpuMask, Func, Machine, Span};

/// Whether a drain of all CPUs by another task, which began after the call, serves the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sharing {
    Allowed,
    /// The caller drains itself (`force_all_cpus`).
    Forced,
}

impl<'a, A: Machine> LruRef<'a, A> {
    /// Carries out everything that this CPU has gathered (`lru_add_drain`).
    pub fn drain(&self) {
        let _span = Span::<A>::enter(Func::LruAddDrain);
        let pinned = PreemptGuard::<A>::new();
        self.drain_batches(pinned.cpu());
    }

    /// Drains this CPU where Linux drains as a precaution: after populating, before advice that
    /// looks for listed folios, at munlock. Does nothing under `Lazy`: its callers request single
    /// folios ([`LruRef::demand`]).
    pub fn blanket_drain(&self) {
        match self.lru.pending() {
            Pending::Batch => self.drain(),
            Pending::Slot => {}
        }
    }

    /// Carries out what `cpu` has gathered: the caller's CPU, with preemption off, or one on which
    /// no task runs any more.
    fn drain_batches(&self, cpu: CpuId) {
        let own = self.lru.cpus.of(cpu);
        match self.lru.pending() {
            Pending::Batch => {}
            Pending::Slot => self.sweep_slots(own),
        }
        for kind in BatchKind::ALL {
            if own.len(kind) == 0 {
                continue;
            }
            match kind {
                BatchKind::Add => self.move_adds(&own.take(kind)),
                BatchKind::MoveTail => {
                    let off = IrqGuard::<A>::new();
                    let taken = own.take(kind);
                    drop(off);
                    self.move_others(kind, &taken);
                }
                _ => self.move_others(kind, &own.take(kind)),
            }
        }
    }

    /// Carries out everything that CPUs had gathered at the time of the call (`lru_add_drain_all`).
    /// Returns early if another drain of all began after the call and has ended. Sleeps.
    pub fn drain_all(&self) {
        self.drain_cpus(Sharing::Allowed);
    }

    fn drain_cpus(&self, sharing: Sharing) {
        let _span = Span::<A>::enter(Func::LruAddDrainAll);
        // Pairs with the fence below: `busy` flags that this CPU has set or seen come before the
        // load.
        A::fence(SeqCst);
        let seen = self.lru.generation.load(SeqCst);
        // Before the mutex: a drain that has the mutex now finds this CPU empty.
        self.drain();
        let _one = self.lru.one_drain.lock();
        if sharing == Sharing::Allowed && self.lru.generation.load(SeqCst) != seen {
            self.lru.tally().drains_shared.add(1);
            return;
        }
        // First: a later caller is not served by flags that this drain has read already.
        self.lru.generation.fetch_add(1, SeqCst);
        // Pairs with the fence above: the increment comes before the loads of the `busy` flags.
        A::fence(SeqCst);
        self.lru.tally().drains_of_all.add(1);
        let (mut online, mut asked) = (CpuMask::EMPTY, CpuMask::EMPTY);
        A::online(&mut online);
        for cpu in online.iter() {
            if self.lru.cpus.of(cpu).needs_drain() {
                self.work.queue_on(cpu, WorkItem::LruDrain(cpu));
                asked.insert(cpu);
            }
        }
        self.lru.tally().cpus_drained.add(asked.count() as u64);
        for cpu in asked.iter() {
            self.work.flush(WorkItem::LruDrain(cpu));
        }
    }

    /// Returns the stocks of charges of every online CPU to their groups, for a group at its limit
    /// (`drain_all_stock`); waits until all are done. Sleeps.
    pub fn drain_stocks(&self) {
        let _span = Span::<A>::enter(Func::DrainAllStock);
        let mut online = CpuMask::EMPTY;
        A::online(&mut online);
        online.iter().for_each(|cpu| {
            self.work.queue_on(cpu, WorkItem::DrainStock(cpu));
        });
        online.iter().for_each(|cpu| {
            self.work.flush(WorkItem::DrainStock(cpu));
        });
    }

    /// Carries out what a CPU had gathered that no longer runs: it died, or the machine has
    /// stopped.
    pub fn drain_stopped(&self, cpu: CpuId) {
        let _span = Span::<A>::enter(Func::LruAddDrain);
        let _pinned = PreemptGuard::<A>::new();
        self.drain_batches(cpu);
        self.groups.drain_stopped(cpu);
    }

    /// Disables the batches on all CPUs until the returned value is dropped, and drains them
    /// (`lru_cache_disable`): for a caller that needs many folios on their lists. Sleeps.
    pub fn batches_off(&self) -> BatchesOff<'a, A> {
        let _span = Span::<A>::enter(Func::LruCacheDisable);
        // Pairs with the load in `moves_at_once` (join.rs).
        self.lru.disabled.fetch_add(1, SeqCst);
        // After the grace period every add has seen the count.
        self.rcu.synchronize_expedited();
        self.drain_cpus(Sharing::Forced);
        BatchesOff { memory: *self }
    }
}

/// Keeps the batches disabled until it is dropped (`lru_cache_enable`).
#[must_use]
pub struct BatchesOff<'a, A: Machine> {
    memory: LruRef<'a, A>,
}

impl<A: Machine> Drop for BatchesOff<'_, A> {
    fn drop(&mut self) {
        // No partner: an add that reads the old count only moves its folio immediately.
        self.memory.lru.disabled.fetch_sub(1, SeqCst);
    }
}
