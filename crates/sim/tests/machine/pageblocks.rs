//! The real frame allocator under combined load: pages that move between CPUs, CPUs that go offline
//! and come back, pageblocks that are isolated and go offline, memory that runs short. Under all
//! policies of page caches; consistent at the end.

use crate::common::{Script, config, run_script};
use mmscale_arch::sync::SpinLock;
use mmscale_arch::{Atomic, Cpu, CpuId, Ipi, LockClass, Machine as _, Order, Pfn};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::{
    AllocConfig, DecayRequest, FrameAllocator, Gfp, IsolateError, MemoryMap, PcpPolicy,
};
use mmscale_sim::{Outcome, Policy, Sim, SimConfig};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering::SeqCst;

const CPUS: usize = 8;
/// Enough pages for each CPU to keep whole pageblocks, with the policy that does so.
const MUCH: u32 = 1 << 20;
/// The first CPU of those that go offline and come back.
const COMING_AND_GOING: usize = 5;

/// Parameters of a run.
#[derive(Clone, Copy, Debug)]
struct Setting {
    seed: u64,
    policy: Policy,
    caches: PcpPolicy,
    pages: u32,
    steps: u32,
}

/// Observations of a run.
#[derive(Default)]
struct Found {
    failures: Cell<u32>,
    left: Cell<u32>,
    offline: Cell<u32>,
    busy: Cell<u32>,
    /// Workers that have finished.
    done: Cell<usize>,
}

struct World {
    frames: FrameAllocator<Sim>,
    /// Blocks that move between CPUs: most are freed by a CPU other than the one that allocated
    /// them.
    shelves: Vec<SpinLock<Sim, Vec<(Pfn, Order)>>>,
    /// Workers that have not finished.
    workers: <Sim as Cpu>::AtomicU32,
    found: Rc<Found>,
    pages: u32,
}

/// A task's own choices.
struct Choice(u64);

impl Choice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e);
        (self.0 >> 33) as usize % end
    }
}

fn bump(count: &Cell<u32>) {
    count.set(count.get() + 1);
}

impl World {
    fn work(&self, task: usize, setting: Setting) {
        let mut choice = Choice(setting.seed << 8 | task as u64);
        for step in 0..setting.steps {
            let growing = step / 150 % 2 == 0;
            if choice.below(10) < if growing { 7 } else { 4 } {
                self.take(task, &mut choice);
            } else {
                let from = if choice.below(3) == 0 { task } else { choice.below(CPUS) };
                let block = self.shelves[from].lock().pop();
                if let Some((pfn, order)) = block {
                    self.frames.free_pages(pfn, order);
                }
            }
            Sim::user(choice.below(400) as u64);
        }
        self.clear(task);
        self.found.done.set(self.found.done.get() + 1);
        self.workers.fetch_sub(1, SeqCst);
    }
    fn working(&self) -> bool {
        self.workers.load(SeqCst) > 0
    }
    fn clear(&self, shelf: usize) {
        let left = core::mem::take(&mut *self.shelves[shelf].lock());
        left.into_iter().for_each(|(pfn, order)| self.frames.free_pages(pfn, order));
    }
    fn take(&self, task: usize, choice: &mut Choice) {
        let orders = match self.pages {
            MUCH => [0, 0, 0, 1, 3, 5, 7, 8, 9, 10],
            _ => [0, 0, 0, 0, 0, 0, 1, 3, 5, 9],
        };
        let order = orders[choice.below(10)];
        let order = Order::new(order).expect("all are small");
        let wanted = MigrateType::from_index([0, 0, 0, 1, 2][choice.below(5)]);
        let gfp = if choice.below(8) == 0 { Gfp::ATOMIC } else { Gfp::KERNEL };
        match self.frames.alloc_pages(order, wanted, gfp) {
            Ok(pfn) => self.shelves[task].lock().push((pfn, order)),
            Err(_) => bump(&self.found.failures),
        }
    }
    /// Isolates pageblocks and returns them to use.
    fn isolate(&self, seed: u64) {
        let mut choice = Choice(seed ^ 0x15_0a7e);
        while self.working() {
            let any = Pfn::new(choice.below(self.pages as usize));
            let held = self.shelves[choice.below(CPUS)].lock().last().map(|&(pfn, _)| pfn);
            let block = if choice.below(2) == 0 { any } else { held.unwrap_or(any) };
            self.frames.isolate_pageblock(block).expect("no other task isolates");
            Sim::user(5_000 + choice.below(20_000) as u64);
            match self.frames.offline_pageblock(block) {
                Ok(()) => {
                    bump(&self.found.offline);
                    Sim::user(5_000);
                    self.frames.online_pageblock(block).expect("it is offline");
                }
                Err(IsolateError::Busy(pages)) => {
                    assert!((1..=512).contains(&pages));
                    bump(&self.found.busy);
                    self.frames.unisolate_pageblock(block).expect("it is isolated");
                }
                Err(why) => panic!("{why}"),
            }
        }
    }
    fn come_and_go(&self) {
        let mut times = 0;
        while self.working() {
            let cpu = CpuId::new(COMING_AND_GOING + times % (CPUS - COMING_AND_GOING));
            Sim::cpu_offline(cpu).expect("it is online");
            Sim::user(10_000);
            Sim::cpu_online(cpu).expect("it is offline");
            self.frames.cpu_online();
            Sim::user(10_000);
            bump(&self.found.left);
            times += 1;
        }
    }
    fn end(&self) {
        (0..CPUS).for_each(|shelf| self.clear(shelf));
        self.frames.verify().expect("the allocator adds up");
        self.frames.drain_all();
        let audit = self.frames.verify().expect("the allocator adds up");
        assert_eq!((audit.free, audit.cached), (self.pages.into(), 0), "{audit:?}");
        let largest = self.frames.census().free_blocks[Order::MAX.index()];
        assert_eq!(largest, u64::from(self.pages >> Order::MAX.get()));
    }
}

fn boot(script: &Rc<Script>, setting: Setting, found: Rc<Found>) {
    let map = MemoryMap::single(setting.pages);
    let config = AllocConfig { caches: setting.caches, ..AllocConfig::default() };
    let frames = FrameAllocator::<Sim>::new(&map, config).expect("the map is sound");
    let shelf = |_| SpinLock::new(LockClass::Other, Vec::new());
    let shelves = (0..CPUS).map(shelf).collect();
    let workers = Atomic::new(CPUS as u32);
    let world = Rc::new(World { frames, shelves, workers, found, pages: setting.pages });
    let (at_death, log) = (Rc::clone(&world), Rc::downgrade(script));
    *script.on_dead.borrow_mut() = Some(Box::new(move || {
        let script = log.upgrade().expect("it runs");
        let (_, cpu) = *script.hotplug.borrow().last().expect("it was noted");
        at_death.frames.cpu_dead(cpu);
    }));
    let asked = Rc::clone(&world);
    *script.on_ipi.borrow_mut() = Some(Box::new(move |reason| {
        assert_eq!(reason, Ipi::DrainPages);
        asked.frames.drain_ipi();
    }));
    let spawn = |cpu: usize, job: Box<dyn FnOnce(&World)>| {
        let world = Rc::clone(&world);
        script.spawn(cpu, move || job(&world));
    };
    for task in 0..CPUS {
        // CPUs 0 and 1 run other tasks.
        let cpu = if task < 2 { task + 3 } else { task };
        spawn(cpu, Box::new(move |world| world.work(task, setting)));
    }
    spawn(0, Box::new(move |world| world.isolate(setting.seed)));
    spawn(1, Box::new(World::come_and_go));
    spawn(
        2,
        Box::new(|world| {
            while world.working() {
                Sim::user(30_000);
                world.frames.refresh_cpu_vm_stats(DecayRequest::PerRun, Sim::cond_resched);
            }
            Sim::user(300_000);
            world.end();
        }),
    );
}

fn swarm(setting: Setting) -> (Outcome, Rc<Found>) {
    let found = Rc::new(Found::default());
    let Setting { seed, policy, .. } = setting;
    let config = SimConfig { seed, policy, ..config(CPUS) };
    let told = Rc::clone(&found);
    let outcome = run_script(config, |script| boot(script, setting, told));
    assert_eq!(outcome.failure, None, "{setting:?}");
    assert_eq!(outcome.violations, [], "{setting:?}");
    assert_eq!(found.done.get(), CPUS, "{setting:?}: not at its end");
    (outcome, found)
}

const POLICIES: [PcpPolicy; PcpPolicy::ALL.len()] = PcpPolicy::ALL;

/// Enough memory, so little that it runs short, and so much that CPUs keep large blocks.
const SIZES: [u32; 3] = [1 << 17, 1 << 13, MUCH];

/// The last size is for the policy that keeps more where there is more.
fn sizes(caches: PcpPolicy) -> &'static [u32] {
    if caches == PcpPolicy::Blockmap { &SIZES } else { &SIZES[..2] }
}

#[test]
fn pages_travel_while_cpus_and_pageblocks_come_and_go() {
    for caches in POLICIES {
        for &pages in sizes(caches) {
            let (mut failures, mut left, mut offline, mut busy) = (0, 0, 0, 0);
            // Seed 253, with `blockmap` and much memory, once isolated a pageblock of a task that
            // claimed two and then released the first of them: 512 pages too many counted as free.
            for seed in (0..6).chain([253]) {
                let policy = Policy::Lazy;
                let setting = Setting { seed, policy, caches, pages, steps: 900 };
                let (_, found) = swarm(setting);
                failures += found.failures.get();
                left += found.left.get();
                offline += found.offline.get();
                busy += found.busy.get();
            }
            assert!(left > 20 && busy > 5, "{caches:?}: {left} left, {busy} busy");
            assert!(offline > 5 || pages == SIZES[1], "{caches:?}: {offline} went offline");
            assert_eq!(failures > 0, pages == SIZES[1], "{caches:?}: {failures} failures");
        }
    }
}

#[test]
fn it_is_the_same_under_both_policies_of_the_machine() {
    for caches in POLICIES {
        for (seed, pages) in (20..).zip(SIZES) {
            let run = |policy| {
                let (outcome, _) = swarm(Setting { seed, policy, caches, pages, steps: 300 });
                (outcome.fingerprint, outcome.locks, outcome.virtual_ns)
            };
            assert_eq!(run(Policy::Lazy), run(Policy::Naive), "{caches:?}");
        }
    }
}
