//! Delayed work: queued, timed, cancelled and flushed from different CPUs.

use mmscale_arch::{Atomic, Cpu, CpuId, Machine as _, TaskEntry};
use mmscale_interleave::{Model, check, cpu_body, interrupt, run};
use mmscale_mm::time::{Expiry, Time};
use mmscale_mm::work::{Work, WorkItem};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

const ITEM: WorkItem = WorkItem::PurgeStacks;
/// The worker's CPU; the others are 0 and 1.
const WORKER: CpuId = CpuId::new(2);

struct Shared {
    time: Time<Model>,
    work: Work<Model>,
    running: <Model as Cpu>::AtomicU32,
    runs: <Model as Cpu>::AtomicU32,
}

impl Shared {
    fn new() -> Arc<Self> {
        let shared = Self {
            time: Time::new().expect("the model's HZ is fine"),
            work: Work::new(),
            running: Atomic::new(0),
            runs: Atomic::new(0),
        };
        shared.work.start_worker(WORKER, TaskEntry(0));
        Arc::new(shared)
    }
    /// The worker's body: the work is never in two queues at the same time.
    fn worker(&self) {
        self.work.worker(WORKER, |item| {
            assert_eq!(item, ITEM);
            assert_eq!(self.running.swap(1, SeqCst), 0, "it runs twice at a time");
            Model::user(0);
            self.runs.fetch_add(1, SeqCst);
            self.running.store(0, SeqCst);
        });
    }
    /// The timer interrupt of a CPU, after its timers have expired.
    fn timers(&self) {
        interrupt(|| {
            self.time.idle_exit();
            self.time.interrupt(|slot| self.work.expired(Model::cpu(), slot));
        });
    }
}

fn scenario(first: impl FnOnce(&Shared) + Send + 'static, second: fn(&Shared)) -> Arc<Shared> {
    let mut made = None;
    run(3, || {
        let shared = Shared::new();
        made = Some(Arc::clone(&shared));
        let (a, b, w) = (Arc::clone(&shared), Arc::clone(&shared), Arc::clone(&shared));
        let one = cpu_body(move || {
            first(&a);
            a.work.shutdown();
        });
        let two = cpu_body(move || second(&b));
        (None, vec![one, two, cpu_body(move || w.worker())])
    });
    made.expect("the scenario was built")
}

#[test]
fn flushed_work_has_run() {
    check(3000, || {
        scenario(
            |shared| {
                if shared.work.queue_on(WORKER, ITEM) {
                    let before = shared.runs.load(SeqCst);
                    shared.work.flush(ITEM);
                    let after = shared.runs.load(SeqCst);
                    assert!(after > 0 && after >= before, "it has not run yet");
                }
            },
            |shared| {
                shared.work.queue_on(WORKER, ITEM);
            },
        );
    });
}

#[test]
fn cancelled_work_neither_waits_nor_runs() {
    check(3000, || {
        scenario(
            |shared| {
                shared.work.queue_on(WORKER, ITEM);
                shared.work.disable_sync(&shared.time, ITEM);
                let runs = shared.runs.load(SeqCst);
                assert_eq!(shared.running.load(SeqCst), 0, "it still runs");
                Model::user(0);
                assert_eq!(shared.runs.load(SeqCst), runs, "it ran after it was cancelled");
                assert!(!shared.work.is_pending(ITEM));
            },
            |shared| {
                shared.work.queue_on(WORKER, ITEM);
                shared.work.queue_on(WORKER, ITEM);
            },
        );
    });
}

/// The timer expires on CPU 1 while CPU 0 cancels: the work runs once or not at all, and is not
/// left in between.
#[test]
fn a_timer_that_goes_off_while_its_work_is_cancelled() {
    check(3000, || {
        let shared = scenario(
            |shared| {
                let cancelled = shared.work.cancel_sync(&shared.time, ITEM);
                let runs = shared.runs.load(SeqCst);
                assert!(runs <= 1 && !(cancelled && runs == 1), "cancelled, and yet it ran");
            },
            |shared| {
                let soon = Expiry::Standard { jiffies: 1 };
                shared.work.queue_delayed_on(&shared.time, CpuId::new(1), ITEM, soon);
                (0..3).for_each(|_| shared.timers());
            },
        );
        assert!(shared.runs.load(SeqCst) <= 1);
    });
}

#[test]
fn workers_leave_with_their_queues_empty() {
    check(2000, || {
        let shared =
            scenario(|shared| assert!(shared.work.queue_on(WORKER, ITEM)), |_| Model::relax());
        assert_eq!(shared.runs.load(SeqCst), 1);
        assert!(shared.work.is_idle());
    });
}
