//! Typed tracepoints.
//!
//! A tracepoint is a fact about one CPU at one time. A machine hands it to a [`Probe`] of that CPU;
//! adding facts up over CPUs is the reader's work, so that no probe shares anything.

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

        /// Subsystems whose events a probe hears or not.
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
            /// The subsystem that it belongs to.
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
    /// Frames handed out, cleared and freed.
    Page(PageEvent),
    /// What page caches hold, and what moves between them and their zones.
    Pcp(PcpEvent),
    /// Counters of CPUs.
    Counter(CounterEvent),
    /// The upkeep tick.
    Tick(TickEvent),
    /// A CPU becomes idle or busy.
    Idle(IdleEvent),
    /// Translations.
    Tlb(TlbEvent),
    /// Calls to other CPUs.
    Call(CallEvent),
    /// The end of an address space, and page tables that are emptied.
    Exit(ExitEvent),
    /// The out-of-memory killer and its reaper.
    Oom(OomEvent),
    /// LRU batches.
    Lru(LruEvent),
}

/// Listens to the tracepoints of one CPU. Machines call it on that CPU only, in the order of that
/// CPU's own time.
pub trait Probe: Any + Send {
    /// Whether it wants the events of `group`: a machine asks once, and need not tell of others.
    fn hears(&self, group: TraceGroup) -> bool {
        let _ = group;
        true
    }
    /// `event` happened at `now_ns` on this probe's CPU.
    fn event(&mut self, now_ns: u64, event: &Trace);
    /// Gives the probe back as its own type at the end of a run.
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}
