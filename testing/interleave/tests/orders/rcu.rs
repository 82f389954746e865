//! Grace periods against readers.

use mmscale_arch::{Atomic, Cpu, CpuId, Ipi, Machine as _};
use mmscale_interleave::{Hooks, Model, check, cpu_body, interrupt, run, set_online};
use mmscale_mm::rcu::{Rcu, Speed};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

/// Versions of an object; `freed` marks those that may not be used any more.
pub(crate) struct Shared {
    rcu: Rcu<Model>,
    current: <Model as Cpu>::AtomicU32,
    freed: [<Model as Cpu>::AtomicU32; 4],
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
    fn new() -> Self {
        Self {
            rcu: Rcu::new(),
            current: Atomic::new(0),
            freed: core::array::from_fn(|_| Atomic::new(0)),
        }
    }
    /// Replaces the current version by the next, and frees the old one.
    fn replace(&self, speed: Speed) {
        let old = self.current.fetch_add(1, SeqCst) as usize;
        match speed {
            Speed::Normal => self.rcu.synchronize(),
            Speed::Expedited => self.rcu.synchronize_expedited(),
        }
        self.freed[old].store(1, SeqCst);
    }
    /// Reads the current version, which takes `steps`.
    fn read(&self, steps: usize) {
        let version = self.current.load(SeqCst) as usize;
        (0..steps).for_each(|_| Model::cond_resched());
        assert_eq!(self.freed[version].load(SeqCst), 0, "used after it was freed");
    }
}

/// A writer that replaces and frees, and two CPUs with readers and ticks. `guarded`: readers mark
/// their sections.
pub(crate) fn scenario(speed: Speed, guarded: bool) {
    run(3, || {
        let shared = Arc::new(Shared::new());
        let writer = Arc::clone(&shared);
        let write = cpu_body(move || {
            writer.replace(speed);
        });
        let reader = |_| {
            let shared = Arc::clone(&shared);
            cpu_body(move || {
                for _ in 0..2 {
                    let guard = guarded.then(|| shared.rcu.read());
                    shared.read(1);
                    drop(guard);
                    interrupt(|| shared.rcu.tick());
                }
            })
        };
        let bodies = core::iter::once(write).chain((0..2).map(reader)).collect();
        (Some(shared.clone() as Arc<dyn Hooks>), bodies)
    });
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
                    cpu_body(move || shared.replace(speed))
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
                cpu_body(move || shared.replace(Speed::Expedited))
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
            let (slow, fast, busy) =
                (Arc::clone(&shared), Arc::clone(&shared), Arc::clone(&shared));
            let bodies = vec![
                cpu_body(move || slow.rcu.synchronize()),
                cpu_body(move || {
                    fast.rcu.synchronize_expedited();
                    fast.freed[0].store(1, SeqCst);
                }),
                cpu_body(move || {
                    while busy.freed[0].load(SeqCst) == 0 {
                        Model::relax();
                    }
                }),
            ];
            (Some(shared.clone() as Arc<dyn Hooks>), bodies)
        });
    });
}

/// A writer that replaces once, and a CPU that runs `read`, with whatever precedes it.
fn against_a_writer(speed: Speed, read: fn(&Shared)) {
    check(700, move || {
        run(2, || {
            let shared = Arc::new(Shared::new());
            let (writer, reader) = (Arc::clone(&shared), Arc::clone(&shared));
            let bodies = vec![
                cpu_body(move || writer.replace(speed)),
                cpu_body(move || (0..2).for_each(|_| read(&reader))),
            ];
            (Some(shared.clone() as Arc<dyn Hooks>), bodies)
        });
    });
}

/// A CPU that was idle when the grace period began to check it may be in a reader by now.
#[test]
fn a_cpu_that_leaves_idle_is_waited_for() {
    against_a_writer(Speed::Normal, |shared| {
        Model::unpark(Model::current());
        Model::park();
        let guard = shared.rcu.read();
        shared.read(3);
        drop(guard);
    });
}

#[test]
fn a_nested_reader_is_waited_for_to_its_outer_end() {
    against_a_writer(Speed::Expedited, |shared| {
        let outer = shared.rcu.read();
        let version = shared.current.load(SeqCst) as usize;
        (0..2).for_each(|_| {
            let inner = shared.rcu.read();
            Model::cond_resched();
            drop(inner);
        });
        assert_eq!(shared.freed[version].load(SeqCst), 0, "used after it was freed");
        drop(outer);
    });
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
                let (writer, controller, gone) =
                    (Arc::clone(&shared), Arc::clone(&shared), Arc::clone(&shared));
                let bodies = vec![
                    cpu_body(move || writer.replace(speed)),
                    cpu_body(move || {
                        while controller.freed[2].load(SeqCst) == 0 {
                            interrupt(|| controller.rcu.tick());
                            Model::relax();
                        }
                        set_online(2, false);
                        controller.rcu.cpu_dead(CpuId::new(2));
                    }),
                    cpu_body(move || gone.freed[2].store(1, SeqCst)),
                ];
                (Some(shared.clone() as Arc<dyn Hooks>), bodies)
            });
        });
    }
}
