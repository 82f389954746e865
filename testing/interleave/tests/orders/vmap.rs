//! Kernel addresses that are mapped again while a CPU may still have their old translation.

use mmscale_arch::{Atomic, Cpu, Ipi, Machine as _, Pfn, VmaRange, Vpn};
use mmscale_frames::page_alloc::{AllocConfig, FrameAllocator, MemoryMap};
use mmscale_interleave::{Hooks, Model, check, cpu_body, run};
use mmscale_mm::pgtable::{CountMemory, MemAccess, PtRef, TableLocks};
use mmscale_mm::smp::{CallPolicy, SmpConfig};
use mmscale_mm::tlb::Tlb;
use mmscale_mm::vmap::Vmap;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

const FRAMES: u32 = 1024;
const OLD: Pfn = Pfn::new(7);
const NEW: Pfn = Pfn::new(8);

/// One page of addresses.
struct World {
    frames: FrameAllocator<Model>,
    locks: TableLocks<Model>,
    counts: CountMemory<Model>,
    tlb: Tlb<Model>,
    vmap: Option<Vmap<Model>>,
    /// Whether the new frame is mapped.
    mapped: <Model as Cpu>::AtomicU32,
}

impl Hooks for World {
    fn ipi(&self, reason: Ipi) {
        assert_eq!(reason, Ipi::CallFunction);
        self.tlb.interrupt();
    }
}

impl World {
    /// Makes a world with the old frame mapped.
    fn new(policy: CallPolicy) -> Self {
        let frames = FrameAllocator::new(&MemoryMap::single(FRAMES), AllocConfig::default());
        let mut world = Self {
            frames: frames.expect("a sane map"),
            locks: TableLocks::new(FRAMES as usize),
            counts: CountMemory::new(),
            tlb: Tlb::new(SmpConfig { policy, timeout_ns: u64::MAX, ..SmpConfig::default() }),
            vmap: None,
            mapped: Atomic::new(0),
        };
        let with_guard = VmaRange::with_pages(Vpn::new(1 << 30), 2).expect("two pages");
        let vmap = Vmap::with(world.on(), with_guard, 100).expect("there is memory");
        vmap.map(world.on(), &[OLD]).expect("there is a page of addresses");
        world.vmap = Some(vmap);
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
    fn vmap(&self) -> &Vmap<Model> {
        self.vmap.as_ref().expect("it was made")
    }
    fn page(&self) -> VmaRange {
        VmaRange::with_pages(Vpn::new(1 << 30), 1).expect("a page")
    }
    fn reached(&self) -> Option<Pfn> {
        let see = |pfn| pfn;
        self.vmap().access(self.on(), self.page().start(), MemAccess::Read, see).ok()
    }
}

/// One CPU unmaps and purges, one maps another frame as soon as it gets the address, and one has
/// the old translation.
#[test]
fn an_address_that_is_mapped_anew_leads_no_cpu_to_the_old_frame() {
    for policy in CallPolicy::ALL {
        check(800, move || {
            run(3, || {
                let world = Arc::new(World::new(policy));
                let (unmaps, maps, uses) =
                    (Arc::clone(&world), Arc::clone(&world), Arc::clone(&world));
                let bodies = vec![
                    cpu_body(move || {
                        let _ = unmaps.vmap().unmap(unmaps.on(), unmaps.page());
                        unmaps.vmap().purge(unmaps.on());
                    }),
                    cpu_body(move || {
                        while maps.vmap().map(maps.on(), &[NEW]).is_err() {
                            Model::user(0);
                        }
                        maps.mapped.store(1, SeqCst);
                    }),
                    cpu_body(move || {
                        uses.reached();
                        while uses.mapped.load(SeqCst) == 0 {
                            Model::user(0);
                        }
                        assert_eq!(uses.reached(), Some(NEW), "{policy:?}");
                    }),
                ];
                (Some(world.clone() as Arc<dyn Hooks>), bodies)
            });
        });
    }
}
