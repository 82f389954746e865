//! The victim, and the process that ends it and helps to take it down.

use super::layout::{Filled, Mapping};
use mmscale_linux::Shared;
use mmscale_system::{
    Addr, Advice, CpuTime, Errno, MapSpec, PAGE_BYTES, Place, Populate, ProcessId, System,
    ThreadSpec,
};
use std::sync::Arc;

/// Threads of the victim that make its memory, each on a CPU of its own.
const MAKERS: usize = 4;
/// Pages that are looked at together when some of them go to swap.
const STRETCH: u64 = 1024;

/// What a run does and when.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) mappings: Arc<[Mapping]>,
    /// Of each 1024 pages of small ones, so many go to swap.
    pub(super) swapped_1024: u64,
    pub(super) notice_ns: u64,
    pub(super) helpers: usize,
    /// When memory is there, and the victim is killed.
    pub(super) kill_ns: u64,
}

/// What happened, by the machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Happened {
    /// All of the victim's memory was there.
    pub(super) ready_ns: Option<u64>,
    /// Just before the signal.
    pub(super) killed_ns: Option<u64>,
    /// The victim was gone, and whoever helped was done.
    pub(super) over_ns: Option<u64>,
    /// Calls of process_mrelease that took part, and those that came too late.
    pub(super) helped: u32,
    pub(super) too_late: u32,
    /// CPU time of the victim before the signal, and of its killer, where the machine tells it.
    pub(super) victim_cpu: Option<CpuTime>,
    pub(super) killer_cpu: Option<CpuTime>,
}

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

/// The first thread of the victim: has its memory made, then sleeps until it is killed.
pub(super) fn victim<S: System>(system: &S, plan: &Plan, books: &Books) -> Result<(), Errno> {
    let makers = MAKERS.min(system.cpus());
    let mut threads = Vec::new();
    for nth in 1..makers {
        let plan = plan.clone();
        let body = move |system: &S| _ = make(system, &plan, nth, makers);
        threads.push(system.spawn(ThreadSpec::on(nth), Box::new(body))?);
    }
    make(system, plan, 0, makers)?;
    threads.into_iter().try_for_each(|thread| system.join(thread))?;
    let now_ns = system.clock_ns();
    let cpu = system.cpu_time();
    books.note(|happened| {
        happened.ready_ns = Some(now_ns);
        happened.victim_cpu = cpu;
    });
    wait_for_signal(system, plan)
}

/// Sleeps until the signal, or computes through it.
fn wait_for_signal<S: System>(system: &S, plan: &Plan) -> Result<(), Errno> {
    if plan.notice_ns == 0 {
        loop {
            system.sleep_ns(1_000_000_000)?;
        }
    }
    wait(system, plan.kill_ns.saturating_sub(STEP_NS))?;
    let left_ns = (plan.kill_ns + plan.notice_ns).saturating_sub(system.clock_ns());
    system.compute_ns(left_ns)
}

/// Makes every `of`th mapping, from the `nth` on.
fn make<S: System>(system: &S, plan: &Plan, nth: usize, of: usize) -> Result<(), Errno> {
    for mapping in plan.mappings.iter().skip(nth).step_by(of) {
        make_one(system, mapping)?;
        if mapping.filled == Filled::Whole && plan.swapped_1024 > 0 {
            swap_some(system, mapping, plan.swapped_1024)?;
        }
    }
    Ok(())
}

fn make_one<S: System>(system: &S, mapping: &Mapping) -> Result<(), Errno> {
    let (at, bytes) = (addr(mapping.first_page), mapping.pages * PAGE_BYTES);
    let populate = if mapping.filled == Filled::Whole { Populate::Now } else { Populate::OnTouch };
    let spec = MapSpec { populate, ..MapSpec::new(bytes).at(Place::Fixed(at)) };
    insist(|| system.mmap(spec))?;
    let step = match mapping.filled {
        Filled::Whole => return Ok(()),
        Filled::Every(stride) => stride,
        Filled::Huge => {
            insist(|| system.madvise(at, bytes, Advice::HugePage))?;
            512
        }
    };
    let pages = (mapping.first_page..mapping.first_page + mapping.pages).step_by(step as usize);
    pages.into_iter().try_for_each(|page| insist(|| system.write(addr(page), 1)))
}

/// Sends the first pages of every stretch to swap.
fn swap_some<S: System>(system: &S, mapping: &Mapping, share_1024: u64) -> Result<(), Errno> {
    let end = mapping.first_page + mapping.pages;
    for first in (mapping.first_page..end).step_by(STRETCH as usize) {
        // Pages that hold something: those of zeros never reach the device.
        let pages = STRETCH.min(end - first) * share_1024 / 1024;
        (first..first + pages).try_for_each(|page| insist(|| system.write(addr(page), page)))?;
        if pages > 0 {
            system.madvise(addr(first), pages * PAGE_BYTES, Advice::PageOut)?;
        }
    }
    Ok(())
}

/// The first thread of the process that kills the victim and helps; its others only help.
pub(super) fn killer<S: System>(
    system: &S,
    plan: &Plan,
    victim: ProcessId,
    books: &Books,
) -> Result<(), Errno> {
    let descriptor = system.pidfd_open(victim)?;
    let mut threads = Vec::new();
    let cpus = system.cpus();
    for nth in 2..=plan.helpers {
        let (kill_ns, books) = (plan.kill_ns, books.clone());
        let body = move |system: &S| {
            // It may be there before the signal, and asks until that has come.
            let _ = wait(system, kill_ns);
            let _ = help(system, descriptor, &books);
        };
        threads.push(system.spawn(ThreadSpec::on(nth % cpus), Box::new(body))?);
    }
    wait(system, plan.kill_ns)?;
    let before = system.cpu_time();
    let now_ns = system.clock_ns();
    system.kill(victim)?;
    if plan.helpers > 0 {
        help(system, descriptor, books)?;
    }
    books.note(|happened| happened.killed_ns = Some(now_ns));
    let joined = threads.into_iter().try_for_each(|thread| system.join(thread));
    let used = used(before, system.cpu_time());
    books.note(|happened| happened.killer_cpu = used);
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

/// One call of process_mrelease that the victim is ready for.
fn help<S: System>(system: &S, descriptor: mmscale_system::Fd, books: &Books) -> Result<(), Errno> {
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
