//! Waits for other CPUs, and what happens to those that take too long.

use super::SmpConfig;
use super::call::{CallFunc, Unanswered};
use core::marker::PhantomData;
use mmscale_arch::{CallEvent, CpuId, Machine, Trace};

/// Turns of a wait loop between two looks at the clock.
const TURNS: u32 = 16;

/// One wait.
pub(crate) struct Watch<A: Machine> {
    since_ns: u64,
    timeout_ns: u64,
    turns: u32,
    caller: CpuId,
    func: CallFunc,
    arch: PhantomData<fn() -> A>,
}

impl<A: Machine> Watch<A> {
    /// `caller` begins to wait for answers to `func`.
    pub(crate) fn begin(config: &SmpConfig, caller: CpuId, func: CallFunc) -> Self {
        let (since_ns, timeout_ns) = (A::now_ns(), config.timeout_ns);
        Self { since_ns, timeout_ns, turns: 0, caller, func, arch: PhantomData }
    }
    /// How long it has waited, in ns.
    pub(crate) fn age_ns(&self) -> u64 {
        A::now_ns().saturating_sub(self.since_ns)
    }
    /// One more turn of the loop. `target` is who has not answered, as the caller has just seen: it
    /// may be preempted in here, and must look again before it complains.
    #[inline]
    pub(crate) fn turn(&mut self, target: impl FnOnce() -> CpuId) {
        self.turns = self.turns.wrapping_add(1);
        if self.turns.is_multiple_of(TURNS) {
            self.look(target);
        }
        A::relax();
    }
    /// Panics, which names the CPU and the call, if it has waited too long: a machine one of whose
    /// CPUs answers no interrupt is lost, and would hang without a word.
    pub(crate) fn look(&self, target: impl FnOnce() -> CpuId) {
        let age_ns = self.age_ns();
        if age_ns >= self.timeout_ns {
            let (caller, func, target) = (self.caller, self.func, target());
            A::trace(Trace::Call(CallEvent::Timeout { target, ns: age_ns }));
            panic!("{}", Unanswered { caller, target, func, age_ns });
        }
    }
}
