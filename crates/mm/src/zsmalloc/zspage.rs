//! The zspages of a size class: which objects are in use, and which zspage an allocation fills.

use super::Handle;
use super::size::{CHAIN, OBJECTS, Shape};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use mmscale_arch::Pfn;

/// Groups of zspages by the share of their objects in use (`enum fullness_group`): none, ten steps
/// of up to 10 percent each below all, and all.
const GROUPS: usize = 12;
/// The group of zspages whose objects are all in use.
const FULL: usize = GROUPS - 1;

/// The pages of a zspage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pages {
    frames: [Pfn; CHAIN],
    count: usize,
}

impl Pages {
    pub(super) const NONE: Self = Self { frames: [Pfn::new(0); CHAIN], count: 0 };

    pub(super) fn push(&mut self, pfn: Pfn) {
        self.frames[self.count] = pfn;
        self.count += 1;
    }
    pub(super) fn as_slice(&self) -> &[Pfn] {
        &self.frames[..self.count]
    }
}

/// A few pages whose objects are laid out without regard to page boundaries.
pub(super) struct Zspage {
    pub(super) pages: Pages,
    /// A bit for each object in use.
    used: [u64; OBJECTS / 64],
    pub(super) inuse: usize,
    /// Its group, and its place in it.
    group: usize,
    place: usize,
}

/// A size class, under its `class->lock`.
pub(super) struct Class {
    pub(super) shape: Shape,
    /// By first page.
    pub(super) zspages: BTreeMap<Pfn, Zspage>,
    /// First pages of the zspages of each group.
    groups: [Vec<Pfn>; GROUPS],
}

impl Class {
    pub(super) fn new(shape: Shape) -> Self {
        Self { shape, zspages: BTreeMap::new(), groups: Default::default() }
    }
    /// Returns the group of a zspage with `inuse` objects in use (`get_fullness_group`).
    fn group_of(&self, inuse: usize) -> usize {
        match inuse {
            0 => 0,
            all if all == self.shape.objects => FULL,
            some => 1 + 10 * some / self.shape.objects,
        }
    }
    /// Allocates an object of the fullest zspage with room; `None` if all are full
    /// (`find_get_zspage`). Returns the zspage's first page and the object's number.
    pub(super) fn take(&mut self) -> Option<(Pfn, usize)> {
        let first = *self.groups[..FULL].iter().rev().find_map(|group| group.last())?;
        self.take_of(first)
    }
    /// Allocates an object of a zspage.
    fn take_of(&mut self, first: Pfn) -> Option<(Pfn, usize)> {
        let object = self.zspages.get_mut(&first)?.take(self.shape.objects)?;
        self.regroup(first);
        Some((first, object))
    }
    /// Adds a zspage and allocates an object of it. Another CPU may have added one meanwhile, which
    /// is fuller; but a zspage without objects in use would never be freed.
    pub(super) fn take_of_new(&mut self, pages: Pages) -> Option<(Pfn, usize)> {
        let first = pages.as_slice()[0];
        let place = self.groups[0].len();
        self.groups[0].push(first);
        let zspage = Zspage { pages, used: [0; OBJECTS / 64], inuse: 0, group: 0, place };
        self.zspages.insert(first, zspage);
        self.take_of(first)
    }
    /// Frees an object. If it was the last of its zspage, removes the zspage and returns its pages.
    ///
    /// Panics if the object is not in use.
    pub(super) fn free(&mut self, handle: Handle) -> Option<Pages> {
        let first = handle.first;
        let zspage = self.zspages.get_mut(&first);
        let freed = zspage.is_some_and(|zspage| zspage.give_back(usize::from(handle.object)));
        assert!(freed, "{handle:?} is freed twice");
        self.regroup(first);
        if self.zspages[&first].inuse > 0 {
            return None;
        }
        let zspage = self.zspages.remove(&first)?;
        self.leave(zspage.group, zspage.place);
        Some(zspage.pages)
    }
    /// Returns whether the object is in use.
    pub(super) fn has(&self, handle: Handle) -> bool {
        let zspage = self.zspages.get(&handle.first);
        zspage.is_some_and(|zspage| zspage.is_used(usize::from(handle.object)))
    }
    /// Moves a zspage into the group of its objects in use (`fix_fullness_group`).
    fn regroup(&mut self, first: Pfn) {
        let (group, place) = (self.zspages[&first].group, self.zspages[&first].place);
        let now = self.group_of(self.zspages[&first].inuse);
        if now == group {
            return;
        }
        self.leave(group, place);
        let place = self.groups[now].len();
        self.groups[now].push(first);
        if let Some(zspage) = self.zspages.get_mut(&first) {
            (zspage.group, zspage.place) = (now, place);
        }
    }
    /// Takes the zspage at `place` out of `group`.
    fn leave(&mut self, group: usize, place: usize) {
        self.groups[group].swap_remove(place);
        if let Some(moved) = self.groups[group].get(place)
            && let Some(zspage) = self.zspages.get_mut(moved)
        {
            zspage.place = place;
        }
    }
    /// Returns the first zspage whose group, place or count of objects is wrong.
    pub(super) fn wrong(&self) -> Option<Pfn> {
        let is_wrong = |(first, zspage): (&Pfn, &Zspage)| {
            let used: u32 = zspage.used.iter().map(|word| word.count_ones()).sum();
            zspage.inuse == 0
                || used as usize != zspage.inuse
                || zspage.group != self.group_of(zspage.inuse)
                || self.groups[zspage.group].get(zspage.place) != Some(first)
                || zspage.pages.count != self.shape.pages
        };
        let listed: usize = self.groups.iter().map(Vec::len).sum();
        let wrong = self.zspages.iter().find(|&entry| is_wrong(entry)).map(|(first, _)| *first);
        wrong.or_else(|| (listed != self.zspages.len()).then(|| Pfn::new(0)))
    }
}

impl Zspage {
    fn is_used(&self, object: usize) -> bool {
        self.used[object / 64] >> (object % 64) & 1 == 1
    }
    fn take(&mut self, objects: usize) -> Option<usize> {
        let object = (0..objects).find(|&object| !self.is_used(object))?;
        self.used[object / 64] |= 1 << (object % 64);
        self.inuse += 1;
        Some(object)
    }
    /// Marks an object as free; returns `false` if it is free already.
    fn give_back(&mut self, object: usize) -> bool {
        let used = self.is_used(object);
        if used {
            self.used[object / 64] &= !(1 << (object % 64));
            self.inuse -= 1;
        }
        used
    }
}
