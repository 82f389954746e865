//! Pages and ranges of pages in a user address space.

use super::VirtAddr;

/// A page is 2^12 bytes.
pub const PAGE_SHIFT: u32 = 12;
/// Bytes in a page.
pub const PAGE_SIZE: u64 = 1 << PAGE_SHIFT;
/// User addresses are below 2^47, as with four levels of page tables on x86-64.
pub const ADDRESS_BITS: u32 = 47;
/// The first address that no user mapping may reach: x86-64 keeps the last page below 2^47 empty
/// (`TASK_SIZE_MAX`), so that what follows a mapping is always an address that may be called.
pub const USER_END: VirtAddr = VirtAddr::new((1 << ADDRESS_BITS) - PAGE_SIZE);

/// A virtual page: an address without its lowest [`PAGE_SHIFT`] bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Vpn(u64);

impl Vpn {
    /// The first page.
    pub const ZERO: Self = Self(0);
    /// The page after the last one of the user address space.
    pub const USER_END: Self = Self(USER_END.get() >> PAGE_SHIFT);

    /// Page number `index`.
    #[inline]
    pub const fn new(index: u64) -> Self {
        Self(index)
    }
    /// The page that holds `addr`.
    #[inline]
    pub const fn containing(addr: VirtAddr) -> Self {
        Self(addr.get() >> PAGE_SHIFT)
    }
    /// The page that begins at `addr`; `None` when `addr` is inside a page.
    #[inline]
    pub const fn starting_at(addr: VirtAddr) -> Option<Self> {
        if addr.get() & (PAGE_SIZE - 1) == 0 { Some(Self::containing(addr)) } else { None }
    }
    /// The page's number.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }
    /// The address of the page's first byte.
    #[inline]
    pub const fn addr(self) -> VirtAddr {
        VirtAddr::new(self.0 << PAGE_SHIFT)
    }
    /// The page `pages` further on. Overflow is a bug of the caller.
    #[inline]
    pub const fn offset(self, pages: u64) -> Self {
        Self(self.0 + pages)
    }
}

/// Pages `start .. end` of the user address space; never empty.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VmaRange {
    start: Vpn,
    end: Vpn,
}

impl VmaRange {
    /// The whole user address space.
    pub const USER: Self = Self { start: Vpn::ZERO, end: Vpn::USER_END };

    /// Pages from `start` up to `end`, which is not part of it. `None` when that is no page, or
    /// reaches past [`USER_END`].
    #[inline]
    pub const fn new(start: Vpn, end: Vpn) -> Option<Self> {
        if start.0 < end.0 && end.0 <= Vpn::USER_END.0 { Some(Self { start, end }) } else { None }
    }
    /// The `pages` pages that begin with `start`. `None` for 0, or when they reach past
    /// [`USER_END`].
    #[inline]
    pub const fn with_pages(start: Vpn, pages: u64) -> Option<Self> {
        match start.0.checked_add(pages) {
            Some(end) => Self::new(start, Vpn(end)),
            None => None,
        }
    }
    /// The range from `start` to `end`, unchecked: the caller guarantees that it is not empty and
    /// lies within the address space.
    #[inline]
    pub const fn raw(start: u64, end: u64) -> Self {
        Self { start: Vpn(start), end: Vpn(end) }
    }
    /// The first page.
    #[inline]
    pub const fn start(self) -> Vpn {
        self.start
    }
    /// The page after the last.
    #[inline]
    pub const fn end(self) -> Vpn {
        self.end
    }
    /// The last page.
    #[inline]
    pub const fn last(self) -> Vpn {
        Vpn(self.end.0 - 1)
    }
    /// The number of pages, at least 1.
    #[inline]
    pub const fn pages(self) -> u64 {
        self.end.0 - self.start.0
    }
    /// Whether the range has `page`.
    #[inline]
    pub const fn contains(self, page: Vpn) -> bool {
        self.start.0 <= page.0 && page.0 < self.end.0
    }
    /// Whether the range has all pages of `other`.
    #[inline]
    pub const fn covers(self, other: Self) -> bool {
        self.start.0 <= other.start.0 && other.end.0 <= self.end.0
    }
    /// Whether both ranges have a page in common.
    #[inline]
    pub const fn overlaps(self, other: Self) -> bool {
        self.start.0 < other.end.0 && other.start.0 < self.end.0
    }
    /// The pages that are in both ranges; `None` if there are none.
    #[inline]
    pub fn intersection(self, other: Self) -> Option<Self> {
        Self::new(self.start.max(other.start), self.end.min(other.end))
    }
    /// Splits the range in front of `at`; `None` unless both parts have a page.
    #[inline]
    pub const fn split(self, at: Vpn) -> Option<(Self, Self)> {
        if self.start.0 < at.0 && at.0 < self.end.0 {
            Some((Self { start: self.start, end: at }, Self { start: at, end: self.end }))
        } else {
            None
        }
    }
}

impl core::fmt::Display for VmaRange {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:x}-{:x}", self.start.addr().get(), self.end.addr().get())
    }
}

const _: () = assert!(Vpn::USER_END.get() == (1 << 35) - 1);

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> Option<VmaRange> {
        VmaRange::new(Vpn::new(start), Vpn::new(end))
    }

    #[test]
    fn a_page_starts_at_its_number_times_4096() {
        assert_eq!(Vpn::new(3).addr(), VirtAddr::new(3 * 4096));
        assert_eq!(Vpn::containing(VirtAddr::new(4 * 4096 - 1)), Vpn::new(3));
    }

    #[test]
    fn ranges_are_half_open() {
        let (Some(low), Some(high)) = (range(2, 5), range(5, 9)) else { panic!() };
        assert!(!low.overlaps(high) && low.intersection(high).is_none());
        assert!(low.contains(Vpn::new(4)) && !low.contains(Vpn::new(5)));
        assert_eq!(range(2, 9).and_then(|all| all.split(Vpn::new(5))), Some((low, high)));
        assert_eq!(low.split(Vpn::new(2)), None);
        assert!(VmaRange::USER.covers(high) && !low.covers(high));
    }
}
