//! Tasks that block, wake other tasks and start new ones.

use crate::engine::Engine;
use crate::irq::{at_turn, cond_resched, deliver};
use crate::sched::{SwitchReason, schedule};
use crate::task::{Body, Task, TaskState, urgency_of};
use mmscale_arch::{TaskId, TaskSpec};

/// Wakes a task, or makes its next park return immediately.
pub(crate) fn park() {
    if at_turn(Engine::may_not_block) {
        return;
    }
    schedule(SwitchReason::Park);
    deliver();
}

/// Wakes a task, or lets its next park return.
pub(crate) fn unpark(task: TaskId) {
    at_turn(|engine| engine.unpark(task.index()));
    cond_resched();
}

/// Creates a task and queues it.
pub(crate) fn spawn(spec: TaskSpec) -> TaskId {
    let id = at_turn(|engine| engine.spawn(spec));
    cond_resched();
    TaskId::new(id)
}

impl Engine {
    /// Whether a park returns immediately; at the running CPU's turn.
    fn may_not_block(&mut self) -> bool {
        if self.quiet {
            return true;
        }
        self.check_sleep();
        let current = self.cpu().current as usize;
        std::mem::take(&mut self.tasks[current].token) || self.early_park()
    }
    /// Wakes `task` from the running CPU, at its turn.
    pub(crate) fn unpark(&mut self, task: usize) {
        match self.tasks[task].state {
            TaskState::Parked => {
                let wake_ps = self.costs.wake_ps;
                self.cpu().clock += wake_ps;
                self.make_ready(task);
            }
            TaskState::Ready | TaskState::Running => self.tasks[task].token = true,
            TaskState::Done => {}
        }
    }
    fn spawn(&mut self, spec: TaskSpec) -> usize {
        let wake_ps = self.costs.wake_ps;
        let id = self.tasks.len();
        let body = Body::Entry(spec.entry);
        let urgency = urgency_of(spec.priority);
        self.tasks.push(Task::new(spec.cpu.index(), spec.per_cpu, urgency, body));
        self.live += 1;
        if !self.quiet {
            self.cpu().clock += wake_ps;
        }
        self.make_ready(id);
        id
    }
}
