//! The sizes of pageblocks and of the largest blocks, which depend on the size of a page.

use mmscale_arch::{Order, Pfn};

/// Orders of a zone with free lists, as in Linux with transparent huge pages: a pageblock is what
/// one entry of the second level of page tables maps.
///
/// | page | pageblock | largest block |
/// |---|---|---|
/// | 4 KiB | order 9, 2 MiB | order 10, 4 MiB |
/// | 16 KiB | order 11, 32 MiB | order 11, 32 MiB |
/// | 64 KiB | order 13, 512 MiB | order 13, 512 MiB |
///
/// Page caches have lists for orders 0 to 3 and 9, whatever the size of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// The order of a pageblock.
    pub pageblock: Order,
    /// The order of the largest blocks of the buddy allocator; not less than that of a pageblock.
    pub max: Order,
}

impl Geometry {
    /// The orders of pages of 4 KiB: those of [`Order::PAGEBLOCK`] and [`Order::MAX`].
    pub const BASE: Self = Self { pageblock: Order::PAGEBLOCK, max: Order::MAX };

    /// The orders of pages of `page_kib` KiB; `None` for a size that no processor has.
    pub const fn of_page(page_kib: u32) -> Option<Self> {
        let order = match page_kib {
            4 => return Some(Self::BASE),
            16 => Order::large(11),
            64 => Order::large(13),
            _ => return None,
        };
        match order {
            Some(order) => Some(Self { pageblock: order, max: order }),
            None => None,
        }
    }
    /// The orders that blocks have, smallest first.
    pub fn orders(self) -> impl DoubleEndedIterator<Item = Order> {
        (0..=self.max.get()).filter_map(Order::large)
    }
    /// The order of a GiB. A pageblock has as many pages as a page has words of 8 bytes: with pages
    /// of 2^p bytes its order is p - 3, and that of a GiB 30 - p.
    pub(crate) const fn gib_order(self) -> u8 {
        27 - self.pageblock.get()
    }
    /// The number of the pageblock that holds `pfn`.
    #[inline]
    pub(crate) const fn block_of(self, pfn: Pfn) -> usize {
        pfn.index() >> self.pageblock.get()
    }
    /// The number of pages of a pageblock.
    #[inline]
    pub const fn block_pages(self) -> usize {
        self.pageblock.pages()
    }
}
