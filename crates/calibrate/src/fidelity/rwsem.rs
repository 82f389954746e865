//! A microbenchmark of the reader-writer semaphore: every CPU takes it again and again, half of
//! them for reading and half for writing, and computes while it has it. The machine has no kernel:
//! nothing else runs.

use mmscale_arch::sync::{RwSem, RwsemPolicy};
use mmscale_arch::{LockClass, Machine as _};
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
    let semaphore = RwSem::<Sim, ()>::with_policy(policy, LockClass::Rwsem, ());
    let turn = move |thread: u64| {
        if thread.is_multiple_of(2) {
            let _held = semaphore.read();
            Sim::user(held_ns);
        } else {
            let _held = semaphore.write();
            Sim::user(held_ns);
        }
    };
    alone::ops_per_s(profile, cpus, WINDOW, turn, interrupt)
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
