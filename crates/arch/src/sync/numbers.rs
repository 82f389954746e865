//! Allocator of small numbers, with a cache for each CPU.

use super::{EachCpu, SpinLock};
use crate::{Cpu, LockClass};
use alloc::vec::Vec;
use core::ops::Range;

/// Most numbers in a CPU's cache; above it, half of them move to the pool.
const KEPT_MAX: usize = 32;

/// Allocates the numbers of a range. A CPU first allocates the number that was freed on it last. It
/// accesses the pool of all CPUs only if its cache is empty or too full. At most as many numbers
/// are ever used as were allocated at a time, plus a few dozen for each CPU.
///
/// Locks: one for each CPU and one for the pool (class Other), held briefly, one at a time.
pub struct Numbers<A: Cpu> {
    kept: EachCpu<SpinLock<A, Vec<usize>>>,
    pool: SpinLock<A, Pool>,
}

/// Free numbers that are in no CPU's cache.
struct Pool {
    unused: Range<usize>,
    free: Vec<usize>,
}

impl<A: Cpu> Numbers<A> {
    /// Creates an allocator in which all of `range` is free.
    pub fn new(range: Range<usize>) -> Self {
        let pool = Pool { unused: range, free: Vec::new() };
        Self {
            kept: EachCpu::new::<A>(|_| SpinLock::new(LockClass::Other, Vec::new())),
            pool: SpinLock::new(LockClass::Other, pool),
        }
    }
    /// Allocates a number. Returns `None` only if all are allocated, or moved between caches and
    /// the pool during the search.
    pub fn take(&self) -> Option<usize> {
        self.take_here().or_else(|| self.kept.iter().find_map(|(_, kept)| kept.lock().pop()))
    }
    fn take_here(&self) -> Option<usize> {
        let kept = self.kept.of(A::cpu());
        if let Some(number) = kept.lock().pop() {
            return Some(number);
        }
        let mut came = self.pool.lock().take();
        let number = came.pop();
        if !came.is_empty() {
            kept.lock().extend(came);
        }
        number
    }
    /// Frees a number that [`Numbers::take`] returned.
    pub fn give(&self, number: usize) {
        let full = self.keep(number);
        if !full.is_empty() {
            self.pool.lock().free.extend(full);
        }
    }
    /// Puts a number into this CPU's cache; returns those that exceed its limit.
    fn keep(&self, number: usize) -> Vec<usize> {
        let mut kept = self.kept.of(A::cpu()).lock();
        kept.push(number);
        let too_many = if kept.len() > KEPT_MAX { KEPT_MAX / 2 } else { 0 };
        kept.drain(..too_many).collect()
    }
}

impl Pool {
    /// Takes some numbers that were allocated before; if there are none, one that never was.
    fn take(&mut self) -> Vec<usize> {
        let from = self.free.len().saturating_sub(KEPT_MAX / 2);
        let mut came = self.free.split_off(from);
        if came.is_empty() {
            came.extend(self.unused.next());
        }
        came
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bare::{Bare, BareCpu};
    use crate::{CpuId, IrqState};
    use alloc::collections::BTreeSet;

    /// One CPU that runs one test.
    struct One;

    // SAFETY: the numbers of a test stay on its thread.
    unsafe impl Bare for One {
        fn cpu() -> CpuId {
            CpuId::new(0)
        }
        fn cpus() -> usize {
            1
        }
        fn preempt_disable() {}
        fn preempt_enable() {}
        fn irq_save() -> IrqState {
            IrqState(false)
        }
        fn irq_restore(_: IrqState) {}
    }

    #[test]
    fn all_numbers_are_given_and_none_twice() {
        let numbers = Numbers::<BareCpu<One>>::new(3..200);
        let all = || core::iter::from_fn(|| numbers.take()).collect::<Vec<_>>();
        for _ in 0..3 {
            let out = all();
            assert_eq!(out.len(), 197);
            assert_eq!(BTreeSet::from_iter(out.iter().copied()), (3..200).collect());
            out.into_iter().for_each(|number| numbers.give(number));
        }
    }

    #[test]
    fn a_freed_number_is_reused_before_a_new_one() {
        let numbers = Numbers::<BareCpu<One>>::new(0..1000);
        for _ in 0..500 {
            let out = [(); 3].map(|()| numbers.take().expect("there are more"));
            assert!(out.iter().all(|&number| number < 3));
            out.into_iter().for_each(|number| numbers.give(number));
        }
    }
}
