//! A microbenchmark of one spin lock: every CPU takes it again and again, computes without it, and
//! holds it for no work. The machine has no kernel: nothing else runs.

use std::cell::Cell;
use std::rc::Rc;

use mmscale_arch::sync::SpinLock;
use mmscale_arch::{Callbacks, CpuId, Ipi, LockClass, Machine as _, TaskEntry};
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
    let lock = SpinLock::new(LockClass::Other, ());
    let machine = Rc::new(Taken { lock, outside_ns, done: Cell::new(0) });
    alone::run(profile, cpus, Rc::clone(&machine), interrupt)?;
    Ok(WINDOW.per_s(machine.done.get()))
}

/// The program, which is all that the machine has.
struct Taken {
    lock: SpinLock<Sim, ()>,
    outside_ns: u64,
    /// Operations of all CPUs within the window.
    done: Cell<u64>,
}

impl Callbacks for Taken {
    fn task(&self, _: TaskEntry) {
        loop {
            drop(self.lock.lock());
            Sim::user(self.outside_ns);
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
