//! The lists of one memory group on one node, and the relocking between folios of different ones.

use super::LruRef;
use crate::folio::{FolioFlags, FolioWord};
use mmscale_arch::sync::{IrqGuard, SpinGuard, SpinLock};
use mmscale_arch::{Access, Line, LockClass, LockInstance, Machine, NodeId, Op, Pfn};
use mmscale_frames::frame::{FrameList, FrameTable};
use mmscale_frames::vmstat::{IrqOff, NodeItem, ZoneItem};
use mmscale_frames::zone::ZoneId;

/// The lists of a lruvec.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum LruList {
    /// Anonymous memory that was not used recently.
    InactiveAnon = 0,
    /// Anonymous memory that was used recently.
    ActiveAnon = 1,
    /// File memory and lazily freed anonymous memory that was not used recently.
    InactiveFile = 2,
    /// File memory that was used recently.
    ActiveFile = 3,
    /// Memory that cannot be reclaimed: mlocked.
    Unevictable = 4,
}

impl LruList {
    /// The number of lists.
    pub const COUNT: usize = 5;
    /// All lists.
    pub const ALL: [Self; Self::COUNT] = [
        Self::InactiveAnon,
        Self::ActiveAnon,
        Self::InactiveFile,
        Self::ActiveFile,
        Self::Unevictable,
    ];

    /// Returns the list on which a folio in this state belongs, or is.
    pub const fn of(word: FolioWord) -> Self {
        let (file, active) = (!word.has(FolioFlags::SWAP_BACKED), word.has(FolioFlags::ACTIVE));
        match (word.has(FolioFlags::UNEVICTABLE), file, active) {
            (true, ..) => Self::Unevictable,
            (_, false, false) => Self::InactiveAnon,
            (_, false, true) => Self::ActiveAnon,
            (_, true, false) => Self::InactiveFile,
            (_, true, true) => Self::ActiveFile,
        }
    }
    /// Returns the zone and node counters of the list; the unevictable list has none.
    pub const fn items(self) -> Option<(ZoneItem, NodeItem)> {
        match self {
            Self::InactiveAnon => Some((ZoneItem::InactiveAnon, NodeItem::InactiveAnon)),
            Self::ActiveAnon => Some((ZoneItem::ActiveAnon, NodeItem::ActiveAnon)),
            Self::InactiveFile => Some((ZoneItem::InactiveFile, NodeItem::InactiveFile)),
            Self::ActiveFile => Some((ZoneItem::ActiveFile, NodeItem::ActiveFile)),
            Self::Unevictable => None,
        }
    }
}

/// The end of a list to which a folio goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// The end of the most recently added folios.
    Head,
    /// The end that reclaim scans first.
    Tail,
}

/// Five lists and their sizes in pages.
pub(super) struct Lists {
    pub(super) lists: [FrameList; LruList::COUNT],
    pub(super) pages: [u64; LruList::COUNT],
}

/// The lists of one group on one node, under their lock. It is taken with interrupts off, inside
/// page-table locks, never with a page cache's lock.
pub(super) type Lruvec<A> = SpinLock<A, Lists>;

/// Creates the empty lists of group number `group` on `node`.
pub(super) fn new_lruvec<A: Machine>(group: usize, node: NodeId) -> Lruvec<A> {
    let lists =
        Lists { lists: [const { FrameList::EMPTY }; LruList::COUNT], pages: [0; LruList::COUNT] };
    SpinLock::named(LockClass::Lruvec, LockInstance::OfGroup(group as u32, node), lists)
}

/// The lruvec of a folio, and the counters and pages with which it is counted there.
#[derive(Clone, Copy)]
pub(super) struct LruLocation {
    pub(super) lruvec: usize,
    pub(super) zone: ZoneId,
    pub(super) node: NodeId,
    pub(super) pages: u32,
}

impl<'a, A: Machine> LruRef<'a, A> {
    /// Returns the lruvec and counters of `pfn`. The caller has a reference, or is the last to use
    /// the folio.
    pub(super) fn location(&self, pfn: Pfn) -> LruLocation {
        let word = self.frames.frames().word(pfn);
        let zone = ZoneId::new(word.zone().into());
        let node = self.frames.zone(zone).node();
        let lruvec = self.lru.index_of(self.folios.group(pfn), node);
        LruLocation { lruvec, zone, node, pages: word.order().pages() as u32 }
    }
    /// Returns the number of pages of a folio.
    pub(super) fn pages_of(&self, pfn: Pfn) -> u32 {
        self.frames.frames().word(pfn).order().pages() as u32
    }
    /// Adds `pages`, which may be negative, to the counters of `list` (`update_lru_size`).
    pub(super) fn count(
        &self,
        off: &impl IrqOff<A>,
        location: LruLocation,
        list: LruList,
        pages: i64,
    ) {
        if let Some((zone, node)) = list.items() {
            self.frames.stats().mod_zone(off, location.zone, zone, pages);
            self.mod_lruvec_state(off, location, node, pages);
        }
    }
    pub(super) fn table(&self) -> &'a FrameTable {
        self.frames.frames()
    }
}

/// Adds `pages`, which may be negative, to the size of `list`.
fn count_pages<A: Machine>(lists: &mut Lists, at: LruLocation, list: LruList, pages: i64) {
    A::touch(Line::LruSizes(at.lruvec as u32), Access::Write);
    let size = &mut lists.pages[list as usize];
    *size = size.wrapping_add_signed(pages);
}

type LockedLists<'a, A> = SpinGuard<'a, A, Lists, IrqGuard<A>>;

/// The lruvec lock of the last folio, if any. It stays locked while the next folio belongs to the
/// same lruvec (`folio_lruvec_relock_irqsave`), and is released when this is dropped.
pub(super) struct Relock<'a, A: Machine> {
    memory: LruRef<'a, A>,
    held: Option<(usize, LockedLists<'a, A>)>,
}

impl<'a, A: Machine> Relock<'a, A> {
    /// Creates the value without a lock.
    pub(super) fn new(memory: LruRef<'a, A>) -> Self {
        Self { memory, held: None }
    }
    /// Locks lruvec `index`, unless it is locked already.
    fn hold(&mut self, index: usize) -> &mut LockedLists<'a, A> {
        if self.held.as_ref().is_none_or(|(held, _)| *held != index) {
            // Release the old lock first: two are never held.
            self.held = None;
        }
        let lru = self.memory.lru;
        &mut self.held.get_or_insert_with(|| (index, lru.lruvecs[index].lock_irqsave())).1
    }
    /// Locks the folio's lruvec; returns where the folio belongs.
    pub(super) fn hold_of(&mut self, pfn: Pfn) -> LruLocation {
        let location = self.memory.location(pfn);
        self.hold(location.lruvec);
        location
    }
    /// Puts the folio on `list`.
    pub(super) fn link(&mut self, pfn: Pfn, list: LruList, end: End) {
        self.link_at(self.memory.location(pfn), pfn, list, end);
    }
    /// Puts the folio, which belongs to `location`, on `list`.
    pub(super) fn link_at(&mut self, location: LruLocation, pfn: Pfn, list: LruList, end: End) {
        let memory = self.memory;
        let lists = self.hold(location.lruvec);
        A::touch(Line::LruLists(location.lruvec as u32), Access::Write);
        A::work(Op::LruLink, 1);
        match end {
            End::Head => lists.lists[list as usize].push_front::<A>(memory.table(), pfn),
            End::Tail => lists.lists[list as usize].push_back::<A>(memory.table(), pfn),
        }
        count_pages::<A>(lists, location, list, location.pages.into());
        memory.count(lists, location, list, location.pages.into());
    }
    /// Takes the folio off `list`, on which it is.
    pub(super) fn unlink(&mut self, pfn: Pfn, list: LruList) {
        let (memory, location) = (self.memory, self.memory.location(pfn));
        let lists = self.hold(location.lruvec);
        A::work(Op::LruLink, 1);
        lists.lists[list as usize].unlink::<A>(memory.table(), pfn);
        count_pages::<A>(lists, location, list, -i64::from(location.pages));
        memory.count(lists, location, list, -i64::from(location.pages));
    }
    /// Takes folios off the lists on which they are. Updates sizes and counters once for each run
    /// of folios of the same list and zone.
    pub(super) fn unlink_all(&mut self, folios: impl Iterator<Item = (Pfn, LruList)>) {
        let mut row: Option<(LruLocation, LruList, u64)> = None;
        for (pfn, list) in folios {
            let (memory, location) = (self.memory, self.memory.location(pfn));
            let goes_on = |&(first, of, _): &(LruLocation, LruList, u64)| {
                (first.lruvec, first.zone, of) == (location.lruvec, location.zone, list)
            };
            if row.as_ref().is_some_and(goes_on) {
                A::work(Op::LruDetach, 1);
            } else {
                self.count_off(row.take());
                A::work(Op::LruLink, 1);
            }
            let lists = self.hold(location.lruvec);
            lists.lists[list as usize].unlink::<A>(memory.table(), pfn);
            let pages = row.map_or(0, |(.., pages)| pages) + u64::from(location.pages);
            row = Some((location, list, pages));
        }
        self.count_off(row);
    }
    /// Subtracts pages of one zone from the size and counters of one list, whose lock is still
    /// held.
    fn count_off(&mut self, row: Option<(LruLocation, LruList, u64)>) {
        let Some((location, list, pages)) = row else { return };
        let memory = self.memory;
        let lists = self.hold(location.lruvec);
        count_pages::<A>(lists, location, list, -(pages as i64));
        memory.count(lists, location, list, -(pages as i64));
    }
    /// Returns the folio that reclaim would scan first.
    pub(super) fn oldest(&mut self, lruvec: usize, list: LruList) -> Option<Pfn> {
        self.hold(lruvec).lists[list as usize].last()
    }
    /// Moves a folio to the head of its list, out of reclaim's way.
    pub(super) fn skip(&mut self, lruvec: usize, list: LruList, pfn: Pfn) {
        let table = self.memory.table();
        let list = &mut self.hold(lruvec).lists[list as usize];
        list.unlink::<A>(table, pfn);
        list.push_front::<A>(table, pfn);
    }
}
