//! Typed tracepoints.
//!
//! A tracepoint is a fact about one CPU at one time. A machine passes it to the probe of that CPU.

use super::event::{
    CallEvent, CounterEvent, ExitEvent, IdleEvent, LruEvent, OomEvent, PageEvent, PcpEvent,
    TickEvent, TlbEvent,
};

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
