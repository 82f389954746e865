//! What the frame allocator needs, from six functions of an embedder.
//!
//! A kernel, a hypervisor or a program without an operating system that wants the frame allocator
//! (`mmscale_frames`) and nothing else implements [`Bare`]: which CPU this is, how many there are,
//! and how preemption and interrupts go off and on. [`BareCpu`] makes a [`Cpu`](crate::Cpu) of it,
//! with the processor's atomics and a spin lock. It names no costs and traces nothing. It is no
//! [`Machine`](crate::Machine): it has neither tasks nor a clock nor page tables.
//!
//! The first page of `mmscale_frames` has an example.

mod atomic;
mod cpu;
mod lock;

pub use cpu::BareCpu;
pub use lock::BareSpin;

use super::{CpuId, CpuMask, IrqState, NodeId, TaskId};

/// What the frame allocator asks of its embedder, as static functions on a tag type.
///
/// All are called on every way to a page, so those that are a few instructions long should be
/// `#[inline]`.
///
/// # Safety
/// Between [`Bare::preempt_disable`] and the matching [`Bare::preempt_enable`], [`Bare::cpu`] says
/// the same to the caller, and the same to no other code that runs at the time, interrupts on that
/// CPU excepted; it is below [`Bare::cpus`], which never changes.
pub unsafe trait Bare: Sized + 'static {
    /// The CPU this runs on. Stable between [`Bare::preempt_disable`] and its end; asked outside
    /// too, for the nearest node, where an old answer does no harm.
    fn cpu() -> CpuId;
    /// How many CPUs may ever exist; their numbers are below it. Always the same.
    fn cpus() -> usize;
    /// Forbids that this CPU goes on with anything else than interrupts; nests. Nothing where no
    /// code that allocates can be preempted.
    fn preempt_disable();
    /// Ends one [`Bare::preempt_disable`].
    fn preempt_enable();
    /// Turns interrupts off on this CPU and says what they were. Nothing where no interrupt
    /// handler allocates or frees.
    fn irq_save() -> IrqState;
    /// Puts the interrupt state back.
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
    /// Asks another CPU for the pages that it keeps to itself: interrupts it, and `drain_ipi` of
    /// the frame allocator is to be called there with interrupts off. `false`, which is the
    /// default: CPUs cannot interrupt one another, and nothing was asked. What a CPU keeps then
    /// stays there until it drains by itself (`drain_pages`), which it should before it is idle
    /// for long.
    fn request_drain(_cpu: CpuId) -> bool {
        false
    }
    /// Wakes a task that the embedder named (`set_reclaimer`). Nothing where it names none.
    fn unpark(_task: TaskId) {}
}
