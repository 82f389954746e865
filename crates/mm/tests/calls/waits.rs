//! Waits for calls: with preemption or interrupts off, and for how long.

use crate::calls::common::{POLICIES, World, counter, cpus, test};
use mmscale_arch::{Atomic, Cpu, CpuId};
use mmscale_mm::smp::{CallPolicy, Here, SmpConfig, Wait};
use mmscale_stepped::{self as stepped, Stepped};
use std::cell::Cell;
use std::rc::Rc;

/// Whether the calling CPU could be preempted.
fn is_preemptible() -> bool {
    stepped::preempt_depth() == 0
}

#[test]
fn preemption_is_off_in_the_queue_phase_and_in_the_wait_of_stock_alone() {
    for policy in POLICIES {
        let world = World::new(policy, 2);
        let (seen, in_wait) = counter();
        let deliver = {
            let world = World { smp: Rc::clone(&world.smp), log: Rc::clone(&world.log) };
            move || {
                seen.set(1 + u32::from(is_preemptible()));
                world.deliver();
            }
        };
        stepped::on_relax(deliver);
        let in_queue = Cell::new(true);
        let cond = |_: CpuId| {
            in_queue.set(!is_preemptible());
            true
        };
        let run = |_| ();
        world.smp.call_function_many(cpus(&[1]), cond, test(1), Here::Skip, Wait::Spin, &run);
        assert!(in_queue.get(), "{policy:?}");
        assert_eq!(in_wait.get(), 1 + u32::from(policy != CallPolicy::Stock), "{policy:?}");
        stepped::assert_quiet();
    }
}

#[test]
fn a_record_in_use_is_waited_for_and_a_request_has_one_of_its_own() {
    for policy in POLICIES {
        let world = World::new(policy, 2);
        world.call(&[1], 1, Wait::No);
        let (count, turns) = counter();
        let late = World { smp: Rc::clone(&world.smp), log: Rc::clone(&world.log) };
        stepped::on_relax(move || {
            count.set(count.get() + 1);
            stepped::advance(1_000);
            late.deliver();
        });
        world.call(&[1], 2, Wait::No);
        let stats = world.smp.stats();
        match policy {
            CallPolicy::Requests => {
                assert_eq!((turns.get(), stats.csd_lock_total_ns), (0, 0));
                assert_eq!((stats.ipis_sent, stats.ipis_elided), (1, 1));
            }
            CallPolicy::Stock | CallPolicy::Posted => {
                assert_eq!((turns.get(), stats.csd_lock_max_ns), (1, 1_000), "{policy:?}");
                assert!(stats.preempt_off_queue_phase_max_ns >= 1_000, "{policy:?}");
            }
        }
        world.deliver();
        assert_eq!(world.ran(), [(1, 1), (1, 2)], "{policy:?}");
    }
}

#[test]
fn the_time_until_all_have_answered_is_counted() {
    for policy in POLICIES {
        let world = World::new(policy, 3);
        let late = World { smp: Rc::clone(&world.smp), log: Rc::clone(&world.log) };
        let patience = Cell::new(3);
        stepped::on_relax(move || {
            stepped::advance(700);
            patience.set(patience.get() - 1);
            if patience.get() == 0 {
                late.deliver();
            }
        });
        world.call(&[1, 2], 1, Wait::Spin);
        let stats = world.smp.stats();
        assert_eq!((stats.csd_wait_total_ns, stats.csd_wait_max_ns), (2_100, 2_100), "{policy:?}");
        assert!(stats.preempt_off_queue_phase_max_ns < 700, "{policy:?}");
    }
}

#[test]
fn a_caller_of_requests_that_may_sleep_does_and_is_woken_by_the_last_target() {
    let world = World::new(CallPolicy::Requests, 3);
    stepped::on_relax(|| stepped::advance(1_000));
    let late = World { smp: Rc::clone(&world.smp), log: Rc::clone(&world.log) };
    let (count, parks) = counter();
    stepped::on_park(move || {
        count.set(count.get() + 1);
        late.deliver();
    });
    world.call(&[1, 2], 1, Wait::Sleep);
    assert_eq!((parks.get(), world.ran()), (1, vec![(1, 1), (2, 1)]));
    assert_eq!(world.smp.stats().sleeps, 1);
}

#[test]
fn a_caller_without_a_slot_waits_with_preemption_on() {
    let world = World::new(CallPolicy::Requests, 2);
    (0..62).for_each(|call| {
        world.call(&[1], call, Wait::No);
    });
    let late = World { smp: Rc::clone(&world.smp), log: Rc::clone(&world.log) };
    stepped::on_relax(move || {
        assert!(is_preemptible());
        late.deliver();
    });
    world.call(&[1], 62, Wait::No);
    world.deliver();
    let ran: Vec<_> = world.ran().into_iter().map(|(_, call)| call).collect();
    assert_eq!(ran, (0..63).collect::<Vec<_>>());
}

#[test]
fn a_long_queue_phase_is_cut_into_pieces_with_requests() {
    for policy in POLICIES {
        let world = World::new(policy, 512);
        let cond = |_| {
            // As long as one poll and one interrupt take at most.
            stepped::advance(500);
            true
        };
        let all: Vec<_> = (0..512).collect();
        let run = |_| ();
        world.smp.call_function_many(cpus(&all), cond, test(1), Here::Run, Wait::Spin, &run);
        let queue_ns = world.smp.stats().preempt_off_queue_phase_max_ns;
        assert_eq!(queue_ns <= 20_000, policy == CallPolicy::Requests, "{policy:?}: {queue_ns}");
    }
}

#[test]
fn a_cpu_that_never_answers_is_named() {
    for (policy, wait) in [
        (CallPolicy::Stock, Wait::Spin),
        (CallPolicy::Posted, Wait::Spin),
        (CallPolicy::Requests, Wait::Spin),
        (CallPolicy::Requests, Wait::Sleep),
    ] {
        let world =
            World::with(SmpConfig { policy, timeout_ns: 3_000_000, ..SmpConfig::default() }, 3);
        stepped::on_relax(|| stepped::advance(10_000));
        let smp = Rc::clone(&world.smp);
        stepped::on_park(move || {
            // The upkeep's shepherd runs.
            stepped::advance(1_000_000_000);
            smp.watch();
        });
        let call = std::panic::AssertUnwindSafe(|| world.call(&[2], 1, wait));
        let failure = std::panic::catch_unwind(call).expect_err("no CPU responds");
        let message = failure.downcast_ref::<String>().expect("it says why");
        let named =
            message.starts_with("cpu2 has not answered the call `flush_tlb_func` of cpu0 for ");
        assert!(named, "{policy:?}: {message}");
    }
}

#[test]
fn two_cpus_call_one_another_at_the_same_time() {
    for policy in POLICIES {
        let world = World::new(policy, 2);
        let other = Rc::new(World { smp: Rc::clone(&world.smp), log: Rc::clone(&world.log) });
        let begun = <Stepped as Cpu>::AtomicU32::new(0);
        stepped::on_relax(move || {
            let back = crate::calls::common::cpu();
            if begun.swap(1, std::sync::atomic::Ordering::SeqCst) == 0 {
                // While CPU 0 waits, CPU 1 calls it, and handles interrupts while it waits itself.
                stepped::set_cpu(1);
                other.call(&[0], 10, Wait::Spin);
                stepped::set_cpu(back);
            }
            other.deliver();
        });
        world.call(&[1], 1, Wait::Spin);
        let mut ran = world.ran();
        ran.sort_unstable();
        assert_eq!(ran, [(0, 10), (1, 1)], "{policy:?}");
    }
}
