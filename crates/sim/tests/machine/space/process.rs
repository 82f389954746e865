//! A process with threads that run random operations.
//!
//! A stamp identifies the writer of a page. A process reads its own stamps, its parents', or zero,
//! and never those of a child or of another process. In addition to the pages that all threads use,
//! each thread has pages of its own, whose contents it knows exactly.

use crate::lru::world::{GROUP, World};
use mmscale_arch::{Machine as _, NodeId, VmaRange, Vpn};
use mmscale_mm::pgtable::MemAccess;
use mmscale_mm::space::{
    Advice, FaultError, LockWhat, MapRequest, MayMove, MmRef, Place, Present, Prot, RemapRequest,
    Space, SpaceError,
};
use mmscale_sim::Sim;
use std::sync::Arc;

/// Pages that all threads use, across a huge page and the edges of page tables.
pub(super) const SHARED: u64 = 512 * 8 - 60;
pub(super) const SHARED_PAGES: u64 = 640;
/// Pages of the first thread; those of the next thread follow at a distance of `APART`.
const OWN: u64 = 512 * 30;
const APART: u64 = 200;
const OWN_PAGES: u64 = 24;

/// Draws the next word of a thread's own choices.
pub(super) fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e);
    *state >> 33
}

pub(super) fn range(at: u64, pages: u64) -> VmaRange {
    VmaRange::with_pages(Vpn::new(at), pages).expect("user pages")
}

/// Accepts results that races and a lack of memory explain.
fn explained<T>(done: Result<T, SpaceError>) {
    use SpaceError::{Again, Fault, Inval, NoMemory};
    if let Err(why) = done {
        assert!(matches!(why, Again | Fault | Inval | NoMemory), "{why:?}");
    }
}

/// Whether the swap device fails at times. The read of a page then reports an error, and succeeds
/// later: a page that cannot be written stays in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Disk {
    Sound,
    Failing,
}

/// A thread of a process.
pub(super) struct Thread<'a> {
    world: &'a World,
    space: &'a Space<Sim>,
    /// The tag of the process; those of its children are above it.
    tag: u64,
    /// The first of its own pages, and their contents; the second half is where they may be moved.
    own: u64,
    holds: [u64; OWN_PAGES as usize],
    state: u64,
    disk: Disk,
}

impl<'a> Thread<'a> {
    pub(super) fn new(world: &'a World, space: &'a Space<Sim>, tag: u64, number: u64) -> Self {
        let own = OWN + number * APART;
        let state = tag << 20 | number << 8 | world.mm.memory().groups.count() as u64;
        Self { world, space, tag, own, holds: [0; OWN_PAGES as usize], state, disk: Disk::Sound }
    }
    pub(super) fn with(self, disk: Disk) -> Self {
        Self { disk, ..self }
    }
    /// Whether the failure of a read is explained by the device.
    fn unreadable(&self, why: FaultError) -> bool {
        why == FaultError::Bus && self.disk == Disk::Failing
    }
    pub(super) fn seeded(mut self, seed: u64) -> Self {
        self.state ^= seed << 40;
        self
    }
    fn on(&self) -> MmRef<'a, Sim> {
        self.world.mm.mm_ref()
    }
    fn below(&mut self, end: u64) -> u64 {
        next(&mut self.state) % end
    }
    /// Repeats an operation until there is memory for it.
    fn insist<T>(&self, mut f: impl FnMut() -> Result<T, SpaceError>) -> T {
        for _ in 0..100 {
            match f() {
                Ok(done) => return done,
                Err(SpaceError::NoMemory) => Sim::user(2_000),
                Err(why) => panic!("a thread's own pages: {why}"),
            }
        }
        panic!("no memory in 100 attempts");
    }
    /// Uses a page of the thread's own.
    fn touch(&self, at: u64, write: Option<u64>) -> u64 {
        self.insist(|| match access(self.world, self.space, at, write) {
            Ok(stamp) => Ok(stamp),
            Err(FaultError::Oom) => Err(SpaceError::NoMemory),
            Err(why) if self.unreadable(why) => Err(SpaceError::NoMemory),
            Err(why) => panic!("page {at:#x}: {why}"),
        })
    }
    fn map_own(&self) {
        let request = MapRequest::new(OWN_PAGES).at(Place::Fixed(Vpn::new(self.own)));
        self.insist(|| self.space.mmap(self.on(), request));
    }
    pub(super) fn run(mut self, steps: usize) {
        self.map_own();
        for _ in 0..steps {
            if self.below(3) == 0 { self.step_own() } else { self.step_shared() }
        }
        self.look_at_own();
        self.insist(|| self.space.munmap(self.on(), range(self.own, OWN_PAGES)));
    }
    fn look_at_own(&self) {
        for (at, expect) in (self.own..).zip(self.holds) {
            assert_eq!(self.touch(at, None), expect, "a thread's own page {at:#x}");
        }
    }
    /// Runs an operation on pages that only this thread uses.
    fn step_own(&mut self) {
        let first = self.below(OWN_PAGES);
        let pages = 1 + self.below(OWN_PAGES - first);
        let (at, some) = (self.own + first, first as usize..(first + pages) as usize);
        let part = range(at, pages);
        match self.below(9) {
            0..=2 => {
                for page in some {
                    let stamp = self.tag << 32 | next(&mut self.state);
                    self.touch(self.own + page as u64, Some(stamp));
                    self.holds[page] = stamp;
                }
            }
            3 => self.look_at_own(),
            4 => {
                self.insist(|| self.space.madvise(self.on(), part, Advice::DontNeed));
                self.holds[some].fill(0);
            }
            5 => {
                self.insist(|| self.space.munmap(self.on(), part));
                self.insist(|| {
                    let request = MapRequest::new(pages).at(Place::Free(Vpn::new(at)));
                    self.space.mmap(self.on(), request)
                });
                self.holds[some].fill(0);
            }
            6 => {
                // Moves them away and back.
                let to = MayMove::To(Vpn::new(at + APART / 2));
                self.remap(at, pages, to);
                let page = self.touch(at + APART / 2, None);
                assert_eq!(page, self.holds[first as usize]);
                let back = MayMove::To(Vpn::new(at));
                self.remap(at + APART / 2, pages, back);
            }
            7 => explained(self.space.madvise(self.on(), part, Advice::PageOut)),
            _ => {
                self.insist(|| self.space.mprotect(self.on(), part, Prot::READ));
                assert_eq!(access(self.world, self.space, at, Some(1)), Err(FaultError::Segv));
                self.insist(|| self.space.mprotect(self.on(), part, Prot::RW));
            }
        }
    }
    fn remap(&self, from: u64, pages: u64, may_move: MayMove) {
        let from = Vpn::new(from);
        let request = RemapRequest { from, old_pages: pages, new_pages: pages, may_move };
        self.insist(|| self.space.mremap(self.on(), request));
    }
    /// Runs an operation on pages that all threads use.
    fn step_shared(&mut self) {
        let at = SHARED + self.below(SHARED_PAGES);
        let most = if self.below(6) == 0 { 520 } else { 30 };
        let pages = 1 + self.below(most.min(SHARED + SHARED_PAGES - at));
        let (on, part) = (self.on(), range(at, pages));
        match self.below(20) {
            0..=2 => {
                let mut request = MapRequest::new(pages).at(Place::Fixed(Vpn::new(at)));
                request.populate = self.below(3) == 0;
                explained(self.space.mmap(on, request));
            }
            3..=7 => self.wander(at, pages.min(12)),
            8 | 9 => explained(self.space.munmap(on, part)),
            10 => explained(self.space.madvise(on, part, Advice::DontNeed)),
            11 => {
                let prot = if self.below(2) == 0 { Prot::READ } else { Prot::RW };
                explained(self.space.mprotect(on, part, prot));
            }
            12 => {
                let to = SHARED + self.below(SHARED_PAGES - pages + 1);
                let may_move = MayMove::To(Vpn::new(to));
                let from = Vpn::new(at);
                let request = RemapRequest { from, old_pages: pages, new_pages: pages, may_move };
                explained(self.space.mremap(on, request));
            }
            13 => self.fork(at, pages.min(6)),
            14 => {
                explained(self.space.mlock(on, part, LockWhat::Everything));
                explained(self.space.munlock(on, part));
            }
            15 => explained(self.space.madvise(on, part, Advice::PageOut)),
            16 => explained(self.space.madvise(on, part, Advice::HugePage)),
            17 => {
                let huge = range(512 * 8, 512);
                explained(self.space.mmap(on, MapRequest::new(512).at(Place::Fixed(huge.start()))));
                explained(self.space.madvise(on, huge, Advice::Collapse));
            }
            18 => {
                let advice = [Advice::Free, Advice::Cold, Advice::PopulateWrite, Advice::WillNeed];
                let advice = advice[self.below(4) as usize];
                explained(self.space.madvise(on, part, advice));
            }
            _ => {
                let node = NodeId::new(self.below(2) as usize);
                let present = if self.below(4) == 0 { Present::Move } else { Present::Stay };
                explained(self.space.mbind(on, part, node, present).map(|_| ()));
            }
        }
    }
    /// Reads and writes pages that other threads may unmap at the same time.
    fn wander(&mut self, at: u64, pages: u64) {
        for page in at..at + pages {
            let write = (self.below(2) == 0).then_some(self.tag << 32 | 1);
            match access(self.world, self.space, page, write) {
                Ok(stamp) => assert!(stamp == 0 || stamp >> 32 == self.tag, "{stamp:#x}"),
                Err(why) => assert!(why != FaultError::Bus || self.unreadable(why)),
            }
        }
    }
    /// Makes a child, which reads what the parent wrote, writes, and ends.
    fn fork(&mut self, at: u64, pages: u64) {
        let child = match self.space.fork(self.on()) {
            Ok(child) => child,
            Err(why) => return assert_eq!(why, SpaceError::NoMemory),
        };
        for (page, expect) in (self.own..).zip(self.holds).take(6) {
            let read = access(self.world, &child, page, None);
            let told = read.is_err_and(|why| why == FaultError::Oom || self.unreadable(why));
            assert!(told || read == Ok(expect), "{read:?}");
        }
        for page in (at..at + pages).chain([self.own, self.own + 3]) {
            let tag = self.tag + 100;
            match access(self.world, &child, page, Some(tag << 32)) {
                // It may be in swap again.
                Ok(_) => match access(self.world, &child, page, None) {
                    Err(why) if self.unreadable(why) => {}
                    read => assert_eq!(read, Ok(tag << 32)),
                },
                Err(why) => assert!(why != FaultError::Bus || self.unreadable(why)),
            }
        }
        child.exit(self.on());
    }
}

/// Reads a page, or writes to it; returns its stamp.
pub(super) fn access(
    world: &World,
    space: &Space<Sim>,
    at: u64,
    write: Option<u64>,
) -> Result<u64, FaultError> {
    let how = if write.is_some() { MemAccess::Write } else { MemAccess::Read };
    space.access(world.mm.mm_ref(), Vpn::new(at), how, |pfn| {
        write.inspect(|&stamp| Sim::write_stamp(pfn, stamp));
        Sim::read_stamp(pfn)
    })
}

/// An address space of a new process.
pub(super) fn new_space(world: &World) -> Arc<Space<Sim>> {
    for _ in 0..100 {
        if let Ok(space) = Space::new(world.mm.mm_ref(), GROUP) {
            return space;
        }
    }
    panic!("no memory for an address space");
}
