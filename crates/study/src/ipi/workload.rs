//! The programs of the study: a service whose threads are spread over all CPUs and that changes its
//! memory on a few of them, and a watchman on each CPU, more urgent than everything else.

use crate::study::StudyError;
use mmscale_system::{
    Addr, Advice, Errno, MapSpec, PAGE_BYTES, Place, ProcessId, Prot, System, ThreadSpec,
};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::sync::{Arc, Mutex};

/// Pages of a mapping that comes and goes.
const MAPPED_PAGES: u64 = 4;
/// Pages that a worker keeps, and changes in place.
const KEPT_PAGES: u64 = 16;
/// Of these, how many an op changes.
const CHANGED_PAGES: u64 = 4;
/// Pages of each thread of a process that ends.
const CHILD_PAGES: u64 = 8;
/// Where threads keep their memory, a stretch for each CPU, as the arenas of an allocator: no two
/// threads share a page table.
const ARENAS: u64 = 1 << 40;
const ARENA_BYTES: u64 = 64 << 20;
/// How long a poller computes between two looks at memory.
const POLL_NS: u64 = 1_000_000;
/// The priority of the watchmen: above everything else.
const MOST_URGENT: u8 = 99;

/// What all programs do and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Plan {
    /// From here on counts what they do.
    pub(super) from_ns: u64,
    /// Then all end.
    pub(super) until_ns: u64,
    pub(super) op_gap_ns: u64,
    pub(super) wake_gap_ns: u64,
    pub(super) work: Work,
    /// Whether workers read pages that they have let go before they write to them: each is then
    /// the page of zeros, and copied, with a flush under the lock of its page table.
    pub(super) copies: bool,
    pub(super) seed: u64,
}

/// What the service does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Work {
    /// Workers on some CPUs, pollers on the others, watchmen on all.
    Mixed,
    /// Every CPU lets a page go, again and again.
    Flush,
    /// The workers have pages reclaimed that they have only read; pollers and watchmen as above.
    Reclaim,
}

/// What threads did.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// Ops that began and ended in time.
    pub(super) ops: u64,
    pub(super) failures: u64,
    /// How long the calls of these ops took, that change translations which others may keep.
    pub(super) call_ns: Vec<u64>,
    /// How late the watchman of a CPU ran: the CPU and the delay.
    pub(super) latency_ns: Vec<(usize, u64)>,
    /// Pages that did not hold what they should.
    pub(super) damaged: u64,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.ops += other.ops;
        self.failures += other.failures;
        self.damaged += other.damaged;
        self.call_ns.extend(other.call_ns);
        self.latency_ns.extend(other.latency_ns);
    }
}

/// Where tallies go that other processes have to see.
pub(super) trait Sink: Send + Sync {
    /// One thread's, at its end.
    fn add(&self, tally: Tally);
}

/// Where all threads put their tallies.
#[derive(Clone, Default)]
pub(super) struct Books {
    own: Arc<Mutex<Tally>>,
    /// Instead of `own`, where processes do not share the memory of the tool.
    elsewhere: Option<Arc<dyn Sink>>,
}

impl Books {
    /// Tallies go to `sink`.
    pub(super) fn into(sink: Arc<dyn Sink>) -> Self {
        Self { elsewhere: Some(sink), ..Self::default() }
    }
    fn add(&self, tally: Tally) {
        match &self.elsewhere {
            Some(sink) => sink.add(tally),
            None => self.own.lock().expect("nobody panics while adding").add(tally),
        }
    }
    pub(super) fn take(&self) -> Tally {
        std::mem::take(&mut *self.own.lock().expect("all programs have ended"))
    }
}

/// Starts the service in a process of its own, and those who `watch` in another one, unless all
/// flush.
pub(super) fn start<S: System>(
    system: &S,
    plan: Plan,
    books: &Books,
    watch: impl FnOnce(&S) + Send + 'static,
) -> Vec<ProcessId> {
    let books = books.clone();
    let service = move |system: &S| _ = service(system, plan, &books);
    let service = system.process(ThreadSpec::on(0), Box::new(service));
    let watch =
        (plan.work != Work::Flush).then(|| system.process(ThreadSpec::on(0), Box::new(watch)));
    [Some(service), watch].into_iter().flatten().flatten().collect()
}

/// Whether all pages held what they should, and anything was done in the time that counts.
pub(super) fn check(ops: u64, damaged: u64) -> Result<(), StudyError> {
    if damaged > 0 {
        let what = format!("{damaged} pages did not hold what their process had written");
        return Err(StudyError::Check(vec![what]));
    }
    if ops == 0 {
        let what = "no op began and ended in the time that counts: give it more (--set window_s \
                    or flush_ms)";
        return Err(StudyError::Machine(what.to_owned()));
    }
    Ok(())
}

/// The CPUs that work, of `cpus`: those on which the real measurements were made, as far as there
/// is a CPU left to poll.
pub(super) fn workers(cpus: usize) -> Vec<usize> {
    let at_most = (cpus / 2).max(1);
    [0, 3, 8, 11].into_iter().filter(|&cpu| cpu < cpus).take(at_most).collect()
}

/// `pages` pages of the arena of `cpu`, from page `from` of it on.
fn arena(cpu: usize, from: u64, pages: u64) -> MapSpec {
    let at = Addr(ARENAS + cpu as u64 * ARENA_BYTES).page(from);
    MapSpec::new(pages * PAGE_BYTES).at(Place::Fixed(at))
}

fn rng_of(plan: &Plan, what: u64, cpu: usize) -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(plan.seed ^ what << 56 ^ (cpu as u64) << 32)
}

/// Anything from half of `mean_ns` to one and a half of it.
fn around(rng: &mut Xoshiro256PlusPlus, mean_ns: u64) -> u64 {
    mean_ns / 2 + rng.next_u64() % mean_ns.max(1)
}

/// The first thread of the service, on its first CPU: starts the others, and then works too.
pub(super) fn service<S: System>(system: &S, plan: Plan, books: &Books) -> Result<(), Errno> {
    let cpus = system.cpus();
    let workers = workers(cpus);
    let mut threads = Vec::new();
    for cpu in 1..cpus {
        let (books, works) = (books.clone(), plan.work == Work::Flush || workers.contains(&cpu));
        let body = move |system: &S| {
            let mut tally = Tally::default();
            // The only way out before the time is the end of the run.
            let _ =
                if works { work(system, &plan, cpu, &mut tally) } else { poll(system, &plan, cpu) };
            books.add(tally);
        };
        threads.push(system.spawn(ThreadSpec::on(cpu), Box::new(body))?);
    }
    let mut tally = Tally::default();
    let worked = work(system, &plan, 0, &mut tally);
    books.add(tally);
    worked?;
    threads.into_iter().try_for_each(|thread| system.join(thread))
}

/// Computes, and looks at a page of its own now and then.
fn poll<S: System>(system: &S, plan: &Plan, cpu: usize) -> Result<(), Errno> {
    let page = insist(|| system.mmap(arena(cpu, 0, 1)))?;
    insist(|| system.write(page, 1))?;
    while system.clock_ns() < plan.until_ns {
        system.read(page)?;
        system.compute_ns(POLL_NS.min(plan.until_ns.saturating_sub(system.clock_ns()).max(1)))?;
    }
    Ok(())
}

fn work<S: System>(system: &S, plan: &Plan, cpu: usize, tally: &mut Tally) -> Result<(), Errno> {
    match plan.work {
        Work::Mixed => mixed(system, plan, cpu, tally),
        Work::Flush => flush(system, plan, cpu, tally),
        Work::Reclaim => reclaim(system, plan, cpu, tally),
    }
}

/// Computes for half of the time until the next op, and sleeps for the other half. Says whether
/// there is time left for the op.
fn comes_to_an_op<S: System>(
    system: &S,
    plan: &Plan,
    rng: &mut Xoshiro256PlusPlus,
) -> Result<bool, Errno> {
    let gap_ns = around(rng, plan.op_gap_ns);
    system.compute_ns(gap_ns / 2)?;
    system.sleep_ns(gap_ns / 2)?;
    Ok(system.clock_ns() < plan.until_ns)
}

/// Notes how long a call took, if all of it counts.
fn timed<S: System, T>(
    system: &S,
    plan: &Plan,
    tally: &mut Tally,
    call: impl FnOnce() -> Result<T, Errno>,
) -> Result<T, Errno> {
    let begin_ns = system.clock_ns();
    let result = call();
    let end_ns = system.clock_ns();
    if begin_ns >= plan.from_ns && end_ns <= plan.until_ns {
        tally.call_ns.push(end_ns - begin_ns);
    }
    result
}

/// Lets a page go and touches it, again and again.
fn flush<S: System>(system: &S, plan: &Plan, cpu: usize, tally: &mut Tally) -> Result<(), Errno> {
    let page = insist(|| system.mmap(arena(cpu, 0, 1)))?;
    system.sleep_ns(plan.from_ns.saturating_sub(system.clock_ns()))?;
    while system.clock_ns() < plan.until_ns {
        match system.write(page, 1) {
            Ok(()) => {}
            Err(Errno::Nomem) => tally.failures += 1,
            Err(other) => return Err(other),
        }
        timed(system, plan, tally, || system.madvise(page, PAGE_BYTES, Advice::DontNeed))?;
        tally.ops += u64::from(system.clock_ns() <= plan.until_ns);
    }
    Ok(())
}

/// Has pages reclaimed whose content is in swap already, and reads them again. The first time they
/// are written out; from then on nothing but translations stands in the way.
fn reclaim<S: System>(system: &S, plan: &Plan, cpu: usize, tally: &mut Tally) -> Result<(), Errno> {
    let mut rng = rng_of(plan, 1, cpu);
    let (kept, bytes) =
        (insist(|| system.mmap(arena(cpu, 0, KEPT_PAGES)))?, KEPT_PAGES * PAGE_BYTES);
    for page in 0..KEPT_PAGES {
        insist(|| system.write(kept.page(page), page + 1))?;
    }
    system.madvise(kept, bytes, Advice::PageOut)?;
    system.sleep_ns(plan.from_ns.saturating_sub(system.clock_ns()))?;
    while comes_to_an_op(system, plan, &mut rng)? {
        for page in 0..KEPT_PAGES {
            tally.damaged += u64::from(insist(|| system.read(kept.page(page)))? != page + 1);
        }
        timed(system, plan, tally, || system.madvise(kept, bytes, Advice::PageOut))?;
        tally.ops += u64::from(system.clock_ns() <= plan.until_ns);
    }
    Ok(())
}

/// What a worker keeps for its ops.
struct Worker<'a, S> {
    system: &'a S,
    plan: &'a Plan,
    kept: Addr,
    others: Vec<usize>,
    cpu: usize,
    stamp: u64,
}

/// Ops in a random order, with half of the time between them asleep.
fn mixed<S: System>(system: &S, plan: &Plan, cpu: usize, tally: &mut Tally) -> Result<(), Errno> {
    let mut rng = rng_of(plan, 1, cpu);
    let kept = insist(|| system.mmap(arena(cpu, 0, KEPT_PAGES)))?;
    let others = workers(system.cpus()).into_iter().filter(|&other| other != cpu).collect();
    let mut worker = Worker { system, plan, kept, others, cpu, stamp: 0 };
    system.sleep_ns(plan.from_ns.saturating_sub(system.clock_ns()))?;
    while comes_to_an_op(system, plan, &mut rng)? {
        worker.stamp += 1;
        match worker.op(rng.next_u64(), tally) {
            Ok(()) => tally.ops += u64::from(system.clock_ns() <= plan.until_ns),
            Err(Errno::Nomem | Errno::Again) => tally.failures += 1,
            Err(other) => return Err(other),
        }
    }
    Ok(())
}

/// Asks again until there is memory: a run may inject failures.
fn insist<T>(mut ask: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    const ATTEMPTS: usize = 1000;
    let asked = (1..ATTEMPTS).find_map(|_| match ask() {
        Err(Errno::Nomem) => None,
        answer => Some(answer),
    });
    asked.unwrap_or_else(ask)
}

impl<S: System> Worker<'_, S> {
    fn op(&self, choice: u64, tally: &mut Tally) -> Result<(), Errno> {
        let part = self.kept.page(choice / 16 % (KEPT_PAGES - CHANGED_PAGES));
        match choice % 16 {
            0..=4 => self.come_and_go(tally),
            5..=8 => self.protect(part, tally),
            9..=11 => self.let_go(part, tally),
            12..=14 => self.page_out(part, tally),
            _ => self.child(),
        }
    }
    fn fill(&self, at: Addr, pages: u64) -> Result<(), Errno> {
        (0..pages).try_for_each(|page| self.system.write(at.page(page), self.stamp << 8 | page))
    }
    fn check(&self, at: Addr, pages: u64, tally: &mut Tally) -> Result<(), Errno> {
        for page in 0..pages {
            let held = self.system.read(at.page(page))?;
            tally.damaged += u64::from(held != self.stamp << 8 | page);
        }
        Ok(())
    }
    /// Maps, writes, unmaps.
    fn come_and_go(&self, tally: &mut Tally) -> Result<(), Errno> {
        let (system, bytes) = (self.system, MAPPED_PAGES * PAGE_BYTES);
        let at = system.mmap(arena(self.cpu, 2 * KEPT_PAGES, MAPPED_PAGES))?;
        let filled = self.fill(at, MAPPED_PAGES);
        timed(system, self.plan, tally, || system.munmap(at, bytes))?;
        filled
    }
    /// Takes the right to write away, and gives it back.
    fn protect(&self, at: Addr, tally: &mut Tally) -> Result<(), Errno> {
        let (system, bytes) = (self.system, CHANGED_PAGES * PAGE_BYTES);
        self.fill(at, CHANGED_PAGES)?;
        timed(system, self.plan, tally, || system.mprotect(at, bytes, Prot::Read))?;
        self.check(at, CHANGED_PAGES, tally)?;
        system.mprotect(at, bytes, Prot::ReadWrite)
    }
    fn let_go(&self, at: Addr, tally: &mut Tally) -> Result<(), Errno> {
        let (system, bytes) = (self.system, CHANGED_PAGES * PAGE_BYTES);
        self.fill(at, CHANGED_PAGES)?;
        timed(system, self.plan, tally, || system.madvise(at, bytes, Advice::DontNeed))?;
        if self.plan.copies {
            for page in 0..CHANGED_PAGES {
                tally.damaged += u64::from(system.read(at.page(page))? != 0);
            }
        }
        Ok(())
    }
    /// Has pages reclaimed, and uses them again.
    fn page_out(&self, at: Addr, tally: &mut Tally) -> Result<(), Errno> {
        let (system, bytes) = (self.system, CHANGED_PAGES * PAGE_BYTES);
        self.fill(at, CHANGED_PAGES)?;
        timed(system, self.plan, tally, || system.madvise(at, bytes, Advice::PageOut))?;
        self.check(at, CHANGED_PAGES, tally)
    }
    /// A process with a thread on every working CPU, that ends with memory mapped.
    fn child(&self) -> Result<(), Errno> {
        let others = self.others.clone();
        let body = move |system: &S| {
            // Whatever it lacks, it ends.
            let _ = live(system, &others);
        };
        let child = self.system.process(ThreadSpec::on(self.cpu), Box::new(body))?;
        self.system.wait(child).map(|_| ())
    }
}

fn live<S: System>(system: &S, others: &[usize]) -> Result<(), Errno> {
    let pages = CHILD_PAGES * (others.len() as u64 + 1);
    let at = system.mmap(MapSpec::new(pages * PAGE_BYTES))?;
    let fill = move |system: &S, nth: u64| {
        let mine = at.page(nth * CHILD_PAGES);
        (0..CHILD_PAGES).try_for_each(|page| system.write(mine.page(page), page + 1))
    };
    let start = |(nth, &cpu): (usize, &usize)| {
        let body = move |system: &S| _ = fill(system, nth as u64 + 1);
        system.spawn(ThreadSpec::on(cpu), Box::new(body))
    };
    let threads: Vec<_> = others.iter().enumerate().map(start).collect();
    fill(system, 0)?;
    threads.into_iter().try_for_each(|thread| system.join(thread?))
}

/// A watchman's place, and its right to go before everybody else.
pub(super) fn watchman_on(cpu: usize) -> ThreadSpec {
    ThreadSpec::on(cpu).real_time(MOST_URGENT)
}

/// The first thread of the process that watches, which starts a watchman on each CPU, as `spec`
/// says.
pub(super) fn watch<S: System>(
    system: &S,
    plan: Plan,
    books: &Books,
    spec: fn(usize) -> ThreadSpec,
) -> Result<(), Errno> {
    let mut threads = Vec::new();
    for cpu in 0..system.cpus() {
        let books = books.clone();
        let body = move |system: &S| {
            let mut tally = Tally::default();
            let _ = watchman(system, &plan, cpu, &mut tally);
            books.add(tally);
        };
        threads.push(system.spawn(spec(cpu), Box::new(body))?);
    }
    threads.into_iter().try_for_each(|thread| system.join(thread))
}

/// Sleeps for a random time, and notes how late it runs again.
fn watchman<S: System>(
    system: &S,
    plan: &Plan,
    cpu: usize,
    tally: &mut Tally,
) -> Result<(), Errno> {
    let mut rng = rng_of(plan, 2, cpu);
    loop {
        let gap_ns = around(&mut rng, plan.wake_gap_ns);
        let due_ns = system.clock_ns() + gap_ns;
        if due_ns >= plan.until_ns {
            return Ok(());
        }
        system.sleep_ns(gap_ns)?;
        if due_ns >= plan.from_ns {
            tally.latency_ns.push((cpu, system.clock_ns().saturating_sub(due_ns)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_half_of_the_cpus_work() {
        assert_eq!(workers(16), [0, 3, 8, 11]);
        assert_eq!((workers(1), workers(2), workers(4)), (vec![0], vec![0], vec![0, 3]));
        assert_eq!(workers(9), [0, 3, 8]);
    }
}
