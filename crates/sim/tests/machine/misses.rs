//! Which misses on frames' records are waited for, what memory moves for a clear and a copy, and
//! which policies of page caches check pages.

use crate::common::{config, run_well};
use mmscale_arch::{
    Access, Asid, Atomic as _, Cpu as _, DataLine, Line, Machine as _, Op, Order, Pfn,
};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::{
    AllocConfig, FrameAllocator, Gfp, MemoryMap, PageCheck, PcpPolicy,
};
use mmscale_sim::profile::{Costs, Topology};
use mmscale_sim::{Sim, SimAtomic, SimConfig};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

/// Returns the times of some steps on CPU 0, in ns.
fn timed<const N: usize>(change: impl FnOnce(&mut Costs), steps: [Box<dyn Fn()>; N]) -> Vec<u64> {
    let mut config: SimConfig = config(2);
    config.profile.topology.nodes = 1;
    config.profile.costs.jitter_1024 = 0;
    change(&mut config.profile.costs);
    let found = Rc::new(RefCell::new(Vec::new()));
    let times = Rc::clone(&found);
    run_well(config, move |script| {
        script.spawn(0, move || {
            for step in &steps {
                let begun_ns = Sim::now_ns();
                step();
                times.borrow_mut().push(Sim::now_ns() - begun_ns);
            }
        });
    });
    found.take()
}

/// A line from memory takes 90 ns, of which 60 are hidden where it is fetched ahead.
#[test]
fn misses_in_a_row_and_stores_of_links_are_hidden_and_others_are_not() {
    let touch = |frame: usize, access| -> Box<dyn Fn()> {
        Box::new(move || Sim::touch(Line::Frame(Pfn::new(frame)), access))
    };
    let (write, store) = (Access::Write, Access::Store);
    let steps = [
        touch(1000, write),
        touch(1001, write),
        touch(1002, write),
        touch(1004, write),
        touch(5000, write),
        touch(9000, store),
        touch(5001, write),
        touch(5003, write),
    ];
    let hidden = |costs: &mut Costs| costs.frame_hidden_1024 = 1024 * 2 / 3;
    let got = timed(hidden, steps);
    // The other line of a pair; the second pair; the third, in a row; elsewhere; a link; the other
    // line of a pair, as the link does not count; the second pair.
    assert_eq!(got, [90, 30, 90, 30, 90, 30, 30, 90]);
}

/// A node moves a page in 1 us.
#[test]
fn memory_moves_what_is_written_as_often_as_the_profile_says() {
    let steps = || -> [Box<dyn Fn()>; 2] {
        [
            Box::new(|| Sim::clear_block(Pfn::new(8), Order::ZERO)),
            Box::new(|| Sim::copy_page(Pfn::new(8), Pfn::new(16))),
        ]
    };
    for (write_traffic_1024, expected) in [(1024, [1000, 2000]), (2048, [2000, 3000])] {
        let of = |costs: &mut Costs| {
            costs.node_bytes_per_us = 4096;
            costs.write_traffic_1024 = write_traffic_1024;
        };
        assert_eq!(timed(of, steps()), expected);
    }
}

/// Under each policy of page caches, 300 single pages cost 300 checks where these are.
#[test]
fn every_policy_of_page_caches_checks_pages_where_the_version_does() {
    const PAGES: u64 = 300;
    let alloc_ns = |caches, check| {
        let steps: [Box<dyn Fn()>; 1] = [Box::new(move || {
            let config = AllocConfig { caches, check, ..AllocConfig::default() };
            let frames = FrameAllocator::<Sim>::new(&MemoryMap::single(1 << 16), config).unwrap();
            let take = || frames.alloc_pages(Order::ZERO, MigrateType::Movable, Gfp::KERNEL);
            (0..PAGES).for_each(|_| assert!(take().is_ok(), "there is memory"));
        })];
        timed(|costs| costs.op_ps[Op::PageCheck as usize] = 1_000_000, steps)[0]
    };
    for caches in PcpPolicy::ALL {
        let [never, refill, alloc] = [PageCheck::Never, PageCheck::Refill, PageCheck::Alloc]
            .map(|check| alloc_ns(caches, check));
        assert_eq!(alloc - never, PAGES * 1000, "{caches:?}");
        let checks = (refill - never) / 1000;
        assert!((PAGES..3 * PAGES).contains(&checks), "{caches:?}: {checks}");
    }
}

/// Sixteen CPUs of one node add to one word, or exchange it, as fast as they can. Returns the time
/// of an operation of the machine, in ns.
fn contended(far_add_ns: u64, line: DataLine, operation: fn(&SimAtomic<u64>)) -> u64 {
    const TIMES: u64 = 200;
    let mut config: SimConfig = config(16);
    config.profile.topology = Topology { cpus: 16, smt: 1, cluster: 16, nodes: 1 };
    config.profile.costs.jitter_1024 = 0;
    config.profile.costs.far_add_ps = far_add_ns * 1000;
    let word = Rc::new(SimAtomic::named(0, line));
    let outcome = run_well(config, |script| {
        for cpu in 0..16 {
            let word = Rc::clone(&word);
            script.spawn(cpu, move || (0..TIMES).for_each(|_| operation(&word)));
        }
    });
    outcome.virtual_ns / (16 * TIMES)
}

/// A line takes 25 ns from one CPU of the cluster to another, 50 to the interconnect; an atomic
/// takes 6.
#[test]
fn the_interconnect_adds_faster_than_a_line_moves_and_exchanges_nothing() {
    let add = |word: &SimAtomic<u64>| _ = word.fetch_add(1, Relaxed);
    let exchange = |word: &SimAtomic<u64>| _ = word.swap(1, Relaxed);
    let (count, page) = (DataLine::PageCounter, DataLine::StructPage);
    assert_eq!([0, 9].map(|far_ns| contended(far_ns, count, add)), [31, 9]);
    assert_eq!([0, 9].map(|far_ns| contended(far_ns, count, exchange)), [31, 31]);
    assert_eq!(contended(9, page, add), 31, "other fields of the record are written too");
}

/// Eight CPUs each flush twenty times, without a pause.
#[test]
fn broadcasts_follow_one_another_as_far_as_the_machine_takes_one_at_a_time() {
    let took = |serial_ns: u64| {
        let mut config: SimConfig = config(8);
        config.profile.costs.jitter_1024 = 0;
        config.profile.costs.tlb_broadcast_ps = 300_000;
        config.profile.costs.tlb_serial_ps = serial_ns * 1000;
        let outcome = run_well(config, |script| {
            for cpu in 0..8 {
                script.spawn(cpu, || {
                    let flush = Sim::tlb_broadcast().expect("the machine broadcasts");
                    (0..20).for_each(|_| flush(Asid::new(1 + Sim::cpu().index()), None));
                });
            }
        });
        outcome.virtual_ns / 1000
    };
    assert_eq!([took(0), took(300)], [6, 48], "20 of 300 ns; 160 one after another");
}
