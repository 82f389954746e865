//! Tasks, as the scheduler knows them. Their coroutines are the runner's.

use mmscale_arch::{Priority, TaskEntry};

/// How a coroutine gives the host thread back: it names the task to go on with.
pub(crate) type Yielder = corosensei::Yielder<(), u32>;

/// Instead of a task: end the run.
pub(crate) const STOP: u32 = u32::MAX;

/// Leaving the current coroutine in favour of another task's.
#[derive(Clone, Copy)]
pub(crate) struct Switch {
    pub(crate) yielder: *const Yielder,
    pub(crate) next: u32,
}

/// Where a task is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TaskState {
    /// In a CPU's queue.
    Ready,
    /// The current task of its CPU.
    Running,
    /// Blocked in a park.
    Parked,
    /// Over.
    Done,
}

/// What a task's coroutine runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Body {
    /// A CPU's idle loop.
    Idle,
    /// The callbacks' task.
    Entry(TaskEntry),
}

/// A task.
pub(crate) struct Task {
    pub(crate) state: TaskState,
    /// Somebody has unparked it since its last park.
    pub(crate) token: bool,
    pub(crate) per_cpu: bool,
    pub(crate) cpu: u16,
    /// [`urgency_of`] its priority, or [`IDLE_URGENCY`].
    pub(crate) urgency: u16,
    pub(crate) body: Body,
    /// The yielder of its coroutine; null before it first runs.
    pub(crate) yielder: *const Yielder,
    /// The path on which it was last switched out, for messages.
    pub(crate) path: u32,
}

impl Task {
    pub(crate) fn new(cpu: usize, per_cpu: bool, urgency: u16, body: Body) -> Self {
        Self {
            state: TaskState::Ready,
            token: false,
            per_cpu,
            cpu: cpu as u16,
            urgency,
            body,
            yielder: std::ptr::null(),
            path: 0,
        }
    }
}

/// The order in which a CPU runs its tasks: larger goes first.
pub(crate) const fn urgency_of(priority: Priority) -> u16 {
    match priority {
        Priority::Fair => 1,
        Priority::RealTime(level) => level as u16 + 2,
    }
}

/// The idle task's urgency.
pub(crate) const IDLE_URGENCY: u16 = 0;
