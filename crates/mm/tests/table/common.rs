//! A machine with page tables, and operations of their users.

use mmscale_arch::{Cpu as _, Ipi, Order, PageSize, Pfn, VmaRange, Vpn};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::{AllocConfig, FrameAllocator, Gfp, MemoryMap};
use mmscale_mm::pgtable::{
    CountMemory, Direction, Gather, Leaf, PageTable, PtRef, Pte, PteFlags, Room, Sink, TableLocks,
};
use mmscale_mm::smp::{CallPolicy, SmpConfig};
use mmscale_mm::tlb::Tlb;
use mmscale_stepped::{self as stepped, Stepped};
use std::rc::Rc;

pub(crate) const FRAMES: u32 = 1 << 16;

/// Delivers pending interrupts.
pub(crate) fn interrupt_all(tlb: &Tlb<Stepped>) {
    let back = Stepped::cpu().index();
    for (cpu, reason) in stepped::take_ipis() {
        assert_eq!(reason, Ipi::CallFunction);
        stepped::set_cpu(cpu.index());
        stepped::interrupt(|| tlb.interrupt());
    }
    stepped::set_cpu(back);
}

/// Everything that page tables need.
pub(crate) struct World {
    pub(crate) frames: FrameAllocator<Stepped>,
    locks: TableLocks<Stepped>,
    counts: CountMemory<Stepped>,
    pub(crate) tlb: Rc<Tlb<Stepped>>,
}

impl World {
    pub(crate) fn new(cpus: usize) -> Self {
        Self::with(cpus, CallPolicy::Stock)
    }
    /// CPUs with the call policy `policy`. A waiting CPU delivers interrupts.
    pub(crate) fn with(cpus: usize, policy: CallPolicy) -> Self {
        Self::with_smp(cpus, SmpConfig { policy, ..SmpConfig::default() })
    }
    /// Like [`World::with`], with all choices.
    pub(crate) fn with_smp(cpus: usize, smp: SmpConfig) -> Self {
        stepped::boot(cpus, 1000);
        let tlb = Rc::new(Tlb::new(smp));
        let waited_for = Rc::clone(&tlb);
        stepped::on_relax(move || interrupt_all(&waited_for));
        let frames = FrameAllocator::new(&MemoryMap::single(FRAMES), AllocConfig::default());
        let locks = TableLocks::new(FRAMES as usize);
        Self { frames: frames.expect("the map is sound"), locks, counts: CountMemory::new(), tlb }
    }
    pub(crate) fn on(&self) -> PtRef<'_, Stepped> {
        PtRef {
            frames: &self.frames,
            locks: &self.locks,
            tlb: &self.tlb,
            counts: &self.counts,
            room: None,
        }
    }
    pub(crate) fn table(&self) -> PageTable<Stepped> {
        PageTable::new(self.on()).expect("there is memory")
    }
    pub(crate) fn take(&self, order: Order) -> Pfn {
        let block = self.frames.alloc_pages(order, MigrateType::Movable, Gfp::KERNEL);
        block.expect("there is memory")
    }
    /// Pages that are allocated, page tables included.
    pub(crate) fn held(&self) -> u64 {
        stepped::set_cpu(0);
        self.frames.verify().expect("frames add up").held
    }
    /// Ends an address space whose pages are all unmapped.
    pub(crate) fn end(&self, table: PageTable<Stepped>) {
        zap(self, &table, VmaRange::USER, Direction::Forward, &mut ignore);
        let mut gather = Gather::new(&table);
        let all = VmaRange::USER;
        table.free_tables(self.on(), &mut gather, &mut ignore, all, all);
        gather.finish(self.on(), &mut ignore);
        assert_eq!(table.tables(), 1);
        table.destroy(self.on());
    }
}

pub(crate) fn ignore(_: &mmscale_mm::tlb::Flushed, _: &[mmscale_mm::pgtable::Gathered]) {}

pub(crate) fn range(start: u64, pages: u64) -> VmaRange {
    VmaRange::with_pages(Vpn::new(start), pages).expect("a range of user pages")
}

pub(crate) fn page(pfn: Pfn) -> Pte {
    Pte::page(pfn, PteFlags::WRITE)
}

/// Maps one page at an empty entry.
pub(crate) fn map(world: &World, table: &PageTable<Stepped>, at: u64, pte: Pte) {
    let mut ptes = table.lock_pte(world.on(), Vpn::new(at)).expect("there is memory");
    ptes.fill(Vpn::new(at), pte);
}

/// Takes the entries of one table; returns where to continue if the gather is full.
fn zap_ptes(
    world: &World,
    leaf: Leaf<'_, Stepped>,
    direction: Direction,
    gather: &mut Gather<'_, Stepped>,
) -> Option<Vpn> {
    match leaf {
        Leaf::Ptes(mut ptes, part) => {
            for at in direction.pages(part) {
                let pte = ptes.take(at);
                if pte.is_present() {
                    gather.note(at, PageSize::Base);
                }
                let Some(pfn) = pte.pfn() else { continue };
                if gather.add(world.on(), pfn, 1) == Room::Full {
                    return Some(at);
                }
            }
            None
        }
        Leaf::Huge(mut pmd, part) => {
            let pte = pmd.take(part.start());
            gather.note(part.start(), PageSize::Huge);
            let pfn = pte.pfn().expect("a huge page is mapped");
            (gather.add(world.on(), pfn, 512) == Room::Full).then_some(part.start())
        }
    }
}

/// Unmaps a range, as munmap does.
pub(crate) fn zap(
    world: &World,
    table: &PageTable<Stepped>,
    range: VmaRange,
    direction: Direction,
    sink: &mut impl Sink,
) {
    let mut gather = Gather::new(table);
    let mut leaves = table.leaves(world.on(), range, direction);
    while let Some(leaf) = leaves.next() {
        let part = leaf.range();
        if matches!(leaf, Leaf::Huge(..)) && part.pages() < 512 {
            drop(leaf);
            assert_eq!(table.split_huge(world.on(), part.start()), Ok(true));
            let again = if direction == Direction::Forward {
                part.start()
            } else {
                Vpn::new(part.end().get() - 1)
            };
            leaves.back_to(again, range);
            continue;
        }
        if let Some(at) = zap_ptes(world, leaf, direction, &mut gather) {
            gather.flush(world.on(), sink);
            if part.contains(at) {
                leaves.back_to(at, range);
            }
        }
    }
    gather.finish(world.on(), sink);
}
