//! Per-CPU TLB state: what other CPUs see of it, and what only the CPU itself uses.

use core::cell::Cell;
use mmscale_arch::Asid;

const GENERATION_BITS: u32 = 40;
const GENERATION: u64 = (1 << GENERATION_BITS) - 1;
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
/// Width: at one invalidation every 100 ns, 2^40 generations last 30 hours, so a stored generation
/// wraps. [`Asid::COUNT`] takes all the other bits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Loaded(u64);

impl Loaded {
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
    /// Returns whether the CPU uses translations of `asid` that are older than `generation`.
    pub(super) fn is_behind(self, asid: Asid, generation: u64) -> bool {
        self.0 & LAZY == 0 && self.asid() == Some(asid) && self.generation() < generation
    }
}

/// Number of address spaces of which a CPU remembers the generation (`TLB_NR_DYN_ASIDS` of x86).
const CONTEXTS: usize = 6;

/// TLB state that only its own CPU uses, with interrupts off (`cpu_tlbstate.ctxs[]`).
#[derive(Default)]
pub(super) struct Own {
    /// The address space in use; `None` while it is lazy.
    pub(super) active: Cell<Option<Asid>>,
    contexts: [Cell<Option<(Asid, u64)>>; CONTEXTS],
    next: Cell<usize>,
}

impl Own {
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
        let loaded = Loaded::new(asid, 5);
        assert!(loaded.is_behind(asid, 6) && !loaded.is_behind(asid, 5));
        assert!(!loaded.is_behind(other, 6) && !loaded.lazily().is_behind(asid, 6));
        assert_eq!((loaded.lazily().asid(), loaded.at(9).generation()), (Some(asid), 9));
        assert_eq!(Loaded::new(other, 1).lazily().asid(), Some(other));
        assert!(!Loaded::NOTHING.is_behind(asid, 1));
    }

    #[test]
    fn the_last_six_address_spaces_are_remembered() {
        let own = Own::default();
        (1..=6).for_each(|at| own.remember(Asid::new(at), at as u64));
        own.remember(Asid::new(2), 20);
        own.remember(Asid::new(7), 7);
        let known = |at| own.recall(Asid::new(at));
        assert_eq!((known(1), known(2), known(6), known(7)), (None, Some(20), Some(6), Some(7)));
    }
}
