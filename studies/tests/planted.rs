//! Tests of checks at the end of a run: programs with planted bugs on a whole simulated system.

use mmscale_arch::{CpuId, Machine as _, Order, Pfn, Probe};
use mmscale_boot::{Boot, on_sim};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::MemoryMap;
use mmscale_kernel::Os;
use mmscale_mm::mm::MmConfig;
use mmscale_mm::vmstat_work::TickPolicy;
use mmscale_sim::{Outcome, Sim, SimConfig, sample_profile};
use mmscale_system::{Advice, Exit, MapSpec, MayMove, PAGE_BYTES, System, ThreadSpec};

const TWO: Order = Order::new(1).unwrap();

fn probe(_: CpuId) -> Box<dyn Probe> {
    Box::new(())
}

/// Runs `program` as the first thread of a system of four CPUs, which checks itself at the end.
fn run(program: fn(&Os)) -> Outcome {
    let machine = SimConfig { limit_ns: 60_000_000_000, ..SimConfig::new(sample_profile(4), 4) };
    let mm = MmConfig::new(MemoryMap::single(1 << 15), TickPolicy::Stock);
    on_sim(machine, &mut probe, Boot::checked(&mm, program))
}

#[track_caller]
fn fails(program: fn(&Os), text: &str) {
    let failure = run(program).failure.expect("the bug is seen").to_string();
    assert!(failure.contains(text), "{failure}");
}

/// Allocates a block straight from the frame allocator, which only a buggy program does.
fn block(system: &Os, order: Order) -> Pfn {
    system.inside().alloc_pages(order, MigrateType::Movable).expect("there is memory")
}

/// Maps, writes, forks, checks on both sides, advises, moves and unmaps.
fn sound(system: &Os) {
    for pages in [1, 8, 1, 512, 16, 3] {
        let bytes = pages * PAGE_BYTES;
        let at = system.mmap(MapSpec::new(bytes)).expect("there is room");
        (0..pages).for_each(|page| system.write(at.page(page), 7 + page).expect("there is memory"));
        let child = move |system: &Os| {
            assert_eq!(system.read(at), Ok(7));
            system.write(at, 8).expect("there is memory");
            assert_eq!(system.read(at.page(pages - 1)), Ok(if pages == 1 { 8 } else { 6 + pages }));
        };
        let child = system.fork(ThreadSpec::on(1), Box::new(child)).expect("there is memory");
        system.compute_ns(50_000).expect("the run goes on");
        assert_eq!(system.read(at), Ok(7));
        assert_eq!(system.wait(child), Ok(Exit::Returned));
        system.madvise(at, bytes, Advice::DontNeed).expect("it is mapped");
        assert_eq!(system.read(at), Ok(0));
        let moved = system.mremap(at, bytes, 2 * bytes, MayMove::Anywhere).expect("there is room");
        system.munmap(moved, 2 * bytes).expect("it is mapped");
    }
}

#[test]
fn a_sound_program_with_hotplug_ends_well() {
    let outcome = run(|system| {
        let thread = system.spawn(ThreadSpec::on(2), Box::new(sound)).expect("the CPU exists");
        let process = system.process(ThreadSpec::on(3), Box::new(sound)).expect("the CPU exists");
        sound(system);
        system.join(thread).expect("it was started");
        system.wait(process).expect("it is a child");
        system.cpu_offline(2).expect("others are left");
        sound(system);
        system.cpu_online(2).expect("it was there before");
        system.cpu_offline(3).expect("others are left");
    });
    assert_eq!((outcome.failure, outcome.violations), (None, vec![]));
}

#[test]
fn a_block_that_is_never_freed_is_lost_at_exit() {
    fails(|system| _ = block(system, TWO), "frames lost at exit");
}

#[test]
fn a_block_freed_twice_ends_the_run() {
    let program = |system: &Os| {
        let pfn = block(system, TWO);
        system.inside().free_pages(pfn, TWO);
        system.inside().free_pages(pfn, TWO);
    };
    fails(program, "freed twice");
}

#[test]
fn a_page_that_is_freed_under_its_owner_is_seen() {
    let program = |system: &Os| {
        let mine = block(system, Order::ZERO);
        Sim::write_stamp(mine, 1);
        let thief = move |system: &Os| {
            system.inside().free_pages(mine, Order::ZERO);
            Sim::write_stamp(block(system, Order::ZERO), 2);
        };
        let thief = system.spawn(ThreadSpec::on(0), Box::new(thief)).expect("the CPU exists");
        system.join(thief).expect("it was started");
        assert_eq!(Sim::read_stamp(mine), 1, "a stamp changed under its owner");
    };
    fails(program, "a stamp changed under its owner");
}
