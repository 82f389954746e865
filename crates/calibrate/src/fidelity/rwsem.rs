//! A microbenchmark of the reader-writer semaphore: every CPU takes it again and again, half of
//! them for reading and half for writing, and computes while it has it. The machine has no kernel:
//! nothing else runs.

use std::cell::Cell;
use std::rc::Rc;

use mmscale_arch::sync::{RwSem, RwsemPolicy};
use mmscale_arch::{Callbacks, CpuId, Ipi, LockClass, Machine as _, Priority, TaskEntry, TaskSpec};
use mmscale_harness::machine::silent;
use mmscale_harness::{Interrupt, StudyError};
use mmscale_sim::profile::{Profile, Topology};
use mmscale_sim::{Checks, Failure, Sim, SimConfig};

use super::SEED;

/// Time before operations count, in ns: several times the time after which a waiter gets the
/// semaphore in any case.
const WARM_UP_NS: u64 = 20_000_000;
/// Time in which operations count, in ns.
const WINDOW_NS: u64 = 40_000_000;

/// Returns the operations per second of `cpus` CPUs that have the semaphore for `held_ns` each
/// time.
pub(crate) fn ops_per_s(
    profile: &Profile,
    policy: RwsemPolicy,
    cpus: usize,
    held_ns: u64,
    interrupt: &Interrupt,
) -> Result<f64, StudyError> {
    let mut config = SimConfig::new(profile.clone(), profile.topology.cpus);
    config.seed = SEED;
    config.checks = Checks::Off;
    config.interrupt = Some(interrupt.flag());
    let semaphore = RwSem::with_policy(policy, LockClass::Rwsem, ());
    let machine = Rc::new(Taken { semaphore, held_ns, done: Cell::new(0) });
    let (own, topology) = (Rc::clone(&machine), profile.topology);
    let outcome = mmscale_sim::run(config, silent, move || {
        for (thread, cpu) in cores_first(&topology).take(cpus).enumerate() {
            Sim::spawn(TaskSpec {
                cpu,
                per_cpu: false,
                priority: Priority::Fair,
                entry: TaskEntry(thread as u64),
            });
        }
        own
    });
    match outcome.failure {
        Some(Failure::Interrupted { .. }) => Err(StudyError::Interrupted),
        Some(failure) => Err(StudyError::Machine(failure.to_string())),
        None => Ok(machine.done.get() as f64 * 1e9 / WINDOW_NS as f64),
    }
}

/// All CPUs in the order in which Linux numbers those of servers: a thread of each core, node by
/// node, then the other threads.
fn cores_first(of: &Topology) -> impl Iterator<Item = CpuId> {
    let (cpus, smt) = (of.cpus, of.smt);
    (0..smt).flat_map(move |thread| (thread..cpus).step_by(smt).map(CpuId::new))
}

/// The program, which is all that the machine has.
struct Taken {
    semaphore: RwSem<Sim, ()>,
    held_ns: u64,
    /// Operations of all CPUs within the window.
    done: Cell<u64>,
}

impl Callbacks for Taken {
    fn task(&self, entry: TaskEntry) {
        let is_reader = entry.0.is_multiple_of(2);
        loop {
            if is_reader {
                let _held = self.semaphore.read();
                Sim::user(self.held_ns);
            } else {
                let _held = self.semaphore.write();
                Sim::user(self.held_ns);
            }
            let now_ns = Sim::now_ns();
            if now_ns >= WARM_UP_NS + WINDOW_NS {
                break;
            }
            self.done.set(self.done.get() + u64::from(now_ns >= WARM_UP_NS));
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

#[cfg(test)]
mod tests {
    use super::*;
    use mmscale_harness::Profiles;

    fn machine() -> Profile {
        Profiles::with(&[]).load("x86-32").unwrap()
    }

    #[test]
    fn threads_take_cores_before_siblings() {
        let two_cores = Topology { cpus: 4, smt: 2, cluster: 4, nodes: 1 };
        let cpus: Vec<usize> = cores_first(&two_cores).map(CpuId::index).collect();
        assert_eq!(cpus, [0, 2, 1, 3]);
    }

    /// One task never waits: an operation is its hold and a little. A reader and a writer exclude
    /// each other; two readers and two writers do at most four operations in three holds.
    #[test]
    fn rates_are_those_of_a_semaphore() {
        let held_ns = 10_000;
        let rate = |cpus| {
            let stock = RwsemPolicy::Stock;
            let rate = ops_per_s(&machine(), stock, cpus, held_ns, &Interrupt::default()).unwrap();
            rate * held_ns as f64 / 1e9
        };
        let (one, two, four) = (rate(1), rate(2), rate(4));
        assert!((0.98..=1.0).contains(&one), "{one}");
        assert!((0.5..=1.0).contains(&two), "{two}");
        assert!((0.5..=4.0 / 3.0).contains(&four), "{four}");
    }
}
