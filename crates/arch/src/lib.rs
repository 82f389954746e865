//! The lower waist: what the memory manager asks of a machine.
//!
//! [`Arch`] is a trait of static functions on a zero-sized tag type. On real hardware every one is
//! an instruction or nothing; the simulator (`mmscale-sim`) and the real-threads machine
//! (`mmscale-threads`) implement it too, and so does the model checker. A machine calls back
//! through [`Callbacks`].
//!
//! # Contexts
//! | context | interrupts | preemption | may sleep (`park`, sleeping locks) |
//! |---|---|---|---|
//! | a task, nothing held | on | on | yes |
//! | a task under a guard of a spin lock or of preemption | on or off | off | no |
//! | an interrupt: `ipi`, `timer`, `idle_*` callbacks | off | off | no |
//!
//! Architecture invariant: nothing here knows a study, an arm or a policy.

#![no_std]
#![forbid(unsafe_op_in_unsafe_fn)]

extern crate alloc;

mod addr;
mod atomic;
pub mod bare;
mod cost;
mod ids;
mod io;
mod mask;
pub mod sync;
mod tlb;
mod trace;

pub use addr::{ADDRESS_BITS, PAGE_SHIFT, PAGE_SIZE, USER_END, VmaRange, Vpn};
pub use atomic::{Atomic, LockClass, OwnedCounter, RawSpin};
pub use cost::{Access, Line, Op};
pub use ids::{
    CpuId, MAX_CPUS, MAX_NODES, MAX_ORDER, NodeId, Order, PAGEBLOCK_ORDER, Pfn, TaskId, VirtAddr,
};
pub use io::{IoBusy, IoDirection, IoDone, PageIo};
pub use mask::CpuMask;
pub use tlb::{Asid, Found, PageSize, SoftTlb, Translation, Walked};
pub use trace::{Func, Probe, Trace, TraceGroup, ZapBy};

/// The interrupt state that [`Arch::irq_save`] found, to be given back to [`Arch::irq_restore`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IrqState(pub bool);

/// The call path that [`Arch::span_enter`] left, to be given back to [`Arch::span_exit`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathId(pub u32);

/// Why an inter-processor interrupt was sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Ipi {
    /// Functions to call stand in the target's call queue.
    CallFunction,
    /// A grace period wants the target to report a quiescent state.
    RcuExpedited,
    /// A timer of the target was armed that comes before everything its one-shot is armed for.
    Timer,
    /// The swap device has finished requests of the target; no CPU sends this.
    Block,
    /// Somebody short of pages wants those that the target keeps to itself.
    DrainPages,
}

impl Ipi {
    /// The number of reasons; discriminants are below it.
    pub const COUNT: usize = 5;
}

/// Why a CPU was not taken offline or online.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HotplugError {
    /// There is no such CPU.
    NoSuchCpu,
    /// It is in the asked state already, or another hotplug operation is under way on it.
    NotNow,
    /// It is the last CPU online.
    LastCpu,
}

/// How a task is scheduled. Machines run the highest priority first; real time before fair.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Priority {
    /// Shares its CPU with the other fair tasks, in time slices.
    Fair,
    /// Runs until it blocks; a larger number goes first.
    RealTime(u8),
}

/// What a new task is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TaskSpec {
    /// The CPU it runs on. When that CPU goes away the machine moves it to another, unless
    /// `per_cpu`.
    pub cpu: CpuId,
    /// Bound to its CPU for good: it is not run while the CPU is offline.
    pub per_cpu: bool,
    /// How it is scheduled.
    pub priority: Priority,
    /// What [`Callbacks::task`] gets.
    pub entry: TaskEntry,
}

/// What a task does, as the owner of the callbacks numbers it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TaskEntry(pub u64);

/// What a machine calls. One value implements it for a whole machine and holds all state.
pub trait Callbacks {
    /// An inter-processor interrupt arrived on this CPU. Interrupts are off.
    fn ipi(&self, reason: Ipi);
    /// This CPU's one-shot timer went off. Interrupts are off.
    fn timer(&self);
    /// This CPU has nothing to run and is about to stop. Interrupts are off. Timers may be armed
    /// or cancelled for the time of the rest.
    fn idle_enter(&self);
    /// This CPU has something to run again, or an interrupt came. Interrupts are off. It comes
    /// before the interrupt's own callback.
    fn idle_exit(&self);
    /// This CPU switched from one task to another, or to idle: a quiescent state. Interrupts off.
    fn context_switch(&self);
    /// The body of a task; when it returns the task is over.
    fn task(&self, entry: TaskEntry);
    /// This CPU is about to stop for good, in idle; interrupts are off. `false`: it may not yet, as
    /// an interrupt is on its way to it; it is asked again after that one. After `true` it either
    /// stops, or leaves idle ([`Callbacks::idle_exit`]) and is asked again.
    fn cpu_dying(&self) -> bool;
    /// `cpu` is about to go away; called in a task on another CPU, may sleep. Last chance to stop
    /// what runs on its behalf; `cpu` is out of the online mask already, but still runs.
    fn cpu_down_prepare(&self, cpu: CpuId);
    /// `cpu` has stopped for good: called in the same task, to take over what it left.
    fn cpu_dead(&self, cpu: CpuId);
    /// `cpu` runs and is in the online mask; called in a task on any CPU.
    fn cpu_online(&self, cpu: CpuId);
}

/// What the memory manager asks of a machine.
///
/// All functions are called on a CPU of the machine, in one of the contexts of the module's table.
///
/// # Safety
/// Between [`Arch::preempt_disable`] and the matching [`Arch::preempt_enable`], [`Arch::cpu`] says
/// the same to the caller, and the same to no other code that runs at the time, interrupts on that
/// CPU excepted; it is below [`Arch::cpus_possible`], which never changes. Data for each CPU
/// ([`PerCpu`](crate::sync::PerCpu)) rests on it.
pub unsafe trait Arch: Sized + 'static {
    /// Whether anybody looks at what [`Arch::trace`] is told. Where nobody does, what only those
    /// events need is left out.
    const TRACES: bool = true;
    /// A spin lock; fair between waiters where the machine can make it so.
    type Spin: RawSpin;
    /// 8-bit atomic.
    type AtomicU8: Atomic<u8>;
    /// 32-bit atomic.
    type AtomicU32: Atomic<u32>;
    /// 64-bit atomic.
    type AtomicU64: Atomic<u64>;
    /// 64-bit signed atomic.
    type AtomicI64: Atomic<i64>;
    /// A byte that its CPU counts in.
    type OwnedI8: OwnedCounter<i8>;

    // -- CPUs.

    /// The CPU this runs on. Stable only with preemption off.
    fn cpu() -> CpuId;
    /// How many CPUs may ever exist; their numbers are below it.
    fn cpus_possible() -> usize;
    /// The memory node nearest to `cpu`.
    fn node_of(cpu: CpuId) -> NodeId;
    /// Copies the mask of CPUs that are online now.
    fn online(mask: &mut CpuMask);
    /// Whether `cpu` is online now. Stable only with preemption off.
    fn is_online(cpu: CpuId) -> bool;

    // -- Preemption and interrupts. Guards in `sync` pair these.

    /// Forbids switching to another task on this CPU; nests.
    fn preempt_disable();
    /// Ends one [`Arch::preempt_disable`]; at the outermost a waiting task may run.
    fn preempt_enable();
    /// Turns interrupts off on this CPU and says what they were.
    fn irq_save() -> IrqState;
    /// Puts the interrupt state back; pending interrupts are delivered if that turns them on.
    fn irq_restore(state: IrqState);
    /// Whether this runs in an interrupt.
    fn in_interrupt() -> bool;

    // -- Cross-CPU calls, time.

    /// Sends `reason` to `cpu`, whose [`Callbacks::ipi`] runs when its interrupts are on. Sending
    /// the same reason again before it was delivered may merge the two.
    fn ipi_send(cpu: CpuId, reason: Ipi);
    /// Whether CPUs can interrupt one another. Where they cannot, what a CPU keeps to itself stays
    /// there until it gives it up.
    #[inline]
    fn has_ipi() -> bool {
        true
    }
    /// Monotonic time in ns since the machine started; the same on all CPUs.
    fn now_ns() -> u64;
    /// Timer interrupts a second while a CPU is busy: the unit of the timer wheel.
    fn hz() -> u32;
    /// Arms this CPU's one-shot timer for `deadline_ns`, in place of an earlier arming.
    fn timer_arm(deadline_ns: u64);
    /// Disarms this CPU's timer.
    fn timer_cancel();

    // -- Tasks.

    /// The task this runs in; in an interrupt, the interrupted one.
    fn current() -> TaskId;
    /// Blocks the calling task until somebody unparks it; returns at once if somebody has since
    /// the last park. May also return early: callers check their condition in a loop.
    fn park();
    /// Lets `task` return from its current or its next [`Arch::park`].
    fn unpark(task: TaskId);
    /// Whether `task` is running on a CPU now; a hint for optimistic spinning.
    fn is_running(task: TaskId) -> bool;
    /// Makes a new task.
    fn spawn(spec: TaskSpec) -> TaskId;
    /// One turn of a wait loop: lets interrupts in if they are on.
    fn relax();
    /// Lets a waiting task run, if there is one that should. Nothing is held.
    fn cond_resched();

    /// Whether a task of at least the same right waits for this CPU: whoever spins with preemption
    /// off gives up then. A hint; a machine may always say no.
    fn need_resched() -> bool {
        false
    }

    /// The calling task computes for `ns` of its own CPU time without using the memory manager.
    /// Interrupts and preemption are on. A machine in virtual time does not cut this into pieces:
    /// the CPU waits, as an idle one does, until the time is used up or an interrupt arrives, is
    /// interrupted exactly then, and goes on with what is left afterwards (other tasks' time on
    /// the CPU does not count). So a second of it costs the host no more than its interrupts.
    fn user(ns: u64);

    // -- CPU hotplug, called in a task that is not bound to `cpu`. Sleeps.

    /// Takes `cpu` out of the online mask, calls [`Callbacks::cpu_down_prepare`], moves its tasks
    /// (those not `per_cpu`) away, stops it, calls [`Callbacks::cpu_dead`].
    fn cpu_offline(cpu: CpuId) -> Result<(), HotplugError>;
    /// Starts `cpu` again, puts it into the online mask, calls [`Callbacks::cpu_online`].
    fn cpu_online(cpu: CpuId) -> Result<(), HotplugError>;

    // -- Costs, traces, injected faults. Nothing on real hardware.

    /// Whether the allocation that asks is to fail, as a fault that the run injects.
    fn fail_alloc() -> bool;

    /// `line` of the memory manager's own data is used.
    fn touch(line: Line, access: Access);
    /// `count` times the operation `op` is done.
    fn work(op: Op, count: u32);
    /// `event` happened on this CPU now.
    fn trace(event: Trace);
    /// The call path of this task or interrupt goes one function deeper.
    fn span_enter(func: Func) -> PathId;
    /// The call path goes back to what [`Arch::span_enter`] returned.
    fn span_exit(path: PathId);

    // -- Bytes behind frames.

    /// Clears the `order` block at `pfn`, for real where there is memory; costs included. A frame
    /// that is to be a page table has 512 entries of 0 then.
    fn clear_block(pfn: Pfn, order: Order);
    /// Copies a frame's bytes into another, for real where there is memory; costs included.
    fn copy_page(from: Pfn, to: Pfn);
    /// Writes a stamp into the first bytes of a frame.
    fn write_stamp(pfn: Pfn, stamp: u64);
    /// Reads the stamp back; 0 after a clear.
    fn read_stamp(pfn: Pfn) -> u64;

    /// Whether every byte of a frame is 0. Costs nothing by itself.
    fn is_zero(pfn: Pfn) -> bool;

    // -- The swap device: blocks of a page each, numbered from 0, as many as anybody asks for. What
    // a block holds that was never written is anything. Nothing of this costs anything by itself
    // but the device's time.

    /// Hands a request to the device; preemption is off. Never waits: the device reads or writes
    /// the frame by itself, at any time until it has finished, and then interrupts this CPU with
    /// [`Ipi::Block`]. One interrupt may stand for many requests. A CPU that goes away stops only
    /// when it has been interrupted for all of its requests.
    fn io_submit(io: PageIo) -> Result<(), IoBusy>;
    /// Takes a request back that has finished: of this CPU, or of one that is offline. Preemption
    /// is off. A read has filled its frame by then.
    fn io_done() -> Option<IoDone>;
    /// Reads or writes a block at once, in the caller's own time and without an interrupt, as where
    /// the device is memory; `false`: it has failed.
    fn io_now(io: PageIo) -> bool;

    // -- Page tables: the 512 words of 64 bits of a frame of the memory manager's own. None of
    // these costs anything by itself. Who holds the lock of a table loads and stores. The hardware
    // reads tables without it, and sets bits in entries that are present: so an entry that is
    // present is changed by `table_swap` or `table_compare_exchange` only, under the lock too, and
    // `table_store` fills entries that are not.

    /// Entry `index` of the table at `pfn`, for who holds its lock.
    fn table_load(pfn: Pfn, index: usize) -> u64;
    /// Fills an entry that is not present, for who holds the table's lock. What was written before
    /// is visible to whoever sees the entry.
    fn table_store(pfn: Pfn, index: usize, value: u64);
    /// An entry as the hardware reads it, without the lock: a synchronised operation.
    fn table_peek(pfn: Pfn, index: usize) -> u64;
    /// The first entry of a table among `indices` that is not empty, as the hardware reads it: one
    /// synchronised operation where the machine can, or one for each entry.
    #[inline]
    fn table_scan(pfn: Pfn, mut indices: core::ops::Range<usize>) -> Option<(usize, u64)> {
        indices.find_map(|index| {
            let word = Self::table_peek(pfn, index);
            (word != 0).then_some((index, word))
        })
    }
    /// Reads entries as the hardware does on its way down: that of the root at `path[0]`, and as
    /// long as `down` names a table for what it finds, that table's at the next index of `path`,
    /// which is not empty. All at one time where the machine can: a walk is one synchronised
    /// operation, or one for each entry.
    #[inline]
    fn table_walk(root: Pfn, path: &[usize], down: impl Fn(u64) -> Option<Pfn>) -> Walked {
        Walked::read(root, path, down, Self::table_peek)
    }
    /// Writes an entry and returns what was there: a synchronised operation.
    fn table_swap(pfn: Pfn, index: usize, value: u64) -> u64;
    /// Writes `new` if `current` is there; returns what was there, as `Ok` if it was `current`: a
    /// synchronised operation.
    fn table_compare_exchange(pfn: Pfn, index: usize, current: u64, new: u64) -> Result<u64, u64>;
    /// The frame is no table any more; what stood in it is gone.
    fn table_drop(pfn: Pfn);

    // -- Translations that CPUs keep.

    /// Whether [`Arch::tlb_broadcast`] reaches every CPU without an interrupt.
    fn has_tlb_broadcast() -> bool;
    /// This CPU uses the translations of `asid` from now on; `None`: of no address space.
    /// Translations of others stay where they are.
    fn tlb_load(asid: Option<Asid>);
    /// The translation of `page` that this CPU keeps. Interrupts are off.
    fn tlb_lookup(asid: Asid, page: Vpn) -> Option<Translation>;
    /// This CPU keeps the translation of `page`, in place of an older one. Interrupts have been
    /// off since before the tables were read, and with [`Arch::has_tlb_broadcast`] no time has
    /// passed since then.
    fn tlb_fill(asid: Asid, page: Vpn, translation: Translation);
    /// This CPU forgets translations of `asid`: those of `range`, or all.
    fn tlb_flush_local(asid: Asid, range: Option<VmaRange>);
    /// All CPUs forget translations of `asid`: those of `range`, or all; costs included. Only with
    /// [`Arch::has_tlb_broadcast`].
    fn tlb_broadcast(asid: Asid, range: Option<VmaRange>);
}

/// Enters a span for the rest of a scope.
#[must_use]
pub struct Span<A: Arch> {
    before: PathId,
    arch: core::marker::PhantomData<*const A>,
}

impl<A: Arch> Span<A> {
    /// The call path goes into `func` until the value is dropped.
    #[inline]
    pub fn enter(func: Func) -> Self {
        Self { before: A::span_enter(func), arch: core::marker::PhantomData }
    }
}

impl<A: Arch> Drop for Span<A> {
    #[inline]
    fn drop(&mut self) {
        A::span_exit(self.before);
    }
}
