//! Locks of a page fault while its page is read from swap, and changes that wait for it.

use super::process::new_space;
use crate::lru::world::{World, config, well_with};
use mmscale_arch::{Machine as _, VmaRange, Vpn};
use mmscale_frames::page_alloc::MemoryMap;
use mmscale_mm::lru::LruPolicy;
use mmscale_mm::pgtable::MemAccess;
use mmscale_mm::space::{Advice, MapRequest, Place, Prot, RetryPolicy, Space, VmaLockPolicy};
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

fn touch(world: &World, space: &Space<Sim>, page: u64) {
    let on = world.mm.mm_ref();
    let write = |pfn| Sim::write_stamp(pfn, 7 + page);
    space.access(on, Vpn::new(AT + page), MemAccess::Write, write).expect("it is mapped");
}

fn read(world: &World, space: &Space<Sim>, page: u64) {
    let on = world.mm.mm_ref();
    let stamp = space.access(on, Vpn::new(AT + page), MemAccess::Read, Sim::read_stamp);
    assert_eq!(stamp, Ok(7 + page));
}

/// A thread faults on a page in swap; another one changes the protection of its VMA meanwhile.
fn run(policy: Policy, locks: VmaLockPolicy, retry: RetryPolicy) -> Seen {
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
        let request = MapRequest::new(PAGES).at(Place::Fixed(Vpn::new(AT)));
        space.mmap(on, request).expect("there is room");
        (0..PAGES).for_each(|page| touch(world, &space, page));
        space.madvise(on, whole(), Advice::PageOut).expect("there is swap");
        world.mm.sleep_ns(REST_NS);
        // Clean pages that have a slot are dropped without a write.
        (0..PAGES).for_each(|page| read(world, &space, page));
        space.madvise(on, whole(), Advice::PageOut).expect("there is swap");
        let (of, times) = (Arc::clone(&space), Rc::clone(&told));
        world.spawn(1, move |world| {
            let begun_ns = Sim::now_ns();
            read(world, &of, 1);
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
            for retry in RetryPolicy::ALL {
                let seen = run(policy, locks, retry);
                let why = format!("{policy:?}, {locks:?}, {retry:?}: {seen:?}");
                assert!(seen.fault_ns > 5 * LATER_NS, "the page was not read: {why}");
                let holds = retry == RetryPolicy::Hold;
                assert_eq!(seen.change_ns > seen.fault_ns / 2, holds, "{why}");
                assert_eq!(seen.retries, u64::from(!holds), "{why}");
            }
        }
    }
}
