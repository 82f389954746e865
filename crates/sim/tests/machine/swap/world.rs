//! A memory manager with reclaim on the machine, and programs as closures.

use super::paged::Paged;
use mmscale_arch::{
    Atomic, Callbacks, CpuId, Ipi, Machine as _, NodeId, Priority, TaskEntry, TaskSpec,
};
use mmscale_frames::page_alloc::MemoryMap;
use mmscale_mm::lru::LruPolicy;
use mmscale_mm::mm::{KSWAPD, MM_TASK, MmConfig};
use mmscale_mm::reclaim::ReclaimCounters;
use mmscale_mm::swap::{SwapConfig, SwapCounters};
use mmscale_mm::vmstat_work::TickPolicy;
use mmscale_sim::{Outcome, Sim, SimAtomic, SimConfig, run};
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::atomic::Ordering::SeqCst;

type Job = Box<dyn FnOnce(&Rc<World>)>;

pub(super) struct World {
    pub(super) paged: Paged<Sim>,
    jobs: RefCell<Vec<Option<Job>>>,
    /// Programs that have not ended.
    left: SimAtomic<u32>,
    found: Cell<Option<Found>>,
    me: RefCell<Weak<World>>,
}

/// The counters at the end of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Found {
    pub(super) swap: SwapCounters,
    pub(super) reclaim: ReclaimCounters,
}

/// Sizes of a machine's memory and swap, in pages.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub(super) node_frames: u32,
    pub(super) program: usize,
    pub(super) swap: SwapConfig,
    pub(super) lru: LruPolicy,
}

impl World {
    pub(super) fn spawn(&self, cpu: usize, job: impl FnOnce(&Rc<World>) + 'static) {
        let entry = TaskEntry(self.jobs.borrow().len() as u64);
        self.jobs.borrow_mut().push(Some(Box::new(job)));
        self.left.fetch_add(1, SeqCst);
        spawn(cpu, entry);
    }
    pub(super) fn others(&self) -> u32 {
        self.left.load(SeqCst) - 1
    }
    fn end(&self) {
        while self.others() > 0 {
            self.paged.mm.sleep_ns(50_000);
        }
        self.paged.reclaim.stop(self.paged.memory());
        let (swap, reclaim) = (self.paged.swap.counters(), self.paged.reclaim.counters());
        self.paged.audit();
        self.paged.mm.shutdown();
        self.paged.end();
        self.found.set(Some(Found { swap, reclaim }));
    }
}

fn spawn(cpu: usize, entry: TaskEntry) {
    let cpu = CpuId::new(cpu);
    Sim::spawn(TaskSpec { cpu, per_cpu: false, priority: Priority::Fair, entry });
}

impl Callbacks for World {
    fn ipi(&self, reason: Ipi) {
        match reason {
            Ipi::Block => self.paged.swap.io_interrupt(self.paged.memory()),
            _ => self.paged.mm.ipi(reason),
        }
    }
    fn timer(&self) {
        self.paged.mm.timer();
    }
    fn idle_enter(&self) {
        self.paged.mm.idle_enter();
    }
    fn idle_exit(&self) {
        self.paged.mm.idle_exit();
    }
    fn context_switch(&self) {
        self.paged.mm.context_switch();
    }
    fn task(&self, entry: TaskEntry) {
        if entry.0 & KSWAPD != 0 {
            // The memory manager's own would search address spaces for pages.
            let node = NodeId::new((entry.0 & !(MM_TASK | KSWAPD)) as usize);
            return self.paged.reclaim.kswapd(self.paged.scope(), node);
        }
        if entry.0 & MM_TASK != 0 {
            self.paged.mm.task(entry);
            return;
        }
        let job = self.jobs.borrow_mut()[entry.0 as usize].take();
        let me = self.me.borrow().upgrade().expect("the machine holds it");
        job.expect("a task starts once")(&me);
        self.left.fetch_sub(1, SeqCst);
    }
    fn cpu_dying(&self) -> bool {
        self.paged.mm.cpu_dying()
    }
    fn cpu_down_prepare(&self, cpu: CpuId) {
        self.paged.mm.cpu_down_prepare(cpu);
    }
    fn cpu_dead(&self, cpu: CpuId) {
        self.paged.mm.cpu_dead(cpu);
        self.paged.swap.cpu_dead(self.paged.memory(), cpu);
        self.paged.swap.io_interrupt(self.paged.memory());
    }
    fn cpu_online(&self, cpu: CpuId) {
        self.paged.mm.cpu_online(cpu);
    }
}

/// Runs `first` on CPU 0; it starts the other programs. The run must end without failure. Each node
/// has its background reclaimer.
pub(super) fn well(
    config: SimConfig,
    sizes: Sizes,
    first: impl FnOnce(&Rc<World>) + 'static,
) -> (Outcome, Found) {
    let nodes = config.profile.topology.nodes;
    let kept = Rc::new(RefCell::new(None));
    let keep = Rc::clone(&kept);
    let outcome = run(
        config,
        |_| Box::new(()),
        move || {
            let map = MemoryMap::nodes(nodes, sizes.node_frames);
            let mut config = MmConfig::new(map, TickPolicy::Stock);
            config.lru = sizes.lru;
            let world = Rc::new(World {
                paged: Paged::new(&config, sizes.swap, sizes.program),
                jobs: RefCell::default(),
                left: SimAtomic::new(0),
                found: Cell::new(None),
                me: RefCell::default(),
            });
            *world.me.borrow_mut() = Rc::downgrade(&world);
            *keep.borrow_mut() = Some(Rc::clone(&world));
            world.spawn(0, move |world| {
                world.paged.mm.start().expect("there is memory to start with");
                first(world);
                world.end();
            });
            world
        },
    );
    let seen = (&outcome.failure, &outcome.violations[..]);
    assert_eq!(seen, (&None, &[][..]), "{:?}", sizes.lru);
    let world = kept.borrow_mut().take().expect("it was built");
    let found = world.found.get().expect("it came to its end");
    (outcome, found)
}
