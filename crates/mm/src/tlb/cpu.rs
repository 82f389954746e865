//! Per-CPU TLB state: what other CPUs see of it, and what only the CPU itself uses.

use core::cell::Cell;
use mmscale_arch::Asid;

const GENERATION_BITS: u32 = 40;
const GENERATION: u64 = (1 << GENERATION_BITS) - 1;
/// Of two stored generations that differ by less, it is known which is older.
const HALF: u64 = 1 << (GENERATION_BITS - 1);
/// The stored generation of a CPU that has not flushed the address space yet: older than all
/// others. No invalidation has a generation that is stored as this.
pub(super) const NEVER: u64 = 0;
const LAZY: u64 = 1 << 63;

const _: () = assert!((Asid::COUNT as u64) << GENERATION_BITS <= LAZY);

/// A CPU's loaded address space and the generation up to which it has flushed, in one word, so that
/// one load returns a consistent pair. Linux has both in `cpu_tlbstate` (`loaded_mm`,
/// `ctxs[].tlb_gen`).
///
/// ```text
///  63    62..40       39..0
/// +------+------------+-----------------------------------------+
/// | LAZY | ASID       | generation, modulo 2^40                 |
/// +------+------------+-----------------------------------------+
///   1 bit  23 bits      40 bits                    all 0: nothing loaded
/// ```
///
/// Width: [`Asid::COUNT`] takes all the other bits. At one invalidation every 100 ns, 2^40
/// generations last 30 hours, so generations are compared modulo 2^40. Two bounds follow. A CPU
/// that uses the address space is less than 2^39 generations behind: it takes the IPIs of flushers
/// that wait for it. A CPU that does not use it must not miss an exact multiple of 2^40
/// invalidations before it uses the address space again: it would find that it missed none.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct ActiveMm(u64);

impl ActiveMm {
    pub(super) const NOTHING: Self = Self(0);

    pub(super) const fn new(asid: Asid, generation: u64) -> Self {
        Self((asid.index() as u64) << GENERATION_BITS | generation & GENERATION)
    }
    pub(super) const fn of(word: u64) -> Self {
        Self(word)
    }
    pub(super) const fn word(self) -> u64 {
        self.0
    }
    /// Returns the loaded address space, also if it is lazy.
    pub(super) const fn asid(self) -> Option<Asid> {
        match (self.0 & !LAZY) >> GENERATION_BITS {
            0 => None,
            index => Some(Asid::new(index as usize)),
        }
    }
    pub(super) const fn generation(self) -> u64 {
        self.0 & GENERATION
    }
    pub(super) const fn lazily(self) -> Self {
        Self(self.0 | LAZY)
    }
    /// Returns whether the CPU uses none of its translations.
    pub(super) const fn is_lazy(self) -> bool {
        self.0 & LAZY != 0
    }
    /// Returns this word with another generation and the lazy bit unchanged.
    pub(super) const fn at(self, generation: u64) -> Self {
        Self(self.0 & !GENERATION | generation & GENERATION)
    }
    /// Returns the number of invalidations up to `generation`, the current one, for which the CPU
    /// has not flushed; `u64::MAX` if it has never flushed the address space.
    pub(super) const fn missed(self, generation: u64) -> u64 {
        if self.generation() == NEVER { u64::MAX } else { self.before(generation) }
    }
    /// Returns whether the CPU uses translations of `asid` that are older than `generation`, which
    /// need not be the current one: the CPU may have flushed further.
    pub(super) fn is_behind(self, asid: Asid, generation: u64) -> bool {
        let is_older = self.generation() == NEVER || (1..HALF).contains(&self.before(generation));
        self.0 & LAZY == 0 && self.asid() == Some(asid) && is_older
    }
    /// Returns the distance from the stored generation to `generation`, modulo 2^40.
    const fn before(self, generation: u64) -> u64 {
        generation.wrapping_sub(self.0) & GENERATION
    }
}

/// Returns the part of `generation` that [`ActiveMm`] stores.
pub(super) const fn stored(generation: u64) -> u64 {
    generation & GENERATION
}

/// Number of address spaces of which a CPU remembers the generation (`TLB_NR_DYN_ASIDS` of x86).
const CONTEXTS: usize = 6;

/// TLB state that only its own CPU uses, with interrupts off (`cpu_tlbstate.ctxs[]`).
#[derive(Default)]
pub(super) struct CpuContexts {
    /// The address space in use; `None` while it is lazy.
    pub(super) active: Cell<Option<Asid>>,
    contexts: [Cell<Option<(Asid, u64)>>; CONTEXTS],
    next: Cell<usize>,
}

impl CpuContexts {
    /// Records that the CPU unloads `asid`, having flushed up to `generation`. Replaces the oldest
    /// record if all are in use.
    pub(super) fn remember(&self, asid: Asid, generation: u64) {
        let same =
            |slot: &&Cell<Option<(Asid, u64)>>| slot.get().is_none_or(|(known, _)| known == asid);
        let slot = self.contexts.iter().find(same).unwrap_or_else(|| {
            let at = self.next.get();
            self.next.set((at + 1) % CONTEXTS);
            &self.contexts[at]
        });
        slot.set(Some((asid, generation)));
    }
    /// Returns the generation up to which the CPU had flushed `asid`, or `None` if there is no
    /// record.
    pub(super) fn recall(&self, asid: Asid) -> Option<u64> {
        let known = self.contexts.iter().filter_map(Cell::get);
        known.into_iter().find(|&(known, _)| known == asid).map(|(_, generation)| generation)
    }
    /// Forgets every address space, for a CPU that has stopped.
    pub(super) fn reset(&self) {
        self.active.set(None);
        self.contexts.iter().for_each(|slot| slot.set(None));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_is_behind_only_with_what_it_uses() {
        let (asid, other) = (Asid::new(3), Asid::new(Asid::COUNT - 1));
        let loaded = ActiveMm::new(asid, 5);
        assert!(loaded.is_behind(asid, 6) && !loaded.is_behind(asid, 5));
        assert!(!loaded.is_behind(other, 6) && !loaded.lazily().is_behind(asid, 6));
        assert_eq!((loaded.lazily().asid(), loaded.at(9).generation()), (Some(asid), 9));
        assert_eq!(ActiveMm::new(other, 1).lazily().asid(), Some(other));
        assert!(!ActiveMm::NOTHING.is_behind(asid, 1));
    }

    #[test]
    fn generations_are_compared_across_the_wrap() {
        let (asid, wrap) = (Asid::new(3), 1 << GENERATION_BITS);
        let loaded = ActiveMm::new(asid, wrap + 5);
        assert!(!loaded.is_behind(asid, wrap + 5) && loaded.is_behind(asid, wrap + 6));
        assert_eq!((loaded.missed(wrap + 5), loaded.missed(wrap + 6)), (0, 1));
        let before = ActiveMm::new(asid, wrap - 1);
        assert!(before.is_behind(asid, wrap + 1) && before.missed(wrap + 1) == 2);
        assert!(!ActiveMm::new(asid, wrap + 1).is_behind(asid, wrap - 1));
        let never = ActiveMm::new(asid, NEVER);
        for generation in [1, HALF, HALF + 1, wrap - 1, wrap + 1] {
            assert!(never.is_behind(asid, generation) && never.missed(generation) == u64::MAX);
        }
    }

    #[test]
    fn the_last_six_address_spaces_are_remembered() {
        let own = CpuContexts::default();
        (1..=6).for_each(|at| own.remember(Asid::new(at), at as u64));
        own.remember(Asid::new(2), 20);
        own.remember(Asid::new(7), 7);
        let known = |at| own.recall(Asid::new(at));
        assert_eq!((known(1), known(2), known(6), known(7)), (None, Some(20), Some(6), Some(7)));
    }
}
