//! CPUs that go offline and come back.
//!
//! A CPU leaves in the order of the callbacks' contract: it is removed from the online mask;
//! `cpu_down_prepare` runs; its tasks move to other CPUs, and it stops in its idle task, with no
//! lock held (preemption was on) and every interrupt handled that was sent to it; `cpu_dead` runs.

use crate::cpu::{Reason, WaitState};
use crate::engine::Engine;
use crate::engine::context::{callbacks, with};
use crate::heap::NEVER;
use crate::irq::at_turn;
use crate::park::park;
use crate::sched::{SwitchReason, schedule};
use crate::task::Switch;
use mmscale_arch::{CpuId, HotplugError};

/// Takes `cpu` offline; returns when it has stopped and `cpu_dead` has run. Called in a task
/// without locks; a caller on `cpu` itself is moved to another CPU first. One caller at a time: the
/// owner of the callbacks has a lock for that.
pub(crate) fn offline(cpu: CpuId) -> Result<(), HotplugError> {
    let at = cpu.index();
    at_turn(|engine| engine.leave_mask(at))?;
    if with(|engine| engine.cpus.at() == at && !engine.quiet) {
        schedule(SwitchReason::Move);
    }
    let Some(callbacks) = callbacks() else { return Ok(()) };
    callbacks.cpu_down_prepare(cpu);
    at_turn(|engine| engine.want_offline(at));
    while !at_turn(|engine| engine.quiet || engine.cpus[at].wait == WaitState::Offline) {
        park();
    }
    callbacks.cpu_dead(cpu);
    with(|engine| engine.check_gone(cpu));
    Ok(())
}

/// Takes `cpu` online; returns when `cpu_online` has run. Called like [`offline`].
pub(crate) fn online(cpu: CpuId) -> Result<(), HotplugError> {
    at_turn(|engine| engine.go_online(cpu.index()))?;
    if let Some(callbacks) = callbacks() {
        callbacks.cpu_online(cpu);
    }
    Ok(())
}

impl Engine {
    fn leave_mask(&mut self, at: usize) -> Result<(), HotplugError> {
        if at >= self.cpus.len() {
            return Err(HotplugError::NoSuchCpu);
        }
        if !self.online.contains(CpuId::new(at)) {
            return Err(HotplugError::NotNow);
        }
        if self.online.count() == 1 {
            return Err(HotplugError::LastCpu);
        }
        let current = self.cpu().current as usize;
        if self.cpus.at() == at && self.tasks[current].per_cpu {
            return Err(HotplugError::NotNow);
        }
        self.online.remove(CpuId::new(at));
        Ok(())
    }
    /// Asks CPU `at` to stop, and to wake the current task when it has.
    fn want_offline(&mut self, at: usize) {
        if self.quiet {
            return;
        }
        let task = self.cpu().current as usize;
        self.leaving.push((at, task));
        self.cpus[at].offline_wanted = true;
        if self.cpus[at].wait == WaitState::Halt {
            let time_ps = self.cpu().clock + 1;
            self.wake_by(at, time_ps);
        } else {
            self.send(at, Reason::Resched);
        }
    }
    /// Stops the running CPU for good, in its idle task at its turn.
    pub(crate) fn go_offline(&mut self) -> Switch {
        let at = self.cpus.at();
        let tasks: Vec<u32> = self.cpus[at].queue.drain(..).collect();
        self.cpus[at].drop_irqs();
        self.cpus[at].movable = 0;
        self.note_load(at);
        for task in tasks {
            if self.tasks[task as usize].per_cpu {
                self.cpus[at].queue.push_back(task);
            } else {
                self.make_ready(task as usize);
            }
        }
        let gone = |&(cpu, _): &(usize, usize)| cpu == at;
        let waiting: Vec<_> = self.leaving.extract_if(.., |who| gone(who)).collect();
        for (_, task) in waiting {
            self.unpark(task);
        }
        self.block(WaitState::Offline, NEVER)
    }
    fn go_online(&mut self, at: usize) -> Result<(), HotplugError> {
        if at >= self.cpus.len() {
            return Err(HotplugError::NoSuchCpu);
        }
        if self.cpus[at].wait != WaitState::Offline {
            return Err(HotplugError::NotNow);
        }
        self.online.insert(CpuId::new(at));
        self.cpus[at].offline_wanted = false;
        self.cpus[at].wait = WaitState::Halt;
        self.note_load(at);
        let time_ps = self.cpu().clock + 1;
        self.wake_by(at, time_ps);
        Ok(())
    }
    /// Moves a task whose CPU is offline to the first online CPU of the same node, or else to the
    /// first online CPU. Bound tasks stay.
    pub(crate) fn move_to_online_cpu(&mut self, task: usize) {
        let at = usize::from(self.tasks[task].cpu);
        if self.tasks[task].per_cpu || self.online.contains(CpuId::new(at)) {
            return;
        }
        let node = self.distances.node_of(at);
        let near = self.online.iter().find(|cpu| self.distances.node_of(cpu.index()) == node);
        if let Some(cpu) = near.or_else(|| self.online.iter().next()) {
            self.tasks[task].cpu = cpu.index() as u16;
        }
    }
}
