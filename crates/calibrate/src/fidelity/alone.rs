//! A machine without a kernel, on which one program runs on a number of cores.

use std::rc::Rc;

use mmscale_arch::{Callbacks, CpuId, Machine as _, Priority, TaskEntry, TaskSpec};
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
    pub(super) const fn is_over(self, now_ns: u64) -> bool {
        now_ns >= self.warm_up_ns + self.length_ns
    }
    pub(super) const fn counts(self, now_ns: u64) -> bool {
        now_ns >= self.warm_up_ns
    }
    pub(super) fn per_s(self, operations: u64) -> f64 {
        operations as f64 * 1e9 / self.length_ns as f64
    }
}

/// Runs a program as one task on each of the first `cpus` CPUs, whole cores first. The entry of a
/// task is its number.
pub(super) fn run<P: Callbacks + 'static>(
    profile: &Profile,
    cpus: usize,
    program: Rc<P>,
    interrupt: &Interrupt,
) -> Result<(), StudyError> {
    let mut config = SimConfig::new(profile.clone(), profile.topology.cpus);
    config.seed = SEED;
    config.checks = Checks::Off;
    config.interrupt = Some(interrupt.flag());
    let topology = profile.topology;
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
        None => Ok(()),
    }
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
