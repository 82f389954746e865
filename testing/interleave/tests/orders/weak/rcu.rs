//! Grace periods: a reader that may have the old version is done with it, and every later reader
//! finds the new one.

use crate::rcu::{Shared, leaving_idle, leaving_the_mask, scenario};
use mmscale_arch::Ipi;
use mmscale_interleave::{Hooks, check_weak, cpu_body, interrupt, run};
use mmscale_mm::rcu::Speed;
use std::sync::Arc;

/// A CPU's `owes` word, which it exchanges for 0, and `owing` and `all_passed`, by which the writer
/// learns of it.
#[test]
fn a_grace_period_waits_for_readers_and_orders_what_they_read() {
    for speed in [Speed::Normal, Speed::Expedited] {
        check_weak(300, move || scenario(speed, true));
    }
}

/// `idle`, by which a CPU is passed over, and the fences in `idle_exit` and `grace_period`.
#[test]
fn a_cpu_that_leaves_idle_finds_the_new_version() {
    for speed in [Speed::Normal, Speed::Expedited] {
        check_weak(400, move || leaving_idle(speed, 2, 1));
    }
}

#[test]
fn a_cpu_that_leaves_the_mask_is_waited_for() {
    check_weak(300, leaving_the_mask);
}

/// A writer that finds a grace period begun by another after its own call needs none: `begun` and
/// `ended`, and the mutex.
#[test]
fn a_writer_that_needs_no_grace_period_of_its_own_sees_what_readers_read() {
    check_weak(1500, || {
        run(3, || {
            let both = Arc::new((Shared::new(), Shared::new()));
            let writer = |first: bool| {
                let both = Arc::clone(&both);
                cpu_body(move || {
                    let of = if first { &both.0 } else { &both.1 };
                    of.replace(&both.0.rcu, Speed::Normal);
                })
            };
            let reader = Arc::clone(&both);
            let reader = cpu_body(move || {
                for of in [&reader.0, &reader.1, &reader.0] {
                    let reading = reader.0.rcu.read();
                    of.read(0);
                    drop(reading);
                    interrupt(|| reader.0.rcu.tick());
                }
            });
            let bodies = vec![writer(true), writer(false), reader];
            (Some(Arc::new(Other(both)) as Arc<dyn Hooks>), bodies)
        });
    });
}

/// Two objects, and the grace periods of the first for both.
struct Other(Arc<(Shared, Shared)>);

impl Hooks for Other {
    fn ipi(&self, reason: Ipi) {
        self.0.0.ipi(reason);
    }
    fn idle_enter(&self) {
        self.0.0.idle_enter();
    }
    fn idle_exit(&self) {
        self.0.0.idle_exit();
    }
}
