//! Flushes against CPUs that use an address space, switch away and come back.

use mmscale_arch::{Atomic, Cpu, Ipi, Machine as _, PageSize, Pfn, VmaRange, Vpn};
use mmscale_frames::page_alloc::{AllocConfig, FrameAllocator, MemoryMap};
use mmscale_interleave::{Hooks, Model, check, cpu_body, run};
use mmscale_mm::pgtable::{CountMemory, MemAccess, PageTable, PtRef, Pte, PteFlags, TableLocks};
use mmscale_mm::smp::{CallPolicy, SmpConfig, Wait};
use mmscale_mm::tlb::{Extent, Leave, Parked, Tlb, UnmapBatch};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

const FRAMES: u32 = 4096;
const PAGES: [Vpn; 2] = [Vpn::new(3), Vpn::new(4)];

/// An address space with two pages, and another without any.
struct World {
    frames: FrameAllocator<Model>,
    locks: TableLocks<Model>,
    counts: CountMemory<Model>,
    tlb: Tlb<Model>,
    tables: Vec<PageTable<Model>>,
    /// Whether each page's frame was freed.
    freed: [<Model as Cpu>::AtomicU32; 2],
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

/// How a page's translations are invalidated before its frame is freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flush {
    /// Not at all: a bug.
    Never,
    /// By a flush of its own.
    Each,
    /// Deferred, and flushed as a batch.
    Batch,
    /// Deferred, with the frame in limbo (`requests`).
    Limbo,
    /// Like `Limbo`, but the frame is freed when it enters limbo and not when it leaves: a bug.
    Early,
    /// Started, with the frame in limbo without a batch (`requests`).
    Begun,
}

impl World {
    fn new(policy: CallPolicy) -> Self {
        let smp = SmpConfig { policy, timeout_ns: u64::MAX, ..SmpConfig::default() };
        let frames = FrameAllocator::new(&MemoryMap::single(FRAMES), AllocConfig::default());
        let mut world = Self {
            frames: frames.expect("a sane map"),
            locks: TableLocks::new(FRAMES as usize),
            counts: CountMemory::new(),
            tlb: Tlb::new(smp),
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
    fn on(&self) -> PtRef<'_, Model> {
        PtRef {
            frames: &self.frames,
            locks: &self.locks,
            tlb: &self.tlb,
            counts: &self.counts,
            room: None,
        }
    }
    /// Writes to a page, if it is mapped.
    fn write(&self, page: Vpn) {
        let check = |pfn: Pfn| {
            assert_eq!(self.freed[pfn.index()].load(SeqCst), 0, "used after it was freed");
        };
        let _ = self.tables[0].access(self.on(), page, MemAccess::Write, check);
    }
    /// Writes to a page slowly, with interrupts off.
    fn write_slowly(&self, page: Vpn) {
        let check = |pfn: Pfn| {
            (0..40).for_each(|_| Model::user(0));
            assert_eq!(self.freed[pfn.index()].load(SeqCst), 0, "used after it was freed");
        };
        let _ = self.tables[0].access(self.on(), page, MemAccess::Write, check);
    }
    /// Runs a program of the other address space.
    fn elsewhere(&self) {
        let _ = self.tables[1].access(self.on(), PAGES[0], MemAccess::Read, |_| ());
    }
    /// Unmaps a page, and frees its frame.
    fn free(&self, at: usize, flush: Flush) {
        let page = PAGES[at];
        let mut ptes = self.tables[0].find_pte(self.on(), page).expect("its table is there");
        let pfn = ptes.take(page).pfn().expect("it is mapped");
        let range = VmaRange::with_pages(page, 1).expect("a user page");
        let (extent, mut batch) = (Extent::Range(range, PageSize::Base), UnmapBatch::new());
        if matches!(flush, Flush::Batch | Flush::Limbo | Flush::Early) {
            self.tlb.defer(&mut batch, self.tables[0].asid(), extent);
        }
        drop(ptes);
        if flush == Flush::Early {
            self.freed[pfn.index()].store(1, SeqCst);
        }
        match flush {
            Flush::Never => {}
            Flush::Each => drop(self.tables[0].flush(self.on(), extent)),
            Flush::Batch => self.tlb.flush_batch(&mut batch, Wait::Sleep),
            Flush::Limbo | Flush::Early => assert!(self.tlb.park_batch(&mut batch, &[pfn])),
            Flush::Begun => {
                let begun = self.tlb.begin(self.tables[0].asid(), extent);
                assert!(self.tlb.park(begun, core::iter::once(Parked { pfn, count: 1 })));
                self.tlb.leave_limbo(Leave::All, |_, frames| {
                    frames.iter().for_each(|frame| self.freed[frame.pfn.index()].store(1, SeqCst));
                });
                return;
            }
        }
        if flush != Flush::Limbo {
            self.freed[pfn.index()].store(1, SeqCst);
            return;
        }
        // The first CPU also frees pages that other CPUs have put there.
        self.tlb.leave_limbo_batches(Leave::All, |pages| {
            pages.iter().for_each(|pfn| self.freed[pfn.index()].store(1, SeqCst));
            pages.len() as u32
        });
    }
}

/// Two CPUs use the pages and switch to the other address space in between; then each unmaps one
/// page.
pub(crate) fn scenario(flush: Flush, policy: CallPolicy) {
    run(3, || {
        let world = Arc::new(World::new(policy));
        let body = |cpu: usize| {
            let world = Arc::clone(&world);
            cpu_body(move || {
                world.write(PAGES[1 - cpu]);
                if cpu == 0 {
                    world.elsewhere();
                }
                world.write(PAGES[1 - cpu]);
                world.free(cpu, flush);
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

/// Two CPUs defer the flushes of two tables of one address space, each under the lock of its own
/// table.
pub(crate) fn two_tables_put_off() {
    run(2, || {
        let world = Arc::new(World::new(CallPolicy::Requests));
        // The generation that each has deferred. For the check only: no step of the model.
        let put_off: Arc<[AtomicU64; 2]> = Arc::default();
        let body = |cpu: usize| {
            let (world, put_off) = (Arc::clone(&world), Arc::clone(&put_off));
            cpu_body(move || {
                let asid = world.tables[0].asid();
                let mut batch = UnmapBatch::new();
                let range = VmaRange::with_pages(PAGES[cpu], 1).expect("a user page");
                world.write(PAGES[cpu]);
                world.tlb.defer(&mut batch, asid, Extent::Range(range, PageSize::Base));
                let own = batch.generation(asid).expect("there is room");
                put_off[cpu].store(own, SeqCst);
                world.elsewhere();
                world.elsewhere();
                // The next CPU that changes these pages must know that there is something to flush,
                // unless the later flush of the other CPU has covered it.
                let known = world.tlb.is_deferred(asid) || put_off[1 - cpu].load(SeqCst) > own;
                assert!(known, "what is put off was forgotten");
                world.tlb.flush_batch(&mut batch, Wait::Sleep);
            })
        };
        let bodies = vec![body(0), body(1)];
        (Some(world.clone() as Arc<dyn Hooks>), bodies)
    });
}

#[test]
fn what_is_put_off_is_known_until_it_is_flushed() {
    check(1000, two_tables_put_off);
}

#[test]
fn no_cpu_reaches_a_frame_after_the_flush() {
    for policy in CallPolicy::ALL {
        check(700, move || scenario(Flush::Each, policy));
        check(400, move || scenario(Flush::Batch, policy));
    }
    check(700, || scenario(Flush::Limbo, CallPolicy::Requests));
}

/// One CPU unmaps a page that another keeps using, and frees it as soon as it leaves limbo.
#[test]
fn frames_leave_limbo_when_no_cpu_uses_them() {
    for flush in [Flush::Limbo, Flush::Begun] {
        check(800, move || {
            run(2, || {
                let world = Arc::new(World::new(CallPolicy::Requests));
                let (frees, uses) = (Arc::clone(&world), Arc::clone(&world));
                let bodies = vec![
                    cpu_body(move || frees.free(0, flush)),
                    cpu_body(move || (0..3).for_each(|_| uses.write_slowly(PAGES[0]))),
                ];
                (Some(world.clone() as Arc<dyn Hooks>), bodies)
            });
        });
    }
}
