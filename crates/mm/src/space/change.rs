//! Changing the VMAs of an address space.
//!
//! A change holds mmap_lock for writing. It first takes the memory that it may need
//! ([`Change::plan`]); after that no step fails. It locks each VMA that it touches, and releases
//! all of these locks when it ends or when it downgrades mmap_lock.

use super::vma::{Link, VmaLock};
use super::{AnonChain, NoMemory, Space, SpaceError, Vma, VmaId, VmaRange, VmaSlots, VmaTree, Vpn};
use alloc::vec::Vec;
use core::ops::Deref;
use core::sync::atomic::Ordering::AcqRel;
use mmscale_arch::sync::{ReadGuard, WriteGuard};
use mmscale_arch::{Atomic, Machine, Op};

/// The data that mmap_lock protects.
pub(crate) struct Vmas<A: Machine> {
    pub(super) tree: VmaTree<VmaId>,
    slots: VmaSlots<VmaLock<A>>,
    /// VMAs that the current change has locked.
    held: Vec<VmaId>,
    /// Pages of all VMAs.
    pub(super) pages: u64,
    /// Pages of VMAs that are locked in memory.
    pub(super) locked_pages: u64,
}

impl<A: Machine> Vmas<A> {
    pub(super) fn new() -> Self {
        Self {
            tree: VmaTree::new(),
            slots: VmaSlots::new(),
            held: Vec::new(),
            pages: 0,
            locked_pages: 0,
        }
    }
    pub(super) fn slots(&self) -> &VmaSlots<VmaLock<A>> {
        &self.slots
    }
    fn lock_of(&self, id: VmaId) -> &VmaLock<A> {
        self.slots.get(id).expect("the id of a VMA in the tree is live")
    }
    /// Returns the VMA of `id`, which is in the tree.
    pub(crate) fn vma(&self, id: VmaId) -> Vma {
        self.lock_of(id).vma()
    }
    /// Returns the VMA that holds `page`.
    pub(crate) fn at(&self, page: Vpn) -> Option<Vma> {
        A::work(Op::VmaFind, 1);
        self.tree.get(page).map(|entry| self.vma(entry.value))
    }
    /// Returns the first VMA with a page of `range`, whole.
    pub(crate) fn first_in(&self, range: VmaRange) -> Option<Vma> {
        A::work(Op::VmaFind, 1);
        self.tree.first_in(range).map(|entry| self.vma(entry.value))
    }
    /// The VMAs that have a page of `range`, in order: each whole, and its part of `range`.
    pub(crate) fn in_range(
        &self,
        range: VmaRange,
    ) -> impl DoubleEndedIterator<Item = (Vma, VmaRange)> + '_ {
        self.tree.range(range).filter_map(move |entry| {
            let vma = self.vma(entry.value);
            vma.range.intersection(range).map(|part| (vma, part))
        })
    }
    /// The pages of `range` up to its first hole.
    pub(super) fn first_run(&self, range: VmaRange) -> Option<VmaRange> {
        let mut end = range.start();
        for (_, part) in self.in_range(range) {
            if part.start() != end {
                break;
            }
            end = part.end();
        }
        VmaRange::new(range.start(), end)
    }
    /// Whether all of `range` is mapped.
    pub(crate) fn covers(&self, range: VmaRange) -> bool {
        self.in_range(range).map(|(_, part)| part.pages()).sum::<u64>() == range.pages()
    }
    /// From the end of the VMA before `range` to the start of the VMA after it. A table that maps
    /// pages of this range only may be freed with `range`.
    pub(crate) fn bounds_of(&self, range: VmaRange) -> VmaRange {
        let before = self.tree.find_before(range.start());
        let after = self.tree.find(range.end());
        let low = before.map_or(Vpn::ZERO, |entry| entry.range.end().min(range.start()));
        let high = after.map_or(Vpn::USER_END, |entry| entry.range.start().max(range.end()));
        VmaRange::raw(low.get(), high.get())
    }
}

/// mmap_lock, held for writing, and what the change has done so far.
#[must_use]
pub(crate) struct Change<'a, A: Machine> {
    space: &'a Space<A>,
    /// `None` after the downgrade only.
    vmas: Option<WriteGuard<'a, A, Vmas<A>>>,
    /// The tree is being changed: page faults do not search it.
    shut: bool,
    /// The change of the promised pages.
    promised: i64,
}

impl<A: Machine> Deref for Change<'_, A> {
    type Target = Vmas<A>;
    fn deref(&self) -> &Vmas<A> {
        self.vmas.as_ref().expect("the change is not over")
    }
}

impl<'a, A: Machine> Change<'a, A> {
    /// Takes mmap_lock for writing.
    pub(super) fn begin(space: &'a Space<A>) -> Self {
        Self { space, vmas: Some(space.lock.write()), shut: false, promised: 0 }
    }
    fn vmas(&mut self) -> &mut Vmas<A> {
        self.vmas.as_mut().expect("the change is not over")
    }
    /// Takes memory for `adds` more VMAs. Fails with ENOMEM if there is no memory or if there would
    /// be too many VMAs.
    pub(super) fn plan(&mut self, adds: usize) -> Result<(), SpaceError> {
        self.plan_for(adds, adds)
    }
    /// Takes memory for unmapping `range` and adding `adds` VMAs, whose number the caller has
    /// checked. Cutting VMAs at both ends adds to the number of VMAs only if both ends are inside
    /// the same VMA.
    pub(super) fn plan_unmap(&mut self, range: VmaRange, adds: usize) -> Result<(), SpaceError> {
        let (low, high) = match self.first_in(range) {
            None => (false, false),
            Some(first) => {
                let ends = self.ends_inside(first.range, range);
                (first.range.start() < range.start(), ends)
            }
        };
        let around = low && high && self.tree.get(range.start()) == self.tree.get(range.end());
        self.plan_for(adds + usize::from(low) + usize::from(high), usize::from(around))
    }
    /// Takes memory for applying `alter` to the VMAs of `range`. A VMA that becomes equal to its
    /// neighbour is merged with it before a VMA is split (`vma_modify`), so this also works at the
    /// limit on VMAs.
    pub(super) fn plan_alter(
        &mut self,
        range: VmaRange,
        alter: impl Fn(&mut Vma),
    ) -> Result<(), SpaceError> {
        let adds = self.cuts(range);
        if adds == 0 {
            return Ok(());
        }
        let (mut count, most) = (self.tree.len(), self.space.config.vmas_max as usize);
        let before = self.tree.find_before(range.start()).map(|entry| self.vma(entry.value));
        let mut before = before.filter(|vma| vma.range.end() == range.start());
        for (vma, part) in self.in_range(range) {
            let mut new = vma.part(part);
            alter(&mut new);
            if !vma.part(part).is_alike(&new) {
                let cuts = usize::from(vma.range.start() < part.start())
                    + usize::from(part.end() < vma.range.end());
                let after = self.tree.get(part.end()).map(|entry| self.vma(entry.value));
                let after = after.filter(|after| after.range.start() == part.end());
                let joins = usize::from(before.is_some_and(|before| before.joins(&new)))
                    + usize::from(after.is_some_and(|after| new.joins(&after)));
                count = count + cuts - joins;
                if cuts > joins && count > most {
                    return Err(SpaceError::NoMemory);
                }
            }
            before = Some(new);
        }
        self.plan_for(adds, 0)
    }
    /// Takes memory for up to `adds` more VMAs, of which `stay` count against the limit: the others
    /// are merged again.
    pub(super) fn plan_for(&mut self, adds: usize, stay: usize) -> Result<(), SpaceError> {
        let most = self.space.config.vmas_max as usize;
        if adds == 0 {
            return Ok(());
        }
        if stay > 0 && self.tree.len() + stay > most {
            return Err(SpaceError::NoMemory);
        }
        let grant = || if A::fail_alloc() { Err(NoMemory) } else { Ok(()) };
        grant()?;
        let vmas = self.vmas();
        vmas.tree.edit_with(adds, grant)?;
        vmas.slots.reserve(adds as u32)?;
        Ok(())
    }
    /// Marks the tree as changing.
    fn shut(&mut self) {
        if !self.shut {
            // Step c of the table in `vma::lock`: against the load in `find_vma`. The tree changes
            // after it.
            self.space.changes.fetch_add(1, AcqRel);
            self.shut = true;
        }
    }
    fn open(&mut self) {
        if core::mem::take(&mut self.shut) {
            // Step f: pairs with the load in `find_vma`, which sees the whole new tree with the
            // even count.
            self.space.changes.fetch_add(1, AcqRel);
        }
    }
    /// Locks a VMA for writing until the change is over.
    fn hold(&mut self, id: VmaId) {
        if self.lock_of(id).write(self.space) {
            self.vmas().held.push(id);
        }
    }
    /// Locks the VMA that holds `page`, so that no page fault is active in it.
    pub(super) fn hold_at(&mut self, page: Vpn) {
        if let Some(entry) = self.tree.get(page) {
            self.hold(entry.value);
        }
    }
    /// Whether a VMA extends across the beginning of `page`.
    pub(super) fn spans(&self, page: Vpn) -> bool {
        self.tree.get(page).is_some_and(|entry| entry.range.start() < page)
    }
    /// Adds a VMA where there is none, and merges it with equal neighbours. Planned. Page faults
    /// may use it immediately: a fault that has read `changes` earlier may search the tree now.
    pub(super) fn add(&mut self, vma: Vma) {
        self.add_then(vma, Op::VmaEdit, |_, _| {});
    }
    /// Adds a VMA like [`Change::add`], as one of those that fork copies in their order
    /// (`__mt_dup`).
    pub(super) fn add_copy(&mut self, vma: Vma) {
        self.add_then(vma, Op::VmaCopy, |_, _| {});
    }
    /// Adds a VMA whose pages are still to come: it is locked before a page fault can find it.
    pub(super) fn add_held(&mut self, vma: Vma) {
        self.add_then(vma, Op::VmaEdit, Self::hold);
        self.hold_at(vma.range.start());
    }
    /// Adds a VMA. Calls `before_found` with a new VMA before it is put into the tree.
    fn add_then(&mut self, vma: Vma, op: Op, before_found: fn(&mut Self, VmaId)) {
        A::work(op, 1);
        let before = self.tree.find_before(vma.range.start());
        let before = before.map(|entry| entry.value).filter(|&id| self.vma(id).joins(&vma));
        let after = self.tree.get(vma.range.end());
        let after = after.map(|entry| entry.value).filter(|&id| vma.joins(&self.vma(id)));
        self.count(&vma, 1);
        match (before, after) {
            (Some(low), high) => {
                self.hold(low);
                let mut whole = self.vma(low);
                whole.anon = whole.anon.or(vma.anon);
                let mut end = vma.range.end();
                let gone = high.map(|high| self.vma(high));
                if let (Some(high), Some(gone)) = (high, gone) {
                    end = gone.range.end();
                    whole.anon = whole.anon.or(gone.anon);
                    self.drop_vma(high);
                }
                whole.range = VmaRange::raw(whole.range.start().get(), end.get());
                self.put(low, whole);
                self.space.link(&whole, gone.map_or(Link::Again, Link::Join));
            }
            (None, Some(high)) => {
                self.hold(high);
                let old = self.vma(high);
                let range = VmaRange::raw(vma.range.start().get(), old.range.end().get());
                let anon = vma.anon.or(old.anon);
                let whole = Vma { range, anon, file: old.file, ..vma };
                self.put(high, whole);
                self.space.link(&whole, Link::Again);
            }
            (None, None) => {
                self.shut();
                let vmas = self.vmas();
                let id = vmas.slots.alloc(|lock| lock.set(&vma)).expect("planned");
                before_found(self, id);
                let mut edit = self.vmas().tree.edit(1).expect("planned");
                edit.insert(vma.range, id).expect("nothing is mapped there");
                self.space.link(&vma, Link::New);
            }
        }
    }
    /// Writes a VMA that is in the tree, and its ends in the tree.
    fn put(&mut self, id: VmaId, vma: Vma) {
        let old = self.vma(id).range;
        if old != vma.range {
            self.shut();
            let mut edit = self.vmas().tree.edit(0).expect("nothing is added");
            let moved = edit.resize(old.start(), vma.range);
            moved.expect("it is in the tree").expect("the new range is free");
        }
        self.lock_of(id).set(&vma);
    }
    /// Removes a VMA from the tree and ends its id. The caller updates the page counts.
    fn drop_vma(&mut self, id: VmaId) {
        self.hold(id);
        self.shut();
        let start = self.vma(id).range.start();
        let vmas = self.vmas();
        vmas.tree.remove(start).expect("it is in the tree");
        if let Some(at) = vmas.held.iter().rposition(|&held| held == id) {
            vmas.held.swap_remove(at);
        }
        // The id ends before the lock is released: a reader that gets the lock sees that the id is
        // dead.
        let lock = self.space.lookup.get(id).expect("the id of a VMA in the tree is live");
        self.vmas().slots.free(id);
        lock.write_done();
    }
    /// Splits the VMA that extends across `at`, if there is one. Planned: adds a VMA.
    pub(super) fn cut(&mut self, at: Vpn) {
        let Some(entry) = self.tree.get(at).filter(|entry| entry.range.start() < at) else {
            return;
        };
        A::work(Op::VmaEdit, 1);
        self.hold(entry.value);
        let vma = self.vma(entry.value);
        let Some((low, high)) = vma.range.split(at) else { return };
        self.shut();
        let vmas = self.vmas();
        let id = vmas.slots.alloc(|lock| lock.set(&vma.part(high))).expect("planned");
        vmas.lock_of(entry.value).set(&vma.part(low));
        let mut edit = vmas.tree.edit(1).expect("planned");
        edit.split(at, |_| id).expect("it extends across");
        self.hold(id);
        self.space.link(&vma, Link::Split);
    }
    /// Whether `range`, whose first VMA is `first`, ends inside a VMA.
    pub(super) fn ends_inside(&self, first: VmaRange, range: VmaRange) -> bool {
        // In most cases it ends inside `first` or with it, and no search is needed.
        if first.end() >= range.end() { first.end() > range.end() } else { self.spans(range.end()) }
    }
    /// The number of VMAs that [`Change::cut`] at both ends of `range` would add.
    pub(super) fn cuts(&self, range: VmaRange) -> usize {
        let inside = |at: Vpn| self.tree.get(at).is_some_and(|entry| entry.range.start() < at);
        usize::from(inside(range.start())) + usize::from(inside(range.end()))
    }
    /// Removes the first VMA of `range`, which must be inside `range`. The work is `op`.
    pub(super) fn take_first(&mut self, range: VmaRange, op: Op) -> Option<Vma> {
        let entry = self.tree.first_in(range)?;
        debug_assert!(range.covers(entry.range), "cut first");
        A::work(op, 1);
        let vma = self.vma(entry.value);
        self.drop_vma(entry.value);
        self.count(&vma, -1);
        Some(vma)
    }
    /// Applies `change` to the VMA that starts at `start`, which must not change its range, and
    /// merges it with equal neighbours.
    pub(super) fn alter(&mut self, start: Vpn, change: impl FnOnce(&mut Vma)) {
        let Some(entry) = self.tree.get(start) else { return };
        debug_assert!(entry.range.start() == start, "cut first");
        A::work(Op::VmaEdit, 1);
        self.hold(entry.value);
        let old = self.vma(entry.value);
        let mut new = old;
        change(&mut new);
        self.count(&old, -1);
        self.count(&new, 1);
        self.put(entry.value, new);
        self.join_at(start);
        self.join_at(new.range.end());
    }
    /// Merges the VMAs that meet at `at`, if they are equal.
    pub(super) fn join_at(&mut self, at: Vpn) {
        let Some(high) = self.tree.get(at).filter(|entry| entry.range.start() == at) else {
            return;
        };
        let low = self.tree.find_before(at);
        let Some(low) = low.filter(|low| self.vma(low.value).joins(&self.vma(high.value))) else {
            return;
        };
        self.hold(low.value);
        let (mut whole, gone) = (self.vma(low.value), self.vma(high.value));
        whole.anon = whole.anon.or(gone.anon);
        self.drop_vma(high.value);
        whole.range = VmaRange::raw(low.range.start().get(), high.range.end().get());
        self.put(low.value, whole);
        self.space.link(&whole, Link::Join(gone));
    }
    /// Moves the end of the VMA that ends at `end` up to `to`. The range between them is free.
    pub(super) fn stretch(&mut self, end: Vpn, to: Vpn) {
        let Some(entry) = self.tree.find_before(end).filter(|entry| entry.range.end() == end)
        else {
            return;
        };
        A::work(Op::VmaEdit, 1);
        self.hold(entry.value);
        let old = self.vma(entry.value);
        let range = VmaRange::raw(old.range.start().get(), to.get());
        let new = Vma { range, ..old };
        self.count(&old, -1);
        self.count(&new, 1);
        self.put(entry.value, new);
        self.space.link(&new, Link::Again);
        if let Some((_, more)) = range.split(end).filter(|_| new.is_moved()) {
            self.space.moved.lock().note(&new.part(more));
        }
        self.join_at(to);
    }
    /// Sets the place in the reverse map of the VMA that starts at `start`.
    pub(super) fn set_anon(&mut self, start: Vpn, anon: AnonChain) {
        self.hold_at(start);
        if let Some(entry) = self.tree.get(start) {
            let vma = Vma { anon: Some(anon), ..self.vma(entry.value) };
            self.lock_of(entry.value).set(&vma);
        }
    }
    fn count(&mut self, vma: &Vma, sign: i64) {
        let pages = vma.range.pages() as i64 * sign;
        let locked = if vma.flags.contains(super::VmaFlags::LOCKED) { pages } else { 0 };
        self.promised += if vma.is_promised() { pages } else { 0 };
        let vmas = self.vmas();
        vmas.pages = vmas.pages.wrapping_add_signed(pages);
        vmas.locked_pages = vmas.locked_pages.wrapping_add_signed(locked);
    }
    fn release_all(&mut self) {
        self.open();
        self.space.committed.add(core::mem::take(&mut self.promised));
        while let Some(id) = self.vmas().held.pop() {
            self.lock_of(id).write_done();
        }
    }
    /// Locks every VMA for writing, and keeps these locks after the change: only the tree leads to
    /// a VMA afterwards. The next change must remove all VMAs.
    pub(super) fn lock_all_for_good(&mut self) {
        self.tree.iter().for_each(|entry| {
            self.lock_of(entry.value).write(self.space);
        });
        self.vmas().held.clear();
    }
    /// Ends the change but keeps mmap_lock for reading (`mmap_write_downgrade`).
    pub(super) fn downgrade(mut self) -> ReadGuard<'a, A, Vmas<A>> {
        self.release_all();
        let guard = self.vmas.take().expect("the change is not over");
        guard.downgrade()
    }
}

impl<A: Machine> Drop for Change<'_, A> {
    fn drop(&mut self) {
        if self.vmas.is_some() {
            self.release_all();
        }
    }
}
