//! Everything that the frame allocator needs, from six functions of an embedder.
//!
//! A kernel, a hypervisor or a program without an operating system that wants the frame allocator
//! (`mmscale_frames`) and nothing else implements [`Bare`]: which CPU this is, how many there are,
//! and how to disable and enable preemption and interrupts. [`BareCpu`] makes a
//! [`Cpu`](crate::Cpu) of it, with the processor's atomics and a spin lock. It charges no costs and
//! traces nothing. It is not a [`Machine`](crate::Machine): it has no tasks, clock or page tables.
//!
//! The first page of `mmscale_frames` has an example.

mod atomic;
mod cpu;
mod lock;

pub use cpu::BareCpu;
pub use lock::BareSpin;

use super::{CpuId, CpuMask, IrqState, NodeId, TaskId};

/// Functions that the frame allocator asks of its embedder, as static functions on a tag type.
///
/// Every allocation and free calls them, so those that are a few instructions long should be
/// `#[inline]`.
///
/// # Safety
/// Between [`Bare::preempt_disable`] and the matching [`Bare::preempt_enable`], [`Bare::cpu`]
/// always returns the same CPU to the caller. It returns that CPU to no other code that runs at the
/// time, except interrupts on it. The number is below [`Bare::cpus`], which never changes.
///
/// In other words: two contexts must not have one CPU number at the same time, unless one has
/// interrupted the other and runs to its end before that continues. Two threads that both pass for
/// CPU 0 would be given the same frames. Checked builds (`debug_assertions`) detect it where one of
/// them finds the other in the CPU's cache, and panic.
pub unsafe trait Bare: Sized + 'static {
    /// Whether another CPU may drain the page cache of a CPU that does not use it, for the policy
    /// `blockmap`. Then memory in the caches of idle CPUs is never out of reach, also where CPUs
    /// cannot interrupt one another ([`Bare::request_drain`]). Each use of the cache costs an
    /// atomic exchange in place of a load and a store.
    const SHARED_CACHES: bool = false;

    /// The CPU this runs on. Stable between [`Bare::preempt_disable`] and
    /// [`Bare::preempt_enable`]. It is also called elsewhere, to choose the nearest node, where a
    /// stale answer does no harm.
    fn cpu() -> CpuId;
    /// The number of CPUs that may ever exist; their numbers are below it. Constant.
    fn cpus() -> usize;
    /// Disables preemption: until it is enabled this CPU runs only the caller and interrupts.
    /// Nests. May do nothing where code that allocates cannot be preempted.
    fn preempt_disable();
    /// Ends one [`Bare::preempt_disable`].
    fn preempt_enable();
    /// Disables interrupts on this CPU; returns the previous state. May do nothing where no
    /// interrupt handler allocates or frees.
    fn irq_save() -> IrqState;
    /// Restores an interrupt state.
    fn irq_restore(state: IrqState);

    /// The memory node nearest to `cpu`.
    #[inline]
    fn node_of(_cpu: CpuId) -> NodeId {
        NodeId::new(0)
    }
    /// Copies the mask of CPUs that are online now. The code that changes it calls `cpu_dead` and
    /// `cpu_online` of the frame allocator.
    fn online(mask: &mut CpuMask) {
        *mask = CpuMask::first(Self::cpus());
    }
    /// Whether `cpu` is online now.
    #[inline]
    fn is_online(_cpu: CpuId) -> bool {
        true
    }
    /// One turn of a wait for a lock that another CPU has.
    #[inline]
    fn relax() {
        core::hint::spin_loop();
    }
    /// Asks another CPU to drain its page cache: interrupts it, and its handler calls `drain_ipi`
    /// of the frame allocator with interrupts off. Returns `false`, the default, where CPUs cannot
    /// interrupt one another: nothing was requested. Pages in a CPU's cache then stay there until
    /// that CPU drains it itself (`drain_pages`), which it should before it is idle for long: an
    /// allocation of another CPU may fail although they are free. [`Bare::SHARED_CACHES`] and
    /// `AllocConfig::cached_pages` are ways out.
    fn request_drain(_cpu: CpuId) -> bool {
        false
    }
    /// Wakes a task that the embedder named (`set_reclaimer`). May do nothing where it names none.
    fn unpark(_task: TaskId) {}
}
