//! Work queues: pieces of work that run in a worker task of a chosen CPU, immediately or later.
//!
//! Every online CPU has one worker, bound to it, of normal priority. Work is named by [`WorkItem`].
//! A piece is *pending* from the moment it is queued, or its delay begins, until the worker starts
//! it. Queueing it again meanwhile returns `false` and does nothing. It may be queued again while
//! it runs.
//!
//! A worker runs one piece at a time, in order. Work that sleeps delays the work behind it: unlike
//! the kernel's pools there is no second worker.
//!
//! Lock order: a queue's lock (class Work, interrupts off) is held alone; the worker is woken after
//! it is released. The pending bit is set and the work inserted with interrupts off, so that a
//! concurrent cancel waits only briefly.

mod item;
mod queue;

pub use item::WorkItem;

use crate::time::{Expiry, Time, TimerSlot};
use item::Items;
use mmscale_arch::sync::{EachCpu, IrqGuard, SpinLock, WaitQueue};
use mmscale_arch::{
    CpuId, Func, LockClass, LockInstance, Machine, Op, Priority, Span, TaskEntry, TaskSpec,
};
use queue::{Next, Queue};

/// The work of all CPUs.
pub struct Work<A: Machine> {
    queues: EachCpu<SpinLock<A, Queue>>,
    /// Tasks that wait for a CPU's work to end.
    flushers: EachCpu<WaitQueue<A>>,
    items: Items<A>,
}

impl<A: Machine> Work<A> {
    /// Creates the state without work and workers.
    #[expect(clippy::new_without_default, reason = "work needs workers to be of use")]
    pub fn new() -> Self {
        Self {
            queues: EachCpu::new::<A>(|cpu| {
                SpinLock::named(LockClass::Work, LockInstance::OfCpu(cpu), Queue::new())
            }),
            flushers: EachCpu::new::<A>(|_| WaitQueue::new()),
            items: Items::new(),
        }
    }

    // -- Queueing.

    /// Queues `item` for the worker of `cpu`. Returns `false` if it is pending already or disabled.
    pub fn queue_on(&self, cpu: CpuId, item: WorkItem) -> bool {
        let _here = IrqGuard::<A>::new();
        let taken = self.items.of(item).take_pending();
        if taken {
            self.insert(cpu, item);
        }
        taken
    }

    /// Queues `item` for the worker of `cpu`, which is online, at `expiry`; immediately if that is
    /// 0 jiffies from now. Returns `false` if it is pending already or disabled.
    pub fn queue_delayed_on(
        &self,
        time: &Time<A>,
        cpu: CpuId,
        item: WorkItem,
        expiry: Expiry,
    ) -> bool {
        let _here = IrqGuard::<A>::new();
        let state = self.items.of(item);
        if !state.take_pending() {
            return false;
        }
        match expiry {
            Expiry::Standard { jiffies: 0 } | Expiry::Deferrable { jiffies: 0 } => {
                self.insert(cpu, item);
            }
            _ => {
                state.set_home(cpu);
                time.arm(cpu, item.slot(), expiry);
            }
        }
        true
    }

    /// Queues the work that the expired timer `slot` of `cpu` delayed. Interrupts are off.
    pub fn expired(&self, cpu: CpuId, slot: TimerSlot) {
        if let Some(item) = WorkItem::of_slot(slot, cpu) {
            self.insert(cpu, item);
        }
    }

    /// Inserts pending work into the queue of `cpu`. If that queue is closed, uses another CPU's,
    /// unless the work is bound to `cpu`.
    fn insert(&self, cpu: CpuId, item: WorkItem) {
        let _span = Span::<A>::enter(Func::QueueWorkOn);
        A::work(Op::WorkQueue, 1);
        let others = self.queues.iter().map(|(other, _)| other);
        let others = others.filter(|_| item.bound_to().is_none());
        let placed = core::iter::once(cpu).chain(others).any(|cpu| {
            let mut queue = self.queues.of(cpu).lock_irqsave();
            if !queue.is_open() {
                return false;
            }
            self.items.of(item).set_home(cpu);
            let sleeper = queue.push(item);
            drop(queue);
            sleeper.into_iter().for_each(A::unpark);
            true
        });
        if !placed {
            // Its CPU goes away, or the machine stops.
            self.items.of(item).clear_pending();
        }
    }

    /// Returns whether `item` waits for its timer or for its worker.
    #[inline]
    pub fn is_pending(&self, item: WorkItem) -> bool {
        self.items.of(item).is_pending()
    }

    /// Returns when the timer of a delayed `item` is due, in ns; `None` if it does not wait for a
    /// timer.
    pub fn due_ns(&self, time: &Time<A>, item: WorkItem) -> Option<u64> {
        if !self.is_pending(item) {
            return None;
        }
        time.due_ns(self.items.of(item).home(), item.slot())
    }

    // -- Waiting and cancelling. Tasks only; these sleep.

    /// Waits until the last queued instance of `item` has run. Returns whether it had to wait. Does
    /// not wait for work that still waits for its timer.
    pub fn flush(&self, item: WorkItem) -> bool {
        let _span = Span::<A>::enter(Func::FlushWork);
        let mut waited = false;
        loop {
            let home = self.items.of(item).home();
            let ticket = self.queues.of(home).lock_irqsave().ticket_of(item);
            let Some(ticket) = ticket else { return waited };
            self.wait_for(home, ticket);
            waited = true;
            if self.items.of(item).home() == home {
                return true;
            }
        }
    }

    /// Removes `item` from its timer or queue, and waits until it does not run. Returns whether it
    /// was pending. It may be queued again as soon as this returns.
    pub fn cancel_sync(&self, time: &Time<A>, item: WorkItem) -> bool {
        let state = self.items.of(item);
        let was_pending = loop {
            // While this task has set the pending bit, the work cannot be queued, not even by
            // itself.
            if state.grab() {
                break false;
            }
            let home = state.home();
            if time.cancel(home, item.slot()) || self.queues.of(home).lock_irqsave().remove(item) {
                break true;
            }
            // It is between its timer and its queue, or about to be started.
            A::relax();
            A::cond_resched();
        };
        let ran_on = state.ran_on();
        let running = self.queues.of(ran_on).lock_irqsave().running_ticket(item);
        if let Some(ticket) = running {
            self.wait_for(ran_on, ticket);
        }
        state.clear_pending();
        was_pending
    }

    /// Cancels `item` and prevents queueing it until [`Work::enable`].
    pub fn disable_sync(&self, time: &Time<A>, item: WorkItem) -> bool {
        self.items.of(item).disable();
        self.cancel_sync(time, item)
    }

    /// Ends a [`Work::disable_sync`].
    pub fn enable(&self, item: WorkItem) {
        self.items.of(item).enable();
    }

    /// Sleeps until the work of `ticket` of `cpu` is done.
    fn wait_for(&self, cpu: CpuId, ticket: u64) {
        let queue = self.queues.of(cpu);
        queue.lock_irqsave().flushers += 1;
        self.flushers.of(cpu).wait_until(|| !queue.lock_irqsave().has(ticket));
        queue.lock_irqsave().flushers -= 1;
    }

    // -- Workers.

    /// Starts the worker of `cpu`, which is online, as a task with `entry`.
    pub fn start_worker(&self, cpu: CpuId, entry: TaskEntry) {
        {
            let mut queue = self.queues.of(cpu).lock_irqsave();
            if queue.is_open() {
                return;
            }
            queue.open();
        }
        A::spawn(TaskSpec { cpu, per_cpu: true, priority: Priority::Fair, entry });
    }

    /// Body of the worker of `cpu`: runs work with `run` until the queue is closed and empty.
    pub fn worker(&self, cpu: CpuId, mut run: impl FnMut(WorkItem)) {
        let _span = Span::<A>::enter(Func::Kworker);
        self.queues.of(cpu).lock_irqsave().worker = Some(A::current());
        loop {
            match self.step(cpu, &mut run) {
                Step::Ran => A::cond_resched(),
                Step::Idle => A::park(),
                Step::Left => return,
            }
        }
    }

    /// Runs one step of the worker of `cpu`; the caller is that worker.
    pub fn step(&self, cpu: CpuId, run: &mut impl FnMut(WorkItem)) -> Step {
        let mut queue = self.queues.of(cpu).lock_irqsave();
        let item = match queue.next() {
            Next::Run(item) => item,
            Next::Sleep => return Step::Idle,
            Next::Leave => {
                drop(queue);
                self.flushers.of(cpu).wake_all();
                return Step::Left;
            }
        };
        let state = self.items.of(item);
        state.set_ran_on(cpu);
        state.clear_pending();
        drop(queue);
        {
            let _span = Span::<A>::enter(Func::ProcessOneWork);
            A::work(Op::WorkRun, 1);
            run(item);
        }
        let mut queue = self.queues.of(cpu).lock_irqsave();
        queue.finished();
        let flushed = queue.flushers > 0;
        drop(queue);
        if flushed {
            self.flushers.of(cpu).wake_all();
        }
        Step::Ran
    }

    /// Closes the queue of `cpu`, and waits until its worker has returned.
    pub fn stop_worker(&self, cpu: CpuId) {
        self.close(cpu);
        self.wait_closed(cpu);
    }

    fn wait_closed(&self, cpu: CpuId) {
        let queue = self.queues.of(cpu);
        self.flushers.of(cpu).wait_until(|| !queue.lock_irqsave().is_open());
    }

    /// Closes all queues: workers return once their queues are empty.
    pub fn shutdown(&self) {
        self.queues.iter().for_each(|(cpu, _)| self.close(cpu));
    }

    /// Waits until all workers have returned after a [`Work::shutdown`].
    pub fn wait_for_workers(&self) {
        self.queues.iter().for_each(|(cpu, _)| self.wait_closed(cpu));
    }

    /// Closes the queue of `cpu`: its worker returns once it is empty.
    pub fn close(&self, cpu: CpuId) {
        let sleeper = self.queues.of(cpu).lock_irqsave().close();
        sleeper.into_iter().for_each(A::unpark);
    }

    /// Returns whether no work waits or runs on any CPU, timers not counted.
    pub fn is_idle(&self) -> bool {
        self.queues.iter().all(|(_, queue)| queue.lock_irqsave().is_idle())
    }

    /// Takes over the timer of `slot`, which was pending for `expiry` when `cpu` died. Drops work
    /// that is bound to the dead CPU.
    pub fn adopt(&self, time: &Time<A>, cpu: CpuId, slot: TimerSlot, expiry: Expiry) {
        let here = IrqGuard::<A>::new();
        let Some(item) = WorkItem::of_slot(slot, cpu) else { return };
        let state = self.items.of(item);
        if item.bound_to().is_some() {
            state.clear_pending();
            return;
        }
        let home = mmscale_arch::sync::NoPreempt::cpu(&here);
        state.set_home(home);
        time.arm(home, slot, expiry);
    }
}

/// Result of a step of a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// It ran a piece of work.
    Ran,
    /// The queue is empty: the worker sleeps now.
    Idle,
    /// The queue is empty and closed: the worker returns.
    Left,
}
