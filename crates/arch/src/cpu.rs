//! The part of the lower waist that the frame allocator, spin locks and guards need.

use crate::{
    Access, Atomic, CpuId, CpuMask, Func, Line, NodeId, Op, OwnedCounter, OwnedValue, RawSpin,
    TaskId, Trace, random,
};
use core::sync::atomic::Ordering;

/// The interrupt state that [`Cpu::irq_save`] returns, for [`Cpu::irq_restore`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IrqState(pub bool);

/// The call path that [`Cpu::span_enter`] returns, for [`Cpu::span_exit`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathId(pub u32);

/// The interface of a CPU for code that runs on it: its identity, the other CPUs, preemption and
/// interrupts, atomics and spin locks, and names for costs and call paths.
///
/// All functions are called on a CPU of the machine, in one of the contexts of the crate's table.
///
/// # Safety
/// Between [`Cpu::preempt_disable`] and the matching [`Cpu::preempt_enable`], [`Cpu::cpu`] always
/// returns the same CPU to the caller. It returns that CPU to no other code that runs at the time,
/// except interrupts on it. The number is below [`Cpu::cpus_possible`], which never changes.
/// Per-CPU data ([`PerCpu`](crate::sync::PerCpu)) depends on this.
pub unsafe trait Cpu: Sized + 'static {
    /// Whether [`Cpu::trace`] has a listener. If not, work that is done only for events is omitted.
    const TRACES: bool = true;
    /// Whether a CPU may use the [`Local`](crate::sync::Local) data of another CPU, while that one
    /// does not: entering is then an atomic exchange, in place of a load and a store.
    const SHARED_CACHES: bool = false;
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
    /// Counter of one byte that its CPU writes.
    type OwnedI8: OwnedCounter<i8>;
    /// Number of 64 bits that its CPU changes.
    type OwnedI64: OwnedValue<i64>;

    // -- CPUs.

    /// The CPU this runs on. Stable only with preemption off.
    fn cpu() -> CpuId;
    /// The number of CPUs that may ever exist; their numbers are below it.
    fn cpus_possible() -> usize;
    /// The memory node nearest to `cpu`.
    fn node_of(cpu: CpuId) -> NodeId;
    /// The core of `cpu`: its hardware threads have the same number.
    fn core_of(cpu: CpuId) -> usize {
        cpu.index()
    }
    /// The last-level cache of `cpu`: CPUs that share it have the same number.
    fn cluster_of(cpu: CpuId) -> usize {
        Self::node_of(cpu).index()
    }
    /// Copies the mask of CPUs that are online now.
    fn online(mask: &mut CpuMask);
    /// Whether `cpu` is online now. Stable only with preemption off.
    fn is_online(cpu: CpuId) -> bool;

    // -- Preemption and interrupts. Guards in `sync` pair these.

    /// Disables switching to another task on this CPU; nests.
    fn preempt_disable();
    /// Ends one [`Cpu::preempt_disable`]; at the outermost a waiting task may run.
    fn preempt_enable();
    /// Disables interrupts on this CPU; returns the previous state.
    fn irq_save() -> IrqState;
    /// Restores an interrupt state; pending interrupts are delivered if that enables them.
    fn irq_restore(state: IrqState);
    /// One iteration of a wait loop: interrupts are delivered if they are on.
    fn relax();

    /// Orders the atomic operations of this CPU before it and after it, as
    /// [`core::sync::atomic::fence`] does. It costs no time: what it orders is charged.
    #[inline]
    fn fence(order: Ordering) {
        core::sync::atomic::fence(order);
    }

    // -- Other CPUs and tasks.

    /// Asks `cpu`, which is online, to drain its page cache: interrupts it, and the frame
    /// allocator's `drain_ipi` runs there with interrupts off. Returns `false` where CPUs cannot
    /// interrupt one another: nothing was requested. Pages in a CPU's cache then stay there until
    /// that CPU drains it itself, which it should before it is idle for long.
    fn request_drain(cpu: CpuId) -> bool;
    /// Wakes `task`: it returns from its current or its next
    /// [`Machine::park`](crate::Machine::park). The frame allocator wakes the tasks that its owner
    /// named (`set_reclaimer`), also under spin locks and in interrupts.
    fn unpark(task: TaskId);

    // -- Randomness for policies.

    /// The seed of this run; constant. 0 on machines whose runs have none.
    #[inline]
    fn seed() -> u64 {
        0
    }
    /// A random number for a policy: a pure function ([`random`]) of this run's seed, the CPU that
    /// this runs on, and `counter`, which the policy stores and advances. It costs no virtual time
    /// and waits for no turn, so a run has the same numbers under every schedule of the simulator.
    #[inline]
    fn random_u64(counter: u64) -> u64 {
        random(Self::seed(), Self::cpu(), counter)
    }

    // -- Costs, traces, injected faults. Without effect on real hardware.

    /// Whether the calling allocation is to fail, as a fault that the run injects.
    fn fail_alloc() -> bool;
    /// Charges an access to `line` of the memory manager's own data.
    fn touch(line: Line, access: Access);
    /// Charges the operation `op`, `count` times.
    fn work(op: Op, count: u32);
    /// Reports that `event` happened on this CPU now.
    fn trace(event: Trace);
    /// Appends `func` to the call path of this task or interrupt; returns the path before.
    fn span_enter(func: Func) -> PathId;
    /// Restores the call path that [`Cpu::span_enter`] returned.
    fn span_exit(path: PathId);
}

/// Extends the call path by a function for the rest of a scope.
#[must_use]
pub struct Span<A: Cpu> {
    before: PathId,
    arch: core::marker::PhantomData<*const A>,
}

impl<A: Cpu> Span<A> {
    /// Appends `func` to the call path until the value is dropped.
    #[inline]
    pub fn enter(func: Func) -> Self {
        Self { before: A::span_enter(func), arch: core::marker::PhantomData }
    }
}

impl<A: Cpu> Drop for Span<A> {
    #[inline]
    fn drop(&mut self) {
        A::span_exit(self.before);
    }
}
