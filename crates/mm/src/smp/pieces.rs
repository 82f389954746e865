//! The queue phase of `requests`, in pieces that are bounded.
//!
//! Interrupts are off in a piece: else it would last for as long as calls keep arriving, which they
//! do where all CPUs call all others. Between two pieces the caller takes what has arrived, may be
//! preempted, and may go to another CPU.

use super::stats::{Max, Tally};
use core::marker::PhantomData;
use mmscale_arch::sync::IrqGuard;
use mmscale_arch::{CpuId, IrqState, Machine};

/// Targets of a piece: at most 0.5 us for each on the profiles' machines, two transfers of a line
/// and an interrupt sent.
const CHUNK: usize = 16;

/// Interrupts are off until this is dropped. Preemption is on by then again, so that what has
/// arrived meanwhile is taken as an interrupt of its own, and is no part of the piece.
struct Quiet<A: Machine> {
    before: IrqState,
    arch: PhantomData<*const A>,
}

impl<A: Machine> Quiet<A> {
    fn new() -> Self {
        Self { before: A::irq_save(), arch: PhantomData }
    }
}

impl<A: Machine> Drop for Quiet<A> {
    fn drop(&mut self) {
        A::irq_restore(self.before);
    }
}

/// Does `each` with every target, at most [`CHUNK`] of them in a row with interrupts off. `each`
/// waits for nobody. The longest piece is noted as the longest queue phase: for as long nothing
/// else runs on the CPU, unless the caller keeps preemption off himself.
pub(crate) fn in_pieces<A: Machine>(
    tally: &Tally,
    mut targets: impl Iterator<Item = CpuId>,
    mut each: impl FnMut(&IrqGuard<A>, CpuId),
) {
    let mut more = true;
    while more {
        let quiet = Quiet::<A>::new();
        let since_ns = A::now_ns();
        let off = IrqGuard::<A>::new();
        let mut looked = 0;
        for target in targets.by_ref().take(CHUNK) {
            looked += 1;
            each(&off, target);
        }
        more = looked == CHUNK;
        tally.max::<A>(Max::QueuePhase, A::now_ns() - since_ns);
        drop(off);
        drop(quiet);
    }
}
