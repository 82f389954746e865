//! CPUs that go offline and come back.

use crate::common::{Script, config, fair, run_script, run_well};
use mmscale_arch::sync::IrqGuard;
use mmscale_arch::{Cpu as _, CpuId, CpuMask, HotplugError, Ipi, Machine as _, TaskSpec};
use mmscale_sim::{Policy, Sim, SimConfig};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const GONE: CpuId = CpuId::new(1);

#[test]
fn a_cpu_leaves_in_order_and_comes_back() {
    let kept = Rc::new(RefCell::new(None));
    run_well(config(3), |script| {
        let mine = Rc::clone(script);
        *kept.borrow_mut() = Some(Rc::clone(script));
        script.spawn(0, move || {
            assert_eq!(Sim::cpu_offline(GONE), Ok(()));
            assert!(!Sim::is_online(GONE));
            let mut mask = CpuMask::EMPTY;
            Sim::online(&mut mask);
            assert_eq!(mask.iter().map(CpuId::index).collect::<Vec<_>>(), [0, 2]);
            assert_eq!(*mine.hotplug.borrow(), [("down_prepare", GONE), ("dead", GONE)]);
            assert_eq!(Sim::cpu_offline(GONE), Err(HotplugError::NotNow));
            assert_eq!(Sim::cpu_online(GONE), Ok(()));
            assert!(Sim::is_online(GONE));
            assert_eq!(mine.hotplug.borrow()[2], ("online", GONE));
            assert_eq!(Sim::cpu_online(GONE), Err(HotplugError::NotNow));
            assert_eq!(Sim::cpu_online(CpuId::new(7)), Err(HotplugError::NoSuchCpu));
            let ran_on = Rc::new(Cell::new(None));
            let out = Rc::clone(&ran_on);
            mine.spawn(1, move || out.set(Some(Sim::cpu())));
            Sim::user(50_000);
            assert_eq!(ran_on.get(), Some(GONE));
        });
    });
    drop(kept);
}

#[test]
fn tasks_of_a_leaving_cpu_go_elsewhere_and_bound_ones_wait() {
    run_well(config(4), |script| {
        let log = Rc::new(RefCell::new(Vec::new()));
        let note = |what: &'static str| {
            let log = Rc::clone(&log);
            move || log.borrow_mut().push((what, Sim::cpu().index()))
        };
        let (done, bound, slept) = (note("computed"), note("bound"), note("slept"));
        script.spawn(1, move || {
            Sim::user(300_000);
            done();
        });
        let sleeper = script.spawn(1, move || {
            Sim::park();
            slept();
        });
        let worker = script.spawn_as(TaskSpec { per_cpu: true, ..fair(1) }, move || {
            Sim::park();
            bound();
        });
        script.spawn(3, move || {
            Sim::user(100_000);
            assert_eq!(Sim::cpu_offline(GONE), Ok(()));
            Sim::unpark(worker);
            Sim::unpark(sleeper);
            Sim::user(2_000_000);
            assert_eq!(*log.borrow(), [("computed", 0), ("slept", 0)]);
            assert_eq!(Sim::cpu_online(GONE), Ok(()));
            Sim::user(100_000);
            assert_eq!(log.borrow()[2], ("bound", 1));
        });
    });
}

#[test]
fn a_leaving_cpu_finishes_its_critical_section_and_handles_what_was_sent() {
    run_well(config(3), |script| {
        let handled = Rc::new(Cell::new(0));
        let count = Rc::clone(&handled);
        *script.on_ipi.borrow_mut() = Some(Box::new(move |_| count.set(count.get() + 1)));
        let left_at = Rc::new(Cell::new(0));
        let at = Rc::clone(&left_at);
        script.spawn(1, move || {
            let off = IrqGuard::<Sim>::new();
            Sim::user(90_000);
            at.set(Sim::now_ns());
            drop(off);
        });
        script.spawn(0, move || {
            Sim::user(10_000);
            Sim::ipi_send(GONE, Ipi::CallFunction);
            assert_eq!(Sim::cpu_offline(GONE), Ok(()));
            assert!(left_at.get() > 89_000 && Sim::now_ns() > left_at.get());
            assert_eq!(handled.get(), 1);
        });
    });
}

#[test]
fn the_caller_may_stand_on_the_cpu_that_leaves_but_not_on_the_last_one() {
    run_well(config(2), |script| {
        script.spawn(1, || {
            assert_eq!(Sim::cpu_offline(GONE), Ok(()));
            assert_eq!(Sim::cpu(), CpuId::new(0));
            assert_eq!(Sim::cpu_offline(CpuId::new(0)), Err(HotplugError::LastCpu));
        });
        script.spawn_as(TaskSpec { per_cpu: true, ..fair(0) }, || {
            assert_eq!(Sim::cpu_offline(CpuId::new(0)), Err(HotplugError::NotNow));
        });
    });
}

fn churn(script: &Rc<Script>, cpus: usize) {
    for cpu in 0..cpus {
        script.spawn(cpu, || {
            for round in 0..200 {
                Sim::user(1_000 + round * 37 % 900);
                Sim::relax();
            }
        });
    }
    script.spawn(0, move || {
        for round in 0..20 {
            let cpu = CpuId::new(1 + round * 5 % (cpus - 1));
            assert_eq!(Sim::cpu_offline(cpu), Ok(()));
            Sim::user(3_000);
            assert_eq!(Sim::cpu_online(cpu), Ok(()));
        }
    });
}

#[test]
fn hotplug_is_the_same_under_both_policies() {
    for seed in 0..10 {
        let run = |policy| {
            let config = SimConfig { seed, policy, ..config(6) };
            let outcome = run_script(config, |script| churn(script, 6));
            assert_eq!((&outcome.failure, outcome.violations), (&None, vec![]));
            (outcome.fingerprint, outcome.virtual_ns)
        };
        assert_eq!(run(Policy::Lazy), run(Policy::Naive));
    }
}
