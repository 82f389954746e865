//! Values that are not atomic: data that a lock or a grace period protects.

use crate::memory::Id;
use crate::world::{here, with};
use core::sync::atomic::Ordering::Relaxed;
use mmscale_arch::MAX_CPUS;
use std::sync::atomic::AtomicU64;

/// A number that CPUs access as plain memory. On weak memory, a data race is an error: two accesses
/// by different CPUs, at least one of them a write, that nothing orders.
pub struct Plain {
    last: AtomicU64,
    written: Id,
    /// The last read of each CPU, as a write to a place of its own.
    read: Vec<Id>,
}

/// Maximum number of CPUs of a scenario.
const CPUS: usize = 8;
const _: () = assert!(CPUS <= MAX_CPUS);

impl Plain {
    /// Creates a value.
    pub fn new(value: u64) -> Self {
        let read = (0..CPUS).map(|_| Id::default()).collect();
        Self { last: AtomicU64::new(value), written: Id::default(), read }
    }
    /// Reads the value.
    ///
    /// # Panics
    /// On weak memory, if another CPU has written the value and nothing orders that write before
    /// this read.
    pub fn get(&self) -> u64 {
        with(|w| {
            let (cpu, memory) = (here(), &w.memory);
            assert!(memory.is_up_to_date(cpu, &self.written), "data race: read before a write");
            memory.store(cpu, &self.read[cpu], 0, 0, Relaxed);
        });
        self.last.load(Relaxed)
    }
    /// Replaces the value.
    ///
    /// # Panics
    /// On weak memory, if another CPU has read or written the value and nothing orders that access
    /// before this write.
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
