//! Memory groups (memory cgroups): charges of folios, limits, and statistics.
//!
//! A group has a counter of pages and a limit. Charging single pages would make every fault write
//! one shared line. So each CPU has stocks of up to 64 pages that are charged already, for some
//! groups ([`StockPolicy`]). Uncharging goes to the counter directly. A group's counter is
//! therefore the pages of its folios plus those in stocks.
//!
//! Groups are a hierarchy ([`GroupsConfig`]). A charge to a group is also a charge to each of
//! its ancestors, one counter after the other.
//!
//! Group 0 is the root: it has no limit, and its own folios are not charged.
//!
//! | file | contents |
//! |---|---|
//! | `tree` | the hierarchy |
//! | `stock` | charges that CPUs have in advance |
//! | `stats` | statistics of groups and lruvecs |
//! | `threshold` | the count of changes before Linux 6.8 |
//! | `lifetime` | creation and removal |
//!
//! The counters are relaxed: each is one word, and no other data depends on it.
//!
//! Lock order: no lock for charges; for statistics and for creation and removal, see there.

mod lifetime;
mod stats;
mod stock;
mod threshold;
mod tree;

pub use lifetime::{LifetimeError, LifetimeRef, Lifetimes};
pub(crate) use stats::FLUSH_NS;
pub use stats::{GroupEvent, GroupStats};
pub use stock::StockPolicy;
pub use threshold::ThresholdPolicy;

use alloc::boxed::Box;
use alloc::vec;
use core::sync::atomic::Ordering::Relaxed;
use mmscale_arch::sync::{EachCpu, NoPreempt, PreemptGuard};
use mmscale_arch::{Atomic, CpuId, DataLine, Func, Machine, Op, Pfn, Span};
use stock::Stocks;
use tree::Tree;

/// Pages that a CPU charges in one step (`MEMCG_CHARGE_BATCH`).
pub const CHARGE_BATCH: u32 = 64;
/// The limit of a group without a limit.
const NO_LIMIT: u64 = i64::MAX as u64;

/// A memory group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GroupId(u16);

impl GroupId {
    /// The group of all address spaces without another group.
    pub const ROOT: Self = Self(0);
    /// The largest number of groups.
    pub const MAX: usize = 1 << 12;
    /// Returns group number `index`. Panics if it is not below [`GroupId::MAX`].
    #[inline]
    pub const fn new(index: usize) -> Self {
        assert!(index < Self::MAX);
        Self(index as u16)
    }
    /// The number, for indexing.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The number of groups, and where they are in the hierarchy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupsConfig {
    /// Groups including the root, at least one, at most [`GroupId::MAX`].
    pub count: usize,
    /// Levels of groups below the root: 1 if groups are children of the root, with 3 they are below
    /// two others. At most [`GroupsConfig::MAX_DEPTH`].
    pub depth: usize,
}

impl GroupsConfig {
    /// The root alone.
    pub const ROOT: Self = Self { count: 1, depth: 1 };
    /// The largest depth.
    pub const MAX_DEPTH: usize = 16;
    /// Whether both numbers are allowed.
    pub const fn is_valid(&self) -> bool {
        1 <= self.count
            && self.count <= GroupId::MAX
            && 1 <= self.depth
            && self.depth <= Self::MAX_DEPTH
    }
}

/// A charge would exceed the group's limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OverLimit {
    /// The group.
    pub group: GroupId,
}

impl core::fmt::Display for OverLimit {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "charging group {}: it is at its limit", self.group.index())
    }
}

impl core::error::Error for OverLimit {}

/// A group's counter differs from its folios and stocks, or from those of the groups below it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mischarged {
    /// The group.
    pub group: GroupId,
    /// Its counter, in pages.
    pub counted_pages: u64,
    /// Its folios and stocks, in pages.
    pub found_pages: u64,
}

impl core::fmt::Display for Mischarged {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let (group, counted, found) = (self.group.index(), self.counted_pages, self.found_pages);
        write!(f, "group {group}: {counted} pages charged, {found} pages found")
    }
}

impl core::error::Error for Mischarged {}

struct Group<A: Machine> {
    pages: A::AtomicU64,
    limit: A::AtomicU64,
}

/// All memory groups.
pub struct Groups<A: Machine> {
    tree: Tree,
    count: usize,
    groups: Box<[Group<A>]>,
    stocks: EachCpu<Stocks<A>>,
    stats: GroupStats<A>,
    /// The first of the identities that have no group at the beginning.
    spare_from: usize,
}

impl<A: Machine> Groups<A> {
    /// Creates groups on `nodes` memory nodes; none has a limit. Panics if `config` is not valid.
    pub fn new(config: GroupsConfig, nodes: usize) -> Self {
        Self::with(config, nodes, StockPolicy::default(), ThresholdPolicy::default())
    }
    /// Creates groups like [`Groups::new`], with the policies of stocks and of the flushes of
    /// statistics.
    pub fn with(
        config: GroupsConfig,
        nodes: usize,
        stock: StockPolicy,
        threshold: ThresholdPolicy,
    ) -> Self {
        assert!(config.is_valid(), "creating memory groups: {config:?} is not valid");
        let group = |_| Group {
            pages: A::AtomicU64::named(0, DataLine::PageCounter),
            limit: A::AtomicU64::named(NO_LIMIT, DataLine::PageCounter),
        };
        let tree = Tree::new(config.count, config.depth);
        Self {
            tree,
            count: config.count,
            groups: (0..tree.slots()).map(group).collect(),
            stats: GroupStats::new(tree, nodes, threshold),
            stocks: EachCpu::new::<A>(|_| Stocks::new(stock, config.count)),
            spare_from: config.count,
        }
    }
    /// Returns these groups, of which the last `spare` are only identities at the beginning
    /// ([`Lifetimes`]).
    #[must_use]
    pub(crate) fn with_spare(self, spare: usize) -> Self {
        Self { spare_from: self.count - spare, ..self }
    }
    /// Whether an identity has a group that may have folios, or had one from the beginning.
    pub(crate) fn may_exist(&self, group: GroupId) -> bool {
        group.index() < self.spare_from || self.is_charged(group)
    }
    /// The number of groups that have folios: the root and the leaves of the hierarchy.
    pub fn count(&self) -> usize {
        self.count
    }
    /// The statistics of all groups.
    #[inline]
    pub fn stats(&self) -> &GroupStats<A> {
        &self.stats
    }
    /// Sets a group's limit in pages; `None`: no limit. Charges above the limit stay. The root's
    /// limit has no effect.
    pub fn set_limit(&self, group: GroupId, pages: Option<u64>) {
        self.groups[group.index()].limit.store(pages.unwrap_or(NO_LIMIT), Relaxed);
    }
    /// Returns a group's limit in pages.
    pub fn limit(&self, group: GroupId) -> Option<u64> {
        let limit = self.groups[group.index()].limit.load(Relaxed);
        (limit != NO_LIMIT).then_some(limit)
    }
    /// The pages that are charged to a group, including the CPUs' stocks; for the root, those of
    /// all other groups.
    pub fn usage(&self, group: GroupId) -> u64 {
        self.groups[group.index()].pages.load(Relaxed)
    }

    /// Whether `pages` more can be charged to the group now.
    pub fn has_room(&self, group: GroupId, pages: u32) -> bool {
        self.limit(group).is_none_or(|limit| self.usage(group) + u64::from(pages) <= limit)
    }

    /// Charges `pages` to `group`. Fails, without a change, if the limit would be exceeded: the
    /// caller may then reclaim memory of the group or drain the stocks, and retry.
    pub fn charge(&self, group: GroupId, pages: u32) -> Result<(), OverLimit> {
        if group == GroupId::ROOT {
            return Ok(());
        }
        let _span = Span::<A>::enter(Func::TryCharge);
        A::work(Op::GroupCharge, 1);
        let pinned = PreemptGuard::<A>::new();
        let stocks = self.stocks.of(pinned.cpu());
        if stocks.take(group, pages) {
            return Ok(());
        }
        let batch = pages.max(CHARGE_BATCH);
        if self.count_up(group, batch).is_ok() {
            // The sum in the stock is less than a batch, as it did not have `pages`.
            if batch > pages
                && let Some((other, left)) = stocks.add(group, batch - pages)
            {
                self.count_down(other.index(), left.into());
            }
            return Ok(());
        }
        self.count_up(group, pages)
    }

    /// Adds to the counters of a group and its ancestors, if the group's limit allows. Adds first
    /// and subtracts on failure, as Linux does, so the counter may briefly exceed the limit.
    fn count_up(&self, group: GroupId, pages: u32) -> Result<(), OverLimit> {
        let counted = &self.groups[group.index()];
        let pages = u64::from(pages);
        let before = counted.pages.fetch_add(pages, Relaxed);
        if before + pages > counted.limit.load(Relaxed) {
            counted.pages.fetch_sub(pages, Relaxed);
            return Err(OverLimit { group });
        }
        for above in self.tree.up(group.index()).skip(1) {
            self.groups[above].pages.fetch_add(pages, Relaxed);
        }
        Ok(())
    }
    /// Whether pages are charged to the group, in folios or in stocks. Costs nothing: for a caller
    /// that Linux tells.
    fn is_charged(&self, group: GroupId) -> bool {
        self.groups[group.index()].pages.load_uncharged(Relaxed) > 0
    }
    /// Subtracts from the counters of a group and its ancestors; returns whether all were large
    /// enough.
    fn count_down(&self, group: usize, pages: u64) -> bool {
        let mut enough = true;
        for slot in self.tree.up(group) {
            enough &= self.groups[slot].pages.fetch_sub(pages, Relaxed) >= pages;
        }
        enough
    }

    /// Uncharges what is in stocks.
    fn empty(&self, stocks: &Stocks<A>) {
        stocks.empty().for_each(|(group, pages)| _ = self.count_down(group.index(), pages.into()));
    }

    /// Uncharges `pages` of `group`.
    pub fn uncharge(&self, group: GroupId, pages: u32) {
        if group == GroupId::ROOT || pages == 0 {
            return;
        }
        A::work(Op::GroupCharge, 1);
        let enough = self.count_down(group.index(), pages.into());
        assert!(enough, "group {}: more uncharged than charged", group.index());
    }

    /// Uncharges the calling CPU's stocks.
    pub fn drain_stock(&self) {
        let pinned = PreemptGuard::<A>::new();
        self.empty(self.stocks.of(pinned.cpu()));
    }
    /// Whether a stock of `cpu` has pages of the group.
    fn has_stock(&self, cpu: CpuId, group: GroupId) -> bool {
        self.stocks.of(cpu).has(cpu, group)
    }
    /// Uncharges the stocks of `cpu`, which is offline, or while nothing runs.
    pub fn drain_stopped(&self, cpu: CpuId) {
        self.empty(self.stocks.of(cpu));
    }

    /// Checks that every group's counter is the sum of its folios, given with their sizes, the
    /// stocks, and the groups below it; while nothing changes.
    pub fn verify(
        &self,
        folios: impl Iterator<Item = (Pfn, GroupId, u32)>,
    ) -> Result<(), Mischarged> {
        let mut found = vec![0_u64; self.groups.len()];
        // The root's own folios are not charged.
        let charged = folios.filter(|(_, group, _)| *group != GroupId::ROOT);
        charged.for_each(|(_, group, pages)| found[group.index()] += u64::from(pages));
        let stocks = self.stocks.iter().flat_map(|(_, stocks)| stocks.all());
        stocks.for_each(|(group, pages)| found[group.index()] += u64::from(pages));
        for slot in self.tree.leaves().chain(self.tree.inner()) {
            let (counted_pages, found_pages) = (self.groups[slot].pages.load(Relaxed), found[slot]);
            if counted_pages != found_pages {
                let group = self.tree.named(slot);
                return Err(Mischarged { group, counted_pages, found_pages });
            }
            if let Some(parent) = self.tree.parent(slot) {
                found[parent] += found_pages;
            }
        }
        Ok(())
    }
}
