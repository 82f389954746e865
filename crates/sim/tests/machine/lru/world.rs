//! A memory manager on the machine, with programs as closures.

use mmscale_arch::{
    Atomic, Callbacks, Cpu as _, CpuId, Ipi, Machine as _, Order, Pfn, Priority, TaskEntry,
    TaskSpec,
};
use mmscale_frames::page_alloc::{Gfp, MemoryMap};
use mmscale_mm::folio::{FolioFlags, FolioInit};
use mmscale_mm::lru::{LruAudit, LruCounters, LruPolicy, LruRef};
use mmscale_mm::memcg::GroupId;
use mmscale_mm::mm::{MM_TASK, Mm, MmConfig};
use mmscale_mm::vmstat_work::TickPolicy;
use mmscale_sim::{Outcome, Sim, SimAtomic, SimConfig, run, sample_profile};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::Ordering::SeqCst;

pub(crate) const ALL: [LruPolicy; LruPolicy::ALL.len()] = LruPolicy::ALL;
pub(crate) const GROUP: GroupId = GroupId::new(1);
pub(crate) const ANON: FolioInit = FolioInit {
    group: GROUP,
    flags: FolioFlags::ANON.union(FolioFlags::SWAP_BACKED),
    mapping: 0,
    index: 0,
};

pub(crate) type Job = Box<dyn FnOnce(&Rc<World>)>;

/// A memory manager and programs as closures.
pub(crate) struct World {
    pub(crate) mm: Mm<Sim>,
    jobs: RefCell<Vec<Option<Job>>>,
    /// Programs that have not ended.
    left: SimAtomic<u32>,
    /// The counters at the end of the run.
    found: Cell<Option<LruCounters>>,
    me: RefCell<std::rc::Weak<World>>,
}

impl World {
    pub(crate) fn memory(&self) -> LruRef<'_, Sim> {
        self.mm.memory()
    }
    pub(crate) fn spawn(&self, cpu: usize, job: impl FnOnce(&Rc<World>) + 'static) {
        let entry = TaskEntry(self.jobs.borrow().len() as u64);
        self.jobs.borrow_mut().push(Some(Box::new(job)));
        self.left.fetch_add(1, SeqCst);
        let cpu = CpuId::new(cpu);
        Sim::spawn(TaskSpec { cpu, per_cpu: false, priority: Priority::Fair, entry });
    }
    /// Returns the number of programs that have not ended.
    pub(crate) fn left(&self) -> u32 {
        self.left.load(SeqCst)
    }
    /// Waits until the caller is the only program left.
    pub(crate) fn wait_for_others(&self) {
        while self.left() > 1 {
            self.mm.sleep_ns(20_000);
        }
    }
    /// Makes a page as a fault does: mapped and added, with only the mapping's reference.
    pub(crate) fn fault(&self, what: FolioInit) -> Pfn {
        let memory = self.memory();
        let node = Sim::node_of(Sim::cpu());
        let pfn = memory.alloc_folio(node, Order::ZERO, Gfp::KERNEL, what).expect("memory");
        memory.add_map(pfn);
        memory.add(pfn);
        pfn
    }
    pub(crate) fn unmap(&self, pfn: Pfn) {
        self.memory().remove_maps(pfn, 1);
        self.memory().release(&[(pfn, 1)]);
    }
    pub(crate) fn listed(&self, pfn: Pfn) -> bool {
        self.memory().folios.word(pfn).has(FolioFlags::LRU)
    }
    /// Ends the run: nothing may be left.
    fn end(&self) {
        self.mm.shutdown();
        self.mm.quiesce();
        assert_eq!(self.memory().verify().expect("the LRU adds up"), LruAudit::default());
        let audit = self.mm.verify().expect("the frames add up");
        assert_eq!((audit.held, self.memory().groups.usage(GROUP)), (0, 0), "{audit:?}");
        self.found.set(Some(self.memory().lru.counters()));
    }
}

impl Callbacks for World {
    fn ipi(&self, reason: Ipi) {
        self.mm.ipi(reason);
    }
    fn timer(&self) {
        self.mm.timer();
    }
    fn idle_enter(&self) {
        self.mm.idle_enter();
    }
    fn idle_exit(&self) {
        self.mm.idle_exit();
    }
    fn context_switch(&self) {
        self.mm.context_switch();
    }
    fn task(&self, entry: TaskEntry) {
        if entry.0 & MM_TASK != 0 {
            self.mm.task(entry);
            return;
        }
        let job = self.jobs.borrow_mut()[entry.0 as usize].take();
        let me = self.me.borrow().upgrade().expect("the machine holds it");
        job.expect("a task starts once")(&me);
        self.left.fetch_sub(1, SeqCst);
    }
    fn cpu_dying(&self) -> bool {
        self.mm.cpu_dying()
    }
    fn cpu_down_prepare(&self, cpu: CpuId) {
        self.mm.cpu_down_prepare(cpu);
    }
    fn cpu_dead(&self, cpu: CpuId) {
        self.mm.cpu_dead(cpu);
    }
    fn cpu_online(&self, cpu: CpuId) {
        self.mm.cpu_online(cpu);
    }
}

/// Runs `first` on CPU 0 of a machine of `cpus` CPUs; it starts the other programs. The run must
/// end without failure.
pub(crate) fn well(
    config: SimConfig,
    policy: LruPolicy,
    first: impl FnOnce(&Rc<World>) + 'static,
) -> (Outcome, LruCounters) {
    well_with(config, policy, |_| {}, first)
}

/// Like [`well`]; `change` may alter the configuration of the memory manager.
pub(crate) fn well_with(
    config: SimConfig,
    policy: LruPolicy,
    change: impl FnOnce(&mut MmConfig) + 'static,
    first: impl FnOnce(&Rc<World>) + 'static,
) -> (Outcome, LruCounters) {
    let nodes = config.profile.topology.nodes;
    let kept = Rc::new(RefCell::new(None));
    let keep = Rc::clone(&kept);
    let outcome = run(
        config,
        |_| Box::new(()),
        move || {
            let map = MemoryMap::nodes(nodes, 1 << 14);
            let mut config = MmConfig::new(map, TickPolicy::Stock);
            (config.lru, config.groups) = (policy, 2);
            change(&mut config);
            let world = Rc::new(World {
                mm: Mm::new(&config).expect("a sound configuration"),
                jobs: RefCell::default(),
                left: SimAtomic::new(0),
                found: Cell::new(None),
                me: RefCell::default(),
            });
            *world.me.borrow_mut() = Rc::downgrade(&world);
            *keep.borrow_mut() = Some(Rc::clone(&world));
            world.spawn(0, |world| {
                world.mm.start().expect("there is memory to start with");
                first(world);
                world.end();
            });
            world
        },
    );
    assert_eq!((&outcome.failure, &outcome.violations[..]), (&None, &[][..]), "{policy:?}");
    let world = kept.borrow_mut().take().expect("it was built");
    let found = world.found.get().expect("it came to its end");
    (outcome, found)
}

pub(crate) fn config(cpus: usize, seed: u64) -> SimConfig {
    SimConfig { seed, limit_ns: 2_000_000_000, ..SimConfig::new(sample_profile(cpus), cpus) }
}
