//! The state of a machine: the part that CPUs share, and each CPU's own.

use crate::arena::Arena;
use crate::clock::Clock;
use crate::config::{Failure, ThreadsConfig};
use crate::file::SwapFile;
use crate::host::{Waiting, lock};
use crate::paths::{LockStats, PathTree};
use crate::queue::RunQueue;
use crate::task::{Task, TaskTable};
use mmscale_arch::{Callbacks, CpuId, CpuMask, IoDone, MAX_CPUS, Probe, SoftTlb, TaskId};
use std::cell::{Cell, RefCell, UnsafeCell};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::Thread;

/// Bits of [`Cpu::pending`].
pub(crate) mod pending {
    use mmscale_arch::Ipi;

    /// Interrupts: one bit for each reason.
    pub(crate) const INTERRUPTS: u32 = 0xff;
    /// Another task should run, or the CPU is asked to stop.
    pub(crate) const RESCHED: u32 = 0x100;
    /// The run has failed: all code stops where it is.
    pub(crate) const DYING: u32 = 0x200;

    /// Returns the bit of `reason`.
    pub(crate) fn bit(reason: Ipi) -> u32 {
        1 << reason as u32
    }
}

/// The states of a CPU; values of [`Cpu::hotplug`].
pub(crate) mod hotplug {
    /// It runs tasks.
    pub(crate) const ONLINE: u8 = 0;
    /// It is out of the online mask and still runs; the callbacks prepare.
    pub(crate) const LEAVING: u8 = 1;
    /// It is asked to stop at the next round of its scheduler.
    pub(crate) const STOPPING: u8 = 2;
    /// It has stopped; the callbacks clean up.
    pub(crate) const DEAD: u8 = 3;
    /// It is stopped, and no change is in progress.
    pub(crate) const OFFLINE: u8 = 4;
    /// It is asked to start.
    pub(crate) const STARTING: u8 = 5;
    /// It runs tasks, and is about to enter the online mask.
    pub(crate) const STARTED: u8 = 6;
}

/// No deadline.
pub(crate) const NEVER: u64 = u64::MAX;

/// A machine for one run.
pub(crate) struct Machine {
    pub(crate) cpus: Box<[Cpu]>,
    pub(crate) hz: u32,
    pub(crate) seed: u64,
    pub(crate) clock: Clock,
    pub(crate) arena: Arena,
    pub(crate) swap_file: SwapFile,
    pub(crate) callbacks: OnceLock<Arc<dyn Callbacks + Send + Sync>>,
    online: [AtomicU64; MAX_CPUS / 64],
    pub(crate) online_count: AtomicUsize,
    pub(crate) tasks: TaskTable,
    /// Tasks that have not returned. `AcqRel` changes pair with the `Acquire` loads in `run`: when
    /// it is 0 there, the writes of all tasks are visible.
    pub(crate) live: AtomicUsize,
    /// The run has ended, with or without a failure: CPUs leave their loops. Their `Acquire` loads
    /// pair with the `Release` store in `finish`.
    pub(crate) over: AtomicBool,
    /// The run has failed: no task continues, and guards have no effect.
    pub(crate) dying: AtomicBool,
    failure: Mutex<Option<Failure>>,
    pub(crate) paths: PathTree,
    pub(crate) waiting: Waiting,
    /// The thread that started the run and waits for its end.
    starter: Thread,
}

/// One CPU. Other CPUs use the first half; the second half is its thread's own.
#[repr(align(128))]
pub(crate) struct Cpu {
    pub(crate) id: CpuId,
    /// Set before the CPU's thread starts; valid as long as that thread runs.
    machine: Cell<*const Machine>,
    pub(crate) pending: AtomicU32,
    pub(crate) hotplug: AtomicU8,
    /// The task to unpark at a change of `hotplug`.
    pub(crate) hotplug_waiter: AtomicU32,
    /// The thread sleeps or is about to: a CPU with news for it wakes it.
    asleep: AtomicBool,
    /// Grows with every sleep.
    pub(crate) sleeps: AtomicU64,
    thread: OnceLock<Thread>,
    pub(crate) queue: Mutex<RunQueue>,
    /// Requests to the swap device that have finished.
    pub(crate) finished: Mutex<VecDeque<IoDone>>,
    /// Length of `queue`, readable without the lock. `Release` stores under the lock pair with the
    /// `Acquire` load in `sched::has_work`.
    pub(crate) queued: AtomicUsize,
    /// Rank of the running task; 0 if there is none.
    pub(crate) running_rank: AtomicU32,
    /// CPU time used by the running fair task, less the time at which it began to run.
    pub(crate) running_used_ns: AtomicU64,
    /// When the one-shot timer expires.
    pub(crate) deadline_ns: AtomicU64,
    pub(crate) local: Local,
}

/// Data that only the CPU's own thread uses.
#[repr(align(128))]
pub(crate) struct Local {
    pub(crate) irqs_on: Cell<bool>,
    pub(crate) in_interrupt: Cell<bool>,
    pub(crate) preempt: Cell<u32>,
    /// Polls until the next read of the clock.
    pub(crate) polls: Cell<u32>,
    /// Rounds of wait loops, counted to yield to other threads of the host.
    pub(crate) relaxes: Cell<u32>,
    pub(crate) need_resched: Cell<bool>,
    /// The task that runs; null in the scheduler, in idle and while the machine boots.
    pub(crate) task: Cell<*const Task>,
    pub(crate) started_ns: Cell<u64>,
    pub(crate) path: Cell<u32>,
    /// When the nearest measured path last changed.
    pub(crate) path_since_ns: Cell<u64>,
    pub(crate) stats: UnsafeCell<LockStats>,
    pub(crate) probe: RefCell<Option<Box<dyn Probe>>>,
    pub(crate) timer_late_max_ns: Cell<u64>,
    pub(crate) stacks: UnsafeCell<Vec<corosensei::stack::DefaultStack>>,
    pub(crate) tlb: UnsafeCell<SoftTlb>,
}

// SAFETY: `local` and `machine` are used by the CPU's own thread, or before it starts and after it
// was joined; everything else is atomic or behind a mutex.
unsafe impl Sync for Cpu {}
// SAFETY: as for `Sync`; probes are `Send`, and stacks are plain memory.
unsafe impl Send for Cpu {}

impl Cpu {
    fn new(id: CpuId, probe: Box<dyn Probe>) -> Self {
        Self {
            id,
            machine: Cell::new(core::ptr::null()),
            pending: AtomicU32::new(0),
            hotplug: AtomicU8::new(hotplug::ONLINE),
            hotplug_waiter: AtomicU32::new(0),
            asleep: AtomicBool::new(false),
            sleeps: AtomicU64::new(0),
            thread: OnceLock::new(),
            queue: Mutex::new(RunQueue::new()),
            finished: Mutex::default(),
            queued: AtomicUsize::new(0),
            running_rank: AtomicU32::new(0),
            running_used_ns: AtomicU64::new(0),
            deadline_ns: AtomicU64::new(NEVER),
            local: Local {
                irqs_on: Cell::new(false),
                in_interrupt: Cell::new(false),
                preempt: Cell::new(0),
                polls: Cell::new(0),
                relaxes: Cell::new(0),
                need_resched: Cell::new(false),
                task: Cell::new(core::ptr::null()),
                started_ns: Cell::new(0),
                path: Cell::new(crate::paths::ROOT),
                path_since_ns: Cell::new(0),
                stats: UnsafeCell::new(LockStats::new()),
                probe: RefCell::new(Some(probe)),
                timer_late_max_ns: Cell::new(0),
                stacks: UnsafeCell::new(Vec::new()),
                tlb: UnsafeCell::new(SoftTlb::EMPTY),
            },
        }
    }

    /// Changes the call path; returns the old one. For the CPU's own thread. The clock is read if
    /// the path changes for which time is counted.
    #[inline]
    pub(crate) fn go_to_path(&self, path: u32) -> u32 {
        let before = self.local.path.replace(path);
        let paths = &self.machine().paths;
        let (from, to) = (paths.measured(before), paths.measured(path));
        if from != to {
            self.measure(from);
        }
        before
    }
    #[cold]
    fn measure(&self, path: u32) {
        let now_ns = self.machine().clock.now_ns();
        let since_ns = self.local.path_since_ns.replace(now_ns);
        // SAFETY: only the CPU's own thread uses its statistics, and no reference outlives the
        // statement.
        unsafe { &mut *self.local.stats.get() }.spent(path, now_ns.saturating_sub(since_ns));
    }

    /// Returns the machine of this CPU. For the CPU's own thread.
    #[inline]
    pub(crate) fn machine(&self) -> &Machine {
        // SAFETY: `enter` set it, and the machine outlives the threads of its CPUs.
        unsafe { &*self.machine.get() }
    }

    /// Wakes the CPU's thread if it sleeps. The caller has written the news before.
    pub(crate) fn kick(&self) {
        // Pairs with the fence in `sleep_until`: either the CPU sees the news, or this sees it
        // asleep.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::AcqRel) {
            self.thread.get().expect("a CPU that sleeps has a thread").unpark();
        }
    }

    /// Sets `bits` and makes sure that the CPU sees them. The `Release` pairs with the `Acquire`
    /// swap in `take_interrupts`.
    pub(crate) fn notify(&self, bits: u32) {
        self.pending.fetch_or(bits, Ordering::Release);
        self.kick();
    }

    /// Sleeps until a kick, or until `deadline_ns`, unless `news` returns true. May return early.
    /// For the CPU's own thread.
    ///
    /// The store of `asleep`, the fence and the reads in `news` pair with the writer's store, the
    /// fence in `kick` and its load of `asleep`: each side stores first and reads the other's word
    /// after its fence, so at least one of them sees the other. Both fences must be `SeqCst`:
    /// release and acquire do not order a store before a later load.
    pub(crate) fn sleep_until(&self, deadline_ns: u64, news: impl Fn() -> bool) {
        self.asleep.store(true, Ordering::Relaxed);
        self.sleeps.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !news() {
            if deadline_ns == NEVER {
                std::thread::park();
            } else {
                let left_ns = deadline_ns.saturating_sub(self.machine().clock.now_ns());
                std::thread::park_timeout(std::time::Duration::from_nanos(left_ns));
            }
        }
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// Whether the thread sleeps; for the watch over the run.
    pub(crate) fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::Acquire)
    }
}

impl Machine {
    pub(crate) fn new(
        config: &ThreadsConfig,
        mut probe: impl FnMut(CpuId) -> Box<dyn Probe>,
        waiting: Waiting,
        arena: Arena,
    ) -> Self {
        let cpus = (0..config.cpus).map(CpuId::new);
        let machine = Self {
            cpus: cpus.map(|cpu| Cpu::new(cpu, probe(cpu))).collect(),
            hz: config.hz,
            seed: config.seed,
            clock: Clock::start(),
            arena,
            swap_file: SwapFile::default(),
            callbacks: OnceLock::new(),
            online: [const { AtomicU64::new(0) }; MAX_CPUS / 64],
            online_count: AtomicUsize::new(config.cpus),
            tasks: TaskTable::new(),
            live: AtomicUsize::new(0),
            over: AtomicBool::new(false),
            dying: AtomicBool::new(false),
            failure: Mutex::new(None),
            paths: PathTree::new(),
            waiting,
            starter: std::thread::current(),
        };
        machine.cpus.iter().for_each(|cpu| machine.set_online(cpu.id));
        machine
    }

    pub(crate) fn cpu(&self, cpu: CpuId) -> &Cpu {
        &self.cpus[cpu.index()]
    }

    /// Returns the callbacks. Panics before the machine has booted: interrupts are off until then.
    pub(crate) fn callbacks(&self) -> &(dyn Callbacks + Send + Sync) {
        &**self.callbacks.get().expect("the machine has booted")
    }

    pub(crate) fn set_online(&self, cpu: CpuId) {
        let bit = 1 << (cpu.index() % 64);
        self.online[cpu.index() / 64].fetch_or(bit, Ordering::AcqRel);
    }

    pub(crate) fn set_offline(&self, cpu: CpuId) {
        let bit: u64 = 1 << (cpu.index() % 64);
        self.online[cpu.index() / 64].fetch_and(!bit, Ordering::AcqRel);
    }

    pub(crate) fn is_online(&self, cpu: CpuId) -> bool {
        self.online[cpu.index() / 64].load(Ordering::Acquire) >> (cpu.index() % 64) & 1 == 1
    }

    pub(crate) fn online(&self, mask: &mut CpuMask) {
        *mask = CpuMask::EMPTY;
        let ids = self.cpus.iter().map(|cpu| cpu.id);
        ids.filter(|&cpu| self.is_online(cpu)).for_each(|cpu| mask.insert(cpu));
    }

    /// Ends the run: every CPU leaves its loop, and the starter continues.
    pub(crate) fn finish(&self) {
        self.over.store(true, Ordering::Release);
        self.cpus.iter().for_each(Cpu::kick);
        self.starter.unpark();
    }

    /// Ends the run immediately. The first failure counts.
    pub(crate) fn fail(&self, failure: Failure) {
        lock(&self.failure).get_or_insert(failure);
        self.dying.store(true, Ordering::Release);
        self.cpus.iter().for_each(|cpu| cpu.notify(pending::DYING));
        self.finish();
    }

    pub(crate) fn take_failure(&self) -> Option<Failure> {
        lock(&self.failure).take()
    }

    /// Returns the id that stands for "no task" on `cpu`: idle, or the boot.
    pub(crate) fn idle_task(cpu: CpuId) -> TaskId {
        TaskId::new(cpu.index())
    }
}

thread_local! {
    /// The CPU of this thread; null on other threads.
    static HERE: Cell<*const Cpu> = const { Cell::new(core::ptr::null()) };
}

/// Returns the CPU that this code runs on.
///
/// Never inlined: a task may move to another thread while it is suspended, so no address of
/// thread-local data may be kept across a call.
#[inline(never)]
fn here_ptr() -> *const Cpu {
    HERE.get()
}

/// Returns the CPU that this code runs on. Valid until the task may be suspended.
#[inline]
pub(crate) fn here<'a>() -> &'a Cpu {
    match try_here() {
        Some(cpu) => cpu,
        None => panic!("called on a thread that is no CPU of a machine"),
    }
}

/// Returns the CPU that this code runs on, if it runs on one.
#[inline]
pub(crate) fn try_here<'a>() -> Option<&'a Cpu> {
    // SAFETY: not null only between `enter` and `leave`, while the machine lives.
    unsafe { here_ptr().as_ref() }
}

/// Makes the calling thread `cpu` of `machine`, until [`leave`].
///
/// # Safety
/// The machine lives until then, and no other thread is this CPU.
pub(crate) unsafe fn enter(machine: &Machine, cpu: CpuId) {
    let cpu = machine.cpu(cpu);
    cpu.machine.set(machine);
    cpu.thread.get_or_init(std::thread::current);
    HERE.set(cpu);
}

/// Ends the calling thread's role as a CPU.
pub(crate) fn leave() {
    HERE.set(core::ptr::null());
}
