//! The scheduler: each CPU runs the most urgent of its tasks; fair tasks take turns.

use crate::context::{Switch, callbacks, suspend, with};
use crate::cpu::{Reason, Wait};
use crate::engine::Engine;
use crate::heap::NEVER;
use crate::irq::{charge, deliver, sync_point, turn};
use crate::stats::ROOT_PATH;
use crate::task::{Body, IDLE_URGENCY, Task, TaskState, urgency_of};
use mmscale_mm::arch::{TaskId, TaskSpec};

/// How long a fair task keeps its CPU while another waits: Linux's default base slice on machines
/// with eight CPUs or more (0.7 ms, times 1 + log2 of at most 8 CPUs).
const SLICE_PS: u64 = 2_800_000_000;

/// Why a CPU looks for another task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Why {
    /// The current one blocks, unless it was unparked meanwhile.
    Park,
    /// A more urgent one may be there, or the time slice is over.
    Preempt,
    /// The idle task looks for work.
    Idle,
    /// The current one is over.
    Exit,
    /// The current one goes to another CPU: its own leaves.
    Move,
}

/// What a task gets back when it goes on.
struct Left {
    path: u32,
    irq_off: bool,
    preempt: u32,
}

/// Switches to the task that should run now, if that is another; returns when the current one
/// goes on.
pub(crate) fn schedule(why: Why) {
    let left = leave();
    if let Some(switch) = with(|engine| engine.pick(why)) {
        suspend(switch);
    }
    with(|engine| engine.come_back(&left));
}

/// The current task is over: which one goes on.
pub(crate) fn exit() -> u32 {
    leave();
    with(|engine| engine.pick(Why::Exit)).map_or(crate::context::STOP, |switch| switch.next)
}

/// What happens before each switch: interrupts off, the hook, the cost, the CPU's turn.
fn leave() -> Left {
    let left = with(Engine::leave);
    if let Some(callbacks) = callbacks() {
        callbacks.context_switch();
    }
    charge(with(|engine| engine.costs.switch_ps));
    turn();
    left
}

/// Blocks the current task until it is unparked; may return early.
pub(crate) fn park() {
    loop {
        match with(Engine::try_park) {
            Park::Return => return,
            Park::Later => sync_point(),
            Park::Block => break,
        }
    }
    schedule(Why::Park);
    deliver();
}

/// What a park does.
enum Park {
    Return,
    Later,
    Block,
}

/// Wakes a task, or lets its next park return.
pub(crate) fn unpark(task: TaskId) {
    while !with(|engine| engine.ready() && engine.unpark(task.index())) {
        sync_point();
    }
    cond_preempt();
}

/// Makes a task and queues it.
pub(crate) fn spawn(spec: TaskSpec) -> TaskId {
    let id = loop {
        match with(|engine| engine.ready().then(|| engine.spawn(spec))) {
            Some(id) => break id,
            None => sync_point(),
        }
    };
    cond_preempt();
    TaskId::new(id)
}

/// After a wake-up on this CPU: the woken task may be the one to run.
fn cond_preempt() {
    crate::irq::cond_resched();
}

/// The body of a CPU's idle task. Preemption is off in it: it switches by itself.
pub(crate) fn idle_loop() {
    with(|engine| {
        engine.cpu().preempt += 1;
        engine.cpu().irqs_off();
    });
    loop {
        turn();
        if with(|engine| engine.idle_may_stop()) {
            idle_stop();
        }
        with(|engine| engine.cpu().irqs_on());
        deliver();
        if with(|engine| engine.idle_has_work()) {
            schedule(Why::Idle);
        }
        with(|engine| engine.cpu().irqs_off());
    }
}

/// Stops the CPU until something comes. Interrupts are off; pending ones end the stop.
fn idle_stop() {
    if let Some(callbacks) = callbacks() {
        callbacks.idle_enter();
    }
    loop {
        turn();
        match with(Engine::halt) {
            Some(switch) => suspend(switch),
            None => break,
        }
    }
    charge(with(|engine| engine.costs.idle_exit_ps));
    if let Some(callbacks) = callbacks() {
        callbacks.idle_exit();
    }
}

impl Engine {
    fn leave(&mut self) -> Left {
        let cpu = self.cpu();
        let left = Left { path: cpu.path, irq_off: cpu.irq_off, preempt: cpu.preempt };
        let current = cpu.current as usize;
        cpu.irqs_off();
        cpu.path = ROOT_PATH;
        self.tasks[current].path = left.path;
        left
    }
    /// The task that was switched out runs again, perhaps on another CPU than before.
    fn come_back(&mut self, left: &Left) {
        let cpu = self.cpu();
        cpu.path = left.path;
        cpu.preempt = left.preempt;
        if left.irq_off { cpu.irqs_off() } else { cpu.irqs_on() }
    }
    fn try_park(&mut self) -> Park {
        if self.quiet {
            return Park::Return;
        }
        if !self.ready() {
            return Park::Later;
        }
        self.check_sleep();
        let current = self.cpu().current as usize;
        if std::mem::take(&mut self.tasks[current].token) || self.early_park() {
            return Park::Return;
        }
        Park::Block
    }
    /// Chooses the task that runs next on the running CPU, at its turn; `None` if the current one
    /// stays.
    fn pick(&mut self, why: Why) -> Option<Switch> {
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
            Why::Park if std::mem::take(&mut self.tasks[current].token) => return None,
            Why::Park => self.tasks[current].state = TaskState::Parked,
            Why::Exit => self.finish(current),
            Why::Idle => {}
            Why::Move => self.make_ready(current),
            Why::Preempt if leaving => {
                self.tasks[current].state = TaskState::Ready;
                self.enqueue(current, true);
            }
            Why::Preempt => {
                let urgency = self.tasks[current].urgency;
                let first = self.tasks[first?].urgency;
                if first < urgency || first == urgency && !slice_over {
                    return None;
                }
                self.tasks[current].state = TaskState::Ready;
                self.enqueue(current, first > urgency);
            }
        }
        let cpu = self.cpu();
        let first = if leaving { None } else { cpu.queue.pop_front() };
        let next = first.unwrap_or(cpu.idle) as usize;
        Some(self.switch_to(next))
    }
    fn finish(&mut self, task: usize) {
        self.tasks[task].state = TaskState::Done;
        self.live -= 1;
        self.end_ps = self.end_ps.max(self.cpu().clock);
    }
    fn switch_to(&mut self, next: usize) -> Switch {
        self.tasks[next].state = TaskState::Running;
        let yielder = self.tasks[next].yielder;
        let cpu = self.cpu();
        let left = std::mem::replace(&mut cpu.yielder, yielder);
        cpu.current = next as u32;
        cpu.slice_start = cpu.clock;
        cpu.path = ROOT_PATH;
        cpu.preempt = 0;
        Switch { yielder: left, next: next as u32 }
    }
    /// A task's coroutine runs for the first time.
    pub(crate) fn begin_task(&mut self, task: usize, yielder: *const crate::context::Yielder) {
        self.tasks[task].yielder = yielder;
        self.tasks[task].state = TaskState::Running;
        self.cpu().yielder = yielder;
        if self.tasks[task].urgency != IDLE_URGENCY {
            self.cpu().irqs_on();
        }
    }
    fn first_ready(&mut self) -> Option<usize> {
        self.cpu().queue.front().map(|&task| task as usize)
    }
    /// Whether the current fair task has had its time and another waits.
    pub(crate) fn slice_over(&mut self) -> bool {
        let cpu = self.cpu();
        cpu.clock - cpu.slice_start.min(cpu.clock) >= SLICE_PS && !cpu.queue.is_empty()
    }
    /// Puts a ready task into its CPU's queue: before or after its equals.
    fn enqueue(&mut self, task: usize, before: bool) {
        let urgency = self.tasks[task].urgency;
        let tasks = &self.tasks;
        let queue = &mut self.cpus[usize::from(tasks[task].cpu)].queue;
        let at = queue.partition_point(|&other| {
            let other = tasks[other as usize].urgency;
            other > urgency || other == urgency && !before
        });
        queue.insert(at, task as u32);
    }
    /// Wakes `task` from the running CPU, at its turn. Always true.
    pub(crate) fn unpark(&mut self, task: usize) -> bool {
        match self.tasks[task].state {
            TaskState::Parked => {
                let wake_ps = self.costs.wake_ps;
                self.cpu().clock += wake_ps;
                self.make_ready(task);
            }
            TaskState::Ready | TaskState::Running => self.tasks[task].token = true,
            TaskState::Done => {}
        }
        true
    }
    /// Queues `task` on its CPU, and sees to it that the CPU notices.
    pub(crate) fn make_ready(&mut self, task: usize) {
        self.settle_cpu(task);
        self.tasks[task].state = TaskState::Ready;
        self.enqueue(task, false);
        let to = usize::from(self.tasks[task].cpu);
        let target = &self.cpus[to];
        let current = self.tasks[target.current as usize].urgency;
        match target.wait {
            Wait::Halt => {
                let time_ps = self.cpu().clock + 1;
                self.wake_by(to, time_ps);
            }
            Wait::Offline => {}
            // The idle task looks at the queue before it stops.
            Wait::No | Wait::Spin if current == IDLE_URGENCY => {}
            Wait::No | Wait::Spin if self.tasks[task].urgency <= current => {}
            Wait::No | Wait::Spin if to == self.cur => self.cpu().need_resched = true,
            Wait::No | Wait::Spin => {
                self.send(to, Reason::Resched);
            }
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
    /// Whether the idle task, at its turn, finds nothing to do.
    fn idle_may_stop(&mut self) -> bool {
        let cpu = self.cpu();
        cpu.irq_at > cpu.clock && (cpu.queue.is_empty() || cpu.offline_wanted)
    }
    fn idle_has_work(&mut self) -> bool {
        let cpu = self.cpu();
        !cpu.queue.is_empty() && !cpu.offline_wanted
    }
    /// Stops the running CPU, at its turn; `None` if something has come meanwhile.
    fn halt(&mut self) -> Option<Switch> {
        if self.quiet || !self.idle_may_stop() {
            return None;
        }
        let until = self.cpu().ipi_at();
        if self.cpu().offline_wanted && until == NEVER {
            return Some(self.go_offline());
        }
        Some(self.block(Wait::Halt, until))
    }
    /// After boot: each CPU runs its first task, or its idle task, from time 0.
    pub(crate) fn start(&mut self) {
        self.quiet = false;
        for at in 0..self.cpus.len() {
            self.cur = at;
            let cpu = &mut self.cpus[at];
            cpu.clock = 0;
            cpu.preempt = 0;
            cpu.need_resched = false;
            cpu.plan_check();
            let first = cpu.queue.pop_front().unwrap_or(cpu.idle);
            cpu.current = first;
            self.tasks[first as usize].state = TaskState::Running;
            let key = self.cpus[at].key();
            self.heap.push(key);
        }
    }
}
