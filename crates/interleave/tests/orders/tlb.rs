//! Flushes against CPUs that use, leave and come back to an address space.

use mmscale_interleave::{Hooks, Model, check, cpu_body, run};
use mmscale_mm::arch::{Arch, Atomic, Ipi, PageSize, Pfn, VmaRange, Vpn};
use mmscale_mm::page_alloc::{AllocConfig, FrameAllocator, MemoryMap};
use mmscale_mm::smp::SmpConfig;
use mmscale_mm::table::{MemAccess, PageTable, Paging, Pte, PteFlags, TableLocks};
use mmscale_mm::tlb::{Extent, Tlb};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

const FRAMES: u32 = 4096;
const PAGES: [Vpn; 2] = [Vpn::new(3), Vpn::new(4)];

/// An address space with two pages, and another without any.
struct World {
    frames: FrameAllocator<Model>,
    locks: TableLocks<Model>,
    tlb: Tlb<Model>,
    tables: Vec<PageTable<Model>>,
    /// Which of the pages' frames may not be used any more.
    freed: [<Model as Arch>::AtomicU32; 2],
}

impl Hooks for World {
    fn ipi(&self, reason: Ipi) {
        assert_eq!(reason, Ipi::CallFunction);
        self.tlb.interrupt();
    }
    fn idle_enter(&self) {
        self.tlb.enter_lazy();
    }
}

impl World {
    fn new() -> Self {
        let frames = FrameAllocator::new(&MemoryMap::single(FRAMES), AllocConfig::default());
        let mut world = Self {
            frames: frames.expect("a sane map"),
            locks: TableLocks::new(FRAMES as usize),
            tlb: Tlb::new(SmpConfig::default()),
            tables: Vec::new(),
            freed: [Atomic::new(0), Atomic::new(0)],
        };
        let tables = (0..2).map(|_| PageTable::new(world.on()).expect("there is memory"));
        world.tables = tables.collect();
        for (at, page) in PAGES.into_iter().enumerate() {
            let mut ptes = world.tables[0].lock_pte(world.on(), page).expect("there is memory");
            ptes.fill(page, Pte::page(Pfn::new(at), PteFlags::WRITE));
        }
        world
    }
    fn on(&self) -> Paging<'_, Model> {
        Paging { frames: &self.frames, locks: &self.locks, tlb: &self.tlb, room: None }
    }
    /// A program writes to a page, if it is mapped.
    fn write(&self, page: Vpn) {
        let check = |pfn: Pfn| {
            assert_eq!(self.freed[pfn.index()].load(SeqCst), 0, "used after it was freed");
        };
        let _ = self.tables[0].access(self.on(), page, MemAccess::Write, check);
    }
    /// A program of the other address space runs.
    fn elsewhere(&self) {
        let _ = self.tables[1].access(self.on(), PAGES[0], MemAccess::Read, |_| ());
    }
    /// Unmaps a page, and frees its frame.
    fn free(&self, at: usize, flushed: bool) {
        let page = PAGES[at];
        let mut ptes = self.tables[0].find_pte(self.on(), page).expect("its table is there");
        let pfn = ptes.take(page).pfn().expect("it is mapped");
        drop(ptes);
        if flushed {
            let range = VmaRange::with_pages(page, 1).expect("a user page");
            let _ = self.tables[0].flush(self.on(), Extent::Range(range, PageSize::Base));
        }
        self.freed[pfn.index()].store(1, SeqCst);
    }
}

/// Two CPUs use the pages and go elsewhere in between, and then each unmaps one of them.
pub(crate) fn scenario(flushed: bool) {
    run(3, || {
        let world = Arc::new(World::new());
        let body = |cpu: usize| {
            let world = Arc::clone(&world);
            cpu_body(move || {
                world.write(PAGES[1 - cpu]);
                if cpu == 0 {
                    world.elsewhere();
                }
                world.write(PAGES[1 - cpu]);
                world.free(cpu, flushed);
                world.write(PAGES[1 - cpu]);
            })
        };
        let third = Arc::clone(&world);
        let wanders = cpu_body(move || {
            for page in [PAGES[0], PAGES[1], PAGES[0]] {
                third.write(page);
                third.elsewhere();
            }
            third.write(PAGES[1]);
        });
        let bodies = vec![body(0), body(1), wanders];
        (Some(world.clone() as Arc<dyn Hooks>), bodies)
    });
}

#[test]
fn no_cpu_reaches_a_frame_after_the_flush() {
    check(1500, || scenario(true));
}
