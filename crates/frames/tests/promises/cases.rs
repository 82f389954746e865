//! The cases.

use crate::host::{CPUS, Frames, Machine};
use mmscale_arch::{CpuId, Order, Pfn};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::frame::MigrateType::{Movable, Unmovable};
use mmscale_frames::page_alloc::{AllocConfig, Gfp, PcpPolicy, Records};

const HUGE: usize = 512;
const GIB: usize = 1 << 18;
/// Calls for a large block before there is none. Many more than needed: another CPU keeps it out of
/// reach only in the middle of a call.
const ATTEMPTS: usize = 10_000;

/// The ways to keep free memory.
fn configs() -> [(&'static str, AllocConfig); 4] {
    let stock = AllocConfig::default();
    let blockmap = AllocConfig { caches: PcpPolicy::Blockmap, ..stock };
    [
        ("stock", stock),
        ("blockmap with records", blockmap),
        ("blockmap with orders", AllocConfig { records: Records::Orders, ..blockmap }),
        ("blockmap", AllocConfig { records: Records::None, ..blockmap }),
    ]
}

/// Calls `case` with a computer of `frames` free frames for each way.
fn each<const SHARED: bool>(frames: usize, case: impl Fn(&Machine<SHARED>)) {
    for (name, config) in configs() {
        println!("{name}");
        let machine = Machine::new(frames, config);
        case(&machine);
        machine.frames().verify().unwrap_or_else(|why| panic!("{name}: {why:?}"));
    }
}

/// Takes a block of `order`. The last ones are below the watermarks.
fn take_as<const SHARED: bool>(
    frames: &Frames<SHARED>,
    order: Order,
    kind: MigrateType,
) -> Option<Pfn> {
    let urgent = Gfp::KERNEL | Gfp::MEMALLOC;
    let usual = frames.alloc_pages(order, kind, Gfp::KERNEL);
    usual.or_else(|_| frames.alloc_pages(order, kind, urgent)).ok()
}

fn take<const SHARED: bool>(frames: &Frames<SHARED>, order: Order) -> Option<Pfn> {
    take_as(frames, order, Movable)
}

/// Takes a huge page next to other CPUs: one of them may drain, or have it in hand for a moment.
fn take_huge<const SHARED: bool>(frames: &Frames<SHARED>) -> Option<Pfn> {
    let attempts = std::iter::repeat_with(|| {
        let taken = take(frames, Order::PAGEBLOCK);
        if taken.is_none() {
            std::thread::yield_now();
        }
        taken
    });
    attempts.take(ATTEMPTS).flatten().next()
}

fn take_all<const SHARED: bool>(frames: &Frames<SHARED>, order: Order) -> Vec<Pfn> {
    std::iter::from_fn(|| take(frames, order)).collect()
}

/// Frames in use: those that are free nowhere.
fn used<const SHARED: bool>(machine: &Machine<SHARED>, all: usize) -> usize {
    all - machine.frames().count_free().total() as usize
}

/// Panics if a frame is not of the computer, or is there twice.
fn check_different(mut pfns: Vec<Pfn>, all: usize) {
    pfns.sort_unstable();
    assert!(pfns.last().is_none_or(|last| last.index() < all), "{:?} is no frame", pfns.last());
    let twice = pfns.windows(2).find(|pair| pair[0] == pair[1]);
    assert_eq!(twice, None, "handed out twice");
}

/// Random numbers: xorshift64*, Vigna 2016.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as usize * bound) >> 32
    }
    /// Fisher and Yates.
    fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

fn free_all<const SHARED: bool>(frames: &Frames<SHARED>, pfns: &[Pfn], order: Order) {
    pfns.iter().for_each(|&pfn| frames.free_pages(pfn, order));
}

fn two_frames_are_taken_and_freed<const SHARED: bool>() {
    each::<SHARED>(GIB, |machine| {
        let frames = machine.frames();
        assert_eq!(used(machine, GIB), 0);
        let (first, second) = (take(frames, Order::ZERO), take(frames, Order::ZERO));
        let (first, second) = (first.expect("memory"), second.expect("memory"));
        assert_ne!(first, second);
        assert_eq!(used(machine, GIB), 2);
        frames.free_pages(second, Order::ZERO);
        frames.free_pages(first, Order::ZERO);
        assert_eq!(used(machine, GIB), 0);
    });
}

fn all_frames_are_taken_some_are_freed_and_taken_again<const SHARED: bool>() {
    let all = 2 * GIB;
    each::<SHARED>(all, |machine| {
        let frames = machine.frames();
        let first = take(frames, Order::ZERO).expect("memory");
        assert_eq!(used(machine, all), 1);
        let mut others = take_all(frames, Order::ZERO);
        assert_eq!((others.len(), used(machine, all)), (all - 1, all));
        frames.verify().expect("all are taken");
        others.sort_unstable();
        check_different(others.clone(), all);
        let some = &mut others[..HUGE - 10];
        free_all(frames, some, Order::ZERO);
        assert_eq!(used(machine, all), all - (HUGE - 10));
        some.iter_mut().for_each(|pfn| *pfn = take(frames, Order::ZERO).expect("some are free"));
        frames.free_pages(first, Order::ZERO);
        free_all(frames, &others, Order::ZERO);
        assert_eq!(used(machine, all), 0);
    });
}

fn named_frames_are_taken_and_others_are_still_found<const SHARED: bool>() {
    each::<SHARED>(GIB, |machine| {
        let frames = machine.frames();
        let named = [(1, Order::ZERO), (2, Order::ZERO), (HUGE, Order::PAGEBLOCK)];
        for (pfn, order) in named {
            frames.alloc_at(Pfn::new(pfn), order).expect("it is free");
        }
        let other = take(frames, Order::ZERO).expect("memory");
        assert!(named.iter().all(|&(pfn, _)| other != Pfn::new(pfn)));
        assert_eq!(used(machine, GIB), 3 + HUGE);
        let again = frames.alloc_at(Pfn::new(1), Order::ZERO);
        assert!(again.is_err(), "it is in use");
        named.iter().for_each(|&(pfn, order)| frames.free_pages(Pfn::new(pfn), order));
        frames.free_pages(other, Order::ZERO);
        assert_eq!(used(machine, GIB), 0);
    });
}

/// Frees a random frame and takes another, as often as there are frames.
fn reallocate<const SHARED: bool>(frames: &Frames<SHARED>, pfns: &mut [Pfn], random: &mut Random) {
    random.shuffle(pfns);
    for _ in 0..pfns.len() {
        let at = random.below(pfns.len());
        frames.free_pages(pfns[at], Order::ZERO);
        pfns[at] = take(frames, Order::ZERO).expect("one was freed");
    }
}

fn random_frames_are_freed_and_taken_anew<const SHARED: bool>() {
    each::<SHARED>(GIB, |machine| {
        let frames = machine.frames();
        let mut random = Random::new(100);
        let half = (0..GIB / 2).map(|_| take(frames, Order::ZERO).expect("memory"));
        let mut pfns: Vec<Pfn> = half.collect();
        assert_eq!(used(machine, GIB), GIB / 2);
        reallocate(frames, &mut pfns, &mut random);
        assert_eq!(used(machine, GIB), GIB / 2);
        check_different(pfns.clone(), GIB);
        random.shuffle(&mut pfns);
        free_all(frames, &pfns, Order::ZERO);
        assert_eq!(used(machine, GIB), 0);
    });
}

fn random_frees_of_all_cpus_leave_all_huge_pages_whole<const SHARED: bool>() {
    let all = 2 * GIB;
    each::<SHARED>(all, |machine| {
        let share = all / CPUS / 4 * 3;
        let taken = machine.on_each(CPUS, |frames, _| -> Vec<Pfn> {
            (0..share).map(|_| take(frames, Order::ZERO).expect("memory")).collect()
        });
        let changed = machine.on_each(CPUS, |frames, cpu| {
            let (mut pfns, mut random) = (taken[cpu].clone(), Random::new(cpu as u64));
            reallocate(frames, &mut pfns, &mut random);
            random.shuffle(&mut pfns);
            pfns
        });
        check_different(changed.concat(), all);
        machine.frames().verify().expect("half of memory is taken");
        machine.on_each(CPUS, |frames, cpu| free_all(frames, &changed[cpu], Order::ZERO));
        assert_eq!(used(machine, all), 0);
        let frames = machine.frames();
        (0..CPUS).for_each(|cpu| _ = frames.drain_pages(CpuId::new(cpu)));
        let whole = take_all(frames, Order::PAGEBLOCK);
        assert_eq!(whole.len(), all / HUGE, "whole huge pages");
        free_all(frames, &whole, Order::PAGEBLOCK);
    });
}

fn all_cpus_take_frames_at_a_time<const SHARED: bool>() {
    let (all, share) = (2 * GIB, GIB / 2 - 8 * HUGE);
    each::<SHARED>(all, |machine| {
        let taken = machine.on_each(CPUS, |frames, _| -> Vec<Pfn> {
            (0..share).map(|_| take(frames, Order::ZERO).expect("memory")).collect()
        });
        assert_eq!(used(machine, all), CPUS * share);
        check_different(taken.concat(), all);
    });
}

fn no_frame_is_left_when_all_are_taken<const SHARED: bool>() {
    let all = 2 * GIB;
    each::<SHARED>(all, |machine| {
        let frames = machine.frames();
        let taken = take_all(frames, Order::ZERO);
        assert_eq!((taken.len(), used(machine, all)), (all, all));
        assert_eq!(take(frames, Order::PAGEBLOCK), None);
        check_different(taken, all);
    });
}

fn all_memory_is_taken_in_ranges_larger_than_any_block<const SHARED: bool>() {
    let (all, range) = (2 * GIB, 4 * HUGE);
    each::<SHARED>(all, |machine| {
        let frames = machine.frames();
        for start in (0..all).step_by(range).map(Pfn::new) {
            frames.alloc_contig_range(start, range).expect("it is free");
        }
        assert_eq!(used(machine, all), all);
        assert_eq!(take(frames, Order::ZERO), None);
        frames.verify().expect("all are taken");
        for start in (0..all).step_by(range).map(Pfn::new) {
            frames.free_contig_range(start, range);
        }
        assert_eq!(used(machine, all), 0);
    });
}

fn all_cpus_together_take_all_frames<const SHARED: bool>() {
    let all = GIB;
    each::<SHARED>(all, |machine| {
        let taken = machine.on_each(CPUS, |frames, _| take_all(frames, Order::ZERO)).concat();
        assert_eq!(used(machine, all), taken.len());
        // A CPU may have given up while another had the last frames in its cache.
        assert!(all - taken.len() < CPUS, "{} frames are left", all - taken.len());
        check_different(taken, all);
    });
}

fn little_memory_is_shared_by_all_cpus<const SHARED: bool>() {
    let (all, share) = (4096, 4096 / CPUS - CPUS);
    each::<SHARED>(all, |machine| {
        let taken = machine.on_each(CPUS, |frames, cpu| -> Vec<Pfn> {
            let take = |nth| {
                // A second attempt, as another CPU may have had the page on its way.
                let pfn = take(frames, Order::ZERO).or_else(|| take(frames, Order::ZERO));
                pfn.unwrap_or_else(|| panic!("CPU {cpu} finds no memory after {nth} frames"))
            };
            (0..share).map(take).collect()
        });
        assert_eq!(used(machine, all), CPUS * share);
        check_different(taken.concat(), all);
        machine.on_each(CPUS, |frames, cpu| free_all(frames, &taken[cpu], Order::ZERO));
        assert_eq!(used(machine, all), 0);
    });
}

fn all_cpus_together_take_all_huge_pages<const SHARED: bool>() {
    let all = 2 * GIB;
    each::<SHARED>(all, |machine| {
        let taken = machine.on_each(CPUS, |frames, cpu| -> Vec<Pfn> {
            let take = |nth| {
                let pfn = take_huge(frames);
                pfn.unwrap_or_else(|| panic!("CPU {cpu} finds no memory after {nth} huge pages"))
            };
            (0..all / HUGE / CPUS).map(take).collect()
        });
        assert_eq!(used(machine, all), all);
        check_different(taken.concat(), all);
    });
}

fn all_cpus_take_and_free_at_a_time<const SHARED: bool>() {
    let (all, share) = (2 * GIB, GIB / 2 - 8 * HUGE);
    each::<SHARED>(all, |machine| {
        machine.on_each(CPUS, |frames, cpu| {
            let mut pfns: Vec<Pfn> =
                (0..share).map(|_| take(frames, Order::ZERO).expect("memory")).collect();
            Random::new(cpu as u64).shuffle(&mut pfns);
            free_all(frames, &pfns, Order::ZERO);
        });
        assert_eq!(used(machine, all), 0);
    });
}

fn a_cpu_frees_what_another_has_taken_while_that_takes_more<const SHARED: bool>() {
    let (all, share) = (GIB, GIB / 4);
    each::<SHARED>(all, |machine| {
        let frames = machine.frames();
        let first: Vec<Pfn> =
            (0..share).map(|_| take(frames, Order::ZERO).expect("memory")).collect();
        frames.verify().expect("some are taken");
        let second = machine.on_each(2, |frames, cpu| -> Vec<Pfn> {
            if cpu == 1 {
                free_all(frames, &first, Order::ZERO);
                return Vec::new();
            }
            (0..share).map(|_| take(frames, Order::ZERO).expect("memory")).collect()
        });
        assert_eq!(used(machine, all), share);
        check_different(second.concat(), all);
    });
}

fn blocks_of_all_orders_are_taken_and_freed_by_all_cpus<const SHARED: bool>() {
    let largest = Order::all().next_back().expect("there are orders");
    // Each CPU takes as many pages of each order as the largest block has.
    let all = largest.pages() * (Order::all().count() + 1) * CPUS;
    each::<SHARED>(all, |machine| {
        let refused = machine.on_each(CPUS, |frames, cpu| {
            let mut random = Random::new(42 + cpu as u64);
            let of = |order: Order| vec![order; largest.pages() / order.pages()];
            let mut orders: Vec<Order> = Order::all().flat_map(of).collect();
            random.shuffle(&mut orders);
            let mut taken = Vec::new();
            for &order in &orders {
                if let Some(pfn) = take(frames, order) {
                    assert!(pfn.is_aligned(order), "{pfn:?} for order {order:?}");
                    taken.push((pfn, order));
                }
            }
            random.shuffle(&mut taken);
            taken.iter().for_each(|&(pfn, order)| frames.free_pages(pfn, order));
            orders.len() - taken.len()
        });
        // Another CPU may have had the last large block.
        assert!(refused.iter().all(|&refused| refused <= CPUS), "{refused:?} were refused");
        assert_eq!(used(machine, all), 0);
    });
}

fn memory_that_was_taken_at_the_start_and_freed_by_one_cpu_is_for_all<const SHARED: bool>() {
    let all = 2 * GIB;
    each::<SHARED>(all, |machine| {
        let frames = machine.frames();
        let blocks: Vec<Pfn> = (0..all).step_by(HUGE).map(Pfn::new).collect();
        blocks.iter().for_each(|&pfn| frames.alloc_at(pfn, Order::PAGEBLOCK).expect("it is free"));
        assert_eq!(used(machine, all), all);
        free_all(frames, &blocks, Order::PAGEBLOCK);
        assert_eq!(used(machine, all), 0);
        let taken = machine.on_each(2, |frames, cpu| -> Vec<Pfn> {
            let take = |nth| {
                let pfn = take_huge(frames);
                pfn.unwrap_or_else(|| panic!("CPU {cpu} finds no memory after {nth} huge pages"))
            };
            (0..all / HUGE / 2).map(take).collect()
        });
        assert_eq!(used(machine, all), all);
        check_different(taken.concat(), all);
    });
}

fn a_huge_page_is_found_next_to_fragments<const SHARED: bool>() {
    let all = 16 * HUGE;
    each::<SHARED>(all, |machine| {
        let frames = machine.frames();
        let half: Vec<Pfn> =
            (0..all / 2).map(|_| take(frames, Order::ZERO).expect("memory")).collect();
        let every_second: Vec<Pfn> = half.iter().copied().step_by(2).collect();
        free_all(frames, &every_second, Order::ZERO);
        assert!(take(frames, Order::PAGEBLOCK).is_some(), "half of memory was never used");
    });
}

fn single_frames_use_the_rest_of_what_huge_pages_began<const SHARED: bool>() {
    let all = 16 * HUGE;
    each::<SHARED>(all, |machine| {
        let frames = machine.frames();
        let huge = take(frames, Order::PAGEBLOCK).expect("memory");
        let single = take_all(frames, Order::ZERO);
        assert_eq!((single.len(), used(machine, all)), (all - HUGE, all));
        assert!(single.iter().all(|pfn| pfn.align_down(Order::PAGEBLOCK) != huge));
    });
}

fn what_an_idle_cpu_keeps_is_drained_for_another<const SHARED: bool>() {
    let all = 64 * HUGE;
    each::<SHARED>(all, |machine| {
        machine.frames().drain_all();
        let of_second = machine.on_each(
            2,
            |frames, cpu| {
                if cpu == 1 { take(frames, Order::ZERO) } else { None }
            },
        );
        let rest = take_all(machine.frames(), Order::ZERO);
        assert_eq!((of_second.iter().flatten().count(), rest.len()), (1, all - 1));
        assert_eq!(used(machine, all), all);
    });
}

fn cpus_take_and_free_up_to_random_amounts<const SHARED: bool>() {
    let all = GIB;
    each::<SHARED>(all, |machine| {
        let held = machine.on_each(CPUS, |frames, cpu| {
            let (mut pfns, mut random) = (Vec::new(), Random::new(7 + cpu as u64));
            for _ in 0..20 {
                let target = random.below(all / CPUS);
                while pfns.len() > target {
                    frames.free_pages(pfns.pop().expect("there are more"), Order::ZERO);
                }
                while pfns.len() < target {
                    let Some(pfn) = take(frames, Order::ZERO) else { break };
                    pfns.push(pfn);
                }
            }
            pfns
        });
        assert_eq!(used(machine, all), held.concat().len());
        check_different(held.concat(), all);
    });
}

fn movable_and_unmovable_frames_together_use_all_memory<const SHARED: bool>() {
    let all = 128 * HUGE;
    each::<SHARED>(all, |machine| {
        let frames = machine.frames();
        let kind = |nth: usize| if nth.is_multiple_of(3) { Movable } else { Unmovable };
        let taken = (0..all).map(|nth| take_as(frames, Order::ZERO, kind(nth)));
        check_different(taken.map(|pfn| pfn.expect("memory")).collect(), all);
        assert_eq!(take_as(frames, Order::ZERO, Unmovable), None);
        assert_eq!(used(machine, all), all);
    });
}

/// The first allocator is lost, as in a crash; its memory is still there.
fn another_allocator_takes_over_what_a_lost_one_had_handed_out<const SHARED: bool>() {
    let all = GIB;
    for (name, config) in configs() {
        let lost = Machine::<SHARED>::new(all, config);
        let mut taken = Vec::new();
        for order in [Order::ZERO, Order::PAGEBLOCK].repeat(128) {
            taken.push((take(lost.frames(), order).expect("memory"), order));
        }
        // Of one block a half was freed, and single frames stay.
        let lost_frames = lost.frames();
        let half = Order::new(8).expect("there is one");
        let block = take(lost_frames, Order::PAGEBLOCK).expect("memory");
        lost_frames.split_page(block, Order::PAGEBLOCK, half);
        lost_frames.free_pages(block, half);
        let second = block.offset(half.pages());
        lost_frames.split_page(second, half, Order::ZERO);
        taken.extend((0..half.pages()).map(|at| (second.offset(at), Order::ZERO)));
        let new = Machine::<SHARED>::new(all, config);
        new.frames().restore_from(lost.frames()).expect("all is free here");
        let new_used = used(&new, all);
        assert_eq!(new_used, 128 * (1 + HUGE) + half.pages(), "{name}");
        for (pfn, order) in taken {
            assert!(new.frames().alloc_at(pfn, Order::ZERO).is_err(), "{name}: {pfn:?} is free");
            new.frames().free_pages(pfn, order);
        }
        assert_eq!(used(&new, all), 0, "{name}");
        new.frames().verify().unwrap_or_else(|why| panic!("{name}: {why:?}"));
    }
}

/// LLFree has a class for memory that is prepared, such as zeroed. Here the embedder has a list of
/// such pageblocks, and takes them by name.
fn prepared_pageblocks_are_taken_by_name_and_then_any_other<const SHARED: bool>() {
    let all = 96 * HUGE;
    each::<SHARED>(all, |machine| {
        let frames = machine.frames();
        let mut prepared: Vec<Pfn> = (40..48).map(|at| Pfn::new(at * HUGE)).collect();
        for &block in &prepared {
            frames.offline_pageblock(block).expect("it is free");
        }
        assert_eq!(frames.count_free().total() as usize, all - 8 * HUGE);
        assert!(frames.alloc_at(prepared[0], Order::PAGEBLOCK).is_err(), "it is offline");
        // Here the embedder clears them.
        for &block in &prepared {
            frames.online_pageblock(block).expect("it is offline");
        }
        assert_eq!(used(machine, all), 0);
        let mut take_prepared = || {
            let named = prepared.pop();
            let named = named.filter(|&block| frames.alloc_at(block, Order::PAGEBLOCK).is_ok());
            named.or_else(|| take(frames, Order::PAGEBLOCK)).expect("memory").pageblock()
        };
        let taken: Vec<usize> = (0..9).map(|_| take_prepared()).collect();
        assert!(taken[..8].iter().all(|block| (40..48).contains(block)), "{taken:?}");
        assert!(!(40..48).contains(&taken[8]), "{taken:?}");
    });
}

/// Makes each case a test of CPUs with interrupts, and of CPUs that share their caches.
macro_rules! tests {
    ($($case:ident)*) => {
        mod interrupts {
            $(#[test] fn $case() { super::$case::<false>(); })*
        }
        mod shared_caches {
            $(#[test] fn $case() { super::$case::<true>(); })*
        }
    };
}

tests! {
    two_frames_are_taken_and_freed
    all_frames_are_taken_some_are_freed_and_taken_again
    named_frames_are_taken_and_others_are_still_found
    random_frames_are_freed_and_taken_anew
    random_frees_of_all_cpus_leave_all_huge_pages_whole
    all_cpus_take_frames_at_a_time
    no_frame_is_left_when_all_are_taken
    all_memory_is_taken_in_ranges_larger_than_any_block
    all_cpus_together_take_all_frames
    little_memory_is_shared_by_all_cpus
    all_cpus_together_take_all_huge_pages
    all_cpus_take_and_free_at_a_time
    a_cpu_frees_what_another_has_taken_while_that_takes_more
    blocks_of_all_orders_are_taken_and_freed_by_all_cpus
    memory_that_was_taken_at_the_start_and_freed_by_one_cpu_is_for_all
    a_huge_page_is_found_next_to_fragments
    single_frames_use_the_rest_of_what_huge_pages_began
    what_an_idle_cpu_keeps_is_drained_for_another
    cpus_take_and_free_up_to_random_amounts
    movable_and_unmovable_frames_together_use_all_memory
    another_allocator_takes_over_what_a_lost_one_had_handed_out
    prepared_pageblocks_are_taken_by_name_and_then_any_other
}
