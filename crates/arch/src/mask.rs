//! A set of CPUs.

use super::{CpuId, MAX_CPUS};

const WORDS: usize = MAX_CPUS / 64;

/// A set of CPUs, 512 bytes: pass it by reference.
#[derive(Clone, PartialEq, Eq)]
pub struct CpuMask {
    words: [u64; WORDS],
}

impl CpuMask {
    /// No CPU.
    pub const EMPTY: Self = Self { words: [0; WORDS] };

    /// The CPUs `0..count`.
    pub fn first(count: usize) -> Self {
        let mut mask = Self::EMPTY;
        (0..count).for_each(|cpu| mask.insert(CpuId::new(cpu)));
        mask
    }
    /// Adds `cpu`.
    #[inline]
    pub fn insert(&mut self, cpu: CpuId) {
        self.words[cpu.index() / 64] |= 1 << (cpu.index() % 64);
    }
    /// Removes `cpu`.
    #[inline]
    pub fn remove(&mut self, cpu: CpuId) {
        self.words[cpu.index() / 64] &= !(1 << (cpu.index() % 64));
    }
    /// Whether `cpu` is in the set.
    #[inline]
    pub fn contains(&self, cpu: CpuId) -> bool {
        self.words[cpu.index() / 64] >> (cpu.index() % 64) & 1 == 1
    }
    /// The number of CPUs in the set.
    #[inline]
    pub fn count(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }
    /// The CPUs of the set, lowest first.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = CpuId> + '_ {
        self.words.iter().enumerate().flat_map(|(at, &word)| {
            let mut rest = word;
            core::iter::from_fn(move || {
                if rest == 0 {
                    return None;
                }
                let bit = rest.trailing_zeros() as usize;
                rest &= rest - 1;
                Some(CpuId::new(at * 64 + bit))
            })
        })
    }
    /// The CPUs of the set: those after `cpu`, then the lower ones and `cpu` itself
    /// (`for_each_cpu_wrap`).
    #[inline]
    pub fn iter_after(&self, cpu: CpuId) -> impl Iterator<Item = CpuId> + '_ {
        let is_after = move |other: &CpuId| *other > cpu;
        self.iter().filter(is_after).chain(self.iter().filter(move |other| !is_after(other)))
    }
}

impl core::fmt::Debug for CpuMask {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_set().entries(self.iter().map(CpuId::index)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn a_round_begins_after_a_cpu_and_ends_with_it() {
        let mut mask = CpuMask::EMPTY;
        [1, 5, 64, 130].into_iter().for_each(|cpu| mask.insert(CpuId::new(cpu)));
        let round = |cpu| mask.iter_after(CpuId::new(cpu)).map(CpuId::index).collect::<Vec<_>>();
        assert_eq!(round(5), [64, 130, 1, 5]);
        assert_eq!(round(0), [1, 5, 64, 130]);
        assert_eq!(round(200), [1, 5, 64, 130]);
    }
}
