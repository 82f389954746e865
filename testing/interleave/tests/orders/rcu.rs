//! Grace periods against readers: `weak/rcu.rs` runs some of these scenarios on weak memory.

use mmscale_arch::{Atomic, Cpu, CpuId, Ipi, Machine as _};
use mmscale_interleave::{
    CpuBody, Hooks, Model, Plain, check, cpu_body, interrupt, run, set_online,
};
use mmscale_mm::rcu::{Rcu, Speed};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};

/// The content of a version that may be used.
const SOUND: u64 = 7;

/// Versions of an object, each of which is poisoned after it was replaced.
pub(crate) struct Shared {
    pub(crate) rcu: Rcu<Model>,
    current: <Model as Cpu>::AtomicU32,
    versions: [Plain; 4],
}

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
    pub(crate) fn new() -> Self {
        let versions = core::array::from_fn(|_| Plain::new(SOUND));
        Self { rcu: Rcu::new(), current: Atomic::new(0), versions }
    }
    /// Replaces the current version by the next, and poisons the old one after a grace period of
    /// `rcu`.
    pub(crate) fn replace(&self, rcu: &Rcu<Model>, speed: Speed) {
        let old = self.current.fetch_add(1, Release) as usize;
        match speed {
            Speed::Normal => rcu.synchronize(),
            Speed::Expedited => rcu.synchronize_expedited(),
        }
        self.versions[old].set(0);
    }
    /// Uses the current version after `steps`.
    pub(crate) fn read(&self, steps: usize) {
        let version = self.current.load(Acquire) as usize;
        (0..steps).for_each(|_| Model::user(0));
        self.expect(version);
    }
    fn expect(&self, version: usize) {
        assert_eq!(self.versions[version].get(), SOUND, "used after it was freed");
    }
}

/// A writer that replaces and frees, and `readers` CPUs that do `read`, after `before`.
fn against_a_writer(
    speed: Speed,
    readers: usize,
    before: fn(),
    read: impl Fn(&Shared) + Clone + Send + 'static,
) {
    run(1 + readers, || {
        let shared = Arc::new(Shared::new());
        before();
        let body = |f: Box<dyn Fn(&Shared) + Send>| {
            let shared = Arc::clone(&shared);
            cpu_body(move || f(&shared))
        };
        let write = body(Box::new(move |shared| shared.replace(&shared.rcu, speed)));
        let readers = (0..readers).map(|_| body(Box::new(read.clone())));
        let bodies: Vec<CpuBody> = core::iter::once(write).chain(readers).collect();
        (Some(shared.clone() as Arc<dyn Hooks>), bodies)
    });
}

/// Two CPUs with readers and ticks against a writer. `guarded`: readers mark their sections.
pub(crate) fn scenario(speed: Speed, guarded: bool) {
    against_a_writer(
        speed,
        2,
        || (),
        move |shared| {
            for _ in 0..2 {
                let guard = guarded.then(|| shared.rcu.read());
                shared.read(1);
                drop(guard);
                interrupt(|| shared.rcu.tick());
            }
        },
    );
}

#[test]
fn nothing_is_freed_under_a_reader() {
    check(4000, || scenario(Speed::Normal, true));
}

#[test]
fn an_expedited_grace_period_waits_as_well() {
    check(4000, || scenario(Speed::Expedited, true));
}

/// Two writers, each of which frees what it replaced, and a reader that may begin between the two
/// grace periods: the one in progress when the second writer starts does not cover that reader.
#[test]
fn a_reader_that_begins_between_two_grace_periods_is_waited_for() {
    for speed in [Speed::Normal, Speed::Expedited] {
        check(700, move || {
            run(3, || {
                let shared = Arc::new(Shared::new());
                let writer = |_| {
                    let shared = Arc::clone(&shared);
                    cpu_body(move || shared.replace(&shared.rcu, speed))
                };
                let reader = Arc::clone(&shared);
                let reader = cpu_body(move || {
                    for _ in 0..2 {
                        interrupt(|| reader.rcu.tick());
                        let guard = reader.rcu.read();
                        reader.read(5);
                        drop(guard);
                    }
                });
                let bodies = (0..2).map(writer).chain([reader]).collect();
                (Some(shared.clone() as Arc<dyn Hooks>), bodies)
            });
        });
    }
}

/// Three writers want an expedited grace period. The first runs one; of the others, one runs the
/// next and the other sleeps in the funnel, or they find it done.
#[test]
fn callers_in_the_funnel_are_served_by_a_grace_period_after_their_call() {
    check(1500, || {
        run(4, || {
            let shared = Arc::new(Shared::new());
            let writer = |_| {
                let shared = Arc::clone(&shared);
                cpu_body(move || shared.replace(&shared.rcu, Speed::Expedited))
            };
            let reader = Arc::clone(&shared);
            let reader = cpu_body(move || {
                for _ in 0..3 {
                    let guard = reader.rcu.read();
                    reader.read(4);
                    drop(guard);
                    interrupt(|| reader.rcu.tick());
                }
            });
            let bodies = (0..3).map(writer).chain([reader]).collect();
            (Some(shared.clone() as Arc<dyn Hooks>), bodies)
        });
    });
}

/// CPU 2 passes no quiescent state unless it is interrupted, until the expedited writer is served:
/// a normal grace period before that one, under way or about to begin, is expedited too.
#[test]
fn a_normal_grace_period_does_not_delay_an_expedited_caller() {
    check(1500, || {
        run(3, || {
            let shared = Arc::new(Shared::new());
            let (slow, fast) = (Arc::clone(&shared), Arc::clone(&shared));
            let served: Arc<<Model as Cpu>::AtomicU32> = Arc::new(Atomic::new(0));
            let seen = Arc::clone(&served);
            let bodies = vec![
                cpu_body(move || slow.rcu.synchronize()),
                cpu_body(move || {
                    fast.rcu.synchronize_expedited();
                    served.store(1, SeqCst);
                }),
                cpu_body(move || {
                    while seen.load(SeqCst) == 0 {
                        Model::relax();
                    }
                }),
            ];
            (Some(shared.clone() as Arc<dyn Hooks>), bodies)
        });
    });
}

/// `readers` CPUs that leave idle and read for `steps`, twice, against a writer. A CPU that was
/// idle when the grace period began to check it may be in a reader by now.
pub(crate) fn leaving_idle(speed: Speed, readers: usize, steps: usize) {
    against_a_writer(
        speed,
        readers,
        || (),
        move |shared| {
            for _ in 0..2 {
                Model::unpark(Model::current());
                Model::park();
                let guard = shared.rcu.read();
                shared.read(steps);
                drop(guard);
            }
        },
    );
}

/// As [`scenario`], of readers one of which is on a CPU that has left the online mask.
pub(crate) fn leaving_the_mask() {
    let left = || set_online(2, false);
    against_a_writer(Speed::Normal, 2, left, |shared| {
        let guard = shared.rcu.read();
        shared.read(1);
        drop(guard);
        interrupt(|| shared.rcu.tick());
    });
}

#[test]
fn a_cpu_that_leaves_idle_is_waited_for() {
    check(700, || leaving_idle(Speed::Normal, 1, 3));
}

#[test]
fn a_nested_reader_is_waited_for_to_its_outer_end() {
    let nested = |shared: &Shared| {
        let outer = shared.rcu.read();
        let version = shared.current.load(Acquire) as usize;
        (0..2).for_each(|_| {
            let inner = shared.rcu.read();
            Model::user(0);
            drop(inner);
        });
        shared.expect(version);
        drop(outer);
    };
    let twice = move |shared: &Shared| (0..2).for_each(|_| nested(shared));
    check(700, move || against_a_writer(Speed::Expedited, 1, || (), twice));
}

#[test]
fn two_writers_share_or_queue_and_both_end() {
    check(2000, || {
        run(2, || {
            let rcu = Arc::new(Shared::new());
            let (a, b) = (Arc::clone(&rcu), Arc::clone(&rcu));
            let bodies = vec![
                cpu_body(move || a.rcu.synchronize()),
                cpu_body(move || b.rcu.synchronize_expedited()),
            ];
            (Some(rcu.clone() as Arc<dyn Hooks>), bodies)
        });
    });
}

/// CPU 2 leaves and dies while a grace period begins: it looked at CPU 2 and has not asked it yet,
/// or has.
#[test]
fn a_cpu_that_dies_while_a_grace_period_begins_is_not_waited_for() {
    for speed in [Speed::Normal, Speed::Expedited] {
        check(700, move || {
            run(3, || {
                let shared = Arc::new(Shared::new());
                let (writer, controller) = (Arc::clone(&shared), Arc::clone(&shared));
                let runs = Arc::new(<Model as Cpu>::AtomicU32::new(1));
                let gone = Arc::clone(&runs);
                let bodies = vec![
                    cpu_body(move || writer.replace(&writer.rcu, speed)),
                    cpu_body(move || {
                        while runs.load(SeqCst) == 1 {
                            interrupt(|| controller.rcu.tick());
                            Model::relax();
                        }
                        set_online(2, false);
                        controller.rcu.cpu_dead(CpuId::new(2));
                    }),
                    cpu_body(move || gone.store(0, SeqCst)),
                ];
                (Some(shared.clone() as Arc<dyn Hooks>), bodies)
            });
        });
    }
}
