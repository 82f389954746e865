//! Page tables in real memory, walked and flushed by real threads.

use crate::common::{config, run, task};
use mmscale_arch::{Ipi, Machine as _, Order, PageSize, Pfn, VmaRange, Vpn};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::{AllocConfig, FrameAllocator, Gfp, MemoryMap};
use mmscale_mm::pgtable::{
    CountMemory, Direction, Gather, Gathered, Leaf, MemAccess, PageTable, PtRef, Pte, PteFlags,
    Room, TableLocks,
};
use mmscale_mm::smp::SmpConfig;
use mmscale_mm::tlb::{Flushed, Tlb};
use mmscale_threads::{Threads, ThreadsConfig};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};

const FRAMES: u32 = 1 << 13;
const PAGES: u64 = 24;

struct World {
    frames: FrameAllocator<Threads>,
    locks: TableLocks<Threads>,
    tlb: Tlb<Threads>,
    counts: CountMemory<Threads>,
    table: OnceLock<PageTable<Threads>>,
    touched: AtomicU64,
}

impl World {
    fn new() -> Self {
        let frames = FrameAllocator::new(&MemoryMap::single(FRAMES), AllocConfig::default());
        Self {
            frames: frames.expect("the map is sound"),
            locks: TableLocks::new(FRAMES as usize),
            tlb: Tlb::new(SmpConfig::default()),
            counts: CountMemory::new(),
            table: OnceLock::new(),
            touched: AtomicU64::new(0),
        }
    }
    fn on(&self) -> PtRef<'_, Threads> {
        PtRef {
            frames: &self.frames,
            locks: &self.locks,
            tlb: &self.tlb,
            counts: &self.counts,
            room: None,
        }
    }
    fn table(&self) -> &PageTable<Threads> {
        self.table.get_or_init(|| PageTable::new(self.on()).expect("there is memory"))
    }
    /// Uses `page`; if it is not mapped, maps a frame with the page's number in it.
    fn touch(&self, page: Vpn) {
        let look = |pfn: Pfn| assert_eq!(Threads::read_stamp(pfn), page.get() + 1);
        while self.table().access(self.on(), page, MemAccess::Write, look).is_err() {
            let (movable, order) = (MigrateType::Movable, Order::ZERO);
            let pfn = self.frames.alloc_pages(order, movable, Gfp::KERNEL).expect("memory");
            Threads::write_stamp(pfn, page.get() + 1);
            let mut ptes = self.table().lock_pte(self.on(), page).expect("there is memory");
            if ptes.get(page).is_none() {
                ptes.fill(page, Pte::page(pfn, PteFlags::WRITE));
            } else {
                drop(ptes);
                self.frames.free_pages(pfn, Order::ZERO);
            }
        }
        self.touched.fetch_add(1, SeqCst);
    }
    fn unmap(&self, range: VmaRange) {
        let mut gather = Gather::new(self.table());
        for leaf in self.table().leaves(self.on(), range, Direction::Forward) {
            let Leaf::Ptes(mut ptes, part) = leaf else { panic!("no huge pages here") };
            for page in Direction::Forward.pages(part) {
                if let Some(pfn) = ptes.take(page).pfn() {
                    gather.note(page, PageSize::Base);
                    assert_eq!(gather.add(self.on(), pfn, 1), Room::More);
                }
            }
        }
        let mut release = |_: &Flushed, frames: &[Gathered]| {
            for frame in frames {
                // A thread that still reaches the frame reads this.
                Threads::write_stamp(frame.pfn, u64::MAX);
                self.frames.free_pages(frame.pfn, Order::ZERO);
            }
        };
        gather.finish(self.on(), &mut release);
    }
}

#[test]
fn threads_flush_one_another_and_none_reads_a_freed_frame() {
    const CPUS: u64 = 3;
    const ROUNDS: u64 = 400;
    let kept = OnceLock::new();
    let config = ThreadsConfig { memory_pages: u64::from(FRAMES), ..config(CPUS as usize) };
    let outcome = run(&config, |kernel| {
        let world = Arc::new(World::new());
        let _ = kept.set(Arc::clone(&world));
        let (hears, idles) = (Arc::clone(&world), Arc::clone(&world));
        kernel.on_ipi(move |reason| {
            assert_eq!(reason, Ipi::CallFunction);
            hears.tlb.interrupt();
        });
        kernel.on_idle(move |what| {
            if what == "enter" {
                idles.tlb.enter_lazy();
            }
        });
        for cpu in 0..CPUS {
            let world = Arc::clone(&world);
            task(kernel, cpu as usize, move || {
                for round in 0..ROUNDS {
                    (0..6).for_each(|step| world.touch(Vpn::new((round + step * 5 + cpu) % PAGES)));
                    let first = Vpn::new((round * 7 + cpu * 3) % PAGES);
                    world.unmap(VmaRange::with_pages(first, 1 + round % 4).expect("user pages"));
                }
            });
        }
    });
    assert_eq!(outcome.failure, None);
    assert_eq!(kept.get().expect("it ran").touched.load(SeqCst), CPUS * ROUNDS * 6);
}
