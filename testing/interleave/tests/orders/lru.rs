//! Lazy membership: a folio is added, used and released by different CPUs, in every order.

use mmscale_arch::{Ipi, NodeId, Order, Pfn};
use mmscale_frames::page_alloc::{Gfp, MemoryMap};
use mmscale_interleave::{Hooks, Model, check, cpu_body, run};
use mmscale_mm::folio::{FolioFlags, FolioInit};
use mmscale_mm::lru::{BATCH, LruAudit, LruList, LruPolicy};
use mmscale_mm::memcg::GroupId;
use mmscale_mm::mm::{Mm, MmConfig};
use mmscale_mm::vmstat_work::TickPolicy;
use std::sync::Arc;

pub(super) type World = Mm<Model>;

pub(super) const WHAT: FolioInit = FolioInit {
    group: GroupId::ROOT,
    flags: FolioFlags::ANON.union(FolioFlags::SWAP_BACKED),
    mapping: 0,
    index: 0,
};

pub(super) struct Forward(pub(super) Arc<World>);

impl Hooks for Forward {
    fn ipi(&self, reason: Ipi) {
        self.0.ipi(reason);
    }
    fn idle_enter(&self) {
        self.0.rcu().idle_enter();
    }
    fn idle_exit(&self) {
        self.0.rcu().idle_exit();
    }
}

fn folio(mm: &World) -> Pfn {
    let node = NodeId::new(0);
    mm.memory().alloc_folio(node, Order::ZERO, Gfp::KERNEL, WHAT).expect("there is memory")
}

type Step = fn(&World, Pfn);

/// Each CPU runs its step on one folio, of which it has a reference that it drops. `before` folios
/// are in CPU 0's batch already. Nothing may be left, and the structures must be consistent at the
/// end.
fn on_one_folio(policy: LruPolicy, before: usize, steps: &'static [Step]) {
    check(200, move || {
        let mut made = None;
        run(steps.len(), || {
            let mut config = MmConfig::new(MemoryMap::single(2048), TickPolicy::Stock);
            config.lru = policy;
            let mm = Arc::new(Mm::<Model>::new(&config).expect("a sound configuration"));
            let waiting: Vec<_> = (0..before).map(|_| folio(&mm)).collect();
            waiting.iter().for_each(|&pfn| mm.memory().add(pfn));
            let pfn = folio(&mm);
            (1..steps.len()).for_each(|_| mm.memory().folios.get(pfn));
            made = Some((Arc::clone(&mm), waiting));
            let body = |step: &Step| {
                let (mm, step) = (Arc::clone(&mm), *step);
                cpu_body(move || step(&mm, pfn))
            };
            let bodies = steps.iter().map(body).collect();
            (Some(Arc::new(Forward(mm)) as Arc<dyn Hooks>), bodies)
        });
        let (mm, waiting) = made.expect("it was built");
        let audit = mm.memory().verify().expect("the LRU adds up");
        if policy == LruPolicy::Lazy {
            assert_eq!(audit.folios, before as u64, "the last one out leaves nothing in a batch");
        }
        waiting.into_iter().for_each(|pfn| mm.memory().put(pfn));
        (0..steps.len()).for_each(|cpu| {
            mm.memory().drain_stopped(mmscale_arch::CpuId::new(cpu));
        });
        assert_eq!(mm.memory().verify().expect("the LRU adds up"), LruAudit::default());
        assert_eq!(mm.verify().expect("the frames add up").held, 0);
    });
}

/// Adds it, as a fault does.
fn add(mm: &World, pfn: Pfn) {
    mm.memory().add(pfn);
    mm.memory().put(pfn);
}
/// Adds it and drains, so that a batch is swept while others want the folio.
fn add_and_drain(mm: &World, pfn: Pfn) {
    mm.memory().add(pfn);
    mm.memory().drain();
    mm.memory().put(pfn);
}
/// Adds it, drops its reference, and drains: the batch may have the last reference.
fn leave_and_drain(mm: &World, pfn: Pfn) {
    mm.memory().add(pfn);
    mm.memory().put(pfn);
    mm.memory().drain();
}
/// Removes it from its list or its batch, and puts it back.
fn isolate(mm: &World, pfn: Pfn) {
    if mm.memory().isolate(pfn) {
        let word = mm.memory().folios.word(pfn);
        assert!(!word.flags().intersects(FolioFlags::LRU | FolioFlags::PENDING), "{word:?}");
        mm.memory().putback(pfn);
    }
    mm.memory().put(pfn);
}
/// Scans for the oldest folios as reclaim does, and puts them back.
fn scan(mm: &World, pfn: Pfn) {
    mm.memory().put(pfn);
    let (group, node, mut found) = (GroupId::ROOT, NodeId::new(0), [pfn; 2]);
    for list in [LruList::InactiveAnon, LruList::ActiveAnon] {
        let scan = mm.memory().isolate_oldest(group, node, list, 2, &mut found);
        for &pfn in &found[..scan.taken] {
            assert!(mm.memory().folios.word(pfn).refs() > 0);
            mm.memory().putback(pfn);
        }
    }
}
fn demand(mm: &World, pfn: Pfn) {
    mm.memory().demand(pfn);
    mm.memory().put(pfn);
}
fn lock_and_unlock(mm: &World, pfn: Pfn) {
    mm.memory().mlock(pfn);
    mm.memory().munlock(pfn);
    mm.memory().put(pfn);
}
/// Only drops its reference.
fn leave(mm: &World, pfn: Pfn) {
    mm.memory().put(pfn);
}
/// Drops its reference, and finds the folio again as a look-up without a reference does.
fn look_up(mm: &World, pfn: Pfn) {
    mm.memory().put(pfn);
    if mm.memory().folios.try_get(pfn) {
        assert!(mm.memory().folios.word(pfn).refs() > 0);
        mm.memory().put(pfn);
    }
}

#[test]
fn adding_demanding_and_letting_go_leave_nothing() {
    on_one_folio(LruPolicy::Lazy, 0, &[add, demand, leave]);
}

#[test]
fn a_look_up_that_comes_between_keeps_the_folio() {
    on_one_folio(LruPolicy::Lazy, 0, &[add, look_up]);
    on_one_folio(LruPolicy::Lazy, 0, &[add_and_drain, look_up, leave]);
}

#[test]
fn a_batch_that_is_swept_loses_no_folio_to_whoever_wants_it() {
    on_one_folio(LruPolicy::Lazy, 0, &[add_and_drain, isolate, leave]);
    on_one_folio(LruPolicy::Lazy, 0, &[add_and_drain, demand]);
}

#[test]
fn a_listed_folio_is_isolated_once() {
    on_one_folio(LruPolicy::Stock, 0, &[add_and_drain, isolate, isolate]);
}

#[test]
fn a_scan_takes_no_folio_that_is_about_to_be_freed() {
    on_one_folio(LruPolicy::Stock, 0, &[add_and_drain, scan]);
}

#[test]
fn a_folio_that_is_added_to_a_full_batch_and_let_go_elsewhere_is_freed_once() {
    on_one_folio(LruPolicy::Lazy, BATCH, &[add, leave, isolate]);
}

#[test]
fn locking_while_it_is_added_leaves_it_on_the_right_list() {
    for policy in LruPolicy::ALL {
        on_one_folio(policy, 0, &[add_and_drain, lock_and_unlock]);
    }
}

#[test]
fn freezing_at_the_drain_and_the_last_put_free_it_once() {
    for policy in [LruPolicy::Stock, LruPolicy::Freeze] {
        on_one_folio(policy, 0, &[add_and_drain, look_up, isolate]);
    }
    on_one_folio(LruPolicy::Freeze, 0, &[leave_and_drain, look_up]);
}
