//! The spin lock of the simulated machine: a queue lock with handoff by distance.
//!
//! Taking it needs the CPU's turn; letting it go only records when it becomes free and hands it to
//! the first in the queue. A CPU that arrives before that time, in virtual time, waits for it like
//! one that was queued when the holder let go: it cannot tell the two apart.
//!
//! Whoever waited goes on at a turn of its own, with interrupts off too: the hold before its own is
//! then past for everybody. So of what a lock protects, the lock itself included, at most one CPU
//! is ahead of the others, and what it changed is known from the note of that one change.

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

/// How taking a lock went.
enum Take {
    Mine,
    /// The CPU holds it already, and the run is over.
    Never,
    /// The CPU rests in the lock's queue.
    Wait,
}

/// How a call of `lock` goes on.
enum Step {
    Mine,
    /// After others, from the start: a [`Switch`], but flat, so that it fits registers.
    Turn {
        yielder: *const Yielder,
        next: u32,
    },
    /// After others, which may have answered.
    Leave {
        yielder: *const Yielder,
        next: u32,
    },
    /// After interrupts, from the start.
    Retry,
    /// After interrupts, in the queue.
    Deliver,
}

// SAFETY: the engine gives the lock to one CPU until that unlocks it, all on one host thread;
// without an engine nothing runs at the same time.
unsafe impl RawSpin for SimSpin {
    fn new(class: LockClass) -> Self {
        Self::free(class)
    }
    #[inline(always)]
    fn lock(&self) {
        // An owner now is a hint that the CPU will have to queue. The two ways differ for the host
        // alone: in what they cost it.
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
    /// Where it is on the host.
    #[inline]
    fn near(&self) -> impl Fn(&Engine) -> usize {
        let here = (&raw const *self).addr();
        move |_| here
    }
    /// Goes on with a call of `lock` until it has the lock. Preemption is off from the queue on:
    /// interrupts come in between, other tasks do not. Inlined, so that the coroutine is left from
    /// `lock` itself: returns through frames after a switch of stacks are what hosts predict worst.
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
    /// The same for what is seldom.
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
    /// Begins to take a lock. An owner now is a hint that the CPU will have to queue.
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
    /// Leaves the question for a lock behind while the CPU waits for its turn: `accept` finds it,
    /// and the coroutine is not resumed just to be queued.
    fn ask_spin(&mut self, lock: &SimSpin) -> Step {
        self.cpu().asks = Some(NonNull::from(lock));
        let gate = self.yield_turn((&raw const *lock).addr());
        if let Gate::Switch { yielder, next } = gate {
            return Step::Leave { yielder, next };
        }
        self.cpu().asks = None;
        if matches!(gate, Gate::Go) { Step::Mine } else { Step::Retry }
    }
    /// Goes on with a call of `lock` after it left its coroutine.
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
    /// Answers the question that the running CPU left behind, at its turn; says whether the CPU
    /// waits on, in the lock's queue.
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
    /// Takes a lock or leaves the CPU to others, after the gate.
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
            // A lock that nobody has used yet is in its first user's cache.
            NOBODY => self.seats.own_ps(),
            last => self.seats.transfer_ps(last, to),
        }
    }
    /// The lock goes to CPU `to`, which came at `arrived` and has it from `grant` on.
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
    /// The lock is this CPU's from `grant` on, and nobody else has to do anything for that. It
    /// waits for its turn all the same.
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
    /// The running CPU stands in a lock's queue.
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
    /// The running CPU has a lock of `class` from now on.
    #[inline]
    fn hold(&mut self, class: LockClass) {
        if self.hold_scale.is_some_and(|scale| scale.class == class) {
            self.cpu().scaled += 1;
        }
        self.check_taken(class);
    }
    /// How a wait in the queue goes on; at the CPU's turn, unless interrupts are off.
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
    /// Something came while the running CPU waits in the queue until `grant`.
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
            // An owner to whom the lock is let go only later has not got its line yet.
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
    /// Lets the lock go if no checkpoint comes before that; says whether it did.
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
