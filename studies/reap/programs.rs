//! The victim, and the processes that kill it and help to reap it.

use super::layout::{Filled, Mapping, Of};
use super::plan::{Plan, REST_NS};
use super::{EventTimes, Reap, Via};
use mmscale_harness::Run;
use mmscale_kernel::Os;
use mmscale_mm::memcg::GroupId;
use mmscale_system::{
    Addr, Advice, Backing, CpuTime, Errno, Fd, MapSpec, PAGE_BYTES, Place, Populate, ProcessId,
    System, ThreadSpec,
};

/// Threads that create the victim's memory, each on its own CPU.
const MAKERS: usize = 4;
/// Interval at which programs poll for a state while nothing is measured.
const POLL_NS: u64 = 5_000_000;
/// Interval at which programs poll when the state is due.
const LOOK_NS: u64 = 50_000;
/// Pages to request beyond the limit: more than all CPUs have charged in advance.
const HOG_PAGES: u64 = 4096;
/// The group of all processes except the first.
const GROUP: GroupId = GroupId::new(1);

/// Starts all processes, and waits for them. `limit` makes memory run out.
pub(super) fn all<S: System>(
    run: &Run<Reap>,
    system: &S,
    limit: impl FnOnce() -> Result<(), Errno>,
) -> Result<(), Errno> {
    let (own, last) = (run.clone(), system.cpus() - 1);
    let parent = start(system, last, move |system: &S| _ = parent(&own, system))?;
    let own = run.clone();
    let killer = match run.plan.via {
        Via::Mrelease => {
            let body = move |system: &S| _ = killer(&own, system);
            start(system, 1 % system.cpus(), body)?
        }
        Via::Oom => {
            let hog = start(system, last, move |system: &S| _ = hog(&own, system))?;
            limit()?;
            hog
        }
    };
    system.wait(killer)?;
    system.wait(parent)?;
    Ok(())
}

/// Limits the group's memory to its current usage just before the kill is due, as when an
/// administrator lowers a limit.
pub(super) fn limit(run: &Run<Reap>, os: &Os) -> Result<(), Errno> {
    wait_for(run, os, REST_NS / 4, |happened| happened.kill_at_ns)?;
    let inside = os.inside();
    inside.set_group_limit(GROUP, Some(inside.group_usage(GROUP)));
    run.tally.tell(os, |happened| happened.limited = true);
    Ok(())
}

/// Starts a process; retries if an injected failure refused its memory.
fn start<S: System>(
    system: &S,
    cpu: usize,
    body: impl FnOnce(&S) + Clone + Send + 'static,
) -> Result<ProcessId, Errno> {
    const ATTEMPTS: usize = 100;
    let mut asked = Err(Errno::Nomem);
    for _ in 0..ATTEMPTS {
        asked = system.process(ThreadSpec::on(cpu), Box::new(body.clone()));
        if asked != Err(Errno::Nomem) {
            break;
        }
    }
    asked
}

/// Waits until a state is reached, polling every `every_ns`.
fn wait_for<S: System, T>(
    run: &Run<Reap>,
    system: &S,
    every_ns: u64,
    what: impl Fn(EventTimes) -> Option<T>,
) -> Result<T, Errno> {
    loop {
        match what(run.tally.look(system)) {
            Some(found) => return Ok(found),
            None => system.sleep_ns(every_ns)?,
        }
    }
}

/// Steps of a wait that keeps its CPU.
const STEP_NS: u64 = 20_000;

/// Waits until `at_ns`: asleep for most of the time, then awake, so that it ends on time.
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

/// Repeats a call until it does not fail with `Nomem`: a run may inject failures.
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

/// The victim's parent. It keeps the file open that the victim maps, so that the file's pages stay,
/// and observes the end of the victim.
fn parent<S: System>(run: &Run<Reap>, system: &S) -> Result<(), Errno> {
    let file = match run.plan.file_pages() {
        0 => None,
        pages => Some(insist(|| system.file(pages * PAGE_BYTES, Backing::Memory))?),
    };
    let spec = ThreadSpec::on(run.plan.victim_cpu(system.cpus()));
    let own = run.clone();
    let body = move |system: &S| _ = victim(&own, system, file);
    let child = insist(|| system.fork(spec, Box::new(body.clone())))?;
    run.tally.tell(system, |happened| happened.victim = Some(child));
    system.wait(child)?;
    wait_for(run, system, LOOK_NS, |happened| happened.done.then_some(()))?;
    let now_ns = system.clock_ns();
    run.tally.tell(system, |happened| happened.over_ns = Some(now_ns));
    file.map_or(Ok(()), |file| system.close(file))
}

/// The first thread of the victim: has its memory created, then sleeps until it is killed.
fn victim<S: System>(run: &Run<Reap>, system: &S, file: Option<Fd>) -> Result<(), Errno> {
    let (plan, cpus) = (&run.plan, system.cpus());
    let first = plan.victim_cpu(cpus);
    let makers = MAKERS.min(cpus);
    let mut threads = Vec::new();
    for nth in 1..makers {
        let run = run.clone();
        let body = move |system: &S| _ = make(&run.plan, system, file, nth, makers);
        threads.push(system.spawn(ThreadSpec::on((first + nth) % cpus), Box::new(body))?);
    }
    make(plan, system, file, 0, makers)?;
    threads.into_iter().try_for_each(|thread| system.join(thread))?;
    let kill_at_ns = plan.kill_ns.max(system.clock_ns() + plan.rest_ns);
    run.tally.tell(system, |happened| happened.kill_at_ns = Some(kill_at_ns));
    wait_for_signal(plan, system, kill_at_ns)
}

/// Sleeps until the signal, or computes through it.
fn wait_for_signal<S: System>(plan: &Plan, system: &S, kill_at_ns: u64) -> Result<(), Errno> {
    if plan.notice_ns == 0 {
        loop {
            system.sleep_ns(1_000_000_000)?;
        }
    }
    wait(system, kill_at_ns.saturating_sub(STEP_NS))?;
    let left_ns = (kill_at_ns + plan.notice_ns).saturating_sub(system.clock_ns());
    system.compute_ns(left_ns)
}

/// Creates every `of`th mapping, starting with number `nth`.
fn make<S: System>(
    plan: &Plan,
    system: &S,
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

/// Writes `pages` pages to swap, starting with `first`.
fn swap_some<S: System>(
    system: &S,
    stretches: impl Iterator<Item = (u64, u64)>,
) -> Result<(), Errno> {
    for (first, pages) in stretches.filter(|&(_, pages)| pages > 0) {
        // The pages must have content, because zero-filled pages are never written to the device.
        (first..first + pages).try_for_each(|page| insist(|| system.write(addr(page), page)))?;
        system.madvise(addr(first), pages * PAGE_BYTES, Advice::PageOut)?;
    }
    Ok(())
}

/// Waits until the victim is to be killed.
fn wait_to_kill<S: System>(run: &Run<Reap>, system: &S) -> Result<(), Errno> {
    let at_ns = wait_for(run, system, POLL_NS, |happened| happened.kill_at_ns)?;
    wait(system, at_ns)
}

/// The first thread of the process that kills the victim and helps to reap it. Its other threads
/// only help.
fn killer<S: System>(run: &Run<Reap>, system: &S) -> Result<(), Errno> {
    let victim = wait_for(run, system, POLL_NS, |happened| happened.victim)?;
    let descriptor = system.pidfd_open(victim)?;
    let mut threads = Vec::new();
    let cpus = system.cpus();
    for nth in 2..=run.plan.helpers {
        let run = run.clone();
        let body = move |system: &S| {
            // A helper may start before the signal, and retries until the signal was sent.
            let _ = wait_to_kill(&run, system);
            let _ = help(&run, system, descriptor);
            run.tally.tell(system, |happened| happened.finished += 1);
            // The memory that its end frees must not count as the victim's.
            let _ = wait_for(&run, system, POLL_NS, |happened| happened.over_ns);
        };
        threads.push(system.spawn(ThreadSpec::on(nth % cpus), Box::new(body))?);
    }
    wait_to_kill(run, system)?;
    let before = system.cpu_time();
    let now_ns = system.clock_ns();
    system.kill(victim)?;
    if run.plan.helpers > 0 {
        help(run, system, descriptor)?;
    }
    run.tally.tell(system, |happened| happened.killed_ns = Some(now_ns));
    let others = threads.len() as u32;
    wait_for(run, system, LOOK_NS, |happened| (happened.finished == others).then_some(()))?;
    let used = used(before, system.cpu_time());
    run.tally.tell(system, |happened| (happened.killer_cpu, happened.done) = (used, true));
    wait_for(run, system, POLL_NS, |happened| happened.over_ns)?;
    threads.into_iter().try_for_each(|thread| system.join(thread))
}

/// Returns the CPU time used between two readings.
fn used(before: Option<CpuTime>, after: Option<CpuTime>) -> Option<CpuTime> {
    let (before, after) = (before?, after?);
    Some(CpuTime {
        user_ns: after.user_ns.saturating_sub(before.user_ns),
        system_ns: after.system_ns.saturating_sub(before.system_ns),
    })
}

/// A process that requests memory beyond the limit, and is never killed itself.
fn hog<S: System>(run: &Run<Reap>, system: &S) -> Result<(), Errno> {
    system.set_oom_score_adj(system.own_process(), -1000)?;
    wait_to_kill(run, system)?;
    wait_for(run, system, LOOK_NS, |happened| happened.limited.then_some(()))?;
    let at = insist(|| system.mmap(MapSpec::new(HOG_PAGES * PAGE_BYTES)))?;
    (0..HOG_PAGES).try_for_each(|page| insist(|| system.write(at.page(page), 1)))?;
    run.tally.tell(system, |happened| happened.done = true);
    // The memory that it frees must not count as the victim's.
    wait_for(run, system, POLL_NS, |happened| happened.over_ns)?;
    system.munmap(at, HOG_PAGES * PAGE_BYTES)
}

/// Calls process_mrelease until the victim is dying, then once for its effect.
fn help<S: System>(run: &Run<Reap>, system: &S, descriptor: Fd) -> Result<(), Errno> {
    loop {
        match system.process_mrelease(descriptor, 0) {
            Ok(()) => run.tally.tell(system, |happened| happened.helped += 1),
            // The victim has not been killed yet.
            Err(Errno::Inval) => continue,
            Err(Errno::Srch) => run.tally.tell(system, |happened| happened.too_late += 1),
            Err(other) => return Err(other),
        }
        return Ok(());
    }
}
