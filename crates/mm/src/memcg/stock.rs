//! Stocks: pages that CPUs have charged in advance (`memcg_stock_pcp`).
//!
//! A CPU has stocks of some groups. Which, is the policy. A stock is used only on its CPU with
//! preemption off, or after the CPU has gone offline.

use super::GroupId;
use alloc::boxed::Box;
use core::sync::atomic::AtomicU16;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

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

/// Pages of one group that a CPU has charged in advance. A stock of the root is empty.
struct Stock {
    group: AtomicU16,
    pages: AtomicU32,
}

/// One CPU's stocks.
pub(super) struct Stocks {
    stocks: Box<[Stock]>,
    /// Whether each group has the stock of its number.
    own: bool,
    /// The stock that is emptied next when a group needs one and none is free (`drain_idx`).
    next: AtomicU16,
}

impl Stocks {
    /// Creates empty stocks, for `groups` groups.
    pub(super) fn new(policy: StockPolicy, groups: usize) -> Self {
        let len = match policy {
            StockPolicy::Seven => SEVEN,
            StockPolicy::One => 1,
            StockPolicy::Counter => groups,
        };
        let stock = |_| Stock { group: AtomicU16::new(0), pages: AtomicU32::new(0) };
        let own = policy == StockPolicy::Counter;
        Self { stocks: (0..len).map(stock).collect(), own, next: AtomicU16::new(0) }
    }
    fn find(&self, group: GroupId) -> Option<&Stock> {
        let is_of = |stock: &&Stock| usize::from(stock.group.load(Relaxed)) == group.index();
        if self.own {
            return self.stocks.get(group.index()).filter(is_of);
        }
        self.stocks.iter().find(is_of)
    }
    /// Takes pages out of the stock of a group, if it has them (`consume_stock`).
    pub(super) fn take(&self, group: GroupId, pages: u32) -> bool {
        let Some(stock) = self.find(group) else { return false };
        let left = stock.pages.load(Relaxed).checked_sub(pages);
        left.inspect(|&left| stock.pages.store(left, Relaxed)).is_some()
    }
    /// Adds pages to the stock of a group. If that takes the place of another group's stock,
    /// returns what that had, for its counter (`refill_stock`).
    pub(super) fn add(&self, group: GroupId, pages: u32) -> Option<(GroupId, u32)> {
        if let Some(stock) = self.find(group) {
            stock.pages.store(stock.pages.load(Relaxed) + pages, Relaxed);
            return None;
        }
        let stock = self.place_for(group);
        let before = take_all(stock);
        stock.group.store(group.index() as u16, Relaxed);
        stock.pages.store(pages, Relaxed);
        before
    }
    /// Returns the stock that a group without one gets.
    fn place_for(&self, group: GroupId) -> &Stock {
        if self.own {
            return &self.stocks[group.index()];
        }
        let free = |stock: &&Stock| stock.group.load(Relaxed) == 0;
        self.stocks.iter().find(free).unwrap_or_else(|| {
            let next = self.next.load(Relaxed);
            let after = usize::from(next) + 1;
            self.next.store(if after < self.stocks.len() { next + 1 } else { 0 }, Relaxed);
            &self.stocks[usize::from(next)]
        })
    }
    /// Empties all stocks and returns what they had.
    pub(super) fn empty(&self) -> impl Iterator<Item = (GroupId, u32)> {
        self.stocks.iter().filter_map(take_all)
    }
    /// The groups and pages of all stocks, while nothing changes.
    pub(super) fn all(&self) -> impl Iterator<Item = (GroupId, u32)> {
        self.stocks.iter().map(content)
    }
}

fn content(stock: &Stock) -> (GroupId, u32) {
    (GroupId::new(stock.group.load(Relaxed).into()), stock.pages.load(Relaxed))
}

/// Empties a stock, which has no group then; `None` if it was empty.
fn take_all(stock: &Stock) -> Option<(GroupId, u32)> {
    let before = content(stock);
    stock.group.store(0, Relaxed);
    stock.pages.store(0, Relaxed);
    (before.1 > 0).then_some(before)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const GROUPS: usize = 12;

    fn sum(stocks: &Stocks) -> u32 {
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
