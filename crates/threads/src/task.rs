//! Tasks: coroutines that a CPU's scheduler resumes.
//!
//! A task is in one state at a time, and each change is made by one side:
//!
//! ```text
//! from     to                by
//! queued   running           the CPU that takes it from its queue
//! running  queued            the CPU that runs it (preempted)
//! running  parked or over    the CPU that runs it
//! parked   queued            the caller of unpark
//! ```
//!
//! A token records an unpark that came before the park.

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, Yielder};
use mmscale_arch::{CpuId, MAX_CPUS, Priority, TaskEntry, TaskId, TaskSpec};
use std::cell::{Cell, UnsafeCell};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Urgency of a task: 0 for no task, [`FAIR`] for fair ones, more for real time.
pub(crate) type Rank = u32;
/// The rank of fair tasks.
pub(crate) const FAIR: Rank = 1;

/// Why a task yielded the CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pause {
    /// Another task should run; this one stays ready.
    Preempted,
    /// It waits for an unpark.
    Park,
    /// It moves to another CPU.
    MoveTo(CpuId),
    /// The run has failed; it is never resumed.
    Dead,
}

/// The coroutine of a task.
pub(crate) type Body = Coroutine<(), Pause, (), DefaultStack>;

/// Values of [`Task::state`].
mod state {
    /// In a run queue, or on its way into one.
    pub(super) const QUEUED: u32 = 0;
    pub(super) const RUNNING: u32 = 1;
    pub(super) const PARKED: u32 = 2;
    pub(super) const OVER: u32 = 3;
    /// The bits of the four states.
    pub(super) const MASK: u32 = 3;
    /// The next park returns immediately.
    pub(super) const TOKEN: u32 = 4;
}

/// A task.
pub(crate) struct Task {
    pub(crate) id: TaskId,
    pub(crate) entry: TaskEntry,
    pub(crate) per_cpu: bool,
    pub(crate) rank: Rank,
    /// The CPU whose queue it joins. Only the side that changes its state may change it.
    queue_cpu: AtomicU32,
    state: AtomicU32,
    /// CPU time used, on the scale of its CPU's queue.
    pub(crate) used_ns: AtomicU64,
    /// Made when the task first runs, dropped when it has ended.
    pub(crate) body: UnsafeCell<Option<Body>>,
    /// Suspends the task's code; null before the task first runs.
    pub(crate) yielder: Cell<*const Yielder<(), Pause>>,
    /// The call path at its last suspension.
    pub(crate) path: Cell<u32>,
}

// SAFETY: `body`, `yielder` and `path` are used only by the CPU that runs the task. The task moves
// from one CPU to the next through a run queue's mutex. Data on the coroutine's stack moves to
// another thread with it: the code of the machine keeps no thread-local address there (see
// `state::here`), and programs are `Send`.
unsafe impl Sync for Task {}
// SAFETY: as for `Sync`.
unsafe impl Send for Task {}

impl Task {
    /// Makes a task in the state queued.
    fn new(id: TaskId, spec: TaskSpec) -> Self {
        Self {
            id,
            entry: spec.entry,
            per_cpu: spec.per_cpu,
            rank: match spec.priority {
                Priority::Fair => FAIR,
                Priority::RealTime(level) => FAIR + 1 + Rank::from(level),
            },
            queue_cpu: AtomicU32::new(spec.cpu.index() as u32),
            state: AtomicU32::new(state::QUEUED),
            used_ns: AtomicU64::new(0),
            body: UnsafeCell::new(None),
            yielder: Cell::new(core::ptr::null()),
            path: Cell::new(0),
        }
    }
    /// Marks it running on the CPU that took it from a queue. The state's exchanges are `AcqRel`:
    /// an unpark that finds the task parked sees everything that the task did before, and the
    /// reverse.
    pub(crate) fn begin(&self) {
        self.state.fetch_or(state::RUNNING, Ordering::AcqRel);
    }
    /// Marks it queued after a preemption; the caller queues it.
    pub(crate) fn requeue(&self) {
        self.state.fetch_and(!state::RUNNING, Ordering::AcqRel);
    }
    /// Marks it parked. Returns false if it was unparked meanwhile; the caller then queues it.
    pub(crate) fn wait(&self) -> bool {
        let parked = self.state.compare_exchange(
            state::RUNNING,
            state::PARKED,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        if parked.is_err() {
            // Only an unpark can have changed it: the token is used up.
            self.state.store(state::QUEUED, Ordering::Release);
        }
        parked.is_ok()
    }
    /// Makes its current or next park return. Returns true if the caller has to queue it.
    pub(crate) fn wake(&self) -> bool {
        let mut seen = self.state.load(Ordering::Relaxed);
        loop {
            let new = match seen & state::MASK {
                state::OVER => return false,
                state::PARKED => state::QUEUED,
                _ => seen | state::TOKEN,
            };
            match self.state.compare_exchange(seen, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return seen & state::MASK == state::PARKED,
                Err(now) => seen = now,
            }
        }
    }
    /// Takes the token; returns whether there was one.
    pub(crate) fn take_token(&self) -> bool {
        self.state.fetch_and(!state::TOKEN, Ordering::AcqRel) & state::TOKEN != 0
    }
    /// Marks it ended.
    pub(crate) fn end(&self) {
        self.state.store(state::OVER, Ordering::Release);
    }
    /// Whether a CPU runs it.
    pub(crate) fn is_running(&self) -> bool {
        self.state.load(Ordering::Relaxed) & state::MASK == state::RUNNING
    }
    /// Returns the CPU whose queue it joins.
    pub(crate) fn queue_cpu(&self) -> CpuId {
        CpuId::new(self.queue_cpu.load(Ordering::Relaxed) as usize)
    }
    /// Changes the CPU whose queue it joins. For the side that changes its state.
    pub(crate) fn set_queue_cpu(&self, cpu: CpuId) {
        self.queue_cpu.store(cpu.index() as u32, Ordering::Relaxed);
    }
}

/// Tasks by id. Ids below `MAX_CPUS` stand for the CPUs' idle contexts.
pub(crate) struct TaskTable {
    chunks: Box<[OnceLock<Chunk>]>,
    next: AtomicUsize,
}

/// A part of the table, made when it is needed; its slots are filled in order.
type Chunk = Box<[OnceLock<Arc<Task>>]>;
/// Tasks in a chunk of the table, and chunks: about a million tasks a run.
const CHUNK: usize = 1024;

impl TaskTable {
    pub(crate) fn new() -> Self {
        let chunks = (0..CHUNK).map(|_| OnceLock::new()).collect();
        Self { chunks, next: AtomicUsize::new(0) }
    }

    /// Makes a task.
    pub(crate) fn insert(&self, spec: TaskSpec) -> Arc<Task> {
        let at = self.next.fetch_add(1, Ordering::Relaxed);
        assert!(at < CHUNK * CHUNK, "a run has at most {} tasks", CHUNK * CHUNK);
        let chunk =
            self.chunks[at / CHUNK].get_or_init(|| (0..CHUNK).map(|_| OnceLock::new()).collect());
        let id = TaskId::new(MAX_CPUS + at);
        Arc::clone(chunk[at % CHUNK].get_or_init(|| Arc::new(Task::new(id, spec))))
    }

    /// Returns the task; `None` for idle contexts.
    pub(crate) fn get(&self, id: TaskId) -> Option<&Arc<Task>> {
        let at = id.index().checked_sub(MAX_CPUS)?;
        self.chunks.get(at / CHUNK)?.get()?[at % CHUNK].get()
    }

    /// Returns all tasks, ended ones included.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Task>> {
        self.chunks.iter().filter_map(OnceLock::get).flatten().filter_map(OnceLock::get)
    }
}
