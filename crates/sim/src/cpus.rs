//! All CPUs of a machine, and which of them runs on the host.

use crate::cpu::Cpu;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// The CPUs by number. The one that runs on the host is used by every step, and is found without
/// its number.
pub(crate) struct Cpus {
    /// Owned: it comes from a box.
    all: NonNull<[Cpu]>,
    /// One of `all`.
    running: NonNull<Cpu>,
    /// The number of the running CPU.
    at: usize,
}

impl Cpus {
    /// Takes the CPUs of a machine; CPU 0 runs.
    ///
    /// # Panics
    /// If there is none.
    pub(crate) fn new(all: Vec<Cpu>) -> Self {
        assert!(!all.is_empty(), "a machine has a cpu");
        let all = NonNull::from(Box::leak(all.into_boxed_slice()));
        Self { all, running: all.cast(), at: 0 }
    }
    /// Returns the number of the running CPU.
    #[inline(always)]
    pub(crate) fn at(&self) -> usize {
        self.at
    }
    /// Makes CPU `at` the running one.
    ///
    /// # Panics
    /// If there is no such CPU.
    #[inline(always)]
    pub(crate) fn run(&mut self, at: usize) {
        assert!(at < self.all.len());
        self.at = at;
        // SAFETY: the slice has that many elements, as just checked.
        self.running = unsafe { self.all.cast().add(at) };
    }
    /// The index of the running CPU's entry in `Engine::waiters`.
    #[inline]
    pub(crate) fn waiter_index(&self) -> usize {
        2 * self.at + usize::from(self.running().in_irq)
    }
    /// The running CPU.
    #[inline(always)]
    pub(crate) fn running(&self) -> &Cpu {
        // SAFETY: it is an element of `all`, which this value owns and lends as a whole.
        unsafe { self.running.as_ref() }
    }
    /// The running CPU.
    #[inline(always)]
    pub(crate) fn running_mut(&mut self) -> &mut Cpu {
        // SAFETY: as above; the borrow of `self` excludes every other reference into `all`.
        unsafe { self.running.as_mut() }
    }
}

impl Deref for Cpus {
    type Target = [Cpu];
    #[inline(always)]
    fn deref(&self) -> &[Cpu] {
        // SAFETY: `all` comes from a box that lives as long as this value.
        unsafe { self.all.as_ref() }
    }
}

impl DerefMut for Cpus {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [Cpu] {
        // SAFETY: as above; the borrow of `self` excludes every other reference into `all`.
        unsafe { self.all.as_mut() }
    }
}

impl Drop for Cpus {
    fn drop(&mut self) {
        // SAFETY: `new` leaked this box, and nothing else owns it.
        drop(unsafe { Box::from_raw(self.all.as_ptr()) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_running_cpu_is_one_of_all() {
        let mut cpus = Cpus::new((0..3).map(|rank| Cpu::new(rank, 1, 0)).collect());
        cpus.running_mut().clock = 5;
        cpus.run(2);
        cpus.running_mut().clock = 7;
        cpus[1].clock = 6;
        assert_eq!((cpus.at(), cpus.running().rank), (2, 2));
        assert_eq!(cpus.iter().map(|cpu| cpu.clock).collect::<Vec<_>>(), [5, 6, 7]);
    }
}
