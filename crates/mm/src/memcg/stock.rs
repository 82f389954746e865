//! Stocks: pages that CPUs have charged in advance (`memcg_stock_pcp`).
//!
//! A CPU has stocks of some groups. Which, is the policy. A stock is used only on its CPU with
//! preemption off, or after the CPU has gone offline.

use super::GroupId;
use alloc::boxed::Box;
use core::sync::atomic::AtomicU16;
use core::sync::atomic::Ordering::Relaxed;
use mmscale_arch::{CpuId, Machine, OwnedValue};

mmscale_arch::policies! {
    /// Of how many groups a CPU has pages that are charged in advance.
    pub enum StockPolicy: "charge-stock", "groups of which a CPU has charges in advance" {
        /// Of seven groups; the next one takes the place of one of them, in turn.
        Seven = "stock",
        /// Of the group that charged last.
        One = "one",
        /// Of every group: stocks belong to the groups' counters, as posted in 2026.
        Counter = "counter",
    }
}

/// The stocks of a CPU with [`StockPolicy::Seven`] (`NR_MEMCG_STOCK`).
const SEVEN: usize = 7;

/// Pages of one group that a CPU has charged in advance: the group in the upper half, the pages in
/// the lower. A stock of the root is empty. Changed on its CPU; other CPUs may look.
struct Stock<A: Machine>(A::OwnedI64);

impl<A: Machine> Stock<A> {
    fn get(&self) -> (GroupId, u32) {
        content(self.0.get())
    }
    fn set(&self, group: GroupId, pages: u32) {
        self.0.set((group.index() as i64) << 32 | i64::from(pages));
    }
    /// Empties it, so that it has no group; `None` if it was empty.
    fn take_all(&self) -> Option<(GroupId, u32)> {
        let before = self.get();
        self.set(GroupId::ROOT, 0);
        (before.1 > 0).then_some(before)
    }
}

fn content(word: i64) -> (GroupId, u32) {
    (GroupId::new((word >> 32) as usize), word as u32)
}

/// One CPU's stocks.
pub(super) struct Stocks<A: Machine> {
    stocks: Box<[Stock<A>]>,
    /// Whether each group has the stock of its number.
    own: bool,
    /// The stock that is emptied next when a group needs one and none is free (`drain_idx`).
    next: AtomicU16,
}

impl<A: Machine> Stocks<A> {
    /// Creates empty stocks, for `groups` groups.
    pub(super) fn new(policy: StockPolicy, groups: usize) -> Self {
        let len = match policy {
            StockPolicy::Seven => SEVEN,
            StockPolicy::One => 1,
            StockPolicy::Counter => groups,
        };
        let stock = |_| Stock(A::OwnedI64::zero());
        let own = policy == StockPolicy::Counter;
        Self { stocks: (0..len).map(stock).collect(), own, next: AtomicU16::new(0) }
    }
    fn find(&self, group: GroupId) -> Option<&Stock<A>> {
        let is_of = |stock: &&Stock<A>| stock.get().0 == group;
        if self.own {
            return self.stocks.get(group.index()).filter(is_of);
        }
        self.stocks.iter().find(is_of)
    }
    /// Takes pages out of the stock of a group, if it has them (`consume_stock`).
    pub(super) fn take(&self, group: GroupId, pages: u32) -> bool {
        let Some(stock) = self.find(group) else { return false };
        let left = stock.get().1.checked_sub(pages);
        left.inspect(|&left| stock.set(group, left)).is_some()
    }
    /// Adds pages to the stock of a group. If that takes the place of another group's stock,
    /// returns what that had, for its counter (`refill_stock`).
    pub(super) fn add(&self, group: GroupId, pages: u32) -> Option<(GroupId, u32)> {
        if let Some(stock) = self.find(group) {
            stock.set(group, stock.get().1 + pages);
            return None;
        }
        let stock = self.place_for(group);
        let before = stock.take_all();
        stock.set(group, pages);
        before
    }
    /// Returns the stock that a group without one gets.
    fn place_for(&self, group: GroupId) -> &Stock<A> {
        if self.own {
            return &self.stocks[group.index()];
        }
        let free = |stock: &&Stock<A>| stock.get().0 == GroupId::ROOT;
        self.stocks.iter().find(free).unwrap_or_else(|| {
            let next = self.next.load(Relaxed);
            let after = usize::from(next) + 1;
            self.next.store(if after < self.stocks.len() { next + 1 } else { 0 }, Relaxed);
            &self.stocks[usize::from(next)]
        })
    }
    /// Empties all stocks and returns what they had.
    pub(super) fn empty(&self) -> impl Iterator<Item = (GroupId, u32)> {
        self.stocks.iter().filter_map(Stock::take_all)
    }
    /// Whether these stocks, which are those of `owner`, have pages of a group: on any CPU.
    pub(super) fn has(&self, owner: CpuId, group: GroupId) -> bool {
        self.stocks.iter().any(|stock| {
            let (of, pages) = content(stock.0.peek(owner));
            of == group && pages > 0
        })
    }
    /// The groups and pages of all stocks, while nothing changes.
    pub(super) fn all(&self) -> impl Iterator<Item = (GroupId, u32)> {
        self.stocks.iter().map(Stock::get)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use mmscale_stepped::Stepped;

    const GROUPS: usize = 12;

    fn sum(stocks: &Stocks<Stepped>) -> u32 {
        stocks.all().map(|(_, pages)| pages).sum()
    }

    #[test]
    fn a_cpu_has_stocks_of_as_many_groups_as_the_policy_says() {
        for (policy, most) in
            [(StockPolicy::One, 1), (StockPolicy::Seven, 7), (StockPolicy::Counter, GROUPS - 1)]
        {
            let stocks = Stocks::new(policy, GROUPS);
            let ids = || (1..GROUPS).map(GroupId::new);
            let evicted: Vec<_> = ids().filter_map(|group| stocks.add(group, 9)).collect();
            // In turn: the oldest first.
            let expected: Vec<_> = ids().take(GROUPS - 1 - most).map(|group| (group, 9)).collect();
            assert_eq!(evicted, expected, "{policy:?}");
            assert_eq!(sum(&stocks), 9 * most as u32, "{policy:?}");
            let kept: Vec<_> = ids().filter(|group| stocks.take(*group, 9)).collect();
            let mut expected: Vec<_> = ids().skip(GROUPS - 1 - most).collect();
            expected.sort_unstable();
            assert_eq!((kept, sum(&stocks)), (expected, 0), "{policy:?}");
        }
    }

    #[test]
    fn a_stock_gives_what_it_has_and_nothing_of_another_group() {
        let stocks = Stocks::new(StockPolicy::Seven, GROUPS);
        let [one, two] = [GroupId::new(1), GroupId::new(2)];
        assert_eq!((stocks.add(one, 5), stocks.add(one, 2)), (None, None));
        assert!(!stocks.take(one, 8) && !stocks.take(two, 1) && stocks.take(one, 3));
        assert_eq!(stocks.empty().collect::<Vec<_>>(), [(one, 4)]);
        assert_eq!(sum(&stocks), 0);
    }
}
