//! What one CPU's tracepoints say about calls, within the time that counts.

use mmscale_arch::{CallEvent, Probe, Trace, TraceGroup};
use std::any::Any;

/// One CPU's view of a run.
#[derive(Debug)]
pub(super) struct IpiProbe {
    window: (u64, u64),
    /// How long calls from this CPU waited for their answers.
    pub(super) waits_ns: Vec<u64>,
}

impl IpiProbe {
    pub(super) fn new(window: (u64, u64)) -> Self {
        Self { window, waits_ns: Vec::new() }
    }
}

impl Probe for IpiProbe {
    fn hears(&self, group: TraceGroup) -> bool {
        group == TraceGroup::Call
    }
    fn event(&mut self, now_ns: u64, event: &Trace) {
        if !(self.window.0..self.window.1).contains(&now_ns) {
            return;
        }
        if let Trace::Call(CallEvent::Wait { ns, .. }) = *event {
            self.waits_ns.push(ns);
        }
    }
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmscale_arch::CpuId;

    #[test]
    fn waits_count_in_their_time_only() {
        let mut probe = IpiProbe::new((100, 200));
        let wait = |ns| Trace::Call(CallEvent::Wait { target: CpuId::new(3), ns });
        for (at_ns, ns) in [(99, 1), (100, 3), (199, 4), (200, 50)] {
            probe.event(at_ns, &wait(ns));
        }
        assert_eq!(probe.waits_ns, [3, 4]);
    }
}
