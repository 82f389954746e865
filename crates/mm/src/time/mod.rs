//! Time: jiffies, the timer wheel, exact timers, sleeping tasks, the periodic tick.
//!
//! Every CPU has one [`Base`](base): two timer wheels (standard timers wake an idle CPU, deferrable
//! ones wait until it is awake for another reason), exact timers, and a queue of tasks that sleep
//! to the nanosecond. The machine has one one-shot timer for each CPU, armed for the earliest
//! event. While a CPU is busy, that is at the latest the next jiffy edge: the periodic tick, on the
//! same edge on all CPUs. An idle CPU has no tick: its one-shot is armed for the first standard
//! timer or sleeper, or not at all. Wheel timers run in the tick.
//!
//! A timer is a numbered slot of a CPU; its user (`work`) defines its meaning. Expired timers are
//! passed to one function, in the interrupt, with no lock held.
//!
//! Lock order: a base's lock (class Timer, interrupts off) is innermost here. Wakeups are sent
//! under it; timers run without it.

mod base;
mod jiffies;
#[cfg(test)]
mod model;
mod sleepers;
mod wheel;

pub use jiffies::{Hz, NSEC_PER_SEC, ROUND_SKEW_JIFFIES};
pub use wheel::SLOTS;

use base::Base;
use core::sync::atomic::Ordering;
use mmscale_arch::sync::{EachCpu, IrqGuard, NoPreempt, SpinLock};
use mmscale_arch::{Atomic, CpuId, Func, Ipi, LockClass, LockInstance, Machine, Op, Span, TaskId};

/// A timer of a CPU, by number, below [`SLOTS`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TimerSlot(u8);

impl TimerSlot {
    /// Creates slot number `index`. Panics if it is not below [`SLOTS`].
    #[inline]
    pub const fn new(index: usize) -> Self {
        assert!(index < SLOTS);
        Self(index as u8)
    }
    /// Returns the number, for indexing.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The expiry of a timer, and whether it wakes an idle CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expiry {
    /// On the wheel, this many jiffies from now or up to a granule later. Wakes an idle CPU.
    Standard {
        /// The delay.
        jiffies: u64,
    },
    /// On the wheel, but an idle CPU runs it when it next ticks.
    Deferrable {
        /// The delay.
        jiffies: u64,
    },
    /// Exact, not on the wheel.
    Exact {
        /// The deadline, in ns since the machine started.
        deadline_ns: u64,
        /// The behaviour if the CPU is idle then.
        over_idle: OverIdle,
    },
}

/// The behaviour of an exact timer whose deadline passes while its CPU is idle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OverIdle {
    /// It wakes the CPU.
    Wake,
    /// It waits until the CPU is awake for another reason, and fires `spread_ns` later, or when the
    /// CPU is about to go idle again, whichever is first.
    Defer {
        /// Spreads the timers of CPUs that wake together.
        spread_ns: u64,
    },
}

/// The timers of all CPUs.
pub struct Time<A: Machine> {
    hz: Hz,
    bases: EachCpu<SpinLock<A, Base>>,
    /// Not zero: [`Time::sleep_until`] returns immediately.
    stopped: A::AtomicU32,
}

impl<A: Machine> Time<A> {
    /// Creates the timers of every possible CPU, none armed. Returns `None` if the machine's HZ is
    /// not valid.
    pub fn new() -> Option<Self> {
        let hz = Hz::new(A::hz())?;
        let now_ns = A::now_ns();
        let base = |cpu| {
            SpinLock::named(LockClass::Timer, LockInstance::OfCpu(cpu), Base::new(hz, now_ns))
        };
        Some(Self { hz, bases: EachCpu::new::<A>(base), stopped: A::AtomicU32::new(0) })
    }

    /// Returns the ticks a second.
    pub fn hz(&self) -> Hz {
        self.hz
    }

    /// Returns the current jiffy.
    #[inline]
    pub fn jiffies(&self) -> u64 {
        self.hz.jiffies(A::now_ns())
    }

    /// Arms the timer `slot` of `cpu`. Replaces an earlier arming of the slot.
    pub fn arm(&self, cpu: CpuId, slot: TimerSlot, expiry: Expiry) {
        A::work(Op::WorkQueue, 1);
        let mut base = self.bases.of(cpu).lock_irqsave();
        let now = self.jiffies();
        base.cancel(slot);
        match expiry {
            Expiry::Standard { jiffies } => base.arm_standard(slot, now, now + jiffies),
            Expiry::Deferrable { jiffies } => base.arm_deferrable(slot, now, now + jiffies),
            Expiry::Exact { deadline_ns, over_idle } => {
                base.arm_exact(slot, deadline_ns, over_idle);
            }
        }
        let sooner = base.next_event_ns() < base.programmed_ns;
        if sooner && cpu == base.cpu() {
            program::<A>(&mut base);
        } else if sooner {
            // Only its own CPU can program the one-shot: interrupt that CPU.
            drop(base);
            A::ipi_send(cpu, Ipi::Timer);
        }
    }

    /// Disarms a timer; returns whether it was pending. Its function may be running nevertheless.
    pub fn cancel(&self, cpu: CpuId, slot: TimerSlot) -> bool {
        self.bases.of(cpu).lock_irqsave().cancel(slot)
    }

    /// Returns when a pending timer is due, in ns.
    pub fn due_ns(&self, cpu: CpuId, slot: TimerSlot) -> Option<u64> {
        self.bases.of(cpu).lock_irqsave().due_ns(slot)
    }

    /// Puts the calling task to sleep until `deadline_ns` or [`Time::stop_sleeping`], or until
    /// another task unparks it and `over` returns true. A task that makes `over` true unparks this
    /// one afterwards. `over` is false at the call; it is evaluated only after an early wakeup.
    pub fn sleep_until(&self, deadline_ns: u64, over: impl Fn() -> bool) {
        // Pairs with the store in `stop_sleeping`. A hint: it is loaded again below.
        if self.stopped.load(Ordering::Acquire) != 0 || A::now_ns() >= deadline_ns {
            return;
        }
        {
            let here = IrqGuard::<A>::new();
            let mut base = self.bases.of(here.cpu()).lock_irqsave();
            base.sleepers.push(deadline_ns, A::current());
            if deadline_ns < base.programmed_ns {
                program::<A>(&mut base);
            }
        }
        // Pairs with the store in `stop_sleeping`, by way of the base's lock: this sees it, or the
        // sleeper is popped and woken.
        while A::now_ns() < deadline_ns && self.stopped.load(Ordering::Acquire) == 0 {
            A::park();
            if A::now_ns() < deadline_ns && over() {
                return self.forget_sleeper(A::current());
            }
        }
    }

    /// Removes the timer of a task that woke early, so that it does not wake the task later. The
    /// timer may be on another CPU, on which the task went to sleep.
    #[cold]
    fn forget_sleeper(&self, task: TaskId) {
        self.bases.iter().for_each(|(_, base)| base.lock_irqsave().sleepers.forget(task));
    }

    /// Wakes every sleeper for good: the machine is about to stop.
    pub fn stop_sleeping(&self) {
        // Pairs with the loads in `sleep_until`. Before the sleepers are popped under the locks.
        self.stopped.store(1, Ordering::SeqCst);
        for (_, base) in self.bases.iter() {
            let mut base = base.lock_irqsave();
            while let Some((_, task)) = base.sleepers.pop() {
                A::unpark(task);
            }
        }
    }

    /// Starts the tick of this CPU, which has something to run. Interrupts are off.
    pub fn idle_exit(&self) {
        let here = IrqGuard::<A>::new();
        let mut base = self.bases.of(here.cpu()).lock_irqsave();
        if !base.ticking {
            base.start_ticking(A::now_ns());
            program::<A>(&mut base);
        }
    }

    /// Stops the tick of this CPU, which has nothing to run. Postponed deferrable timers fire
    /// immediately, so that their work is done before the CPU idles. Interrupts are off.
    pub fn idle_enter(&self) {
        let here = IrqGuard::<A>::new();
        let mut base = self.bases.of(here.cpu()).lock_irqsave();
        base.stop_ticking(A::now_ns());
        program::<A>(&mut base);
    }

    /// Handles this CPU's one-shot: wakes sleepers, and passes every expired timer to `expired`,
    /// with interrupts off. Returns whether it was a tick.
    pub fn interrupt(&self, mut expired: impl FnMut(TimerSlot)) -> bool {
        let here = IrqGuard::<A>::new();
        let now_ns = A::now_ns();
        let mut base = self.bases.of(here.cpu()).lock_irqsave();
        let tick = base.take_tick(now_ns);
        if tick {
            A::work(Op::TimerTick, 1);
        }
        while let Some(task) = base.sleepers.pop_due(now_ns) {
            A::unpark(task);
        }
        let slots = base.expire(now_ns, tick);
        program::<A>(&mut base);
        drop(base);
        if slots != 0 {
            let _span = Span::<A>::enter(Func::RunTimers);
            A::work(Op::TimerExpire, slots.count_ones());
            (0..SLOTS).filter(|slot| slots >> slot & 1 == 1).for_each(|slot| {
                expired(TimerSlot::new(slot));
            });
        }
        tick
    }

    /// Programs this CPU's one-shot again, after another CPU armed an earlier timer on it.
    pub fn reprogram(&self) {
        let here = IrqGuard::<A>::new();
        program::<A>(&mut self.bases.of(here.cpu()).lock_irqsave());
    }

    /// Moves the sleepers of `cpu`, which is dead, to this CPU, and passes each pending timer to
    /// `orphan` with the rest of its delay. Timers that had to be cancelled have been cancelled
    /// before.
    pub fn cpu_dead(&self, cpu: CpuId, mut orphan: impl FnMut(TimerSlot, Expiry)) {
        let dead = self.bases.of(cpu);
        {
            let mut base = dead.lock_irqsave();
            base.ticking = false;
            base.programmed_ns = u64::MAX;
        }
        loop {
            let sleeper = dead.lock_irqsave().sleepers.pop();
            let Some((deadline_ns, task)) = sleeper else { break };
            let here = IrqGuard::<A>::new();
            let mut base = self.bases.of(here.cpu()).lock_irqsave();
            base.sleepers.push(deadline_ns, task);
            if deadline_ns < base.programmed_ns {
                program::<A>(&mut base);
            }
        }
        loop {
            let timer = dead.lock_irqsave().take_any(A::now_ns());
            let Some((slot, expiry)) = timer else { break };
            orphan(slot, expiry);
        }
    }
}

/// Arms this CPU's one-shot for its base's next event, if it is not armed so already.
fn program<A: Machine>(base: &mut Base) {
    let next_ns = base.next_event_ns();
    // After an interrupt the one-shot must be armed again even if the time is unchanged.
    match next_ns {
        u64::MAX if base.programmed_ns == u64::MAX => {}
        u64::MAX => A::timer_cancel(),
        _ => A::timer_arm(next_ns),
    }
    base.programmed_ns = next_ns;
}
