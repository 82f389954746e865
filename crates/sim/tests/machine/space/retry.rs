//! Locks of a page fault while its page is read from swap or from a file, and changes that wait for
//! it.

use super::process::new_space;
use crate::lru::world::{World, config, well_with};
use mmscale_arch::{Machine as _, VmaRange, Vpn};
use mmscale_frames::page_alloc::MemoryMap;
use mmscale_mm::lru::LruPolicy;
use mmscale_mm::pgtable::MemAccess;
use mmscale_mm::space::{
    Advice, File, FileAdvice, MapRequest, Place, Prot, RetryPolicy, Space, VmaLockPolicy,
};
use mmscale_sim::{Policy, Sim, SimConfig};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

const AT: u64 = 512 * 8;
const PAGES: u64 = 4;
/// The head start of a fault, in ns.
const LATER_NS: u64 = 10_000;
/// Longer than any write to the device.
const REST_NS: u64 = 2_000_000;

/// Times in ns, and the faults that released their lock.
#[derive(Clone, Copy, Default, Debug)]
struct Seen {
    fault_ns: u64,
    change_ns: u64,
    retries: u64,
}

fn whole() -> VmaRange {
    VmaRange::with_pages(Vpn::new(AT), PAGES).expect("user pages")
}

/// Where the page is.
#[derive(Clone, Copy, PartialEq, Debug)]
enum From {
    Swap,
    File,
}

fn touch(world: &World, space: &Space<Sim>, page: u64) {
    let on = world.mm.mm_ref();
    let write = |pfn| Sim::write_stamp(pfn, 7 + page);
    space.access(on, Vpn::new(AT + page), MemAccess::Write, write).expect("it is mapped");
}

fn read(world: &World, space: &Space<Sim>, page: u64, from: From) {
    let on = world.mm.mm_ref();
    let stamp = space.access(on, Vpn::new(AT + page), MemAccess::Read, Sim::read_stamp);
    assert_eq!(stamp, Ok(if from == From::Swap { 7 + page } else { 0 }));
}

/// Maps memory whose pages are in swap.
fn map_swapped(world: &World, space: &Space<Sim>) {
    let on = world.mm.mm_ref();
    let request = MapRequest::new(PAGES).at(Place::Fixed(Vpn::new(AT)));
    space.mmap(on, request).expect("there is room");
    (0..PAGES).for_each(|page| touch(world, space, page));
    space.madvise(on, whole(), Advice::PageOut).expect("there is swap");
    world.mm.sleep_ns(REST_NS);
    // Clean pages that have a slot are dropped without a write.
    (0..PAGES).for_each(|page| read(world, space, page, From::Swap));
    space.madvise(on, whole(), Advice::PageOut).expect("there is swap");
}

/// Maps a file on the disk.
fn map_file(world: &World, space: &Space<Sim>) -> Arc<File<Sim>> {
    let on = world.mm.mm_ref();
    let file = File::on_disk(on, PAGES).expect("there are blocks");
    space.hold_file(&file).expect("there is room");
    let request = MapRequest::new(PAGES).at(Place::Fixed(Vpn::new(AT)));
    space.mmap(on, request.of_file(file.id(), 0)).expect("there is room");
    file
}

/// A thread faults on a page that is not in memory; another one changes the protection of its VMA
/// meanwhile.
fn run(policy: Policy, locks: VmaLockPolicy, retry: RetryPolicy, from: From) -> Seen {
    let seen = Rc::new(Cell::new(Seen::default()));
    let told = Rc::clone(&seen);
    let change = move |config: &mut mmscale_mm::mm::MmConfig| {
        config.map = MemoryMap::nodes(2, 1 << 12);
        config.swap.pages = 64;
        (config.space.vma_locks, config.space.retry) = (locks, retry);
    };
    let config = SimConfig { policy, ..config(4, 1) };
    well_with(config, LruPolicy::Stock, change, move |world| {
        let (space, on) = (new_space(world), world.mm.mm_ref());
        match from {
            From::Swap => map_swapped(world, &space),
            From::File => map_file(world, &space).put(on),
        }
        let (of, times) = (Arc::clone(&space), Rc::clone(&told));
        world.spawn(1, move |world| {
            let begun_ns = Sim::now_ns();
            read(world, &of, 1, from);
            let fault_ns = Sim::now_ns() - begun_ns;
            times.set(Seen { fault_ns, ..times.get() });
        });
        let (of, times) = (Arc::clone(&space), Rc::clone(&told));
        world.spawn(2, move |world| {
            world.mm.sleep_ns(LATER_NS);
            let begun_ns = Sim::now_ns();
            of.mprotect(world.mm.mm_ref(), whole(), Prot::READ).expect("it is mapped");
            let change_ns = Sim::now_ns() - begun_ns;
            of.mprotect(world.mm.mm_ref(), whole(), Prot::RW).expect("it is mapped");
            times.set(Seen { change_ns, ..times.get() });
        });
        world.wait_for_others();
        let retries = on.swap.counters().fault_retries;
        told.set(Seen { retries, ..told.get() });
        space.exit(on);
    });
    seen.get()
}

#[test]
fn a_change_waits_for_a_page_only_if_the_fault_keeps_its_lock() {
    for policy in [Policy::Lazy, Policy::Naive] {
        for locks in VmaLockPolicy::ALL {
            for (retry, from) in
                RetryPolicy::ALL.into_iter().flat_map(|it| [(it, From::Swap), (it, From::File)])
            {
                let seen = run(policy, locks, retry, from);
                let why = format!("{policy:?}, {locks:?}, {retry:?}, {from:?}: {seen:?}");
                assert!(seen.fault_ns > 5 * LATER_NS, "the page was not read: {why}");
                let holds = retry == RetryPolicy::Hold;
                assert_eq!(seen.change_ns > seen.fault_ns / 2, holds, "{why}");
                assert_eq!(seen.retries, u64::from(!holds), "{why}");
            }
        }
    }
}

/// Tasks of four address spaces fault on the same page of a file: one reads it, and the others wait
/// for its lock. Then they read as many pages of a second file, each another one.
#[test]
fn tasks_that_need_the_same_page_wait_for_one_read() {
    for retry in RetryPolicy::ALL {
        let ended = Rc::new(Cell::new(false));
        let told = Rc::clone(&ended);
        let change = move |config: &mut mmscale_mm::mm::MmConfig| {
            config.map = MemoryMap::nodes(2, 1 << 12);
            config.space.retry = retry;
        };
        well_with(config(4, 1), LruPolicy::Stock, change, move |world| {
            let on = world.mm.mm_ref();
            let space = new_space(world);
            let file = map_file(world, &space);
            let faulted = |at: fn(u64) -> u64| {
                let begun_ns = Sim::now_ns();
                for cpu in 1..4 {
                    let of = Arc::clone(&space);
                    world.spawn(cpu, move |world| read(world, &of, at(cpu as u64), From::File));
                }
                read(world, &space, at(0), From::File);
                world.wait_for_others();
                Sim::now_ns() - begun_ns
            };
            let one_ns = faulted(|_| 0);
            assert_eq!(on.swap.counters().file_reads, 1, "{retry:?}");
            space.madvise(on, whole(), Advice::DontNeed).expect("it is mapped");
            file.advise(on, 0..PAGES, FileAdvice::DontNeed, space.group());
            let each_ns = faulted(|cpu| cpu);
            assert_eq!(on.swap.counters().file_reads, 1 + PAGES, "{retry:?}");
            // The device reads them at the same time.
            assert!(each_ns < 2 * one_ns, "{retry:?}: {one_ns} ns, {each_ns} ns");
            file.put(on);
            space.exit(on);
            told.set(true);
        });
        assert!(ended.get());
    }
}
