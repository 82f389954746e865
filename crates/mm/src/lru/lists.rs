//! The lists of one memory group on one node, and the way from one folio's to the next one's.

use super::Memory;
use crate::folio::{FolioFlags, FolioWord};
use mmscale_arch::sync::{IrqGuard, SpinGuard, SpinLock};
use mmscale_arch::{LockClass, Machine, NodeId, Op, Pfn};
use mmscale_frames::frame::{FrameList, FrameTable};
use mmscale_frames::vmstat::{IrqOff, NodeItem, ZoneItem};
use mmscale_frames::zone::ZoneId;

/// The lists of a lruvec.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum LruList {
    /// Anonymous memory that was not used lately.
    InactiveAnon = 0,
    /// Anonymous memory.
    ActiveAnon = 1,
    /// Memory of files, and lazily freed anonymous memory, that was not used lately.
    InactiveFile = 2,
    /// Memory of files.
    ActiveFile = 3,
    /// Memory that cannot be reclaimed: locked.
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

    /// The list on which a folio in this state belongs, or is.
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
    /// The counters of its zones and nodes; the unevictable list has none.
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

/// Where on its list a folio goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// Where the youngest are.
    Head,
    /// Where reclaim looks first.
    Tail,
}

/// Five lists and their sizes in pages.
pub(super) struct Lists {
    pub(super) lists: [FrameList; LruList::COUNT],
    pub(super) pages: [u64; LruList::COUNT],
}

/// The lists of one group on one node, under their lock: taken with interrupts off, inside page
/// table locks, never with a page cache's lock.
pub(super) type Lruvec<A> = SpinLock<A, Lists>;

pub(super) fn new_lruvec<A: Machine>() -> Lruvec<A> {
    let lists =
        Lists { lists: [const { FrameList::EMPTY }; LruList::COUNT], pages: [0; LruList::COUNT] };
    SpinLock::new(LockClass::Lruvec, lists)
}

/// Which lruvec a folio belongs to, and what it counts as.
#[derive(Clone, Copy)]
pub(super) struct Seat {
    pub(super) lruvec: usize,
    pub(super) zone: ZoneId,
    pub(super) node: NodeId,
    pub(super) pages: u32,
}

impl<'a, A: Machine> Memory<'a, A> {
    /// Where the folio `pfn`, of which the caller has a reference or the last trace, belongs.
    pub(super) fn seat(&self, pfn: Pfn) -> Seat {
        let word = self.frames.frames().word(pfn);
        let zone = ZoneId::new(word.zone().into());
        let node = self.frames.zone(zone).node();
        let lruvec = self.lru.index_of(self.folios.group(pfn), node);
        Seat { lruvec, zone, node, pages: word.order().pages() as u32 }
    }
    /// The pages of a folio.
    pub(super) fn pages_of(&self, pfn: Pfn) -> u32 {
        self.frames.frames().word(pfn).order().pages() as u32
    }
    /// Adds `pages`, which may be negative, to the counters of `list`.
    pub(super) fn count(&self, off: &impl IrqOff<A>, seat: Seat, list: LruList, pages: i64) {
        if let Some((zone, node)) = list.items() {
            self.frames.stats().mod_zone(off, seat.zone, zone, pages);
            self.frames.stats().mod_node(off, seat.node, node, pages);
        }
    }
    pub(super) fn table(&self) -> &'a FrameTable {
        self.frames.frames()
    }
}

type LockedLists<'a, A> = SpinGuard<'a, A, Lists, IrqGuard<A>>;

/// The lruvec lock of the folio that was looked at last, if any: it is kept as long as the next
/// folio belongs to the same lruvec. Dropping this lets it go.
pub(super) struct Relock<'a, A: Machine> {
    memory: Memory<'a, A>,
    held: Option<(usize, LockedLists<'a, A>)>,
}

impl<'a, A: Machine> Relock<'a, A> {
    /// No lock yet.
    pub(super) fn new(memory: Memory<'a, A>) -> Self {
        Self { memory, held: None }
    }
    /// Holds the lock of lruvec `index`.
    fn hold(&mut self, index: usize) -> &mut LockedLists<'a, A> {
        if self.held.as_ref().is_none_or(|(held, _)| *held != index) {
            // The old one goes first: two are never held.
            self.held = None;
        }
        let lru = self.memory.lru;
        &mut self.held.get_or_insert_with(|| (index, lru.lruvecs[index].lock_irqsave())).1
    }
    /// Holds the lock of the folio's lruvec, and says where the folio belongs.
    pub(super) fn hold_of(&mut self, pfn: Pfn) -> Seat {
        let seat = self.memory.seat(pfn);
        self.hold(seat.lruvec);
        seat
    }
    /// Puts the folio on `list`.
    pub(super) fn link(&mut self, pfn: Pfn, list: LruList, end: End) {
        self.link_at(self.memory.seat(pfn), pfn, list, end);
    }
    /// Puts the folio, which belongs to `seat`, on `list`.
    pub(super) fn link_at(&mut self, seat: Seat, pfn: Pfn, list: LruList, end: End) {
        let memory = self.memory;
        let lists = self.hold(seat.lruvec);
        A::work(Op::LruLink, 1);
        match end {
            End::Head => lists.lists[list as usize].push_front::<A>(memory.table(), pfn),
            End::Tail => lists.lists[list as usize].push_back::<A>(memory.table(), pfn),
        }
        lists.pages[list as usize] += u64::from(seat.pages);
        memory.count(lists, seat, list, seat.pages.into());
    }
    /// Takes the folio off `list`, on which it is.
    pub(super) fn unlink(&mut self, pfn: Pfn, list: LruList) {
        let (memory, seat) = (self.memory, self.memory.seat(pfn));
        let lists = self.hold(seat.lruvec);
        A::work(Op::LruLink, 1);
        lists.lists[list as usize].unlink::<A>(memory.table(), pfn);
        lists.pages[list as usize] -= u64::from(seat.pages);
        memory.count(lists, seat, list, -i64::from(seat.pages));
    }
    /// Takes folios off the lists on which they are. Sizes and counters change once for those in a
    /// row that count the same.
    pub(super) fn unlink_all(&mut self, folios: impl Iterator<Item = (Pfn, LruList)>) {
        let mut row: Option<(Seat, LruList, u64)> = None;
        for (pfn, list) in folios {
            let (memory, seat) = (self.memory, self.memory.seat(pfn));
            let goes_on = |&(first, of, _): &(Seat, LruList, u64)| {
                (first.lruvec, first.zone, of) == (seat.lruvec, seat.zone, list)
            };
            if row.as_ref().is_some_and(goes_on) {
                A::work(Op::LruDetach, 1);
            } else {
                self.count_off(row.take());
                A::work(Op::LruLink, 1);
            }
            let lists = self.hold(seat.lruvec);
            lists.lists[list as usize].unlink::<A>(memory.table(), pfn);
            let pages = row.map_or(0, |(.., pages)| pages) + u64::from(seat.pages);
            row = Some((seat, list, pages));
        }
        self.count_off(row);
    }
    /// Pages of one zone were taken off one list, whose lock is still held.
    fn count_off(&mut self, row: Option<(Seat, LruList, u64)>) {
        let Some((seat, list, pages)) = row else { return };
        let memory = self.memory;
        let lists = self.hold(seat.lruvec);
        lists.pages[list as usize] -= pages;
        memory.count(lists, seat, list, -(pages as i64));
    }
    /// The folio that reclaim would look at first.
    pub(super) fn oldest(&mut self, lruvec: usize, list: LruList) -> Option<Pfn> {
        self.hold(lruvec).lists[list as usize].last()
    }
    /// Puts a folio of the list in front, where it is out of the way.
    pub(super) fn skip(&mut self, lruvec: usize, list: LruList, pfn: Pfn) {
        let table = self.memory.table();
        let list = &mut self.hold(lruvec).lists[list as usize];
        list.unlink::<A>(table, pfn);
        list.push_front::<A>(table, pfn);
    }
}
