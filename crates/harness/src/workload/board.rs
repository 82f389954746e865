//! Data that the programs of a run share: sums that all programs add to, and times by CPU.
//!
//! On simulated machines and on threads, the programs are in this process, and a host lock
//! suffices. No program waits for it while the machine goes on, because nothing of the machine runs
//! while the lock is held. On the live kernel the programs are processes of their own, which share
//! a mapping.

use super::spread::{Spread, powers_of_two};
use mmscale_document::{Histogram, Target};
#[cfg(feature = "live")]
use mmscale_linux::Shared;
use mmscale_system::{Plain, System};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A value that all programs of a run can change.
///
/// CPUs of a simulated machine run ahead of each other on the host, so what a program finds here is
/// in order only at its turn. A sum, which is read after the run, needs no turns. Values that other
/// programs act on are changed by [`Board::tell`] and read by [`Board::look`].
#[derive(Debug)]
pub struct Board<T: Plain>(Storage<T>);

#[derive(Debug)]
enum Storage<T: Plain> {
    Here(Arc<Mutex<T>>),
    #[cfg(feature = "live")]
    Shared(Shared<T>),
}

impl<T: Plain> Clone for Board<T> {
    fn clone(&self) -> Self {
        Self(match &self.0 {
            Storage::Here(value) => Storage::Here(Arc::clone(value)),
            #[cfg(feature = "live")]
            Storage::Shared(value) => Storage::Shared(value.clone()),
        })
    }
}

/// Locks `value`. A poisoned lock still protects a consistent value, because each change is one
/// step.
fn locked<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T: Plain + Copy + Default> Board<T> {
    /// Creates the default value in memory that the programs of `machine` can reach.
    pub(crate) fn on(machine: Target) -> Self {
        Self(match machine {
            #[cfg(feature = "live")]
            Target::Live => Storage::Shared(Shared::default()),
            _ => Storage::Here(Arc::default()),
        })
    }
    /// Changes the value atomically, in a way that gives the same result in any order.
    pub fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        match &self.0 {
            Storage::Here(value) => change(&mut locked(value)),
            #[cfg(feature = "live")]
            Storage::Shared(value) => value.change(change),
        }
    }
    /// Changes the value at the caller's turn: for what other programs look up.
    pub fn tell<R>(&self, system: &impl System, change: impl FnOnce(&mut T) -> R) -> R {
        system.take_turn();
        self.change(change)
    }
    /// Returns the value as of the caller's turn: for what other programs tell.
    pub fn look(&self, system: &impl System) -> T {
        system.take_turn();
        self.get()
    }
    /// Returns the value after the run.
    pub(crate) fn get(&self) -> T {
        match &self.0 {
            Storage::Here(value) => *locked(value),
            #[cfg(feature = "live")]
            Storage::Shared(value) => value.get(),
        }
    }
}

/// Times in ns by CPU: all values if the programs share this process, their distribution on the
/// live kernel.
#[derive(Clone, Debug)]
pub struct Samples(SampleStore);

#[derive(Clone, Debug)]
enum SampleStore {
    Here(Arc<Mutex<Vec<(usize, u64)>>>),
    #[cfg(feature = "live")]
    Shared(Arc<[Shared<Spread>]>),
}

impl Samples {
    pub(crate) fn on(machine: Target, cpus: usize) -> Self {
        Self(match machine {
            #[cfg(feature = "live")]
            Target::Live => SampleStore::Shared((0..cpus).map(|_| Shared::default()).collect()),
            _ => {
                let _ = cpus;
                SampleStore::Here(Arc::default())
            }
        })
    }
    /// Records times of a program that was started on `cpu`.
    pub fn add(&self, cpu: usize, times_ns: impl IntoIterator<Item = u64>) {
        let times_ns = times_ns.into_iter();
        match &self.0 {
            SampleStore::Here(all) => locked(all).extend(times_ns.map(|ns| (cpu, ns))),
            #[cfg(feature = "live")]
            SampleStore::Shared(by_cpu) => {
                by_cpu[cpu].change(|all| times_ns.for_each(|ns| all.add(ns)))
            }
        }
    }
    /// Returns all times as (CPU, ns). `None` on the live kernel, where only distributions are
    /// kept.
    pub fn each(&self) -> Option<Vec<(usize, u64)>> {
        match &self.0 {
            SampleStore::Here(all) => Some(locked(all).clone()),
            #[cfg(feature = "live")]
            SampleStore::Shared(_) => None,
        }
    }
    /// Returns the distribution of each of `cpus` CPUs.
    pub(crate) fn by_cpu(&self, cpus: usize) -> Vec<Times> {
        match &self.0 {
            #[cfg(feature = "live")]
            SampleStore::Shared(by_cpu) => {
                by_cpu.iter().map(|all| Times::Spread(Box::new(all.get()))).collect()
            }
            SampleStore::Here(all) => {
                let mut by_cpu = vec![Vec::new(); cpus];
                locked(all).iter().for_each(|&(cpu, ns)| by_cpu[cpu].push(ns));
                by_cpu.into_iter().map(Times::of).collect()
            }
        }
    }
}

/// A distribution of times.
#[derive(Clone, Debug)]
pub enum Times {
    /// All values, in ascending order.
    Each(Vec<u64>),
    /// Counts by size.
    Spread(Box<Spread>),
}

impl Times {
    /// Creates the distribution of times in ns.
    pub fn of(mut times_ns: Vec<u64>) -> Self {
        times_ns.sort_unstable();
        Self::Each(times_ns)
    }
    /// Returns the distribution of the times of several ones.
    pub fn sum(all: impl IntoIterator<Item = Self>) -> Self {
        let (mut times_ns, mut spread) = (Vec::new(), Spread::default());
        for times in all {
            match times {
                Self::Each(own) => times_ns.extend(own),
                Self::Spread(own) => spread.merge(&own),
            }
        }
        if spread.count() == 0 {
            return Self::of(times_ns);
        }
        times_ns.into_iter().for_each(|ns| spread.add(ns));
        Self::Spread(Box::new(spread))
    }
    /// Returns the number of times.
    pub fn count(&self) -> u64 {
        match self {
            Self::Each(all) => all.len() as u64,
            Self::Spread(all) => all.count(),
        }
    }
    /// Returns the sum, in ns.
    pub fn total_ns(&self) -> u64 {
        match self {
            Self::Each(all) => all.iter().sum(),
            Self::Spread(all) => all.total_ns(),
        }
    }
    /// Returns the longest time, in ns; 0 for an empty distribution.
    pub fn max_ns(&self) -> u64 {
        match self {
            Self::Each(all) => all.last().copied().unwrap_or(0),
            Self::Spread(all) => all.max(),
        }
    }
    /// Returns the smallest time that is not exceeded by `percent` of 100 times (nearest rank), in
    /// ns; 0 for an empty distribution. With counts by size, the result is too large by at most
    /// 1/32.
    pub fn percentile_ns(&self, percent: u64) -> u64 {
        match self {
            Self::Each(all) => {
                let rank = (all.len() * percent as usize).div_ceil(100);
                all.get(rank.saturating_sub(1)).copied().unwrap_or(0)
            }
            Self::Spread(all) => all.percentile(percent),
        }
    }
    /// Returns counts by powers of two of ns.
    pub fn histogram(&self) -> Histogram {
        match self {
            Self::Each(all) => {
                let mut counts = [0; u64::BITS as usize];
                all.iter().for_each(|&ns| counts[ns.max(1).ilog2() as usize] += 1);
                powers_of_two(&counts)
            }
            Self::Spread(all) => all.histogram(),
        }
    }
}

/// Declares the counters of a study's programs: a struct of `u64` fields that are summed over
/// programs.
///
/// `tally! { pub struct Tally { /// Ops that ended in time.  ops, failures } }`
#[macro_export]
macro_rules! tally {
    ($(#[$doc:meta])* $vis:vis struct $name:ident { $($(#[$of:meta])* $field:ident),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        $vis struct $name {
            $($(#[$of])* pub $field: u64,)+
        }
        $crate::plain!($name { $($field),+ });
        /// Adds the counters of another program.
        impl ::core::ops::AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                $(self.$field += other.$field;)+
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let times = |times_ns: &[u64]| Times::of(times_ns.to_vec());
        let many = Times::of((1..=100).rev().collect());
        assert_eq!([50, 99, 100].map(|percent| many.percentile_ns(percent)), [50, 99, 100]);
        assert_eq!((times(&[7]).percentile_ns(99), times(&[]).percentile_ns(99)), (7, 0));
        assert_eq!(times(&[1, 2]).percentile_ns(50), 1);
    }

    /// Metrics do not depend on how a machine stores times.
    #[cfg(feature = "live")]
    #[test]
    fn each_time_and_counts_by_size_say_the_same() {
        let kept = [Target::Sim, Target::Live].map(|on| {
            let samples = Samples::on(on, 2);
            samples.add(1, [0, 1, 2, 3]);
            samples.add(1, [16, 31]);
            samples.by_cpu(2).swap_remove(1)
        });
        for times in &kept {
            let sums = (times.count(), times.total_ns(), times.max_ns());
            assert_eq!((sums, times.percentile_ns(50)), ((6, 53, 31), 2));
            assert_eq!(times.histogram().buckets, [[0, 2, 2], [2, 4, 2], [16, 32, 2]]);
        }
        assert!(matches!(kept, [Times::Each(_), Times::Spread(_)]));
    }
}
