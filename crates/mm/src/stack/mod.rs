//! Task stacks, mapped at kernel addresses (`CONFIG_VMAP_STACK`).
//!
//! A stack is 16 KiB: four single frames, mapped to consecutive addresses ([`Vmap`]). The order of
//! events is that of `kernel/fork.c`:
//!
//! 1. [`Stacks::make`] takes a stack from this CPU's cache of two. If the cache is empty it
//!    allocates, clears and maps four frames.
//! 2. The task runs on it, between [`Stacks::enter`] and [`Stacks::leave`].
//! 3. When the task ends, its stack goes into the cache of the CPU where it ended. If the cache is
//!    full, the stack waits for a grace period, with others ([`Stacks::reaper`]).
//! 4. After the grace period the CPU's worker puts it into the cache if there is room now.
//!    Otherwise it unmaps the stack and frees its frames ([`Stacks::free_ready`]).
//! 5. The addresses wait in limbo. When there are too many, a worker flushes them on all CPUs with
//!    one flush ([`Stacks::purge`]).
//!
//! On a simulated machine these are the stacks of simulated tasks: their frames, addresses and
//! costs. A task writes a stamp at the top of its stack when it begins and reads it when it ends,
//! so that the machine's checkers detect a translation that outlives its stack.
//!
//! Lock order: a CPU's stacks (class Other) are locked with nothing inside.

mod list;

use crate::pgtable::{MemAccess, PtRef, alloc_frame};
use crate::rcu::Rcu;
use crate::vmap::{Purge, Vmap, VmapError, VmapStats};
use crate::work::{Work, WorkItem};
use core::sync::atomic::Ordering::SeqCst;
use list::CpuStacks;
use mmscale_arch::counters::Counters;
use mmscale_arch::sync::{Completion, EachCpu, Mutex, NoPreempt, Once, PreemptGuard, SpinLock};
use mmscale_arch::{Atomic, CpuId, CpuMask, Func, LockClass, Machine, Order, Pfn, Span, TaskId};
use mmscale_frames::page_alloc::AllocError;

pub use list::{STACK_PAGES, Stack};

/// The model of task stacks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum StackConfig {
    /// Stacks are not modelled: they cost neither memory nor time.
    #[default]
    Uncounted,
    /// Stacks are mapped at kernel addresses.
    Mapped {
        /// Maximum of pages of addresses in limbo before all CPUs are flushed. `None`: 32 MiB for
        /// each doubling of the CPUs (`lazy_max_pages`).
        lazy_max_pages: Option<u64>,
    },
}

/// The reason why a task got no stack. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StackError {
    /// No frame for it is free.
    Frames(AllocError),
    /// Its frames cannot be mapped.
    Map(VmapError),
}

impl core::fmt::Display for StackError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Frames(why) => write!(f, "making a stack: {why}"),
            Self::Map(why) => write!(f, "making a stack: {why}"),
        }
    }
}

impl core::error::Error for StackError {}

mmscale_arch::counters! {
    /// Statistics of stacks, over all CPUs; exact while nothing runs.
    pub struct StackStats from CpuStats {
        /// Stacks given to tasks.
        given: Sum,
        /// Stacks given to tasks from a CPU's cache; part of `given`.
        reused: Sum,
        /// Stacks that were unmapped and whose frames were freed.
        freed: Sum,
    }
}

/// The stacks of one CPU.
struct StackLists<A: Machine> {
    stacks: SpinLock<A, CpuStacks>,
    /// Not zero: a stack may wait for a grace period to begin. Set after the stack was added to the
    /// list.
    waits: A::AtomicU32,
}

/// The stacks of all tasks of programs.
pub struct Stacks<A: Machine> {
    /// Created with the first stack.
    range: Once<Vmap<A>>,
    /// Serializes the creation of the range.
    making: Mutex<A, ()>,
    config: StackConfig,
    cpus_stacks: EachCpu<StackLists<A>>,
    counters: Counters<A, CpuStats>,
    /// The reaper's task plus 1; 0 until it runs.
    reaper: A::AtomicU32,
    stopping: A::AtomicU32,
    ended: Completion<A>,
}

impl<A: Machine> Stacks<A> {
    /// Creates the state without stacks.
    pub fn new(config: StackConfig) -> Self {
        let lists = |_| StackLists {
            stacks: SpinLock::new(LockClass::Other, CpuStacks::default()),
            waits: A::AtomicU32::new(0),
        };
        Self {
            range: Once::nothing(),
            making: Mutex::new(LockClass::Mutex, ()),
            config,
            cpus_stacks: EachCpu::new::<A>(lists),
            counters: Counters::default(),
            reaper: A::AtomicU32::new(0),
            stopping: A::AtomicU32::new(0),
            ended: Completion::new(),
        }
    }

    // -- Tasks.

    /// Returns whether stacks are mapped.
    pub fn are_mapped(&self) -> bool {
        self.config != StackConfig::Uncounted
    }
    /// Returns a cleared stack for a task (`alloc_thread_stack_node`), or `None` if stacks are not
    /// modelled. Sleeps if memory must be reclaimed or addresses must be purged.
    pub fn make(&self, on: PtRef<'_, A>) -> Result<Option<Stack>, StackError> {
        let StackConfig::Mapped { lazy_max_pages } = self.config else { return Ok(None) };
        let _span = Span::<A>::enter(Func::AllocThreadStackNode);
        let cached = {
            let pinned = PreemptGuard::<A>::new();
            self.cpus_stacks.of(pinned.cpu()).stacks.lock().take()
        };
        match cached {
            Some(stack) => {
                clear::<A>(stack.frames());
                self.counters.here().given.add(1);
                self.counters.here().reused.add(1);
                Ok(Some(stack))
            }
            None => {
                let range = self.range(on, lazy_max_pages).map_err(StackError::Map)?;
                let stack = self.map(on, range)?;
                self.counters.here().given.add(1);
                Ok(Some(stack))
            }
        }
    }
    fn map(&self, on: PtRef<'_, A>, range: &Vmap<A>) -> Result<Stack, StackError> {
        let mut frames = [Pfn::new(0); STACK_PAGES];
        let free = |frames: &[Pfn]| {
            frames.iter().for_each(|&pfn| on.frames.free_pages(pfn, Order::ZERO));
        };
        for at in 0..STACK_PAGES {
            match alloc_frame(on) {
                Ok(pfn) => frames[at] = pfn,
                Err(why) => {
                    free(&frames[..at]);
                    return Err(StackError::Frames(why));
                }
            }
        }
        clear::<A>(&frames);
        match range.map(on, &frames) {
            Ok(at) => Ok(Stack::new(at, frames)),
            Err(why) => {
                free(&frames);
                Err(StackError::Map(why))
            }
        }
    }
    /// Returns the kernel's range; the first caller creates it.
    fn range(&self, on: PtRef<'_, A>, lazy_max: Option<u64>) -> Result<&Vmap<A>, VmapError> {
        if let Some(range) = self.range.get() {
            return Ok(range);
        }
        let _one = self.making.lock();
        match self.range.get() {
            Some(range) => Ok(range),
            None => {
                let new = Vmap::new(on, lazy_max).map_err(VmapError::Tables)?;
                Ok(self.range.put(new))
            }
        }
    }
    /// Starts running the calling task on `stack`.
    pub fn enter(&self, on: PtRef<'_, A>, stack: &Stack) {
        self.at_top(on, stack, MemAccess::Write, |pfn| A::write_stamp(pfn, mark(stack)));
    }
    /// Returns the calling task's stack at its end: to this CPU's cache, or to the list that waits
    /// for a grace period (`free_thread_stack`).
    ///
    /// Panics if the stack is mapped to another frame than at the start, or another task wrote to
    /// it.
    pub fn leave(&self, on: PtRef<'_, A>, stack: Stack) {
        let found = self.at_top(on, &stack, MemAccess::Read, |pfn| A::read_stamp(pfn));
        assert_eq!(found, Some(mark(&stack)), "a stack was written to by another task");
        self.put(stack);
    }
    fn at_top<R>(
        &self,
        on: PtRef<'_, A>,
        stack: &Stack,
        access: MemAccess,
        run: impl FnOnce(Pfn) -> R,
    ) -> Option<R> {
        self.range.get()?.access(on, stack.top(), access, run).ok()
    }
    /// Returns a stack on which no task runs.
    pub fn put(&self, stack: Stack) {
        let pinned = PreemptGuard::<A>::new();
        let lists = self.cpus_stacks.of(pinned.cpu());
        // A statement of its own, so that the lock is released before the reaper is woken.
        let left = lists.stacks.lock().put(stack);
        if let Some(stack) = left {
            self.wait_for_readers(lists, stack);
        }
    }
    /// Adds `stack` to the stacks of one CPU that wait for a grace period.
    fn wait_for_readers(&self, lists: &StackLists<A>, stack: Stack) {
        lists.stacks.lock().waiting.push(stack);
        // Pairs with the exchange in `begin`, whose caller sees the stack in the list. Then
        // `wake_reaper`: store buffering with `reaper`.
        if lists.waits.swap(1, SeqCst) == 0 {
            self.wake_reaper();
        }
    }

    // -- Grace periods. One task.

    /// Body of the task that waits for grace periods for stacks; returns after [`Stacks::stop`].
    pub fn reaper(&self, rcu: &Rcu<A>, work: &Work<A>) {
        // Store buffering with `stop` and with `wait_for_readers`. Here: the task, then `stopping`
        // and `waits`. There: one of these, then the task. One of the two sees the other.
        self.reaper.store(A::current().index() as u32 + 1, SeqCst);
        while self.stopping.load(SeqCst) == 0 {
            let cpus = self.begin();
            if cpus == CpuMask::EMPTY {
                A::park();
                continue;
            }
            rcu.synchronize();
            for cpu in cpus.iter() {
                self.cpus_stacks.of(cpu).stacks.lock().pass();
                work.queue_on(cpu, WorkItem::FreeStacks(cpu));
            }
        }
        self.ended.complete();
    }
    /// Marks the waiting stacks for the grace period that is about to begin; returns the CPUs that
    /// have some.
    fn begin(&self) -> CpuMask {
        let mut cpus = CpuMask::EMPTY;
        for (cpu, lists) in self.cpus_stacks.iter() {
            // Pairs with the swap in `wait_for_readers`: the stack was added to the list before.
            if lists.waits.load(SeqCst) != 0 && lists.waits.swap(0, SeqCst) != 0 {
                lists.stacks.lock().begin();
                cpus.insert(cpu);
            }
        }
        cpus
    }
    fn wake_reaper(&self) {
        // Pairs with the store in `reaper`: see there.
        if let Some(task) = self.reaper.load(SeqCst).checked_sub(1) {
            A::unpark(TaskId::new(task as usize));
        }
    }
    /// Makes the reaper return, and waits for it if it has started. Sleeps.
    pub fn stop(&self) {
        if !self.are_mapped() {
            return;
        }
        // Store buffering with `reaper`: see there.
        self.stopping.store(1, SeqCst);
        if self.reaper.load(SeqCst) != 0 {
            self.wake_reaper();
            self.ended.wait();
        }
    }

    // -- Workers.

    /// Frees the stacks of `cpu` whose grace period is over and for which its cache has no room
    /// (`thread_stack_free_rcu`). The caller is the worker of `cpu`.
    pub fn free_ready(&self, on: PtRef<'_, A>, work: &Work<A>, cpu: CpuId) {
        let _span = Span::<A>::enter(Func::ThreadStackFreeRcu);
        loop {
            // A statement of its own, so that the lock is released before the stack is freed.
            let next = self.cpus_stacks.of(cpu).stacks.lock().take_ready();
            let Some(stack) = next else { return };
            self.free(on, work, stack);
        }
    }
    /// Unmaps a stack and frees its frames (`vfree`).
    fn free(&self, on: PtRef<'_, A>, work: &Work<A>, stack: Stack) {
        let Some(range) = self.range.get() else { return };
        if self.unmap(on, range, &stack) == Purge::Needed {
            work.queue_on(A::cpu(), WorkItem::PurgeStacks);
        }
    }
    fn unmap(&self, on: PtRef<'_, A>, range: &Vmap<A>, stack: &Stack) -> Purge {
        self.counters.here().freed.add(1);
        let purge = range.unmap(on, stack.range());
        stack.frames().iter().for_each(|&pfn| on.frames.free_pages(pfn, Order::ZERO));
        purge
    }
    /// Flushes the addresses in limbo on all CPUs (`drain_vmap_area_work`). Sleeps.
    pub fn purge(&self, on: PtRef<'_, A>) {
        let _span = Span::<A>::enter(Func::DrainVmapAreaWork);
        if let Some(range) = self.range.get() {
            range.purge(on);
        }
    }

    // -- Hotplug, and the end.

    /// Frees the stacks in the cache of `cpu`, which is dead (`free_vm_stack_cache`). Moves the
    /// waiting stacks to this CPU.
    pub fn cpu_dead(&self, on: PtRef<'_, A>, work: &Work<A>, cpu: CpuId) {
        if !self.are_mapped() {
            return;
        }
        let CpuStacks { cached, mut waiting, mut passing, mut ready } =
            core::mem::take(&mut *self.cpus_stacks.of(cpu).stacks.lock());
        cached.into_iter().flatten().for_each(|stack| self.free(on, work, stack));
        for list in [&mut waiting, &mut passing, &mut ready] {
            while let Some(stack) = list.pop() {
                let pinned = PreemptGuard::<A>::new();
                self.wait_for_readers(self.cpus_stacks.of(pinned.cpu()), stack);
            }
        }
    }
    /// Frees all stacks of online CPUs and the range. Called when no task runs on a stack any more
    /// and nothing else runs.
    pub fn quiesce(&self, on: PtRef<'_, A>, online: &CpuMask) {
        let Some(range) = self.range.get() else { return };
        for cpu in online.iter() {
            let CpuStacks { cached, mut waiting, mut passing, mut ready } =
                core::mem::take(&mut *self.cpus_stacks.of(cpu).stacks.lock());
            let lists = [&mut waiting, &mut passing, &mut ready];
            let listed = lists.into_iter().flat_map(|list| core::iter::from_fn(|| list.pop()));
            for stack in cached.into_iter().flatten().chain(listed) {
                let _ = self.unmap(on, range, &stack);
            }
        }
        range.destroy(on);
    }
    /// Returns the statistics of stacks.
    pub fn stats(&self) -> StackStats {
        self.counters.all()
    }
    /// Returns the statistics of the kernel's range; all are 0 before the first stack.
    pub fn range_stats(&self) -> VmapStats {
        self.range.get().map(Vmap::stats).unwrap_or_default()
    }
}

/// The stamp that a task writes to its stack.
fn mark(stack: &Stack) -> u64 {
    stack.top().get()
}

fn clear<A: Machine>(frames: &[Pfn]) {
    frames.iter().for_each(|&pfn| A::clear_block(pfn, Order::ZERO));
}
