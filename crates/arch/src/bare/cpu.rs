//! The [`Cpu`] built on a [`Bare`].

use super::{Bare, BareSpin};
use crate::{Access, Cpu, CpuId, CpuMask, Func, IrqState, Line, NodeId, Op, PathId, TaskId, Trace};
use core::marker::PhantomData;
use core::sync::atomic::{AtomicI8, AtomicI64, AtomicU8, AtomicU32, AtomicU64};

/// A [`Cpu`] with the functions of a [`Bare`], as a tag type.
pub struct BareCpu<T>(PhantomData<fn() -> T>);

// SAFETY: `Bare` guarantees the same rules as `Cpu`.
unsafe impl<T: Bare> Cpu for BareCpu<T> {
    const TRACES: bool = false;
    const SHARED_CACHES: bool = T::SHARED_CACHES;
    type Spin = BareSpin<Self>;
    type AtomicU8 = AtomicU8;
    type AtomicU32 = AtomicU32;
    type AtomicU64 = AtomicU64;
    type AtomicI64 = AtomicI64;
    type OwnedI8 = AtomicI8;
    type OwnedI64 = AtomicI64;

    // -- Forwarded to the embedder.

    #[inline]
    fn cpu() -> CpuId {
        T::cpu()
    }
    #[inline]
    fn cpus_possible() -> usize {
        T::cpus()
    }
    #[inline]
    fn node_of(cpu: CpuId) -> NodeId {
        T::node_of(cpu)
    }
    fn online(mask: &mut CpuMask) {
        T::online(mask);
    }
    #[inline]
    fn is_online(cpu: CpuId) -> bool {
        T::is_online(cpu)
    }
    #[inline]
    fn preempt_disable() {
        T::preempt_disable();
    }
    #[inline]
    fn preempt_enable() {
        T::preempt_enable();
    }
    #[inline]
    fn irq_save() -> IrqState {
        T::irq_save()
    }
    #[inline]
    fn irq_restore(state: IrqState) {
        T::irq_restore(state);
    }
    #[inline]
    fn relax() {
        T::relax();
    }
    fn request_drain(cpu: CpuId) -> bool {
        T::request_drain(cpu)
    }
    fn unpark(task: TaskId) {
        T::unpark(task);
    }

    // -- Without effect here.

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
