//! A call: a function that one CPU asks another to run, passed by value.
//!
//! A call has two words and no pointer, so a record never refers to memory that its caller may have
//! freed.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicU64};
use mmscale_arch::CpuId;

/// The function that a call runs at its target. The module that owns the function defines the
/// meaning of the call's words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum CallFunc {
    /// Flushes translations of one address space (`flush_tlb_func`): [`crate::tlb`].
    FlushTlb,
    /// Flushes all deferred invalidations of a batch: [`crate::tlb`].
    FlushTlbBatch,
    /// Flushes translations of the kernel's range (`do_kernel_range_flush`): [`crate::tlb`].
    FlushTlbKernel,
    /// Flushes the loaded address space up to its current generation: [`crate::tlb`]. Requested by
    /// [`super::Smp::send_flush_ipi`] only.
    FlushToCurrentGen,
}

impl CallFunc {
    const ALL: [Self; 4] =
        [Self::FlushTlb, Self::FlushTlbBatch, Self::FlushTlbKernel, Self::FlushToCurrentGen];
    /// Returns the name, as the kernel writes it where it has one.
    pub const fn name(self) -> &'static str {
        match self {
            Self::FlushTlb => "flush_tlb_func",
            Self::FlushTlbBatch => "flush_tlb_func (batch)",
            Self::FlushTlbKernel => "do_kernel_range_flush",
            Self::FlushToCurrentGen => "catch up",
        }
    }
}

/// A function and its two words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    /// The function.
    pub func: CallFunc,
    /// Its arguments.
    pub info: [u64; 2],
}

impl Call {
    /// Creates a call without arguments.
    pub const fn bare(func: CallFunc) -> Self {
        Self { func, info: [0; 2] }
    }
}

/// A call in shared memory. Relaxed is enough: the writer fills it before a releasing operation on
/// the queue or the CPU's word that names it, and the reader reads it after an acquiring one.
#[derive(Default)]
pub(super) struct CallWords {
    func: AtomicU32,
    info: [AtomicU64; 2],
}

impl CallWords {
    pub(super) fn put(&self, call: Call) {
        self.func.store(call.func as u32, Relaxed);
        self.info.iter().zip(call.info).for_each(|(word, info)| word.store(info, Relaxed));
    }
    pub(super) fn get(&self) -> Call {
        let info = [self.info[0].load(Relaxed), self.info[1].load(Relaxed)];
        Call { func: CallFunc::ALL[self.func.load(Relaxed) as usize], info }
    }
}

/// Whether and how a caller waits until its call has run on all targets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Does not wait: the call may run after this returns.
    No,
    /// Spins, because the caller holds spin locks or may not sleep for another reason. Interrupts
    /// are on.
    Spin,
    /// May sleep; the caller holds no spin lock.
    Sleep,
}

/// Whether a call runs on the calling CPU, if that is among the targets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Here {
    /// The call does not run on it.
    Skip,
    /// The call runs on it too, with interrupts off, after it was queued to the other targets.
    Run,
}

/// The CPUs on which a call runs.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Reached {
    /// Number of other CPUs that it was queued to.
    pub others: u32,
    /// 1 if it ran on the calling CPU.
    pub here: u32,
}

/// A call that was not answered within the timeout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unanswered {
    /// The CPU that called.
    pub caller: CpuId,
    /// The CPU that did not answer.
    pub target: CpuId,
    /// The function.
    pub func: CallFunc,
    /// Time since the call, in ns.
    pub age_ns: u64,
}

impl core::fmt::Display for Unanswered {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { caller, target, func, age_ns } = self;
        let name = func.name();
        write!(f, "{target} has not answered the call `{name}` of {caller} for {age_ns} ns")
    }
}
