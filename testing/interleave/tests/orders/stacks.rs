//! Stacks of tasks: reused addresses, grace periods, and a CPU that goes offline.

use mmscale_arch::{Atomic, Cpu, CpuId, CpuMask, Ipi, TaskEntry};
use mmscale_frames::page_alloc::{AllocConfig, FrameAllocator, MemoryMap};
use mmscale_interleave::{Hooks, Model, check, cpu_body, interrupt, run, set_online};
use mmscale_mm::pgtable::{CountMemory, PtRef, TableLocks};
use mmscale_mm::rcu::Rcu;
use mmscale_mm::smp::{CallPolicy, SmpConfig};
use mmscale_mm::stack::{Stack, StackConfig, Stacks};
use mmscale_mm::tlb::Tlb;
use mmscale_mm::work::{Work, WorkItem};
use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use std::sync::{Arc, Mutex};

const FRAMES: u32 = 1024;
/// The capacity of a CPU's cache of stacks.
const CACHED: usize = 2;

/// CPU 0 ends tasks, and is its own worker. The last CPU waits for grace periods.
struct World {
    frames: FrameAllocator<Model>,
    locks: TableLocks<Model>,
    counts: CountMemory<Model>,
    tlb: Tlb<Model>,
    rcu: Rcu<Model>,
    work: Work<Model>,
    stacks: Stacks<Model>,
    /// Stacks of tasks that move to CPU 0 to end there. The lock is no point of the schedule.
    on_the_way: Mutex<Vec<Stack>>,
    /// The tasks that have moved. It orders what a task did before and after, as a run queue does.
    moved: <Model as Cpu>::AtomicU32,
    /// Steps that the other CPUs have done.
    done: <Model as Cpu>::AtomicU32,
}

impl Hooks for World {
    fn ipi(&self, reason: Ipi) {
        assert_eq!(reason, Ipi::CallFunction);
        self.tlb.interrupt();
    }
    fn idle_enter(&self) {
        self.rcu.context_switch();
        self.rcu.idle_enter();
    }
    fn idle_exit(&self) {
        self.rcu.idle_exit();
    }
}

impl World {
    /// Makes every freed stack due for a purge.
    fn new(policy: CallPolicy) -> Self {
        let frames = FrameAllocator::new(&MemoryMap::single(FRAMES), AllocConfig::default());
        let work = Work::new();
        work.start_worker(CpuId::new(0), TaskEntry(0));
        Self {
            frames: frames.expect("a sane map"),
            locks: TableLocks::new(FRAMES as usize),
            counts: CountMemory::new(),
            tlb: Tlb::new(SmpConfig { policy, timeout_ns: u64::MAX, ..SmpConfig::default() }),
            rcu: Rcu::new(),
            work,
            stacks: Stacks::new(StackConfig::Mapped { lazy_max_pages: Some(0) }),
            on_the_way: Mutex::new(Vec::new()),
            moved: Atomic::new(0),
            done: Atomic::new(0),
        }
    }
    fn on(&self) -> PtRef<'_, Model> {
        PtRef {
            frames: &self.frames,
            locks: &self.locks,
            tlb: &self.tlb,
            counts: &self.counts,
            room: None,
        }
    }
    fn make(&self) -> Stack {
        self.stacks.make(self.on()).expect("there is memory").expect("stacks are counted")
    }
    /// Returns the number of stacks that are in no cache.
    fn make_some(&self, count: usize) -> Vec<Stack> {
        (0..count).map(|_| self.make()).collect()
    }
    fn fill_cache(&self) {
        self.make_some(CACHED).into_iter().for_each(|stack| self.stacks.put(stack));
    }
    /// Starts a task here; it moves to CPU 0.
    fn begin(&self, stack: Stack) {
        self.stacks.enter(self.on(), &stack);
        self.moved.fetch_add(1, Release);
        self.on_the_way.lock().expect("no panic").push(stack);
    }
    /// Ends the task that has moved here.
    fn end_one(&self) {
        // In a statement of its own, so that the list is unlocked when the task ends.
        let arrived = self.on_the_way.lock().expect("no panic").pop();
        if let Some(stack) = arrived {
            // A read-modify-write sees the last value: that of `begin`.
            self.moved.fetch_add(0, Acquire);
            self.stacks.leave(self.on(), stack);
        }
    }
    fn run(&self, item: WorkItem) {
        match item {
            WorkItem::FreeStacks(cpu) => self.stacks.free_ready(self.on(), &self.work, cpu),
            WorkItem::PurgeStacks => self.stacks.purge(self.on()),
            other => panic!("{other:?} was queued"),
        }
    }
    /// Runs work and a tick, and lets other CPUs run.
    fn step(&self) {
        self.work.step(Model::cpu(), &mut |item| self.run(item));
        interrupt(|| self.rcu.tick());
        Model::relax();
    }
    fn reaper(&self) {
        self.stacks.reaper(&self.rcu, &self.work);
    }
    /// Ends the machine, on CPU 0: all frames are free then.
    fn quiesce(&self) {
        self.stacks.stop();
        let mut online = CpuMask::EMPTY;
        Model::online(&mut online);
        self.stacks.quiesce(self.on(), &online);
        assert_eq!(self.frames.verify().expect("everything adds up").held, 0, "frames are lost");
    }
}

type Body = fn(&World);

/// Returns a body for each CPU; the reaper is on the last one.
fn scenario(policy: CallPolicy, set_up: Body, bodies: &[Body]) {
    run(bodies.len() + 1, || {
        let world = Arc::new(World::new(policy));
        set_up(&world);
        let body = |body: &Body| {
            let (world, body) = (Arc::clone(&world), *body);
            cpu_body(move || body(&world))
        };
        let bodies = bodies.iter().chain([&(World::reaper as Body)]).map(body).collect();
        (Some(world.clone() as Arc<dyn Hooks>), bodies)
    });
}

/// A task starts on CPU 1, which keeps the translation of its stack, and ends on CPU 0, which frees
/// the stack and purges its address. A later task at that address starts on CPU 1 too: CPU 0 finds
/// its mark.
#[test]
fn a_stack_at_an_address_that_was_freed_is_found_by_all_cpus() {
    for policy in CallPolicy::ALL {
        check(150, move || {
            let ends: Body = |world| {
                while world.done.load(SeqCst) == 0 {
                    world.end_one();
                    world.step();
                }
                world.end_one();
                world.quiesce();
            };
            let begins: Body = |world| {
                world.begin(world.make());
                while world.stacks.stats().freed == 0 {
                    interrupt(|| world.rcu.tick());
                    Model::relax();
                }
                world.begin(world.make());
                world.done.store(1, SeqCst);
            };
            scenario(policy, World::fill_cache, &[ends, begins]);
        });
    }
}

/// A reader that started before a task ended may still read that task's stack.
#[test]
fn no_stack_is_freed_under_a_reader() {
    check(150, || {
        let ends: Body = |world| {
            while world.done.load(SeqCst) < 1 {
                Model::relax();
            }
            world.end_one();
            while world.done.load(SeqCst) < 2 || world.stacks.stats().freed == 0 {
                world.step();
            }
            world.quiesce();
        };
        let reads: Body = |world| {
            let reader = world.rcu.read();
            world.begin(world.make());
            world.done.store(1, SeqCst);
            (0..8).for_each(|_| Model::relax());
            assert_eq!(world.stacks.stats().freed, 0, "the reader may use it");
            drop(reader);
            world.done.store(2, SeqCst);
        };
        scenario(CallPolicy::Stock, World::fill_cache, &[ends, reads]);
    });
}

/// Two stacks wait for grace periods, the second while the first one's starts. CPU 0 sleeps until
/// the reaper has work for it.
#[test]
fn every_stack_that_waits_is_freed() {
    check(200, || {
        let ends: Body = |world| {
            world.end_one();
            world.end_one();
            world.work.worker(CpuId::new(0), |item| {
                world.run(item);
                if world.stacks.stats().freed == 2 {
                    world.work.shutdown();
                }
            });
            world.quiesce();
        };
        let set_up: Body = |world| {
            world.make_some(2).into_iter().for_each(|stack| world.begin(stack));
            world.fill_cache();
        };
        scenario(CallPolicy::Stock, set_up, &[ends]);
    });
}

/// CPU 1 goes offline with a full cache, and with stacks that wait for a grace period, which may be
/// in progress.
#[test]
fn stacks_of_a_cpu_that_leaves_come_home() {
    let boss: Body = |world| {
        while world.done.load(SeqCst) == 0 {
            world.step();
        }
        let gone = CpuId::new(1);
        set_online(gone.index(), false);
        world.tlb.cpu_dead(gone);
        world.rcu.cpu_dead(gone);
        world.stacks.cpu_dead(world.on(), &world.work, gone);
        assert!(world.stacks.stats().freed >= CACHED as u64, "its cache is freed with it");
        (0..4).for_each(|_| world.step());
        world.quiesce();
    };
    let leaves: Body = |world| {
        (0..CACHED + 2).for_each(|_| world.end_one());
        while !interrupt(|| world.tlb.smp().cpu_dying()) {
            Model::relax();
        }
        world.done.store(1, SeqCst);
    };
    let set_up: Body = |world| {
        world.make_some(CACHED + 2).into_iter().for_each(|stack| world.begin(stack));
    };
    check(150, move || scenario(CallPolicy::Stock, set_up, &[boss, leaves]));
}
