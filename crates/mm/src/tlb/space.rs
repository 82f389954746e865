//! What all CPUs must know about one address space to forget its translations.

use super::{Extent, SINGLE_FLUSH_CEILING};
use alloc::boxed::Box;
use core::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use mmscale_arch::{Asid, Atomic, CpuId, Machine, Op, PageSize, VmaRange, Vpn, planted};

/// The generation of a new address space; a CPU that knows nothing of it stands at 0.
pub(super) const FIRST: u64 = 1;
/// Invalidations of which it is known what they were.
const RECENT: u64 = 4;

/// One address space.
pub(super) struct Space<A: Machine> {
    /// The last generation of an invalidation that was put off and that nobody has waited for yet;
    /// 0: there is none.
    pub(super) deferred: A::AtomicU64,
    /// Grows with every invalidation; goes on when the number gets another owner.
    pub(super) generation: A::AtomicU64,
    /// The last invalidations, by generation modulo [`RECENT`]; see [`Recent`]. Written after the
    /// generation: who is early finds an older one, and forgets everything.
    recent: [A::AtomicU64; RECENT as usize],
    /// The CPUs that have it loaded, or had and have loaded nothing since.
    cpus: Box<[A::AtomicU64]>,
}

/// One invalidation in a word: the end of its generation (22 bits), its size (1), the number of
/// translations (6; 63: all), the first page (35).
#[derive(Clone, Copy)]
pub(super) struct Recent(u64);

const PAGE_BITS: u32 = 35;
const UNITS_BITS: u32 = 6;
const ALL_UNITS: u64 = (1 << UNITS_BITS) - 1;
const HUGE: u64 = 1 << (PAGE_BITS + UNITS_BITS);
const TAG_SHIFT: u32 = PAGE_BITS + UNITS_BITS + 1;

const _: () = assert!(SINGLE_FLUSH_CEILING < ALL_UNITS && Vpn::USER_END.get() <= 1 << PAGE_BITS);

impl Recent {
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
    /// What the invalidation of `generation` was: its range, and translations in it. `None`: all,
    /// or not known.
    pub(super) fn range(self, generation: u64) -> Option<(VmaRange, u64)> {
        let units = self.0 >> PAGE_BITS & ALL_UNITS;
        let is_tagged = self.0 >> TAG_SHIFT == generation << TAG_SHIFT >> TAG_SHIFT;
        if !is_tagged && !planted!(TlbTagIgnored) || units == ALL_UNITS {
            return None;
        }
        let start = Vpn::new(self.0 & ((1 << PAGE_BITS) - 1));
        let size = if self.0 & HUGE != 0 { PageSize::Huge } else { PageSize::Base };
        let range = VmaRange::with_pages(start, units * size.pages());
        Some((range.unwrap_or(VmaRange::USER), units))
    }
}

impl<A: Machine> Space<A> {
    pub(super) fn new() -> Self {
        let words = A::cpus_possible().div_ceil(64);
        Self {
            deferred: A::AtomicU64::new(0),
            generation: A::AtomicU64::new(FIRST),
            recent: core::array::from_fn(|_| A::AtomicU64::new(0)),
            cpus: (0..words).map(|_| A::AtomicU64::new(0)).collect(),
        }
    }
    /// `cpu` is about to load it.
    pub(super) fn enter(&self, cpu: CpuId) {
        self.cpus[cpu.index() / 64].fetch_or(1 << (cpu.index() % 64), SeqCst);
    }
    /// `cpu` uses it no more.
    pub(super) fn leave(&self, cpu: CpuId) {
        self.cpus[cpu.index() / 64].fetch_and(!(1 << (cpu.index() % 64)), SeqCst);
    }
    /// The CPUs that may have it loaded, lowest first. Each word is read once, on the way.
    pub(super) fn cpus(&self) -> impl Iterator<Item = CpuId> + '_ {
        self.cpus.iter().enumerate().flat_map(|(at, word)| {
            let mut rest = word.load(SeqCst);
            core::iter::from_fn(move || {
                let bit = rest.trailing_zeros() as usize;
                rest &= rest.wrapping_sub(1);
                (bit < 64).then(|| CpuId::new(at * 64 + bit))
            })
        })
    }
    /// An invalidation begins; returns its generation.
    pub(super) fn begin(&self) -> u64 {
        self.generation.fetch_add(1, SeqCst) + 1
    }
    /// What the invalidation of `generation` is, for CPUs that are not told otherwise.
    pub(super) fn note(&self, generation: u64, extent: Extent) {
        let slot = &self.recent[(generation % RECENT) as usize];
        slot.store(Recent::new(generation, extent).0, Release);
    }
    /// The invalidation of `generation` is put off. Under the lock of one table only: another's may
    /// have put off a later one meanwhile, which must not be forgotten over this.
    pub(super) fn put_off(&self, generation: u64) {
        if planted!(TlbDeferredOverwritten) {
            return self.deferred.store(generation, SeqCst);
        }
        let later = |deferred| (deferred < generation).then_some(generation);
        let _ = self.deferred.fetch_update(SeqCst, SeqCst, later);
    }
    /// All CPUs have forgotten what they were to up to `generation`: nobody waits for it any more.
    pub(super) fn settled(&self, generation: u64) {
        let is_over = |deferred| deferred != 0 && deferred <= generation;
        if is_over(self.deferred.load_uncharged(Acquire)) {
            let over = |deferred| is_over(deferred).then_some(0);
            let _ = self.deferred.fetch_update(SeqCst, SeqCst, over);
        }
    }
    /// This CPU forgets what was invalidated after the generation `from` up to `to`: one by one if
    /// it is known and little, or else everything.
    pub(super) fn forget(&self, asid: Asid, from: u64, to: u64) {
        let mut ranges = [None; RECENT as usize];
        if from >= FIRST && to - from <= RECENT {
            let mut units = 0;
            for (range, generation) in ranges.iter_mut().zip(from + 1..=to) {
                let recent = Recent(self.recent[(generation % RECENT) as usize].load(Acquire));
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

    #[test]
    fn an_invalidation_is_known_by_its_generation() {
        let range = VmaRange::with_pages(Vpn::new((1 << 35) - 2048), 1024);
        let Some(range) = range else { panic!() };
        let generation = (7 << 22) + 5;
        let recent = Recent::new(generation, Extent::Range(range, PageSize::Huge));
        assert_eq!(recent.range(generation), Some((range, 2)));
        assert_eq!(recent.range(generation + 4), None);
        assert_eq!(Recent::new(4, Extent::All).range(4), None);
        assert_eq!(Recent(0).range(4), None);
    }
}
