//! Programs that need more memory than the machine has, on many CPUs.

use super::storm::storm;
use super::world::{Found, Sizes, well};
use mmscale_arch::{CpuId, Machine as _};
use mmscale_mm::lru::LruPolicy;
use mmscale_mm::swap::{SwapConfig, SwapDevice, Zeromap};
use mmscale_mm::zsmalloc::ZsConfig;
use mmscale_sim::{Faults, Outcome, Policy, Sim, SimConfig, sample_profile};

const CPUS: usize = 4;
const EACH: usize = 1_200;
const SIZES: Sizes = Sizes {
    node_frames: 1_536,
    program: CPUS * EACH,
    swap: SwapConfig {
        pages: 8_192,
        zeromap: Zeromap::On,
        device: SwapDevice::Block,
        compressed_percent: None,
        zs: ZsConfig::STOCK,
    },
    lru: LruPolicy::Stock,
};

fn config(seed: u64) -> SimConfig {
    let limit_ns = 60_000_000_000;
    SimConfig { seed, limit_ns, ..SimConfig::new(sample_profile(CPUS), CPUS) }
}

/// Every CPU has a program of its own; together they do not fit.
fn run(config: SimConfig, sizes: Sizes) -> (Outcome, Found) {
    let seed = config.seed;
    well(config, sizes, move |world| {
        for cpu in 0..CPUS {
            world.spawn(cpu, move |world| {
                storm(&world.paged, cpu * EACH, EACH, 1_500, seed << 8 | cpu as u64);
            });
        }
    })
}

#[test]
fn programs_larger_than_memory_find_their_pages_under_every_policy() {
    for lru in LruPolicy::ALL {
        let (_, found) = run(config(1), Sizes { lru, ..SIZES });
        assert!(found.swap.writes > 500 && found.swap.reads > 500, "{lru:?} {found:?}");
        assert!(found.swap.zero_writes > 50 && found.swap.zero_reads > 50, "{lru:?} {found:?}");
        assert!(found.reclaim.background_runs > 0, "{lru:?} {found:?}");
    }
}

#[test]
fn lazy_is_naive_with_reclaim_and_a_device() {
    for seed in 0..3 {
        let faults = Faults { io_fail_1024: 40, early_park_1024: 50, ..Faults::default() };
        let with = |policy| SimConfig { policy, faults, ..config(seed) };
        let lru = LruPolicy::ALL[seed as usize];
        let (lazy, found) = run(with(Policy::Lazy), Sizes { lru, ..SIZES });
        let (naive, other) = run(with(Policy::Naive), Sizes { lru, ..SIZES });
        assert_eq!(found, other, "seed {seed}");
        assert_eq!(lazy.locks, naive.locks, "seed {seed}");
        let result = |o: &Outcome| (o.virtual_ns, o.events, o.fingerprint);
        assert_eq!(result(&lazy), result(&naive), "seed {seed}");
        assert!(found.swap.write_errors > 20 && found.swap.read_errors > 20, "{found:?}");
    }
}

#[test]
fn a_small_queue_and_cpus_that_come_and_go_lose_nothing() {
    let mut config = config(5);
    config.profile.swap.depth = 8;
    let (_, found) = well(config, Sizes { lru: LruPolicy::Lazy, ..SIZES }, |world| {
        for cpu in 0..CPUS {
            world.spawn(cpu, move |world| {
                storm(&world.paged, cpu * EACH, EACH, 800, 99 + cpu as u64);
            });
        }
        world.spawn(0, |world| {
            while world.others() > 2 {
                world.paged.mm.sleep_ns(3_000_000);
                Sim::cpu_offline(CpuId::new(3)).expect("it is online");
                world.paged.mm.sleep_ns(2_000_000);
                Sim::cpu_online(CpuId::new(3)).expect("it is offline");
            }
        });
    });
    assert!(found.swap.writes > 1_000, "{found:?}");
}

/// The CPU that writes a page compresses it and gets its frame immediately: no CPU is interrupted,
/// and no page waits for its writeback.
#[test]
fn compressed_memory_is_a_device_too() {
    let swap = SwapConfig { device: SwapDevice::Compressed, ..SIZES.swap };
    for lru in LruPolicy::ALL {
        let (outcome, found) = run(config(4), Sizes { swap, lru, ..SIZES });
        assert!(found.swap.writes > 500 && found.swap.reads > 500, "{lru:?} {found:?}");
        let ends = outcome.calls.iter().filter(|row| row.below("folio_end_writeback").is_some());
        assert_eq!(ends.count(), 0, "{lru:?}");
    }
    let faults = Faults { io_fail_1024: 40, ..Faults::default() };
    let with = |policy| SimConfig { policy, faults, ..config(7) };
    let (lazy, found) = run(with(Policy::Lazy), Sizes { swap, ..SIZES });
    let (naive, _) = run(with(Policy::Naive), Sizes { swap, ..SIZES });
    assert_eq!(lazy.fingerprint, naive.fingerprint);
    assert!(found.swap.write_errors > 20 && found.swap.read_errors > 20, "{found:?}");
}

#[test]
fn without_a_zeromap_zeros_are_written_like_others() {
    let swap = SwapConfig { zeromap: Zeromap::Off, ..SIZES.swap };
    let (_, found) = run(config(2), Sizes { swap, ..SIZES });
    assert_eq!((found.swap.zero_writes, found.swap.zero_reads), (0, 0));
    assert!(found.swap.writes > 1_000);
}
