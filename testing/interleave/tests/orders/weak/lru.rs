//! Batches of LRU lists: what was added before a drain was called is listed after it.

use crate::lru::{Forward, WHAT, World};
use mmscale_arch::{Atomic, Cpu, CpuId, NodeId, Order, Pfn, TaskEntry};
use mmscale_frames::page_alloc::{Gfp, MemoryMap};
use mmscale_interleave::{Hooks, Model, Plain, check_weak, cpu_body, run, set_online};
use mmscale_mm::folio::FolioFlags;
use mmscale_mm::lru::LruPolicy;
use mmscale_mm::mm::{Mm, MmConfig};
use mmscale_mm::vmstat_work::TickPolicy;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};

/// The CPU that adds a folio, and then carries out what it is asked to drain.
const ADDER: CpuId = CpuId::new(1);

struct Shared {
    mm: Arc<World>,
    pfn: Pfn,
    /// The folio was added, or batches are off.
    added_or_off: <Model as Cpu>::AtomicU32,
    /// The content of the folio.
    content: Plain,
}

impl Shared {
    fn new(policy: LruPolicy) -> Arc<Self> {
        let mut config = MmConfig::new(MemoryMap::single(1024), TickPolicy::Stock);
        config.lru = policy;
        let mm = Arc::new(Mm::<Model>::new(&config).expect("a sound configuration"));
        let node = NodeId::new(0);
        let pfn = mm.memory().alloc_folio(node, Order::ZERO, Gfp::KERNEL, WHAT);
        let pfn = pfn.expect("there is memory");
        Arc::new(Self { mm, pfn, added_or_off: Atomic::new(0), content: Plain::new(0) })
    }
    fn is_listed(&self) -> bool {
        self.mm.memory().folios.word(self.pfn).has(FolioFlags::LRU)
    }
    fn hooks(&self) -> Option<Arc<dyn Hooks>> {
        Some(Arc::new(Forward(Arc::clone(&self.mm))))
    }
}

/// The fences in `drain_cpus`: a CPU that is content with a drain that another began asks no CPU by
/// itself, so that drain must have seen what this one has.
#[test]
fn a_drain_that_another_has_begun_covers_what_was_added_before() {
    check_weak(100, || {
        run(3, || {
            let shared = Shared::new(LruPolicy::Stock);
            let (first, adder, second) =
                (Arc::clone(&shared), Arc::clone(&shared), Arc::clone(&shared));
            shared.mm.work().start_worker(ADDER, TaskEntry(0));
            let bodies = vec![
                cpu_body(move || first.mm.memory().drain_all()),
                cpu_body(move || {
                    adder.mm.memory().add(adder.pfn);
                    adder.added_or_off.store(1, Release);
                    adder.mm.work().worker(ADDER, |item| adder.mm.run(item));
                }),
                cpu_body(move || {
                    while second.added_or_off.load(Acquire) == 0 {
                        Model::relax();
                    }
                    second.mm.memory().drain_all();
                    assert!(second.is_listed(), "the drain has left it in a batch");
                    second.mm.work().close(ADDER);
                }),
            ];
            (shared.hooks(), bodies)
        });
    });
}

/// The count of those that do without batches, which the grace period carries to every CPU.
#[test]
fn an_add_after_batches_went_off_sees_that() {
    check_weak(100, || {
        run(2, || {
            let shared = Shared::new(LruPolicy::Stock);
            let (adder, remover) = (Arc::clone(&shared), Arc::clone(&shared));
            set_online(ADDER.index(), false);
            let bodies = vec![
                cpu_body(move || {
                    let off = remover.mm.memory().batches_off();
                    remover.added_or_off.store(1, Release);
                    drop(off);
                }),
                cpu_body(move || {
                    let reading = adder.mm.rcu().read();
                    adder.mm.memory().add(adder.pfn);
                    let off = adder.added_or_off.load(Acquire) != 0;
                    assert!(!off || adder.is_listed(), "it went into a batch after all");
                    drop(reading);
                }),
            ];
            (shared.hooks(), bodies)
        });
    });
}

/// A CPU that isolates a folio, from its list or from the slot that it waits in, sees what the CPU
/// that added it has written into it.
#[test]
fn a_folio_that_is_isolated_brings_its_content() {
    for policy in LruPolicy::ALL {
        check_weak(40, move || {
            run(2, || {
                let shared = Shared::new(policy);
                let (adder, taker) = (Arc::clone(&shared), Arc::clone(&shared));
                let bodies = vec![
                    cpu_body(move || {
                        adder.content.set(5);
                        adder.mm.memory().add(adder.pfn);
                        adder.mm.memory().drain();
                    }),
                    cpu_body(move || {
                        if taker.mm.memory().isolate(taker.pfn) {
                            assert_eq!(taker.content.get(), 5);
                            taker.mm.memory().putback(taker.pfn);
                        }
                    }),
                ];
                (shared.hooks(), bodies)
            });
        });
    }
}
