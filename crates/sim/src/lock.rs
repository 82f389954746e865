//! The spin lock of the simulated machine: a queue lock whose handoff depends on distance.
//!
//! # The simple version
//! `lock` and `unlock` both wait for the CPU's turn. `lock` takes a free lock, or puts the CPU into
//! the lock's queue. `unlock` hands the lock to the first waiter, which resumes at release +
//! handoff + transfer of the line between the two CPUs.
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
//! none     later            waits: granted at free_at + handoff + transfer
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

use crate::context::{suspend, with, with_any};
use crate::cpu::{Answer, Wait, Waiter};
use crate::engine::{Engine, Gate};
use crate::heap::{NEVER, time_of};
use crate::irq::{at_turn_if_any, charge, deliver};
use crate::spin::{NOWHERE, SimSpin};
use crate::task::{Switch, Yielder};
use crate::topology::NOBODY;
use mmscale_arch::{LockClass, RawSpin};
use std::ptr::NonNull;

/// Result of an attempt to take a lock.
enum Take {
    Mine,
    /// The CPU holds it already, and the run has ended.
    Never,
    /// The CPU waits in the lock's queue.
    Wait,
}

/// How a call of `lock` continues.
enum Step {
    Mine,
    /// After earlier CPUs, from the start: a [`Switch`], but flat, so that it fits registers.
    Turn {
        yielder: *const Yielder,
        next: u32,
    },
    /// After other CPUs. [`Engine::answer_spin`] may have finished the attempt meanwhile.
    Leave {
        yielder: *const Yielder,
        next: u32,
    },
    /// After interrupts, from the start.
    Retry,
    /// After interrupts, in the queue.
    Deliver,
}

// SAFETY: the engine grants the lock to one CPU until that CPU unlocks it, all on one host thread;
// without an engine, no other code runs at the same time.
unsafe impl RawSpin for SimSpin {
    fn new(class: LockClass) -> Self {
        Self::free(class)
    }
    #[inline(always)]
    fn lock(&self) {
        // A lock with an owner is likely to make the CPU queue. The two branches give the same
        // result and differ only in host time.
        let step = if self.owner.get() == NOBODY {
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

impl SimSpin {
    /// Returns the lock's host address, for [`crate::ahead`].
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
    fn go_on(&self, mut step: Step) {
        while !matches!(step, Step::Mine) {
            if let Step::Leave { yielder, next } = step {
                suspend(Switch { yielder, next });
                step = with(|engine| engine.ask_spin_again(self));
            } else {
                step = self.go_on_after(step);
            }
        }
    }
    /// Continues a call of `lock` in the rare cases.
    #[cold]
    #[inline(never)]
    fn go_on_after(&self, step: Step) -> Step {
        match step {
            Step::Turn { yielder, next } => suspend(Switch { yielder, next }),
            Step::Retry | Step::Deliver => deliver(),
            Step::Mine | Step::Leave { .. } => {}
        }
        if matches!(step, Step::Deliver) {
            with(Engine::spin_poll)
        } else {
            with(|engine| engine.begin_lock(self))
        }
    }
}

impl Engine {
    /// Starts to take a lock. If the lock has an owner, the CPU is likely to queue.
    #[inline]
    fn begin_lock(&mut self, lock: &SimSpin) -> Step {
        if lock.owner.get() != NOBODY && !self.heap.is_first(self.cpus[self.cur].order()) {
            return self.ask_spin(lock);
        }
        match self.gate(&lock.near()) {
            Gate::Go => self.spin_lock_at_turn(lock),
            Gate::Switch { yielder, next } => Step::Turn { yielder, next },
            Gate::Deliver => Step::Retry,
        }
    }
    /// Stores the lock that the CPU wants while it waits for its turn. `accept` then makes the
    /// attempt, and the coroutine is not resumed just to be queued.
    fn ask_spin(&mut self, lock: &SimSpin) -> Step {
        self.cpu().asks = Some(NonNull::from(lock));
        let gate = self.yield_turn((&raw const *lock).addr());
        if let Gate::Switch { yielder, next } = gate {
            return Step::Leave { yielder, next };
        }
        self.cpu().asks = None;
        if matches!(gate, Gate::Go) { Step::Mine } else { Step::Retry }
    }
    /// Continues a call of `lock` after it left its coroutine.
    fn ask_spin_again(&mut self, lock: &SimSpin) -> Step {
        let cpu = self.cpu();
        match std::mem::replace(&mut cpu.answer, Answer::None) {
            Answer::Mine => Step::Mine,
            Answer::Queued => self.spin_poll(),
            Answer::None => {
                cpu.asks = None;
                self.begin_lock(lock)
            }
        }
    }
    /// Makes the attempt on the lock that the running CPU wants, at its turn. Returns whether the
    /// CPU waits in the lock's queue.
    pub(crate) fn answer_spin(&mut self) -> bool {
        let cpu = self.cpu();
        let Some(lock) = cpu.asks else { return false };
        if cpu.irq_due() {
            return false;
        }
        // SAFETY: the pointer comes from the `&self` of a call of `lock` that is suspended: it has
        // left its coroutine in `ask_spin` and takes the pointer back before it goes on. Coroutines
        // are dropped only when no CPU is given a turn any more. All fields are `Cell`s.
        let lock = unsafe { lock.as_ref() };
        if !cpu.irq_off {
            cpu.plan_check();
        }
        cpu.asks = None;
        self.count_event();
        let taken = self.spin_lock(lock);
        if matches!(taken, Take::Mine) {
            self.cpu().answer = Answer::Mine;
        }
        matches!(taken, Take::Wait)
    }
    /// Takes a lock, or lets other CPUs run while this CPU waits for it. At the CPU's turn.
    #[inline]
    fn spin_lock_at_turn(&mut self, lock: &SimSpin) -> Step {
        match self.spin_lock(lock) {
            Take::Mine => Step::Mine,
            Take::Never => Step::Retry,
            Take::Wait => self.leave_in_queue(),
        }
    }
    #[inline]
    fn spin_lock(&mut self, lock: &SimSpin) -> Take {
        if self.quiet {
            return Take::Mine;
        }
        let at = self.cur;
        self.check_lock(lock.class);
        let cpu = &self.cpus[at];
        let row = self.stats.row_of(cpu.path, lock.class, cpu.clock);
        if lock.owner.get() != NOBODY {
            return self.enqueue_waiter(lock, row);
        }
        let free = lock.free_at.get();
        if free > cpu.order() {
            let grant = time_of(free) + self.costs.handoff_ps + self.transfer(lock, at);
            self.hand_over(lock, at, row, self.cpus[at].clock, grant);
            return self.wait_until(lock, grant);
        }
        let cost = self.costs.lock_ps + self.transfer(lock, at);
        let cpu = &mut self.cpus[at];
        cpu.clock += cost;
        lock.since.set(cpu.clock);
        lock.row.set(row);
        lock.owner.set(at as u16);
        lock.last.set(at as u16);
        self.stats.row(row).acquisitions += 1;
        self.hold(lock.class);
        Take::Mine
    }
    fn leave_in_queue(&mut self) -> Step {
        let Switch { yielder, next } = self.leave_cpu();
        Step::Leave { yielder, next }
    }
    #[inline]
    fn transfer(&self, lock: &SimSpin, to: usize) -> u64 {
        match lock.last.get() {
            // A lock that has not been used is in the cache of its first user.
            NOBODY => self.seats.own_ps(),
            last => self.seats.transfer_ps(last, to),
        }
    }
    /// Grants the lock to CPU `to`, which requested it at `arrived` and holds it after `grant`.
    #[inline]
    fn hand_over(&mut self, lock: &SimSpin, to: usize, row: u32, arrived: u64, grant: u64) {
        lock.owner.set(to as u16);
        lock.before.set(lock.last.replace(to as u16));
        lock.since.set(grant);
        lock.row.set(row);
        self.stats.row(row).contended(grant - arrived);
        self.section_waited(to, lock.class, grant - arrived);
        if lock.id.get() != 0 {
            self.checker.lock_owner(lock.id.get(), to as u16);
        }
    }
    /// Waits for a lock that is granted for `grant` already. The CPU still resumes at a turn of its
    /// own.
    #[inline(never)]
    fn wait_until(&mut self, lock: &SimSpin, grant: u64) -> Take {
        let cpu = &mut self.cpus[self.cur];
        let place = cpu.place_to_wait(self.cur);
        self.waiters[place] = Waiter {
            grant,
            class: lock.class,
            arrived: cpu.clock,
            lock_id: lock.id.get(),
            ..Waiter::default()
        };
        cpu.preempt += 1;
        let until = if cpu.irq_off { grant } else { grant.min(cpu.ipi_at) };
        self.rest_in_queue(until);
        Take::Wait
    }
    /// Leaves the running CPU in a lock's queue until `until` or an interrupt.
    #[inline]
    fn rest_in_queue(&mut self, until: u64) {
        self.cpu().answer = Answer::Queued;
        self.rest(Wait::Spin, until);
    }
    fn enqueue_waiter(&mut self, lock: &SimSpin, row: u32) -> Take {
        if lock.id.get() == 0 {
            lock.id.set(self.checker.new_lock_id());
        }
        if usize::from(lock.owner.get()) == self.cur {
            self.fail_relock(lock.class);
            return Take::Never;
        }
        let cpu = &mut self.cpus[self.cur];
        let place = cpu.place_to_wait(self.cur);
        self.waiters[place] = Waiter {
            next: NOWHERE,
            row,
            arrived: cpu.clock,
            grant: NEVER,
            lock_id: lock.id.get(),
            class: lock.class,
        };
        match lock.tail.replace(place as u32) {
            NOWHERE => {
                lock.head.set(place as u32);
                self.checker.lock_owner(lock.id.get(), lock.owner.get());
            }
            before => self.waiters[before as usize].next = place as u32,
        }
        cpu.preempt += 1;
        let until = if cpu.irq_off { NEVER } else { cpu.ipi_at };
        self.rest_in_queue(until);
        Take::Wait
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
    fn spin_poll(&mut self) -> Step {
        let cpu = &mut self.cpus[self.cur];
        let Waiter { grant, class, .. } = self.waiters[cpu.place_to_wait(self.cur)];
        if cpu.irq_off && grant != NEVER {
            cpu.clock = cpu.clock.max(grant);
        }
        if grant > cpu.clock && !self.quiet {
            return self.spin_on(grant);
        }
        cpu.preempt = cpu.preempt.saturating_sub(1);
        if !cpu.irq_off {
            cpu.plan_check();
        }
        if !self.quiet {
            self.hold(class);
        }
        Step::Mine
    }
    /// Continues a wait that ends at `grant`, after something woke the running CPU earlier.
    #[cold]
    fn spin_on(&mut self, grant: u64) -> Step {
        let cpu = self.cpu();
        if cpu.irq_due() {
            return Step::Deliver;
        }
        let until = if cpu.irq_off { NEVER } else { grant.min(cpu.ipi_at) };
        self.rest_in_queue(until);
        self.leave_in_queue()
    }
    #[inline]
    fn spin_try_lock(&mut self, lock: &SimSpin) -> bool {
        if self.quiet {
            return true;
        }
        let at = self.cur;
        let owned = lock.owner.get() != NOBODY;
        let let_go = lock.free_at.get() <= self.cpus[at].order();
        if owned || !let_go {
            // Until `free_at` the line is with the CPU that hands the lock over, not with its next
            // owner.
            let holder = if owned && !let_go { &lock.before } else { &lock.last };
            self.cpu().clock += self.seats.transfer_ps(holder.get(), at);
            return false;
        }
        self.check_trylock(lock.class);
        let row = self.stats.row_of(self.cpus[at].path, lock.class, self.cpus[at].clock);
        let cost = self.costs.lock_ps + self.transfer(lock, at);
        let cpu = &mut self.cpus[at];
        cpu.clock += cost;
        lock.since.set(cpu.clock);
        lock.row.set(row);
        lock.owner.set(at as u16);
        lock.last.set(at as u16);
        self.stats.row(row).acquisitions += 1;
        self.hold(lock.class);
        true
    }
    fn spin_is_locked(&mut self, lock: &SimSpin) -> bool {
        let own_ps = self.seats.own_ps();
        let cpu = self.cpu();
        let held = lock.owner.get() != NOBODY || lock.free_at.get() > cpu.order();
        cpu.clock += own_ps;
        held
    }
    /// Releases the lock if no checkpoint precedes the release; returns whether it did.
    #[inline]
    fn spin_unlock_at_once(&mut self, lock: &SimSpin) -> bool {
        let unlock_ps = self.costs.unlock_ps;
        let cpu = &mut self.cpus[self.cur];
        if cpu.clock + unlock_ps < cpu.stop_at && !self.naive {
            cpu.clock += unlock_ps;
            self.release(lock);
            return true;
        }
        self.quiet
    }
    fn release(&mut self, lock: &SimSpin) {
        let at = self.cur;
        if self.quiet || !self.check_unlock(lock.class, lock.owner.get()) {
            return;
        }
        let cpu = &mut self.cpus[at];
        if cpu.scaled != 0 && self.hold_scale.is_some_and(|scale| scale.class == lock.class) {
            cpu.scaled -= 1;
        }
        let held = cpu.clock.saturating_sub(lock.since.get());
        self.stats.row(lock.row.get()).hold_ps += held;
        lock.free_at.set(cpu.order());
        let place = lock.head.get();
        if place == NOWHERE {
            lock.owner.set(NOBODY);
            return;
        }
        let to = place as usize / 2;
        let grant = cpu.clock + self.costs.handoff_ps + self.transfer(lock, to);
        let waiter = &mut self.waiters[place as usize];
        waiter.grant = grant;
        let (row, arrived, after) = (waiter.row, waiter.arrived, waiter.next);
        lock.head.set(after);
        if after == NOWHERE {
            lock.tail.set(NOWHERE);
        } else {
            let (at, waiter) = (after as usize / 2, &self.waiters[after as usize]);
            self.ahead.gets_lock(at, &self.cpus[at], waiter);
        }
        self.hand_over(lock, to, row, arrived, grant);
        if self.cpus[to].wait == Wait::Spin {
            self.wake_by(to, grant);
        }
    }
}
