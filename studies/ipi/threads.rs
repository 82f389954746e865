//! The programs of the study: a service whose threads are spread over all CPUs and that changes its
//! memory on a few of them, and on each CPU a monitor with the highest priority.

use super::{CALLS, Ipi, Plan, Tally, WAKEUPS, Work};
use mmscale_harness::{Run, insist};
use mmscale_system::{
    Addr, Advice, Errno, MapSpec, PAGE_BYTES, Place, ProcessId, Prot, System, ThreadId, ThreadSpec,
};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// Pages of a short-lived mapping.
const MAPPED_PAGES: u64 = 4;
/// Pages that a worker keeps and changes in place.
const KEPT_PAGES: u64 = 16;
/// Number of kept pages that an op changes.
const CHANGED_PAGES: u64 = 4;
/// Pages of each thread of a process that exits.
const CHILD_PAGES: u64 = 8;
/// Start of the threads' memory. Each CPU has a separate part, like the arenas of an allocator: no
/// two threads share a page table.
const ARENAS: u64 = 1 << 40;
const ARENA_BYTES: u64 = 64 << 20;
/// Time that a poller computes between two accesses to memory.
const POLL_NS: u64 = 1_000_000;
/// The priority of the watchmen: above all other tasks.
const MOST_URGENT: u8 = 99;

/// Starts the service in one process, and the watchmen by `watch` in another one, unless all CPUs
/// flush.
pub(super) fn start<S: System>(
    run: &Run<Ipi>,
    system: &S,
    watch: impl FnOnce(&S) + Send + 'static,
) -> Vec<ProcessId> {
    let serving = run.clone();
    let service = Box::new(move |system: &S| _ = service(&serving, system));
    let service = system.process(ThreadSpec::on(0), service);
    let watches = run.plan.work != Work::Flush;
    let watch = watches.then(|| system.process(ThreadSpec::on(0), Box::new(watch)));
    [Some(service), watch].into_iter().flatten().flatten().collect()
}

/// Returns the working CPUs: those of the real measurements, as far as at least as many CPUs remain
/// for pollers.
pub(super) fn workers(cpus: usize) -> Vec<usize> {
    let at_most = (cpus / 2).max(1);
    [0, 3, 8, 11].into_iter().filter(|&cpu| cpu < cpus).take(at_most).collect()
}

/// The first thread of the service, on its first CPU: starts the other threads, then works too.
fn service<S: System>(run: &Run<Ipi>, system: &S) -> Result<(), Errno> {
    let (workers, all) = (workers(system.cpus()), run.plan.work == Work::Flush);
    let role = |cpu| if all || workers.contains(&cpu) { Role::Work } else { Role::Poll };
    let others = 1..system.cpus();
    let threads = others.map(|cpu| spawn(run, system, ThreadSpec::on(cpu), role(cpu)));
    let mut threads = threads.collect::<Result<Vec<_>, _>>()?;
    if run.plan.hog_pages > 0 {
        for cpu in workers {
            threads.push(spawn(run, system, ThreadSpec::on(cpu), Role::Hog)?);
        }
    }
    Thread::live(run, system, 0, Role::Work)?;
    threads.into_iter().try_for_each(|thread| system.join(thread))
}

/// Returns the specification of a monitor with the highest priority.
pub(super) fn monitor_on(cpu: usize) -> ThreadSpec {
    ThreadSpec::on(cpu).real_time(MOST_URGENT)
}

/// The first thread of the observing process. Starts a monitor on each CPU, according to `spec`.
pub(super) fn watch<S: System>(
    run: &Run<Ipi>,
    system: &S,
    spec: fn(usize) -> ThreadSpec,
) -> Result<(), Errno> {
    let threads = (0..system.cpus()).map(|cpu| spawn(run, system, spec(cpu), Role::Watch));
    let threads = threads.collect::<Result<Vec<_>, _>>()?;
    threads.into_iter().try_for_each(|thread| system.join(thread))
}

/// The role of a thread.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Runs ops.
    Work,
    /// Computes.
    Poll,
    /// Wakes up with the highest priority.
    Watch,
    /// Writes more memory than there is, together with the others of its kind.
    Hog,
}

fn spawn<S: System>(
    run: &Run<Ipi>,
    system: &S,
    spec: ThreadSpec,
    role: Role,
) -> Result<ThreadId, Errno> {
    let run = run.clone();
    let body = move |system: &S| _ = Thread::live(&run, system, spec.cpu, role);
    system.spawn(spec, Box::new(body))
}

/// A thread with its counters.
struct Thread<'a, S> {
    system: &'a S,
    plan: &'a Plan,
    cpu: usize,
    rng: Xoshiro256PlusPlus,
    tally: Tally,
    times_ns: Vec<u64>,
}

impl<'a, S: System> Thread<'a, S> {
    /// Runs a thread in the given role, and adds its counters to those of all threads.
    fn live(run: &'a Run<Ipi>, system: &'a S, cpu: usize, role: Role) -> Result<(), Errno> {
        let (what, samples): (u64, _) = if role == Role::Watch { (2, WAKEUPS) } else { (1, CALLS) };
        let rng = Xoshiro256PlusPlus::seed_from_u64(run.seed ^ what << 56 ^ (cpu as u64) << 32);
        let (plan, tally, times_ns) = (&run.plan, Tally::default(), Vec::new());
        let mut thread = Self { system, plan, cpu, rng, tally, times_ns };
        let lived = match (role, plan.work) {
            (Role::Watch, _) => thread.watch(),
            (Role::Poll, _) => thread.poll(),
            (Role::Hog, _) => thread.hog(),
            (Role::Work, Work::Mixed) => thread.mixed(),
            (Role::Work, Work::Flush) => thread.flush(),
            (Role::Work, Work::Reclaim) => thread.reclaim(),
            (Role::Work, Work::Spawn) => thread.spawn(),
        };
        run.tally.change(|sum| *sum += thread.tally);
        run.samples[samples].add(cpu, thread.times_ns);
        lived
    }
    /// Computes, and accesses a page of its own now and then.
    fn poll(&mut self) -> Result<(), Errno> {
        let (system, until_ns) = (self.system, self.plan.window_ns.end);
        let page = self.keep(1)?;
        insist(|| system.write(page, 1))?;
        while system.clock_ns() < until_ns {
            system.read(page)?;
            system.compute_ns(POLL_NS.min(until_ns.saturating_sub(system.clock_ns()).max(1)))?;
        }
        Ok(())
    }
    /// Writes its memory from begin to end, again and again.
    fn hog(&mut self) -> Result<(), Errno> {
        let (system, pages) = (self.system, self.plan.hog_pages);
        let at = insist(|| system.mmap(MapSpec::new(pages * PAGE_BYTES)))?;
        for stamp in 1.. {
            for page in 0..pages {
                if system.clock_ns() >= self.plan.window_ns.end {
                    return Ok(());
                }
                match system.write(at.page(page), stamp) {
                    Err(Errno::Nomem) => self.tally.failures += 1,
                    written => written?,
                }
            }
        }
        Ok(())
    }
    /// Sleeps for random times, and records wake-up latencies.
    fn watch(&mut self) -> Result<(), Errno> {
        loop {
            let gap_ns = self.around(self.plan.wake_gap_ns);
            let due_ns = self.system.clock_ns() + gap_ns;
            if due_ns >= self.plan.window_ns.end {
                return Ok(());
            }
            self.system.sleep_ns(gap_ns)?;
            if due_ns >= self.plan.window_ns.start {
                self.times_ns.push(self.system.clock_ns().saturating_sub(due_ns));
            }
        }
    }

    /// Returns a random time between 0.5 and 1.5 times `mean_ns`.
    fn around(&mut self, mean_ns: u64) -> u64 {
        mean_ns / 2 + self.rng.next_u64() % mean_ns.max(1)
    }
    /// Returns `pages` pages of this CPU's arena, starting with its page `from`.
    fn arena(&self, from: u64, pages: u64) -> MapSpec {
        let at = Addr(ARENAS + self.cpu as u64 * ARENA_BYTES).page(from);
        MapSpec::new(pages * PAGE_BYTES).at(Place::Fixed(at))
    }
    /// Maps the first `pages` pages of the arena.
    fn keep(&self, pages: u64) -> Result<Addr, Errno> {
        insist(|| self.system.mmap(self.arena(0, pages)))
    }
    fn sleep_until_windows_begin(&self) -> Result<(), Errno> {
        self.system.sleep_ns(self.plan.window_ns.start.saturating_sub(self.system.clock_ns()))
    }
    /// Computes for half of the time until the next op, and sleeps for the other half. Returns
    /// whether there is time left for the op.
    fn comes_to_an_op(&mut self) -> Result<bool, Errno> {
        let gap_ns = self.around(self.plan.op_gap_ns);
        self.system.compute_ns(gap_ns / 2)?;
        self.system.sleep_ns(gap_ns / 2)?;
        Ok(self.system.clock_ns() < self.plan.window_ns.end)
    }
    /// Counts an op that has just ended, if it ended in time.
    fn op_ended(&mut self) {
        self.tally.ops += u64::from(self.system.clock_ns() <= self.plan.window_ns.end);
    }
    /// Executes a call and records its duration, if the whole call is within the time that counts.
    fn timed(&mut self, call: impl FnOnce(&S) -> Result<(), Errno>) -> Result<(), Errno> {
        let begin_ns = self.system.clock_ns();
        let result = call(self.system);
        let end_ns = self.system.clock_ns();
        if begin_ns >= self.plan.window_ns.start && end_ns <= self.plan.window_ns.end {
            self.times_ns.push(end_ns - begin_ns);
        }
        result
    }

    /// Discards and touches a page, repeatedly.
    fn flush(&mut self) -> Result<(), Errno> {
        let page = self.keep(1)?;
        self.sleep_until_windows_begin()?;
        while self.system.clock_ns() < self.plan.window_ns.end {
            match self.system.write(page, 1) {
                Err(Errno::Nomem) => self.tally.failures += 1,
                written => written?,
            }
            self.timed(|system| system.madvise(page, PAGE_BYTES, Advice::DontNeed))?;
            self.op_ended();
        }
        Ok(())
    }
    /// Has pages reclaimed whose content is already in swap, and reads them again. The first time
    /// they are written; afterwards only translations have to be removed.
    fn reclaim(&mut self) -> Result<(), Errno> {
        let (system, bytes) = (self.system, KEPT_PAGES * PAGE_BYTES);
        let kept = self.keep(KEPT_PAGES)?;
        for page in 0..KEPT_PAGES {
            insist(|| system.write(kept.page(page), page + 1))?;
        }
        system.madvise(kept, bytes, Advice::PageOut)?;
        self.sleep_until_windows_begin()?;
        while self.comes_to_an_op()? {
            for page in 0..KEPT_PAGES {
                let held = insist(|| system.read(kept.page(page)))?;
                self.tally.damaged += u64::from(held != page + 1);
            }
            self.timed(|system| system.madvise(kept, bytes, Advice::PageOut))?;
            self.op_ended();
        }
        Ok(())
    }
    /// Creates threads that exit immediately, more than a CPU's stack cache holds, and waits for
    /// them.
    fn spawn(&mut self) -> Result<(), Errno> {
        self.sleep_until_windows_begin()?;
        while self.comes_to_an_op()? {
            let mut threads = Vec::new();
            for _ in 0..self.plan.burst {
                let spec = ThreadSpec::on(self.cpu);
                let start = |system: &S| {
                    threads.push(system.spawn(spec, Box::new(|_| {}))?);
                    Ok(())
                };
                match self.timed(start) {
                    Err(Errno::Nomem | Errno::Again) => self.tally.failures += 1,
                    started => started?,
                }
            }
            threads.into_iter().try_for_each(|thread| self.system.join(thread))?;
            self.op_ended();
        }
        Ok(())
    }
    /// Runs ops in random order, sleeping for half of the time between them.
    fn mixed(&mut self) -> Result<(), Errno> {
        let kept = self.keep(KEPT_PAGES)?;
        self.sleep_until_windows_begin()?;
        let mut stamp = 0;
        while self.comes_to_an_op()? {
            stamp += 1 << 8;
            match self.op(kept, stamp) {
                Ok(()) => self.op_ended(),
                Err(Errno::Nomem | Errno::Again) => self.tally.failures += 1,
                Err(other) => return Err(other),
            }
        }
        Ok(())
    }
    fn op(&mut self, kept: Addr, stamp: u64) -> Result<(), Errno> {
        let choice = self.rng.next_u64();
        match choice % 16 {
            0..=4 => self.come_and_go(stamp),
            15 => self.child(),
            how => {
                let at = kept.page(choice / 16 % (KEPT_PAGES - CHANGED_PAGES));
                self.fill(at, CHANGED_PAGES, stamp)?;
                self.change(how, at, stamp)
            }
        }
    }
    fn fill(&self, at: Addr, pages: u64, stamp: u64) -> Result<(), Errno> {
        (0..pages).try_for_each(|page| self.system.write(at.page(page), stamp | page))
    }
    /// Maps, writes and unmaps memory.
    fn come_and_go(&mut self, stamp: u64) -> Result<(), Errno> {
        let at = self.system.mmap(self.arena(2 * KEPT_PAGES, MAPPED_PAGES))?;
        let filled = self.fill(at, MAPPED_PAGES, stamp);
        self.timed(|system| system.munmap(at, MAPPED_PAGES * PAGE_BYTES))?;
        filled
    }
    /// Write-protects pages temporarily, discards them, or has them reclaimed.
    fn change(&mut self, how: u64, at: Addr, stamp: u64) -> Result<(), Errno> {
        let bytes = CHANGED_PAGES * PAGE_BYTES;
        match how {
            5..=8 => {
                self.timed(|system| system.mprotect(at, bytes, Prot::Read))?;
                self.check(at, |page| stamp | page)?;
                self.system.mprotect(at, bytes, Prot::ReadWrite)
            }
            9..=11 => {
                self.timed(|system| system.madvise(at, bytes, Advice::DontNeed))?;
                if self.plan.copies { self.check(at, |_| 0) } else { Ok(()) }
            }
            _ => {
                self.timed(|system| system.madvise(at, bytes, Advice::PageOut))?;
                self.check(at, |page| stamp | page)
            }
        }
    }
    fn check(&mut self, at: Addr, held: impl Fn(u64) -> u64) -> Result<(), Errno> {
        for page in 0..CHANGED_PAGES {
            let found = self.system.read(at.page(page))?;
            self.tally.damaged += u64::from(found != held(page));
        }
        Ok(())
    }
    /// Forks a process with a thread on every working CPU, which exits with memory mapped.
    fn child(&self) -> Result<(), Errno> {
        let mut others = workers(self.system.cpus());
        others.retain(|&other| other != self.cpu);
        let body = move |system: &S| {
            // The child exits even if it lacks memory.
            let _ = child(system, &others);
        };
        let child = self.system.process(ThreadSpec::on(self.cpu), Box::new(body))?;
        self.system.wait(child).map(|_| ())
    }
}

fn child<S: System>(system: &S, others: &[usize]) -> Result<(), Errno> {
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
