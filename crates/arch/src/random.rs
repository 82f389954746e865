//! Random numbers for policies: they depend only on a run's seed, a CPU and a counter.

use crate::CpuId;

/// The step of splitmix64: 2^64 divided by the golden ratio, made odd.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Separates these numbers from all others that a machine draws from the same seed.
const STREAM: u64 = 0x706f_6c69_6379_2d31;

/// Returns number `counter` of the stream of the CPU `cpu` in a run with the seed `seed`.
/// [`Cpu::random_u64`](super::Cpu::random_u64) returns it.
///
/// Each stream is splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
/// generators", 2014) from a start value that mixes seed and CPU. Its numbers are uniform over all
/// values; no two counters below 2^64 give the same number.
#[inline]
pub const fn random(seed: u64, cpu: CpuId, counter: u64) -> u64 {
    let start = mix(mix(seed ^ STREAM).wrapping_add(cpu.index() as u64));
    number(start, counter)
}

/// The number `counter` of splitmix64 from `start`.
#[inline]
const fn number(start: u64, counter: u64) -> u64 {
    mix(start.wrapping_add(STEP.wrapping_mul(counter.wrapping_add(1))))
}

/// The finalizer of splitmix64: a bijection in which each input bit reaches each output bit.
#[inline]
const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn a_stream_is_the_published_sequence() {
        assert_eq!(number(1_234_567, 0), 6_457_827_717_110_365_317);
        assert_eq!(number(1_234_567, 1), 3_203_168_211_198_807_973);
    }

    #[test]
    fn seeds_cpus_and_counters_give_different_numbers() {
        let mut all = Vec::new();
        for seed in 0..20 {
            for cpu in 0..20 {
                all.extend((0..20).map(|counter| random(seed, CpuId::new(cpu), counter)));
            }
        }
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    /// Policies that spread CPUs by their first number need this: the first numbers of CPUs are
    /// independent.
    #[test]
    fn the_first_numbers_of_cpus_are_spread_evenly() {
        let mut eighths = [0_u32; 8];
        (0..4096).for_each(|cpu| eighths[(random(1, CpuId::new(cpu), 0) >> 61) as usize] += 1);
        assert!(eighths.iter().all(|count| (420..=604).contains(count)), "{eighths:?}");
    }
}
