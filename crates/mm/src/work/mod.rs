//! Work queues: pieces of work that run in a worker task of a chosen CPU, at once or later.
//!
//! Every online CPU has one worker, bound to it, of normal priority. Work is named by
//! [`WorkItem`]; a piece is *pending* from the moment it is queued, or its delay begins, until the
//! worker takes it up, and queueing it again meanwhile says `false` and does nothing. It may be
//! queued again while it runs.
//!
//! A worker runs one piece at a time, in order. Work that sleeps holds up the work behind it:
//! unlike the kernel's pools there is no second worker.
//!
//! Lock order: a queue's lock (class Work, interrupts off) is held alone; the worker is woken
//! after it. The pending bit is taken and the work put in its place with interrupts off, so that
//! whoever cancels waits for moments only.

mod item;
mod queue;

pub use item::WorkItem;

use crate::time::{Expiry, Time, TimerSlot};
use item::Items;
use mmscale_arch::sync::{EachCpu, IrqGuard, SpinLock, WaitQueue};
use mmscale_arch::{
    CpuId, Func, LockClass, Machine, Op, Priority, Span, TaskEntry, TaskSpec, planted,
};
use queue::{Next, Queue};

/// The work of all CPUs.
pub struct Work<A: Machine> {
    queues: EachCpu<SpinLock<A, Queue>>,
    /// Who waits for a CPU's work to end.
    flushers: EachCpu<WaitQueue<A>>,
    items: Items<A>,
}

impl<A: Machine> Work<A> {
    /// No work, no workers.
    #[expect(clippy::new_without_default, reason = "work needs workers to be of use")]
    pub fn new() -> Self {
        Self {
            queues: EachCpu::new::<A>(|_| SpinLock::new(LockClass::Work, Queue::new())),
            flushers: EachCpu::new::<A>(|_| WaitQueue::new()),
            items: Items::new(),
        }
    }

    // -- Queueing.

    /// Queues `item` for the worker of `cpu`. `false`: it is pending already, or disabled.
    pub fn queue_on(&self, cpu: CpuId, item: WorkItem) -> bool {
        let _here = IrqGuard::<A>::new();
        let taken = self.items.of(item).take_pending();
        if taken {
            self.insert(cpu, item);
        }
        taken
    }

    /// Queues `item` for the worker of `cpu` when `expiry` comes; at once if that is 0 jiffies
    /// from now. `cpu` is online. `false`: it is pending already, or disabled.
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

    /// The timer `slot` of `cpu` has gone off: the work it delayed is queued. Interrupts are off.
    pub fn expired(&self, cpu: CpuId, slot: TimerSlot) {
        if let Some(item) = WorkItem::of_slot(slot, cpu) {
            self.insert(cpu, item);
        }
    }

    /// Puts a pending piece of work into the queue of `cpu`. If `cpu` takes none, another CPU does,
    /// unless the work belongs to `cpu`.
    fn insert(&self, cpu: CpuId, item: WorkItem) {
        let _span = Span::<A>::enter(Func::QueueWorkOn);
        A::work(Op::WorkQueue, 1);
        let others = self.queues.iter().map(|(other, _)| other);
        let others = others.filter(|_| item.bound_to().is_none());
        let placed = core::iter::once(cpu).chain(others).any(|cpu| {
            let mut queue = self.queues.of(cpu).lock_irqsave();
            if !queue.is_open() && !planted!(WorkClosedAccepts) {
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

    /// Whether `item` waits for its timer or for its worker.
    #[inline]
    pub fn is_pending(&self, item: WorkItem) -> bool {
        self.items.of(item).is_pending()
    }

    /// When the timer of a delayed `item` is due, in ns; `None` when it does not wait for a timer.
    pub fn due_ns(&self, time: &Time<A>, item: WorkItem) -> Option<u64> {
        if !self.is_pending(item) {
            return None;
        }
        time.due_ns(self.items.of(item).home(), item.slot())
    }

    // -- Waiting and cancelling. Tasks only; these sleep.

    /// Waits until the last queued instance of `item` has run. Says whether it had to wait. Work
    /// that still waits for its timer is not waited for.
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

    /// Takes `item` out of its timer or queue, and waits until it does not run either. Says
    /// whether it was pending. It may be queued again as soon as this returns.
    pub fn cancel_sync(&self, time: &Time<A>, item: WorkItem) -> bool {
        let state = self.items.of(item);
        let was_pending = loop {
            // With the pending bit in hand nobody else can queue it, the work itself included.
            if state.grab() {
                break false;
            }
            let home = state.home();
            if time.cancel(home, item.slot()) || self.queues.of(home).lock_irqsave().remove(item) {
                break true;
            }
            // It is between its timer and its queue, or being taken up.
            A::relax();
            A::cond_resched();
        };
        let ran_on = state.ran_on();
        let running = self.queues.of(ran_on).lock_irqsave().running_ticket(item);
        if let Some(ticket) = running.filter(|_| !planted!(WorkCancelUnawaited)) {
            self.wait_for(ran_on, ticket);
        }
        state.clear_pending();
        was_pending
    }

    /// Cancels `item` and lets nobody queue it until [`Work::enable`].
    pub fn disable_sync(&self, time: &Time<A>, item: WorkItem) -> bool {
        self.items.of(item).disable();
        self.cancel_sync(time, item)
    }

    /// Ends a [`Work::disable_sync`].
    pub fn enable(&self, item: WorkItem) {
        self.items.of(item).enable();
    }

    /// Sleeps until the work of `ticket` of `cpu` is over.
    fn wait_for(&self, cpu: CpuId, ticket: u64) {
        let queue = self.queues.of(cpu);
        let counted = u32::from(!planted!(WorkFlusherUncounted));
        queue.lock_irqsave().flushers += counted;
        self.flushers.of(cpu).wait_until(|| !queue.lock_irqsave().has(ticket));
        queue.lock_irqsave().flushers -= counted;
    }

    // -- Workers.

    /// Makes the worker of `cpu`, which is online, as a task with `entry`.
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

    /// The body of the worker of `cpu`: runs work with `run` until it is told to leave.
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

    /// One step of the worker of `cpu`, which the caller is.
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
        if !planted!(WorkPendingClearedLate) {
            state.clear_pending();
        }
        drop(queue);
        {
            let _span = Span::<A>::enter(Func::ProcessOneWork);
            A::work(Op::WorkRun, 1);
            run(item);
        }
        if planted!(WorkPendingClearedLate) {
            state.clear_pending();
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

    /// Tells the worker of `cpu` to return once its queue is empty, and waits until it has.
    pub fn stop_worker(&self, cpu: CpuId) {
        self.close(cpu);
        self.wait_closed(cpu);
    }

    fn wait_closed(&self, cpu: CpuId) {
        let queue = self.queues.of(cpu);
        self.flushers.of(cpu).wait_until(|| !queue.lock_irqsave().is_open());
    }

    /// Tells all workers to return once their queues are empty.
    pub fn shutdown(&self) {
        self.queues.iter().for_each(|(cpu, _)| self.close(cpu));
    }

    /// Waits until all workers have returned after a [`Work::shutdown`].
    pub fn wait_for_workers(&self) {
        self.queues.iter().for_each(|(cpu, _)| self.wait_closed(cpu));
    }

    /// Tells the worker of `cpu` to return once its queue is empty.
    pub fn close(&self, cpu: CpuId) {
        let sleeper = self.queues.of(cpu).lock_irqsave().close();
        sleeper.into_iter().for_each(A::unpark);
    }

    /// Whether no work waits or runs on any CPU, timers not counted.
    pub fn is_idle(&self) -> bool {
        self.queues.iter().all(|(_, queue)| queue.lock_irqsave().is_idle())
    }

    /// `cpu` has died with the timer of `slot` pending, which was to go off at `expiry`: this CPU
    /// takes it over. Work that belongs to the dead CPU is dropped instead.
    pub fn adopt(&self, time: &Time<A>, cpu: CpuId, slot: TimerSlot, expiry: Expiry) {
        let here = IrqGuard::<A>::new();
        let Some(item) = WorkItem::of_slot(slot, cpu) else { return };
        let state = self.items.of(item);
        if item.bound_to().is_some() {
            state.clear_pending();
            return;
        }
        let home = mmscale_arch::sync::NoPreempt::cpu(&here);
        if planted!(WorkDeadTimerLost) {
            return;
        }
        state.set_home(home);
        time.arm(home, slot, expiry);
    }
}

/// What a step of a worker did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// It ran a piece of work.
    Ran,
    /// There was none: the worker sleeps now.
    Idle,
    /// There was none, and the worker is to return.
    Left,
}
