//! One virtual CPU.

use crate::caches::Age;
use crate::heap::{NEVER, order_of};
use crate::lines::FrameLine;
use crate::record::sections::SectionStats;
use crate::record::stats::ROOT_PATH;
use crate::rng::SplitMix64;
use crate::spin::{NO_WAITER, SimSpin};
use crate::task::Yielder;
use mmscale_arch::{Ipi, LockClass, Pfn};
use std::collections::VecDeque;
use std::ptr::NonNull;

/// The longest time, in ps, that a CPU with interrupts on runs without a check for interrupts.
pub(crate) const UNDIVIDED_PS: u64 = 500_000;

/// Pairs of lines that are this close may be part of a walk in a row.
const ROW_PAIRS: u32 = 4;

/// Reason of an interrupt from one CPU to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reason {
    /// The owner of the callbacks sent it.
    Ipi(Ipi),
    /// A task was queued that is more urgent than the current one.
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

/// Why a CPU does not run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WaitState {
    /// It runs, or is queued for its turn.
    No,
    /// It spins for a lock; interrupts reach it if they are on.
    Spin,
    /// It computes for a program until a given time, or until an interrupt arrives.
    User,
    /// It is idle and stopped until an interrupt or a task arrives.
    Halt,
    /// It is offline: nothing reaches it.
    Offline,
}

/// A CPU became the last writer of a frame's line, or marked its line as used again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moved {
    pub(crate) pfn: Pfn,
    /// When, in ps.
    pub(crate) time_ps: u64,
    /// The line before.
    pub(crate) before: FrameLine,
}

/// A counter byte of a CPU changed without a turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    /// The address of the byte or number, which is only compared.
    pub(crate) name: usize,
    /// When, in ps.
    pub(crate) time_ps: u64,
    /// The value before.
    pub(crate) before: i64,
}

/// Result of a call of `lock` that left its coroutine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LockResult {
    /// None: the call starts again.
    None,
    /// The CPU has the lock.
    Mine,
    /// The CPU waits in the lock's queue.
    Queued,
    /// The CPU has left the queue.
    Left,
}

/// One virtual CPU. Fields that every charge and every turn use come first.
///
/// Fields that other CPUs write (`irq_at`, `ipi`, `queue`) are read only when this CPU is the
/// earliest. Then everything that was sent before its time is there, under either policy.
#[repr(C, align(128))]
pub(crate) struct Cpu {
    /// Its own time, in ps. It runs ahead of the machine by what it has charged since its last
    /// turn.
    pub(crate) clock: u64,
    /// A charge may not pass this time without a checkpoint: `check_at`, or `steal_at` with
    /// interrupts off.
    pub(crate) stop_at: u64,
    pub(crate) rng: SplitMix64,
    /// The time of an operation next to that in the profile, in 1/1024; see
    /// [`crate::speed::Speeds`].
    pub(crate) op_times_1024: u32,
    /// Locks held of the class whose hold times are scaled.
    pub(crate) scaled: u32,
    /// With interrupts on, the time of the next checkpoint.
    pub(crate) check_at: u64,
    /// The earliest pending interrupt, its own timer included.
    pub(crate) irq_at: u64,
    /// The yielder of the current task's coroutine; null before it first runs.
    pub(crate) yielder: *const Yielder,
    pub(crate) current: u32,
    /// The call path of the current task or interrupt.
    pub(crate) path: u32,
    /// The lock that it takes at its next turn.
    pub(crate) wanted_lock: Option<NonNull<SimSpin>>,
    /// The next time that is stolen from it, or the end of the run.
    pub(crate) steal_at: u64,
    /// The next interrupt of the disturbance `irq_off`.
    pub(crate) device_at: u64,
    /// The start of the section in which it can run no other task; `NEVER` if there is none.
    pub(crate) section_since: u64,
    pub(crate) preempt: u32,
    /// Its cluster's count of lines as of the last turn at which it added its own; see
    /// [`crate::caches`].
    pub(crate) cache_age: Age,
    /// Lines that it has brought in since then.
    pub(crate) brought: u32,
    /// Its rank in ties.
    pub(crate) rank: u16,
    pub(crate) irq_off: bool,
    pub(crate) in_irq: bool,
    /// Whether it is to switch tasks as soon as preemption is on. Interrupts set it, and the CPU
    /// itself when it wakes a more urgent task of its own.
    pub(crate) need_resched: bool,
    /// Whether its sections are recorded.
    pub(crate) watched: bool,
    /// Whether it holds a lock in a run that records blame, or the run records a timeline.
    pub(crate) logged: bool,
    /// Whether its last acquisition of a lock found the lock taken.
    pub(crate) found_taken: bool,
    /// The result of its call of `lock`, for when it resumes.
    pub(crate) lock_result: LockResult,
    pub(crate) wait: WaitState,
    /// The order word of its next turn, which is in the queue; `NEVER` if there is none. Every
    /// other entry for this CPU, except its timer's, is out of date.
    pub(crate) queued: u64,
    /// When its timer expires, in ps.
    pub(crate) timer: u64,
    /// The time of the timer entry in the queue.
    pub(crate) timer_queued: u64,
    /// The earliest pending interrupt, without its timer.
    pub(crate) ipi_at: u64,
    /// Lines that it got from other CPUs: how many, and the time for which it waited, in ps.
    pub(crate) fetched: (u64, u64),
    /// That time of clearing or copying a page, which does not depend on the clock.
    pub(crate) page_times_1024: u32,
    /// The last two pairs of frames whose lines it waited for.
    pub(crate) last_pairs: [u32; 2],
    /// When the call path last changed.
    pub(crate) path_since: u64,
    /// Lines that it got from another CPU or from memory, in a run that records a timeline.
    pub(crate) misses: u64,
    /// Its idle task.
    pub(crate) idle: u32,
    /// The tasks in the queue that may run on another CPU.
    pub(crate) movable: u32,
    /// Tasks that wait for it, in the order in which they run.
    pub(crate) queue: VecDeque<u32>,
    /// When each kind of interrupt arrives.
    ipi: [u64; Reason::ALL.len()],
    /// For noise and faults: separate, so that they do not shift the jitter.
    pub(crate) noise_rng: SplitMix64,
    /// When the time slice of the current task began, without the time of more urgent tasks.
    pub(crate) slice_start: u64,
    /// Frame lines that it took from other CPUs while it ran ahead, in the order of its time.
    pub(crate) moved: Vec<Moved>,
    /// Changes of its counter bytes while it ran ahead, in the order of its time.
    pub(crate) counted: Vec<Counted>,
    /// Statistics of its sections.
    pub(crate) watch: Option<Box<SectionStats>>,
    /// Whether it should stop as soon as its idle task runs.
    pub(crate) offline_wanted: bool,
}

/// The fields of every charge are on one cache line of the host, those of every turn on two.
const _: () = assert!(std::mem::offset_of!(Cpu, path) < 64);
const _: () = assert!(std::mem::offset_of!(Cpu, queued) < 128);

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
            wanted_lock: None,
            current: idle,
            path: ROOT_PATH,
            scaled: 0,
            preempt: 0,
            irq_off: false,
            in_irq: false,
            need_resched: false,
            watched: false,
            logged: false,
            section_since: NEVER,
            watch: None,
            lock_result: LockResult::None,
            wait: WaitState::No,
            queued: NEVER,
            op_times_1024: 1024,
            page_times_1024: 1024,
            cache_age: Age(0),
            brought: 0,
            last_pairs: [0; 2],
            timer: NEVER,
            timer_queued: NEVER,
            found_taken: false,
            fetched: (0, 0),
            path_since: 0,
            ipi_at: NEVER,
            ipi: [NEVER; Reason::ALL.len()],
            device_at: NEVER,
            slice_start: 0,
            misses: 0,
            idle,
            queue: VecDeque::new(),
            movable: 0,
            moved: Vec::new(),
            counted: Vec::new(),
            offline_wanted: false,
        }
    }
    /// Its order word. Events that are in no queue are compared by it too.
    #[inline]
    pub(crate) fn order(&self) -> u64 {
        order_of(self.clock, self.rank)
    }
    /// Whether the records of a pair of frames are fetched ahead of their use: a processor brings
    /// in the other line of a pair, and those after two that are close to each other.
    #[inline]
    pub(crate) fn is_in_row(&self, pair: u32) -> bool {
        let [last, before] = self.last_pairs;
        let close = |one: u32, other: u32| one.abs_diff(other) <= ROW_PAIRS;
        pair == last || pair == before || close(pair, last) && close(last, before)
    }
    /// Whether an interrupt resumes it while it waits.
    pub(crate) fn heeds_irqs(&self) -> bool {
        match self.wait {
            WaitState::User | WaitState::Halt => true,
            WaitState::Spin => !self.irq_off,
            WaitState::No | WaitState::Offline => false,
        }
    }
    /// Notes that it got a number of lines from another CPU, each after a wait of `ps`.
    #[inline]
    pub(crate) fn note_fetched(&mut self, (ps, count): (u64, u32)) {
        self.fetched.0 += u64::from(count);
        self.fetched.1 += ps * u64::from(count);
    }
    #[inline]
    pub(crate) fn irq_due(&self) -> bool {
        !self.irq_off && self.irq_at <= self.clock
    }
    /// Plans the next checkpoint. Only when the CPU is the earliest: `irq_at` is complete then.
    #[inline]
    pub(crate) fn plan_check(&mut self) {
        let next = (self.clock + UNDIVIDED_PS).min(self.irq_at);
        self.check_at = next.min(self.device_at).min(self.steal_at);
        if !self.irq_off {
            self.stop_at = self.check_at;
        }
    }
    /// Moves the next checkpoint forward to `time_ps`, which this CPU itself knows of.
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
    /// Records an interrupt for `reason` that arrives at `time_ps`. If one for the same reason is
    /// pending, the earlier arrival counts for both.
    pub(crate) fn post(&mut self, reason: Reason, time_ps: u64) {
        let slot = &mut self.ipi[reason.slot()];
        *slot = (*slot).min(time_ps);
        self.ipi_at = self.ipi_at.min(time_ps);
        self.irq_at = self.irq_at.min(time_ps);
    }
    /// Takes the first interrupt that has arrived, and the time of its arrival. The reason `None`
    /// is the timer.
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

/// The queue entry of a CPU that waits for a lock.
#[derive(Clone, Copy)]
pub(crate) struct Waiter {
    /// The index of the next entry in the queue.
    pub(crate) next: u32,
    /// The row of statistics that counts the wait.
    pub(crate) row: u32,
    pub(crate) arrived: u64,
    /// When the lock is granted; `NEVER` while that is not known.
    pub(crate) grant: u64,
    pub(crate) lock_id: u32,
    pub(crate) class: LockClass,
}

impl Default for Waiter {
    fn default() -> Self {
        Self {
            next: NO_WAITER,
            row: 0,
            arrived: 0,
            grant: NEVER,
            lock_id: 0,
            class: LockClass::Other,
        }
    }
}
