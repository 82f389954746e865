//! Page faults against everything that removes pages and VMAs, in every order of a few steps.

use mmscale_arch::Policy as _;
use mmscale_arch::sync::Completion;
use mmscale_arch::{Atomic, Cpu, CpuId, Ipi, Machine as _, VmaRange, Vpn};
use mmscale_frames::page_alloc::MemoryMap;
use mmscale_interleave::{Hooks, Model, check, cpu_body, run};
use mmscale_mm::lru::{LruAudit, LruPolicy};
use mmscale_mm::memcg::GroupId;
use mmscale_mm::mm::{Mm, MmConfig};
use mmscale_mm::pgtable::MemAccess;
use mmscale_mm::reclaim::{Rmap, UnmapTo};
use mmscale_mm::smp::CallPolicy;
use mmscale_mm::space::{
    Advice, ExitPolicy, FaultError, MapRequest, MayMove, Place, Prot, RemapRequest, RetryPolicy,
    Space, SpaceAudit,
};
use mmscale_mm::tlb::{Leave, UnmapBatch};
use mmscale_mm::vmstat_work::TickPolicy;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, OnceLock};

const POLICIES: [LruPolicy; LruPolicy::ALL.len()] = LruPolicy::ALL;
/// The first of six pages; 0 and 1 hold 10 and 11.
pub(super) const AT: u64 = 512 * 3 - 1;
const TO: u64 = 512 * 7;

/// One address space, and a child of it if a test needs one.
pub(super) struct World {
    pub(super) mm: Mm<Model>,
    space: OnceLock<Arc<Space<Model>>>,
    child: OnceLock<Arc<Space<Model>>>,
    /// A signal from one step to the others.
    told: <Model as Cpu>::AtomicU32,
}

impl Hooks for World {
    fn ipi(&self, reason: Ipi) {
        self.mm.ipi(reason);
    }
    fn idle_enter(&self) {
        self.mm.tlb().enter_lazy();
    }
}

pub(super) fn range(at: u64, pages: u64) -> VmaRange {
    VmaRange::with_pages(Vpn::new(at), pages).expect("user pages")
}

impl World {
    pub(super) fn space(&self) -> &Arc<Space<Model>> {
        self.space.get().expect("CPU 0 has made it")
    }
    pub(super) fn read(&self, space: &Space<Model>, page: u64) -> Result<u64, FaultError> {
        let page = Vpn::new(AT + page);
        space.access(self.mm.mm_ref(), page, MemAccess::Read, Model::read_stamp)
    }
    pub(super) fn write(
        &self,
        space: &Space<Model>,
        page: u64,
        stamp: u64,
    ) -> Result<(), FaultError> {
        let write = |pfn| Model::write_stamp(pfn, stamp);
        space.access(self.mm.mm_ref(), Vpn::new(AT + page), MemAccess::Write, write)
    }
    /// Maps a page, with the content that the test expects.
    fn prepare(&self) {
        let on = self.mm.mm_ref();
        on.spaces.start(self.mm.frames()).expect("there is memory");
        let space = Space::new(on, GroupId::ROOT).expect("there is memory");
        let request = MapRequest::new(6).at(Place::Fixed(Vpn::new(AT)));
        assert_eq!(space.mmap(on, request), Ok(Vpn::new(AT)));
        for page in [0, 1] {
            self.write(&space, page, 10 + page).expect("there is memory");
        }
        assert!(self.space.set(space).is_ok());
    }
    /// Signals another step's [`World::until_told`].
    pub(super) fn tell(&self) {
        self.told.store(1, SeqCst);
    }
    pub(super) fn is_told(&self) -> bool {
        self.told.load(SeqCst) != 0
    }
    pub(super) fn until_told(&self) {
        while !self.is_told() {
            Model::user(0);
        }
    }
    pub(super) fn fork(&self) {
        let child = self.space().fork(self.mm.mm_ref()).expect("there is memory");
        assert!(self.child.set(child).is_ok());
    }
    pub(super) fn child(&self) -> &Arc<Space<Model>> {
        self.child.get().expect("a step has made it")
    }
    /// Checks that the structures are consistent, and that nothing is left after the end.
    fn end(&self) {
        let on = self.mm.mm_ref();
        on.leave_limbo(Leave::All);
        self.mm.memory().verify().unwrap_or_else(|why| panic!("the LRU: {why}"));
        on.verify().unwrap_or_else(|why| panic!("the address spaces: {why}"));
        // An address space that has ended already is in no audit.
        let spaces = self.child.get().into_iter().chain([self.space()]);
        spaces.filter(|space| !space.is_skipped()).for_each(|space| space.exit(on));
        assert_eq!(on.verify(), Ok(SpaceAudit::default()));
        self.mm.quiesce();
        assert_eq!(self.mm.memory().verify(), Ok(LruAudit::default()));
        assert_eq!(self.mm.verify().expect("the frames add up").held, 0);
    }
}

pub(super) type Step = fn(&World);

/// `before` runs on CPU 0, then each CPU runs its step concurrently with the others; then `after`.
fn in_every_order(before: Step, steps: &'static [Step], after: Step) {
    in_orders(60, before, steps, after);
}

fn in_orders(schedules: usize, before: Step, steps: &'static [Step], after: Step) {
    in_orders_with(schedules, ExitPolicy::Stock, before, steps, after);
}

/// Like [`in_every_order`], with a choice of how address spaces end.
pub(super) fn in_orders_with(
    schedules: usize,
    exit: ExitPolicy,
    before: Step,
    steps: &'static [Step],
    after: Step,
) {
    for policy in POLICIES {
        in_orders_under((policy, exit), schedules, before, steps, after);
    }
}

/// Like [`in_orders_with`], with one policy to list folios.
pub(super) fn in_orders_under(
    (lru, exit): (LruPolicy, ExitPolicy),
    schedules: usize,
    before: Step,
    steps: &'static [Step],
    after: Step,
) {
    let mut config = MmConfig::new(MemoryMap::single(2048), TickPolicy::Stock);
    (config.lru, config.space.exit) = (lru, exit);
    check(schedules, move || once(&config, before, steps, after));
}

/// Like [`in_every_order`], with these policies to list folios and to call CPUs, on a machine with
/// a second node without CPUs.
pub(super) fn in_orders_of(
    (lru, calls): (LruPolicy, CallPolicy),
    schedules: usize,
    before: Step,
    steps: &'static [Step],
    after: Step,
) {
    let mut config = MmConfig::new(MemoryMap::nodes(2, 1024), TickPolicy::Stock);
    (config.lru, config.smp.policy) = (lru, calls);
    config.swap.pages = 600;
    config.space.retry = RetryPolicy::at(calls.place() % RetryPolicy::ALL.len());
    check(schedules, move || once(&config, before, steps, after));
}

/// Runs one schedule.
fn once(config: &MmConfig, before: Step, steps: &'static [Step], after: Step) {
    let mut made = None;
    run(steps.len(), || {
        let mm = Mm::new(config).expect("a sound configuration");
        let (space, child) = (OnceLock::new(), OnceLock::new());
        let world = Arc::new(World { mm, space, child, told: Atomic::new(0) });
        made = Some(Arc::clone(&world));
        let ready = Arc::new(Completion::<Model>::new());
        let body = |(at, step): (usize, &Step)| {
            let (world, step, ready) = (Arc::clone(&world), *step, Arc::clone(&ready));
            cpu_body(move || {
                if at == 0 {
                    world.prepare();
                    before(&world);
                    ready.complete();
                }
                ready.wait();
                step(&world);
            })
        };
        let bodies = steps.iter().enumerate().map(body).collect();
        (Some(world.clone() as Arc<dyn Hooks>), bodies)
    });
    let world = made.expect("it was built");
    // The CPUs have stopped for good: none would answer a call.
    (0..steps.len()).for_each(|cpu| world.mm.tlb().cpu_dead(CpuId::new(cpu)));
    after(&world);
    world.end();
}

pub(super) fn nothing(_: &World) {}

/// Writes to pages 0 to 3; those that are unmapped are skipped.
fn touch(world: &World) {
    for page in [1, 2, 3] {
        match world.write(world.space(), page, 20 + page) {
            Ok(()) => {
                let read = world.read(world.space(), page);
                let right = [Ok(0), Ok(20 + page), Err(FaultError::Segv)].contains(&read);
                assert!(right, "page {page}: {read:?}");
            }
            Err(why) => assert_eq!(why, FaultError::Segv),
        }
    }
}

fn unmap(world: &World) {
    assert_eq!(world.space().munmap(world.mm.mm_ref(), range(AT + 1, 2)), Ok(()));
    assert_eq!(world.read(world.space(), 1), Err(FaultError::Segv), "it is unmapped");
}

fn drain(world: &World) {
    world.mm.memory().drain();
}

fn touch_and_drain(world: &World) {
    touch(world);
    drain(world);
}

fn give_up(world: &World) {
    let given_up = world.space().madvise(world.mm.mm_ref(), range(AT, 4), Advice::DontNeed);
    assert!(given_up.is_ok() || given_up == Err(mmscale_mm::space::SpaceError::NoMemory));
}

#[test]
fn faults_against_munmap_against_drain() {
    in_every_order(nothing, &[touch, unmap, drain], |world| {
        assert_eq!(world.read(world.space(), 0), Ok(10));
        assert_eq!(world.read(world.space(), 2), Err(FaultError::Segv));
        assert_eq!(world.read(world.space(), 3), Ok(23));
    });
    in_every_order(nothing, &[touch_and_drain, unmap, touch_and_drain], nothing);
}

/// A fault that has found its VMA, and is delayed until the VMA is unmapped, must not take it for
/// alive: the VMA's life ends before its lock is released.
#[test]
fn a_fault_against_the_end_of_its_vma() {
    fn touch_one(world: &World) {
        let done = world.write(world.space(), 3, 23);
        assert!(done.is_ok() || done == Err(FaultError::Segv), "{done:?}");
    }
    fn unmap_all(world: &World) {
        assert_eq!(world.space().munmap(world.mm.mm_ref(), range(AT, 6)), Ok(()));
    }
    in_orders(600, nothing, &[unmap_all, touch_one], |world| {
        assert_eq!(world.read(world.space(), 3), Err(FaultError::Segv));
    });
}

#[test]
fn faults_against_pages_that_are_given_up() {
    in_every_order(nothing, &[touch, give_up, unmap], |world| {
        assert_eq!(world.read(world.space(), 0), Ok(0));
    });
}

/// A page that is read-only when mprotect returns is not written to afterwards.
#[test]
fn faults_against_mprotect() {
    fn protect(world: &World) {
        let part = range(AT + 1, 2);
        assert_eq!(world.space().mprotect(world.mm.mm_ref(), part, Prot::READ), Ok(()));
        let before = world.read(world.space(), 2);
        assert_eq!(world.write(world.space(), 2, 99), Err(FaultError::Segv));
        drain(world);
        assert_eq!(world.read(world.space(), 2), before);
    }
    in_every_order(nothing, &[protect, touch, touch], nothing);
}

/// A moved page keeps what was written to it.
#[test]
fn faults_against_mremap() {
    fn away(world: &World) {
        let (from, may_move) = (Vpn::new(AT), MayMove::To(Vpn::new(TO)));
        let request = RemapRequest { from, old_pages: 3, new_pages: 3, may_move };
        assert_eq!(world.space().mremap(world.mm.mm_ref(), request), Ok(Vpn::new(TO)));
        assert_eq!(world.read(world.space(), 0), Err(FaultError::Segv));
    }
    fn write_first(world: &World) {
        let done = world.write(world.space(), 0, 30);
        assert!(done.is_ok() || done == Err(FaultError::Segv));
    }
    in_every_order(nothing, &[away, write_first, touch], |world| {
        let there = world.read(world.space(), TO - AT);
        assert!(there == Ok(10) || there == Ok(30), "{there:?}");
        let (old, new) = (world.read(world.space(), 1), world.read(world.space(), TO - AT + 1));
        assert_eq!(old, Err(FaultError::Segv));
        assert!(new == Ok(11) || new == Ok(21), "{new:?}");
    });
}

/// The child has what the parent had at one time, and neither sees later writes of the other.
#[test]
fn faults_against_fork() {
    fn fork(world: &World) {
        world.fork();
        let child = world.child();
        let seen = world.read(child, 1);
        assert!(seen == Ok(11) || seen == Ok(21), "{seen:?}");
        assert_eq!(world.write(child, 0, 40), Ok(()));
        assert_eq!(world.read(child, 1), seen, "the parent writes to its own");
    }
    in_every_order(nothing, &[fork, touch], |world| {
        assert_eq!(world.read(world.space(), 0), Ok(10));
        assert_eq!(world.read(world.space(), 1), Ok(21));
    });
}

/// Both sides write to the same shared page: two copies, or one copy and the original.
#[test]
fn copies_on_both_sides_at_once() {
    fn parent(world: &World) {
        assert_eq!(world.write(world.space(), 0, 50), Ok(()));
        assert_eq!(world.read(world.space(), 0), Ok(50));
    }
    fn child(world: &World) {
        let child = world.child();
        assert_eq!(world.write(child, 0, 60), Ok(()));
        assert_eq!(world.read(child, 0), Ok(60));
    }
    in_every_order(World::fork, &[parent, child, child], |world| {
        assert_eq!(world.read(world.space(), 0), Ok(50));
        assert_eq!(world.read(world.child(), 0), Ok(60));
    });
    in_every_order(World::fork, &[parent, parent, drain], nothing);
}

/// Unmaps every folio that was not written since it was given up, as reclaim does.
pub(super) fn drop_clean(world: &World) {
    let on = world.mm.mm_ref();
    let folios: Vec<_> = on.memory.folios.iter().map(|(pfn, _)| pfn).collect();
    for pfn in folios {
        if on.memory.folios.try_get(pfn) {
            on.referenced(pfn);
            on.unmap(pfn, UnmapTo::Drop, &mut UnmapBatch::new());
            on.memory.put(pfn);
        }
    }
}
/// Reclaim unmaps, by the reverse map, a page that other CPUs write to or unmap: no write is lost.
#[test]
fn the_reverse_map_against_faults_and_munmap() {
    fn free(world: &World) {
        let freed = world.space().madvise(world.mm.mm_ref(), range(AT, 2), Advice::Free);
        assert_eq!(freed, Ok(()));
    }
    in_every_order(free, &[drop_clean, touch, unmap], |world| {
        let read = world.read(world.space(), 0);
        assert!(read == Ok(0) || read == Ok(10), "{read:?}");
        assert_eq!(world.read(world.space(), 3), Ok(23));
    });
}
