//! The scheduler: each CPU runs its most urgent task; fair tasks alternate.

use crate::cpu::{Reason, WaitState};
use crate::engine::Engine;
use crate::engine::context::{callbacks, suspend, with};
use crate::engine::turn::turn;
use crate::heap::order_of;
use crate::record::stats::ROOT_PATH;
use crate::sharing::Load;
use crate::task::{FAIR_URGENCY, IDLE_URGENCY, STOP, Switch, TaskState, Yielder};

/// How long a fair task keeps its CPU while another waits: Linux's default base slice on machines
/// with eight CPUs or more (0.7 ms, times 1 + log2 of at most 8 CPUs).
const SLICE_PS: u64 = 2_800_000_000;

/// Why a CPU chooses a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SwitchReason {
    /// The current task blocks, unless it was unparked meanwhile.
    Park,
    /// A more urgent task may be ready, or the time slice has ended.
    Preempt,
    /// The idle task looks for work.
    Idle,
    /// The current task has ended.
    Exit,
    /// The current task moves to another CPU, because its own goes offline.
    Move,
}

/// State of a task that is restored when it resumes.
struct SwitchedOut {
    path: u32,
    irq_off: bool,
    preempt: u32,
}

/// Switches to the task that should run now, if that is another; returns when the current task
/// resumes.
pub(crate) fn schedule(why: SwitchReason) {
    let left = leave();
    if let Some(switch) = with(|engine| engine.pick(why)) {
        suspend(switch);
    }
    with(|engine| engine.come_back(&left));
}

/// Ends the current task; returns the one to resume.
pub(crate) fn exit() -> u32 {
    leave();
    with(|engine| engine.pick(SwitchReason::Exit)).map_or(STOP, |switch| switch.next)
}

/// Prepares a switch: interrupts off, the callback, the cost, the CPU's turn.
fn leave() -> SwitchedOut {
    let left = with(Engine::leave);
    if let Some(callbacks) = callbacks() {
        callbacks.context_switch();
    }
    with(|engine| {
        let switch_ps = engine.costs.switch_ps;
        engine.cpu().clock += switch_ps;
    });
    turn();
    left
}

impl Engine {
    fn leave(&mut self) -> SwitchedOut {
        let cpu = self.cpu();
        let left = SwitchedOut { path: cpu.path, irq_off: cpu.irq_off, preempt: cpu.preempt };
        let current = cpu.current as usize;
        cpu.irqs_off();
        self.go_to_path(ROOT_PATH);
        self.tasks[current].path = left.path;
        left
    }
    /// Restores the state of a task that resumes, perhaps on another CPU.
    fn come_back(&mut self, left: &SwitchedOut) {
        self.go_to_path(left.path);
        let cpu = self.cpu();
        cpu.preempt = left.preempt;
        if left.irq_off { cpu.irqs_off() } else { cpu.irqs_on() }
    }
    /// Chooses the task that runs next on the running CPU, at its turn; `None` if the current one
    /// continues.
    fn pick(&mut self, why: SwitchReason) -> Option<Switch> {
        if self.quiet {
            return None;
        }
        self.count_event();
        let current = self.cpu().current as usize;
        let slice_over = self.slice_over();
        let leaving = self.cpu().offline_wanted;
        let first = self.first_ready();
        self.cpu().need_resched = false;
        match why {
            SwitchReason::Park if std::mem::take(&mut self.tasks[current].token) => return None,
            SwitchReason::Park => self.tasks[current].state = TaskState::Parked,
            SwitchReason::Exit => self.finish(current),
            SwitchReason::Idle => {}
            SwitchReason::Move => self.make_ready(current),
            SwitchReason::Preempt if leaving => {
                self.put_back(current, true);
            }
            SwitchReason::Preempt => {
                let urgency = self.tasks[current].urgency;
                let first = self.tasks[first?].urgency;
                if first < urgency || first == urgency && !slice_over {
                    return None;
                }
                self.put_back(current, first > urgency);
            }
        }
        let cpu = self.cpu();
        let first = if leaving { None } else { cpu.queue.pop_front() };
        let next = first.unwrap_or(cpu.idle) as usize;
        if first.is_some() && !self.tasks[next].per_cpu {
            self.cpu().movable -= 1;
        }
        let switch = self.switch_to(next);
        self.note_load(self.cpus.at());
        Some(switch)
    }
    /// Queues the current task. If it was interrupted within its slice (`before` tasks of equal
    /// urgency), it resumes with the rest of that slice: a slice that began anew after each more
    /// urgent task would never end.
    fn put_back(&mut self, task: usize, before: bool) {
        let used_ps = self.cpu().clock.saturating_sub(self.cpu().slice_start);
        self.tasks[task].state = TaskState::Ready;
        self.tasks[task].slice_used_ps = if before { used_ps } else { 0 };
        self.enqueue(task, before);
    }
    fn finish(&mut self, task: usize) {
        self.tasks[task].state = TaskState::Done;
        self.live -= 1;
        self.end_ps = self.end_ps.max(self.cpu().clock);
    }
    fn switch_to(&mut self, next: usize) -> Switch {
        self.tasks[next].state = TaskState::Running;
        let yielder = self.tasks[next].yielder;
        let used_ps = std::mem::take(&mut self.tasks[next].slice_used_ps);
        let cpu = self.cpu();
        let left = std::mem::replace(&mut cpu.yielder, yielder);
        cpu.current = next as u32;
        cpu.slice_start = cpu.clock.saturating_sub(used_ps);
        cpu.preempt = 0;
        self.go_to_path(ROOT_PATH);
        Switch { yielder: left, next: next as u32 }
    }
    /// Notes that a task's coroutine runs for the first time.
    pub(crate) fn begin_task(&mut self, task: usize, yielder: *const Yielder) {
        self.tasks[task].yielder = yielder;
        self.tasks[task].state = TaskState::Running;
        self.cpu().yielder = yielder;
        if self.tasks[task].urgency != IDLE_URGENCY {
            self.cpu().irqs_on();
        }
    }
    fn first_ready(&mut self) -> Option<usize> {
        self.cpu_at_turn().queue.front().map(|&task| task as usize)
    }
    /// Whether the current task is fair and has run for a whole time slice. A real-time task runs
    /// until it blocks.
    pub(crate) fn is_slice_used_up(&mut self) -> bool {
        let cpu = self.cpus.running();
        let fair = self.tasks[cpu.current as usize].urgency == FAIR_URGENCY;
        fair && cpu.clock.saturating_sub(cpu.slice_start) >= SLICE_PS
    }
    /// Whether the current fair task has used up its slice while another waits; at the CPU's turn.
    pub(crate) fn slice_over(&mut self) -> bool {
        self.is_slice_used_up() && !self.cpu_at_turn().queue.is_empty()
    }
    /// Inserts a ready task into its CPU's queue: before or after tasks of equal urgency.
    fn enqueue(&mut self, task: usize, before: bool) {
        let urgency = self.tasks[task].urgency;
        let tasks = &self.tasks;
        let queue = &mut self.cpus[usize::from(tasks[task].cpu)].queue;
        let at = queue.partition_point(|&other| {
            let other = tasks[other as usize].urgency;
            other > urgency || other == urgency && !before
        });
        queue.insert(at, task as u32);
        if !self.tasks[task].per_cpu {
            self.cpus[usize::from(self.tasks[task].cpu)].movable += 1;
        }
    }
    /// Queues `task` on its CPU, and wakes or interrupts the CPU if it has to react.
    pub(crate) fn make_ready(&mut self, task: usize) {
        self.move_to_online_cpu(task);
        self.tasks[task].state = TaskState::Ready;
        self.enqueue(task, false);
        let to = usize::from(self.tasks[task].cpu);
        self.note_load(to);
        let target = &self.cpus[to];
        let current = self.tasks[target.current as usize].urgency;
        match target.wait {
            WaitState::Halt => {
                let time_ps = self.cpu().clock + 1;
                self.wake_by(to, time_ps);
            }
            WaitState::Offline => {}
            // The idle task checks the queue before it stops.
            WaitState::No | WaitState::Spin | WaitState::User if current == IDLE_URGENCY => {}
            WaitState::No | WaitState::Spin | WaitState::User
                if self.tasks[task].urgency <= current => {}
            WaitState::No | WaitState::Spin | WaitState::User if to == self.cpus.at() => {
                self.cpu().need_resched = true
            }
            WaitState::No | WaitState::Spin | WaitState::User => {
                self.send(to, Reason::Resched);
            }
        }
    }
    /// Notes the load of CPU `at` after a change, at the running CPU's turn. Tasks that belong to a
    /// CPU, and those on one that is about to run them, do not wait for another CPU.
    pub(crate) fn note_load(&mut self, at: usize) {
        if self.quiet {
            return;
        }
        let cpu = &self.cpus[at];
        let runs_idle_task = self.tasks[cpu.current as usize].urgency == IDLE_URGENCY;
        let runs_nothing = runs_idle_task && cpu.queue.is_empty();
        let is_there = cpu.wait != WaitState::Offline && !cpu.offline_wanted;
        let load = Load {
            idle: runs_nothing && is_there,
            waiting: if runs_idle_task { 0 } else { cpu.movable },
        };
        self.sharing.set(at, load, self.cpus.running().clock);
    }
    /// Starts all CPUs after the boot: each runs its first task, or its idle task, at time 0.
    pub(crate) fn start(&mut self) {
        self.quiet = false;
        for at in 0..self.cpus.len() {
            self.cpus.run(at);
            let cpu = &mut self.cpus[at];
            cpu.clock = 0;
            cpu.preempt = 0;
            cpu.need_resched = false;
            cpu.plan_check();
            let first = cpu.queue.pop_front().unwrap_or(cpu.idle);
            if first != cpu.idle && !self.tasks[first as usize].per_cpu {
                cpu.movable -= 1;
            }
            cpu.current = first;
            self.tasks[first as usize].state = TaskState::Running;
            let order = order_of(0, self.cpus[at].rank);
            self.cpus[at].queued = order;
            self.heap.push(order);
            self.note_load(at);
        }
    }
}
