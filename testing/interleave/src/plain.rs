//! Values that are no atomics: what a lock or a grace period protects.

use crate::memory::Id;
use crate::world::{here, with};
use core::sync::atomic::Ordering::Relaxed;
use mmscale_arch::MAX_CPUS;
use std::sync::atomic::AtomicU64;

/// A number that CPUs use as if it was plain memory. Where memory is weak, a use that is not
/// ordered after an earlier one by another CPU is an error, unless both only read: a data race.
pub struct Plain {
    last: AtomicU64,
    written: Id,
    /// The reads of each CPU, which count as writes to a place of its own.
    read: Vec<Id>,
}

/// CPUs that a scenario has at most.
const CPUS: usize = 8;
const _: () = assert!(CPUS <= MAX_CPUS);

impl Plain {
    /// Holds `value`.
    pub fn new(value: u64) -> Self {
        let read = (0..CPUS).map(|_| Id::default()).collect();
        Self { last: AtomicU64::new(value), written: Id::default(), read }
    }
    /// Reads it.
    ///
    /// # Panics
    /// Where another CPU has written to it and nothing orders that before the read.
    pub fn get(&self) -> u64 {
        with(|w| {
            let (cpu, memory) = (here(), &w.memory);
            assert!(memory.is_up_to_date(cpu, &self.written), "data race: read before a write");
            memory.store(cpu, &self.read[cpu], 0, 0, Relaxed);
        });
        self.last.load(Relaxed)
    }
    /// Writes `value` to it.
    ///
    /// # Panics
    /// Where another CPU has read or written it and nothing orders that before the write.
    pub fn set(&self, value: u64) {
        with(|w| {
            let (cpu, memory) = (here(), &w.memory);
            let sees = |id| memory.is_up_to_date(cpu, id);
            assert!(sees(&self.written), "data race: two writes");
            assert!(self.read.iter().all(sees), "data race: written while it is read");
            memory.store(cpu, &self.written, 0, 0, Relaxed);
        });
        self.last.store(value, Relaxed);
    }
}
