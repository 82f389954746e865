//! Memory in the caches of CPUs that are idle: bounded, and taken by other CPUs without interrupts.
//! Allocators with fewer CPUs than the machine.

use mmscale_arch::bare::{Bare, BareCpu};
use mmscale_arch::{CpuId, IrqState, Order, Pfn};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::{
    AllocConfig, ConfigError, FrameAllocator, Gfp, MemoryMap, PcpPolicy, Records,
};
use std::cell::Cell;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

const CPUS: usize = 4;

thread_local! {
    static CPU: Cell<usize> = const { Cell::new(0) };
}

/// Threads with a number. They cannot interrupt one another.
struct Threads<const SHARED: bool>;

// SAFETY: each thread of a test has a number of its own, and no thread is interrupted.
unsafe impl<const SHARED: bool> Bare for Threads<SHARED> {
    const SHARED_CACHES: bool = SHARED;
    fn cpu() -> CpuId {
        CpuId::new(CPU.get())
    }
    fn cpus() -> usize {
        CPUS
    }
    fn preempt_disable() {}
    fn preempt_enable() {}
    fn irq_save() -> IrqState {
        IrqState(false)
    }
    fn irq_restore(_: IrqState) {}
    fn relax() {
        thread::yield_now();
    }
}

type Frames<const SHARED: bool> = FrameAllocator<BareCpu<Threads<SHARED>>>;

const BLOCKMAP: AllocConfig = with(PcpPolicy::Blockmap, Records::None);

const fn with(caches: PcpPolicy, records: Records) -> AllocConfig {
    AllocConfig { caches, records, ..AllocConfig::DEFAULT }
}

fn take<const SHARED: bool>(frames: &Frames<SHARED>, order: Order) -> Option<Pfn> {
    frames.alloc_pages(order, MigrateType::Movable, Gfp::KERNEL | Gfp::MEMALLOC).ok()
}

/// Runs `body` on as many CPUs.
fn on_cpus<T: Send>(cpus: usize, body: impl Fn(usize) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let run = |cpu| {
            CPU.set(cpu);
            body(cpu)
        };
        let threads: Vec<_> = (0..cpus).map(|cpu| scope.spawn(move || run(cpu))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

/// Two CPUs take all 4096 huge pages, one after the other: the first takes one more than half, and
/// frees one, which stays in its cache while it is idle. Returns the number of pages that both got.
fn two_take_everything<const SHARED: bool>(config: AllocConfig) -> usize {
    const HUGE: usize = 4096;
    let map = MemoryMap::single((HUGE * 512) as u32);
    let frames = Frames::<SHARED>::new(&map, config).expect("a valid configuration");
    let (order, turn) = (Order::PAGEBLOCK, Barrier::new(2));
    let halves = on_cpus(2, |cpu| {
        if cpu == 1 {
            turn.wait();
        }
        let mut half: Vec<Pfn> =
            (0..HUGE / 2 + 1 - cpu).map_while(|_| take(&frames, order)).collect();
        if cpu == 0 {
            half.pop().into_iter().for_each(|page| frames.free_pages(page, order));
            turn.wait();
        }
        half
    });
    let mut all: Vec<Pfn> = halves.into_iter().flatten().collect();
    all.sort_unstable();
    all.dedup();
    all.iter().for_each(|&page| frames.free_pages(page, order));
    for cpu in 0..2 {
        CPU.set(cpu);
        frames.drain_pages(CpuId::new(cpu));
    }
    let audit = frames.verify().expect("all adds up");
    assert_eq!((audit.free, audit.held), ((HUGE * 512) as u64, 0));
    all.len()
}

#[test]
fn idle_cpus_keep_nothing_from_others_with_shared_caches_or_none() {
    assert!(two_take_everything::<false>(BLOCKMAP) < 4096, "the first one keeps some");
    assert_eq!(two_take_everything::<true>(BLOCKMAP), 4096);
    let uncached = AllocConfig { cached_pages: Some(0), ..BLOCKMAP };
    assert_eq!(two_take_everything::<false>(uncached), 4096);
    assert_eq!(two_take_everything::<true>(with(PcpPolicy::Blockmap, Records::Kept)), 4096);
}

/// CPUs allocate and free small blocks, with little free memory, and drain one another. No frame
/// has two owners.
#[test]
fn cpus_drain_one_another_while_they_allocate_and_free() {
    const PAGES: u32 = 1 << 14;
    for records in [Records::None, Records::Orders, Records::Kept] {
        let config = with(PcpPolicy::Blockmap, records);
        let frames = Frames::<true>::new(&MemoryMap::single(PAGES), config).expect("valid");
        let owned: Vec<AtomicBool> = (0..PAGES).map(|_| AtomicBool::new(false)).collect();
        let each = |(pfn, order): (Pfn, Order), to: bool| {
            for frame in &owned[pfn.index()..][..order.pages()] {
                assert_ne!(frame.swap(to, SeqCst), to, "frame of two owners");
            }
        };
        on_cpus(CPUS, |cpu| {
            let mut held: Vec<(Pfn, Order)> = Vec::new();
            for turn in 0..30_000 {
                let order = Order::new([0, 0, 1, 3, 0, 6, 0, 9][turn % 8]).expect("small");
                if let Some(pfn) = take(&frames, order) {
                    each((pfn, order), true);
                    held.push((pfn, order));
                }
                if held.len() > 700 || turn % 3 == 0 && held.len() > 20 {
                    let (pfn, order) = held.swap_remove(turn * 7 % held.len());
                    each((pfn, order), false);
                    frames.free_pages(pfn, order);
                }
                if turn % 500 == 0 {
                    frames.drain_pages(CpuId::new((cpu + turn / 500) % CPUS));
                }
            }
            for (pfn, order) in held {
                each((pfn, order), false);
                frames.free_pages(pfn, order);
            }
        });
        frames.drain_all();
        let audit = frames.verify().expect("all adds up");
        assert_eq!((audit.free, audit.cached, audit.held), (PAGES.into(), 0, 0));
        assert_eq!(frames.census().whole_blocks, u64::from(PAGES) / 512);
    }
}

#[test]
fn a_cpu_caches_at_most_the_pages_that_the_configuration_allows() {
    let bound = |config: AllocConfig, most: u32| {
        let config = AllocConfig { cached_pages: Some(most), ..config };
        let frames = Frames::<false>::new(&MemoryMap::single(1 << 20), config).expect("valid");
        CPU.set(0);
        let (mut largest, mut held) = (0, Vec::new());
        for turn in 0..20_000 {
            let order = Order::new([0, 1, 3, 9][turn / 7 % 4]).expect("small");
            held.extend(take(&frames, order).map(|pfn| (pfn, order)));
            if turn % 400 > 200 {
                let (pfn, order) = held.swap_remove(turn % held.len());
                frames.free_pages(pfn, order);
            }
            largest = largest.max(frames.count_free().in_caches);
        }
        held.drain(..).for_each(|(pfn, order)| {
            frames.free_pages(pfn, order);
            largest = largest.max(frames.count_free().in_caches);
        });
        frames.drain_all();
        assert_eq!(frames.verify().expect("all adds up").free, 1 << 20);
        largest
    };
    for caches in PcpPolicy::ALL {
        let config = with(caches, Records::Kept);
        assert_eq!(bound(config, 0), 0, "{caches:?}");
        // With lists: a batch, or blocks of a pageblock that merge in the cache.
        let slack = if caches == PcpPolicy::Blockmap { 0 } else { 512 };
        for most in [128, 1000] {
            let largest = bound(config, most);
            assert!((1..=u64::from(most) + slack).contains(&largest), "{caches:?}: {largest}");
        }
    }
    let few = AllocConfig { cached_pages: Some(127), ..BLOCKMAP };
    assert_eq!(few.check(), Err(ConfigError::CachedPages(127)));
}

#[test]
fn allocators_of_one_machine_have_different_numbers_of_cpus() {
    let of = |caches, cpus| {
        let config = AllocConfig { cpus, ..with(caches, Records::Kept) };
        Frames::<false>::new(&MemoryMap::single(1 << 16), config)
    };
    for caches in PcpPolicy::ALL {
        let all = [Some(1), Some(3), None].map(|cpus| of(caches, cpus).expect("valid"));
        on_cpus(CPUS, |cpu| {
            let mine = [1, 3, CPUS].into_iter().zip(&all).filter(|&(cpus, _)| cpu < cpus);
            for (_, frames) in mine {
                let held: Vec<Pfn> =
                    (0..3000).map(|_| take(frames, Order::ZERO).expect("memory")).collect();
                held.into_iter().for_each(|page| frames.free_pages(page, Order::ZERO));
                frames.drain_pages(CpuId::new(cpu));
                frames.fold_counters();
            }
        });
        let bytes = all.each_ref().map(|frames| frames.census().cpu_metadata_bytes);
        assert!(bytes[0] * 3 == bytes[1] && bytes[0] * CPUS as u64 == bytes[2], "{bytes:?}");
        for frames in all {
            frames.drain_all();
            assert_eq!(frames.verify().expect("all adds up").free, 1 << 16);
        }
        for wrong in [0, CPUS + 1] {
            assert_eq!(of(caches, Some(wrong)).err(), Some(ConfigError::Cpus(wrong)));
        }
    }
}
