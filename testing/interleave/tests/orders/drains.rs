//! Drains of all CPUs: one that relies on another's, and running without batches. `weak/lru.rs`
//! runs these scenarios on weak memory too.

use crate::lru::{Forward, WHAT, World};
use mmscale_arch::{Atomic, Cpu, CpuId, Machine as _, NodeId, Order, Pfn, TaskEntry};
use mmscale_frames::page_alloc::{Gfp, MemoryMap};
use mmscale_interleave::{Hooks, Model, Plain, check, cpu_body, run, set_online};
use mmscale_mm::folio::FolioFlags;
use mmscale_mm::lru::LruPolicy;
use mmscale_mm::mm::{Mm, MmConfig};
use mmscale_mm::vmstat_work::TickPolicy;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};

/// The CPU that adds a folio, and then handles requests to drain.
const ADDER: CpuId = CpuId::new(1);

pub(crate) struct Shared {
    pub(crate) mm: Arc<World>,
    pub(crate) pfn: Pfn,
    /// Whether the folio was added, or batches are off.
    told: <Model as Cpu>::AtomicU32,
    /// The content of the folio.
    pub(crate) content: Plain,
}

impl Shared {
    /// A memory manager with a folio that is on no list yet.
    pub(crate) fn new(policy: LruPolicy) -> Arc<Self> {
        let mut config = MmConfig::new(MemoryMap::single(1024), TickPolicy::Stock);
        config.lru = policy;
        let mm = Arc::new(Mm::<Model>::new(&config).expect("a sound configuration"));
        let node = NodeId::new(0);
        let pfn = mm.memory().alloc_folio(node, Order::ZERO, Gfp::KERNEL, WHAT);
        let pfn = pfn.expect("there is memory");
        Arc::new(Self { mm, pfn, told: Atomic::new(0), content: Plain::new(0) })
    }
    fn is_listed(&self) -> bool {
        self.mm.memory().folios.word(self.pfn).has(FolioFlags::LRU)
    }
    pub(crate) fn hooks(&self) -> Option<Arc<dyn Hooks>> {
        Some(Arc::new(Forward(Arc::clone(&self.mm))))
    }
    fn tell(&self) {
        self.told.store(1, Release);
    }
    fn is_told(&self) -> bool {
        self.told.load(Acquire) != 0
    }
    fn until_told(&self) {
        while !self.is_told() {
            Model::user(0);
        }
    }
}

/// A drain that has checked a CPU does not cover a folio that the CPU adds afterwards.
pub(crate) fn add_between_drains() {
    run(3, || {
        let shared = Shared::new(LruPolicy::Stock);
        let (first, adder, second) =
            (Arc::clone(&shared), Arc::clone(&shared), Arc::clone(&shared));
        shared.mm.work().start_worker(ADDER, TaskEntry(0));
        let bodies = vec![
            cpu_body(move || first.mm.memory().drain_all()),
            cpu_body(move || {
                adder.mm.memory().add(adder.pfn);
                adder.tell();
                adder.mm.work().worker(ADDER, |item| adder.mm.run(item));
            }),
            cpu_body(move || {
                second.until_told();
                second.mm.memory().drain_all();
                assert!(second.is_listed(), "the drain has left it in a batch");
                second.mm.work().close(ADDER);
            }),
        ];
        (shared.hooks(), bodies)
    });
}

#[test]
fn a_drain_of_all_covers_what_was_added_before_it_was_called() {
    check(300, add_between_drains);
}

/// A CPU that has left the online mask and still runs is not asked to drain: its adds are covered
/// by the grace period only.
pub(crate) fn add_while_batches_go_off() {
    run(2, || {
        let shared = Shared::new(LruPolicy::Stock);
        let (adder, remover) = (Arc::clone(&shared), Arc::clone(&shared));
        set_online(ADDER.index(), false);
        let bodies = vec![
            cpu_body(move || {
                let off = remover.mm.memory().batches_off();
                remover.tell();
                drop(off);
            }),
            cpu_body(move || {
                let reading = adder.mm.rcu().read();
                adder.mm.memory().add(adder.pfn);
                // Batches went off while this reader was inside: so it saw that they are off.
                let off = adder.is_told();
                assert!(!off || adder.is_listed(), "it went into a batch after all");
                drop(reading);
            }),
        ];
        (shared.hooks(), bodies)
    });
}

#[test]
fn no_add_is_under_way_when_batches_are_off() {
    check(600, add_while_batches_go_off);
}

/// Folios in the batch of a CPU that stopped are on their list after its hotplug callback.
#[test]
fn what_a_dead_cpu_has_gathered_is_listed() {
    check(100, || {
        run(2, || {
            let shared = Shared::new(LruPolicy::Stock);
            let (adder, remover) = (Arc::clone(&shared), Arc::clone(&shared));
            let bodies = vec![
                cpu_body(move || {
                    remover.until_told();
                    set_online(ADDER.index(), false);
                    remover.mm.cpu_dead(ADDER);
                    assert!(remover.is_listed(), "it waits on a CPU that is gone");
                }),
                cpu_body(move || {
                    adder.mm.memory().add(adder.pfn);
                    adder.tell();
                }),
            ];
            (shared.hooks(), bodies)
        });
    });
}
