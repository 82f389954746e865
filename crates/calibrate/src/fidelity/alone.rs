//! A machine without a kernel, on which one operation is repeated on a number of cores.

use std::cell::Cell;
use std::rc::Rc;

use mmscale_arch::{Callbacks, CpuId, Ipi, Machine as _, Priority, TaskEntry, TaskSpec};
use mmscale_harness::machine::silent;
use mmscale_harness::{Interrupt, StudyError};
use mmscale_sim::profile::{Profile, Topology};
use mmscale_sim::{Checks, Failure, Sim, SimConfig};

use super::SEED;

/// When operations count.
#[derive(Clone, Copy)]
pub(super) struct Window {
    pub(super) warm_up_ns: u64,
    pub(super) length_ns: u64,
}

impl Window {
    const fn is_over(self, now_ns: u64) -> bool {
        now_ns >= self.warm_up_ns + self.length_ns
    }
    const fn counts(self, now_ns: u64) -> bool {
        now_ns >= self.warm_up_ns
    }
    fn per_s(self, operations: u64) -> f64 {
        operations as f64 * 1e9 / self.length_ns as f64
    }
}

/// All that the machine has: an operation, which is called with the number of the task.
struct Alone<F> {
    operation: F,
    window: Window,
    /// Operations of all CPUs within the window.
    done: Cell<u64>,
}

/// Repeats an operation in one task on each of the first `cpus` CPUs, whole cores first; returns
/// operations per second.
pub(super) fn ops_per_s(
    profile: &Profile,
    cpus: usize,
    window: Window,
    operation: impl Fn(u64) + 'static,
    interrupt: &Interrupt,
) -> Result<f64, StudyError> {
    let mut config = SimConfig::new(profile.clone(), profile.topology.cpus);
    config.seed = SEED;
    config.checks = Checks::Off;
    config.interrupt = Some(interrupt.flag());
    let topology = profile.topology;
    let machine = Rc::new(Alone { operation, window, done: Cell::new(0) });
    let program = Rc::clone(&machine);
    let outcome = mmscale_sim::run(config, silent, move || {
        for (thread, cpu) in cores_first(&topology).take(cpus).enumerate() {
            Sim::spawn(TaskSpec {
                cpu,
                per_cpu: false,
                priority: Priority::Fair,
                entry: TaskEntry(thread as u64),
            });
        }
        program
    });
    match outcome.failure {
        Some(Failure::Interrupted { .. }) => Err(StudyError::Interrupted),
        Some(failure) => Err(StudyError::Machine(failure.to_string())),
        None => Ok(window.per_s(machine.done.get())),
    }
}

impl<F: Fn(u64)> Callbacks for Alone<F> {
    fn task(&self, entry: TaskEntry) {
        loop {
            (self.operation)(entry.0);
            let now_ns = Sim::now_ns();
            if self.window.is_over(now_ns) {
                break;
            }
            self.done.set(self.done.get() + u64::from(self.window.counts(now_ns)));
        }
    }
    fn ipi(&self, _: Ipi) {}
    fn timer(&self) {}
    fn idle_enter(&self) {}
    fn idle_exit(&self) {}
    fn context_switch(&self) {}
    fn cpu_dying(&self) -> bool {
        true
    }
    fn cpu_down_prepare(&self, _: CpuId) {}
    fn cpu_dead(&self, _: CpuId) {}
    fn cpu_online(&self, _: CpuId) {}
}

/// All CPUs in the order in which Linux numbers those of servers: a thread of each core, node by
/// node, then the other threads.
fn cores_first(of: &Topology) -> impl Iterator<Item = CpuId> {
    let (cpus, smt) = (of.cpus, of.smt);
    (0..smt).flat_map(move |thread| (thread..cpus).step_by(smt).map(CpuId::new))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_take_cores_before_siblings() {
        let two_cores = Topology { cpus: 4, smt: 2, cluster: 4, nodes: 1 };
        let cpus: Vec<usize> = cores_first(&two_cores).map(CpuId::index).collect();
        assert_eq!(cpus, [0, 2, 1, 3]);
    }
}
