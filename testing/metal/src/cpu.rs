//! The processors as the frame allocator sees them: `Cpu`.

use crate::{per_cpu, tasks};
use core::sync::atomic::{AtomicI8, AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering};
use mmscale_arch::bare::BareSpin;
use mmscale_arch::{
    Access, Cpu, CpuId, CpuMask, Func, Ipi, IrqState, Line, NodeId, Op, PathId, TaskId, Trace,
};
use x86_64::instructions::interrupts;

/// The processors of this computer, as a tag type.
pub(crate) struct Metal;

// SAFETY: GS has the address of the data of the processor that runs the code, and no other has its
// number. A task never moves to another processor.
unsafe impl Cpu for Metal {
    const TRACES: bool = false;
    type Spin = BareSpin<Self>;
    type AtomicU8 = AtomicU8;
    type AtomicU32 = AtomicU32;
    type AtomicU64 = AtomicU64;
    type AtomicI64 = AtomicI64;
    type OwnedI8 = AtomicI8;
    type OwnedI64 = AtomicI64;

    #[inline]
    fn cpu() -> CpuId {
        per_cpu::this()
    }
    #[inline]
    fn cpus_possible() -> usize {
        per_cpu::count()
    }
    fn node_of(_: CpuId) -> NodeId {
        NodeId::new(0)
    }
    fn online(mask: &mut CpuMask) {
        *mask = CpuMask::first(Self::cpus_possible());
    }
    fn is_online(_: CpuId) -> bool {
        true
    }

    #[inline]
    fn preempt_disable() {
        per_cpu::own().pinned.fetch_add(1, Ordering::Relaxed);
    }
    #[inline]
    fn preempt_enable() {
        per_cpu::own().pinned.fetch_sub(1, Ordering::Relaxed);
    }
    #[inline]
    fn irq_save() -> IrqState {
        let were_on = interrupts::are_enabled();
        interrupts::disable();
        IrqState(were_on)
    }
    #[inline]
    fn irq_restore(state: IrqState) {
        if state.0 {
            interrupts::enable();
        }
    }
    #[inline]
    fn relax() {
        core::hint::spin_loop();
    }
    fn request_drain(cpu: CpuId) -> bool {
        per_cpu::send(cpu, Ipi::DrainPages);
        true
    }
    fn unpark(task: TaskId) {
        tasks::unpark(task);
    }

    // Without effect here.
    #[inline]
    fn fail_alloc() -> bool {
        false
    }
    #[inline]
    fn touch(_: Line, _: Access) {}
    #[inline]
    fn work(_: Op, _: u32) {}
    #[inline]
    fn trace(_: Trace) {}
    #[inline]
    fn span_enter(_: Func) -> PathId {
        PathId(0)
    }
    #[inline]
    fn span_exit(_: PathId) {}
}
