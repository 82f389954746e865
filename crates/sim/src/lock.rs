//! The spin lock of the simulated machine: a queue lock whose handoff depends on distance.
//!
//! # The simple version
//! `lock` and `unlock` both wait for the CPU's turn. `lock` takes a free lock, or puts the CPU into
//! the lock's queue. `unlock` hands the lock to the first waiter, which resumes at release +
//! handoff: a fixed part, and a number of ways of a line between the two CPUs.
//!
//! # The real one
//! Only `lock` waits for its turn. `unlock` records the time of the release (`free_at`, an order
//! word) and grants the lock to the first waiter, while the host keeps running the same CPU. A
//! `lock` at an earlier virtual time may therefore come later on the host. Three cases, by what it
//! finds at its turn:
//!
//! ```text
//! owner    free_at          the CPU
//! none     not later        takes the lock at its own time
//! none     later            waits: granted at free_at + handoff
//! another  any              joins the queue: granted by that owner's release
//! ```
//!
//! In the simple version the second case is a CPU in the queue at the time of the release. Its
//! grant is computed from the same release time and the same two CPUs, so the result is the same.
//! In the third case the owner may hold the lock already, or may have been granted it for later.
//!
//! A CPU that waited resumes at a turn of its own, with interrupts off too. The hold before its own
//! is then in the past of every CPU. So at most one CPU runs ahead inside the critical sections of
//! one lock, and a note of the values before its changes is enough to answer earlier readers (see
//! `tables` and `cost`).
//!
//! # Leaving the queue
//! A CPU in the queue of a [`SimOsq`] leaves it at its turn, after an interrupt that requires a
//! switch of tasks. In the simple version a later release finds it gone. So the release of a
//! `SimOsq` waits for its turn in both versions.

use crate::cpu::{LockResult, WaitState, Waiter};
use crate::engine::Engine;
use crate::engine::context::{suspend, with, with_any};
use crate::heap::{NEVER, time_of};
use crate::irq::{at_turn, at_turn_if_any, charge, deliver};
use crate::record::stats::QueuePlace;
use crate::spin::{NO_WAITER, SimOsq, SimSpin};
use crate::task::{Switch, Yielder};
use crate::topology::NO_CPU;
use mmscale_arch::{LineName, LockClass, LockInstance, RawOsq, RawSpin};
use std::ptr::{NonNull, null};

/// Result of an attempt to take a lock.
enum LockAttempt {
    Mine,
    /// The CPU holds it already, and the run has ended.
    Never,
    /// The CPU waits in the lock's queue.
    Wait,
}

/// The ways in which a call of `lock` continues.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LockWay {
    /// The call ends: the CPU has the lock, or has left the queue of a [`SimOsq`].
    Mine,
    /// After earlier CPUs, from the start.
    Turn,
    /// After other CPUs. [`Engine::serve_request`] may have finished the attempt meanwhile.
    Leave,
    /// After interrupts, from the start.
    Retry,
    /// After interrupts, in the queue.
    Deliver,
}

/// How a call of `lock` continues, in two words, as [`crate::engine::ReadyState`].
#[derive(Clone, Copy)]
struct LockStep {
    /// Null if there is no switch.
    yielder: *const Yielder,
    /// The task to switch to, and above it the [`LockWay`].
    word: u64,
}

impl LockStep {
    const MINE: Self = Self::without_switch(LockWay::Mine);
    const RETRY: Self = Self::without_switch(LockWay::Retry);
    const DELIVER: Self = Self::without_switch(LockWay::Deliver);

    const fn without_switch(way: LockWay) -> Self {
        Self { yielder: null(), word: (way as u64) << 32 }
    }
    #[inline(always)]
    fn after(way: LockWay, Switch { yielder, next }: Switch) -> Self {
        Self { yielder, word: (way as u64) << 32 | u64::from(next) }
    }
    #[inline(always)]
    fn is(self, way: LockWay) -> bool {
        self.word >> 32 == way as u64
    }
    #[inline(always)]
    fn switch(self) -> Switch {
        Switch { yielder: self.yielder, next: self.word as u32 }
    }
}

// SAFETY: the engine grants the lock to one CPU until that CPU unlocks it, all on one host thread;
// without an engine, no other code runs at the same time.
unsafe impl RawSpin for SimSpin {
    fn new(class: LockClass) -> Self {
        Self::free(class, LockInstance::Unnamed)
    }
    fn named(class: LockClass, instance: LockInstance) -> Self {
        Self::free(class, instance)
    }
    #[inline(always)]
    fn lock(&self) {
        // A lock with an owner is likely to make the CPU queue. The two branches give the same
        // result and differ only in host time.
        let step = if self.owner.get() == NO_CPU {
            at_turn_if_any(self.near(), |engine| engine.spin_lock_at_turn(self))
        } else {
            with_any(|engine| engine.begin_lock(self))
        };
        if let Some(step) = step {
            self.go_on(step);
        }
    }
    #[inline]
    fn try_lock(&self) -> bool {
        at_turn_if_any(self.near(), |engine| engine.spin_try_lock(self)).unwrap_or(true)
    }
    #[inline]
    unsafe fn unlock(&self) {
        if with_any(|engine| engine.spin_unlock_at_once(self)) == Some(false) {
            charge(with(|engine| engine.costs.unlock_ps));
            with(|engine| engine.release(self));
        }
    }
    #[inline]
    fn is_locked(&self) -> bool {
        at_turn_if_any(self.near(), |engine| engine.spin_is_locked(self)).unwrap_or(false)
    }
}

impl RawOsq for SimOsq {
    fn new() -> Self {
        Self(SimSpin::free(LockClass::Osq, LockInstance::Unnamed))
    }
    fn lock(&self) -> bool {
        let step = at_turn_if_any(self.0.near(), |engine| engine.join_osq(&self.0));
        step.is_none_or(|step| {
            self.0.go_on(step);
            with(Engine::is_at_head)
        })
    }
    fn unlock(&self) {
        if let Some(unlock_ps) = with_any(|engine| engine.costs.unlock_ps) {
            charge(unlock_ps);
            at_turn(|engine| engine.release(&self.0));
        }
    }
}

impl SimSpin {
    /// Returns the lock's host address, for [`crate::prefetch`].
    #[inline]
    fn near(&self) -> impl Fn(&Engine) -> usize {
        let here = (&raw const *self).addr();
        move |_| here
    }
    /// Continues a call of `lock` until it has the lock. Preemption is off while the CPU is in the
    /// queue: interrupts may be handled, other tasks do not run. Inlined, so that the coroutine is
    /// left from `lock` itself: returns through frames after a switch of stacks are what hosts
    /// predict worst.
    #[inline(always)]
    fn go_on(&self, mut step: LockStep) {
        while !step.is(LockWay::Mine) {
            if step.is(LockWay::Leave) {
                suspend(step.switch());
                step = with(|engine| engine.resume_request(self));
            } else {
                step = self.go_on_after(step);
            }
        }
    }
    /// Continues a call of `lock` in the rare cases.
    #[cold]
    #[inline(never)]
    fn go_on_after(&self, step: LockStep) -> LockStep {
        if step.is(LockWay::Turn) {
            suspend(step.switch());
        } else {
            deliver();
        }
        if step.is(LockWay::Deliver) {
            with(|engine| engine.spin_poll(self))
        } else {
            with(|engine| engine.begin_lock(self))
        }
    }
}

impl Engine {
    /// Starts to take a lock. If the lock has an owner, the CPU is likely to queue.
    #[inline]
    fn begin_lock(&mut self, lock: &SimSpin) -> LockStep {
        if lock.owner.get() != NO_CPU && !self.heap.is_first(self.cpus.running().order()) {
            return self.request_lock(lock);
        }
        let state = self.ready_state(&lock.near());
        match state.switch() {
            Some(switch) => LockStep::after(LockWay::Turn, switch),
            None if state.is_ready() => self.spin_lock_at_turn(lock),
            None => LockStep::RETRY,
        }
    }
    /// Stores the lock that the CPU wants while it waits for its turn. `accept` then makes the
    /// attempt, and the coroutine is not resumed just to be queued.
    fn request_lock(&mut self, lock: &SimSpin) -> LockStep {
        self.cpu().wanted_lock = Some(NonNull::from(lock));
        let gate = self.yield_turn((&raw const *lock).addr());
        if let Some(switch) = gate.switch() {
            return LockStep::after(LockWay::Leave, switch);
        }
        self.cpu().wanted_lock = None;
        if gate.is_ready() { LockStep::MINE } else { LockStep::RETRY }
    }
    /// Continues a call of `lock` after it left its coroutine.
    fn resume_request(&mut self, lock: &SimSpin) -> LockStep {
        let cpu = self.cpu();
        match std::mem::replace(&mut cpu.lock_result, LockResult::None) {
            LockResult::Mine => LockStep::MINE,
            LockResult::Queued => self.spin_poll(lock),
            LockResult::None | LockResult::Left => {
                cpu.wanted_lock = None;
                self.begin_lock(lock)
            }
        }
    }
    /// Makes the attempt on the lock that the running CPU wants, at its turn. Returns whether the
    /// CPU waits in the lock's queue.
    pub(crate) fn serve_request(&mut self) -> bool {
        let cpu = self.cpu();
        let Some(lock) = cpu.wanted_lock else { return false };
        if cpu.irq_due() {
            return false;
        }
        // SAFETY: the pointer comes from the `&self` of a call of `lock` that is suspended: it has
        // left its coroutine in `request_lock` and takes the pointer back before it goes on.
        // Coroutines are dropped only when no CPU is given a turn any more. All fields are `Cell`s.
        let lock = unsafe { lock.as_ref() };
        if !cpu.irq_off {
            cpu.plan_check();
        }
        cpu.wanted_lock = None;
        self.count_event();
        let taken = self.spin_lock(lock);
        if matches!(taken, LockAttempt::Mine) {
            self.cpu().lock_result = LockResult::Mine;
        }
        matches!(taken, LockAttempt::Wait)
    }
    /// Takes a lock, or lets other CPUs run while this CPU waits for it. At the CPU's turn.
    #[inline]
    fn spin_lock_at_turn(&mut self, lock: &SimSpin) -> LockStep {
        match self.spin_lock(lock) {
            LockAttempt::Mine => LockStep::MINE,
            LockAttempt::Never => LockStep::RETRY,
            LockAttempt::Wait => self.leave_in_queue(),
        }
    }
    #[inline]
    fn spin_lock(&mut self, lock: &SimSpin) -> LockAttempt {
        if self.quiet {
            return LockAttempt::Mine;
        }
        let at = self.cpus.at();
        self.check_lock(lock.class);
        self.settle_caches(0);
        let cpu = self.cpus.running();
        let row = self.stats.row_of(cpu.path, lock.class, cpu.clock);
        if lock.owner.get() != NO_CPU {
            return self.enqueue_waiter(lock, row);
        }
        let free = lock.free_at.get();
        if free > cpu.order() {
            let grant = time_of(free) + self.handoff(lock, at);
            self.hand_over(lock, at, row, self.cpus.running().clock, grant);
            if self.blame.is_some() {
                self.blame_granted(lock, at, row, (self.cpus[at].clock, grant), false);
            }
            return self.wait_for_grant(lock, grant);
        }
        self.take_free(lock, row);
        LockAttempt::Mine
    }
    /// The running CPU takes a lock that is free at its time.
    #[inline]
    fn take_free(&mut self, lock: &SimSpin, row: u32) {
        let at = self.cpus.at();
        let transfer_ps = self.transfer(lock, at);
        let cost = self.costs.lock_ps + transfer_ps;
        let last = lock.last.get();
        if last != NO_CPU && usize::from(last) != at {
            let name = LineName::Lock(lock.class).number();
            let cpu = self.cpus.running_mut();
            self.stats.fetched(cpu.path, name, cpu.clock, (transfer_ps, 1));
            cpu.note_fetched((transfer_ps, 1));
        }
        let cpu = self.cpus.running_mut();
        cpu.clock += cost;
        cpu.found_taken = false;
        lock.since.set(cpu.clock);
        lock.row.set(row);
        lock.owner.set(at as u16);
        lock.before.set(NO_CPU);
        lock.last.set(at as u16);
        self.stats.row(row).acquisitions += 1;
        self.hold(lock.class);
        if self.blame.is_some() {
            self.blame_taken(lock.since.get());
        }
    }
    fn leave_in_queue(&mut self) -> LockStep {
        LockStep::after(LockWay::Leave, self.leave_cpu())
    }
    #[inline]
    fn transfer(&self, lock: &SimSpin, to: usize) -> u64 {
        match lock.last.get() {
            // A lock that has not been used is in the cache of its first user.
            NO_CPU => self.distances.own_ps(),
            last => self.distances.transfer_ps(last, to),
        }
    }
    /// Returns the time from the release of a lock to the first step of its next owner: a part that
    /// does not depend on where the two are, and the ways of lines between them.
    #[inline]
    fn handoff(&self, lock: &SimSpin, to: usize) -> u64 {
        let ways_ps = self.transfer(lock, to) * u64::from(self.costs.handoff_lines_1024);
        self.costs.handoff_fixed_ps + (ways_ps >> 10)
    }
    /// Grants the lock to CPU `to`, which requested it at `arrived` and holds it after `grant`.
    #[inline]
    fn hand_over(&mut self, lock: &SimSpin, to: usize, row: u32, arrived: u64, grant: u64) {
        // The holder before it was still waiting when it arrived. Both times are virtual ones, so
        // that both schedules give the same answer.
        let behind = lock.before.get() != NO_CPU && lock.since.get() > arrived;
        let place = if behind { QueuePlace::Behind } else { QueuePlace::First };
        lock.owner.set(to as u16);
        lock.before.set(lock.last.replace(to as u16));
        lock.since.set(grant);
        lock.row.set(row);
        self.stats.waited(row, arrived, grant, place);
        self.cpus[to].found_taken = true;
        self.section_waited(to, lock.class, grant - arrived);
        if lock.id.get() != 0 {
            self.checker.lock_owner(lock.id.get(), to as u16);
        }
    }
    /// Waits for a lock that is granted for `grant` already. The CPU still resumes at a turn of its
    /// own.
    #[inline(never)]
    fn wait_for_grant(&mut self, lock: &SimSpin, grant: u64) -> LockAttempt {
        let place = self.cpus.waiter_index();
        let cpu = self.cpus.running_mut();
        self.waiters[place] = Waiter {
            grant,
            class: lock.class,
            arrived: cpu.clock,
            lock_id: lock.id.get(),
            ..Waiter::default()
        };
        cpu.preempt += 1;
        let until = if cpu.irq_off { grant } else { grant.min(cpu.ipi_at) };
        self.begin_queue_wait(until);
        LockAttempt::Wait
    }
    /// Leaves the running CPU in a lock's queue until `until` or an interrupt.
    #[inline]
    fn begin_queue_wait(&mut self, until: u64) {
        self.cpu().lock_result = LockResult::Queued;
        self.begin_wait(WaitState::Spin, until);
    }
    fn enqueue_waiter(&mut self, lock: &SimSpin, row: u32) -> LockAttempt {
        if lock.id.get() == 0 {
            lock.id.set(self.checker.new_lock_id());
        }
        if usize::from(lock.owner.get()) == self.cpus.at() {
            self.fail_relock(lock.class);
            return LockAttempt::Never;
        }
        let place = self.cpus.waiter_index();
        let cpu = self.cpus.running_mut();
        self.waiters[place] = Waiter {
            next: NO_WAITER,
            row,
            arrived: cpu.clock,
            grant: NEVER,
            lock_id: lock.id.get(),
            class: lock.class,
        };
        match lock.tail.replace(place as u32) {
            NO_WAITER => {
                lock.head.set(place as u32);
                self.checker.lock_owner(lock.id.get(), lock.owner.get());
            }
            before => self.waiters[before as usize].next = place as u32,
        }
        cpu.preempt += 1;
        let until = if cpu.irq_off { NEVER } else { cpu.ipi_at };
        if self.blame.is_some() {
            self.blame_queued();
        }
        self.begin_queue_wait(until);
        LockAttempt::Wait
    }
    /// Notes that the running CPU holds a lock of `class`.
    #[inline]
    fn hold(&mut self, class: LockClass) {
        if self.hold_scale.is_some_and(|scale| scale.class == class) {
            self.cpu().scaled += 1;
        }
        self.check_taken(class);
    }
    /// Continues a wait in the queue; at the CPU's turn, unless interrupts are off.
    #[inline]
    fn spin_poll(&mut self, lock: &SimSpin) -> LockStep {
        let Waiter { grant, class, .. } = self.waiters[self.cpus.waiter_index()];
        let cpu = self.cpus.running_mut();
        if grant > cpu.clock && !self.quiet {
            return self.spin_on(lock, grant);
        }
        cpu.preempt = cpu.preempt.saturating_sub(1);
        if !cpu.irq_off {
            cpu.plan_check();
        }
        if !self.quiet {
            self.hold(class);
        }
        LockStep::MINE
    }
    /// Continues a wait that ends at `grant`, after something woke the running CPU earlier.
    #[cold]
    fn spin_on(&mut self, lock: &SimSpin, grant: u64) -> LockStep {
        let cpu = self.cpu();
        if cpu.irq_due() {
            return LockStep::DELIVER;
        }
        if cpu.need_resched && lock.class == LockClass::Osq && grant == NEVER {
            self.leave_queue(lock);
            return LockStep::MINE;
        }
        let cpu = self.cpu();
        // A grant for later may be known already: the CPU still waits for its time, as others see.
        let until = if cpu.irq_off { grant } else { grant.min(cpu.ipi_at) };
        self.begin_queue_wait(until);
        self.leave_in_queue()
    }
    /// Takes the running CPU out of the queue of `lock`, at its turn. It changes the links of the
    /// CPU before it and of the one behind it.
    fn leave_queue(&mut self, lock: &SimSpin) {
        let at = self.cpus.at();
        let place = self.cpus.waiter_index() as u32;
        let behind = self.waiters[place as usize].next;
        let mut before = NO_WAITER;
        let mut entry = lock.head.get();
        while entry != place {
            (before, entry) = (entry, self.waiters[entry as usize].next);
        }
        match before {
            NO_WAITER => lock.head.set(behind),
            before => self.waiters[before as usize].next = behind,
        }
        if behind == NO_WAITER {
            lock.tail.set(before);
        }
        let ahead = if before == NO_WAITER { lock.owner.get() } else { before as u16 / 2 };
        let mut cost = self.distances.transfer_ps(ahead, at);
        if behind != NO_WAITER {
            cost += self.distances.transfer_ps(behind as u16 / 2, at);
        }
        let cpu = self.cpu();
        cpu.clock += cost;
        cpu.preempt = cpu.preempt.saturating_sub(1);
        cpu.lock_result = LockResult::Left;
        if self.blame.is_some() {
            self.blame_left_queue();
        }
    }
    /// Joins the queue of an osq, at the CPU's turn, unless the CPU must switch tasks already.
    fn join_osq(&mut self, lock: &SimSpin) -> LockStep {
        if self.cpu().need_resched && lock.owner.get() != NO_CPU && !self.quiet {
            self.cpu().lock_result = LockResult::Left;
            return LockStep::MINE;
        }
        self.spin_lock_at_turn(lock)
    }
    /// Whether the last call of `lock` ended at the head of the queue.
    fn is_at_head(&mut self) -> bool {
        std::mem::replace(&mut self.cpu().lock_result, LockResult::None) != LockResult::Left
    }
    #[inline]
    fn spin_try_lock(&mut self, lock: &SimSpin) -> bool {
        if self.quiet {
            return true;
        }
        let at = self.cpus.at();
        let owned = lock.owner.get() != NO_CPU;
        let released = lock.free_at.get() <= self.cpus.running().order();
        if owned || !released {
            // Until `free_at` the line is with the CPU that hands the lock over, not with its next
            // owner.
            let holder = if owned && !released { &lock.before } else { &lock.last };
            self.cpu().clock += self.distances.transfer_ps(holder.get(), at);
            return false;
        }
        self.check_trylock(lock.class);
        let cpu = self.cpus.running();
        let row = self.stats.row_of(cpu.path, lock.class, cpu.clock);
        self.take_free(lock, row);
        true
    }
    fn spin_is_locked(&mut self, lock: &SimSpin) -> bool {
        let own_ps = self.distances.own_ps();
        let cpu = self.cpu();
        let held = lock.owner.get() != NO_CPU || lock.free_at.get() > cpu.order();
        cpu.clock += own_ps;
        held
    }
    /// Releases the lock if no checkpoint precedes the release; returns whether it did.
    #[inline]
    fn spin_unlock_at_once(&mut self, lock: &SimSpin) -> bool {
        let unlock_ps = self.costs.unlock_ps;
        let cpu = self.cpus.running_mut();
        if cpu.clock + unlock_ps < cpu.stop_at && !self.naive {
            cpu.clock += unlock_ps;
            self.release(lock);
            return true;
        }
        self.quiet
    }
    fn release(&mut self, lock: &SimSpin) {
        if self.quiet || !self.check_unlock(lock.class, lock.owner.get()) {
            return;
        }
        let cpu = self.cpus.running_mut();
        if cpu.scaled != 0 && self.hold_scale.is_some_and(|scale| scale.class == lock.class) {
            cpu.scaled -= 1;
        }
        let held = cpu.clock.saturating_sub(lock.since.get());
        self.stats.row(lock.row.get()).hold_ps += held;
        lock.free_at.set(cpu.order());
        if self.blame.is_some() {
            self.blame_released(lock);
        }
        let cpu = self.cpus.running();
        let place = lock.head.get();
        if place == NO_WAITER {
            lock.owner.set(NO_CPU);
            return;
        }
        let to = place as usize / 2;
        let grant = cpu.clock + self.handoff(lock, to);
        let waiter = &mut self.waiters[place as usize];
        waiter.grant = grant;
        let (row, arrived, after) = (waiter.row, waiter.arrived, waiter.next);
        lock.head.set(after);
        if after == NO_WAITER {
            lock.tail.set(NO_WAITER);
        } else {
            let (at, waiter) = (after as usize / 2, &self.waiters[after as usize]);
            self.prefetch.fetch_waiter(at, &self.cpus[at], waiter);
        }
        self.hand_over(lock, to, row, arrived, grant);
        if self.blame.is_some() {
            self.blame_granted(lock, to, row, (arrived, grant), true);
        }
        if self.cpus[to].wait == WaitState::Spin {
            self.wake_by(to, grant);
        }
    }
}
