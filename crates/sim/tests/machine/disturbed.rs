//! Noise, faults, scaled holds, memory: their effects, and that they are off by default.

use crate::common::{config, run_script, run_well};
use mmscale_arch::sync::{IrqGuard, SpinLock};
use mmscale_arch::{Access, Cpu as _, CpuId, Ipi, Line, LockClass, Machine as _, Op, Order, Pfn};
use mmscale_sim::{Disturbance, Faults, Gaps, HoldScale, Lengths, Noise, Outcome, Sim, SimConfig};
use std::cell::Cell;
use std::rc::Rc;

fn exact(cpus: usize) -> SimConfig {
    let mut config = config(cpus);
    config.profile.costs.jitter_1024 = 0;
    config
}

fn each(period_ns: u64, duration_ns: u64) -> Option<Disturbance> {
    Some(Disturbance { period_ns, gaps: Gaps::Around, lengths: Lengths::Of([duration_ns; 8]) })
}

/// Returns the time of a program of one task, in ns. The value that it returns is dropped later.
fn time_of<R>(config: SimConfig, body: impl FnOnce() -> R + 'static) -> u64 {
    let time = Rc::new(Cell::new(0));
    let out = Rc::clone(&time);
    run_well(config, |script| {
        script.spawn(0, move || {
            let kept = body();
            out.set(Sim::now_ns());
            drop(kept);
        });
    });
    time.get()
}

#[test]
fn stolen_time_is_lost_with_interrupts_off_too_and_others_handlers_are_not() {
    let with = |noise, off: bool| {
        time_of(SimConfig { noise, ..exact(1) }, move || {
            let guard = off.then(IrqGuard::<Sim>::new);
            (0..1000).for_each(|_| Sim::work(Op::Syscall, 50));
            guard
        })
    };
    let quiet = with(Noise::default(), false);
    assert_eq!(quiet, 1_000_000);
    for off in [false, true] {
        // One loss of 10 us every 100 us of work and 10 us of loss.
        let lost = with(Noise { stolen: each(100_000, 10_000), irq_off: None }, off) - quiet;
        assert!((80_000..=120_000).contains(&lost), "{lost}");
    }
    let handlers = Noise { stolen: None, irq_off: each(100_000, 10_000) };
    assert!((80_000..=130_000).contains(&(with(handlers, false) - quiet)));
    assert_eq!(with(handlers, true), quiet);
}

#[test]
fn late_interrupts_come_later_by_what_was_asked() {
    let arrival = |faults| {
        let at = Rc::new(Cell::new(0));
        let out = Rc::clone(&at);
        run_well(SimConfig { faults, ..exact(2) }, |script| {
            *script.on_ipi.borrow_mut() = Some(Box::new(move |_| out.set(Sim::now_ns())));
            script.spawn(0, || Sim::ipi_send(CpuId::new(1), Ipi::CallFunction));
            script.spawn(1, || Sim::user(50_000));
        });
        at.get()
    };
    let late = Faults { late_ipi_1024: 1024, late_ipi_ns: 8_000, ..Faults::default() };
    assert_eq!(arrival(late), arrival(Faults::default()) + 8_000);
}

#[test]
fn early_parks_return_and_allocations_fail_as_often_as_asked() {
    let faults = Faults { early_park_1024: 1024, alloc_fail_1024: 256, ..Faults::default() };
    time_of(SimConfig { faults, ..config(1) }, || {
        Sim::park();
        let failed = (0..4000).filter(|_| Sim::fail_alloc()).count();
        assert!((800..1200).contains(&failed), "{failed}");
    });
    time_of(config(1), || assert!((0..4000).all(|_| !Sim::fail_alloc())));
}

#[test]
fn a_scaled_hold_makes_work_under_that_class_longer_and_nothing_else() {
    let run = |hold_scale| -> Outcome {
        run_script(SimConfig { hold_scale, ..exact(1) }, |script| {
            script.spawn(0, || {
                for class in [LockClass::Pcp, LockClass::Zone] {
                    let lock = SpinLock::<Sim, ()>::new(class, ());
                    let _held = lock.lock_irqsave();
                    Sim::work(Op::BuddyPut, 100);
                }
            });
        })
    };
    let hold = |outcome: &Outcome, class: &str| {
        let row = outcome.locks.iter().find(|row| row.class == class);
        row.expect("the class was used").hold_total_ns
    };
    let scale = HoldScale { class: LockClass::Zone, factor_1024: 2048 };
    let (plain, scaled) = (run(None), run(Some(scale)));
    assert_eq!(hold(&plain, "zone"), 2_003);
    assert_eq!(hold(&scaled, "zone"), 4_003);
    assert_eq!(hold(&plain, "pcp"), hold(&scaled, "pcp"));
}

#[test]
fn clearing_pays_for_work_or_for_the_nodes_bandwidth() {
    let time = |cpus: usize| {
        let mut config = exact(8);
        // One CPU clears 4 KiB in 0.4 us of work; the node clears 4 KiB in 0.2 us.
        config.profile.costs.op_ps[Op::ClearPage as usize] = 400_000;
        config.profile.costs.node_bytes_per_us = 20_480;
        run_well(config, |script| {
            for cpu in 0..cpus {
                script.spawn(cpu, move || {
                    let first = Pfn::new(cpu << 10);
                    (0..100).for_each(|_| Sim::clear_block(first, Order::ZERO));
                });
            }
        })
        .virtual_ns
    };
    let (one, two, four) = (time(1), time(2), time(4));
    assert!((40_000..42_000).contains(&one), "{one}");
    assert!(two < one + one / 10, "two fit: {two}");
    assert!(four > 2 * one - one / 5, "four share the bandwidth of two: {four}");
}

#[test]
fn stamps_stay_until_a_clear() {
    time_of(config(1), || {
        let pfn = |index| Pfn::new(index);
        for index in [0, 511, 512, 1023, 1024] {
            assert_eq!(Sim::read_stamp(pfn(index)), 0);
            Sim::write_stamp(pfn(index), index as u64 + 7);
        }
        let order = Order::new(9).expect("small enough");
        Sim::clear_block(pfn(512), order);
        let stamps = [0, 511, 512, 1023, 1024].map(|index| Sim::read_stamp(pfn(index)));
        assert_eq!(stamps, [7, 518, 0, 0, 1031]);
    });
}

#[test]
fn a_frame_last_touched_elsewhere_costs_the_way_less_what_is_hidden() {
    let cost = |hidden| {
        let mut config = exact(2);
        config.profile.topology.smt = 1;
        config.profile.topology.nodes = 1;
        config.profile.costs.frame_hidden_1024 = hidden;
        let time = Rc::new(Cell::new(0));
        let out = Rc::clone(&time);
        run_well(config, |script| {
            script.spawn(0, || Sim::touch(Line::Frame(Pfn::new(3)), Access::Write));
            script.spawn(1, move || {
                Sim::user(5_000);
                Sim::touch(Line::Frame(Pfn::new(3)), Access::Peek);
                out.set(Sim::now_ns() - 5_000);
            });
        });
        time.get()
    };
    assert_eq!([cost(0), cost(512), cost(1024)], [25, 12, 1]);
}
