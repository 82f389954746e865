//! What one CPU's tracepoints say about flushes, within the time that counts.

use mmscale_mm::arch::{Probe, Trace, TraceGroup};
use std::any::Any;

/// One CPU's view of a run.
#[derive(Debug)]
pub(super) struct IpiProbe {
    window: (u64, u64),
    pub(super) flushes: u64,
    /// CPUs that flushes interrupted.
    pub(super) interrupted: u64,
}

impl IpiProbe {
    pub(super) fn new(window: (u64, u64)) -> Self {
        Self { window, flushes: 0, interrupted: 0 }
    }
}

impl Probe for IpiProbe {
    fn hears(&self, group: TraceGroup) -> bool {
        group == TraceGroup::Seldom
    }
    fn event(&mut self, now_ns: u64, event: &Trace) {
        if !(self.window.0..self.window.1).contains(&now_ns) {
            return;
        }
        if let Trace::TlbFlush { interrupted, .. } = *event {
            self.flushes += 1;
            self.interrupted += u64::from(interrupted);
        }
    }
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flushes_count_in_their_time_only() {
        let mut probe = IpiProbe::new((100, 200));
        let flush = |interrupted| Trace::TlbFlush { pages: 1, interrupted };
        for (at_ns, interrupted) in [(99, 1), (100, 3), (199, 4), (200, 50)] {
            probe.event(at_ns, &flush(interrupted));
        }
        assert_eq!((probe.flushes, probe.interrupted), (2, 7));
    }
}
