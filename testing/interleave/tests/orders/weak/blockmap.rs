//! Bits in blocks: the next user of a page sees that the last one is done with it, and a CPU that
//! isolates a pageblock sees which CPUs keep pages.

use mmscale_arch::{Atomic, Cpu, Ipi, Machine as _, Order, Pfn};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::{AllocConfig, FrameAllocator, Gfp, MemoryMap, PcpPolicy};
use mmscale_interleave::{CpuBody, Hooks, Model, Plain, check_weak, cpu_body, run};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use std::sync::{Arc, Mutex};

type Word = <Model as Cpu>::AtomicU32;

/// Four pageblocks.
const PAGES: u32 = 2048;

struct World {
    frames: FrameAllocator<Model>,
    /// The content of each block, by its first page.
    contents: Mutex<BTreeMap<Pfn, Arc<Plain>>>,
    /// Free pages that are isolated at the end.
    isolated: AtomicU64,
}

impl Hooks for World {
    fn ipi(&self, reason: Ipi) {
        assert_eq!(reason, Ipi::DrainPages);
        self.frames.drain_ipi();
    }
}

impl World {
    fn new(pages: u32) -> Arc<Self> {
        let (caches, min_free_kb) = (PcpPolicy::Blockmap, Some(64));
        let config = AllocConfig { caches, min_free_kb, ..AllocConfig::default() };
        let frames = FrameAllocator::new(&MemoryMap::single(pages), config).expect("sane");
        Arc::new(Self { frames, contents: Mutex::default(), isolated: AtomicU64::new(0) })
    }
    /// Takes a block, and writes to it.
    fn take(&self, order: u8) -> Option<Pfn> {
        let gfp = Gfp::KERNEL | Gfp::MEMALLOC;
        let pfn = self.frames.alloc_pages(new(order), MigrateType::Movable, gfp).ok()?;
        self.write(pfn);
        Some(pfn)
    }
    fn write(&self, pfn: Pfn) {
        let content = {
            let mut contents = self.contents.lock().expect("no CPU panics with it");
            Arc::clone(contents.entry(pfn).or_insert_with(|| Arc::new(Plain::new(0))))
        };
        content.set(content.get() + 1);
    }
    /// Writes to a block, and frees it.
    fn give(&self, pfn: Pfn, order: u8) {
        self.write(pfn);
        self.frames.free_pages(pfn, new(order));
    }
}

fn new(order: u8) -> Order {
    Order::new(order).expect("a small one")
}

/// A CPU that does `f`, and gives up what it keeps.
fn body(world: &Arc<World>, f: impl FnOnce(&World) + Send + 'static) -> CpuBody {
    let world = Arc::clone(world);
    cpu_body(move || {
        f(&world);
        world.frames.drain_pages(Model::cpu());
    })
}

/// The CPUs do `bodies`, which takes what they hold at first; then all adds up.
fn scenario(
    schedules: usize,
    bodies: impl Fn(&Arc<World>) -> Vec<CpuBody> + Send + Sync + 'static,
) {
    scenario_of(PAGES, schedules, bodies);
}

/// As [`scenario`], with so many pages.
fn scenario_of(
    pages: u32,
    schedules: usize,
    bodies: impl Fn(&Arc<World>) -> Vec<CpuBody> + Send + Sync + 'static,
) {
    check_weak(schedules, move || {
        let mut made = None;
        run(3, || {
            let world = World::new(pages);
            made = Some(Arc::clone(&world));
            (Some(world.clone() as Arc<dyn Hooks>), bodies(&world))
        });
        let world = made.expect("it was built");
        let audit = world.frames.verify().expect("everything adds up");
        assert_eq!(audit.isolated, world.isolated.load(SeqCst), "free pages that are isolated");
    });
}

/// Takes `pages` pages, in blocks of `order`; by address.
fn hold(world: &World, pages: u32, order: u8) -> Vec<Pfn> {
    let mut held: Vec<Pfn> =
        (0..pages >> order).map(|_| world.take(order).expect("there is memory")).collect();
    held.sort_unstable();
    held
}

/// Takes a block `times` times, and frees it.
fn churn(world: &World, order: u8, times: usize) {
    for _ in 0..times {
        let block = world.take(order);
        block.into_iter().for_each(|block| world.give(block, order));
    }
}

/// The bits, which are cleared by the CPU that frees and set by the one that takes: `SeqCst` in
/// `clear`, `Acquire` in `starts`.
#[test]
fn a_page_that_one_cpu_frees_is_whole_for_the_next() {
    scenario(300, |world| {
        let pages = hold(world, 128, 0);
        hold(world, PAGES - 128, 6);
        let (mine, theirs) = (pages[..6].to_vec(), pages[6..8].to_vec());
        vec![
            body(world, move |world| {
                mine.iter().for_each(|&page| world.give(page, 0));
                world.frames.drain_pages(Model::cpu());
            }),
            body(world, |world| churn(world, 0, 3)),
            body(world, move |world| {
                theirs.iter().for_each(|&page| world.give(page, 0));
                churn(world, 0, 3);
            }),
        ]
    });
}

/// As before with the parts of a held block: its bits are set while parts are freed.
#[test]
fn a_part_of_a_held_block_that_one_cpu_frees_is_whole_for_the_next() {
    scenario(300, |world| {
        let block = world.take(9).expect("all is free");
        world.frames.split_page(block, new(9), new(5));
        hold(world, PAGES - 512, 6);
        let parts = |from: usize| {
            move |world: &World| {
                (from..16).step_by(2).for_each(|at| world.give(block.offset(at << 5), 5));
                world.frames.drain_pages(Model::cpu());
            }
        };
        vec![body(world, parts(0)), body(world, parts(1)), body(world, |world| churn(world, 5, 3))]
    });
}

/// As before with blocks of whole words, whose bits are stored: `Release` in `clear_used`.
#[test]
fn a_block_of_words_that_one_cpu_frees_is_whole_for_the_next() {
    for order in [6, 8] {
        scenario(300, move |world| {
            let mine = hold(world, PAGES, order)[..3].to_vec();
            vec![
                body(world, move |world| {
                    mine.iter().for_each(|&block| world.give(block, order));
                    world.frames.drain_pages(Model::cpu());
                }),
                body(world, move |world| churn(world, order, 2)),
                body(world, move |world| churn(world, order, 2)),
            ]
        });
    }
}

/// As before with pageblocks, whose heads are stored: by the CPU that has taken the bit of one, or
/// in a batch.
#[test]
fn a_pageblock_that_one_cpu_frees_is_whole_for_the_next() {
    let churn = |world: &World| [9, 8].into_iter().for_each(|order| churn(world, order, 1));
    scenario(300, move |world| {
        let mine = hold(world, PAGES - 512, 9)[0];
        vec![
            body(world, move |world| {
                world.give(mine, 9);
                world.frames.drain_pages(Model::cpu());
            }),
            body(world, churn),
            body(world, churn),
        ]
    });
}

/// A search that finds no room in a pageblock forgets that there is some, and looks again; a CPU
/// that frees clears bits, and then reads the hints: the fence in `find_among`, `SeqCst` in
/// `clear`, the fence in `order_words`.
#[test]
fn room_that_comes_about_is_noted() {
    for order in [0, 6] {
        scenario(200, move |world| {
            // A whole pageblock is left: a search that finds no pair elsewhere breaks that up.
            let parts = hold(world, 128 << order.min(2), order);
            hold(world, PAGES - 512 - (128 << order.min(2)), 6);
            let give = |at: usize| {
                let part = parts[at];
                body(world, move |world| {
                    world.give(part, order);
                    world.frames.drain_pages(Model::cpu());
                })
            };
            // Alone in its pageblock at first.
            world.give(parts[2], order);
            world.frames.drain_pages(Model::cpu());
            vec![give(3), give(0), body(world, move |world| churn(world, order + 1, 1))]
        });
    }
}

/// A CPU that caches a page says so, and then checks whether the pageblock is isolated; a CPU that
/// isolates it says so, and then looks which CPUs keep pages: the fences in `mark_nonempty` and
/// `isolate`. One of the two sees the other.
#[test]
fn no_page_of_an_isolated_pageblock_stays_with_a_cpu() {
    scenario(300, |world| {
        let pages = hold(world, 512, 0);
        let (target, theirs) = (pages[0], pages[1]);
        world.frames.drain_pages(Model::cpu());
        world.isolated.store(1, SeqCst);
        let done = Arc::new(Word::new(0));
        let isolated = Arc::clone(&done);
        vec![
            body(world, move |world| {
                world.frames.isolate_pageblock(target).expect("no other CPU does");
                done.store(1, Release);
            }),
            body(world, move |world| {
                world.give(theirs, 0);
                Model::user(0);
                let isolated = isolated.load(Acquire) == 1;
                let page = world.take(0).expect("there is memory");
                let is_theirs = page.pageblock() == target.pageblock();
                assert!(!isolated || !is_theirs, "a page of an isolated pageblock");
                world.give(page, 0);
            }),
            cpu_body(|| ()),
        ]
    });
}

/// A CPU that isolates a pageblock waits for CPUs that change heads with plain stores: `SeqCst` in
/// `begin` of a batch and in `without_batches`.
#[test]
fn a_batch_and_an_isolation_change_no_head_at_the_same_time() {
    // So much memory that a CPU may keep a pageblock.
    scenario_of(1 << 17, 500, |world| {
        let mine = hold(world, 512, 9)[0];
        world.frames.drain_pages(Model::cpu());
        world.isolated.store(512, SeqCst);
        let ready = Arc::new(Word::new(0));
        let go = Arc::clone(&ready);
        vec![
            body(world, move |world| {
                // Both are to come to the few steps that matter at the same time.
                while go.load(Acquire) == 0 {
                    Model::relax();
                }
                world.frames.isolate_pageblock(mine).expect("no other CPU does");
            }),
            body(world, move |world| {
                world.give(mine, 9);
                ready.store(1, Release);
                world.frames.drain_pages(Model::cpu());
            }),
            cpu_body(|| ()),
        ]
    });
}
