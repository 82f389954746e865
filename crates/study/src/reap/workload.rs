//! The victim, and the processes that end it and help to take it down.

use super::layout::{Filled, Mapping, Of};
use mmscale_linux::Shared;
use mmscale_system::{
    Addr, Advice, CpuTime, Errno, Fd, MapSpec, PAGE_BYTES, Place, Populate, ProcessId, System,
    ThreadSpec,
};
use std::sync::Arc;

/// Threads of the victim that make its memory, each on a CPU of its own.
const MAKERS: usize = 4;
/// Pages that are looked at together when some of them go to swap.
const STRETCH: u64 = 1024;
/// How often somebody who waits for something looks for it while nothing is measured.
const POLL_NS: u64 = 5_000_000;
/// The same where it is due.
const LOOK_NS: u64 = 50_000;
/// Pages that are asked for where there are none: more than all CPUs have charged in advance.
const HOG_PAGES: u64 = 4096;

/// Why the victim dies, and who helps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Via {
    /// A signal; threads of another process call process_mrelease.
    Mrelease,
    /// Its group's memory is used up; the reaper of the out-of-memory killer.
    Oom,
}

/// What a run does and when.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) via: Via,
    pub(super) mappings: Arc<[Mapping]>,
    /// Of each 1024 pages of small ones, so many go to swap.
    pub(super) swapped_1024: u64,
    pub(super) notice_ns: u64,
    pub(super) helpers: usize,
    /// The victim is not killed before.
    pub(super) kill_ns: u64,
    /// How long after its memory is there it may be killed.
    pub(super) rest_ns: u64,
}

impl Plan {
    /// The CPU of the victim's first thread, which is the last to end.
    pub(super) fn victim_cpu(&self, cpus: usize) -> usize {
        match self.via {
            Via::Mrelease => 0,
            // The reaper of the out-of-memory killer lives on the first.
            Via::Oom => 1 % cpus,
        }
    }
    /// Pages of the file that it maps.
    fn file_pages(&self) -> u64 {
        let in_file = self.mappings.iter().filter(|mapping| !mapping.is_anonymous());
        in_file.map(|mapping| mapping.pages).sum()
    }
    /// Pages that go to swap.
    pub(super) fn swapped_pages(&self) -> u64 {
        let mappings = self.mappings.iter().filter(|mapping| self.swaps(mapping));
        mappings.flat_map(|mapping| self.swapped_of(mapping)).map(|(_, pages)| pages).sum()
    }
    fn swaps(&self, mapping: &Mapping) -> bool {
        self.swapped_1024 > 0 && mapping.filled == Filled::Whole && mapping.is_anonymous()
    }
    /// The first pages of every stretch: from which page, and how many.
    fn swapped_of(&self, mapping: &Mapping) -> impl Iterator<Item = (u64, u64)> {
        let (end, share_1024) = (mapping.first_page + mapping.pages, self.swapped_1024);
        let firsts = (mapping.first_page..end).step_by(STRETCH as usize);
        firsts.map(move |first| (first, STRETCH.min(end - first) * share_1024 / 1024))
    }
}

/// What happened, by the machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Happened {
    /// Who is to die.
    pub(super) victim: Option<ProcessId>,
    /// When that is due; its memory is there.
    pub(super) kill_at_ns: Option<u64>,
    /// There is no memory to be had from then on.
    pub(super) limited: bool,
    /// Just before the signal.
    pub(super) killed_ns: Option<u64>,
    /// Whoever killed the victim and helped is done.
    pub(super) done: bool,
    /// The victim was gone, and whoever helped was done.
    pub(super) over_ns: Option<u64>,
    /// Calls of process_mrelease that took part, and those that came too late.
    pub(super) helped: u32,
    pub(super) too_late: u32,
    /// CPU time of the victim before the signal, and of its killer, where the machine tells it.
    pub(super) victim_cpu: Option<CpuTime>,
    pub(super) killer_cpu: Option<CpuTime>,
}

mmscale_linux::plain!(Happened {
    victim,
    kill_at_ns,
    limited,
    killed_ns,
    done,
    over_ns,
    helped,
    too_late,
    victim_cpu,
    killer_cpu,
});

/// Where all programs note what happened.
#[derive(Clone, Debug, Default)]
pub(super) struct Books(Shared<Happened>);

impl Books {
    pub(super) fn note(&self, note: impl FnOnce(&mut Happened)) {
        self.0.change(note);
    }
    pub(super) fn read(&self) -> Happened {
        self.0.get()
    }
    /// Waits until something has happened, looking for it every `every_ns`.
    pub(super) fn wait_for<S: System, T>(
        &self,
        system: &S,
        every_ns: u64,
        what: impl Fn(Happened) -> Option<T>,
    ) -> Result<T, Errno> {
        loop {
            match what(self.read()) {
                Some(found) => return Ok(found),
                None => system.sleep_ns(every_ns)?,
            }
        }
    }
}

/// Steps of a wait that keeps its CPU.
const STEP_NS: u64 = 20_000;

/// Waits until `at_ns`: asleep for most of it, and then awake, so that it ends on time.
fn wait<S: System>(system: &S, at_ns: u64) -> Result<(), Errno> {
    const AWAKE_NS: u64 = 20_000_000;
    loop {
        match at_ns.saturating_sub(system.clock_ns()) {
            0 => return Ok(()),
            left if left > AWAKE_NS => system.sleep_ns((left - AWAKE_NS) / 2 + 1)?,
            left => system.compute_ns(left.min(STEP_NS))?,
        }
    }
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

fn addr(page: u64) -> Addr {
    Addr(page * PAGE_BYTES)
}

/// The victim's parent, which has the file open that the victim maps, so that its pages stay; and
/// which sees when all is over.
pub(super) fn parent<S: System>(system: &S, plan: &Plan, books: &Books) -> Result<(), Errno> {
    let file = match plan.file_pages() {
        0 => None,
        pages => Some(insist(|| system.file(pages * PAGE_BYTES))?),
    };
    let spec = ThreadSpec::on(plan.victim_cpu(system.cpus()));
    let (own, notes) = (plan.clone(), books.clone());
    let body = move |system: &S| _ = victim(system, &own, &notes, file);
    let child = insist(|| system.fork(spec, Box::new(body.clone())))?;
    books.note(|happened| happened.victim = Some(child));
    system.wait(child)?;
    books.wait_for(system, LOOK_NS, |happened| happened.done.then_some(()))?;
    let now_ns = system.clock_ns();
    books.note(|happened| happened.over_ns = Some(now_ns));
    file.map_or(Ok(()), |file| system.close(file))
}

/// The first thread of the victim: has its memory made, then sleeps until it is killed.
fn victim<S: System>(
    system: &S,
    plan: &Plan,
    books: &Books,
    file: Option<Fd>,
) -> Result<(), Errno> {
    let (cpus, first) = (system.cpus(), plan.victim_cpu(system.cpus()));
    let makers = MAKERS.min(cpus);
    let mut threads = Vec::new();
    for nth in 1..makers {
        let plan = plan.clone();
        let body = move |system: &S| _ = make(system, &plan, file, nth, makers);
        threads.push(system.spawn(ThreadSpec::on((first + nth) % cpus), Box::new(body))?);
    }
    make(system, plan, file, 0, makers)?;
    threads.into_iter().try_for_each(|thread| system.join(thread))?;
    let kill_at_ns = plan.kill_ns.max(system.clock_ns() + plan.rest_ns);
    let cpu = system.cpu_time();
    books.note(|happened| {
        happened.kill_at_ns = Some(kill_at_ns);
        happened.victim_cpu = cpu;
    });
    wait_for_signal(system, plan, kill_at_ns)
}

/// Sleeps until the signal, or computes through it.
fn wait_for_signal<S: System>(system: &S, plan: &Plan, kill_at_ns: u64) -> Result<(), Errno> {
    if plan.notice_ns == 0 {
        loop {
            system.sleep_ns(1_000_000_000)?;
        }
    }
    wait(system, kill_at_ns.saturating_sub(STEP_NS))?;
    let left_ns = (kill_at_ns + plan.notice_ns).saturating_sub(system.clock_ns());
    system.compute_ns(left_ns)
}

/// Makes every `of`th mapping, from the `nth` on.
fn make<S: System>(
    system: &S,
    plan: &Plan,
    file: Option<Fd>,
    nth: usize,
    of: usize,
) -> Result<(), Errno> {
    for mapping in plan.mappings.iter().skip(nth).step_by(of) {
        make_one(system, mapping, file)?;
        if plan.swaps(mapping) {
            swap_some(system, plan.swapped_of(mapping))?;
        }
    }
    Ok(())
}

fn make_one<S: System>(system: &S, mapping: &Mapping, file: Option<Fd>) -> Result<(), Errno> {
    let (at, bytes) = (addr(mapping.first_page), mapping.pages * PAGE_BYTES);
    let mut pages = mapping.first_page..mapping.first_page + mapping.pages;
    let mut spec = MapSpec::new(bytes).at(Place::Fixed(at));
    if let (Of::File(first, share), Some(file)) = (mapping.of, file) {
        spec = spec.of(file, first * PAGE_BYTES, share);
        insist(|| system.mmap(spec))?;
        return pages.try_for_each(|page| insist(|| system.read(addr(page)).map(|_| ())));
    }
    if mapping.filled == Filled::Whole {
        spec.populate = Populate::Now;
    }
    insist(|| system.mmap(spec))?;
    let step = match mapping.filled {
        Filled::Whole => return Ok(()),
        Filled::Every(stride) => stride,
        Filled::Huge => {
            insist(|| system.madvise(at, bytes, Advice::HugePage))?;
            512
        }
    };
    let mut pages = pages.step_by(step as usize);
    pages.try_for_each(|page| insist(|| system.write(addr(page), 1)))
}

/// Sends pages to swap: from which on, and how many.
fn swap_some<S: System>(
    system: &S,
    stretches: impl Iterator<Item = (u64, u64)>,
) -> Result<(), Errno> {
    for (first, pages) in stretches.filter(|&(_, pages)| pages > 0) {
        // Pages that hold something: those of zeros never reach the device.
        (first..first + pages).try_for_each(|page| insist(|| system.write(addr(page), page)))?;
        system.madvise(addr(first), pages * PAGE_BYTES, Advice::PageOut)?;
    }
    Ok(())
}

/// Waits until the victim is to be killed.
fn wait_to_kill<S: System>(system: &S, books: &Books) -> Result<(), Errno> {
    let at_ns = books.wait_for(system, POLL_NS, |happened| happened.kill_at_ns)?;
    wait(system, at_ns)
}

/// The first thread of the process that kills the victim and helps; its others only help.
pub(super) fn killer<S: System>(system: &S, plan: &Plan, books: &Books) -> Result<(), Errno> {
    let victim = books.wait_for(system, POLL_NS, |happened| happened.victim)?;
    let descriptor = system.pidfd_open(victim)?;
    let mut threads = Vec::new();
    let cpus = system.cpus();
    for nth in 2..=plan.helpers {
        let books = books.clone();
        let body = move |system: &S| {
            // It may be there before the signal, and asks until that has come.
            let _ = wait_to_kill(system, &books);
            let _ = help(system, descriptor, &books);
        };
        threads.push(system.spawn(ThreadSpec::on(nth % cpus), Box::new(body))?);
    }
    wait_to_kill(system, books)?;
    let before = system.cpu_time();
    let now_ns = system.clock_ns();
    system.kill(victim)?;
    if plan.helpers > 0 {
        help(system, descriptor, books)?;
    }
    books.note(|happened| happened.killed_ns = Some(now_ns));
    let joined = threads.into_iter().try_for_each(|thread| system.join(thread));
    let used = used(before, system.cpu_time());
    books.note(|happened| (happened.killer_cpu, happened.done) = (used, true));
    joined
}

/// CPU time between two looks.
fn used(before: Option<CpuTime>, after: Option<CpuTime>) -> Option<CpuTime> {
    let (before, after) = (before?, after?);
    Some(CpuTime {
        user_ns: after.user_ns.saturating_sub(before.user_ns),
        system_ns: after.system_ns.saturating_sub(before.system_ns),
    })
}

/// A process that asks for memory where there is none, and never dies for it.
pub(super) fn hog<S: System>(system: &S, books: &Books) -> Result<(), Errno> {
    system.set_oom_score_adj(system.own_process(), -1000)?;
    wait_to_kill(system, books)?;
    books.wait_for(system, LOOK_NS, |happened| happened.limited.then_some(()))?;
    let at = insist(|| system.mmap(MapSpec::new(HOG_PAGES * PAGE_BYTES)))?;
    (0..HOG_PAGES).try_for_each(|page| insist(|| system.write(at.page(page), 1)))?;
    books.note(|happened| happened.done = true);
    // What it gives back is not the victim's.
    books.wait_for(system, POLL_NS, |happened| happened.over_ns)?;
    system.munmap(at, HOG_PAGES * PAGE_BYTES)
}

/// One call of process_mrelease that the victim is ready for.
fn help<S: System>(system: &S, descriptor: Fd, books: &Books) -> Result<(), Errno> {
    loop {
        match system.process_mrelease(descriptor, 0) {
            Ok(()) => books.note(|happened| happened.helped += 1),
            // Nobody has killed it yet.
            Err(Errno::Inval) => continue,
            Err(Errno::Srch) => books.note(|happened| happened.too_late += 1),
            Err(other) => return Err(other),
        }
        return Ok(());
    }
}
