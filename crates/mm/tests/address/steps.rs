//! One operation on an address space and on its model, which must agree.

use crate::address::machine::Machine;
use crate::address::model::{Model, Page};
use mmscale_arch::{NodeId, VmaRange};
use mmscale_mm::lru::LruPolicy;
use mmscale_mm::space::{
    Advice, LockWhat, MapRequest, MayMove, Place, Present, Prot, RemapRequest, Space, SpaceConfig,
    SpaceError, Vma,
};
use mmscale_stepped::{self as stepped, Stepped};
use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;

pub(crate) const CPUS: usize = 3;
const SPACES: usize = 3;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Map(MapRequest),
    Unmap(VmaRange),
    Protect(VmaRange, Prot),
    Remap(RemapRequest),
    Advise(VmaRange, Advice),
    Lock(VmaRange, LockWhat),
    Unlock(VmaRange),
    Bind(VmaRange, usize, Present),
    Core(VmaRange),
    Read(u64),
    Write(u64, u64),
    Fork,
    Exit,
    /// Switches to another address space.
    Turn(usize),
    /// Switches to another CPU.
    Cpu(usize),
    Drain,
    /// The device completes some requests.
    Finish(usize),
}

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) policy: LruPolicy,
    pub(crate) config: SpaceConfig,
    /// Operations use `pages` pages that start at `base`, and ranges that mmap chooses.
    pub(crate) base: u64,
    pub(crate) pages: u64,
    /// The largest size of an operation, in pages.
    pub(crate) largest: u64,
    pub(crate) broadcast: bool,
    /// Swap slots.
    pub(crate) slots: u32,
}

/// How often each case has occurred.
pub(crate) type Cases = BTreeMap<&'static str, u64>;

pub(crate) struct Run {
    machine: Machine,
    setting: Setting,
    spaces: Vec<(Arc<Space<Stepped>>, Model)>,
    /// The index of the current address space.
    now: usize,
    pub(crate) cases: Cases,
}

impl Run {
    pub(crate) fn new(setting: Setting) -> Self {
        let machine = Machine::boot(CPUS, |config| {
            config.lru = setting.policy;
            config.space = setting.config;
            config.swap.pages = setting.slots;
        });
        stepped::set_broadcast(setting.broadcast);
        let first = (machine.space(), Model::new(setting.config));
        Self { machine, setting, spaces: vec![first], now: 0, cases: Cases::new() }
    }
    /// The model of the current address space.
    pub(crate) fn model(&self) -> &Model {
        &self.spaces[self.now].1
    }
    fn case(&mut self, holds: bool, case: &'static str) {
        if holds {
            *self.cases.entry(case).or_default() += 1;
        }
    }
    pub(crate) fn step(&mut self, step: Step) {
        match step {
            Step::Fork => self.fork(),
            Step::Exit => self.exit(),
            Step::Turn(to) => self.now = to % self.spaces.len(),
            Step::Cpu(cpu) => self.machine.go_to(cpu),
            Step::Drain => self.machine.mm.memory().drain(),
            Step::Finish(count) => self.machine.finish_ios(count),
            _ => {
                let unused = Model::new(self.setting.config);
                let (space, model) = &mut self.spaces[self.now];
                let (space, mut model) = (Arc::clone(space), mem::replace(model, unused));
                self.call(&space, &mut model, step);
                self.spaces[self.now].1 = model;
            }
        }
    }
    fn fork(&mut self) {
        if self.spaces.len() == SPACES {
            return;
        }
        let (space, model) = &self.spaces[self.now];
        let child = space.fork(self.machine.on()).expect("there is memory");
        let copy = model.fork();
        self.case(copy.pages.len() < model.pages.len(), "fork leaves VMAs out");
        self.spaces.push((child, copy));
        self.case(true, "fork");
    }
    fn exit(&mut self) {
        let (gone, model) = self.spaces.swap_remove(self.now);
        self.machine.exit(gone);
        if self.spaces.is_empty() {
            self.spaces.push((self.machine.space(), Model::new(self.setting.config)));
        }
        self.now = 0;
        self.case(model.pages.len() > 20, "exit with pages");
    }
    fn call(&mut self, space: &Space<Stepped>, model: &mut Model, step: Step) {
        let mm = self.machine.mm.clone();
        let on = mm.mm_ref();
        match step {
            Step::Map(request) => self.map(space, model, request),
            Step::Remap(request) => self.remap(space, model, request),
            Step::Advise(range, advice) => self.advise(space, model, range, advice),
            Step::Unmap(range) => {
                let (start, end) = ends(range);
                let inside = start > 0 && model.one_vma(start - 1, end + 1);
                let holes = !model.covers(start, end) && !model.is_free(start, end);
                let expect = model.munmap(start, end);
                assert_eq!(space.munmap(on, range), expect, "{step:?}");
                self.case(expect.is_ok() && inside, "munmap inside a VMA");
                self.case(expect.is_err(), "munmap of too many VMAs");
                self.case(holes, "munmap over holes");
            }
            Step::Protect(range, prot) => {
                let (start, end) = ends(range);
                let several = model.covers(start, end) && !model.one_vma(start, end);
                let expect = model.mprotect(start, end, prot);
                assert_eq!(space.mprotect(on, range, prot), expect, "{step:?}");
                self.case(expect.is_err(), "mprotect up to a hole");
                self.case(several && model.one_vma(start, end), "mprotect makes one VMA of some");
            }
            Step::Lock(range, what) => {
                let (start, end) = ends(range);
                let expect = model.mlock(start, end, what);
                assert_eq!(space.mlock(on, range, what), expect, "{step:?}");
                self.case(expect.is_err() && model.covers(start, end), "mlock over the limit");
                self.case(expect.is_ok(), "mlock");
            }
            Step::Unlock(range) => {
                let (start, end) = ends(range);
                let locked = model.locked();
                let expect = model.munlock(start, end);
                assert_eq!(space.munlock(on, range), expect, "{step:?}");
                self.case(model.locked() < locked, "munlock");
            }
            Step::Bind(range, node, present) => {
                let (start, end) = ends(range);
                let expect = model.mbind(start, end, NodeId::new(node));
                let done = space.mbind(on, range, NodeId::new(node), present);
                assert_eq!(done.map(|_| ()), expect, "{step:?}");
                let left = done.unwrap_or(0);
                assert!(left <= range.pages() && (left == 0 || present == Present::Move));
                self.case(done == Ok(0) && present == Present::Move, "mbind moves all");
                self.case(left > 0, "mbind leaves pages");
            }
            Step::Core(range) => self.core(space, model, range),
            Step::Read(at) => {
                let done = self.machine.read(space, at);
                let dropped = model.read(at, done);
                self.case(dropped, "a freed page that is gone");
                let expect = done;
                self.case(expect.is_err(), "a read that faults");
            }
            Step::Write(at, stamp) => {
                let expect = model.access(at, Some(stamp));
                assert_eq!(self.machine.write(space, at, stamp), expect.map(drop), "{step:?}");
                self.case(expect.is_err(), "a write that faults");
                self.case(expect.is_ok() && self.spaces.len() > 1, "a write after fork");
            }
            _ => unreachable!("no system call: {step:?}"),
        }
    }
    fn map(&mut self, space: &Space<Stepped>, model: &mut Model, request: MapRequest) {
        let over = match request.place {
            Place::Fixed(at) => {
                let end = at.get().saturating_add(request.pages).max(at.get() + 1);
                !model.is_free(at.get(), end)
            }
            _ => false,
        };
        let expect = model.mmap(request);
        let done = space.mmap(self.machine.on(), request);
        assert_eq!(done.map(|page| page.get()), expect, "{request:?}");
        let Ok(start) = expect else {
            self.case(expect == Err(SpaceError::Exists), "mmap where something is");
            self.case(expect == Err(SpaceError::Again), "mmap locks too much");
            self.case(expect == Err(SpaceError::NoMemory), "mmap of too many VMAs");
            return;
        };
        let end = start + request.pages;
        let below = start > 0 && model.one_vma(start - 1, end);
        let above = model.one_vma(start, end + 1);
        self.case(below && above, "mmap joins both sides");
        self.case(below != above, "mmap joins one side");
        self.case(over, "mmap over others");
        let hinted = matches!(request.place, Place::Hint(at) if at.get() != start);
        self.case(hinted, "mmap elsewhere than hinted");
    }
    fn remap(&mut self, space: &Space<Stepped>, model: &mut Model, request: RemapRequest) {
        let RemapRequest { from, old_pages, new_pages, may_move } = request;
        let over = match may_move {
            MayMove::To(to) => !model.is_free(to.get(), to.get().saturating_add(new_pages)),
            _ => false,
        };
        let moved =
            |model: &Model, at: u64| model.pages.get(&at).is_some_and(|page| page.index != at);
        let was_moved = moved(model, from.get());
        let written = model.pages.get(&from.get()).is_some_and(|page| page.stamp != 0);
        let expect = model.mremap(request);
        let done = space.mremap(self.machine.on(), request);
        assert_eq!(done.map(|page| page.get()), expect, "{request:?}");
        let Ok(start) = expect else {
            self.case(expect == Err(SpaceError::Fault), "mremap of more than a VMA");
            self.case(expect == Err(SpaceError::NoMemory), "mremap without room");
            self.case(expect == Err(SpaceError::Again), "mremap locks too much");
            return;
        };
        let stays = start == from.get();
        self.case(stays && new_pages > old_pages, "mremap grows in place");
        self.case(stays && new_pages < old_pages, "mremap shrinks in place");
        self.case(over, "mremap onto others");
        self.case(!stays && written, "mremap moves content");
        self.case(!stays && new_pages < old_pages, "mremap moves and shrinks");
        self.case(may_move == MayMove::Leave, "mremap leaves an empty VMA");
        self.case(!stays && was_moved, "mremap of a moved VMA");
        self.case(was_moved && !moved(model, start), "mremap back to where it was");
    }
    fn advise(
        &mut self,
        space: &Space<Stepped>,
        model: &mut Model,
        range: VmaRange,
        advice: Advice,
    ) {
        let (start, end) = ends(range);
        let both = |page: &Page| page.freed && page.stamp != 0 && page.there;
        let given_up = model.pages.range(start..end).any(|(_, page)| both(page));
        self.case(given_up && advice == Advice::PageOut, "freed pages paged out");
        let expect = model.madvise(start, end, advice);
        let done = space.madvise(self.machine.on(), range, advice);
        if advice == Advice::Collapse && expect.is_ok() {
            // The model does not know which pages are shared or in a batch.
            assert!(matches!(done, Ok(()) | Err(SpaceError::Again)), "{range}: {done:?}");
            self.case(done.is_ok(), "collapse");
            self.case(done.is_err(), "collapse of shared pages");
            return;
        }
        if advice == Advice::Collapse && done == Err(SpaceError::Again) {
            // A VMA before the one that fails, or before the hole, has a shared page.
            return;
        }
        assert_eq!(done, expect, "{advice:?} {range}");
        self.case(expect == Err(SpaceError::Inval), "advice for locked pages");
        self.case(expect == Err(SpaceError::NoMemory), "advice over holes");
        self.case(expect.is_ok() && advice == Advice::DontNeed, "pages freed by advice");
    }
    fn core(&mut self, space: &Space<Stepped>, model: &Model, range: VmaRange) {
        let (start, end) = ends(range);
        let mut seen = Vec::new();
        let done = space.mincore(self.machine.on(), range, |there| seen.push(there));
        if !model.covers(start, end) {
            assert_eq!((done, seen.len()), (Err(SpaceError::NoMemory), 0), "mincore {range}");
            return self.case(true, "mincore over holes");
        }
        assert_eq!((done, seen.len() as u64), (Ok(()), range.pages()));
        self.compare_core(model, start, &seen);
    }
    fn compare_core(&self, model: &Model, start: u64, seen: &[bool]) {
        for (at, &there) in (start..).zip(seen) {
            let page = &model.pages[&at];
            let exact = self.setting.largest < 512;
            let right = page.paged_out || there == page.there || there && !exact;
            assert!(right, "mincore of {at:#x}: {there}, {page:?}");
        }
    }
    /// Checks all address spaces against their models, and runs all checks.
    pub(crate) fn verify(&self) {
        let audit = self.machine.check();
        let vmas: usize = self.spaces.iter().map(|(_, model)| model.vmas().len()).sum();
        assert_eq!((audit.spaces, audit.vmas), (self.spaces.len() as u64, vmas as u64));
        for (space, model) in &self.spaces {
            let vmas = model.vmas();
            let found: Vec<_> =
                space.vmas().into_iter().map(|vma| Vma { anon: None, ..vma }).collect();
            assert_eq!(found, vmas);
            assert_eq!(space.pages(), (model.pages.len() as u64, model.locked()));
            for vma in vmas {
                let mut seen = Vec::new();
                let _ = space.mincore(self.machine.on(), vma.range, |there| seen.push(there));
                self.compare_core(model, vma.range.start().get(), &seen);
            }
        }
    }
    /// Reads every readable page in every address space.
    pub(crate) fn compare_contents(&mut self) {
        for (space, model) in &mut self.spaces {
            let all: Vec<u64> = model.pages.keys().copied().collect();
            for at in all {
                model.read(at, self.machine.read(space, at));
            }
        }
    }
    /// Ends everything; returns the cases.
    pub(crate) fn end(mut self) -> Cases {
        self.verify();
        self.compare_contents();
        for (space, _) in self.spaces.drain(..) {
            self.machine.exit(space);
        }
        self.machine.end();
        self.cases
    }
}

fn ends(range: VmaRange) -> (u64, u64) {
    (range.start().get(), range.end().get())
}
