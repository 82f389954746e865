//! Consistency checks of lists, batches, counters and charges, for tests and the end of a run.

use super::{BatchKind, LruList, LruRef};
use crate::folio::{FolioFlags, FolioWord};
use crate::memcg::{GroupId, Mischarged};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use mmscale_arch::{CpuId, Machine, NodeId, Pfn};
use mmscale_frames::frame::FrameState;
use mmscale_frames::vmstat::NodeItem;

/// Counts of folios by where they are.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LruAudit {
    /// All folios.
    pub folios: u64,
    /// Folios on lists.
    pub listed: u64,
    /// Folios that wait in add batches.
    pub pending: u64,
    /// References that batches have, add batches included.
    pub gathered: u64,
    /// Pages on each list, over all groups and nodes.
    pub pages: [u64; LruList::COUNT],
}

/// An inconsistency.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LruViolation {
    /// A folio's links are wrong: it is on two lists, or half on one.
    Link(Pfn),
    /// A folio is on a list, and its state says otherwise.
    Listed(Pfn),
    /// A folio on a list or in a batch is free, or no folio.
    Free(Pfn),
    /// A folio is on the list of another group or node.
    Lruvec(Pfn),
    /// A folio's state says that it is on a list, and it is on none.
    Lost(Pfn),
    /// A folio's state says that it waits in an add batch, and it does not, or the reverse.
    Pending(Pfn),
    /// A folio is locked in memory and evictable, or the reverse.
    Mlocked(Pfn),
    /// A list's size differs from the pages on it.
    Size(LruList),
    /// A node's counter of a list differs from the pages on it.
    Counter(NodeId, LruList),
    /// A node's statistic, or one of a group's lruvec on it, differs from the folios.
    Stat(NodeId, NodeItem),
    /// A group's statistics are not the sum of the CPUs', or of its descendants'.
    Flush(GroupId),
    /// A CPU that is offline has something gathered: it was lost on hotplug.
    LeftBehind(CpuId),
    /// A memory group's counter differs from the pages charged to it.
    Charge(Mischarged),
}

impl core::fmt::Display for LruViolation {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Link(pfn) => write!(f, "folio {}: its links are wrong", pfn.index()),
            Self::Listed(pfn) => write!(f, "folio {}: its flags contradict its list", pfn.index()),
            Self::Free(pfn) => write!(f, "folio {}: listed or gathered, and free", pfn.index()),
            Self::Lruvec(pfn) => write!(f, "folio {}: on another lruvec's list", pfn.index()),
            Self::Lost(pfn) => write!(f, "folio {}: on no list", pfn.index()),
            Self::Pending(pfn) => {
                write!(f, "folio {}: its flags contradict its batch", pfn.index())
            }
            Self::Mlocked(pfn) => write!(f, "folio {}: locked and evictable", pfn.index()),
            Self::Size(list) => write!(f, "{list:?}: its size is wrong"),
            Self::Counter(node, list) => {
                write!(f, "node {}: counter of {list:?} is wrong", node.index())
            }
            Self::Stat(node, item) => {
                write!(f, "node {}: {item:?} is wrong, there or of a group", node.index())
            }
            Self::Flush(group) => write!(f, "group {}: its statistics are wrong", group.index()),
            Self::LeftBehind(cpu) => write!(f, "{cpu} is offline and has gathered folios"),
            Self::Charge(why) => why.fmt(f),
        }
    }
}

impl core::error::Error for LruViolation {}

impl<A: Machine> LruRef<'_, A> {
    /// Checks all folios: none is on two lists, none on a list or in a batch is free, each is on
    /// the list of its state and its group, and all sizes, counters and charges match. Runs while
    /// nothing changes; its time grows with the number of folios.
    pub fn verify(&self) -> Result<LruAudit, LruViolation> {
        let mut audit = LruAudit::default();
        let mut listed: Vec<Pfn> = Vec::new();
        for node in (0..self.lru.nodes).map(NodeId::new) {
            let mut pages = [0; LruList::COUNT];
            for group in (0..self.groups.count()).map(GroupId::new) {
                self.verify_lruvec(group, node, &mut listed, &mut pages)?;
            }
            self.verify_counters(node, &pages)?;
            audit.pages.iter_mut().zip(pages).for_each(|(sum, pages)| *sum += pages);
        }
        let pending = self.gathered(&mut audit)?;
        listed.sort_unstable();
        if let Some(twice) = listed.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(LruViolation::Link(twice[0]));
        }
        audit.listed = listed.len() as u64;
        audit.pending = pending.len() as u64;
        for (pfn, word) in self.folios.iter() {
            audit.folios += 1;
            self.verify_folio(pfn, word, &listed, &pending)?;
        }
        self.verify_mapped()?;
        self.groups.stats().verify().map_err(LruViolation::Flush)?;
        let charged = self.folios.iter();
        let charged = charged.map(|(pfn, _)| (pfn, self.folios.group(pfn), self.pages_of(pfn)));
        self.groups.verify(charged).map_err(LruViolation::Charge)?;
        Ok(audit)
    }

    fn verify_lruvec(
        &self,
        group: GroupId,
        node: NodeId,
        listed: &mut Vec<Pfn>,
        pages: &mut [u64; LruList::COUNT],
    ) -> Result<(), LruViolation> {
        let index = self.lru.index_of(group, node);
        let lists = self.lru.lruvecs[index].lock_irqsave();
        for list in LruList::ALL {
            let mut found = 0;
            for (pfn, linked) in lists.lists[list as usize].walk(self.table()) {
                if !linked {
                    return Err(LruViolation::Link(pfn));
                }
                if self.table().word(pfn).state() != FrameState::Held {
                    return Err(LruViolation::Free(pfn));
                }
                let word = self.folios.word(pfn);
                if word.refs() == 0 {
                    return Err(LruViolation::Free(pfn));
                }
                if !word.has(FolioFlags::LRU) || LruList::of(word) != list {
                    return Err(LruViolation::Listed(pfn));
                }
                if self.location(pfn).lruvec != index {
                    return Err(LruViolation::Lruvec(pfn));
                }
                found += u64::from(self.pages_of(pfn));
                listed.push(pfn);
            }
            if found != lists.pages[list as usize] {
                return Err(LruViolation::Size(list));
            }
            pages[list as usize] += found;
            if let Some((_, item)) = list.items()
                && self.groups.stats().own_lruvec(group, node, item) != found as i64
            {
                return Err(LruViolation::Stat(node, item));
            }
        }
        Ok(())
    }

    /// Checks the statistics of mapped pages, and that the groups' events add up to their folios.
    fn verify_mapped(&self) -> Result<(), LruViolation> {
        let mut folios = alloc::vec![0; self.groups.count()];
        let mut mapped = StatPages::new();
        for (pfn, word) in self.folios.iter() {
            folios[self.folios.group(pfn).index()] += 1;
            if word.maps() > 0 {
                let is_anon = word.has(FolioFlags::ANON);
                mapped.add(
                    self,
                    pfn,
                    if is_anon { NodeItem::AnonMapped } else { NodeItem::FileMapped },
                );
            }
        }
        for item in [NodeItem::AnonMapped, NodeItem::FileMapped] {
            mapped.verify(self, item, |_| 0)?;
        }
        let stats = self.groups.stats();
        match folios
            .iter()
            .enumerate()
            .find(|&(at, &found)| stats.own_folios(GroupId::new(at)) != found)
        {
            Some((at, _)) => Err(LruViolation::Flush(GroupId::new(at))),
            None => Ok(()),
        }
    }

    /// Returns the exact number of pages on a list; takes its lock.
    pub fn list_pages(&self, group: GroupId, node: NodeId, list: LruList) -> u64 {
        self.lru.lruvecs[self.lru.index_of(group, node)].lock_irqsave().pages[list as usize]
    }

    fn verify_counters(
        &self,
        node: NodeId,
        pages: &[u64; LruList::COUNT],
    ) -> Result<(), LruViolation> {
        for list in LruList::ALL {
            let Some((zone_item, node_item)) = list.items() else { continue };
            let stats = self.frames.stats();
            let zones = self.frames.zones().iter().filter(|zone| zone.node() == node);
            let in_zones: i64 = zones.map(|zone| stats.zone_snapshot(zone.id(), zone_item)).sum();
            let found = pages[list as usize] as i64;
            if stats.node_snapshot(node, node_item) != found || in_zones != found {
                return Err(LruViolation::Counter(node, list));
            }
        }
        Ok(())
    }

    /// Returns the folios in add batches, sorted; checks that each has a reference for every batch
    /// that it is in.
    fn gathered(&self, audit: &mut LruAudit) -> Result<Vec<Pfn>, LruViolation> {
        let (mut pending, mut all): (Vec<Pfn>, Vec<Pfn>) = (Vec::new(), Vec::new());
        for (cpu, own) in self.lru.cpus.iter() {
            if own.needs_drain() && !A::is_online(cpu) {
                return Err(LruViolation::LeftBehind(cpu));
            }
            pending.extend(own.in_slots().chain(own.in_batch(BatchKind::Add)));
            BatchKind::ALL.iter().skip(1).for_each(|&kind| all.extend(own.in_batch(kind)));
        }
        all.extend(&pending);
        all.sort_unstable();
        pending.sort_unstable();
        audit.gathered = all.len() as u64;
        for run in all.chunk_by(|a, b| a == b) {
            if (self.folios.word(run[0]).refs() as usize) < run.len() {
                return Err(LruViolation::Free(run[0]));
            }
        }
        Ok(pending)
    }

    fn verify_folio(
        &self,
        pfn: Pfn,
        word: FolioWord,
        listed: &[Pfn],
        pending: &[Pfn],
    ) -> Result<(), LruViolation> {
        let on_list = listed.binary_search(&pfn).is_ok();
        let waits = pending.binary_search(&pfn).is_ok();
        if self.table().word(pfn).state() != FrameState::Held {
            return Err(LruViolation::Free(pfn));
        }
        if word.has(FolioFlags::LRU) != on_list {
            return Err(LruViolation::Lost(pfn));
        }
        if word.has(FolioFlags::PENDING) != waits {
            return Err(LruViolation::Pending(pfn));
        }
        let locked = word.has(FolioFlags::MLOCKED);
        if on_list && locked != word.has(FolioFlags::UNEVICTABLE) {
            return Err(LruViolation::Mlocked(pfn));
        }
        Ok(())
    }
}

/// Pages by group, node and statistic, as found.
pub(crate) struct StatPages(BTreeMap<(u8, usize), i64>);

impl StatPages {
    pub(crate) fn new() -> Self {
        Self(BTreeMap::new())
    }
    /// Adds the pages of a folio to what belongs to its lruvec.
    pub(crate) fn add<A: Machine>(&mut self, on: &LruRef<'_, A>, pfn: Pfn, item: NodeItem) {
        let location = on.location(pfn);
        *self.0.entry((item as u8, location.lruvec)).or_default() += i64::from(location.pages);
    }
    /// Returns the pages on `node`, all statistics together.
    pub(crate) fn on<A: Machine>(&self, on: &LruRef<'_, A>, node: NodeId) -> i64 {
        let there =
            |&(&(_, lruvec), _): &(&(u8, usize), &i64)| lruvec % on.lru.nodes == node.index();
        self.0.iter().filter(there).map(|(_, pages)| pages).sum()
    }
    /// Compares the statistics of all lruvecs and nodes with what was found; `more` are pages that
    /// count for the node only.
    pub(crate) fn verify<A: Machine>(
        &self,
        on: &LruRef<'_, A>,
        item: NodeItem,
        more: impl Fn(NodeId) -> i64,
    ) -> Result<(), LruViolation> {
        for node in (0..on.lru.nodes).map(NodeId::new) {
            let mut on_node = more(node);
            for group in (0..on.groups.count()).map(GroupId::new) {
                let lruvec = on.lru.index_of(group, node);
                let found = self.0.get(&(item as u8, lruvec)).copied().unwrap_or(0);
                if on.groups.stats().own_lruvec(group, node, item) != found {
                    return Err(LruViolation::Stat(node, item));
                }
                on_node += found;
            }
            if on.frames.stats().node_snapshot(node, item) != on_node {
                return Err(LruViolation::Stat(node, item));
            }
        }
        Ok(())
    }
}
