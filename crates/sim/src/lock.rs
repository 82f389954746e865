//! The spin lock of the simulated machine: a queue lock with handoff by distance.
//!
//! Taking it needs the CPU's turn; letting it go only records when it becomes free and hands it to
//! the first in the queue. A CPU that arrives before that time, in virtual time, waits for it like
//! one that was queued when the holder let go: it cannot tell the two apart.

use crate::context::{suspend, with, with_any};
use crate::cpu::{NOWHERE, Wait, Waiter};
use crate::engine::Engine;
use crate::heap::{NEVER, time_of};
use crate::irq::{at_turn_if_any, charge, deliver};
use crate::task::Switch;
use crate::topology::NOBODY;
use mmscale_mm::arch::{LockClass, RawSpin};
use std::cell::Cell;

/// A spin lock of the simulated machine.
pub struct SimSpin {
    class: LockClass,
    /// The CPU that holds it, or will as soon as it has been handed over.
    owner: Cell<u16>,
    /// The CPU that has its cache line.
    last: Cell<u16>,
    /// The first and the last place in the queue.
    head: Cell<u32>,
    tail: Cell<u32>,
    /// With no owner: when it became free, or will; an order word.
    free_at: Cell<u64>,
    /// With an owner: since when, in ps.
    since: Cell<u64>,
    /// Where the hold is counted.
    row: Cell<u32>,
    /// A name for messages, given when one is first needed; 0 before.
    id: Cell<u32>,
}

/// How taking a lock went.
enum Take {
    Mine,
    /// The CPU holds it already, and the run is over.
    Never,
    Wait(Switch),
}

/// How waiting goes on.
enum Poll {
    Mine,
    Interrupt,
    Block(Switch),
}

impl RawSpin for SimSpin {
    fn new(class: LockClass) -> Self {
        Self {
            class,
            owner: Cell::new(NOBODY),
            last: Cell::new(NOBODY),
            head: Cell::new(NOWHERE),
            tail: Cell::new(NOWHERE),
            free_at: Cell::new(0),
            since: Cell::new(0),
            row: Cell::new(0),
            id: Cell::new(0),
        }
    }
    #[inline]
    fn lock(&self) {
        match at_turn_if_any(|engine| engine.spin_lock(self)) {
            None | Some(Take::Mine) => {}
            Some(Take::Wait(switch)) => wait(switch),
            Some(Take::Never) => deliver(),
        }
    }
    #[inline]
    fn try_lock(&self) -> bool {
        at_turn_if_any(|engine| engine.spin_try_lock(self)).unwrap_or(true)
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
        at_turn_if_any(|engine| engine.spin_is_locked(self)).unwrap_or(false)
    }
}

/// Spins in the queue; takes interrupts if they are on, but lets no other task run.
fn wait(first: Switch) {
    suspend(first);
    loop {
        match with(Engine::spin_poll) {
            Poll::Mine => break,
            Poll::Interrupt => deliver(),
            Poll::Block(switch) => suspend(switch),
        }
    }
}

impl Engine {
    #[inline]
    fn spin_lock(&mut self, lock: &SimSpin) -> Take {
        if self.quiet {
            return Take::Mine;
        }
        let at = self.cur;
        self.check_lock(lock.class);
        let cpu = &self.cpus[at];
        let row = self.stats.row_of(cpu.path, lock.class);
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
    #[inline]
    fn transfer(&self, lock: &SimSpin, to: usize) -> u64 {
        match lock.last.get() {
            // A lock that nobody has used yet is in its first user's cache.
            NOBODY => self.seats.own_ps(),
            last => self.seats.transfer_ps(last, to),
        }
    }
    /// The lock goes to CPU `to`, which came at `arrived` and has it from `grant` on.
    fn hand_over(&mut self, lock: &SimSpin, to: usize, row: u32, arrived: u64, grant: u64) {
        lock.owner.set(to as u16);
        lock.last.set(to as u16);
        lock.since.set(grant);
        lock.row.set(row);
        self.stats.row(row).contended(grant - arrived);
        if lock.id.get() != 0 {
            self.checker.lock_owner(lock.id.get(), to as u16);
        }
    }
    /// The lock is this CPU's from `grant` on, and nobody else has to do anything for that.
    fn wait_until(&mut self, lock: &SimSpin, grant: u64) -> Take {
        let place = self.place_to_wait();
        let cpu = &mut self.cpus[self.cur];
        self.waiters[place] = Waiter {
            grant,
            class: lock.class,
            arrived: cpu.clock,
            lock_id: lock.id.get(),
            ..Waiter::default()
        };
        if !cpu.irq_off {
            cpu.preempt += 1;
            let until = grant.min(cpu.ipi_at());
            return Take::Wait(self.block(Wait::Spin, until));
        }
        cpu.clock = grant;
        self.hold(lock.class);
        Take::Mine
    }
    fn enqueue_waiter(&mut self, lock: &SimSpin, row: u32) -> Take {
        if lock.id.get() == 0 {
            lock.id.set(self.checker.new_lock_id());
        }
        if usize::from(lock.owner.get()) == self.cur {
            self.fail_relock(lock.class);
            return Take::Never;
        }
        let place = self.place_to_wait();
        self.waiters[place] = Waiter {
            next: NOWHERE,
            row,
            arrived: self.cpus[self.cur].clock,
            grant: NEVER,
            lock_id: lock.id.get(),
            class: lock.class,
        };
        match lock.tail.replace(place as u32) {
            NOWHERE => lock.head.set(place as u32),
            before => self.waiters[before as usize].next = place as u32,
        }
        self.checker.lock_owner(lock.id.get(), lock.owner.get());
        let cpu = self.cpu();
        cpu.preempt += 1;
        let until = if cpu.irq_off { NEVER } else { cpu.ipi_at() };
        Take::Wait(self.block(Wait::Spin, until))
    }
    /// The running CPU has a lock of `class` from now on.
    #[inline]
    fn hold(&mut self, class: LockClass) {
        if self.hold_scale.is_some_and(|scale| scale.class == class) {
            self.cpu().scaled += 1;
        }
        self.check_taken(class);
    }
    /// The end of a wait for a lock: it is the running CPU's.
    fn end_wait(&mut self) {
        let cpu = self.cpu();
        cpu.preempt = cpu.preempt.saturating_sub(1);
        if !cpu.irq_off {
            cpu.plan_check();
        }
        if !self.quiet {
            self.hold(self.waiters[self.place_to_wait()].class);
        }
    }
    fn place_to_wait(&self) -> usize {
        2 * self.cur + usize::from(self.cpus[self.cur].in_irq)
    }
    /// How a wait goes on; at the CPU's turn, unless interrupts are off.
    fn spin_poll(&mut self) -> Poll {
        let grant = self.waiters[self.place_to_wait()].grant;
        let quiet = self.quiet;
        let cpu = self.cpu();
        if cpu.irq_off && grant != NEVER {
            cpu.clock = cpu.clock.max(grant);
        }
        if grant <= cpu.clock || quiet {
            self.end_wait();
            return Poll::Mine;
        }
        if cpu.irq_due() {
            return Poll::Interrupt;
        }
        let until = if cpu.irq_off { NEVER } else { grant.min(cpu.ipi_at()) };
        Poll::Block(self.block(Wait::Spin, until))
    }
    #[inline]
    fn spin_try_lock(&mut self, lock: &SimSpin) -> bool {
        if self.quiet {
            return true;
        }
        let at = self.cur;
        let cost = self.transfer(lock, at);
        let free = lock.owner.get() == NOBODY && lock.free_at.get() <= self.cpus[at].order();
        if !free {
            self.cpu().clock += cost;
            return false;
        }
        self.check_trylock(lock.class);
        let row = self.stats.row_of(self.cpus[at].path, lock.class);
        let cpu = &mut self.cpus[at];
        cpu.clock += self.costs.lock_ps + cost;
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
        if self.hold_scale.is_some_and(|scale| scale.class == lock.class) {
            self.cpu().scaled -= 1;
        }
        let cpu = &self.cpus[at];
        let held = cpu.clock.saturating_sub(lock.since.get());
        self.stats.row(lock.row.get()).hold_ps += held;
        let place = lock.head.get();
        if place == NOWHERE {
            lock.owner.set(NOBODY);
            lock.free_at.set(cpu.order());
            return;
        }
        let to = place as usize / 2;
        let grant = cpu.clock + self.costs.handoff_ps + self.transfer(lock, to);
        let waiter = &mut self.waiters[place as usize];
        waiter.grant = grant;
        let (row, arrived) = (waiter.row, waiter.arrived);
        lock.head.set(waiter.next);
        if waiter.next == NOWHERE {
            lock.tail.set(NOWHERE);
        }
        self.hand_over(lock, to, row, arrived, grant);
        if self.cpus[to].wait == Wait::Spin {
            self.wake_by(to, grant);
        }
    }
}
