//! Time: jiffies, the timer wheel, exact timers, sleeping tasks, the periodic tick.
//!
//! Every CPU has one [`Base`](base): two timer wheels (standard timers wake an idle CPU,
//! deferrable ones wait until it is awake for another reason), exact timers, and a queue of tasks
//! that sleep to the nanosecond. The machine gives one one-shot per CPU; it is armed for whatever
//! comes first. While a CPU is busy that is at the latest the next jiffy edge: the periodic tick,
//! on the same edge on all CPUs. An idle CPU has no tick: its one-shot is armed for the first
//! standard timer or sleeper, or not at all. Wheel timers run in the tick.
//!
//! A timer is a numbered slot of a CPU. What a slot means is its user's business (`work`): what
//! has gone off is handed to one function, in the interrupt, with no lock held.
//!
//! Lock order: a base's lock (class Timer, interrupts off) is innermost here; wake-ups are sent
//! under it, timers run without it.

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
use mmscale_arch::{Atomic, CpuId, Func, Ipi, LockClass, Machine, Op, Span, TaskId};

/// A timer of a CPU, by number, below [`SLOTS`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TimerSlot(u8);

impl TimerSlot {
    /// Slot number `index`. Panics from [`SLOTS`] on.
    #[inline]
    pub const fn new(index: usize) -> Self {
        assert!(index < SLOTS);
        Self(index as u8)
    }
    /// The number, for indexing.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// When a timer goes off, and whether it wakes an idle CPU for that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expiry {
    /// On the wheel, this many jiffies from now or up to a granule later. Wakes an idle CPU.
    Standard {
        /// The delay.
        jiffies: u64,
    },
    /// On the wheel too, but an idle CPU runs it when it next ticks.
    Deferrable {
        /// The delay.
        jiffies: u64,
    },
    /// Exact, off the wheel.
    Exact {
        /// When, in ns since the machine started.
        deadline_ns: u64,
        /// What if the CPU is idle then.
        over_idle: OverIdle,
    },
}

/// What an exact timer does that comes due while its CPU is idle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OverIdle {
    /// It wakes the CPU.
    Wake,
    /// It waits until the CPU is awake for another reason, and goes off `spread_ns` later, or when
    /// the CPU is about to go idle again, whichever is first.
    Defer {
        /// Tells CPUs apart that wake together.
        spread_ns: u64,
    },
}

/// The timers of all CPUs.
pub struct Time<A: Machine> {
    hz: Hz,
    bases: EachCpu<SpinLock<A, Base>>,
    /// Not zero: sleeping is over, [`Time::sleep_until`] returns at once.
    stopped: A::AtomicU32,
}

impl<A: Machine> Time<A> {
    /// Timers for every possible CPU, none armed. `None` if the machine's HZ makes no sense.
    pub fn new() -> Option<Self> {
        let hz = Hz::new(A::hz())?;
        let now_ns = A::now_ns();
        let base = |_| SpinLock::new(LockClass::Timer, Base::new(hz, now_ns));
        Some(Self { hz, bases: EachCpu::new::<A>(base), stopped: A::AtomicU32::new(0) })
    }

    /// Ticks a second.
    pub fn hz(&self) -> Hz {
        self.hz
    }

    /// The current jiffy.
    #[inline]
    pub fn jiffies(&self) -> u64 {
        self.hz.jiffies(A::now_ns())
    }

    /// Arms the timer `slot` of `cpu`. An earlier arming of the same slot is replaced.
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
            // Another CPU's one-shot is out of reach: its own interrupt looks again.
            drop(base);
            A::ipi_send(cpu, Ipi::Timer);
        }
    }

    /// Disarms a timer; says whether it was pending. It may be running all the same.
    pub fn cancel(&self, cpu: CpuId, slot: TimerSlot) -> bool {
        self.bases.of(cpu).lock_irqsave().cancel(slot)
    }

    /// When a pending timer is due, in ns.
    pub fn due_ns(&self, cpu: CpuId, slot: TimerSlot) -> Option<u64> {
        self.bases.of(cpu).lock_irqsave().due_ns(slot)
    }

    /// The calling task sleeps until `deadline_ns`, or until [`Time::stop_sleeping`]; or until it
    /// is unparked by others than its timer and `over` is true then. Whoever makes `over` true
    /// unparks the task afterwards. It was not true before: it is not asked until the task has
    /// been woken early.
    pub fn sleep_until(&self, deadline_ns: u64, over: impl Fn() -> bool) {
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
        while A::now_ns() < deadline_ns && self.stopped.load(Ordering::Acquire) == 0 {
            A::park();
            if A::now_ns() < deadline_ns && over() {
                return self.forget_sleeper(A::current());
            }
        }
    }

    /// The task wakes early: its timer is not to disturb what it does later. The CPU that has it
    /// may be another than that which the task went to sleep on.
    #[cold]
    fn forget_sleeper(&self, task: TaskId) {
        self.bases.iter().for_each(|(_, base)| base.lock_irqsave().sleepers.forget(task));
    }

    /// Wakes every sleeper for good: the machine is about to stop.
    pub fn stop_sleeping(&self) {
        self.stopped.store(1, Ordering::SeqCst);
        for (_, base) in self.bases.iter() {
            let mut base = base.lock_irqsave();
            while let Some((_, task)) = base.sleepers.pop() {
                A::unpark(task);
            }
        }
    }

    /// This CPU runs something: it ticks from now on. Interrupts are off.
    pub fn idle_exit(&self) {
        let here = IrqGuard::<A>::new();
        let mut base = self.bases.of(here.cpu()).lock_irqsave();
        if !base.ticking {
            base.start_ticking(A::now_ns());
            program::<A>(&mut base);
        }
    }

    /// This CPU has nothing to run: it ticks no more. Late deferrable work that was put off goes
    /// off at once, so that it is done before the CPU rests. Interrupts are off.
    pub fn idle_enter(&self) {
        let here = IrqGuard::<A>::new();
        let mut base = self.bases.of(here.cpu()).lock_irqsave();
        base.stop_ticking(A::now_ns());
        program::<A>(&mut base);
    }

    /// This CPU's one-shot went off: wakes sleepers, and hands every timer that has gone off to
    /// `expired`, with interrupts off. Says whether it was a tick.
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

    /// Another CPU armed a timer of this one that comes before everything else.
    pub fn reprogram(&self) {
        let here = IrqGuard::<A>::new();
        program::<A>(&mut self.bases.of(here.cpu()).lock_irqsave());
    }

    /// `cpu` has died: its sleepers move to this CPU, and each timer that was still pending is
    /// handed to `orphan` with what is left of its delay. (Whoever wanted it cancelled has done so
    /// before.)
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
    // After an interrupt the one-shot is spent even if the time is the same again.
    match next_ns {
        u64::MAX if base.programmed_ns == u64::MAX => {}
        u64::MAX => A::timer_cancel(),
        _ => A::timer_arm(next_ns),
    }
    base.programmed_ns = next_ns;
}
