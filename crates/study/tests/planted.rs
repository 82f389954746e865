//! Programs with planted bugs on a whole simulated system: the run must end with what they did.

use mmscale_kernel::{Ending, Kernel};
use mmscale_mm::arch::{CpuId, Probe, Trace};
use mmscale_mm::mm::MmConfig;
use mmscale_mm::page_alloc::MemoryMap;
use mmscale_mm::upkeep::TickPolicy;
use mmscale_sim::{Outcome, Sim, SimConfig, sample_profile};
use mmscale_system::{Priority, System, ThreadSpec};
use std::rc::Rc;

struct Deaf;

impl Probe for Deaf {
    fn event(&mut self, _: u64, _: &Trace) {}
    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any> {
        self
    }
}

fn probe(_: CpuId) -> Box<dyn Probe> {
    Box::new(Deaf)
}

/// Runs `program` as the first thread of a system of four CPUs, which looks at itself at the end.
fn run(program: fn(&Kernel<Sim>)) -> Outcome {
    let machine = SimConfig { limit_ns: 60_000_000_000, ..SimConfig::new(sample_profile(4), 4) };
    mmscale_sim::run(machine, probe, || {
        let mm = MmConfig::new(MemoryMap::single(1 << 15), TickPolicy::Stock);
        let kernel = Kernel::<Sim>::boot(&mm, Ending::Verified, Box::new(program));
        Rc::new(kernel.expect("the configuration is sound"))
    })
}

#[track_caller]
fn fails(program: fn(&Kernel<Sim>), text: &str) {
    let failure = run(program).failure.expect("the bug is seen").to_string();
    assert!(failure.contains(text), "{failure}");
}

#[test]
fn a_sound_program_with_hotplug_ends_well() {
    let outcome = run(|system| {
        let worker = |system: &Kernel<Sim>| {
            for order in [0, 3, 0, 9, 4, 0] {
                let pages = system.alloc_pages(order).expect("there is memory");
                system.touch_pages(pages, 7).expect("the run goes on");
                system.compute_ns(50_000).expect("the run goes on");
                assert_eq!(system.read_stamp(pages), Ok(7));
                system.free_pages(pages);
            }
        };
        let spec = ThreadSpec { cpu: 2, priority: Priority::Fair };
        let thread = system.spawn(spec, Box::new(worker)).expect("the CPU exists");
        worker(system);
        system.join(thread).expect("it was started");
        system.cpu_offline(2).expect("others are left");
        worker(system);
        system.cpu_online(2).expect("it was there before");
        system.cpu_offline(3).expect("others are left");
    });
    assert_eq!((outcome.failure, outcome.violations), (None, vec![]));
}

#[test]
fn a_block_that_is_never_freed_is_lost_at_exit() {
    fails(|system| _ = system.alloc_pages(2), "frames lost at exit");
}

#[test]
fn a_block_freed_twice_ends_the_run() {
    let program = |system: &Kernel<Sim>| {
        let pages = system.alloc_pages(1).expect("there is memory");
        system.free_pages(pages);
        system.free_pages(pages);
    };
    fails(program, "freed twice");
}

#[test]
fn a_thread_that_frees_anothers_page_is_seen_by_its_owner() {
    let program = |system: &Kernel<Sim>| {
        let mine = system.alloc_pages(0).expect("there is memory");
        system.touch_pages(mine, 1).expect("the run goes on");
        let thief = move |system: &Kernel<Sim>| {
            system.free_pages(mine);
            let theirs = system.alloc_pages(0).expect("there is memory");
            system.touch_pages(theirs, 2).expect("the run goes on");
        };
        let spec = ThreadSpec { cpu: 0, priority: Priority::Fair };
        let thief = system.spawn(spec, Box::new(thief)).expect("the CPU exists");
        system.join(thief).expect("it was started");
        assert_eq!(system.read_stamp(mine), Ok(1), "a stamp changed under its owner");
    };
    fails(program, "a stamp changed under its owner");
}
