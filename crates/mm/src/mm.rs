//! The memory manager of one machine, as one value.
//!
//! A machine's [`Callbacks`](mmscale_arch::Callbacks) forward to the methods of the same names. The
//! order of calls in a run:
//!
//! 1. [`Mm::new`] before any CPU runs; [`Mm::start`] in the first task.
//! 2. Callbacks and allocations, while the machine runs. CPUs may start idle; a CPU that runs its
//!    first task has left idle, with or without a call of [`Mm::idle_exit`].
//! 3. [`Mm::shutdown`] in some task: sleepers wake, workers return, no new work is queued.
//! 4. [`Mm::settle`]: the device and all other CPUs are idle, and nothing changes any more.
//! 5. [`Mm::quiesce`], which frees what has no owner. Verifiers run before and after it.
//!
//! Lock order: it has no lock of its own.

use crate::folio::Folios;
use crate::lru::{FoliosPolicy, Lru, LruPolicy, LruRef, ReleasePolicy};
use crate::memcg::{
    FLUSH_NS, GroupId, Groups, GroupsConfig, LifetimeError, LifetimeRef, Lifetimes, StockPolicy,
    ThresholdPolicy,
};
use crate::oom::{Oom, OomConfig, OomRetries};
use crate::pgtable::{CountMemory, MakeRoom, PtRef, TableLocks};
use crate::rcu::Rcu;
use crate::reclaim::{Reclaim, ReclaimRef};
use crate::smp::{Call, CallStats, Smp, SmpConfig};
use crate::space::{MmRef, NoMemory, SpaceConfig, Spaces};
use crate::stack::{Stack, StackConfig, StackError, Stacks};
use crate::swap::{Swap, SwapConfig};
use crate::time::{Expiry, NSEC_PER_SEC, Time};
use crate::tlb::{Leave, Tlb};
use crate::vmstat_work::{Requeue, TickPolicy, Upkeep, VmstatRef};
use crate::work::{Work, WorkItem};
use mmscale_arch::{
    CpuId, CpuMask, Func, IdleEvent, Ipi, Machine, NodeId, Priority, Span, TaskEntry, TaskSpec,
    Trace,
};
use mmscale_frames::page_alloc::{
    AllocConfig, AllocError, Audit, ConfigError, FrameAllocator, Gfp, MemoryMap, Violation,
};

/// Tasks whose entry has this bit belong to the memory manager; all other numbers are the
/// embedder's.
pub const MM_TASK: u64 = 1 << 63;
/// In addition to [`MM_TASK`]: a background reclaimer, by node.
pub const KSWAPD: u64 = 1 << 62;
/// In addition to [`MM_TASK`]: the OOM reaper.
pub const OOM_REAPER: u64 = 1 << 61;
/// In addition to [`MM_TASK`]: the task that waits for grace periods on behalf of stacks.
pub const STACK_REAPER: u64 = 1 << 60;

/// Attempts to allocate the zero page.
const ZERO_ATTEMPTS: usize = 100;

/// The task entry of the worker of `cpu`.
const fn worker_entry(cpu: CpuId) -> TaskEntry {
    TaskEntry(MM_TASK | cpu.index() as u64)
}

/// The configuration of a memory manager.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MmConfig {
    /// The machine's memory.
    pub map: MemoryMap,
    /// The configuration of zones and page caches.
    pub alloc: AllocConfig,
    /// The upkeep interval (`vm.stat_interval`), in ns: one jiffy to an hour. The kernel's is 1 s.
    pub interval_ns: u64,
    /// How the upkeep tick is spread over time.
    pub tick: TickPolicy,
    /// When a tick arms itself again.
    pub requeue: Requeue,
    /// How folios are added to their LRU lists.
    pub lru: LruPolicy,
    /// How many folios leave their lists in one hold of the lists' lock.
    pub release: ReleasePolicy,
    /// The policy of LRU batches.
    pub folios: FoliosPolicy,
    /// Memory groups, including the root: 1 to [`GroupId::MAX`].
    pub groups: usize,
    /// Identities of memory groups in addition, for those that are created while removed ones still
    /// have pages. 0: no group is created or removed. Groups and these: at most [`GroupId::MAX`].
    pub spare_groups: usize,
    /// Levels of memory groups below the root: 1 to [`GroupsConfig::MAX_DEPTH`].
    pub group_depth: usize,
    /// Of how many groups a CPU has charges in advance.
    pub charge_stock: StockPolicy,
    /// When readers flush the statistics of memory groups.
    pub stat_threshold: ThresholdPolicy,
    /// The configuration of address spaces.
    pub space: SpaceConfig,
    /// The swap area.
    pub swap: SwapConfig,
    /// The OOM killer.
    pub oom: OomConfig,
    /// How CPUs call each other.
    pub smp: SmpConfig,
    /// How many stacks of tasks are cached.
    pub stacks: StackConfig,
}

impl MmConfig {
    /// The kernel's defaults for `map`, with the tick policy `tick`.
    pub fn new(map: MemoryMap, tick: TickPolicy) -> Self {
        Self {
            map,
            alloc: AllocConfig::default(),
            interval_ns: NSEC_PER_SEC,
            tick,
            requeue: Requeue::Needed,
            lru: LruPolicy::Stock,
            release: ReleasePolicy::Stock,
            folios: FoliosPolicy::Stock,
            groups: 1,
            spare_groups: 0,
            group_depth: 1,
            charge_stock: StockPolicy::default(),
            stat_threshold: ThresholdPolicy::default(),
            space: SpaceConfig::default(),
            swap: SwapConfig::default(),
            oom: OomConfig::default(),
            smp: SmpConfig::default(),
            stacks: StackConfig::default(),
        }
    }
}

/// Why a memory manager cannot be created.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MmError {
    /// The machine's timer frequency is 0 or above 10,000.
    Hz(u32),
    /// The upkeep interval is shorter than a jiffy or longer than an hour; in ns.
    Interval(u64),
    /// The number of memory groups is 0 or above [`GroupId::MAX`].
    Groups(usize),
    /// The depth of memory groups is 0 or above [`GroupsConfig::MAX_DEPTH`].
    GroupDepth(usize),
    /// The memory map or the configuration of page caches is invalid.
    Config(ConfigError),
}

impl core::fmt::Display for MmError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Hz(hz) => write!(f, "setting up timers: hz {hz} is not in 1 to 10000"),
            Self::Interval(ns) => {
                write!(f, "setting up the upkeep: interval {ns} ns is not in a jiffy to an hour")
            }
            Self::Groups(count) => {
                write!(f, "setting up memory groups: count {count} is not in 1 to {}", GroupId::MAX)
            }
            Self::GroupDepth(depth) => write!(
                f,
                "setting up memory groups: depth {depth} is not in 1 to {}",
                GroupsConfig::MAX_DEPTH
            ),
            Self::Config(why) => write!(f, "setting up memory: {why}"),
        }
    }
}

impl core::error::Error for MmError {}

impl From<ConfigError> for MmError {
    fn from(why: ConfigError) -> Self {
        Self::Config(why)
    }
}

/// The memory manager of one machine.
pub struct Mm<A: Machine> {
    frames: FrameAllocator<A>,
    time: Time<A>,
    work: Work<A>,
    rcu: Rcu<A>,
    upkeep: Upkeep<A>,
    folios: Folios<A>,
    groups: Groups<A>,
    lifetimes: Lifetimes<A>,
    lru: Lru<A>,
    tlb: Tlb<A>,
    tables: TableLocks<A>,
    counts: CountMemory<A>,
    spaces: Spaces<A>,
    swap: Swap<A>,
    reclaim: Reclaim<A>,
    oom: Oom<A>,
    stacks: Stacks<A>,
    nodes: usize,
}

impl<A: Machine> Mm<A> {
    /// Creates a memory manager for every possible CPU. All memory is free, no timer is armed.
    pub fn new(config: &MmConfig) -> Result<Self, MmError> {
        let time = Time::new().ok_or(MmError::Hz(A::hz()))?;
        let upkeep = Upkeep::new(config.tick, config.requeue, config.interval_ns, time.hz())
            .ok_or(MmError::Interval(config.interval_ns))?;
        let ids = config.groups.saturating_add(config.spare_groups);
        if config.groups == 0 || ids > GroupId::MAX {
            return Err(MmError::Groups(ids));
        }
        let groups = GroupsConfig { count: ids, depth: config.group_depth };
        if !groups.is_valid() {
            return Err(MmError::GroupDepth(config.group_depth));
        }
        let frames = FrameAllocator::new(&config.map, config.alloc)?;
        Ok(Self {
            frames,
            time,
            work: Work::new(),
            rcu: Rcu::new(),
            upkeep,
            folios: Folios::new(config.map.frames()),
            groups: Groups::with(
                groups,
                config.map.node_count(),
                config.charge_stock,
                config.stat_threshold,
            )
            .with_spare(config.spare_groups),
            lifetimes: Lifetimes::new(
                config.groups - 1,
                config.spare_groups,
                config.map.node_count(),
            ),
            tlb: Tlb::new(config.smp),
            tables: TableLocks::new(config.map.frames()),
            counts: CountMemory::new(),
            spaces: Spaces::new(config.space, config.map.frames() as u64),
            swap: Swap::new(config.swap),
            reclaim: Reclaim::new(config.map.node_count()),
            oom: Oom::new(config.oom),
            stacks: Stacks::new(config.stacks),
            nodes: config.map.node_count(),
            lru: Lru::gathering(config.lru, config.folios, ids, config.map.node_count())
                .releasing(config.release),
        })
    }

    fn vmstat_ref(&self) -> VmstatRef<'_, A> {
        VmstatRef { frames: &self.frames, time: &self.time, work: &self.work }
    }

    /// The frame allocator: [`FrameAllocator::alloc_pages`] and related calls.
    pub fn frames(&self) -> &FrameAllocator<A> {
        &self.frames
    }
    /// The upkeep tick.
    pub fn upkeep(&self) -> &Upkeep<A> {
        &self.upkeep
    }
    /// Timers and sleeping.
    pub fn time(&self) -> &Time<A> {
        &self.time
    }
    /// Work queues.
    pub fn work(&self) -> &Work<A> {
        &self.work
    }
    /// Grace periods.
    pub fn rcu(&self) -> &Rcu<A> {
        &self.rcu
    }

    /// The memory groups that exist, and their processes.
    pub fn lifetimes(&self) -> &Lifetimes<A> {
        &self.lifetimes
    }
    fn lifetime_ref(&self) -> LifetimeRef<'_, A> {
        LifetimeRef { groups: &self.groups, work: &self.work, percpu: self.counts.percpu() }
    }
    /// Creates the memory group of a number, as [`Lifetimes::create`].
    pub fn create_group(&self, number: usize) -> Result<(), LifetimeError> {
        self.lifetimes.create(self.lifetime_ref(), number)
    }
    /// Removes the memory group of a number, as [`Lifetimes::remove`].
    pub fn remove_group(&self, number: usize) -> Result<(), LifetimeError> {
        self.lifetimes.remove(self.lifetime_ref(), number)
    }

    /// References to what allocates, adds, isolates and releases folios.
    #[inline]
    pub fn memory(&self) -> LruRef<'_, A> {
        LruRef {
            frames: &self.frames,
            folios: &self.folios,
            groups: &self.groups,
            lru: &self.lru,
            work: &self.work,
            rcu: &self.rcu,
        }
    }
    /// The state of all TLBs.
    pub fn tlb(&self) -> &Tlb<A> {
        &self.tlb
    }

    /// Calls to other CPUs; [`Mm::run_call`] runs the local part of a call.
    pub fn smp(&self) -> &Smp<A> {
        self.tlb.smp()
    }
    /// Statistics of calls, flushes and limbo.
    pub fn call_stats(&self) -> CallStats {
        self.tlb.stats()
    }
    /// Runs a call on this CPU: in its interrupt, or in the caller if it is the target.
    pub fn run_call(&self, call: Call) {
        self.tlb.run(call);
    }

    /// References to what page tables are made of and share.
    pub fn paging(&self) -> PtRef<'_, A> {
        PtRef {
            frames: &self.frames,
            locks: &self.tables,
            tlb: &self.tlb,
            counts: &self.counts,
            room: Some(self),
        }
    }

    /// References to what address spaces use, for example in
    /// [`Space::new`](crate::space::Space::new).
    #[inline]
    pub fn mm_ref(&self) -> MmRef<'_, A> {
        MmRef {
            memory: self.memory(),
            paging: self.paging(),
            spaces: &self.spaces,
            swap: &self.swap,
            reclaim: &self.reclaim,
            oom: &self.oom,
            time: &self.time,
        }
    }
    /// The OOM killer.
    pub fn oom(&self) -> &Oom<A> {
        &self.oom
    }

    /// Stacks of tasks.
    pub fn stacks(&self) -> &Stacks<A> {
        &self.stacks
    }
    /// Returns a stack for a task that is about to be made; `None` if stacks are not counted.
    /// Sleeps.
    pub fn make_stack(&self) -> Result<Option<Stack>, StackError> {
        self.stacks.make(self.paging())
    }
    /// Runs `run` as the calling task on `stack`, from the task's beginning to its end.
    pub fn run_on_stack<R>(&self, stack: Option<Stack>, run: impl FnOnce() -> R) -> R {
        let Some(stack) = stack else { return run() };
        self.stacks.enter(self.paging(), &stack);
        let result = run();
        self.stacks.leave(self.paging(), stack);
        result
    }

    // -- Start and end of a run. Tasks only.

    /// Takes the zero page, makes the workers of all online CPUs and the background reclaimers, and
    /// arms the upkeep's shepherd on the caller's CPU. Called once, in the first task. If no frame
    /// is free, fails and starts nothing.
    pub fn start(&self) -> Result<(), NoMemory> {
        self.time.idle_exit();
        // A run may inject allocation failures; they must not make this fail.
        let taken = (0..ZERO_ATTEMPTS).any(|_| self.spaces.start(&self.frames).is_ok());
        if !taken {
            return Err(NoMemory);
        }
        let mut online = CpuMask::EMPTY;
        A::online(&mut online);
        online.iter().for_each(|cpu| self.work.start_worker(cpu, worker_entry(cpu)));
        (0..self.nodes).for_each(|node| self.start_kswapd(NodeId::new(node), &online));
        let stack_reaper = self.stacks.are_mapped().then_some(STACK_REAPER);
        for reaper in core::iter::once(OOM_REAPER).chain(stack_reaper) {
            let entry = TaskEntry(MM_TASK | reaper);
            A::spawn(TaskSpec { cpu: A::cpu(), per_cpu: false, priority: Priority::Fair, entry });
        }
        self.upkeep.start(&self.vmstat_ref());
        self.arm_stat_flush();
        Ok(())
    }
    /// Arms the next periodic flush of the groups' statistics, on this CPU.
    fn arm_stat_flush(&self) {
        let expiry = Expiry::Deferrable { jiffies: self.time.hz().span(FLUSH_NS) };
        self.work.queue_delayed_on(&self.time, A::cpu(), WorkItem::StatFlush, expiry);
    }

    /// Starts the background reclaimer of `node`, on its first CPU, or on the first CPU of all if
    /// it has none.
    fn start_kswapd(&self, node: NodeId, online: &CpuMask) {
        let own = online.iter().find(|&cpu| A::node_of(cpu) == node);
        let cpu = own.or_else(|| online.iter().next()).unwrap_or(A::cpu());
        let entry = TaskEntry(MM_TASK | KSWAPD | node.index() as u64);
        A::spawn(TaskSpec { cpu, per_cpu: false, priority: Priority::Fair, entry });
    }

    /// Sleeps for `ns`, or until [`Mm::shutdown`].
    pub fn sleep_ns(&self, ns: u64) {
        self.sleep_ns_unless(ns, || false);
    }
    /// Like [`Mm::sleep_ns`], but also wakes if the task is unparked and `over` is true, as
    /// [`Time::sleep_until`] does.
    pub fn sleep_ns_unless(&self, ns: u64, over: impl Fn() -> bool) {
        self.time.sleep_until(A::now_ns().saturating_add(ns), over);
    }

    /// Drains the page caches of every online CPU; returns when all are drained.
    pub fn drain_all_pages(&self) {
        let _span = Span::<A>::enter(Func::DrainAllPages);
        let mut online = CpuMask::EMPTY;
        A::online(&mut online);
        online.iter().for_each(|cpu| {
            self.work.queue_on(cpu, WorkItem::DrainPages(cpu));
        });
        online.iter().for_each(|cpu| {
            self.work.flush(WorkItem::DrainPages(cpu));
        });
    }

    /// Wakes every sleeper, lets all workers return, and waits until they have done their last
    /// work. Nothing is queued and no task sleeps afterwards.
    pub fn shutdown(&self) {
        self.mm_ref().leave_limbo(Leave::All);
        self.reclaim.stop(self.memory());
        self.oom.stop();
        self.stacks.stop();
        self.time.stop_sleeping();
        self.work.shutdown();
        self.work.wait_for_workers();
    }

    /// After [`Mm::shutdown`], when all programs have ended: waits until the swap device has
    /// finished its requests, and until every other CPU is idle. A CPU that ended a write, or whose
    /// worker has just returned, may change counters and lists until then. Sleeps.
    pub fn settle(&self) {
        self.swap.wait_for_writes(self.memory());
        self.rcu.wait_for_idle();
    }

    /// After [`Mm::settle`]: drains LRU batches, page caches and stocks of charges, and folds
    /// counters. Memory that is not free then has an owner. Offline CPUs are not drained: whatever
    /// they still have was lost on hotplug ([`Violation::LeftBehind`]).
    pub fn quiesce(&self) {
        let mut online = CpuMask::EMPTY;
        A::online(&mut online);
        self.swap.prune(self.memory());
        self.swap.quiesce(self.memory());
        self.spaces.stop(&self.frames);
        self.stacks.quiesce(self.paging(), &online);
        // All batches first: freeing them fills this CPU's page caches.
        online.iter().for_each(|cpu| self.memory().drain_stopped(cpu));
        for cpu in online.iter() {
            self.frames.drain_pages(cpu);
            self.frames.stats().fold_dead(cpu);
        }
    }

    /// Checks the frame allocator's state; while nothing else runs.
    pub fn verify(&self) -> Result<Audit, Violation> {
        self.frames.verify()
    }

    // -- Callbacks.

    /// An inter-processor interrupt arrived.
    pub fn ipi(&self, reason: Ipi) {
        match reason {
            Ipi::CallFunction => self.smp().interrupt(&|call| self.run_call(call)),
            Ipi::Block => self.swap.io_interrupt(self.memory()),
            Ipi::RcuExpedited => self.rcu.expedited_ipi(),
            Ipi::Timer => self.time.reprogram(),
            Ipi::DrainPages => self.frames.drain_ipi(),
        }
    }

    /// This CPU's one-shot timer fired.
    pub fn timer(&self) {
        let cpu = A::cpu();
        if self.time.interrupt(|slot| self.work.expired(cpu, slot)) {
            self.rcu.tick();
        }
    }

    /// This CPU is about to go idle.
    pub fn idle_enter(&self) {
        A::trace(Trace::Idle(IdleEvent::Enter));
        self.upkeep.idle_enter(&self.vmstat_ref());
        self.time.idle_enter();
        self.tlb.enter_lazy();
        self.rcu.idle_enter();
    }

    /// This CPU leaves idle.
    pub fn idle_exit(&self) {
        A::trace(Trace::Idle(IdleEvent::Exit));
        self.smp().idle_exit();
        self.rcu.idle_exit();
        self.time.idle_exit();
    }

    /// This CPU switched tasks.
    #[inline]
    pub fn context_switch(&self) {
        self.rcu.context_switch();
    }

    /// Runs the task `entry` if it belongs to the memory manager; otherwise returns `false`.
    pub fn task(&self, entry: TaskEntry) -> bool {
        if entry.0 & MM_TASK == 0 {
            return false;
        }
        if entry.0 & OOM_REAPER != 0 {
            self.oom.reaper(self.mm_ref());
            return true;
        }
        if entry.0 & STACK_REAPER != 0 {
            self.stacks.reaper(&self.rcu, &self.work);
            return true;
        }
        if entry.0 & KSWAPD != 0 {
            let node = NodeId::new((entry.0 & !(MM_TASK | KSWAPD)) as usize);
            let on = self.mm_ref();
            let scope = ReclaimRef { memory: self.memory(), swap: &self.swap, rmap: &on };
            self.reclaim.kswapd(scope, node);
            return true;
        }
        let cpu = CpuId::new((entry.0 & !MM_TASK) as usize);
        // The first task of a CPU that was never idle: its tick starts now.
        self.time.idle_exit();
        self.work.worker(cpu, |item| self.run(item));
        true
    }

    /// Runs one piece of work; the caller is a worker.
    pub fn run(&self, item: WorkItem) {
        match item {
            WorkItem::VmstatTick(cpu) => {
                self.mm_ref().leave_limbo(Leave::Passed);
                self.upkeep.vmstat_update(&self.vmstat_ref(), cpu);
            }
            WorkItem::Shepherd => {
                self.upkeep.shepherd(&self.vmstat_ref());
                self.tlb.watch();
            }
            WorkItem::DrainPages(cpu) => {
                let _span = Span::<A>::enter(Func::DrainPages);
                self.frames.drain_pages(cpu);
                self.frames.fold_counters();
            }
            WorkItem::FreeCompressed => self.swap.free_deferred(self.memory()),
            WorkItem::LruDrain(_) => self.memory().drain(),
            WorkItem::DrainStock(_) => self.groups.drain_stock(),
            WorkItem::FreeStacks(cpu) => self.stacks.free_ready(self.paging(), &self.work, cpu),
            WorkItem::PurgeStacks => self.stacks.purge(self.paging()),
            WorkItem::StatFlush => {
                self.groups.stats().flush_in_time();
                self.arm_stat_flush();
            }
        }
    }

    // -- Hotplug.

    /// Returns whether this CPU may stop.
    pub fn cpu_dying(&self) -> bool {
        self.smp().cpu_dying()
    }

    /// Ends the tick and the worker of `cpu`, which is about to go offline.
    pub fn cpu_down_prepare(&self, cpu: CpuId) {
        let _span = Span::<A>::enter(Func::CpuhpDown);
        self.upkeep.cpu_down_prepare(&self.vmstat_ref(), cpu);
        self.work.disable_sync(&self.time, WorkItem::DrainPages(cpu));
        self.work.disable_sync(&self.time, WorkItem::LruDrain(cpu));
        self.work.disable_sync(&self.time, WorkItem::DrainStock(cpu));
        self.work.disable_sync(&self.time, WorkItem::FreeStacks(cpu));
        self.work.stop_worker(cpu);
    }

    /// `cpu` is offline: moves its RCU state, timers, LRU batches, counters, stacks and pages to
    /// other CPUs.
    pub fn cpu_dead(&self, cpu: CpuId) {
        let _span = Span::<A>::enter(Func::CpuhpDown);
        self.tlb.cpu_dead(cpu);
        self.rcu.cpu_dead(cpu);
        self.time.cpu_dead(cpu, |slot, expiry| self.work.adopt(&self.time, cpu, slot, expiry));
        self.memory().drain_stopped(cpu);
        self.swap.cpu_dead(self.memory(), cpu);
        self.stacks.cpu_dead(self.paging(), &self.work, cpu);
        self.frames.cpu_dead(cpu);
        self.upkeep.cpu_dead();
    }

    /// `cpu` is online: starts its worker and its tick.
    pub fn cpu_online(&self, cpu: CpuId) {
        let _span = Span::<A>::enter(Func::CpuhpUp);
        self.smp().cpu_online(cpu);
        self.rcu.cpu_online(cpu);
        self.frames.cpu_online();
        self.work.start_worker(cpu, worker_entry(cpu));
        self.work.enable(WorkItem::DrainPages(cpu));
        self.work.enable(WorkItem::LruDrain(cpu));
        self.work.enable(WorkItem::DrainStock(cpu));
        self.work.enable(WorkItem::FreeStacks(cpu));
        self.upkeep.cpu_online(&self.vmstat_ref(), cpu);
    }
}

impl<A: Machine> MakeRoom for Mm<A> {
    fn make_room(&self, why: AllocError, retries: &mut OomRetries) -> Result<Gfp, AllocError> {
        MakeRoom::make_room(&self.mm_ref(), why, retries)
    }
}
