//! TLB state of one address space, shared by all CPUs.

use super::cpu::{NEVER, stored};
use super::{Extent, SINGLE_FLUSH_CEILING};
use alloc::boxed::Box;
use core::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use mmscale_arch::{Asid, Atomic, CpuId, DataLine, Machine, Op, PageSize, VmaRange, Vpn};

/// Generation of a new address space. A CPU that never flushed it is at [`NEVER`].
pub(super) const FIRST: u64 = 1;
/// State of an address space (module `broadcast`): CPUs are called.
pub(super) const LOCAL: u32 = 0;
/// State: the address space has a global number that CPUs may not know yet.
pub(super) const JOINING: u32 = 1;
/// State: all CPUs know the global number.
pub(super) const GLOBAL: u32 = 2;
/// Number of recent invalidations whose ranges are kept.
const RECENT: u64 = 4;

/// TLB state of one address space (`mm->context`, `mm_cpumask`).
pub(super) struct MmContext<A: Machine> {
    /// Last deferred generation that has not completed; 0: none.
    pub(super) deferred: A::AtomicU64,
    /// Number of the last invalidation. It continues when the ASID is assigned to another owner.
    pub(super) generation: A::AtomicU64,
    /// Ranges of the last invalidations, at index generation modulo [`RECENT`]. Written after the
    /// generation was incremented: a CPU that reads too early finds an older tag, and flushes
    /// everything.
    recent: [A::AtomicU64; RECENT as usize],
    /// `LOCAL`, `JOINING` or `GLOBAL` (module `broadcast`).
    pub(super) global: A::AtomicU32,
    /// CPUs that have the address space loaded, also lazily; one bit each.
    cpus: Box<[A::AtomicU64]>,
}

/// Range of one invalidation in one word.
///
/// ```text
///  63..42              41     40..35       34..0
/// +-------------------+------+------------+---------------------+
/// | tag: generation   | HUGE | units, or  | first page          |
/// | modulo 2^22       |      | 63: all    |                     |
/// +-------------------+------+------------+---------------------+
///   22 bits             1 bit  6 bits       35 bits
/// ```
///
/// `HUGE` gives the page size of the `units`. The tag shows which generation the word is of: slots
/// are reused every [`RECENT`] generations. A false match needs a flusher that is preempted between
/// `begin` and `publish` for a multiple of 2^22 invalidations of its address space.
#[derive(Clone, Copy)]
pub(super) struct FlushInfo(u64);

const PAGE_BITS: u32 = 35;
const UNITS_BITS: u32 = 6;
const ALL_UNITS: u64 = (1 << UNITS_BITS) - 1;
const HUGE: u64 = 1 << (PAGE_BITS + UNITS_BITS);
const TAG_SHIFT: u32 = PAGE_BITS + UNITS_BITS + 1;

const _: () = assert!(SINGLE_FLUSH_CEILING < ALL_UNITS && Vpn::USER_END.get() <= 1 << PAGE_BITS);

impl FlushInfo {
    pub(super) const fn of(word: u64) -> Self {
        Self(word)
    }
    pub(super) const fn word(self) -> u64 {
        self.0
    }
    pub(super) fn new(generation: u64, extent: Extent) -> Self {
        let tag = generation << TAG_SHIFT;
        Self(match extent {
            Extent::All => tag | ALL_UNITS << PAGE_BITS,
            Extent::Range(range, size) => {
                let units = range.pages().div_ceil(size.pages());
                let huge = if size == PageSize::Huge { HUGE } else { 0 };
                tag | huge | units << PAGE_BITS | range.start().get()
            }
        })
    }
    /// Returns the range of the invalidation `generation` and its number of translations. `None`:
    /// all translations, or the word is of another generation.
    pub(super) fn range(self, generation: u64) -> Option<(VmaRange, u64)> {
        let units = self.0 >> PAGE_BITS & ALL_UNITS;
        let is_tagged = self.0 >> TAG_SHIFT == generation << TAG_SHIFT >> TAG_SHIFT;
        if !is_tagged || units == ALL_UNITS {
            return None;
        }
        let start = Vpn::new(self.0 & ((1 << PAGE_BITS) - 1));
        let size = if self.0 & HUGE != 0 { PageSize::Huge } else { PageSize::Base };
        let range = VmaRange::with_pages(start, units * size.pages());
        Some((range.unwrap_or(VmaRange::USER), units))
    }
}

impl<A: Machine> MmContext<A> {
    pub(super) fn new() -> Self {
        let words = A::cpus_possible().div_ceil(64);
        Self {
            deferred: A::AtomicU64::named(0, DataLine::TlbGen),
            generation: A::AtomicU64::named(FIRST, DataLine::TlbGen),
            recent: core::array::from_fn(|_| A::AtomicU64::named(0, DataLine::TlbGen)),
            global: A::AtomicU32::named(LOCAL, DataLine::TlbGen),
            cpus: (0..words).map(|_| A::AtomicU64::named(0, DataLine::MmCpumask)).collect(),
        }
    }
    /// Sets the bit of `cpu`, before it loads the address space.
    pub(super) fn enter(&self, cpu: CpuId) {
        // Step a of the table in mod.rs: pairs with the load in `cpus`.
        self.cpus[cpu.index() / 64].fetch_or(1 << (cpu.index() % 64), SeqCst);
    }
    /// Clears the bit of `cpu`, after it has unloaded the address space.
    pub(super) fn leave(&self, cpu: CpuId) {
        // Pairs with the load in `cpus`: a flusher that misses the CPU comes after the unload.
        self.cpus[cpu.index() / 64].fetch_and(!(1 << (cpu.index() % 64)), SeqCst);
    }
    /// Iterates over the CPUs that may have the address space loaded, lowest first. Loads each word
    /// once, when the iteration reaches it.
    pub(super) fn cpus(&self) -> impl Iterator<Item = CpuId> + '_ {
        self.cpus.iter().enumerate().flat_map(|(at, word)| {
            // Step 3 of the table in mod.rs: pairs with `enter` and `leave`.
            let mut rest = word.load(SeqCst);
            core::iter::from_fn(move || {
                let bit = rest.trailing_zeros() as usize;
                rest &= rest.wrapping_sub(1);
                (bit < 64).then(|| CpuId::new(at * 64 + bit))
            })
        })
    }
    /// Starts an invalidation; returns its generation.
    pub(super) fn begin(&self) -> u64 {
        // Step 2 of the table in mod.rs: pairs with the loads in target.rs (step c), after a CPU
        // has published what it loads.
        let next = || self.generation.fetch_add(1, SeqCst) + 1;
        let generation = next();
        if stored(generation) == NEVER { next() } else { generation }
    }
    /// Publishes the range of the invalidation `generation`, for CPUs that are not passed it.
    pub(super) fn publish(&self, generation: u64, extent: Extent) {
        let slot = &self.recent[(generation % RECENT) as usize];
        // Pairs with the load in `flush_missed`.
        slot.store(FlushInfo::new(generation, extent).0, Release);
    }
    /// Records that the invalidation `generation` is deferred. The caller holds the lock of one
    /// table only, so another task may have recorded a later generation meanwhile: that one stays.
    pub(super) fn record_deferred(&self, generation: u64) {
        let later = |deferred| (deferred < generation).then_some(generation);
        // Pairs with `is_deferred` (batch.rs) and `complete_deferred`.
        let _ = self.deferred.fetch_update(SeqCst, SeqCst, later);
    }
    /// Records that all CPUs have flushed up to `generation`; a later deferred generation stays.
    pub(super) fn complete_deferred(&self, generation: u64) {
        let is_over = |deferred| deferred != 0 && deferred <= generation;
        // Pairs with `is_deferred` (batch.rs): 0 is stored after the flush. Against
        // `record_deferred` of other tasks, whose later generation stays.
        if is_over(self.deferred.load_uncharged(Acquire)) {
            let over = |deferred| is_over(deferred).then_some(0);
            let _ = self.deferred.fetch_update(SeqCst, SeqCst, over);
        }
    }
    /// Flushes on this CPU the last `missed` invalidations up to generation `to`: by range if all
    /// are known and few, otherwise everything.
    pub(super) fn flush_missed(&self, asid: Asid, missed: u64, to: u64) {
        let mut ranges = [None; RECENT as usize];
        if missed <= RECENT {
            let mut units = 0;
            for (range, generation) in ranges.iter_mut().zip(to - missed + 1..=to) {
                // Pairs with the store in `publish`.
                let recent = FlushInfo(self.recent[(generation % RECENT) as usize].load(Acquire));
                let Some((known, of)) = recent.range(generation) else {
                    units = u64::MAX;
                    break;
                };
                (*range, units) = (Some(known), units + of);
            }
            if units <= SINGLE_FLUSH_CEILING {
                A::work(Op::TlbFlushPage, units as u32);
                ranges
                    .into_iter()
                    .flatten()
                    .for_each(|range| A::tlb_flush_local(asid, Some(range)));
                return;
            }
        }
        A::work(Op::TlbFlushAll, 1);
        A::tlb_flush_local(asid, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmscale_stepped::Stepped;

    #[test]
    fn no_invalidation_has_the_generation_of_a_cpu_that_never_flushed() {
        let (context, wrap) = (MmContext::<Stepped>::new(), 1 << 40);
        context.generation.store(wrap - 2, SeqCst);
        assert_eq!([context.begin(), context.begin()], [wrap - 1, wrap + 1]);
    }

    #[test]
    fn cpus_are_known_by_their_numbers_beyond_64_too() {
        let cpus = (0..3).map(|_| Atomic::new(0)).collect();
        let context = MmContext { cpus, ..MmContext::<Stepped>::new() };
        [130, 64, 63, 0].into_iter().for_each(|cpu| context.enter(CpuId::new(cpu)));
        context.leave(CpuId::new(63));
        assert!(context.cpus().map(CpuId::index).eq([0, 64, 130]));
    }

    #[test]
    fn an_invalidation_is_known_by_its_generation() {
        let range = VmaRange::with_pages(Vpn::new((1 << 35) - 2048), 1024);
        let Some(range) = range else { panic!() };
        let generation = (7 << 22) + 5;
        let recent = FlushInfo::new(generation, Extent::Range(range, PageSize::Huge));
        assert_eq!(recent.range(generation), Some((range, 2)));
        assert_eq!(recent.range(generation + 4), None);
        assert_eq!(FlushInfo::new(4, Extent::All).range(4), None);
        assert_eq!(FlushInfo(0).range(4), None);
    }
}
