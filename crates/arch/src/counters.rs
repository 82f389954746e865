//! Counters for statistics: each declared once, counted by CPU, and read as a sum or a maximum over
//! all CPUs.
//!
//! They have no cost in virtual time and no part in any decision. So they are atomics of this
//! computer, not of the machine. The counters that the kernel itself reads, with bytes for each CPU
//! that are folded into totals, are in `mmscale_frames::vmstat`.

use crate::Cpu;
use crate::sync::EachCpu;
use core::marker::PhantomData;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// A counter that is added up over CPUs.
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

/// A counter of which the largest value over CPUs is kept.
#[derive(Default, Debug)]
pub struct Max(AtomicU64);

impl Max {
    /// Keeps `value` if it is larger than those before.
    #[inline]
    pub fn note(&self, value: u64) {
        self.0.fetch_max(value, Relaxed);
    }
    /// Raises `all` to the largest value.
    pub fn fold_into(&self, all: &mut u64) {
        *all = self.0.load(Relaxed).max(*all);
    }
}

/// What one CPU counts. [`counters!`](crate::counters) implements it.
pub trait Counted: Default {
    /// What it comes to over all CPUs.
    type All: Default;
    /// Adds the sums of this CPU to `all`, and raises its maxima.
    fn fold_into(&self, all: &mut Self::All);
}

/// What each CPU counts.
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
    /// What all CPUs have counted. Exact while nothing runs.
    pub fn all(&self) -> C::All {
        let mut all = C::All::default();
        self.cpus.iter().for_each(|(_, cpu)| cpu.fold_into(&mut all));
        all
    }
}

/// Declares counters. From one list follow a struct of public numbers, which is a snapshot, and a
/// struct of the same fields in which one CPU counts. Each is a [`Sum`] or a [`Max`].
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

        /// What one CPU counts.
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
