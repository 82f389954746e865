//! Per-CPU counters for statistics: each is declared once, and read as a sum or a maximum over all
//! CPUs.
//!
//! They cost no virtual time, and no decision depends on them. So they are atomics of the host, not
//! of the machine; `Relaxed`, since they order no other data. Counters that the memory manager
//! itself reads, with per-CPU bytes that are folded into totals, are in `mmscale_frames::vmstat`.

use crate::Cpu;
use crate::sync::EachCpu;
use core::marker::PhantomData;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// A counter that is summed over CPUs.
#[derive(Default, Debug)]
pub struct Sum(AtomicU64);

impl Sum {
    /// Adds `count`.
    #[inline]
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Relaxed);
    }
    /// Adds the count to `all`.
    pub fn fold_into(&self, all: &mut u64) {
        *all += self.0.load(Relaxed);
    }
}

/// A counter whose result is the largest value of all CPUs.
#[derive(Default, Debug)]
pub struct Max(AtomicU64);

impl Max {
    /// Records `value` if it is larger than all before.
    #[inline]
    pub fn note(&self, value: u64) {
        self.0.fetch_max(value, Relaxed);
    }
    /// Raises `all` to the largest value.
    pub fn fold_into(&self, all: &mut u64) {
        *all = self.0.load(Relaxed).max(*all);
    }
}

/// The counters of one CPU. [`counters!`](crate::counters) implements it.
pub trait Counted: Default {
    /// The result over all CPUs.
    type All: Default;
    /// Adds the sums of this CPU to `all`, and raises its maxima.
    fn fold_into(&self, all: &mut Self::All);
}

/// The counters of all CPUs.
pub struct Counters<A: Cpu, C> {
    cpus: EachCpu<C>,
    arch: PhantomData<fn() -> A>,
}

impl<A: Cpu, C: Counted> Default for Counters<A, C> {
    fn default() -> Self {
        Self { cpus: EachCpu::new::<A>(|_| C::default()), arch: PhantomData }
    }
}

impl<A: Cpu, C: Counted> Counters<A, C> {
    /// The counters of the calling CPU.
    #[inline]
    pub fn here(&self) -> &C {
        self.cpus.of(A::cpu())
    }
    /// The result over all CPUs; exact while no CPU counts.
    pub fn all(&self) -> C::All {
        let mut all = C::All::default();
        self.cpus.iter().for_each(|(_, cpu)| cpu.fold_into(&mut all));
        all
    }
}

/// Declares counters. From one list it generates a struct of public numbers, a snapshot, and a
/// struct with the same fields for the counters of one CPU. Each is a [`Sum`] or a [`Max`].
///
/// ```
/// mmscale_arch::counters! {
///     /// How often tea was made.
///     pub struct TeaCounters from CpuTea {
///         /// Cups that were made.
///         cups: Sum,
///         /// The longest time that one was left to draw, in s.
///         drawn_max_s: Max,
///     }
/// }
///
/// let cpu = CpuTea::default();
/// cpu.cups.add(2);
/// cpu.drawn_max_s.note(200);
/// let mut all = TeaCounters { cups: 1, drawn_max_s: 240 };
/// mmscale_arch::counters::Counted::fold_into(&cpu, &mut all);
/// assert_eq!(all, TeaCounters { cups: 3, drawn_max_s: 240 });
/// ```
#[macro_export]
macro_rules! counters {
    (
        $(#[doc = $about:literal])+
        pub struct $All:ident from $Cpu:ident {
            $($(#[doc = $doc:literal])+ $name:ident: $Kind:ident,)+
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
        pub struct $All {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        /// The counters of one CPU.
        #[derive(Default)]
        pub(crate) struct $Cpu {
            $(pub(crate) $name: $crate::counters::$Kind,)+
        }

        impl $crate::counters::Counted for $Cpu {
            type All = $All;
            fn fold_into(&self, all: &mut $All) {
                $(self.$name.fold_into(&mut all.$name);)+
            }
        }
    };
}
