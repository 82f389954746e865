//! The idle loop of a CPU.

use crate::cpu::WaitState;
use crate::engine::Engine;
use crate::engine::context::{callbacks, suspend, with};
use crate::engine::turn::turn;
use crate::heap::NEVER;
use crate::irq::{charge, deliver};
use crate::sched::{SwitchReason, schedule};
use crate::task::{Body, Switch, Task};

/// The body of a CPU's idle task. Preemption is off in it; it calls the scheduler itself. It
/// returns at the end of the run.
pub(crate) fn idle_loop() {
    with(|engine| {
        engine.cpu().open_section();
        engine.cpu().preempt += 1;
        engine.cpu().irqs_off();
    });
    loop {
        turn();
        if with(|engine| engine.idle_may_stop()) {
            idle_stop();
        }
        if with(|engine| engine.quiet) {
            return;
        }
        with(|engine| engine.cpu().irqs_on());
        deliver();
        if with(|engine| engine.idle_has_work()) {
            schedule(SwitchReason::Idle);
        }
        with(|engine| engine.cpu().irqs_off());
    }
}

/// Stops the CPU until an interrupt or a task arrives. Interrupts are off; a pending one ends the
/// stop.
fn idle_stop() {
    if let Some(callbacks) = callbacks() {
        callbacks.idle_enter();
    }
    let since_ps = with(|engine| engine.cpu().clock);
    loop {
        turn();
        // A CPU that stops for good must have no pending interrupt.
        let mut dies = with(|engine| engine.may_go_offline());
        if dies && let Some(owner) = callbacks() {
            dies = owner.cpu_dying();
            turn();
        }
        match with(|engine| engine.halt(dies)) {
            Some(switch) => suspend(switch),
            None => break,
        }
        if with(|engine| engine.quiet) {
            return;
        }
        with(Engine::go_on_from_halt);
    }
    charge(with(|engine| engine.idle_exit_ps(since_ps)));
    if let Some(callbacks) = callbacks() {
        callbacks.idle_exit();
    }
}

impl Engine {
    /// Whether `task` is an idle task that has stopped its CPU: it then returns when it resumes
    /// after the end of the run.
    pub(crate) fn has_stopped(&self, task: usize) -> bool {
        let Task { body, cpu, .. } = self.tasks[task];
        let cpu = &self.cpus[usize::from(cpu)];
        let is_stopped = matches!(cpu.wait, WaitState::Halt | WaitState::Offline);
        body == Body::Idle && cpu.current as usize == task && is_stopped
    }
    /// Returns the time of the running CPU's exit from idle, where it has been since `since_ps`. If
    /// that is long enough, it is from a deep state, whose time is the longest that was measured;
    /// otherwise it is drawn.
    fn idle_exit_ps(&mut self, since_ps: u64) -> u64 {
        let costs = &self.costs;
        let cpu = self.cpus.running_mut();
        if costs.idle_deep_exit_ps > 0 && cpu.clock - since_ps >= costs.idle_deep_after_ps {
            return costs.idle_deep_exit_ps;
        }
        (costs.idle_exit_ps * cpu.rng.long_tail_1024(costs.idle_spread_1024)) >> 10
    }
    /// The running CPU leaves idle or goes idle, at its turn.
    fn note_idle(&mut self, wakes: bool) {
        if let Some(speeds) = &mut self.speeds {
            speeds.change(self.cpus.at(), wakes);
            if wakes {
                self.set_speed();
            }
        }
    }
    /// Sets the running CPU's speed, at its turn.
    pub(crate) fn set_speed(&mut self) {
        self.set_speed_of(self.cpus.at());
    }
    /// Sets a CPU's speed: at its turn, or before the machine starts.
    pub(crate) fn set_speed_of(&mut self, cpu: usize) {
        if let Some(speeds) = &self.speeds {
            self.cpus[cpu].page_times_1024 = speeds.core_times_1024(cpu);
            self.cpus[cpu].op_times_1024 = speeds.times_1024(cpu, &self.cpus);
        }
    }
    /// Whether the idle task, at its turn, has neither an interrupt nor a task.
    fn idle_may_stop(&mut self) -> bool {
        let cpu = self.cpu_at_turn();
        cpu.irq_at > cpu.clock && (cpu.queue.is_empty() || cpu.offline_wanted)
    }
    fn idle_has_work(&mut self) -> bool {
        let cpu = self.cpu_at_turn();
        !cpu.queue.is_empty() && !cpu.offline_wanted
    }
    /// Ends the running CPU's halt.
    fn go_on_from_halt(&mut self) {
        if !self.quiet {
            self.note_idle(true);
            self.noise_while_halted();
            self.cpu().open_section();
        }
    }
    /// Halts the running CPU, at its turn; `None` if an interrupt or a task has arrived meanwhile.
    fn halt(&mut self, dies: bool) -> Option<Switch> {
        if self.quiet || !self.idle_may_stop() {
            return None;
        }
        self.note_idle(false);
        self.cpu().close_section();
        if dies && self.may_go_offline() {
            return Some(self.go_offline());
        }
        let until = self.cpu().ipi_at;
        Some(self.block(WaitState::Halt, until))
    }
    /// Whether the CPU is asked to stop for good and has no pending interrupt.
    fn may_go_offline(&mut self) -> bool {
        let cpu = self.cpu_at_turn();
        cpu.offline_wanted && cpu.ipi_at == NEVER && !self.quiet
    }
}
