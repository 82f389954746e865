//! Typed tracepoints.
//!
//! A tracepoint is a fact about one CPU at one time. A machine passes it to a [`Probe`] of that
//! CPU. The reader sums over CPUs, so probes share no data.

use super::event::{
    CallEvent, CounterEvent, ExitEvent, IdleEvent, LruEvent, OomEvent, PageEvent, PcpEvent,
    TickEvent, TlbEvent,
};
use alloc::boxed::Box;
use core::any::Any;

/// Declares the subsystems that have tracepoints, each with the enum of its events.
macro_rules! traces {
    ($($(#[$doc:meta])* $group:ident($event:ident),)*) => {
        /// A fact about one CPU, emitted where it happens: an event of a subsystem.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Trace {
            $($(#[$doc])* $group($event),)*
        }

        /// Subsystems; a probe chooses whose events it receives.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub enum TraceGroup {
            $($(#[$doc])* $group,)*
        }

        impl TraceGroup {
            /// All subsystems, in the order of their discriminants.
            pub const ALL: &[Self] = &[$(Self::$group),*];
        }

        impl Trace {
            /// The subsystem of the event.
            #[inline]
            pub const fn group(&self) -> TraceGroup {
                match self {
                    $(Self::$group(_) => TraceGroup::$group,)*
                }
            }
        }
    };
}

traces! {
    /// Frames allocated, cleared and freed.
    Page(PageEvent),
    /// Page counts of page caches, and transfers between them and their zones.
    Pcp(PcpEvent),
    /// Per-CPU counters.
    Counter(CounterEvent),
    /// The upkeep tick.
    Tick(TickEvent),
    /// A CPU becomes idle or busy.
    Idle(IdleEvent),
    /// Translations.
    Tlb(TlbEvent),
    /// Calls to other CPUs.
    Call(CallEvent),
    /// The end of an address space, and emptying of page tables.
    Exit(ExitEvent),
    /// The out-of-memory killer and its reaper.
    Oom(OomEvent),
    /// LRU batches.
    Lru(LruEvent),
}

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
