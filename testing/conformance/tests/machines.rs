//! The cases on the machines that run the memory manager, under every LRU policy. Each case runs on
//! a machine of its own, which is checked at the end: the structures are consistent, and all memory
//! is freed.

use mmscale_arch::{CpuId, Probe};
use mmscale_boot::Boot;
use mmscale_conformance::{Case, cases};
use mmscale_frames::page_alloc::MemoryMap;
use mmscale_kernel::Os;
use mmscale_mm::lru::LruPolicy;
use mmscale_mm::mm::MmConfig;
use mmscale_mm::space::HugePages;
use mmscale_mm::swap::SwapConfig;
use mmscale_mm::vmstat_work::TickPolicy;
use mmscale_sim::{Policy, SimConfig, sample_profile};
use mmscale_system::{Exit, System, ThreadSpec};
use mmscale_threads::ThreadsConfig;

const LRU: [LruPolicy; LruPolicy::ALL.len()] = LruPolicy::ALL;
const PAGES: u32 = 1 << 15;

fn deaf(_: CpuId) -> Box<dyn Probe> {
    Box::new(())
}

/// Makes a system that runs one case in a process of its own.
fn boot(nodes: usize, lru: LruPolicy, case: fn(&Os)) -> Boot {
    let mut mm = MmConfig::new(MemoryMap::nodes(nodes, PAGES / nodes as u32), TickPolicy::Stock);
    mm.lru = lru;
    mm.swap = SwapConfig { pages: 1 << 12, ..SwapConfig::default() };
    mm.space.huge = HugePages::Advised;
    let init = move |system: &Os| {
        let process = system.process(ThreadSpec::on(0), Box::new(case)).expect("there is memory");
        assert_eq!(system.wait(process), Ok(Exit::Returned));
    };
    Boot::checked(&mm, init)
}

fn on_sim(case: &Case<Os>, lru: LruPolicy, policy: Policy) -> Result<u64, String> {
    let mut config = SimConfig::new(sample_profile(4), 4);
    config.policy = policy;
    config.limit_ns = 60_000_000_000;
    let outcome = mmscale_boot::on_sim(config, &mut deaf, boot(2, lru, case.run));
    match (outcome.failure, outcome.violations.first()) {
        (Some(failure), _) => Err(format!("{} ({lru:?}): {failure}", case.name)),
        (None, Some(violation)) => Err(format!("{} ({lru:?}): {violation}", case.name)),
        (None, None) => Ok(outcome.fingerprint),
    }
}

fn on_threads(case: &Case<Os>, lru: LruPolicy) -> Result<(), String> {
    let config = ThreadsConfig {
        cpus: 2,
        hz: 250,
        seed: 0,
        memory_pages: u64::from(PAGES),
        limit_ns: 60_000_000_000,
        interrupt: None,
    };
    let outcome = mmscale_boot::on_threads(&config, &mut deaf, boot(1, lru, case.run));
    outcome.failure.map_or(Ok(()), |why| Err(format!("{} ({lru:?}): {why}", case.name)))
}

/// Reports all failures together: the set of failing cases says more than the first of them.
fn none(failures: &[String]) {
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn every_case_holds_on_the_simulated_machine_and_lazy_is_naive() {
    let mut failures = Vec::new();
    for case in cases::<Os>() {
        for lru in LRU {
            let lazy = on_sim(&case, lru, Policy::Lazy);
            let naive = on_sim(&case, lru, Policy::Naive);
            match (lazy, naive) {
                (Ok(lazy), Ok(naive)) if lazy == naive => {}
                (Ok(_), Ok(_)) => failures.push(format!("{}: lazy is not naive", case.name)),
                (Err(why), _) | (_, Err(why)) => failures.push(why),
            }
        }
    }
    none(&failures);
}

#[test]
fn every_case_holds_on_real_threads() {
    let each = |case: &Case<Os>| LRU.map(|lru| on_threads(case, lru).err());
    let failures: Vec<_> = cases().iter().flat_map(each).flatten().collect();
    none(&failures);
}

#[test]
fn a_case_that_does_not_hold_is_reported() {
    fn wrong<S: System>(system: &S) {
        assert_eq!(system.munmap(mmscale_system::Addr(0), 0), Ok(()), "it is refused");
    }
    let sim = on_sim(&Case { name: "wrong", run: wrong }, LruPolicy::Stock, Policy::Lazy);
    assert!(sim.is_err_and(|why| why.contains("wrong") && why.contains("it is refused")));
    let threads = on_threads(&Case { name: "wrong", run: wrong }, LruPolicy::Stock);
    assert!(threads.is_err_and(|why| why.contains("it is refused")));
}
