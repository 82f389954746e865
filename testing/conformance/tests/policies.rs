//! Every policy of every mechanism: it boots, carries load while CPUs go offline and come back,
//! becomes quiet, and leaves nothing behind. The policies are those that `mmscale_mm::policy`
//! lists, so a new one is covered by its declaration.
//!
//! A policy runs on a machine of its own, with the default policies of the other mechanisms and
//! with all checkers on. It must keep the promises of all policies: programs read what they wrote,
//! counters are folded, every frame is freed, and the two schedules of the simulator agree.
//! [`at_rest`] and [`afterwards`] check the promises of its own mechanism.

use crate::oom::world::{check, grow, holder, start};
use mmscale_arch::{About, CounterEvent, CpuId, Probe, TickEvent, Trace};
use mmscale_boot::{Boot, on_sim};
use mmscale_frames::page_alloc::MemoryMap;
use mmscale_kernel::Os;
use mmscale_mm::mm::MmConfig;
use mmscale_mm::oom::OomPolicy;
use mmscale_mm::policy::{MECHANISMS, Mechanism};
use mmscale_mm::swap::SwapDevice;
use mmscale_mm::vmstat_work::TickPolicy;
use mmscale_sim::{Outcome, Policy, Sim, SimConfig, sample_profile};
use mmscale_system::{
    Addr, Advice, Backing, Errno, Exit, MapSpec, PAGE_BYTES, Prot, Share, System, ThreadSpec,
};
use std::any::Any;
use std::collections::BTreeMap;

const MS: u64 = 1_000_000;
const INTERVAL_NS: u64 = 1_000 * MS;
const CPUS: usize = 4;
/// The CPU that goes offline and comes back.
const LEAVES: usize = 3;
/// When it goes offline.
const GONE_NS: u64 = 2_500 * MS;
/// When it comes back.
const BACK_NS: u64 = 4_500 * MS;
/// When programs become quiet.
const REST_NS: u64 = 8_000 * MS;
/// When they end.
const END_NS: u64 = 12_000 * MS;
/// The number of intervals after which every counter of a CPU must be folded.
const STALE_INTERVALS: u64 = 3;
/// Pages that a program has at a time: two pageblocks, so that CPUs may keep whole ones.
const PAGES: u64 = 1200;

/// A counter of a CPU: its CPU, its zone or node, its item.
type Counter = (usize, u16, u8);

/// Events of a CPU, with times in ns.
#[derive(Default)]
struct Seen {
    ticks: Vec<u64>,
    /// Counters that became nonzero or zero, of dead CPUs too.
    counters: Vec<(u64, Counter, bool)>,
}

impl Probe for Seen {
    fn event(&mut self, now_ns: u64, event: &Trace) {
        match *event {
            Trace::Tick(TickEvent::Begin) => self.ticks.push(now_ns),
            Trace::Counter(CounterEvent::Delta { cpu, domain, item, old, new, .. })
                if (old == 0) != (new == 0) =>
            {
                self.counters.push((now_ns, (cpu.index(), domain, item), new != 0));
            }
            _ => {}
        }
    }
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

fn seen(_: CpuId) -> Box<dyn Probe> {
    Box::new(Seen::default())
}

/// Computes, alternating with other programs of the same CPU.
fn compute_until(system: &Os, when_ns: u64) -> Result<(), Errno> {
    while system.clock_ns() < when_ns {
        system.compute_ns((when_ns - system.clock_ns()).min(100 * MS))?;
    }
    Ok(())
}

fn until(system: &Os, when_ns: u64) -> Result<(), Errno> {
    system.sleep_ns(when_ns.saturating_sub(system.clock_ns()))
}

/// Uses memory in all ways in which mechanisms differ until [`REST_NS`], then computes.
fn worker(system: &Os, cpu: usize) -> Result<(), Errno> {
    // These stay: pageblocks have pages in use while the machine is quiet.
    let kept = grow(system, 50)?;
    let mut round = cpu as u64;
    while system.clock_ns() < REST_NS {
        let at = grow(system, PAGES)?;
        system.compute_ns((600 + 90 * cpu as u64) * MS)?;
        check(system, at, PAGES);
        match round % 4 {
            0 => give_up(system, at, Advice::PageOut)?,
            1 => give_up(system, at, Advice::Cold)?,
            2 => share(system, at)?,
            _ => {}
        }
        check(system, at, PAGES);
        // In pieces: tables become empty one after the other.
        for piece in 0..4 {
            system.munmap(at.page(piece * PAGES / 4), PAGES / 4 * PAGE_BYTES)?;
        }
        round += 1;
    }
    // Fewer than a batch: they stay in it while the machine is quiet.
    let batched = grow(system, 20)?;
    compute_until(system, END_NS)?;
    check(system, kept, 50);
    check(system, batched, 20);
    Ok(())
}

fn give_up(system: &Os, at: Addr, advice: Advice) -> Result<(), Errno> {
    system.madvise(at, PAGES / 2 * PAGE_BYTES, advice)
}

/// Forks a child that has the pages too, copies some of them, and ends.
fn share(system: &Os, at: Addr) -> Result<(), Errno> {
    let body = move |system: &Os| {
        check(system, at, PAGES);
        for page in 0..100 {
            assert_eq!(system.write(at.page(page), 7), Ok(()));
        }
    };
    // A file that both map, in three VMAs.
    let (file, bytes) = (system.file(12 * PAGE_BYTES, Backing::Memory)?, 12 * PAGE_BYTES);
    let mapped = system.mmap(MapSpec::new(bytes).of(file, 0, Share::Private))?;
    system.mprotect(mapped.page(4), 4 * PAGE_BYTES, Prot::Read)?;
    let child = system.fork(ThreadSpec::on(0), Box::new(body))?;
    assert_eq!(system.wait(child), Ok(Exit::Returned));
    system.munmap(mapped, bytes)?;
    system.close(file)?;
    Ok(())
}

/// Kills a process, and lets two others help to free its memory.
fn reap(system: &Os) {
    let victim = holder(system, 2, PAGES);
    let fd = system.pidfd_open(victim).expect("it is there");
    let helpers = [0, 1].map(|cpu| {
        let body = move |system: &Os| {
            let fd = system.pidfd_open(victim).expect("it was not waited for");
            while system.process_mrelease(fd, 0) == Err(Errno::Inval) {
                assert_eq!(system.sleep_ns(MS / 10), Ok(()));
            }
        };
        start(system, cpu, body)
    });
    assert_eq!(system.kill(victim), Ok(()));
    let _ = system.process_mrelease(fd, 0);
    for helper in helpers {
        assert_eq!(system.wait(helper), Ok(Exit::Returned));
    }
    assert_eq!(system.wait(victim), Ok(Exit::Killed));
    assert_eq!(system.close(fd), Ok(()));
}

/// The first thread of a run.
fn program(system: &Os, mechanism: &Mechanism) {
    let run = |cpu| {
        start(system, cpu, move |system: &Os| {
            assert_eq!(worker(system, cpu), Ok(()), "there is memory");
        })
    };
    let mut workers: Vec<_> = (1..CPUS).map(run).collect();
    // The shepherd of ticks is deferrable, as in Linux: on an idle CPU it would be late.
    workers.push(start(system, 0, |system: &Os| {
        assert_eq!(compute_until(system, END_NS), Ok(()));
    }));
    let sleep = |when_ns| assert_eq!(until(system, when_ns), Ok(()));
    sleep(GONE_NS);
    assert_eq!(system.cpu_offline(LEAVES), Ok(()));
    reap(system);
    sleep(BACK_NS);
    assert_eq!(system.cpu_online(LEAVES), Ok(()));
    workers.push(run(LEAVES));
    reap(system);
    sleep(END_NS - INTERVAL_NS / 4);
    assert_eq!(system.cpu_offline(LEAVES), Ok(()));
    all_adds_up(system);
    at_rest(system, mechanism);
    assert_eq!(system.cpu_online(LEAVES), Ok(()));
    for worker in workers {
        assert_eq!(system.wait(worker), Ok(Exit::Returned));
    }
}

/// Checks what every policy promises on a machine on which programs only compute, and of a CPU that
/// is offline.
fn all_adds_up(system: &Os) {
    let mm = system.mm::<Sim>();
    mm.verify().unwrap_or_else(|why| panic!("the frames: {why:?}"));
    mm.memory().verify().unwrap_or_else(|why| panic!("the LRU lists: {why}"));
    mm.mm_ref().verify().unwrap_or_else(|why| panic!("the address spaces: {why}"));
}

/// Checks what one mechanism promises on such a machine.
fn at_rest(system: &Os, mechanism: &Mechanism) {
    let mm = system.mm::<Sim>();
    match mechanism.key {
        "tick" => {}
        "lru" | "release" | "folios" | "unmap" | "charge-stock" | "stat-threshold" => {
            mm.memory().drain_all();
            let audit = mm.memory().verify().unwrap_or_else(|why| panic!("the LRU lists: {why}"));
            assert_eq!((audit.pending, audit.gathered), (0, 0), "after a drain of all CPUs");
            assert_eq!(audit.listed, audit.folios, "each folio is on a list then");
        }
        "caches" | "batch" | "high" | "bulk" | "check" | "orders" | "lists" => {
            mm.drain_all_pages();
            for (zone, cpu) in mm
                .frames()
                .zones()
                .iter()
                .flat_map(|zone| (0..CPUS).map(|cpu| (zone.id(), CpuId::new(cpu))))
            {
                let kept = mm.frames().cached_pages(zone, cpu);
                assert_eq!(kept, 0, "{cpu} keeps pages of zone {} after a drain", zone.index());
            }
            let audit = mm.verify().unwrap_or_else(|why| panic!("the frames: {why:?}"));
            let pages: u64 = mm.frames().zones().iter().map(|zone| u64::from(zone.pages())).sum();
            assert_eq!((audit.cached, audit.free + audit.held), (0, pages));
        }
        "calls" | "shootdown" => {
            let stats = mm.call_stats();
            assert!(stats.flushes > 100, "{stats:?}");
            assert!(stats.csd_wait_max_ns < INTERVAL_NS, "a call has waited for long: {stats:?}");
        }
        "zs-lookup" | "zs-pages" | "zs-free" => {
            let stored = mm.mm_ref().swap.counters().writes;
            assert!(stored > 1000, "{stored} pages were compressed");
        }
        "exit" | "gather" | "vma-locks" | "retry" | "rwsem" | "imap" | "rss" | "commit"
        | "oom-read" | "broadcast" => {
            // Those of the first process and of the workers.
            let audit = mm.mm_ref().verify().unwrap_or_else(|why| panic!("{why}"));
            assert_eq!(audit.spaces, CPUS as u64 + 2, "an address space outlives its process");
        }
        other => panic!("mechanism `{other}`: say here what it promises of a machine at rest"),
    }
}

/// Checks that no counter of a CPU stays unfolded for long, online or offline.
fn none_is_stale(seen: &[Seen]) -> Result<(), String> {
    let mut events: Vec<_> = seen.iter().flat_map(|seen| &seen.counters).copied().collect();
    events.sort_unstable();
    let mut since = BTreeMap::new();
    for (now_ns, counter, waits) in events {
        if waits {
            since.entry(counter).or_insert(now_ns);
        } else if let Some(since_ns) = since.remove(&counter)
            && now_ns - since_ns > STALE_INTERVALS * INTERVAL_NS
        {
            let (cpu, [from, to]) = (counter.0, [since_ns, now_ns].map(|ns| ns / MS));
            return Err(format!(
                "a counter of cpu{cpu} waited from {from} to {to} ms to be folded"
            ));
        }
    }
    let late = |since_ns: &u64| END_NS.saturating_sub(*since_ns) > STALE_INTERVALS * INTERVAL_NS;
    match since.iter().find(|(_, since_ns)| late(since_ns)) {
        Some(((cpu, ..), since_ns)) => {
            Err(format!("a counter of cpu{cpu} waits since {} ms to be folded", since_ns / MS))
        }
        None => Ok(()),
    }
}

/// Checks what one mechanism promises over a whole run.
fn afterwards(seen: &[Seen], mechanism: &Mechanism) -> Result<(), String> {
    if mechanism.key != "tick" {
        return Ok(());
    }
    for (cpu, ticks) in seen.iter().map(|seen| &seen.ticks).enumerate().skip(1) {
        let between =
            |from_ns, to_ns| ticks.iter().filter(|&&at| (from_ns..to_ns).contains(&at)).count();
        if between(0, GONE_NS) == 0 || between(BACK_NS, REST_NS) == 0 {
            return Err(format!(
                "cpu{cpu} counted all the time and its tick never came: {ticks:?}"
            ));
        }
        let gone = between(GONE_NS + 100 * MS, BACK_NS);
        if cpu == LEAVES && gone > 0 {
            return Err(format!("cpu{cpu} ticked {gone} times while it was offline"));
        }
    }
    Ok(())
}

/// Runs one policy of a mechanism; returns the fingerprint, or the failure.
fn run(mechanism: &'static Mechanism, policy: &About, schedule: Policy) -> Result<u64, String> {
    let mut mm = MmConfig::new(MemoryMap::nodes(2, 1 << 14), TickPolicy::default());
    mm.interval_ns = INTERVAL_NS;
    mm.swap.pages = 1 << 12;
    if mechanism.key.starts_with("zs-") {
        mm.swap.device = SwapDevice::Compressed;
    }
    mm.oom.policy = OomPolicy::Fail;
    mechanism.choose(&mut mm, policy);
    let mut machine = SimConfig::new(sample_profile(CPUS), CPUS);
    (machine.policy, machine.hz, machine.limit_ns) = (schedule, 250, 2 * END_NS);
    let first = move |system: &Os| program(system, mechanism);
    let Outcome { failure, violations, fingerprint, probes, .. } =
        on_sim(machine, &mut seen, Boot::checked(&mm, first));
    match (failure, violations.first()) {
        (Some(failure), _) => return Err(failure.to_string()),
        (None, Some(violation)) => return Err(violation.to_string()),
        (None, None) => {}
    }
    let own = |probe: Box<dyn Probe>| probe.into_any().downcast::<Seen>().map(|seen| *seen);
    let seen: Result<Vec<Seen>, _> = probes.into_iter().map(own).collect();
    let seen = seen.map_err(|_| "a probe of another kind")?;
    none_is_stale(&seen)?;
    afterwards(&seen, mechanism)?;
    Ok(fingerprint)
}

#[test]
fn every_policy_of_every_mechanism_keeps_its_promises() {
    let mut failures = Vec::new();
    for mechanism in MECHANISMS {
        for policy in mechanism.policies {
            let (lazy, naive) = std::thread::scope(|scope| {
                let naive = scope.spawn(|| run(mechanism, policy, Policy::Naive));
                let lazy = run(mechanism, policy, Policy::Lazy);
                (lazy, naive.join().expect("a run reports panics"))
            });
            let what = match (lazy, naive) {
                (Ok(lazy), Ok(naive)) if lazy == naive => continue,
                (Ok(_), Ok(_)) => "the lazy and the naive schedule differ".to_owned(),
                (Err(why), _) | (_, Err(why)) => why,
            };
            failures.push(format!("{}={}: {what}", mechanism.key, policy.name));
        }
    }
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
}
