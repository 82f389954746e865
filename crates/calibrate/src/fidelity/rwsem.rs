//! A microbenchmark of the reader-writer semaphore: every CPU takes it again and again, half of
//! them for reading and half for writing, and computes while it has it. The machine has no kernel:
//! nothing else runs.

use std::cell::Cell;
use std::rc::Rc;

use mmscale_arch::sync::{RwSem, RwsemPolicy};
use mmscale_arch::{Callbacks, CpuId, Ipi, LockClass, Machine as _, TaskEntry};
use mmscale_harness::{Interrupt, StudyError};
use mmscale_sim::Sim;
use mmscale_sim::profile::Profile;

use super::alone::{self, Window};

/// The time before operations count is several times that after which a waiter gets the semaphore
/// in any case.
const WINDOW: Window = Window { warm_up_ns: 20_000_000, length_ns: 40_000_000 };

/// Returns the operations per second of `cpus` CPUs that have the semaphore for `held_ns` each
/// time.
pub(crate) fn ops_per_s(
    profile: &Profile,
    policy: RwsemPolicy,
    cpus: usize,
    held_ns: u64,
    interrupt: &Interrupt,
) -> Result<f64, StudyError> {
    let semaphore = RwSem::with_policy(policy, LockClass::Rwsem, ());
    let machine = Rc::new(Taken { semaphore, held_ns, done: Cell::new(0) });
    alone::run(profile, cpus, Rc::clone(&machine), interrupt)?;
    Ok(WINDOW.per_s(machine.done.get()))
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
            if WINDOW.is_over(now_ns) {
                break;
            }
            self.done.set(self.done.get() + u64::from(WINDOW.counts(now_ns)));
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
