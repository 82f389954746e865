//! The programs of the study.

use super::{ALWAYS, Advise, Churn, DRAWN, Plan, Tally};
use mmscale_harness::{Run, counted};
use mmscale_system::{
    Addr, Advice, Errno, LockWhat, MapSpec, PAGE_BYTES, Present, Prot, System, ThreadSpec,
};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// Ops on each CPU before the common start, which fill its page caches.
const WARMING_OPS: u64 = 8;
/// Pages that a process keeps during its lifetime.
const IMAGE_PAGES: u64 = 4;
/// Pages of an additional process.
const BESIDE_PAGES: u64 = 64;

/// The process that starts the other processes of its CPU.
pub(super) fn start<S: System>(run: &Run<Churn>, system: &S, cpu: usize) {
    let bytes = run.plan.pages * PAGE_BYTES;
    // Page caches are initially empty. Without this, all CPUs would fill their caches concurrently
    // at the start.
    for _ in 0..WARMING_OPS {
        if let Ok(at) = system.mmap(MapSpec::populated(bytes)) {
            let _ = system.munmap(at, bytes);
        }
    }
    let cpus = system.cpus();
    let make = |nth: usize| {
        let (number, run) = (nth * cpus + cpu, run.clone());
        let seed = run.seed ^ (number as u64) << 32;
        let body = move |system: &S| process(&run, system, seed);
        system.process(ThreadSpec::on(cpu), Box::new(body))
    };
    let made: Vec<_> = (0..run.plan.per_cpu).map(make).collect();
    let unmade = made.iter().filter(|process| process.is_err()).count() as u64;
    run.tally.change(|sum| sum.unmade += unmade);
    for process in made.into_iter().flatten() {
        let _ = system.wait(process);
    }
}

/// A process that runs ops.
fn process<S: System>(run: &Run<Churn>, system: &S, seed: u64) {
    let (plan, mut rng) = (&run.plan, Xoshiro256PlusPlus::seed_from_u64(seed));
    counted(run, |tally| {
        let image = system.mmap(MapSpec::new(IMAGE_PAGES * PAGE_BYTES).prot(Prot::Read))?;
        (0..IMAGE_PAGES).try_for_each(|page| system.read(image.page(page)).map(|_| ()))?;
        tally.late += u64::from(!plan.window.begin(system)?);
        let before = system.cpu_time();
        loop {
            let began_ns = system.clock_ns();
            if began_ns >= plan.window.until_ns {
                break;
            }
            tally.begun += 1;
            match op(plan, system, &mut rng, tally) {
                Ok(()) => {
                    let ended_ns = system.clock_ns();
                    if plan.window.counts(ended_ns) {
                        tally.ended += 1;
                        tally.took_ns += ended_ns - began_ns;
                    }
                }
                Err(Errno::Stopped) => return Err(Errno::Stopped),
                Err(_) => tally.failures += 1,
            }
        }
        if let (Some(before), Some(after)) = (before, system.cpu_time()) {
            tally.cpu_user_ns = after.user_ns.saturating_sub(before.user_ns);
            tally.cpu_system_ns = after.system_ns.saturating_sub(before.system_ns);
        }
        Ok(())
    });
}

fn op<S: System>(
    plan: &Plan,
    system: &S,
    rng: &mut Xoshiro256PlusPlus,
    tally: &mut Tally,
) -> Result<(), Errno> {
    let bytes = plan.pages * PAGE_BYTES;
    let spec = if plan.populate { MapSpec::populated(bytes) } else { MapSpec::new(bytes) };
    let at = system.mmap(spec)?;
    // The range is unmapped even if using its pages failed.
    let used = use_pages(plan, system, at, rng, tally);
    system.munmap(at, bytes)?;
    used
}

/// Binds, advises and touches the pages, and computes.
fn use_pages<S: System>(
    plan: &Plan,
    system: &S,
    at: Addr,
    rng: &mut Xoshiro256PlusPlus,
    tally: &mut Tally,
) -> Result<(), Errno> {
    let bytes = plan.pages * PAGE_BYTES;
    if plan.bind == Present::Move {
        let node = rng.next_u64() as usize % system.nodes();
        system.mbind(at, bytes, node, Present::Move)?;
    }
    // Some advice is refused for a single page, such as MADV_COLLAPSE; stress-ng ignores errors.
    let advise = |advice| _ = system.madvise(at, bytes, advice);
    match plan.advise {
        Advise::Never => {}
        Advise::Only(advice) => advise(advice),
        Advise::Mix => {
            advise(DRAWN[rng.next_u64() as usize % DRAWN.len()]);
            ALWAYS.into_iter().for_each(advise);
        }
    }
    let touched = touch(plan, system, at, rng.next_u64() | 1, tally);
    if plan.user_ns > 0 {
        system.compute_ns(plan.user_ns)?;
        tally.user_ns += plan.user_ns;
    }
    touched
}

/// Checks for zeros, writes, reads back.
fn touch<S: System>(
    plan: &Plan,
    system: &S,
    at: Addr,
    stamp: u64,
    tally: &mut Tally,
) -> Result<(), Errno> {
    for here in (0..plan.pages).map(|page| at.page(page)) {
        let fresh = if plan.populate { system.read(here)? == 0 } else { true };
        system.write(here, stamp)?;
        if !fresh || system.read(here)? != stamp {
            tally.damaged += 1;
        }
    }
    Ok(())
}

/// An additional process that needs folios to be on LRU lists. Until the end it locks and unlocks
/// memory, has it migrated to another node, ages it, has it reclaimed, and uses it again.
pub(super) fn beside<S: System>(run: &Run<Churn>, system: &S, cpu: usize) {
    let seed = run.seed ^ (cpu as u64) << 32;
    counted(run, |tally| {
        run.plan.window.begin(system)?;
        while system.clock_ns() < run.plan.window.until_ns {
            tally.rounds += 1;
            match round(system, seed ^ tally.rounds, tally) {
                Ok(()) => {}
                Err(Errno::Nomem | Errno::Again) => tally.round_failures += 1,
                Err(other) => return Err(other),
            }
        }
        Ok(())
    });
}

fn round<S: System>(system: &S, seed: u64, tally: &mut Tally) -> Result<(), Errno> {
    let bytes = BESIDE_PAGES * PAGE_BYTES;
    let at = system.mmap(MapSpec::populated(bytes))?;
    let worked = (|| {
        let stamp = |page: u64| seed << 8 | page;
        (0..BESIDE_PAGES).try_for_each(|page| system.write(at.page(page), stamp(page)))?;
        system.mlock(at, bytes / 2, LockWhat::Everything)?;
        system.munlock(at, bytes / 2)?;
        let node = seed as usize % system.nodes();
        system.mbind(at, bytes, node, Present::Move)?;
        system.madvise(at, bytes, Advice::Cold)?;
        system.madvise(at, bytes, Advice::PageOut)?;
        for page in 0..BESIDE_PAGES {
            tally.damaged += u64::from(system.read(at.page(page))? != stamp(page));
        }
        Ok(())
    })();
    system.munmap(at, bytes)?;
    worked
}
