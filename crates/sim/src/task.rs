//! Tasks, as the scheduler knows them. The runner has their coroutines.

use mmscale_arch::{Priority, TaskEntry};

/// Suspends a coroutine: the runner resumes the task that it names.
pub(crate) type Yielder = corosensei::Yielder<(), u32>;

/// In place of a task: the run ends.
pub(crate) const STOP: u32 = u32::MAX;

/// A switch from the current coroutine to that of another task.
#[derive(Clone, Copy)]
pub(crate) struct Switch {
    pub(crate) yielder: *const Yielder,
    pub(crate) next: u32,
}

/// State of a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TaskState {
    /// It is in a CPU's queue.
    Ready,
    /// It is the current task of its CPU.
    Running,
    /// It is blocked in a park.
    Parked,
    /// It has ended.
    Done,
}

/// Code that a task's coroutine runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Body {
    /// A CPU's idle loop.
    Idle,
    /// The task of the callbacks.
    Entry(TaskEntry),
}

/// A task.
pub(crate) struct Task {
    pub(crate) state: TaskState,
    /// Whether it was unparked since its last park.
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
    /// The part of its time slice that it had used, in ps, when a more urgent task took its CPU.
    pub(crate) slice_used_ps: u64,
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
            slice_used_ps: 0,
        }
    }
}

/// Returns the urgency of a priority: a CPU runs the task with the largest one.
pub(crate) const fn urgency_of(priority: Priority) -> u16 {
    match priority {
        Priority::Fair => 1,
        Priority::RealTime(level) => level as u16 + 2,
    }
}

/// The urgency of all fair tasks.
pub(crate) const FAIR_URGENCY: u16 = urgency_of(Priority::Fair);

/// The idle task's urgency.
pub(crate) const IDLE_URGENCY: u16 = 0;
