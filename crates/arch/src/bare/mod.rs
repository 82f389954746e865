//! A machine for the frame allocator alone.
//!
//! A kernel, a hypervisor or a program without an operating system that wants the frame allocator
//! (`mmscale_frames`) and nothing else implements [`Bare`]: which CPU this is, how many there are,
//! and how preemption and interrupts go off and on. [`BareMachine`] makes an [`Arch`] of it, with
//! the processor's atomics and a spin lock. It names no costs, traces nothing, and has neither
//! tasks nor a clock nor page tables: what asks for those panics, and the frame allocator does not.
//!
//! The first page of `mmscale_frames` has an example.

mod atomic;
mod lock;
mod machine;

pub use lock::BareSpin;
pub use machine::BareMachine;

use super::{CpuId, CpuMask, Ipi, IrqState, NodeId};

/// What the frame allocator asks of whoever embeds it, as static functions on a tag type.
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
    /// Copies the mask of CPUs that are online now. Whoever changes it tells the frame allocator
    /// (`cpu_dead`, `cpu_online`).
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
    /// Whether CPUs can interrupt one another. Where they cannot, what a CPU keeps to itself stays
    /// there until it gives it up (`drain_pages`): it should before it goes idle for long.
    #[inline]
    fn has_ipi() -> bool {
        false
    }
    /// Interrupts another CPU, whose `drain_ipi` of the frame allocator is to be called then, with
    /// interrupts off.
    ///
    /// # Panics
    /// Where it is not there.
    fn ipi_send(_cpu: CpuId, _reason: Ipi) {
        absent("interrupts between CPUs")
    }
}

/// The frame allocator never asks for this.
#[cold]
#[track_caller]
fn absent(what: &str) -> ! {
    panic!("a bare machine has no {what}: it serves the frame allocator alone")
}
