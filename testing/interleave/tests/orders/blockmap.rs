//! Bits in blocks that CPUs own: pages allocated and freed at the same time, blocks taken over from
//! their owners, drains of a CPU's private pages, blocks that become whole or are isolated
//! meanwhile.

use mmscale_arch::{Cpu as _, Ipi, Order, Pfn};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::{AllocConfig, FrameAllocator, Gfp, MemoryMap, PcpPolicy};
use mmscale_interleave::{CpuBody, Hooks, Model, check, check_from, cpu_body, run};
use std::sync::Arc;

/// Four pageblocks.
const PAGES: u32 = 2048;
const SCHEDULES: usize = 300;
/// The min watermark, which only some allocations respect: two pageblocks.
const MIN_PAGES: u64 = 1024;

struct World(FrameAllocator<Model>);

impl Hooks for World {
    fn ipi(&self, reason: Ipi) {
        assert_eq!(reason, Ipi::DrainPages);
        self.0.drain_ipi();
    }
}

impl World {
    fn take(&self, order: Order) -> Option<Pfn> {
        // Down to the last page: no watermark hides one.
        let gfp = Gfp::KERNEL | Gfp::MEMALLOC;
        self.0.alloc_pages(order, MigrateType::Movable, gfp).ok()
    }
    fn page(&self) -> Pfn {
        self.take(Order::ZERO).expect("there is memory")
    }
    fn give(&self, pages: &[Pfn]) {
        pages.iter().for_each(|&page| self.0.free_pages(page, Order::ZERO));
    }
    /// Allocates pages, all different, and frees them.
    fn churn(&self, count: usize) {
        let pages: Vec<Pfn> = (0..count).map(|_| self.page()).collect();
        let mut seen = pages.clone();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), count, "one frame for two");
        self.give(&pages);
    }
}

/// CPU 0 has allocated `held` pages, and `bodies` are what the CPUs do with them: all are freed.
/// Afterwards the structures are consistent, and all pageblocks are whole.
fn scenario(
    held: usize,
    bodies: impl Fn(&Arc<World>, Vec<Pfn>) -> Vec<CpuBody> + Send + Sync + 'static,
) {
    check(SCHEDULES, move || {
        let world = play(held, &bodies);
        let audit = world.0.verify().expect("everything adds up");
        assert_eq!((audit.held, audit.cached), (0, 0));
        assert_eq!(audit.free + audit.isolated, PAGES.into());
        if audit.isolated == 0 {
            assert_eq!(world.0.census().whole_blocks, 4);
        }
    });
}

/// Runs one schedule; returns the state after all bodies have ended.
fn play(held: usize, bodies: impl Fn(&Arc<World>, Vec<Pfn>) -> Vec<CpuBody>) -> Arc<World> {
    let mut made = None;
    run(3, || {
        let (caches, min_free_kb) = (PcpPolicy::Blockmap, Some(4 * MIN_PAGES));
        let config = AllocConfig { caches, min_free_kb, ..AllocConfig::default() };
        let frames = FrameAllocator::new(&MemoryMap::single(PAGES), config).expect("sane");
        let world = Arc::new(World(frames));
        let pages = (0..held).map(|_| world.page()).collect();
        made = Some(Arc::clone(&world));
        (Some(world.clone() as Arc<dyn Hooks>), bodies(&world, pages))
    });
    made.expect("it was built")
}

/// Makes a CPU that calls `f`, and then drains its private pages.
fn body(world: &Arc<World>, f: impl FnOnce(&World) + Send + 'static) -> CpuBody {
    let world = Arc::clone(world);
    cpu_body(move || {
        f(&world);
        world.0.drain_pages(Model::cpu());
    })
}

#[test]
fn pages_of_one_block_are_taken_and_given_back_at_once() {
    scenario(70, |world, pages| {
        let (some, others) = (pages[..35].to_vec(), pages[35..].to_vec());
        vec![
            body(world, |world| world.churn(70)),
            body(world, move |world| {
                world.give(&some);
                world.churn(3);
            }),
            body(world, move |world| world.give(&others)),
        ]
    });
}

#[test]
fn the_last_pages_of_a_block_come_back_while_somebody_wants_it_whole() {
    scenario(512, |world, pages| {
        let (some, others) = (pages[..256].to_vec(), pages[256..].to_vec());
        vec![
            body(world, move |world| world.give(&some)),
            body(world, move |world| world.give(&others)),
            body(world, |world| {
                for _ in 0..3 {
                    let huge = world.take(Order::PAGEBLOCK).expect("three blocks are whole");
                    world.0.free_pages(huge, Order::PAGEBLOCK);
                }
            }),
        ]
    });
}

/// A block of two pageblocks whose parts are freed on two CPUs: each pageblock is split once. A
/// third CPU takes pages, which are none that are still held.
#[test]
fn parts_of_a_held_block_come_back_on_several_cpus() {
    scenario(0, |world, _| {
        let (block, part) = (world.take(Order::MAX).expect("all is free"), order(8));
        world.0.split_page(block, Order::MAX, part);
        let parts = |of: [usize; 2]| {
            move |world: &World| {
                for part in of.map(|at| block.offset(at << 8)) {
                    world.0.free_pages(part, order(8));
                    world.0.drain_pages(Model::cpu());
                }
            }
        };
        let others = move |world: &World| {
            world.churn(2);
            let rest = world.take(order(8)).expect("there is memory");
            world.0.free_pages(rest, order(8));
        };
        vec![body(world, parts([0, 2])), body(world, parts([1, 3])), body(world, others)]
    });
    scenario(0, |world, _| {
        let block = world.take(Order::PAGEBLOCK).expect("all is free");
        world.0.split_page(block, Order::PAGEBLOCK, Order::ZERO);
        let pages = |at: usize| (at..at + 256).map(|at| block.offset(at)).collect::<Vec<_>>();
        let (some, others) = (pages(0), pages(256));
        vec![
            body(world, move |world| world.give(&some)),
            body(world, move |world| world.give(&others)),
            body(world, |world| world.churn(3)),
        ]
    });
}

/// Named frames are taken while other CPUs allocate and free, and one isolates a pageblock.
#[test]
fn named_frames_are_taken_while_others_allocate_and_free() {
    scenario(20, |world, pages| {
        let range = |world: &World| {
            for start in [0, 300] {
                let start = Pfn::new(start);
                if world.0.alloc_contig_range(start, 500).is_ok() {
                    world.0.free_contig_range(start, 500);
                }
            }
        };
        let blocks = move |world: &World| {
            world.give(&pages);
            for order in [Order::MAX, Order::PAGEBLOCK, order(7)] {
                if world.0.alloc_at(Pfn::new(0), order).is_ok() {
                    world.churn(1);
                    world.0.free_pages(Pfn::new(0), order);
                }
            }
        };
        let others = |world: &World| {
            world.churn(2);
            if world.0.isolate_pageblock(Pfn::new(512)).is_ok() {
                world.0.unisolate_pageblock(Pfn::new(512)).expect("it is isolated");
            }
        };
        vec![body(world, range), body(world, blocks), body(world, others)]
    });
}

fn order(order: u8) -> Order {
    Order::new(order).expect("a small one")
}

#[test]
fn the_last_free_pages_are_found_wherever_they_are() {
    scenario(PAGES as usize - 6, |world, pages| {
        // Six pages are left, in CPU 0's words and in its block.
        vec![
            body(world, move |world| {
                let two = [world.page(), world.page()];
                world.give(&two);
                world.give(&pages);
            }),
            body(world, |world| world.churn(2)),
            body(world, |world| world.churn(2)),
        ]
    });
}

#[test]
fn room_that_comes_about_while_somebody_looks_in_vain_is_noted() {
    check(SCHEDULES, room_comes_about);
}

/// A search that met bits that were not counted yet recorded too small an order (`find_among`).
#[test]
fn room_of_pages_that_are_not_counted_yet_is_noted_for_all_orders() {
    check_from(15, SCHEDULES, room_comes_about);
}

fn room_comes_about() {
    // A whole pageblock is left: a CPU that finds no pair elsewhere splits it, and searches no
    // further.
    let world = play(PAGES as usize - 512, |world, mut pages| {
        pages.sort_unstable();
        // Alone in its pageblock at first.
        world.give(&pages[70..71]);
        world.0.drain_pages(Model::cpu());
        let [buddy, next_pair] = [pages[71..72].to_vec(), pages[68..70].to_vec()];
        let look = |world: &World| {
            let pair = Order::new(1).expect("a small one");
            let taken = world.take(pair);
            taken.into_iter().for_each(|block| world.0.free_pages(block, pair));
        };
        vec![
            body(world, move |world| world.give(&next_pair)),
            body(world, move |world| world.give(&buddy)),
            body(world, look),
        ]
    });
    let audit = world.0.verify().expect("everything adds up");
    assert_eq!((audit.cached, audit.free), (0, 512 + 4));
}

#[test]
fn who_wants_a_part_leaves_the_last_whole_blocks_alone() {
    // As many pages are above the watermark as the three may hold at the same time. Two blocks are
    // whole.
    let above = 1 + 8 + 4;
    scenario(PAGES as usize - MIN_PAGES as usize - above, |world, pages| {
        let part = |world: &World, order| {
            let order = Order::new(order).expect("a small one");
            let taken = world.0.alloc_pages(order, MigrateType::Movable, Gfp::KERNEL).ok();
            assert!(world.0.census().whole_blocks >= 2, "order {}", order.get());
            taken.inspect(|&block| world.0.free_pages(block, order)).is_some()
        };
        vec![
            body(world, move |world| {
                assert!(part(world, 0), "a page above the watermark is refused");
                world.give(&pages);
            }),
            body(world, move |world| _ = part(world, 3)),
            body(world, move |world| {
                part(world, 2);
                assert!(part(world, 0), "a page above the watermark is refused");
            }),
        ]
    });
}

#[test]
fn a_cpu_is_asked_for_what_it_keeps_in_the_middle_of_its_work() {
    scenario(8, |world, pages| {
        let (some, others) = (pages[..4].to_vec(), pages[4..].to_vec());
        vec![
            body(world, move |world| {
                world.give(&some);
                world.churn(4);
            }),
            body(world, |world| _ = world.0.drain_all()),
            body(world, move |world| {
                world.give(&others);
                world.0.drain_all();
            }),
        ]
    });
}

#[test]
fn nothing_of_an_isolated_block_is_handed_out() {
    scenario(8, |world, pages| {
        let target = pages[0];
        let (some, others) = (pages[..4].to_vec(), pages[4..].to_vec());
        vec![
            body(world, move |world| {
                world.churn(2);
                world.give(&some);
            }),
            body(world, move |world| {
                world.0.isolate_pageblock(target).expect("no other task isolates it");
                let page = world.page();
                assert_ne!(page.pageblock(), target.pageblock(), "a page of the isolated block");
                world.give(&[page]);
            }),
            body(world, move |world| world.give(&others)),
        ]
    });
}

/// Enough memory for a CPU to keep several pageblocks.
const MUCH: u32 = 1 << 19;
/// Its pageblocks that are not held all the time.
const LEFT: u32 = 8;

/// Runs bodies concurrently where only [`LEFT`] pageblocks are left, of which they get the first;
/// one body isolates one.
fn with_few_left(bodies: impl Fn(&Arc<World>, Pfn) -> Vec<CpuBody> + Send + Sync + 'static) {
    check(SCHEDULES / 2, move || {
        let (held, mut made) = (MUCH / 1024 - LEFT / 2, None);
        run(3, || {
            let (caches, min_free_kb) = (PcpPolicy::Blockmap, Some(64));
            let config = AllocConfig { caches, min_free_kb, ..AllocConfig::default() };
            let frames = FrameAllocator::new(&MemoryMap::single(MUCH), config).expect("sane");
            let world = Arc::new(World(frames));
            let mut last = Pfn::new(0);
            (0..held).for_each(|_| last = world.take(Order::MAX).expect("there is memory"));
            made = Some(Arc::clone(&world));
            let bodies = bodies(&world, last.offset(Order::MAX.pages()));
            (Some(world.clone() as Arc<dyn Hooks>), bodies)
        });
        let world = made.expect("it was built");
        let audit = world.0.verify().expect("everything adds up");
        assert_eq!((audit.held, audit.cached), (u64::from(held) * 1024, 0));
        assert_eq!((audit.isolated, world.0.census().whole_blocks), (512, u64::from(LEFT)));
    });
}

/// Allocates blocks, and frees them.
fn churn(world: &World, order: u8, count: usize) {
    let order = Order::new(order).expect("a small one");
    let blocks: Vec<Pfn> = (0..count).filter_map(|_| world.take(order)).collect();
    blocks.into_iter().for_each(|block| world.0.free_pages(block, order));
}

#[test]
fn several_pageblocks_are_taken_at_once_while_others_want_them_whole_or_isolate_one() {
    with_few_left(|world, first| {
        let third = first.offset(Order::MAX.pages());
        vec![
            body(world, move |world| {
                churn(world, 8, 2);
                churn(world, 9, 2);
            }),
            body(world, move |world| {
                world.0.isolate_pageblock(third).expect("no other task isolates it");
                churn(world, 10, 1);
            }),
            body(world, move |world| churn(world, 7, 5)),
        ]
    });
}

#[test]
fn a_pageblock_is_isolated_while_others_take_it_and_give_it_back() {
    with_few_left(|world, first| {
        vec![
            body(world, |world| churn(world, 9, 3)),
            body(world, |world| churn(world, 8, 1)),
            body(world, move |world| {
                world.0.isolate_pageblock(first).expect("no other task isolates it");
            }),
        ]
    });
}

#[test]
fn a_whole_pageblock_is_found_again_after_another_cpu_has_drained_its_keeper() {
    with_few_left(|world, first| {
        world.0.isolate_pageblock(first).expect("all of it is free");
        // Afterwards this CPU keeps parts of pageblocks.
        churn(world, 8, 14);
        // A call is refused while another CPU drains.
        let huge = |world: &World| {
            std::iter::repeat_with(|| {
                Model::relax();
                world.take(Order::PAGEBLOCK)
            })
            .flatten()
            .next()
            .expect("there are seven")
        };
        let some = move |world: &World, count: usize| {
            let taken: Vec<Pfn> = (0..count).map(|_| huge(world)).collect();
            taken.iter().for_each(|&block| world.0.free_pages(block, Order::PAGEBLOCK));
        };
        [3, 2, 2].map(|count| body(world, move |world| some(world, count))).into()
    });
}
