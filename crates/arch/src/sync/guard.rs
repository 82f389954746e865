//! Guards over preemption and interrupts.

use crate::{Cpu, CpuId, IrqState};
use core::marker::PhantomData;

/// Proof that the calling task cannot migrate to another CPU. Every guard of this module is one.
///
/// # Safety
/// Preemption is off for the lifetime of the implementor, and it stays on its CPU.
pub unsafe trait NoPreempt<A: Cpu> {
    /// The CPU to which the holder is pinned.
    #[inline]
    fn cpu(&self) -> CpuId {
        A::cpu()
    }
}

/// Preemption is off until this is dropped.
#[must_use]
pub struct PreemptGuard<A: Cpu> {
    arch: PhantomData<*const A>,
}

impl<A: Cpu> PreemptGuard<A> {
    /// Disables preemption; nests.
    #[inline]
    #[expect(clippy::new_without_default, reason = "a guard is never a default value")]
    pub fn new() -> Self {
        A::preempt_disable();
        Self { arch: PhantomData }
    }
}

impl<A: Cpu> Drop for PreemptGuard<A> {
    #[inline]
    fn drop(&mut self) {
        A::preempt_enable();
    }
}

// SAFETY: preemption is off from `new` to `drop`, and the guard is not `Send`.
unsafe impl<A: Cpu> NoPreempt<A> for PreemptGuard<A> {}

/// Interrupts and preemption are off until this is dropped.
#[must_use]
pub struct IrqGuard<A: Cpu> {
    before: IrqState,
    arch: PhantomData<*const A>,
}

impl<A: Cpu> IrqGuard<A> {
    /// Disables interrupts and preemption; nests.
    #[inline]
    #[expect(clippy::new_without_default, reason = "a guard is never a default value")]
    pub fn new() -> Self {
        A::preempt_disable();
        Self { before: A::irq_save(), arch: PhantomData }
    }
}

impl<A: Cpu> Drop for IrqGuard<A> {
    #[inline]
    fn drop(&mut self) {
        A::irq_restore(self.before);
        A::preempt_enable();
    }
}

// SAFETY: preemption is off from `new` to `drop`, and the guard is not `Send`.
unsafe impl<A: Cpu> NoPreempt<A> for IrqGuard<A> {}
