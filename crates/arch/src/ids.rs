//! Identifiers. Each is a newtype; conversions are methods, so that a page-frame number cannot be
//! used as a CPU number.

/// The largest number of CPUs a machine may have.
pub const MAX_CPUS: usize = 4096;
/// The largest number of memory nodes a machine may have.
pub const MAX_NODES: usize = 64;
/// The order of the largest block with pages of 4 KiB: 2^10 frames.
pub const MAX_ORDER: u8 = 10;
/// Pages in a pageblock are 2^`PAGEBLOCK_ORDER`: 2 MiB with 4 KiB pages.
pub const PAGEBLOCK_ORDER: u8 = 9;
/// The number of orders. With pages of 64 KiB the largest block is 2^13 frames.
pub const ORDERS: usize = 14;

const _: () = assert!(PAGEBLOCK_ORDER <= MAX_ORDER && (MAX_ORDER as usize) < ORDERS);

/// A CPU, numbered from 0 among the CPUs that may ever exist on this machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CpuId(u16);

impl CpuId {
    /// CPU number `index`. Panics unless it is below `MAX_CPUS`: that is a bug of the caller.
    #[inline]
    pub const fn new(index: usize) -> Self {
        assert!(index < MAX_CPUS, "a CPU's number is below 4096");
        Self(index as u16)
    }
    /// The number, for indexing.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl core::fmt::Display for CpuId {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "cpu{}", self.0)
    }
}

/// A memory node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(u8);

impl NodeId {
    /// Node number `index`. Panics unless it is below `MAX_NODES`.
    #[inline]
    pub const fn new(index: usize) -> Self {
        assert!(index < MAX_NODES);
        Self(index as u8)
    }
    /// The number, for indexing.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Which lock of its class a lock is. Only statistics use it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LockInstance {
    /// One of many that have no name, or the only one.
    Unnamed,
    /// The lock with a number: that of a zone, for example.
    Numbered(u32),
    /// A CPU's.
    OfCpu(CpuId),
    /// That of a memory group on a node.
    OfGroup(u32, NodeId),
}

/// A page-frame number. Frames are numbered from 0 over the whole machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Pfn(u32);

impl Pfn {
    /// Frame number `index`. At most 2^32 - 2 frames (16 TiB of 4 KiB pages).
    #[inline]
    pub const fn new(index: usize) -> Self {
        assert!(
            index < u32::MAX as usize,
            "a frame's number is its address divided by 4096, below 2^32 - 1"
        );
        Self(index as u32)
    }
    /// The number, for indexing.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
    /// The frame `pages` after this one. Panics if its number is too large.
    #[inline]
    pub const fn offset(self, pages: usize) -> Self {
        Self::new(self.index() + pages)
    }
    /// The frame `pages` after this one, unchecked: the caller guarantees that it exists.
    #[inline]
    pub const fn ahead(self, pages: u32) -> Self {
        Self(self.0.wrapping_add(pages))
    }
    /// First frame of the buddy of the block of `order` at this frame.
    #[inline]
    pub const fn buddy(self, order: Order) -> Self {
        Self(self.0 ^ (1 << order.0))
    }
    /// Whether a block of `order` may start here.
    #[inline]
    pub const fn is_aligned(self, order: Order) -> bool {
        // Frame 0 has 32 trailing zeros: it is aligned for every order.
        self.0.trailing_zeros() >= order.0 as u32
    }
    /// The first frame of the naturally aligned block of `order` that holds this frame.
    #[inline]
    pub const fn align_down(self, order: Order) -> Self {
        Self(self.0 & !((1 << order.0) - 1))
    }
    /// The pageblock that holds this frame, with pages of 4 KiB.
    #[inline]
    pub const fn pageblock(self) -> usize {
        (self.0 >> PAGEBLOCK_ORDER) as usize
    }
}

/// The size of a block of frames, as a power of two: 0 to [`MAX_ORDER`], and up to 13 where pages
/// are larger than 4 KiB.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Order(u8);

impl Order {
    /// One page.
    pub const ZERO: Self = Self(0);
    /// The largest block of the buddy allocator with pages of 4 KiB.
    pub const MAX: Self = Self(MAX_ORDER);
    /// A huge page, which is also a pageblock.
    pub const PAGEBLOCK: Self = Self(PAGEBLOCK_ORDER);

    /// Order `value`; `None` above [`MAX_ORDER`].
    #[inline]
    pub const fn new(value: u8) -> Option<Self> {
        if value <= MAX_ORDER { Some(Self(value)) } else { None }
    }
    /// Order `value`, also one that only pages larger than 4 KiB have; `None` if it is not below
    /// [`ORDERS`].
    #[inline]
    pub const fn large(value: u8) -> Option<Self> {
        if (value as usize) < ORDERS { Some(Self(value)) } else { None }
    }
    /// The exponent.
    #[inline]
    pub const fn get(self) -> u8 {
        self.0
    }
    /// The exponent, for indexing.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
    /// The number of pages in a block of this order.
    #[inline]
    pub const fn pages(self) -> usize {
        1 << self.0
    }
    /// The next larger order; `None` at the largest of all sizes of pages.
    #[inline]
    pub const fn up(self) -> Option<Self> {
        Self::large(self.0 + 1)
    }
    /// The next smaller order; `None` at 0.
    #[inline]
    pub const fn down(self) -> Option<Self> {
        if self.0 == 0 { None } else { Some(Self(self.0 - 1)) }
    }
    /// All orders up to [`Order::MAX`], smallest first.
    pub fn all() -> impl DoubleEndedIterator<Item = Self> {
        (0..=MAX_ORDER).map(Self)
    }
}

/// A task of the machine: it can be parked and woken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TaskId(u32);

impl TaskId {
    /// Task number `index`; machines hand these out.
    #[inline]
    pub const fn new(index: usize) -> Self {
        Self(index as u32)
    }
    /// The number, for indexing.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A virtual address of a process, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VirtAddr(u64);

impl VirtAddr {
    /// Byte `address`. Any number is allowed; operations on it report whether it is mapped.
    #[inline]
    pub const fn new(address: u64) -> Self {
        Self(address)
    }
    /// The number, in bytes.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }
    /// The address `bytes` after this one; `None` past the last one.
    #[inline]
    pub const fn checked_add(self, bytes: u64) -> Option<Self> {
        match self.0.checked_add(bytes) {
            Some(address) => Some(Self(address)),
            None => None,
        }
    }
}

impl core::fmt::Display for VirtAddr {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}
