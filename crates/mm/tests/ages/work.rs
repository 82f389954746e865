//! Work queues: pending work, delays, cancelling, hotplug.

use crate::ages::machine::Machine;
use mmscale_arch::{Cpu as _, CpuId, Func, Op, TaskId};
use mmscale_mm::time::{Expiry, Time};
use mmscale_mm::vmstat_work::TickPolicy;
use mmscale_mm::work::{Step, Work, WorkItem};
use mmscale_stepped::{self as stepped, Stepped};

const ITEM: WorkItem = WorkItem::PurgeStacks;

fn boot(cpus: usize) -> (Time<Stepped>, Work<Stepped>) {
    stepped::boot(cpus, 1000);
    let work = Work::new();
    (0..cpus).for_each(|cpu| work.start_worker(CpuId::new(cpu), mmscale_arch::TaskEntry(0)));
    let time = Time::new().unwrap();
    stepped::interrupt(|| time.idle_exit());
    (time, work)
}

/// Runs the queued work of this CPU; returns it.
fn drain(work: &Work<Stepped>) -> Vec<WorkItem> {
    let mut ran = Vec::new();
    while work.step(Stepped::cpu(), &mut |item| ran.push(item)) == Step::Ran {}
    ran
}

fn tick(time: &Time<Stepped>, work: &Work<Stepped>) {
    let at_ns = stepped::take_timer().expect("the CPU ticks");
    stepped::set_clock(at_ns);
    stepped::interrupt(|| time.interrupt(|slot| work.expired(Stepped::cpu(), slot)));
}

#[test]
fn work_is_pending_once_until_it_is_taken_up() {
    let (_, work) = boot(2);
    let cpu = CpuId::new(1);
    assert!(work.queue_on(cpu, ITEM));
    assert!(!work.queue_on(cpu, ITEM) && !work.queue_on(CpuId::new(0), ITEM));
    assert!(work.is_pending(ITEM));
    assert!(drain(&work).is_empty(), "it is for the other CPU");
    stepped::set_cpu(1);
    let mut again = false;
    let step = work.step(cpu, &mut |item| {
        assert_eq!(item, ITEM);
        assert_eq!(stepped::current_path(), [Func::ProcessOneWork]);
        assert!(!work.is_pending(ITEM), "from within it can be queued again");
        again = work.queue_on(cpu, ITEM);
    });
    assert!(step == Step::Ran && again);
    assert_eq!(drain(&work), [ITEM]);
    assert_eq!(stepped::work_count(Op::WorkRun), 2);
    stepped::assert_quiet();
}

#[test]
fn work_runs_in_the_order_in_which_it_was_queued() {
    let (_, work) = boot(1);
    let cpu = CpuId::new(0);
    let items = [ITEM, WorkItem::DrainPages(cpu), WorkItem::Shepherd, WorkItem::VmstatTick(cpu)];
    items.iter().for_each(|item| assert!(work.queue_on(CpuId::new(0), *item)));
    assert_eq!(drain(&work), items);
}

#[test]
fn delayed_work_is_pending_through_its_delay() {
    let (time, work) = boot(1);
    let cpu = CpuId::new(0);
    assert!(work.queue_delayed_on(&time, cpu, ITEM, Expiry::Standard { jiffies: 20 }));
    assert!(!work.queue_on(cpu, ITEM));
    assert!(!work.queue_delayed_on(&time, cpu, ITEM, Expiry::Deferrable { jiffies: 0 }));
    assert_eq!(work.due_ns(&time, ITEM), Some(21_000_000));
    for _ in 0..20 {
        tick(&time, &work);
        assert!(drain(&work).is_empty());
    }
    tick(&time, &work);
    assert!(work.is_pending(ITEM));
    assert_eq!(work.due_ns(&time, ITEM), None);
    assert_eq!(drain(&work), [ITEM]);
    assert!(work.queue_delayed_on(&time, cpu, ITEM, Expiry::Deferrable { jiffies: 0 }));
    assert_eq!(drain(&work), [ITEM], "without a delay it does not wait for a tick");
}

#[test]
fn cancelling_takes_work_from_its_timer_and_from_its_queue() {
    let (time, work) = boot(1);
    let cpu = CpuId::new(0);
    assert!(!work.cancel_sync(&time, ITEM));
    work.queue_delayed_on(&time, cpu, ITEM, Expiry::Standard { jiffies: 2 });
    assert!(work.cancel_sync(&time, ITEM));
    work.queue_on(cpu, ITEM);
    assert!(work.cancel_sync(&time, ITEM));
    assert!(!work.is_pending(ITEM));
    (0..10).for_each(|_| tick(&time, &work));
    assert!(drain(&work).is_empty());
    assert!(work.queue_on(cpu, ITEM), "it can be queued again immediately");
    assert!(work.disable_sync(&time, ITEM));
    assert!(!work.queue_on(cpu, ITEM));
    work.enable(ITEM);
    assert!(work.queue_on(cpu, ITEM));
}

#[test]
fn flushing_work_that_does_not_wait_returns_at_once() {
    let (time, work) = boot(1);
    assert!(!work.flush(ITEM));
    let cpu = CpuId::new(0);
    work.queue_delayed_on(&time, cpu, ITEM, Expiry::Standard { jiffies: 5 });
    assert!(!work.flush(ITEM), "a delay is not waited for");
    assert!(work.is_pending(ITEM));
}

#[test]
fn a_sleeping_worker_is_woken_once() {
    let (_, work) = boot(1);
    let cpu = CpuId::new(0);
    stepped::set_task(TaskId::new(40));
    // The worker runs until it sleeps; here a park without a token panics.
    let slept = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        work.worker(cpu, |_| {});
    }));
    assert!(slept.is_err());
    assert!(stepped::unpark_tokens().is_empty());
    work.queue_on(cpu, ITEM);
    assert_eq!(stepped::unpark_tokens(), [TaskId::new(40)]);
}

#[test]
fn a_closed_queue_empties_itself_and_passes_new_work_on() {
    let (time, work) = boot(2);
    let (here, there) = (CpuId::new(0), CpuId::new(1));
    let in_time = [WorkItem::DrainPages(there), WorkItem::LruDrain(there)];
    work.queue_on(there, in_time[0]);
    work.close(there);
    work.queue_on(there, in_time[1]);
    stepped::set_cpu(1);
    assert_eq!(drain(&work), in_time, "what was queued in time still runs");
    work.stop_worker(there);
    assert!(work.is_idle());
    work.queue_on(there, WorkItem::Shepherd);
    assert!(!work.is_idle());
    work.queue_delayed_on(&time, there, ITEM, Expiry::Standard { jiffies: 1 });
    assert!(drain(&work).is_empty());
    stepped::set_cpu(0);
    assert_eq!(drain(&work), [WorkItem::Shepherd]);
    // The dead CPU's delayed work continues here.
    time.cpu_dead(there, |slot, expiry| work.adopt(&time, there, slot, expiry));
    (0..4).for_each(|_| tick(&time, &work));
    assert_eq!(drain(&work), [ITEM]);
    // After the last worker has stopped, work is dropped, not lost in a queue.
    work.shutdown();
    drain(&work);
    assert!(work.queue_on(here, ITEM));
    assert!(!work.is_pending(ITEM) && work.is_idle());
}

#[test]
fn draining_all_caches_returns_every_page() {
    let machine = Machine::boot(3, 1000, TickPolicy::Stock);
    let frames = machine.mm.frames();
    for cpu in 0..3 {
        machine.on(cpu, || {
            let order = mmscale_arch::Order::ZERO;
            let unmovable = mmscale_frames::frame::MigrateType::Unmovable;
            let gfp = mmscale_frames::page_alloc::Gfp::KERNEL;
            let page = frames.alloc_pages(order, unmovable, gfp).unwrap();
            frames.free_pages(page, order);
        });
    }
    assert!(machine.mm.verify().unwrap().cached > 0);
    (0..3).for_each(|cpu| {
        machine.mm.work().queue_on(CpuId::new(cpu), WorkItem::DrainPages(CpuId::new(cpu)));
        machine.work_on(cpu);
    });
    let audit = machine.mm.verify().unwrap();
    // The zero page is held.
    assert_eq!((audit.cached, audit.held), (0, 1));
}

#[test]
fn work_that_belongs_to_a_cpu_never_runs_on_another() {
    let (_, work) = boot(2);
    let there = CpuId::new(1);
    work.close(there);
    stepped::set_cpu(1);
    drain(&work);
    assert!(work.queue_on(there, WorkItem::VmstatTick(there)));
    assert!(!work.is_pending(WorkItem::VmstatTick(there)));
    stepped::set_cpu(0);
    assert!(drain(&work).is_empty() && work.is_idle());
}
