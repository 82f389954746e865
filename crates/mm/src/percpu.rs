//! Memory of which each CPU has a copy, as far as it is allocated at run time (`mm/percpu.c`).
//!
//! An [`Area`] is some bytes at the same place of each CPU's copy. An allocation finds the lowest
//! free place under `pcpu_alloc_mutex` and `pcpu_lock`, and then zeroes it in the copies of all
//! possible CPUs, with neither. So it writes to a line of each CPU, and areas that are in use at
//! the same time share these lines.
//!
//! Not modelled: the pages behind the areas, and the worker that populates them in advance. An
//! allocation never fails. A line is fetched when an area is zeroed, when a CPU first uses its
//! copy, and when the copies are read; what neighbours do to it in between is not.
//!
//! Lock order: [`LockClass`]: `PcpuMutex`, then `Pcpu`, which is taken with interrupts off. Each is
//! held for moments; `PcpuCounters` is taken alone.

use alloc::collections::BTreeMap;
use core::sync::atomic::Ordering::Relaxed;
use mmscale_arch::sync::{Mutex, SpinLock};
use mmscale_arch::{Access, Atomic, DataLine, Func, Line, LockClass, Machine, Op, Span};

/// Bytes of the unit in which places are counted (`PCPU_MIN_ALLOC_SIZE`).
const UNIT_BYTES: u32 = 4;
/// Lines of the record of a chunk that a change of it writes: `mmscale lift show` of `fork1` on
/// Linux 6.12.
const CHUNK_LINES: usize = 3;
/// Units of a cache line.
const LINE_UNITS: u32 = 64 / UNIT_BYTES;

/// Bytes at the same place of each CPU's copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Area {
    /// Its first unit.
    first: u32,
    units: u32,
}

impl Area {
    /// The lines of a CPU's copy that it is on.
    fn lines(&self) -> core::ops::RangeInclusive<u32> {
        self.first / LINE_UNITS..=(self.first + self.units - 1) / LINE_UNITS
    }
    /// The first line of a CPU's copy that it is on.
    pub(crate) fn line(&self) -> u32 {
        *self.lines().start()
    }
}

/// Free places: by first unit, the number of units.
struct Free(BTreeMap<u32, u32>);

impl Free {
    /// Takes the lowest place for `units`. The copies have room for any number.
    fn take(&mut self, units: u32) -> u32 {
        let fits = self.0.iter().find(|&(_, &room)| room >= units);
        let (&first, &room) = fits.expect("the last place has no end");
        self.0.remove(&first);
        if room > units {
            self.0.insert(first + units, room - units);
        }
        first
    }
    /// Frees a place, and joins it with its free neighbours.
    fn give(&mut self, mut first: u32, mut units: u32) {
        if let Some(above) = self.0.remove(&(first + units)) {
            units += above;
        }
        let below = self.0.range(..first).next_back().map(|(&at, &room)| (at, room));
        if let Some((at, room)) = below.filter(|&(at, room)| at + room == first) {
            (first, units) = (at, room + units);
        }
        self.0.insert(first, units);
    }
}

/// The per-CPU memory of a machine.
pub struct Percpu<A: Machine> {
    mutex: Mutex<A, ()>,
    free: SpinLock<A, Free>,
    /// The lines of a chunk's record that an allocation and a free write, under the lock
    /// (`pcpu_alloc_area`, `pcpu_block_update_hint_alloc`).
    chunk: [A::AtomicU32; CHUNK_LINES],
    /// The list of counters that have a part for each CPU: only its lock.
    counters: SpinLock<A, ()>,
}

impl<A: Machine> Percpu<A> {
    /// Creates copies in which everything is free.
    pub fn new() -> Self {
        Self {
            mutex: Mutex::new(LockClass::PcpuMutex, ()),
            free: SpinLock::new(LockClass::Pcpu, Free(BTreeMap::from([(0, u32::MAX)]))),
            chunk: core::array::from_fn(|_| A::AtomicU32::named(0, DataLine::PcpuChunk)),
            counters: SpinLock::new(LockClass::PcpuCounters, ()),
        }
    }
    /// Allocates `bytes` and zeroes them in the copies of all CPUs (`pcpu_alloc`). May sleep.
    pub(crate) fn alloc(&self, bytes: u32) -> Area {
        let _span = Span::<A>::enter(Func::PcpuAlloc);
        let units = bytes.div_ceil(UNIT_BYTES).max(1);
        let first = {
            let _one = self.mutex.lock();
            self.change(|free| free.take(units))
        };
        let area = Area { first, units };
        A::work(Op::PercpuZero, A::cpus_possible() as u32);
        area.lines().for_each(|line| A::touch(Line::EachPercpu(line), Access::Store));
        area
    }
    /// Frees an area (`free_percpu`).
    pub(crate) fn free(&self, area: &Area) {
        let _span = Span::<A>::enter(Func::FreePercpu);
        self.change(|free| free.give(area.first, area.units));
    }
    /// Changes the free places, under the lock.
    fn change<R>(&self, change: impl FnOnce(&mut Free) -> R) -> R {
        let mut free = self.free.lock_irqsave();
        A::work(Op::PercpuPlace, 1);
        // Relaxed: only the lock's holder writes them.
        self.chunk.iter().for_each(|line| line.store_uncharged(0, Relaxed));
        change(&mut free)
    }
    /// Sets a value of an area that is this CPU's, in the copies of all CPUs.
    pub(crate) fn set(&self) {
        A::work(Op::PercpuStep, A::cpus_possible() as u32);
    }
    /// Reads the copies of `values` values of an area, on all CPUs (`percpu_counter_sum` of each).
    pub(crate) fn sum(&self, area: &Area, values: u32) {
        A::work(Op::PercpuStep, A::cpus_possible() as u32 * values);
        area.lines().for_each(|line| A::touch(Line::EachPercpu(line), Access::Read));
    }
    /// Adds counters to the list of all, or removes them.
    pub(crate) fn list_counters(&self) {
        drop(self.counters.lock_irqsave());
    }
    /// Bytes of each copy that are in use: for checks, while nothing changes.
    pub fn bytes(&self) -> u64 {
        let free = self.free.lock_irqsave().0.values().map(|&units| u64::from(units)).sum::<u64>();
        (u64::from(u32::MAX) - free) * u64::from(UNIT_BYTES)
    }
}

impl<A: Machine> Default for Percpu<A> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmscale_stepped::{self as stepped, Stepped};

    #[test]
    fn the_lowest_free_place_is_taken_and_neighbours_are_joined() {
        let mut free = Free(BTreeMap::from([(0, u32::MAX)]));
        let taken = [4, 4, 1, 7].map(|units| free.take(units));
        assert_eq!(taken, [0, 4, 8, 9]);
        free.give(4, 4);
        assert_eq!((free.take(5), free.take(4)), (16, 4));
        free.give(0, 4);
        free.give(8, 1);
        free.give(4, 4);
        assert_eq!(free.0, BTreeMap::from([(0, 9), (21, u32::MAX - 21)]));
        free.give(9, 7);
        free.give(16, 5);
        assert_eq!(free.0, BTreeMap::from([(0, u32::MAX)]));
    }

    #[test]
    fn an_area_is_zeroed_on_all_cpus_once() {
        stepped::boot(6, 1000);
        let memory = Percpu::<Stepped>::new();
        let steps = || stepped::work_count(Op::PercpuStep);
        let (counters, ids) = (memory.alloc(16), memory.alloc(12));
        let zeroed = || stepped::work_count(Op::PercpuZero);
        assert_eq!((zeroed(), memory.bytes()), (12, 28));
        assert_eq!((counters.line(), ids.line()), (0, 0));
        memory.sum(&counters, 4);
        assert_eq!(steps(), 24);
        memory.free(&counters);
        memory.free(&ids);
        assert_eq!((steps(), zeroed(), memory.bytes()), (24, 12, 0));
    }
}
