//! What one CPU asks of another, by value.
//!
//! A call carries two words and no pointer: so no record outlives what it speaks of, whoever waits,
//! goes elsewhere or gives up.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicU64};
use mmscale_arch::CpuId;

/// Which function a call runs at its target. What its words mean is the business of whoever owns
/// the function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum CallFunc {
    /// Translations of one address space go (`flush_tlb_func`): [`crate::tlb`].
    FlushTlb,
    /// Whatever was put off for a batch goes: [`crate::tlb`].
    FlushTlbBatch,
    /// Translations of the kernel's own range go (`do_kernel_range_flush`): [`crate::tlb`].
    FlushTlbKernel,
    /// The target catches up with what it has loaded: [`crate::tlb`]. It is asked for by
    /// [`super::Smp::nudge`] only.
    CatchUp,
}

impl CallFunc {
    const ALL: [Self; 4] =
        [Self::FlushTlb, Self::FlushTlbBatch, Self::FlushTlbKernel, Self::CatchUp];
    /// The name, as the kernel writes it where it has one.
    pub const fn name(self) -> &'static str {
        match self {
            Self::FlushTlb => "flush_tlb_func",
            Self::FlushTlbBatch => "flush_tlb_func (batch)",
            Self::FlushTlbKernel => "do_kernel_range_flush",
            Self::CatchUp => "catch up",
        }
    }
}

/// A function and its two words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    /// What is run.
    pub func: CallFunc,
    /// What it is about.
    pub info: [u64; 2],
}

impl Call {
    /// A call without anything to say.
    pub const fn bare(func: CallFunc) -> Self {
        Self { func, info: [0; 2] }
    }
}

/// A call in shared memory. Whoever fills it publishes it by a later operation on an atomic of the
/// machine, and whoever reads it has seen that: so relaxed words do.
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

/// Whether, and how, a caller waits until its call has run everywhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// It does not: the call may run later than this returns.
    No,
    /// It spins: it holds spin locks, or may not sleep for another reason. Interrupts are on.
    Spin,
    /// It holds nothing, and may sleep.
    Sleep,
}

/// What becomes of the CPU that calls, where it is among the targets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Here {
    /// The call does not run on it.
    Skip,
    /// The call runs on it too, with interrupts off, while the others are on their way.
    Run,
}

/// Where a call went.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Reached {
    /// Other CPUs that it was queued to.
    pub others: u32,
    /// 1 if it ran on the calling CPU.
    pub here: u32,
}

/// The CPU that was to be called is not running, or none of them is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offline;

impl core::fmt::Display for Offline {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("calling a CPU that is not running: choose one that is online")
    }
}

impl core::error::Error for Offline {}

/// A call that nobody has answered in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unanswered {
    /// Who called.
    pub caller: CpuId,
    /// Who did not answer.
    pub target: CpuId,
    /// What.
    pub func: CallFunc,
    /// For how long, in ns.
    pub age_ns: u64,
}

impl core::fmt::Display for Unanswered {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { caller, target, func, age_ns } = self;
        let name = func.name();
        write!(f, "{target} has not answered the call `{name}` of {caller} for {age_ns} ns")
    }
}
