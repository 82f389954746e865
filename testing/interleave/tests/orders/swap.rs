//! A page is swapped out, swapped in, written, shared and unmapped by different CPUs, in every
//! order.

use crate::paged::{Entry, NODE, Paged};
use mmscale_arch::sync::Completion;
use mmscale_arch::{Cpu as _, Ipi, Machine as _, NodeId, TaskId};
use mmscale_frames::page_alloc::MemoryMap;
use mmscale_frames::vmstat::ZoneItem;
use mmscale_interleave::{Hooks, Model, check, cpu_body, run};
use mmscale_mm::lru::LruPolicy;
use mmscale_mm::mm::MmConfig;
use mmscale_mm::swap::SwapConfig;
use mmscale_mm::vmstat_work::TickPolicy;
use std::sync::Arc;

type World = Paged<Model>;

struct Forward(Arc<World>);

impl Hooks for Forward {
    fn ipi(&self, reason: Ipi) {
        match reason {
            Ipi::Block => self.0.swap.io_interrupt(self.0.memory()),
            _ => self.0.mm.ipi(reason),
        }
    }
}

type Step = fn(&World);

/// Pages 0 and 1 share a folio that holds 7. `before` runs on CPU 0, then each CPU runs its step.
/// `after` checks; the structures must be consistent, and nothing may be left.
fn on_two_pages(before: Step, steps: &'static [Step], after: Step) {
    check(150, move || {
        let mut made = None;
        run(steps.len(), || {
            let mut config = MmConfig::new(MemoryMap::single(2048), TickPolicy::Stock);
            config.lru = LruPolicy::Lazy;
            let swap = SwapConfig { pages: 600, ..SwapConfig::default() };
            let world = Arc::new(World::new(&config, swap, 4));
            made = Some(Arc::clone(&world));
            let ready = Arc::new(Completion::<Model>::new());
            let body = |(at, step): (usize, &Step)| {
                let (world, step, ready) = (Arc::clone(&world), *step, Arc::clone(&ready));
                cpu_body(move || {
                    if at == 0 {
                        world.touch(0, Some(7)).expect("there is memory");
                        world.share(0);
                        before(&world);
                        ready.complete();
                    }
                    ready.wait();
                    step(&world);
                })
            };
            let bodies = steps.iter().enumerate().map(body).collect();
            (Some(Arc::new(Forward(world)) as Arc<dyn Hooks>), bodies)
        });
        let world = made.expect("it was built");
        after(&world);
        world.audit();
        world.end();
    });
}

fn out(world: &World) {
    world.page_out(0);
}

/// Swaps it out completely: only the slot has the content.
fn gone(world: &World) {
    world.page_out(0);
    world.reclaim.direct(world.scope(), NodeId::new(0), 1, None);
}

fn write(world: &World) {
    world.touch(0, Some(9)).expect("the device works");
}

/// Checks that the shared page holds 7, or 9 after the write, if it is mapped.
fn read_twin(world: &World) {
    if world.entry(1) != Entry::None {
        let found = world.touch(1, None).expect("the device works");
        assert!(found == 7 || found == 9, "{found}");
    }
}

fn unmap(world: &World) {
    world.unmap_page(0);
}

fn reclaim(world: &World) {
    world.reclaim.direct(world.scope(), NodeId::new(0), 1, None);
}

#[test]
fn what_is_written_while_it_goes_out_is_not_lost() {
    on_two_pages(
        |_| {},
        &[out, write, read_twin],
        |world| {
            assert_eq!(world.touch(0, None), Ok(9));
        },
    );
}

#[test]
fn two_reclaimers_and_a_writer_agree() {
    on_two_pages(
        |_| {},
        &[gone, reclaim, write],
        |world| {
            assert_eq!(world.touch(0, None), Ok(9));
        },
    );
}

#[test]
fn both_owners_get_one_folio_back() {
    on_two_pages(gone, &[read_twin, write, reclaim], |world| {
        assert_eq!((world.touch(0, None), world.touch(1, None)), (Ok(9), Ok(9)));
    });
}

#[test]
fn a_slot_that_is_given_back_while_it_is_read_leaves_nothing() {
    on_two_pages(gone, &[unmap, read_twin, reclaim], |world| {
        assert_eq!((world.touch(0, None), world.touch(1, None)), (Ok(0), Ok(7)));
    });
}

/// The task of CPU 1.
const RECLAIMER: TaskId = TaskId::new(1);

/// A program fills memory until background reclaim is wanted, and waits for it.
#[test]
fn background_reclaim_frees_memory_up_to_the_high_watermark() {
    check(5, || {
        run(2, || {
            let mut config = MmConfig::new(MemoryMap::single(1024), TickPolicy::Stock);
            config.lru = LruPolicy::Stock;
            let swap = SwapConfig { pages: 1024, ..SwapConfig::default() };
            let world = Arc::new(World::new(&config, swap, 1024));
            let (program, reclaims) = (Arc::clone(&world), Arc::clone(&world));
            let bodies = vec![
                cpu_body(move || {
                    let frames = program.mm.frames();
                    let zone = &frames.zones()[0];
                    let free = || frames.stats().zone(zone.id(), ZoneItem::FreePages);
                    let mut pages = 0..1024;
                    while Model::is_running(RECLAIMER) {
                        Model::relax();
                    }
                    while frames.reclaim_wakes() == 0 {
                        let page = pages.next().expect("memory gets low before it is full");
                        program.touch(page, None).expect("there is memory");
                    }
                    while free() <= u64::from(zone.watermarks().high) {
                        Model::relax();
                    }
                    program.reclaim.stop(program.memory());
                    assert!(program.reclaim.counters().background_runs > 0);
                }),
                cpu_body(move || reclaims.reclaim.kswapd(reclaims.scope(), NODE)),
            ];
            (Some(Arc::new(Forward(world)) as Arc<dyn Hooks>), bodies)
        });
    });
}

/// Reuses the frame for page 2 immediately: the page cache allocates the frame that was freed last.
fn reuse(world: &World) {
    reclaim(world);
    world.touch(2, Some(22)).expect("there is memory");
}

#[test]
fn a_look_that_comes_late_does_not_find_the_next_folio_of_the_frame() {
    // At first it is in the cache, clean and unmapped.
    on_two_pages(out, &[reuse, read_twin, write], |world| {
        let found = (world.touch(0, None), world.touch(1, None), world.touch(2, None));
        assert_eq!(found, (Ok(9), Ok(9), Ok(22)));
    });
}
