//! Guards over preemption and interrupts.

use crate::{Arch, CpuId, IrqState};
use core::marker::PhantomData;

/// Proof that the calling task cannot leave its CPU. Given by every guard of this module.
///
/// # Safety
/// The implementor keeps preemption off for as long as it lives, and does not leave its CPU.
pub unsafe trait NoPreempt<A: Arch> {
    /// The CPU that the holder stays on.
    #[inline]
    fn cpu(&self) -> CpuId {
        A::cpu()
    }
}

/// Preemption is off until this is dropped.
#[must_use]
pub struct PreemptGuard<A: Arch> {
    arch: PhantomData<*const A>,
}

impl<A: Arch> PreemptGuard<A> {
    /// Turns preemption off; nests.
    #[inline]
    #[expect(clippy::new_without_default, reason = "a guard is never a default value")]
    pub fn new() -> Self {
        A::preempt_disable();
        Self { arch: PhantomData }
    }
}

impl<A: Arch> Drop for PreemptGuard<A> {
    #[inline]
    fn drop(&mut self) {
        A::preempt_enable();
    }
}

// SAFETY: preemption is off from `new` to `drop`, and the guard is not `Send`.
unsafe impl<A: Arch> NoPreempt<A> for PreemptGuard<A> {}

/// Interrupts and preemption are off until this is dropped.
#[must_use]
pub struct IrqGuard<A: Arch> {
    before: IrqState,
    arch: PhantomData<*const A>,
}

impl<A: Arch> IrqGuard<A> {
    /// Turns interrupts and preemption off; nests.
    #[inline]
    #[expect(clippy::new_without_default, reason = "a guard is never a default value")]
    pub fn new() -> Self {
        A::preempt_disable();
        Self { before: A::irq_save(), arch: PhantomData }
    }
}

impl<A: Arch> Drop for IrqGuard<A> {
    #[inline]
    fn drop(&mut self) {
        A::irq_restore(self.before);
        A::preempt_enable();
    }
}

// SAFETY: preemption is off from `new` to `drop`, and the guard is not `Send`.
unsafe impl<A: Arch> NoPreempt<A> for IrqGuard<A> {}
