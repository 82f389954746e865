//! The meter of one CPU: waits for cross-CPU calls.

use super::{Ipi, Plan};
use mmscale_arch::{CallEvent, CpuId, Trace, TraceGroup};
use mmscale_harness::{Env, Meter};
use std::ops::Range;

/// The events of one CPU about cross-CPU calls, within the time that counts.
#[derive(Debug)]
pub struct CallWaits {
    window_ns: Range<u64>,
    /// Waits of this CPU for completion of its calls.
    pub(super) waits_ns: Vec<u64>,
}

impl CallWaits {
    fn within(window_ns: Range<u64>) -> Self {
        Self { window_ns, waits_ns: Vec::new() }
    }
}

impl Meter<Ipi> for CallWaits {
    fn of_cpus(_: &Env<Ipi>, plan: &Plan) -> impl FnMut(CpuId) -> Self {
        let window_ns = plan.window_ns.clone();
        move |_| Self::within(window_ns.clone())
    }
    fn hears(&self, group: TraceGroup) -> bool {
        group == TraceGroup::Call
    }
    fn event(&mut self, now_ns: u64, event: &Trace) {
        match *event {
            Trace::Call(CallEvent::Wait { ns, .. }) if self.window_ns.contains(&now_ns) => {
                self.waits_ns.push(ns)
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_count_in_their_time_only() {
        let mut meter = CallWaits::within(100..200);
        let wait = |ns| Trace::Call(CallEvent::Wait { target: CpuId::new(3), ns });
        for (at_ns, ns) in [(99, 1), (100, 3), (199, 4), (200, 50)] {
            meter.event(at_ns, &wait(ns));
        }
        assert_eq!(meter.waits_ns, [3, 4]);
    }
}
