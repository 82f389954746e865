//! The program of the study: what `stress-ng --mremap` does when its regions are one page long.
//!
//! Each process first maps a few pages and reads them, in place of the image that every real
//! process has: its page tables are there for as long as it lives, and its VMA is a neighbour that
//! the new one cannot join. They stay pages of zeros, which no list knows. Then, again and again:
//! map with MAP_POPULATE, advise, touch, unmap.

use mmscale_system::{
    Addr, Advice, CpuTime, Errno, LockWhat, MapSpec, PAGE_BYTES, Present, Prot, System,
};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// Pages of a process that are there all the time.
const IMAGE_PAGES: u64 = 4;

/// Which advice an op gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Advise {
    /// None.
    Never,
    /// Any kind, each as often as the others.
    Mix,
    /// This.
    Only(Advice),
}

/// What every process does. Times in ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Plan {
    /// Pages of an op.
    pub(crate) pages: u64,
    /// Mapped with their pages, or touched.
    pub(crate) populate: bool,
    pub(crate) advise: Advise,
    /// Whether an op binds its pages to a node and has them moved there.
    pub(crate) bind: Present,
    /// Computing of an op.
    pub(crate) user_ns: u64,
    /// When all begin.
    pub(crate) begin_ns: u64,
    /// What is done from here on counts.
    pub(crate) from_ns: u64,
    /// And what is done until here; then all end.
    pub(crate) until_ns: u64,
}

/// What one process did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Tally {
    /// Ops that count, twice: one begun in time, one ended in time.
    pub(crate) halves: u64,
    /// Ops begun at any time.
    pub(crate) begun: u64,
    pub(crate) user_ns: u64,
    /// Pages that did not hold what they should.
    pub(crate) damaged: u64,
    /// Ops that failed.
    pub(crate) failures: u64,
    /// Processes that were not made yet when all began.
    pub(crate) late: u64,
    /// Processes that could not be made.
    pub(crate) unmade: u64,
    /// CPU time of all ops, where the machine tells it.
    pub(crate) cpu: CpuTime,
}

mmscale_linux::plain!(Tally { halves, begun, user_ns, damaged, failures, late, unmade, cpu });

/// One process.
pub(crate) fn churner<S: System>(system: &S, plan: &Plan, number: usize, seed: u64) -> Tally {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ (number as u64) << 32);
    let mut tally = Tally::default();
    let mut life = || -> Result<(), Errno> {
        image(system)?;
        let ready_ns = system.clock_ns();
        tally.late += u64::from(ready_ns > plan.begin_ns);
        system.sleep_ns(plan.begin_ns.saturating_sub(ready_ns))?;
        let before = system.cpu_time();
        loop {
            let began_ns = system.clock_ns();
            if began_ns >= plan.until_ns {
                tally.cpu = used(before, system.cpu_time());
                return Ok(());
            }
            tally.begun += 1;
            match op(system, plan, &mut rng, &mut tally) {
                Ok(()) => {
                    let window = plan.from_ns..plan.until_ns;
                    let counts = |at_ns: u64| u64::from(window.contains(&at_ns));
                    tally.halves += counts(began_ns) + counts(system.clock_ns());
                }
                Err(Errno::Stopped) => return Err(Errno::Stopped),
                Err(_) => tally.failures += 1,
            }
        }
    };
    // The only way out before the time is the end of the run.
    let _ = life();
    tally
}

impl Tally {
    /// Adds another's.
    pub(crate) fn add(&mut self, other: &Self) {
        self.halves += other.halves;
        self.begun += other.begun;
        self.user_ns += other.user_ns;
        self.damaged += other.damaged;
        self.failures += other.failures;
        self.late += other.late;
        self.unmade += other.unmade;
        self.cpu.user_ns += other.cpu.user_ns;
        self.cpu.system_ns += other.cpu.system_ns;
    }
}

/// CPU time between two looks.
fn used(before: Option<CpuTime>, after: Option<CpuTime>) -> CpuTime {
    let (Some(before), Some(after)) = (before, after) else { return CpuTime::default() };
    CpuTime {
        user_ns: after.user_ns.saturating_sub(before.user_ns),
        system_ns: after.system_ns.saturating_sub(before.system_ns),
    }
}

/// Ops of each CPU before all begin.
const WARMING_OPS: u64 = 8;

/// What fills a CPU's page caches, which begin empty: otherwise all CPUs fill theirs at once when
/// they begin.
pub(crate) fn warm<S: System>(system: &S, plan: &Plan) {
    let bytes = plan.pages * PAGE_BYTES;
    for _ in 0..WARMING_OPS {
        if let Ok(at) = system.mmap(MapSpec::populated(bytes)) {
            let _ = system.munmap(at, bytes);
        }
    }
}

/// What a process has in memory besides.
fn image<S: System>(system: &S) -> Result<(), Errno> {
    let at = system.mmap(MapSpec::new(IMAGE_PAGES * PAGE_BYTES).prot(Prot::Read))?;
    (0..IMAGE_PAGES).try_for_each(|page| system.read(at.page(page)).map(|_| ()))
}

fn op<S: System>(
    system: &S,
    plan: &Plan,
    rng: &mut Xoshiro256PlusPlus,
    tally: &mut Tally,
) -> Result<(), Errno> {
    let bytes = plan.pages * PAGE_BYTES;
    let spec = if plan.populate { MapSpec::populated(bytes) } else { MapSpec::new(bytes) };
    let at = system.mmap(spec)?;
    // The mapping goes whatever came of its pages.
    let used = use_pages(system, plan, at, rng, tally);
    system.munmap(at, bytes)?;
    used
}

/// Binds, advises, touches, computes.
fn use_pages<S: System>(
    system: &S,
    plan: &Plan,
    at: Addr,
    rng: &mut Xoshiro256PlusPlus,
    tally: &mut Tally,
) -> Result<(), Errno> {
    let bytes = plan.pages * PAGE_BYTES;
    if plan.bind == Present::Move {
        let node = rng.next_u64() as usize % system.nodes();
        system.mbind(at, bytes, node, Present::Move)?;
    }
    let advice = match plan.advise {
        Advise::Never => None,
        Advise::Only(advice) => Some(advice),
        Advise::Mix => Some(Advice::ALL[rng.next_u64() as usize % Advice::ALL.len()]),
    };
    if let Some(advice) = advice {
        // Some advice is refused for a single page, as collapsing is; stress-ng goes on, too.
        let _ = system.madvise(at, bytes, advice);
    }
    let touched = touch(system, plan, at, rng.next_u64() | 1, tally);
    if plan.user_ns > 0 {
        system.compute_ns(plan.user_ns)?;
        tally.user_ns += plan.user_ns;
    }
    touched
}

/// Finds zeros, writes, reads back.
fn touch<S: System>(
    system: &S,
    plan: &Plan,
    at: Addr,
    stamp: u64,
    tally: &mut Tally,
) -> Result<(), Errno> {
    for page in 0..plan.pages {
        let here = at.page(page);
        let fresh = if plan.populate { system.read(here)? == 0 } else { true };
        system.write(here, stamp)?;
        if !fresh || system.read(here)? != stamp {
            tally.damaged += 1;
        }
    }
    Ok(())
}

/// Pages that a [`meddler`] works on.
const MEDDLED_PAGES: u64 = 64;

/// A process that needs folios on their lists, again and again until the end: it locks memory and
/// lets it go, has it moved to another node, ages it, has it reclaimed, and uses it again.
pub(crate) fn meddler<S: System>(system: &S, plan: &Plan, seed: u64) -> Tally {
    let mut tally = Tally::default();
    let mut life = || -> Result<(), Errno> {
        system.sleep_ns(plan.begin_ns.saturating_sub(system.clock_ns()))?;
        while system.clock_ns() < plan.until_ns {
            tally.begun += 1;
            match meddle(system, seed ^ tally.begun, &mut tally) {
                Ok(()) => {}
                Err(Errno::Nomem | Errno::Again) => tally.failures += 1,
                Err(other) => return Err(other),
            }
        }
        Ok(())
    };
    // The only way out before the time is the end of the run.
    let _ = life();
    tally
}

fn meddle<S: System>(system: &S, seed: u64, tally: &mut Tally) -> Result<(), Errno> {
    let bytes = MEDDLED_PAGES * PAGE_BYTES;
    let at = system.mmap(MapSpec::populated(bytes))?;
    let worked = (|| {
        let stamp = |page: u64| seed << 8 | page;
        for page in 0..MEDDLED_PAGES {
            system.write(at.page(page), stamp(page))?;
        }
        system.mlock(at, bytes / 2, LockWhat::Everything)?;
        system.munlock(at, bytes / 2)?;
        let node = seed as usize % system.nodes();
        system.mbind(at, bytes, node, Present::Move)?;
        system.madvise(at, bytes, Advice::Cold)?;
        system.madvise(at, bytes, Advice::PageOut)?;
        for page in 0..MEDDLED_PAGES {
            tally.damaged += u64::from(system.read(at.page(page))? != stamp(page));
        }
        Ok(())
    })();
    system.munmap(at, bytes)?;
    worked
}
