//! A microbenchmark of one spin lock: every CPU takes it again and again, computes without it, and
//! holds it for no work. The machine has no kernel: nothing else runs.

use mmscale_arch::sync::SpinLock;
use mmscale_arch::{LockClass, Machine as _};
use mmscale_harness::{Interrupt, StudyError};
use mmscale_sim::Sim;
use mmscale_sim::profile::Profile;

use super::alone::{self, Window};

const WINDOW: Window = Window { warm_up_ns: 2_000_000, length_ns: 20_000_000 };

/// Returns the operations per second of `cpus` CPUs that compute for `outside_ns` between two.
pub(crate) fn turns_per_s(
    profile: &Profile,
    cpus: usize,
    outside_ns: u64,
    interrupt: &Interrupt,
) -> Result<f64, StudyError> {
    let lock = SpinLock::<Sim, ()>::new(LockClass::Other, ());
    let turn = move |_| {
        drop(lock.lock());
        Sim::user(outside_ns);
    };
    alone::ops_per_s(profile, cpus, WINDOW, turn, interrupt)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmscale_harness::Profiles;

    /// One CPU is limited by its own work, many by the turns of the lock, which are longer between
    /// nodes.
    #[test]
    fn turns_are_handoffs() {
        let machine = Profiles::with(&[]).load("x86-512").unwrap();
        let rate = |cpus| turns_per_s(&machine, cpus, 1000, &Interrupt::default()).unwrap();
        let (one, many) = (rate(1), rate(64));
        assert!((0.9e6..1e6).contains(&one), "{one}");
        let handoff_ns = 1e9 / many;
        assert!((100.0..1000.0).contains(&handoff_ns), "{handoff_ns}");
    }
}
