//! Timeouts of waits for other CPUs.

use super::SmpConfig;
use super::call::{CallFunc, Unanswered};
use core::marker::PhantomData;
use mmscale_arch::{CallEvent, CpuId, Machine, Trace};

/// Iterations of a wait loop between two checks of the clock.
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
    /// Starts a wait of `caller` for answers to `func`.
    pub(crate) fn begin(config: &SmpConfig, caller: CpuId, func: CallFunc) -> Self {
        let (since_ns, timeout_ns) = (A::now_ns(), config.timeout_ns);
        Self { since_ns, timeout_ns, turns: 0, caller, func, arch: PhantomData }
    }
    /// Returns the time since the start, in ns.
    pub(crate) fn age_ns(&self) -> u64 {
        A::now_ns().saturating_sub(self.since_ns)
    }
    /// Ends one iteration of a wait loop. `target` returns the CPU that has not answered; it is
    /// evaluated again on a timeout, because the caller may be preempted in here.
    #[inline]
    pub(crate) fn turn(&mut self, target: impl FnOnce() -> CpuId) {
        self.turns = self.turns.wrapping_add(1);
        if self.turns.is_multiple_of(TURNS) {
            self.look(target);
        }
        A::relax();
    }
    /// Panics with the CPU and the call if the wait exceeds the timeout. A CPU that answers no
    /// interrupt would otherwise hang the machine without a message.
    pub(crate) fn look(&self, target: impl FnOnce() -> CpuId) {
        let age_ns = self.age_ns();
        if age_ns >= self.timeout_ns {
            let (caller, func, target) = (self.caller, self.func, target());
            A::trace(Trace::Call(CallEvent::Timeout { target, ns: age_ns }));
            panic!("{}", Unanswered { caller, target, func, age_ns });
        }
    }
}
