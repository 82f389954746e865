//! The real frame allocator on the machine: the same under both policies, contended where it should
//! be, and consistent at the end.

use crate::common::{config, run_script};
use mmscale_arch::{Cpu as _, Machine as _, Order, Pfn};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::{AllocConfig, FrameAllocator, Gfp, MemoryMap};
use mmscale_sim::{Outcome, Policy, Sim, SimConfig};
use std::cell::RefCell;
use std::rc::Rc;

const CPUS: usize = 8;
const PAGES: u32 = 1 << 15;

/// Blocks that move between CPUs: most are freed by a CPU other than the one that allocated them.
type Blocks = RefCell<Vec<(Pfn, Order)>>;

/// Draws the next word of a task's own choices.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e);
    *state >> 33
}

fn hammer(frames: &FrameAllocator<Sim>, shelf: &[Blocks], seed: u64, steps: u32) {
    let mut state = seed;
    for _ in 0..steps {
        let order = Order::new([0, 0, 0, 0, 4, 5, 9][next(&mut state) as usize % 7]);
        let order = order.expect("all are small");
        if let Ok(pfn) = frames.alloc_pages(order, MigrateType::Movable, Gfp::empty()) {
            Sim::user(next(&mut state) % 300);
            shelf[Sim::cpu().index()].borrow_mut().push((pfn, order));
        }
        let mine = shelf[Sim::cpu().index()].borrow_mut().pop();
        if !next(&mut state).is_multiple_of(3) {
            if let Some((pfn, order)) = mine {
                frames.free_pages(pfn, order);
            }
        } else if let Some(block) = mine {
            shelf[Sim::cpu().index()].borrow_mut().insert(0, block);
        }
    }
    for (pfn, order) in shelf[Sim::cpu().index()].take() {
        frames.free_pages(pfn, order);
    }
}

fn outcome(seed: u64, policy: Policy) -> Outcome {
    let config = SimConfig { seed, policy, ..config(CPUS) };
    run_script(config, |script| {
        let map = MemoryMap::single(PAGES);
        let frames = FrameAllocator::<Sim>::new(&map, AllocConfig::default());
        let frames = Rc::new(frames.expect("the map is sound"));
        let shelf: Rc<Vec<Blocks>> = Rc::new((0..CPUS).map(|_| Blocks::default()).collect());
        let tasks: Vec<_> = (0..CPUS)
            .map(|cpu| {
                let (frames, shelf) = (Rc::clone(&frames), Rc::clone(&shelf));
                script.spawn(cpu, move || {
                    hammer(&frames, &shelf, seed << 8 | cpu as u64, 300);
                    Sim::park();
                })
            })
            .collect();
        script.spawn(0, move || {
            tasks.into_iter().for_each(Sim::unpark);
            Sim::user(3_000_000);
            frames.drain_all();
            let audit = frames.verify().expect("the allocator adds up");
            assert_eq!(audit.held, 0, "{audit:?}");
        });
    })
}

#[test]
fn the_frame_allocator_is_the_same_under_both_policies() {
    for seed in 0..8 {
        let (lazy, naive) = (outcome(seed, Policy::Lazy), outcome(seed, Policy::Naive));
        assert_eq!((&lazy.failure, &lazy.violations), (&None, &vec![]));
        assert_eq!(lazy.locks, naive.locks, "seed {seed}");
        assert_eq!(lazy.fingerprint, naive.fingerprint, "seed {seed}");
        let zone = lazy.locks.iter().filter(|row| row.class == "zone");
        assert!(zone.map(|row| row.contentions).sum::<u64>() > 50, "{:?}", lazy.locks);
    }
}
