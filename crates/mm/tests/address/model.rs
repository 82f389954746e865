//! A simple model of an address space: a map from page to state.

use mmscale_arch::NodeId;
use mmscale_mm::space::{
    Advice, FaultError, LockWhat, MapRequest, MayMove, Place, Prot, RemapRequest, SpaceConfig,
    SpaceError, Vma, VmaFlags, VmaRange, Vpn,
};
use std::collections::BTreeMap;

const LOCKS: VmaFlags = VmaFlags::LOCKED.union(VmaFlags::LOCK_ON_FAULT);
const HUGE: u64 = 512;
const END: u64 = Vpn::USER_END.get();
/// Where mmap searches for free pages.
const WINDOW: (u64, u64) = (16, (1 << 35) - (128 << 20 >> 12));

type Done<T = ()> = Result<T, SpaceError>;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Page {
    pub(crate) prot: Prot,
    pub(crate) flags: VmaFlags,
    pub(crate) index: u64,
    pub(crate) node: Option<NodeId>,
    pub(crate) stamp: u64,
    /// Whether it is in memory. Exact without huge pages, a lower bound with them.
    pub(crate) there: bool,
    /// It may be in swap now.
    pub(crate) paged_out: bool,
    /// It was freed by advice, and may be zero now.
    pub(crate) freed: bool,
}

impl Page {
    fn new(prot: Prot, flags: VmaFlags, index: u64) -> Self {
        let (stamp, node) = (0, None);
        Self { prot, flags, index, node, stamp, there: false, paged_out: false, freed: false }
    }
    fn joins(&self, next: &Self) -> bool {
        let alike = (self.prot, self.flags, self.node) == (next.prot, next.flags, next.node);
        alike && self.index + 1 == next.index
    }
    fn arrive(&mut self) {
        (self.there, self.paged_out) = (true, false);
    }
    fn empty(self) -> Self {
        Self { stamp: 0, there: false, paged_out: false, freed: false, ..self }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Model {
    pub(crate) pages: BTreeMap<u64, Page>,
    pub(crate) config: SpaceConfig,
}

impl Model {
    pub(crate) fn new(config: SpaceConfig) -> Self {
        Self { pages: BTreeMap::new(), config }
    }

    // -- Queries.

    /// Whether `at` lies inside a VMA, not at its start.
    fn inside(&self, at: u64) -> bool {
        let Some(before) = at.checked_sub(1).and_then(|at| self.pages.get(&at)) else {
            return false;
        };
        self.pages.get(&at).is_some_and(|page| before.joins(page))
    }
    fn cuts(&self, start: u64, end: u64) -> usize {
        usize::from(self.inside(start)) + usize::from(self.inside(end))
    }
    pub(crate) fn covers(&self, start: u64, end: u64) -> bool {
        self.pages.range(start..end).count() as u64 == end - start
    }
    pub(crate) fn is_free(&self, start: u64, end: u64) -> bool {
        self.pages.range(start..end.max(start)).next().is_none()
    }
    /// Whether the range is inside one VMA.
    pub(crate) fn one_vma(&self, start: u64, end: u64) -> bool {
        self.pages.contains_key(&start) && (start + 1..end).all(|at| self.inside(at))
    }
    pub(crate) fn locked(&self) -> u64 {
        self.pages.values().filter(|page| page.flags.contains(VmaFlags::LOCKED)).count() as u64
    }
    /// The VMAs: runs of equal pages.
    pub(crate) fn vmas(&self) -> Vec<Vma> {
        let mut vmas: Vec<Vma> = Vec::new();
        for (&at, page) in &self.pages {
            let end = Vpn::new(at + 1);
            match vmas.last_mut() {
                Some(last) if self.inside(at) => {
                    last.range = VmaRange::new(last.range.start(), end).expect("it grows");
                }
                _ => vmas.push(Vma {
                    range: VmaRange::new(Vpn::new(at), end).expect("one page"),
                    prot: page.prot,
                    flags: page.flags,
                    origin: page.index,
                    node: page.node,
                    file: None,
                    anon: None,
                }),
            }
        }
        vmas
    }
    /// The number of VMAs that cutting out `start .. end` adds: 1 strictly inside one VMA.
    fn splits(&self, start: u64, end: u64) -> usize {
        usize::from(start > 0 && self.one_vma(start - 1, end + 1))
    }
    fn plan(&self, adds: usize) -> Done {
        let most = self.config.vmas_max as usize;
        // Counting is slow; there are never more VMAs than pages.
        if adds == 0 || self.pages.len() + adds <= most || self.vmas().len() + adds <= most {
            return Ok(());
        }
        Err(SpaceError::NoMemory)
    }
    /// The highest gap of `size` pages, and in it the highest aligned position for `pages`.
    fn gap(&self, pages: u64, size: u64, align: u64) -> Option<u64> {
        let mut end = WINDOW.1;
        for (&at, _) in self.pages.range(WINDOW.0..WINDOW.1).rev() {
            if end - (at + 1) >= size {
                break;
            }
            end = at;
        }
        let start = (end.checked_sub(pages)?) & !(align - 1);
        (start >= WINDOW.0).then_some(start)
    }
    fn place(&self, place: Place, pages: u64) -> Done<u64> {
        let fits = |at: u64| at.checked_add(pages).is_some_and(|end| end <= END);
        match place {
            Place::Fixed(at) | Place::Free(at) => {
                let low = at.get() < WINDOW.0;
                let there = if low { Err(SpaceError::Perm) } else { Ok(at.get()) };
                return if fits(at.get()) { there } else { Err(SpaceError::NoMemory) };
            }
            Place::Hint(at) => {
                let start = if at.get() == 0 { 0 } else { at.get().max(WINDOW.0) };
                let end = start.saturating_add(pages);
                if start >= WINDOW.0 && end <= WINDOW.1 && self.is_free(start, end) {
                    return Ok(start);
                }
            }
            Place::Any => {}
        }
        let align = if pages.is_multiple_of(HUGE) { HUGE } else { 1 };
        self.gap(pages, pages + align - 1, align).ok_or(SpaceError::NoMemory)
    }

    // -- System calls.

    pub(crate) fn mmap(&mut self, request: MapRequest) -> Done<u64> {
        let MapRequest { place, pages, prot, flags, populate, .. } = request;
        if pages == 0 {
            return Err(SpaceError::Inval);
        }
        if pages > END {
            return Err(SpaceError::NoMemory);
        }
        let most = self.config.vmas_max as usize;
        if self.pages.len() > most && self.vmas().len() > most {
            return Err(SpaceError::NoMemory);
        }
        let start = self.place(place, pages)?;
        let end = start + pages;
        if matches!(place, Place::Free(_)) && !self.is_free(start, end) {
            return Err(SpaceError::Exists);
        }
        let locked = flags.contains(VmaFlags::LOCKED);
        if locked && self.locked() + pages > self.config.memlock_pages {
            return Err(SpaceError::Again);
        }
        self.plan(self.splits(start, end))?;
        for at in start..end {
            let page = Page::new(prot, flags, at);
            self.pages.insert(at, page);
        }
        if populate || locked {
            let _ = self.populate(start, end);
        }
        Ok(start)
    }
    pub(crate) fn munmap(&mut self, start: u64, end: u64) -> Done {
        if self.is_free(start, end) {
            return Ok(());
        }
        self.plan(self.splits(start, end))?;
        self.remove(start, end);
        Ok(())
    }
    fn remove(&mut self, start: u64, end: u64) {
        let gone: Vec<u64> = self.pages.range(start..end).map(|(&at, _)| at).collect();
        for at in gone {
            self.pages.remove(&at);
        }
    }
    /// Whether all VMAs of the range (up to the first hole if `run`) can be changed one by one
    /// without exceeding the limit at any step.
    fn plan_change(&self, range: (u64, u64), run: bool, change: impl Fn(&mut Page)) -> Done {
        let most = self.config.vmas_max as usize;
        if self.pages.len() + 2 <= most {
            return Ok(());
        }
        let (mut then, mut count, mut expected) = (self.clone(), self.vmas().len(), range.0);
        for vma in self.vmas() {
            let start = vma.range.start().get().max(range.0);
            let end = vma.range.end().get().min(range.1);
            if start >= end || run && start != expected {
                continue;
            }
            expected = end;
            then.pages.range_mut(start..end).for_each(|(_, page)| change(page));
            let now = then.vmas().len();
            if now > count && now > most {
                return Err(SpaceError::NoMemory);
            }
            count = now;
        }
        Ok(())
    }
    /// Changes page by page up to the first hole.
    fn change(&mut self, start: u64, end: u64, change: impl Fn(&mut Page)) -> Done {
        self.plan_change((start, end), true, &change)?;
        for at in start..end {
            change(self.pages.get_mut(&at).ok_or(SpaceError::NoMemory)?);
        }
        Ok(())
    }
    pub(crate) fn mprotect(&mut self, start: u64, end: u64, prot: Prot) -> Done {
        if !self.pages.contains_key(&start) {
            return Err(SpaceError::NoMemory);
        }
        self.change(start, end, |page| page.prot = prot)
    }
    fn set_flags(&mut self, start: u64, end: u64, set: VmaFlags, clear: VmaFlags) -> Done {
        let change = |page: &mut Page| {
            let shared = page.flags.contains(VmaFlags::SHARED);
            let set = if shared { set - VmaFlags::MERGEABLE } else { set };
            page.flags = (page.flags - clear) | set;
        };
        self.plan_change((start, end), false, change)?;
        self.pages.range_mut(start..end).for_each(|(_, page)| change(page));
        if self.covers(start, end) { Ok(()) } else { Err(SpaceError::NoMemory) }
    }
    pub(crate) fn madvise(&mut self, start: u64, end: u64, advice: Advice) -> Done {
        let none = VmaFlags::empty();
        let (fork, wipe) = (VmaFlags::DONT_FORK, VmaFlags::WIPE_ON_FORK);
        let (random, sequential) = (VmaFlags::RANDOM_READ, VmaFlags::SEQUENTIAL_READ);
        let (merge, dump) = (VmaFlags::MERGEABLE, VmaFlags::DONT_DUMP);
        match advice {
            Advice::Normal => self.set_flags(start, end, none, random | sequential),
            Advice::Random => self.set_flags(start, end, random, sequential),
            Advice::Sequential => self.set_flags(start, end, sequential, random),
            Advice::Mergeable => self.set_flags(start, end, merge, none),
            Advice::Unmergeable => self.set_flags(start, end, none, merge),
            Advice::DontDump => self.set_flags(start, end, dump, none),
            Advice::DoDump => self.set_flags(start, end, none, dump),
            Advice::HugePage => self.set_flags(start, end, VmaFlags::HUGE, VmaFlags::NO_HUGE),
            Advice::NoHugePage => self.set_flags(start, end, VmaFlags::NO_HUGE, VmaFlags::HUGE),
            Advice::DontFork => self.set_flags(start, end, fork, none),
            Advice::DoFork => self.set_flags(start, end, none, fork),
            Advice::WipeOnFork => self.set_flags(start, end, wipe, none),
            Advice::KeepOnFork => self.set_flags(start, end, none, wipe),
            Advice::PopulateRead => self.populate_for(start, end, Prot::is_readable),
            Advice::PopulateWrite => self.populate_for(start, end, Prot::is_writable),
            Advice::Collapse => self.may_collapse(start, end),
            Advice::DontNeed | Advice::Free | Advice::Cold | Advice::PageOut | Advice::WillNeed => {
                for (_, page) in self.pages.range_mut(start..end) {
                    if page.flags.contains(VmaFlags::LOCKED) && advice != Advice::WillNeed {
                        return Err(SpaceError::Inval);
                    }
                    match advice {
                        Advice::DontNeed => *page = page.empty(),
                        Advice::Free => page.freed = true,
                        Advice::PageOut => page.paged_out = true,
                        _ => {}
                    }
                }
                if self.covers(start, end) { Ok(()) } else { Err(SpaceError::NoMemory) }
            }
        }
    }
    /// Whether collapsing may succeed, as far as that is known without knowing shared pages.
    fn may_collapse(&self, start: u64, end: u64) -> Done {
        for vma in self.vmas() {
            let (low, high) = (vma.range.start().get(), vma.range.end().get());
            let (from, to) = (low.max(start), high.min(end));
            if from >= to {
                continue;
            }
            let fits = |at: u64| low.next_multiple_of(HUGE) + HUGE <= at;
            let aligned = low.wrapping_sub(vma.origin).is_multiple_of(HUGE);
            let refused = vma.flags.contains(VmaFlags::NO_HUGE) || vma.prot.is_empty();
            let none = from.next_multiple_of(HUGE) > to & !(HUGE - 1);
            if !fits(high) || !aligned || refused || none {
                return Err(SpaceError::Inval);
            }
        }
        if self.covers(start, end) { Ok(()) } else { Err(SpaceError::NoMemory) }
    }
    fn populate_for(&mut self, start: u64, end: u64, allowed: fn(Prot) -> bool) -> Done {
        for at in start..end {
            let page = self.pages.get_mut(&at).ok_or(SpaceError::NoMemory)?;
            if !allowed(page.prot) {
                return Err(SpaceError::Inval);
            }
            page.arrive();
        }
        Ok(())
    }
    /// Populates for mmap, mlock and mremap: pages that are locked when touched are skipped.
    fn populate(&mut self, start: u64, end: u64) -> Done {
        for at in start..end {
            let page = self.pages.get_mut(&at).ok_or(SpaceError::NoMemory)?;
            if page.flags.contains(VmaFlags::LOCK_ON_FAULT) {
                continue;
            }
            if page.prot.is_empty() {
                return Err(SpaceError::NoMemory);
            }
            page.arrive();
        }
        Ok(())
    }
    pub(crate) fn mlock(&mut self, start: u64, end: u64, what: LockWhat) -> Done {
        if self.config.memlock_pages == 0 {
            return Err(SpaceError::Perm);
        }
        let locked = |page: &&Page| page.flags.intersects(LOCKS);
        let here = self.pages.range(start..end).map(|(_, page)| page);
        let more = end - start - here.filter(locked).count() as u64;
        if self.locked() + more > self.config.memlock_pages {
            return Err(SpaceError::NoMemory);
        }
        let set = if what == LockWhat::OnFault { LOCKS } else { VmaFlags::LOCKED };
        self.set_locked(start, end, set)?;
        if what == LockWhat::OnFault { Ok(()) } else { self.populate(start, end) }
    }
    pub(crate) fn munlock(&mut self, start: u64, end: u64) -> Done {
        self.set_locked(start, end, VmaFlags::empty())
    }
    fn set_locked(&mut self, start: u64, end: u64, set: VmaFlags) -> Done {
        self.change(start, end, |page| page.flags = (page.flags - LOCKS) | set)
    }
    pub(crate) fn mbind(&mut self, start: u64, end: u64, node: NodeId) -> Done {
        if !self.covers(start, end) {
            return Err(SpaceError::Fault);
        }
        self.change(start, end, |page| page.node = Some(node))
    }
    pub(crate) fn access(&mut self, at: u64, write: Option<u64>) -> Result<u64, FaultError> {
        let page = self.pages.get_mut(&at).ok_or(FaultError::Segv)?;
        let allowed = match write {
            Some(_) => page.prot.is_writable(),
            None => page.prot.is_readable(),
        };
        if !allowed {
            return Err(FaultError::Segv);
        }
        page.arrive();
        page.freed &= write.is_none();
        page.stamp = write.unwrap_or(page.stamp);
        Ok(page.stamp)
    }
    /// Checks the result `done` of a read. Returns whether a freed page was found to be gone.
    pub(crate) fn read(&mut self, at: u64, done: Result<u64, FaultError>) -> bool {
        let expect = self.access(at, None);
        if let Some(page) = self.pages.get_mut(&at).filter(|page| page.freed)
            && page.stamp != 0
            && done == Ok(0)
        {
            (page.stamp, page.freed) = (0, false);
            return true;
        }
        assert_eq!(done, expect, "reading {at:#x}");
        false
    }
    pub(crate) fn fork(&self) -> Self {
        let kept = self.pages.iter().filter(|(_, page)| !page.flags.contains(VmaFlags::DONT_FORK));
        let copy = |page: &Page| {
            let wiped = page.flags.contains(VmaFlags::WIPE_ON_FORK);
            let page = Page { flags: page.flags - LOCKS, ..*page };
            if wiped { page.empty() } else { page }
        };
        Self { pages: kept.map(|(&at, page)| (at, copy(page))).collect(), config: self.config }
    }

    // -- mremap.

    pub(crate) fn mremap(&mut self, request: RemapRequest) -> Done<u64> {
        let RemapRequest { from, old_pages, new_pages, may_move } = request;
        let (from, to_end) = (from.get(), from.get().saturating_add(old_pages));
        if old_pages == 0 || new_pages == 0 {
            return Err(SpaceError::Inval);
        }
        match may_move {
            MayMove::To(to) => {
                let (to, end) = (to.get(), to.get().saturating_add(new_pages));
                if end > END || to < to_end && from < end {
                    return Err(SpaceError::Inval);
                }
            }
            MayMove::Leave if old_pages != new_pages => return Err(SpaceError::Inval),
            _ if new_pages > END => return Err(SpaceError::Inval),
            _ => {}
        }
        if to_end > END || !self.pages.contains_key(&from) {
            return Err(SpaceError::Fault);
        }
        let locked = self.pages[&from].flags.contains(VmaFlags::LOCKED);
        let moves = matches!(may_move, MayMove::To(_) | MayMove::Leave);
        if new_pages > old_pages || moves {
            if !self.one_vma(from, to_end) {
                return Err(SpaceError::Fault);
            }
            let more = new_pages.saturating_sub(old_pages);
            if locked && self.locked() + more > self.config.memlock_pages {
                return Err(SpaceError::Again);
            }
        }
        let start = self.remap(from, old_pages, new_pages, may_move)?;
        if locked && new_pages > old_pages {
            let _ = self.populate(start + old_pages, start + new_pages);
        }
        Ok(start)
    }
    fn remap(&mut self, from: u64, old: u64, new: u64, may_move: MayMove) -> Done<u64> {
        let (end, moves) = (from + old, matches!(may_move, MayMove::To(_) | MayMove::Leave));
        if !moves && new <= old {
            if new < old {
                self.plan(self.splits(from + new, end))?;
                self.remove(from + new, end);
            }
            return Ok(from);
        }
        let room = from + new <= END && self.is_free(end, from + new);
        if !moves && !self.inside(end) && room {
            let last = self.pages[&(end - 1)];
            for at in end..from + new {
                self.pages.insert(at, Page { index: last.index + (at + 1 - end), ..last.empty() });
            }
            return Ok(from);
        }
        let to = match may_move {
            MayMove::No => return Err(SpaceError::NoMemory),
            MayMove::To(to) => to.get(),
            MayMove::Anywhere | MayMove::Leave => {
                let offset = self.pages[&from].index % HUGE;
                let aligned = if new >= HUGE {
                    self.gap(new + offset, new + offset + HUGE - 1, HUGE).map(|at| at + offset)
                } else {
                    None
                };
                aligned.or_else(|| self.gap(new, new, 1)).ok_or(SpaceError::NoMemory)?
            }
        };
        self.carry(from, old, to, new, may_move)?;
        Ok(to)
    }
    fn carry(&mut self, from: u64, old: u64, to: u64, new: u64, may_move: MayMove) -> Done {
        if !self.is_free(to, to + new) {
            self.plan(self.splits(to, to + new))?;
            self.remove(to, to + new);
        }
        if to < WINDOW.0 {
            return Err(SpaceError::Perm);
        }
        let kept = old.min(new);
        self.plan(1 + self.cuts(from, from + kept) + self.cuts(from, from + old))?;
        let first = self.pages[&from];
        let left = |at: u64| Page { index: at, flags: first.flags - LOCKS, ..first.empty() };
        let source: Vec<Page> = (from..from + kept).map(|at| self.pages[&at]).collect();
        self.remove(from, from + old);
        if may_move == MayMove::Leave {
            self.pages.extend((from..from + old).map(|at| (at, left(at))));
        }
        for at in 0..new {
            let fresh = Page { index: first.index + at, ..first.empty() };
            self.pages.insert(to + at, source.get(at as usize).copied().unwrap_or(fresh));
        }
        Ok(())
    }
}
