//! Grace periods: a reader that may have the old version is done with it, and every later reader
//! finds the new one.

use mmscale_arch::{Atomic, Cpu, Ipi, Machine as _};
use mmscale_interleave::{Hooks, Model, Plain, check_weak, cpu_body, interrupt, run, set_online};
use mmscale_mm::rcu::{Rcu, Speed};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};

/// Two versions of something, of which the first is poisoned once it is replaced.
struct Shared {
    rcu: Rcu<Model>,
    current: <Model as Cpu>::AtomicU32,
    versions: [Plain; 2],
}

/// The content of a version that may be used.
const SOUND: u64 = 7;

impl Hooks for Shared {
    fn ipi(&self, reason: Ipi) {
        assert_eq!(reason, Ipi::RcuExpedited);
        self.rcu.expedited_ipi();
    }
    fn idle_enter(&self) {
        self.rcu.context_switch();
        self.rcu.idle_enter();
    }
    fn idle_exit(&self) {
        self.rcu.idle_exit();
    }
}

impl Shared {
    fn new() -> Self {
        let versions = [Plain::new(SOUND), Plain::new(0)];
        Self { rcu: Rcu::new(), current: Atomic::new(0), versions }
    }
    /// Makes the second version current, and poisons the first one after a grace period.
    fn replace(&self, speed: Speed) {
        self.versions[1].set(SOUND);
        self.current.store(1, Release);
        match speed {
            Speed::Normal => self.rcu.synchronize(),
            Speed::Expedited => self.rcu.synchronize_expedited(),
        }
        self.versions[0].set(0);
    }
    /// Uses the current version.
    fn read(&self) {
        let reading = self.rcu.read();
        let version = self.current.load(Acquire) as usize;
        Model::cond_resched();
        assert_eq!(self.versions[version].get(), SOUND, "used after it was freed");
        drop(reading);
    }
}

/// A writer against two CPUs that do `read`. `leaving`: one of these has left the online mask.
fn against_a_writer(schedules: usize, speed: Speed, leaving: bool, read: fn(&Shared)) {
    check_weak(schedules, move || {
        run(3, || {
            let shared = Arc::new(Shared::new());
            if leaving {
                set_online(2, false);
            }
            let writer = Arc::clone(&shared);
            let reader = |_| {
                let shared = Arc::clone(&shared);
                cpu_body(move || read(&shared))
            };
            let write = cpu_body(move || writer.replace(speed));
            let bodies = core::iter::once(write).chain((0..2).map(reader)).collect();
            (Some(shared.clone() as Arc<dyn Hooks>), bodies)
        });
    });
}

/// A CPU's `owes` word, which it exchanges for 0, and `owing` and `all_passed`, by which the writer
/// learns of it.
#[test]
fn a_grace_period_waits_for_readers_and_orders_what_they_read() {
    for speed in [Speed::Normal, Speed::Expedited] {
        against_a_writer(300, speed, false, |shared| {
            shared.read();
            interrupt(|| shared.rcu.tick());
            shared.read();
        });
    }
}

/// `idle`, by which a CPU is passed over, and the fences in `idle_exit` and `grace_period`.
#[test]
fn a_cpu_that_leaves_idle_finds_the_new_version() {
    for speed in [Speed::Normal, Speed::Expedited] {
        against_a_writer(400, speed, false, |shared| {
            Model::unpark(Model::current());
            Model::park();
            shared.read();
        });
    }
}

/// As before, of a CPU that has left the online mask and still runs.
#[test]
fn a_cpu_that_leaves_the_mask_is_waited_for() {
    against_a_writer(300, Speed::Normal, true, |shared| {
        shared.read();
        interrupt(|| shared.rcu.tick());
    });
}

/// A writer that finds a grace period begun by another after its own call needs none: `begun` and
/// `ended`, and the mutex.
#[test]
fn a_writer_that_needs_no_grace_period_of_its_own_sees_what_readers_read() {
    check_weak(300, || {
        run(3, || {
            let shared = Arc::new((Shared::new(), Shared::new()));
            let hooks = Arc::new(Other(Arc::clone(&shared)));
            let writer = |first: bool| {
                let shared = Arc::clone(&shared);
                cpu_body(move || {
                    let of = if first { &shared.0 } else { &shared.1 };
                    of.versions[1].set(SOUND);
                    of.current.store(1, Release);
                    shared.0.rcu.synchronize();
                    of.versions[0].set(0);
                })
            };
            let reader = Arc::clone(&shared);
            let reader = cpu_body(move || {
                for of in [&reader.0, &reader.1, &reader.0] {
                    let reading = reader.0.rcu.read();
                    let version = of.current.load(Acquire) as usize;
                    assert_eq!(of.versions[version].get(), SOUND, "used after it was freed");
                    drop(reading);
                    interrupt(|| reader.0.rcu.tick());
                }
            });
            (Some(hooks as Arc<dyn Hooks>), vec![writer(true), writer(false), reader])
        });
    });
}

/// Two things, and the grace periods of the first for both.
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
