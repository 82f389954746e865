//! Page caches and counters: operations of one CPU while another reads or drains.

use mmscale_arch::sync::IrqGuard;
use mmscale_arch::{CpuId, Machine, NodeId, Order, Pfn, TaskId};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::{AllocConfig, DecayRequest, FrameAllocator, Gfp, MemoryMap};
use mmscale_frames::vmstat::NodeItem;
use mmscale_frames::zone::ZoneId;
use mmscale_interleave::{Model, check, cpu_body, run};
use std::sync::Arc;

const PAGES: u32 = 4096;
const ZONE: ZoneId = ZoneId::new(0);

fn frames() -> Arc<FrameAllocator<Model>> {
    let map = MemoryMap::single(PAGES);
    Arc::new(FrameAllocator::new(&map, AllocConfig::default()).expect("a sane map"))
}

fn alloc(frames: &FrameAllocator<Model>) -> Pfn {
    let page = frames.alloc_pages(Order::ZERO, MigrateType::Movable, Gfp::KERNEL);
    page.expect("there is memory")
}

/// Allocates, frees, allocates.
fn churn(frames: &FrameAllocator<Model>) {
    let (a, b) = (alloc(frames), alloc(frames));
    assert_ne!(a, b, "one frame for two");
    frames.free_pages(a, Order::ZERO);
    frames.free_pages(alloc(frames), Order::ZERO);
    frames.free_pages(b, Order::ZERO);
}

/// Runs `other` on CPU 1 against allocations and frees on CPU 0; then the structures must be
/// consistent.
fn against_churn(other: fn(&FrameAllocator<Model>)) {
    check(400, move || {
        let mut made = None;
        run(2, || {
            let frames = frames();
            made = Some(Arc::clone(&frames));
            let (a, b) = (Arc::clone(&frames), frames);
            (None, vec![cpu_body(move || churn(&a)), cpu_body(move || other(&b))])
        });
        let audit = made.expect("it was built").verify().expect("everything adds up");
        assert_eq!((audit.held, audit.free + audit.cached), (0, u64::from(PAGES)));
    });
}

#[test]
fn two_cpus_never_get_the_same_frame() {
    against_churn(churn);
}

#[test]
fn a_cache_may_be_drained_from_afar_at_any_time() {
    against_churn(|frames| {
        frames.drain_pages(CpuId::new(0));
        frames.drain_pages(CpuId::new(0));
    });
}

#[test]
fn the_ticks_decay_runs_beside_refills() {
    against_churn(|frames| {
        churn(frames);
        frames.refresh_cpu_vm_stats(DecayRequest::PerRun, Model::cond_resched);
    });
}

#[test]
fn the_phased_decay_runs_beside_refills_and_waits_for_nobody() {
    against_churn(|frames| {
        churn(frames);
        for elapsed_ns in [1_000_000, 0] {
            let interval_ns = 1_000;
            frames.refresh_cpu_vm_stats(
                DecayRequest::Elapsed { elapsed_ns, interval_ns },
                Model::cond_resched,
            );
        }
    });
}

/// The shepherd's read of another CPU's bytes is a hint, but after the CPU is quiet it is right,
/// and no count is lost in any order of the folds.
#[test]
fn the_shepherd_sees_what_is_not_folded() {
    check(1500, || {
        let mut made = None;
        run(2, || {
            let frames = frames();
            made = Some(Arc::clone(&frames));
            let (counter, shepherd) = (Arc::clone(&frames), frames);
            let count = cpu_body(move || {
                let add = |pages| {
                    let off = IrqGuard::new();
                    let item = NodeItem::FilePages;
                    counter.stats().mod_node(&off, NodeId::new(0), item, pages);
                };
                add(3);
                counter.fold_counters();
                add(1000);
                add(2);
            });
            let look = cpu_body(move || {
                shepherd.stats().needs_update(CpuId::new(0));
                let seen = shepherd.stats().all_nodes(NodeItem::FilePages);
                assert!([0, 3, 1003, 1005].contains(&seen), "{seen}");
            });
            (None, vec![count, look])
        });
        let stats = made.expect("it was built");
        let stats = stats.stats();
        assert!(stats.needs_update(CpuId::new(0)), "two pages are not folded");
        stats.fold_dead(CpuId::new(0));
        assert_eq!(stats.all_nodes(NodeItem::FilePages), 1005);
        assert!(!stats.needs_update(CpuId::new(0)));
    });
}

/// Two nodes become short, and one of them has enough again. In any order of the three changes, the
/// thresholds are those for short memory, and in the end the normal ones.
#[test]
fn thresholds_follow_the_last_change_of_who_is_short() {
    check(1500, || {
        let mut made = None;
        run(2, || {
            let frames = frames();
            made = Some(Arc::clone(&frames));
            let (first, second) = (Arc::clone(&frames), frames);
            let comes_and_goes = cpu_body(move || {
                first.node_is_short();
                first.node_is_balanced();
            });
            (None, vec![comes_and_goes, cpu_body(move || second.node_is_short())])
        });
        let frames = made.expect("it was built");
        let short = frames.stats().threshold(ZONE);
        frames.node_is_balanced();
        let normal = frames.stats().threshold(ZONE);
        frames.node_is_short();
        assert_eq!(frames.stats().threshold(ZONE), short);
        assert_ne!(short, normal);
    });
}

/// A reclaimer that checks before it sleeps misses no wake-up.
#[test]
fn a_reclaimer_that_is_wanted_wakes() {
    check(300, || {
        run(2, || {
            let frames = frames();
            let (reclaimer, wakes) = (Arc::clone(&frames), frames);
            let node = NodeId::new(0);
            reclaimer.set_reclaimer(node, Some(TaskId::new(0)));
            let sleeps = cpu_body(move || {
                while !reclaimer.take_wake(node) {
                    Model::park();
                }
            });
            (None, vec![sleeps, cpu_body(move || wakes.wake_reclaimer(node))])
        });
    });
}

/// Two CPUs take a pageblock offline each. In either order, the limits of page caches in the end
/// are those for the remaining memory.
#[test]
fn limits_of_page_caches_follow_all_offline_pageblocks() {
    let limits = |frames: &FrameAllocator<Model>| {
        [0, 1].map(|cpu| frames.inspect_pcp(ZONE, CpuId::new(cpu), |pcp| pcp.limits().high_max))
    };
    let offline = |block: usize| {
        move |frames: &FrameAllocator<Model>| {
            frames.offline_pageblock(Pfn::new(512 * block)).expect("all of it is free");
        }
    };
    check(600, move || {
        let mut made = None;
        run(2, || {
            let (frames, expected) = (frames(), frames());
            [0, 3].map(offline).iter().for_each(|offline| offline(&expected));
            made = Some((Arc::clone(&frames), limits(&expected)));
            let (a, b) = (Arc::clone(&frames), frames);
            let bodies = vec![cpu_body(move || offline(0)(&a)), cpu_body(move || offline(3)(&b))];
            (None, bodies)
        });
        let (frames, expected) = made.expect("it was built");
        assert_eq!(limits(&frames), expected);
    });
}
