//! Grace periods against readers.

use mmscale_arch::{Atomic, Cpu, Ipi, Machine as _};
use mmscale_interleave::{Hooks, Model, check, cpu_body, interrupt, run};
use mmscale_mm::rcu::{Rcu, Speed};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

/// Two versions of something; `freed` says which may not be used any more.
pub(crate) struct Shared {
    rcu: Rcu<Model>,
    current: <Model as Cpu>::AtomicU32,
    freed: [<Model as Cpu>::AtomicU32; 2],
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
    fn read(&self) {
        let version = self.current.load(SeqCst) as usize;
        Model::cond_resched();
        assert_eq!(self.freed[version].load(SeqCst), 0, "used after it was freed");
    }
}

/// A writer that replaces and frees, two CPUs with readers and ticks. `guarded`: readers say so.
pub(crate) fn scenario(speed: Speed, guarded: bool) {
    run(3, || {
        let shared = Arc::new(Shared {
            rcu: Rcu::new(),
            current: Atomic::new(0),
            freed: [Atomic::new(0), Atomic::new(0)],
        });
        let writer = Arc::clone(&shared);
        let write = cpu_body(move || {
            writer.current.store(1, SeqCst);
            match speed {
                Speed::Normal => writer.rcu.synchronize(),
                Speed::Expedited => writer.rcu.synchronize_expedited(),
            }
            writer.freed[0].store(1, SeqCst);
        });
        let reader = |_| {
            let shared = Arc::clone(&shared);
            cpu_body(move || {
                for _ in 0..2 {
                    let guard = guarded.then(|| shared.rcu.read());
                    shared.read();
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

#[test]
fn two_writers_share_or_queue_and_both_end() {
    check(2000, || {
        run(2, || {
            let rcu = Arc::new(Shared {
                rcu: Rcu::new(),
                current: Atomic::new(0),
                freed: [Atomic::new(0), Atomic::new(0)],
            });
            let (a, b) = (Arc::clone(&rcu), Arc::clone(&rcu));
            let bodies = vec![
                cpu_body(move || a.rcu.synchronize()),
                cpu_body(move || b.rcu.synchronize_expedited()),
            ];
            (Some(rcu.clone() as Arc<dyn Hooks>), bodies)
        });
    });
}
