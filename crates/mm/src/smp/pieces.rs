//! The queue phase of `requests`, in bounded pieces.
//!
//! Interrupts are off within a piece. Otherwise a piece would last as long as calls keep arriving,
//! for example where all CPUs call all others. Between two pieces the caller takes the pending
//! interrupts, may be preempted, and may be migrated.

use super::CallCounters;
use core::marker::PhantomData;
use mmscale_arch::sync::IrqGuard;
use mmscale_arch::{CpuId, IrqState, Machine};

/// Targets of a piece: at most 0.5 us for each on the profiles' machines, for two cache-line
/// transfers and one interrupt.
const CHUNK: usize = 16;

/// Keeps interrupts off until it is dropped. Preemption is on again by then, so that pending
/// interrupts are taken after the piece and are not part of it.
struct IrqsOff<A: Machine> {
    before: IrqState,
    arch: PhantomData<*const A>,
}

impl<A: Machine> IrqsOff<A> {
    fn new() -> Self {
        Self { before: A::irq_save(), arch: PhantomData }
    }
}

impl<A: Machine> Drop for IrqsOff<A> {
    fn drop(&mut self) {
        A::irq_restore(self.before);
    }
}

/// Calls `each` for every target, at most [`CHUNK`] of them in a row with interrupts off. `each`
/// does not wait. The longest piece counts as the longest queue phase: no other task runs on the
/// CPU meanwhile, unless the caller itself keeps preemption off.
pub(crate) fn in_pieces<A: Machine>(
    counters: &CallCounters<A>,
    mut targets: impl Iterator<Item = CpuId>,
    mut each: impl FnMut(&IrqGuard<A>, CpuId),
) {
    let mut more = true;
    while more {
        let irqs_off = IrqsOff::<A>::new();
        let since_ns = A::now_ns();
        let off = IrqGuard::<A>::new();
        let mut looked = 0;
        for target in targets.by_ref().take(CHUNK) {
            looked += 1;
            each(&off, target);
        }
        more = looked == CHUNK;
        counters.here().preempt_off_queue_phase_max_ns.note(A::now_ns() - since_ns);
        drop(off);
        drop(irqs_off);
    }
}
