//! Which CPU runs a call, how often, in which order, and which CPUs are interrupted for it.

use crate::calls::common::{POLICIES, World, cpus, test};
use mmscale_arch::CpuId;
use mmscale_mm::smp::{CallPolicy, Here, Reached, Wait};
use mmscale_stepped as stepped;

#[test]
fn a_call_runs_once_on_each_target_and_here_if_asked() {
    for policy in POLICIES {
        let world = World::new(policy, 4);
        let reached = world.call(&[0, 1, 3], 7, Wait::Spin);
        assert_eq!(reached, Reached { others: 2, here: 1 });
        let mut ran = world.ran();
        assert_eq!(ran[0], (0, 7), "{policy:?}: locally while the others are on their way");
        ran.sort_unstable();
        assert_eq!(ran, [(0, 7), (1, 7), (3, 7)], "{policy:?}");
        let skipped = world.smp.call_function_many(
            cpus(&[0, 2]),
            |_| true,
            test(8),
            Here::Skip,
            Wait::Spin,
            &|_| panic!("it does not run here"),
        );
        assert_eq!((skipped, world.ran()), (Reached { others: 1, here: 0 }, vec![(2, 8)]));
        stepped::assert_quiet();
    }
}

#[test]
fn a_condition_is_evaluated_for_each_target_and_can_exclude_it() {
    for policy in POLICIES {
        let world = World::new(policy, 6);
        let asked = std::cell::RefCell::new(Vec::new());
        let odd = |cpu: CpuId| {
            asked.borrow_mut().push(cpu.index());
            cpu.index() % 2 == 1
        };
        let targets = cpus(&[1, 2, 3, 4]);
        let run = |_| panic!("this CPU is not among them");
        world.smp.call_function_many(targets, odd, test(1), Here::Run, Wait::Spin, &run);
        assert_eq!((world.ran(), asked.take()), (vec![(1, 1), (3, 1)], vec![1, 2, 3, 4]));
        let stats = world.smp.stats();
        assert_eq!((stats.ipis_sent, stats.ipis_elided, stats.calls), (2, 0, 1), "{policy:?}");
    }
}

#[test]
fn a_caller_sends_no_interrupt_while_one_is_pending() {
    for policy in POLICIES {
        let world = World::new(policy, 3);
        for source in [0, 2] {
            stepped::set_cpu(source);
            world.call(&[1], source as u64, Wait::No);
        }
        let stats = world.smp.stats();
        assert_eq!((stats.ipis_sent, stats.ipis_elided), (1, 1), "{policy:?}");
        assert!(world.smp.is_queued(CpuId::new(1)));
        assert_eq!((world.deliver(), world.ran()), (1, vec![(1, 0), (1, 2)]), "{policy:?}");
        assert!(!world.smp.is_queued(CpuId::new(1)));
        world.call(&[1], 9, Wait::No);
        assert_eq!((world.smp.stats().ipis_sent, world.deliver()), (2, 1), "{policy:?}");
    }
}

#[test]
fn records_run_synchronous_calls_first_and_requests_run_in_the_order_of_their_beginning() {
    for policy in POLICIES {
        let world = World::new(policy, 5);
        // Three calls that do not wait, and then one that does, each from another CPU.
        for source in [1, 2, 3] {
            stepped::set_cpu(source);
            world.call(&[4], source as u64, Wait::No);
        }
        stepped::set_cpu(0);
        world.call(&[4], 0, Wait::Spin);
        let order: Vec<_> = world.ran().into_iter().map(|(_, call)| call).collect();
        match policy {
            CallPolicy::Requests => assert_eq!(order, [1, 2, 3, 0]),
            CallPolicy::Stock | CallPolicy::Posted => assert_eq!(order, [0, 1, 2, 3]),
        }
    }
}

#[test]
fn every_cpu_that_is_online_is_called() {
    for policy in POLICIES {
        let world = World::new(policy, 40);
        stepped::set_online(7, false);
        let log = std::rc::Rc::clone(&world.log);
        let run = move |_| log.ran.borrow_mut().push((crate::calls::common::cpu(), 3));
        let reached = world.smp.on_each_cpu(test(3), Wait::Spin, &run);
        assert_eq!(reached, Reached { others: 38, here: 1 }, "{policy:?}");
        let mut ran: Vec<_> = world.ran().into_iter().map(|(cpu, _)| cpu).collect();
        ran.sort_unstable();
        let all: Vec<_> = (0..40).filter(|&cpu| cpu != 7).collect();
        assert_eq!(ran, all, "{policy:?}");
    }
}

#[test]
fn requests_take_memory_that_grows_with_the_cpus_and_records_with_their_square() {
    let bytes = |policy, count| World::new(policy, count).smp.memory_bytes();
    for policy in [CallPolicy::Stock, CallPolicy::Posted] {
        assert!(bytes(policy, 512) >= 512 * 512 * 32, "{policy:?}");
        assert!(bytes(policy, 512) / bytes(policy, 256) >= 3, "{policy:?}");
    }
    // A record for each pair; for each CPU a queue, and a mask of 64 bytes or two.
    assert_eq!(bytes(CallPolicy::Stock, 512), 512 * (512 * 32 + 64 + 2 * 64));
    assert_eq!(bytes(CallPolicy::Posted, 512), 512 * (512 * 32 + 64 + 64));
    let (small, large) = (bytes(CallPolicy::Requests, 256), bytes(CallPolicy::Requests, 512));
    // A word for each CPU, and at least 64 bytes for each of the 64 requests.
    assert!((256 * 8 + 64 * 64..2 * small).contains(&large), "{small} {large}");
    assert!(large * 50 <= bytes(CallPolicy::Stock, 512), "{large}");
}

#[test]
#[should_panic(expected = "from an interrupt")]
fn a_call_from_an_interrupt_is_refused() {
    let world = World::new(CallPolicy::Stock, 2);
    stepped::interrupt(|| world.call(&[1], 1, Wait::Spin));
}

#[test]
#[should_panic(expected = "with interrupts off")]
fn a_call_with_interrupts_off_is_refused() {
    let world = World::new(CallPolicy::Requests, 2);
    let _off = mmscale_arch::sync::IrqGuard::<stepped::Stepped>::new();
    world.call(&[1], 1, Wait::No);
}
