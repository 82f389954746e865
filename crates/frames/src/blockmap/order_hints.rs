//! Hints: the pageblocks that may have free blocks of larger orders.

use super::index::Index;
use crate::place::Place;
use mmscale_arch::{Cpu, Order, PAGEBLOCK_ORDER};

/// The largest order below a pageblock's.
pub(super) const LARGEST_HINT: u8 = PAGEBLOCK_ORDER - 1;

/// For each order from 1 to 8, the pageblocks that may have a free block of that order.
///
/// A CPU that frees frames adds the pageblock for the order that may have come about. A CPU that
/// searches a pageblock without success removes it. So no pageblock is searched twice without
/// success, unless frames were freed meanwhile. A pageblock in the set of an order is in the sets
/// of all smaller orders.
pub(super) struct OrderHints<A: Cpu> {
    orders: [Index<A>; LARGEST_HINT as usize],
}

impl<A: Cpu> OrderHints<A> {
    /// Creates sets with all of `len` blocks.
    pub(super) fn all(place: &mut Place, len: usize) -> Self {
        Self { orders: core::array::from_fn(|_| Index::new(place, len, |_| true)) }
    }
    /// The size of the bitmaps in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.orders.iter().map(Index::bytes).sum()
    }
    /// The set of pageblocks for `order`; `None` for order 0, which every partial block has.
    #[inline]
    pub(super) fn of(&self, order: Order) -> Option<&Index<A>> {
        let at = order.get().checked_sub(1)?;
        Some(&self.orders[usize::from(at)])
    }
    /// The set of pageblocks that may have a larger block than `order`.
    #[inline]
    pub(super) fn above(&self, order: Order) -> Option<&Index<A>> {
        self.orders.get(order.index())
    }
    /// Whether a block is in the sets of all orders, so that no free needs to add it.
    #[inline]
    pub(super) fn is_in_all(&self, block: usize) -> bool {
        self.orders[usize::from(LARGEST_HINT) - 1].contains(block)
    }
    /// Adds a block for `order` and all smaller orders: it may have a free block of that order.
    #[inline]
    pub(super) fn note(&self, block: usize, order: u8) {
        // One branch for both conditions: whether a frame's buddy is free is unpredictable.
        let index = &self.orders[usize::from(order.saturating_sub(1))];
        if (order > 0) & !index.contains(block) {
            self.note_new(block, order);
        }
    }
    #[inline(never)]
    fn note_new(&self, block: usize, order: u8) {
        for index in self.orders[..usize::from(order)].iter().rev() {
            if index.contains(block) {
                return;
            }
            index.set(block);
        }
    }
    /// Removes a block for `order` and all larger orders, after a search for `order` without
    /// success. The largest order is removed last. While it is in its set, a free adds nothing, so
    /// the caller searches again after this call.
    pub(super) fn forget(&self, block: usize, order: Order) {
        let above = &self.orders[order.index().saturating_sub(1)..];
        let above = if order == Order::ZERO { &[] } else { above };
        above.iter().filter(|index| index.contains(block)).for_each(|index| {
            index.clear(block);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::placed;
    use mmscale_stepped::Stepped;

    #[test]
    fn a_failed_search_is_not_repeated_before_a_free() {
        let order_hints = placed(|place| OrderHints::<Stepped>::all(place, 100));
        let order = |order| Order::new(order).unwrap();
        let there = |at| {
            let orders = (0..=8).map(order);
            let found =
                orders.filter(|&order| order_hints.of(order).is_none_or(|of| of.contains(at)));
            found.map(Order::get).collect::<alloc::vec::Vec<_>>()
        };
        assert_eq!(there(7), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
        order_hints.forget(7, order(8));
        assert_eq!(there(7), [0, 1, 2, 3, 4, 5, 6, 7]);
        order_hints.forget(7, order(2));
        assert_eq!(there(7), [0, 1]);
        order_hints.forget(7, order(0));
        order_hints.note(7, 0);
        assert_eq!(there(7), [0, 1]);
        order_hints.note(7, 4);
        assert_eq!(there(7), [0, 1, 2, 3, 4]);
        assert_eq!(there(8).len(), 9);
    }
}
