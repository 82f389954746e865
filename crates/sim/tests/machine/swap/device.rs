//! Completion times of requests, and the CPUs that are interrupted.

use crate::common::{config, run_script, run_well};
use mmscale_arch::sync::PreemptGuard;
use mmscale_arch::{Cpu as _, CpuId, IoBusy, IoDirection, Ipi, Machine as _, PageIo, Pfn};
use mmscale_sim::{Faults, Rule, Sim, SimConfig};
use std::cell::RefCell;
use std::rc::Rc;

fn ask(direction: IoDirection, block: u32, pfn: usize) -> Result<(), IoBusy> {
    let _pinned = PreemptGuard::<Sim>::new();
    Sim::io_submit(PageIo { direction, block, pfn: Pfn::new(pfn) })
}

/// Completions: CPU, time in ns, block, whether it failed.
type Heard = Rc<RefCell<Vec<(usize, u64, u32, bool)>>>;

/// Takes completions as they occur.
fn hear(script: &crate::common::Script) -> Heard {
    let heard = Heard::default();
    let keep = Rc::clone(&heard);
    *script.on_ipi.borrow_mut() = Some(Box::new(move |reason| {
        assert!(reason == Ipi::Block && Sim::in_interrupt());
        while let Some(done) = Sim::io_done() {
            let (cpu, now) = (Sim::cpu().index(), Sim::now_ns());
            keep.borrow_mut().push((cpu, now, done.io.block, done.failed));
        }
    }));
    heard
}

fn quiet(cpus: usize) -> SimConfig {
    let mut config = config(cpus);
    config.profile.costs.jitter_1024 = 0;
    config
}

#[test]
fn a_request_takes_its_transfer_and_its_latency() {
    // 4096 bytes at 3000 bytes a us, then 20 us to write or 80 us to read; 0.3 us of interrupt.
    let got = Rc::new(RefCell::new(Vec::new()));
    let keep = Rc::clone(&got);
    run_well(quiet(2), move |script| {
        let heard = hear(script);
        script.spawn(1, move || {
            Sim::write_stamp(Pfn::new(7), 77);
            let from = Sim::now_ns();
            ask(IoDirection::Write, 3, 7).expect("room");
            Sim::user(50_000);
            ask(IoDirection::Read, 3, 8).expect("room");
            assert_eq!(Sim::read_stamp(Pfn::new(8)), 0, "it is not there yet");
            Sim::user(200_000);
            assert_eq!(Sim::read_stamp(Pfn::new(8)), 77);
            let times: Vec<u64> = heard
                .borrow()
                .iter()
                .map(|&(cpu, at, block, failed)| {
                    assert_eq!((cpu, block, failed), (1, 3, false));
                    at - from
                })
                .collect();
            *keep.borrow_mut() = times;
        });
    });
    let [write, read] = got.borrow()[..] else { panic!("{got:?}") };
    assert!((21_600..21_800).contains(&write), "{write}");
    assert!((131_600..132_300).contains(&read), "{read}");
}

#[test]
fn pages_go_one_after_the_other_and_the_queue_has_an_end() {
    run_well(quiet(1), |script| {
        let heard = hear(script);
        script.spawn(0, move || {
            let given = (0..80).filter(|&block| ask(IoDirection::Write, block, 5).is_ok()).count();
            assert_eq!(given, 64, "the depth of the sample machine");
            Sim::user(1_000_000);
            assert_eq!(ask(IoDirection::Write, 90, 5), Ok(()));
            Sim::user(1_000_000);
            let heard = heard.borrow();
            let blocks: Vec<u32> = heard.iter().map(|&(_, _, block, _)| block).collect();
            assert_eq!(blocks, (0..64).chain([90]).collect::<Vec<_>>());
            // 4096 bytes at 3 bytes a ns.
            let spread = heard[63].1 - heard[0].1;
            assert!((85_500..86_500).contains(&spread), "{spread}");
        });
    });
}

#[test]
fn an_idle_cpu_is_woken_when_its_request_has_finished() {
    run_well(quiet(2), |script| {
        let heard = hear(script);
        let watch = Rc::clone(&heard);
        script.spawn(1, || ask(IoDirection::Read, 3, 7).expect("room"));
        script.spawn(0, move || {
            Sim::user(70_000);
            assert!(watch.borrow().is_empty());
            Sim::user(30_000);
            assert_eq!(watch.borrow().len(), 1);
            assert_eq!(watch.borrow()[0].0, 1);
        });
    });
}

#[test]
fn a_cpu_that_goes_away_stops_only_when_its_requests_have_finished() {
    run_well(quiet(2), |script| {
        let heard = hear(script);
        script.spawn(1, || (0..9).for_each(|at| ask(IoDirection::Read, at, 7).expect("room")));
        script.spawn(0, move || {
            Sim::user(10_000);
            Sim::cpu_offline(CpuId::new(1)).expect("it is online");
            assert_eq!(heard.borrow().len(), 9);
        });
    });
}

#[test]
fn requests_left_by_an_offline_cpu_are_named() {
    let outcome = run_script(quiet(2), |script| {
        script.spawn(1, || ask(IoDirection::Read, 3, 7).expect("room"));
        script.spawn(0, || {
            Sim::user(10_000);
            Sim::cpu_offline(CpuId::new(1)).expect("it is online");
        });
    });
    let [violation] = &outcome.violations[..] else { panic!("{:?}", outcome.violations) };
    assert_eq!(violation.rule, Rule::LeftBehind);
    assert!(violation.what.contains("1 requests of the swap device"), "{violation}");
}

#[test]
fn a_failed_write_changes_nothing_and_a_failed_read_neither() {
    let failing = Faults { io_fail_1024: 1024, ..Faults::default() };
    run_well(SimConfig { faults: failing, ..quiet(1) }, |script| {
        let heard = hear(script);
        script.spawn(0, move || {
            Sim::write_stamp(Pfn::new(7), 77);
            ask(IoDirection::Write, 3, 7).expect("room");
            ask(IoDirection::Read, 4, 7).expect("room");
            Sim::user(300_000);
            assert!(heard.borrow().len() == 2 && heard.borrow().iter().all(|done| done.3));
            assert_eq!(Sim::read_stamp(Pfn::new(7)), 77);
        });
    });
}
