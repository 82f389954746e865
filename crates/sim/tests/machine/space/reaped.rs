//! A process is killed while its threads run, and reapers help to free its memory: before its last
//! thread has ended, meanwhile and afterwards; one or several; to the end or not; some of them
//! killed in turn.

use super::process::{new_space, next};
use crate::calls::POLICIES;
use crate::common::{config as small, run_script};
use crate::lru::world::{ALL, World, config, well_with};
use mmscale_arch::{
    Asid, Atomic, Cpu as _, CpuId, ExitEvent, Machine as _, Trace, VmaRange, Vpn, ZapBy,
};
use mmscale_frames::page_alloc::MemoryMap;
use mmscale_mm::lru::LruPolicy;
use mmscale_mm::pgtable::MemAccess;
use mmscale_mm::space::{
    Advice, ExitPolicy, FaultError, File, HugePages, MapRequest, MayMove, MmRef, Place, ReapLock,
    Reaped, RemapRequest, Space, SpaceError, VmaFlags,
};
use mmscale_mm::swap::SwapDevice;
use mmscale_sim::{Policy, Rule, Sim, SimAtomic, SimConfig};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

const CPUS: usize = 4;
const EXITS: [ExitPolicy; ExitPolicy::ALL.len()] = ExitPolicy::ALL;
/// Pages of the process: several tables, with VMAs that end inside of them.
const AT: u64 = 512 * 8 - 40;
const PAGES: u64 = 512 * 3 + 80;
/// The targets of mremap: below all other pages, and above.
const MOVED: [u64; 2] = [512 * 3 + 7, 512 * 40 - 9];

/// Counts of events that the test must reach.
#[derive(Clone, Copy, Default, Debug)]
struct Seen {
    done: u32,
    skipped: u32,
    busy: u32,
    gave_up: u32,
    died: u32,
    bus: u32,
    /// Reapers that started before the last thread ended.
    early: u32,
    left: u32,
}

/// A process whose last thread runs its exit.
struct Victim {
    space: Arc<Space<Sim>>,
    threads: SimAtomic<u32>,
    /// Whether its exit has begun.
    exiting: SimAtomic<u32>,
    /// The machine on which the killers of helpers run.
    killers: Rc<World>,
    seen: Rc<Cell<Seen>>,
}

fn range(at: u64, pages: u64) -> VmaRange {
    VmaRange::with_pages(Vpn::new(at), pages).expect("user pages")
}

impl Victim {
    fn note(&self, add: impl FnOnce(&mut Seen)) {
        let mut seen = self.seen.get();
        add(&mut seen);
        self.seen.set(seen);
    }
    fn map(&self, on: MmRef<'_, Sim>, file: &Arc<File<Sim>>, state: &mut u64) {
        self.space.hold_file(file).expect("there is memory");
        let mut at = AT;
        while at < AT + PAGES {
            let pages = (1 + next(state) % 700).min(AT + PAGES - at);
            let mut request = MapRequest::new(pages).at(Place::Fixed(Vpn::new(at)));
            let kind = next(state) % 6;
            if kind < 2 {
                request.file = Some((file.id(), at - AT));
                request.flags = if kind == 0 { VmaFlags::SHARED } else { VmaFlags::empty() };
            }
            self.space.mmap(on, request).expect("there is memory");
            if next(state).is_multiple_of(2) {
                let advice = Advice::HugePage;
                self.space.madvise(on, range(at, pages), advice).expect("it is mapped");
            }
            // A hole, at times.
            at += pages + next(state) % 2 * (next(state) % 300);
        }
    }
    /// Runs a thread until the process is killed. The last one runs the exit.
    fn thread(&self, on: MmRef<'_, Sim>, mut state: u64) {
        while !self.space.is_killed() {
            self.step(on, &mut state);
            assert!(Sim::now_ns() < 1_900_000_000, "the process is not killed");
        }
        if self.threads.fetch_sub(1, SeqCst) == 1 {
            self.exiting.store(1, SeqCst);
            self.space.exit(on);
        }
    }
    fn step(&self, on: MmRef<'_, Sim>, state: &mut u64) {
        let at = AT + next(state) % PAGES;
        let part = range(at, 1 + next(state) % 100);
        let explained = |done: Result<(), SpaceError>| {
            use SpaceError::{Again, Fault, Interrupted, Inval, NoMemory};
            let well = |why| matches!(why, Again | Fault | Interrupted | Inval | NoMemory);
            assert!(done.is_ok() || done.is_err_and(well), "{done:?}");
        };
        match next(state) % 12 {
            0 => explained(self.space.madvise(on, part, Advice::DontNeed)),
            1 => explained(self.space.madvise(on, part, Advice::PageOut)),
            2 => explained(self.space.munmap(on, range(at, 1 + next(state) % 8))),
            3 => {
                let to = MOVED[(next(state) % 2) as usize] + next(state) % 600;
                let pages = 1 + next(state) % 40;
                let may_move = MayMove::To(Vpn::new(to));
                let from = Vpn::new(at);
                let request = RemapRequest { from, old_pages: pages, new_pages: pages, may_move };
                explained(self.space.mremap(on, request).map(|_| ()));
            }
            4 => explained(self.space.madvise(on, part, Advice::PopulateWrite)),
            _ => (at..(at + 40).min(AT + PAGES)).for_each(|page| {
                let write = |pfn| Sim::write_stamp(pfn, page);
                let done = self.space.access(on, Vpn::new(page), MemAccess::Write, write);
                let well =
                    |why| matches!(why, FaultError::Killed | FaultError::Segv | FaultError::Oom);
                if done == Err(FaultError::Bus) {
                    assert!(self.space.is_unstable());
                    self.note(|seen| seen.bus += 1);
                } else {
                    assert!(done.is_ok() || done.is_err_and(well), "{done:?}");
                }
            }),
        }
    }
    /// Runs a reaper, which may give up after some steps.
    fn reap(&self, on: MmRef<'_, Sim>, mut state: u64) {
        Sim::user(next(&mut state) % 60_000);
        let how = if next(&mut state).is_multiple_of(2) { ReapLock::Try } else { ReapLock::Wait };
        let steps = Cell::new(if next(&mut state).is_multiple_of(3) { 2 } else { u32::MAX });
        let more = || steps.replace(steps.get().saturating_sub(1)) > 0;
        if self.exiting.load(SeqCst) == 0 {
            self.note(|seen| seen.early += 1);
        }
        let result = if next(&mut state).is_multiple_of(3) {
            self.reap_and_die(on, &mut state)
        } else {
            self.space.reap_while(on, how, more)
        };
        self.note(|seen| match result {
            Reaped::Done => seen.done += 1,
            Reaped::Skipped => seen.skipped += 1,
            Reaped::Busy => seen.busy += 1,
            Reaped::Partly => seen.gave_up += 1,
            Reaped::Interrupted => seen.died += 1,
        });
        assert!(how == ReapLock::Try || result != Reaped::Busy);
    }
    /// Runs a reaper that is itself killed: before it starts, or some time after.
    fn reap_and_die(&self, on: MmRef<'_, Sim>, state: &mut u64) -> Reaped {
        let (me, dead) = (Sim::current(), Rc::new(Cell::new(false)));
        let (after_ns, told) = (next(state) % 40_000, Rc::clone(&dead));
        if next(state).is_multiple_of(2) {
            dead.set(true);
        } else {
            self.killers.spawn(0, move |_| {
                Sim::user(after_ns);
                told.set(true);
                Sim::unpark(me);
            });
        }
        self.space.reap_unless(on, || dead.get())
    }
}

/// Kills one process with helpers.
fn kill(world: &Rc<World>, state: &mut u64, hotplug: bool, seen: &Rc<Cell<Seen>>) {
    let on = world.mm.mm_ref();
    let threads = 1 + next(state) % 3;
    let victim = Rc::new(Victim {
        space: new_space(world),
        threads: SimAtomic::new(threads as u32),
        exiting: SimAtomic::new(0),
        killers: Rc::clone(world),
        seen: Rc::clone(seen),
    });
    let file = File::new(on, PAGES * 2);
    victim.map(on, &file, state);
    for nth in 0..threads {
        let (victim, state) = (Rc::clone(&victim), next(state));
        world.spawn(nth as usize % CPUS, move |world| victim.thread(world.mm.mm_ref(), state));
    }
    world.mm.sleep_ns(1_000 + next(state) % 300_000);
    // At times one reaper starts before the signal; the others start after it.
    let first = next(state) % 2;
    for nth in 0..first + 1 + next(state) % 3 {
        if nth == first {
            victim.space.kill();
        }
        let (victim, state) = (Rc::clone(&victim), next(state));
        let cpu = 1 + nth as usize % (CPUS - 1);
        world.spawn(cpu, move |world| victim.reap(world.mm.mm_ref(), state));
    }
    victim.space.kill();
    if hotplug {
        let cpu = CpuId::new(1 + next(state) as usize % (CPUS - 1));
        Sim::cpu_offline(cpu).expect("it is online");
        world.mm.sleep_ns(next(state) % 50_000);
        Sim::cpu_online(cpu).expect("it is offline");
        victim.note(|seen| seen.left += 1);
    }
    world.wait_for_others();
    // A finished reaper holds no lock: otherwise this would wait for ever.
    assert_eq!(victim.space.munmap(on, range(AT, PAGES)), Ok(()));
    assert_eq!(victim.space.reap(on, ReapLock::Try), Reaped::Skipped);
    assert_eq!(victim.space.vmas(), []);
    file.put(on);
    let audit = on.verify().unwrap_or_else(|why| panic!("the address spaces: {why}"));
    assert_eq!((audit.spaces, audit.mapped), (0, 0));
    on.memory.verify().unwrap_or_else(|why| panic!("the LRU: {why}"));
}

/// Runs `rounds` processes, one after the other: the start of a run costs more than a kill. Returns
/// the run's fingerprint too.
fn run(seed: u64, rounds: u64, policy: Policy, lru: LruPolicy, exit: ExitPolicy) -> (Seen, u64) {
    let found = Rc::new(Cell::new(Seen::default()));
    let seen = Rc::clone(&found);
    let mut config = SimConfig { policy, ..config(CPUS, seed) };
    if seed.is_multiple_of(2) {
        config.profile.costs.tlb_broadcast_ps = 400_000;
        config.profile.tlb_broadcast_spaces = if seed.is_multiple_of(4) { 3 } else { 0 };
    }
    let change = move |config: &mut mmscale_mm::mm::MmConfig| {
        config.map = MemoryMap::nodes(2, 1 << 13);
        config.swap.pages = 3000;
        if seed % 4 == 3 {
            config.swap.device = SwapDevice::Compressed;
        }
        config.space.exit = exit;
        config.smp.policy = POLICIES[seed as usize % POLICIES.len()];
        config.space.huge =
            if seed.is_multiple_of(3) { HugePages::Always } else { HugePages::Advised };
    };
    let (outcome, _) = well_with(config, lru, change, move |world| {
        let mut state = seed;
        for round in 0..rounds {
            kill(world, &mut state, round % 8 == 7, &seen);
        }
    });
    (found.get(), outcome.fingerprint)
}

/// 600 processes in all; 10,200 with `MMSCALE_SWARM=17`.
const SEEDS: u64 = 30;
const ROUNDS: u64 = 20;

fn seeds() -> u64 {
    let times = std::env::var("MMSCALE_SWARM").ok().and_then(|times| times.parse::<u64>().ok());
    SEEDS * times.unwrap_or(1)
}

#[test]
fn every_frame_is_freed_once_with_any_helpers() {
    for (nth, exit) in EXITS.into_iter().enumerate() {
        let mut all = Seen::default();
        for seed in (0..seeds()).filter(|seed| seed % 3 == nth as u64) {
            let lru = ALL[(seed / 3 % 3) as usize];
            let (seen, _) = run(seed, ROUNDS, Policy::Lazy, lru, exit);
            all.done += seen.done;
            all.skipped += seen.skipped;
            all.busy += seen.busy;
            all.gave_up += seen.gave_up;
            all.died += seen.died;
            all.bus += seen.bus;
            all.early += seen.early;
            all.left += seen.left;
        }
        let helpers = [all.done, all.skipped, all.busy, all.gave_up, all.died];
        let met = helpers.into_iter().chain([all.bus, all.early, all.left]);
        assert!(met.into_iter().all(|count| count > 0), "{exit:?}: {all:?}");
    }
}

#[test]
fn the_order_of_cpus_is_the_same_under_either_policy() {
    for (seed, exit) in EXITS.into_iter().cycle().take(6).enumerate() {
        let of = |policy| run(seed as u64, 8, policy, LruPolicy::Stock, exit).1;
        assert_eq!(of(Policy::Lazy), of(Policy::Naive), "{exit:?}");
    }
}

#[test]
fn a_table_that_is_claimed_twice_is_named() {
    let claim = |asid, unit| {
        Sim::trace(Trace::Exit(ExitEvent::TableZap {
            asid: Asid::new(asid),
            unit,
            by: ZapBy::Claim,
        }));
    };
    let outcome = run_script(small(2), move |script| {
        script.spawn(0, move || {
            claim(1, 7);
            claim(1, 8);
            claim(2, 7);
            Sim::trace(Trace::Exit(ExitEvent::ClaimsOpen { asid: Asid::new(2) }));
            claim(2, 7);
            let walk = ZapBy::Walk;
            Sim::trace(Trace::Exit(ExitEvent::TableZap { asid: Asid::new(1), unit: 7, by: walk }));
            claim(1, 7);
        });
    });
    assert_eq!(outcome.failure, None);
    let [violation] = &outcome.violations[..] else { panic!("{:?}", outcome.violations) };
    assert_eq!(violation.rule, Rule::ClaimedTwice);
    assert!(violation.what.contains("table 7 of address space 1"), "{violation}");
}
