//! One virtual CPU.

use crate::heap::{NEVER, order_of};
use crate::rng::SplitMix64;
use crate::sections::Watch;
use crate::spin::{NOWHERE, SimSpin};
use crate::stats::ROOT_PATH;
use crate::task::Yielder;
use mmscale_arch::{Ipi, LockClass, Pfn};
use std::collections::VecDeque;
use std::ptr::NonNull;

/// The longest time, in ps, that a CPU with interrupts on runs without looking for interrupts.
pub(crate) const UNDIVIDED_PS: u64 = 500_000;

/// What one CPU interrupts another for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reason {
    /// The owner of the callbacks wants it.
    Ipi(Ipi),
    /// A task was queued that should run at once.
    Resched,
}

impl Reason {
    pub(crate) const ALL: [Self; Ipi::COUNT + 1] = [
        Self::Ipi(Ipi::CallFunction),
        Self::Ipi(Ipi::RcuExpedited),
        Self::Ipi(Ipi::Timer),
        Self::Ipi(Ipi::Block),
        Self::Ipi(Ipi::DrainPages),
        Self::Resched,
    ];

    const fn slot(self) -> usize {
        match self {
            Self::Ipi(ipi) => ipi as usize,
            Self::Resched => Ipi::COUNT,
        }
    }
}

/// Why a CPU has no time of its own in the queue of events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    /// It has: it goes on by itself.
    No,
    /// It spins for a lock; interrupts reach it if they are on.
    Spin,
    /// It computes for a program, undivided until an interrupt comes.
    User,
    /// It is idle and stopped until an interrupt or a task comes.
    Halt,
    /// It is offline: nothing reaches it.
    Offline,
}

/// The line of a frame changed hands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moved {
    pub(crate) pfn: Pfn,
    /// When, in ps.
    pub(crate) time_ps: u64,
    /// Whose it was.
    pub(crate) before: u16,
}

/// A byte that a CPU counts in changed without a turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    /// Which byte: its address, which is compared and nothing else.
    pub(crate) name: usize,
    /// When, in ps.
    pub(crate) time_ps: u64,
    /// What it was.
    pub(crate) before: i8,
}

/// What came of a call of `lock` that left its coroutine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// Nothing: it starts again.
    None,
    /// The CPU has the lock.
    Mine,
    /// The CPU stands in the lock's queue.
    Queued,
}

/// One virtual CPU. Fields that every charge uses come first.
///
/// What other CPUs write (`irq_at`, `ipi`, `queue`) is read only when this CPU is the earliest:
/// then all that was sent before is there, whatever the policy.
#[repr(C, align(128))]
pub(crate) struct Cpu {
    /// Its own time, in ps. Ahead of the machine's by what it has charged since its last turn.
    pub(crate) clock: u64,
    /// A charge may not pass this time without a checkpoint: `check_at`, or `steal_at` with
    /// interrupts off.
    pub(crate) stop_at: u64,
    /// With interrupts on, the time of the next checkpoint.
    pub(crate) check_at: u64,
    /// The next stolen time, or the end of the run.
    pub(crate) steal_at: u64,
    /// The earliest interrupt that was sent to it, its own timer's among them.
    pub(crate) irq_at: u64,
    /// The next interrupt of somebody else's.
    pub(crate) device_at: u64,
    pub(crate) rng: SplitMix64,
    /// The yielder of the current task's coroutine; null before it first runs.
    pub(crate) yielder: *const Yielder,
    /// The lock that it takes when its turn comes.
    pub(crate) asks: Option<NonNull<SimSpin>>,
    /// The order of its next turn, which stands in the queue; `NEVER` if none does. Any other entry
    /// of its, but for its timer's, is out of date.
    pub(crate) queued: u64,
    /// When its timer goes off, in ps.
    pub(crate) timer: u64,
    pub(crate) current: u32,
    /// The call path of the current task or interrupt.
    pub(crate) path: u32,
    /// Locks held of the class whose holds are scaled.
    pub(crate) scaled: u32,
    pub(crate) preempt: u32,
    /// Its place in ties.
    pub(crate) rank: u16,
    pub(crate) irq_off: bool,
    pub(crate) in_irq: bool,
    pub(crate) need_resched: bool,
    /// Its sections are looked at.
    pub(crate) watched: bool,
    /// What came of its call of `lock`, when it goes on.
    pub(crate) answer: Answer,
    pub(crate) wait: Wait,
    /// Since when it can run no other task; `NEVER` if it can.
    pub(crate) section_since: u64,
    /// The earliest interrupt that was sent to it.
    pub(crate) ipi_at: u64,
    /// When each kind of interrupt arrives.
    ipi: [u64; Reason::ALL.len()],
    /// For when a timer entry stands in the queue.
    pub(crate) timer_queued: u64,
    /// For noise and faults: apart, so that they do not shift the jitter.
    pub(crate) noise_rng: SplitMix64,
    /// When the call path changed last.
    pub(crate) path_since: u64,
    /// When the current task got the CPU, for time slices.
    pub(crate) slice_start: u64,
    /// Tasks that wait for it, the next one first.
    pub(crate) queue: VecDeque<u32>,
    /// Lines of frames that it got from others while it ran ahead, in the order of its time.
    pub(crate) moved: Vec<Moved>,
    /// Changes of its counter bytes while it ran ahead, in the order of its time.
    pub(crate) counted: Vec<Counted>,
    /// Its idle task.
    pub(crate) idle: u32,
    /// The books about its sections.
    pub(crate) watch: Option<Box<Watch>>,
    /// It should stop as soon as its idle task runs.
    pub(crate) offline_wanted: bool,
}

/// What every charge and every turn uses is on two cache lines of the host.
const _: () = assert!(std::mem::offset_of!(Cpu, wait) < 128);

impl Cpu {
    pub(crate) fn new(rank: usize, seed: u64, idle: u32) -> Self {
        Self {
            clock: 0,
            stop_at: 0,
            check_at: 0,
            steal_at: NEVER,
            irq_at: NEVER,
            rank: rank as u16,
            rng: SplitMix64::new(seed),
            noise_rng: SplitMix64::new(!seed),
            yielder: std::ptr::null(),
            asks: None,
            current: idle,
            path: ROOT_PATH,
            scaled: 0,
            preempt: 0,
            irq_off: false,
            in_irq: false,
            need_resched: false,
            watched: false,
            section_since: NEVER,
            watch: None,
            answer: Answer::None,
            wait: Wait::No,
            queued: NEVER,
            timer: NEVER,
            timer_queued: NEVER,
            path_since: 0,
            ipi_at: NEVER,
            ipi: [NEVER; Reason::ALL.len()],
            device_at: NEVER,
            slice_start: 0,
            idle,
            queue: VecDeque::new(),
            moved: Vec::new(),
            counted: Vec::new(),
            offline_wanted: false,
        }
    }
    /// Its place in time. Events that no queue holds are compared by it too.
    #[inline]
    pub(crate) fn order(&self) -> u64 {
        order_of(self.clock, self.rank)
    }
    /// The place in which it, CPU `number`, waits for a lock.
    #[inline]
    pub(crate) fn place_to_wait(&self, number: usize) -> usize {
        2 * number + usize::from(self.in_irq)
    }
    /// Whether an interrupt reaches it while it waits.
    pub(crate) fn heeds_irqs(&self) -> bool {
        match self.wait {
            Wait::User | Wait::Halt => true,
            Wait::Spin => !self.irq_off,
            Wait::No | Wait::Offline => false,
        }
    }
    #[inline]
    pub(crate) fn irq_due(&self) -> bool {
        !self.irq_off && self.irq_at <= self.clock
    }
    /// Plans the next checkpoint. Only while it is the earliest: `irq_at` is complete then.
    #[inline]
    pub(crate) fn plan_check(&mut self) {
        let next = (self.clock + UNDIVIDED_PS).min(self.irq_at);
        self.check_at = next.min(self.device_at).min(self.steal_at);
        if !self.irq_off {
            self.stop_at = self.check_at;
        }
    }
    /// Brings the next checkpoint forward to `time_ps`, which this CPU itself knows of.
    #[inline]
    pub(crate) fn check_by(&mut self, time_ps: u64) {
        self.check_at = self.check_at.min(time_ps);
        if !self.irq_off {
            self.stop_at = self.check_at;
        }
    }
    #[inline]
    pub(crate) fn irqs_off(&mut self) {
        if self.preempt == 0 {
            self.open_section();
        }
        self.irq_off = true;
        self.stop_at = self.steal_at;
    }
    #[inline]
    pub(crate) fn irqs_on(&mut self) {
        self.irq_off = false;
        self.stop_at = self.check_at;
        if self.preempt == 0 {
            self.close_section();
        }
    }
    pub(crate) fn set_timer(&mut self, time_ps: u64) {
        self.timer = time_ps;
        self.update_irq_at();
    }
    /// Notes an interrupt for `reason` that arrives at `time_ps`; one that is on its way already
    /// and arrives first stands for both.
    pub(crate) fn post(&mut self, reason: Reason, time_ps: u64) {
        let slot = &mut self.ipi[reason.slot()];
        *slot = (*slot).min(time_ps);
        self.ipi_at = self.ipi_at.min(time_ps);
        self.irq_at = self.irq_at.min(time_ps);
    }
    /// Takes the first interrupt that has arrived, with the time at which it did; `None` for the
    /// reason means the timer.
    pub(crate) fn take_due(&mut self) -> Option<(Option<Reason>, u64)> {
        let first = Reason::ALL.into_iter().min_by_key(|reason| self.ipi[reason.slot()])?;
        let arrival = self.ipi[first.slot()];
        let taken = if self.timer <= arrival {
            (self.timer <= self.clock).then(|| (None, std::mem::replace(&mut self.timer, NEVER)))
        } else {
            self.ipi[first.slot()] = NEVER;
            Some((Some(first), arrival))
        };
        self.update_irq_at();
        taken
    }
    fn update_irq_at(&mut self) {
        self.ipi_at = self.ipi.iter().fold(NEVER, |first, &at| first.min(at));
        self.irq_at = self.ipi_at.min(self.timer);
    }
    pub(crate) fn drop_irqs(&mut self) {
        self.ipi = [NEVER; Reason::ALL.len()];
        self.timer = NEVER;
        self.ipi_at = NEVER;
        self.irq_at = NEVER;
    }
}

/// A place in which a CPU waits for one lock.
#[derive(Clone, Copy)]
pub(crate) struct Waiter {
    /// The place behind it in the queue.
    pub(crate) next: u32,
    /// Where the wait is counted.
    pub(crate) row: u32,
    pub(crate) arrived: u64,
    /// When the lock has been handed over; `NEVER` while it has not.
    pub(crate) grant: u64,
    pub(crate) lock_id: u32,
    pub(crate) class: LockClass,
}

impl Default for Waiter {
    fn default() -> Self {
        Self {
            next: NOWHERE,
            row: 0,
            arrived: 0,
            grant: NEVER,
            lock_id: 0,
            class: LockClass::Other,
        }
    }
}
