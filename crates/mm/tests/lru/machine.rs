//! A memory manager whose CPUs are stepped by the tests, and operations on folios.

use mmscale_arch::{Cpu as _, CpuId, LockClass, LruEvent, NodeId, Order, Pfn, Trace};
use mmscale_frames::page_alloc::{Gfp, MemoryMap};
use mmscale_mm::folio::{FolioFlags, FolioInit};
use mmscale_mm::lru::{BatchKind, LruAudit, LruList, LruPolicy, LruRef};
use mmscale_mm::memcg::GroupId;
use mmscale_mm::mm::{Mm, MmConfig};
use mmscale_mm::vmstat_work::TickPolicy;
use mmscale_mm::work::Step;
use mmscale_stepped::{self as stepped, Stepped};

pub(crate) const NODE: NodeId = NodeId::new(0);
pub(crate) const ALL: [LruPolicy; LruPolicy::ALL.len()] = LruPolicy::ALL;

/// An ordinary page of a program.
pub(crate) const ANON: FolioInit = FolioInit {
    group: GroupId::ROOT,
    flags: FolioFlags::ANON.union(FolioFlags::SWAP_BACKED).union(FolioFlags::UPTODATE),
    mapping: 7,
    index: 3,
};
/// A page of a file.
pub(crate) const FILE: FolioInit = FolioInit { flags: FolioFlags::UPTODATE, ..ANON };

pub(crate) struct Machine {
    pub(crate) mm: Mm<Stepped>,
}

/// Counts of drained batches of additions.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Moves {
    pub(crate) batches: u64,
    pub(crate) folios: u64,
    pub(crate) dead: u64,
    pub(crate) freed: u64,
    pub(crate) largest: u8,
    /// Folios to which batches hold references: at the end, and at most.
    pub(crate) pinned: i32,
    pub(crate) pinned_max: i32,
    /// Pages that stay charged after they were unmapped: at the end, and at most.
    pub(crate) unmapped: i32,
    pub(crate) unmapped_max: i32,
}

impl Machine {
    pub(crate) fn boot(policy: LruPolicy, cpus: usize) -> Self {
        Self::with(cpus, |config| config.lru = policy)
    }
    pub(crate) fn with(cpus: usize, change: impl FnOnce(&mut MmConfig)) -> Self {
        stepped::boot(cpus, 1000);
        let mut config = MmConfig::new(MemoryMap::single(1 << 16), TickPolicy::Stock);
        change(&mut config);
        let mm = Mm::new(&config).expect("the configuration is sound");
        mm.start().expect("there is memory to start with");
        stepped::record(true);
        Self { mm }
    }
    pub(crate) fn memory(&self) -> LruRef<'_, Stepped> {
        self.mm.memory()
    }
    pub(crate) fn folio(&self, what: FolioInit) -> Pfn {
        self.folio_of(Order::ZERO, what)
    }
    pub(crate) fn folio_of(&self, order: Order, what: FolioInit) -> Pfn {
        self.memory().alloc_folio(NODE, order, Gfp::KERNEL, what).expect("there is memory")
    }
    /// A page as a fault leaves it: mapped, added, with the mapping's reference.
    pub(crate) fn fault(&self, what: FolioInit) -> Pfn {
        let pfn = self.folio(what);
        self.memory().add_map(pfn);
        self.memory().add(pfn);
        pfn
    }
    /// A mapped page that is on its list under every policy.
    pub(crate) fn listed(&self, what: FolioInit) -> Pfn {
        let pfn = self.fault(what);
        self.memory().drain();
        assert!(self.flags(pfn).contains(FolioFlags::LRU));
        pfn
    }
    pub(crate) fn unmap(&self, pfn: Pfn) {
        self.memory().remove_maps(pfn, 1);
        self.memory().release(&[(pfn, 1)]);
    }
    pub(crate) fn flags(&self, pfn: Pfn) -> FolioFlags {
        self.memory().folios.word(pfn).flags()
    }
    pub(crate) fn refs(&self, pfn: Pfn) -> u32 {
        self.memory().folios.word(pfn).refs()
    }
    pub(crate) fn pages(&self, list: LruList) -> u64 {
        self.memory().list_pages(GroupId::ROOT, NODE, list)
    }
    /// The folios of the list, oldest first; the list is unchanged afterwards.
    pub(crate) fn oldest_first(&self, list: LruList) -> Vec<Pfn> {
        let mut folios = [Pfn::new(0); 128];
        let scan = self.memory().isolate_oldest(GroupId::ROOT, NODE, list, 128, &mut folios);
        let folios = folios[..scan.taken].to_vec();
        self.memory().putback_now(&folios);
        // Under `Lazy` they wait for their list now.
        folios.iter().for_each(|&pfn| assert!(self.memory().demand(pfn)));
        folios
    }
    /// Runs `f` on `cpu` and returns to the current CPU.
    pub(crate) fn on<R>(&self, cpu: usize, f: impl FnOnce() -> R) -> R {
        let back = Stepped::cpu().index();
        stepped::set_cpu(cpu);
        let result = f();
        stepped::set_cpu(back);
        result
    }
    /// Runs the queued work of `cpu`.
    pub(crate) fn work_on(&self, cpu: usize) {
        self.on(cpu, || {
            let id = CpuId::new(cpu);
            while self.mm.work().step(id, &mut |item| self.mm.run(item)) == Step::Ran {}
        });
    }
    pub(crate) fn audit(&self) -> LruAudit {
        self.memory().verify().expect("everything adds up")
    }
    /// Checks that no folio is left and every frame is free.
    pub(crate) fn end(&self) {
        self.mm.quiesce();
        assert_eq!(self.audit(), LruAudit::default());
        let audit = self.mm.verify().expect("the frames add up");
        assert_eq!((audit.held, audit.cached), (0, 0));
        stepped::assert_quiet();
    }
}

pub(crate) fn locks() -> u64 {
    stepped::lock_acquisitions(LockClass::Lruvec)
}

/// The counts of batches since the last call.
pub(crate) fn moves() -> Moves {
    let mut moves = Moves::default();
    for (_, event) in stepped::take_traces() {
        match event {
            Trace::Lru(LruEvent::Move { kind, folios, dead, freed })
                if kind == BatchKind::Add as u8 =>
            {
                moves.batches += 1;
                moves.folios += u64::from(folios);
                moves.dead += u64::from(dead);
                moves.freed += u64::from(freed);
                moves.largest = moves.largest.max(folios);
            }
            Trace::Lru(LruEvent::Pinned { folios }) => {
                moves.pinned += folios;
                moves.pinned_max = moves.pinned_max.max(moves.pinned);
            }
            Trace::Lru(LruEvent::Dead { pages }) => {
                moves.unmapped += pages;
                moves.unmapped_max = moves.unmapped_max.max(moves.unmapped);
            }
            _ => {}
        }
    }
    moves
}
