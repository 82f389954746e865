//! Cache lines that CPUs share in one version of Linux and not in another.

use mmscale_arch::{CpuId, Probe};
use mmscale_boot::{Boot, on_sim};
use mmscale_frames::page_alloc::MemoryMap;
use mmscale_kernel::Os;
use mmscale_mm::memcg::ThresholdPolicy;
use mmscale_mm::mm::MmConfig;
use mmscale_mm::pgtable::RssPolicy;
use mmscale_mm::vmstat_work::TickPolicy;
use mmscale_sim::{SimConfig, sample_profile};
use mmscale_system::{MapSpec, PAGE_BYTES, System, ThreadSpec};

const CPUS: usize = 4;
/// Pages that each thread maps, writes and unmaps, one after the other.
const ROUNDS: u64 = 400;

fn silent(_: CpuId) -> Box<dyn Probe> {
    Box::new(())
}

/// The threads of one process map, write and unmap pages, each on a CPU of its own.
fn program(system: &Os) {
    let body = |system: &Os| {
        for _ in 0..ROUNDS {
            let at = system.mmap(MapSpec::new(PAGE_BYTES)).expect("there is memory");
            system.write(at, 1).expect("it is mapped");
            system.munmap(at, PAGE_BYTES).expect("it is mapped");
        }
    };
    let start = |cpu| system.spawn(ThreadSpec::on(cpu), Box::new(body)).expect("the CPU exists");
    let threads: Vec<_> = (1..CPUS).map(start).collect();
    body(system);
    threads.into_iter().for_each(|thread| system.join(thread).expect("one waiter"));
}

/// The transfers of a line between CPUs.
fn moves(line: &str, change: impl FnOnce(&mut MmConfig)) -> u64 {
    let mut mm = MmConfig::new(MemoryMap::single(1 << 14), TickPolicy::Stock);
    change(&mut mm);
    let machine = SimConfig::new(sample_profile(CPUS), CPUS);
    let outcome = on_sim(machine, &mut silent, Boot::checked(&mm, program));
    assert_eq!((outcome.failure, outcome.violations), (None, vec![]));
    outcome.lines.iter().filter(|row| row.line == line).map(|row| row.moves).sum()
}

/// A page that a CPU maps and unmaps leaves its part of the count as it was. A task adds both.
#[test]
fn threads_that_unmap_share_the_count_of_pages_before_6_2_and_not_since() {
    let of = |rss| moves("rss_stat", |mm| mm.space.rss = rss);
    let (cpus, tasks) = (of(RssPolicy::Cpus), of(RssPolicy::Tasks));
    assert!(cpus < CPUS as u64, "{cpus}");
    let unmaps = ROUNDS * CPUS as u64;
    assert!((unmaps / 2..=3 * unmaps).contains(&tasks), "{tasks} of {unmaps}");
}

/// Four changes a page: some 100 batches of 64, of which readers need five.
#[test]
fn changes_of_statistics_beyond_the_threshold_are_shared_from_5_16_to_5_19_only() {
    let of = |threshold| moves("stats_updates", |mm| mm.stat_threshold = threshold);
    let all = ThresholdPolicy::ALL.map(of);
    let [group, global, uncapped, none] = all;
    assert!(none < uncapped / 4 && group < uncapped / 2 && global < uncapped / 2, "{all:?}");
    let batches = 4 * ROUNDS * CPUS as u64 / 64;
    assert!((batches / 2..=2 * batches).contains(&uncapped), "{uncapped} of {batches}");
}
