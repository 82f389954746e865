//! The part of the lower waist that the frame allocator, spin locks and guards need.

use crate::{
    Access, Atomic, CpuId, CpuMask, Func, Line, NodeId, Op, OwnedCounter, RawSpin, TaskId, Trace,
    random,
};

/// The interrupt state that [`Cpu::irq_save`] found, to be given back to [`Cpu::irq_restore`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IrqState(pub bool);

/// The call path that [`Cpu::span_enter`] left, to be given back to [`Cpu::span_exit`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathId(pub u32);

/// A CPU, as code that runs on it asks: which one it is, which others there are, preemption and
/// interrupts, atomics and spin locks, and names for what its work costs and where it happens.
///
/// All functions are called on a CPU of the machine, in one of the contexts of the crate's table.
///
/// # Safety
/// Between [`Cpu::preempt_disable`] and the matching [`Cpu::preempt_enable`], [`Cpu::cpu`] says
/// the same to the caller, and the same to no other code that runs at the time, interrupts on that
/// CPU excepted; it is below [`Cpu::cpus_possible`], which never changes. Data for each CPU
/// ([`PerCpu`](crate::sync::PerCpu)) rests on it.
pub unsafe trait Cpu: Sized + 'static {
    /// Whether [`Cpu::trace`] has a listener. Where it has none, work that only events need is left
    /// out.
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
    /// Ends one [`Cpu::preempt_disable`]; at the outermost a waiting task may run.
    fn preempt_enable();
    /// Turns interrupts off on this CPU and says what they were.
    fn irq_save() -> IrqState;
    /// Puts the interrupt state back; pending interrupts are delivered if that turns them on.
    fn irq_restore(state: IrqState);
    /// One turn of a wait loop: lets interrupts in if they are on.
    fn relax();

    // -- Other CPUs and tasks.

    /// Asks `cpu`, which is online, for the pages that it keeps to itself: interrupts it, and the
    /// frame allocator's `drain_ipi` is to run there with interrupts off. `false`: CPUs cannot
    /// interrupt one another here, and nothing was asked. What a CPU keeps then stays there until
    /// it drains by itself, which it should before it is idle for long.
    fn request_drain(cpu: CpuId) -> bool;
    /// Wakes `task`: it returns from its current or its next
    /// [`Machine::park`](crate::Machine::park). The frame allocator wakes the tasks that its owner
    /// named (`set_reclaimer`), also under spin locks and in interrupts.
    fn unpark(task: TaskId);

    // -- Randomness for policies.

    /// The seed of this run: the same all through it. 0 on machines whose runs have none.
    #[inline]
    fn seed() -> u64 {
        0
    }
    /// A random number for a policy: a pure function ([`random`]) of this run's seed, the CPU that
    /// this runs on, and `counter`, which the policy keeps and advances. It costs no time and takes
    /// no turn, so the same run has the same numbers under every schedule of the simulator.
    #[inline]
    fn random_u64(counter: u64) -> u64 {
        random(Self::seed(), Self::cpu(), counter)
    }

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
    /// The call path goes back to what [`Cpu::span_enter`] returned.
    fn span_exit(path: PathId);
}

/// Enters a span for the rest of a scope.
#[must_use]
pub struct Span<A: Cpu> {
    before: PathId,
    arch: core::marker::PhantomData<*const A>,
}

impl<A: Cpu> Span<A> {
    /// The call path goes into `func` until the value is dropped.
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
