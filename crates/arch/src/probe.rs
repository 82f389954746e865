//! Receivers of tracepoints.
//!
//! The reader sums over CPUs, so probes share no data.

use super::{Trace, TraceGroup};
use alloc::boxed::Box;
use core::any::Any;

/// Receives the tracepoints of one CPU. Machines call it on that CPU only, in the order of that
/// CPU's own time.
pub trait Probe: Any + Send {
    /// Whether the probe needs the events of `group`. A machine asks once, and may omit others.
    fn hears(&self, group: TraceGroup) -> bool {
        let _ = group;
        true
    }
    /// `event` happened at `now_ns` on this probe's CPU.
    fn event(&mut self, now_ns: u64, event: &Trace);
    /// Converts the probe to `Any` at the end of a run, for a downcast to its own type.
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

/// The probe that ignores all events.
impl Probe for () {
    fn event(&mut self, _: u64, _: &Trace) {}
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
