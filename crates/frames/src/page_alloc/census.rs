//! A census of free blocks by size: for figures about fragmentation.

use super::zone::{FreeLists, ZoneFree};
use super::{FrameAllocator, Zone};
use crate::blockmap::BlockMap;
use crate::frame::{FrameState, MigrateType};
use crate::zone::Geometry;
use alloc::vec;
use alloc::vec::Vec;
use mmscale_arch::{Cpu, ORDERS, Order, Pfn};

/// Free memory of all zones, by block size.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Census {
    /// All pages.
    pub pages: u64,
    /// Free blocks of each order that the zones could allocate now. Each counts once, as the
    /// largest block that it is.
    pub free_blocks: [u64; ORDERS],
    /// Free pages in CPUs' caches, which only their CPU can allocate.
    pub cached_pages: u64,
    /// Pageblocks that a zone could allocate whole.
    pub whole_blocks: u64,
    /// Pageblocks without a page in use that are not whole, because parts are in CPUs' caches.
    pub loose_blocks: u64,
    /// Pageblocks with pages in use and free pages, in the zone or in caches.
    pub partial_blocks: u64,
    /// Pageblocks without a free page.
    pub full_blocks: u64,
    /// Whether a guest allocator has free memory. Its caches, and the types of its pageblocks, are
    /// not known: `cached_pages`, `tainted_blocks` and `tainted_gib` are without them.
    pub has_guest: bool,
    /// Pageblocks that are not movable.
    pub tainted_blocks: u64,
    /// GiB of the zones with a pageblock that is not movable.
    pub tainted_gib: u64,
    /// Bytes of metadata about frames: records, pageblocks, zones, page caches. Counters and the
    /// program's code are not included.
    pub metadata_bytes: u64,
    /// The part of `metadata_bytes` that is per CPU; it does not depend on the amount of memory.
    pub cpu_metadata_bytes: u64,
}

impl Census {
    /// Free pages, in zones and in caches.
    pub fn free_pages(&self) -> u64 {
        self.zone_pages(Order::ZERO) + self.cached_pages
    }
    /// Free pages that are not in a free block of at least `order` in a zone. Divided by
    /// [`Census::free_pages`] it is the unusable-free index of M. Gorman and A. Whitcroft ("The
    /// what, the why and the where to of anti-fragmentation", 2006), which /sys shows as
    /// `unusable_index`; but pages in caches count as free here, and as unusable.
    pub fn unusable_pages(&self, order: Order) -> u64 {
        self.free_pages() - self.zone_pages(order)
    }
    /// Pages in free blocks of at least `order`.
    fn zone_pages(&self, order: Order) -> u64 {
        let from = order.index();
        let blocks = self.free_blocks.iter().enumerate().skip(from);
        blocks.map(|(at, blocks)| blocks << at).sum()
    }
}

/// The free pages of a zone's pageblocks.
struct Blocks {
    geometry: Geometry,
    first: usize,
    free: Vec<u16>,
    /// By pageblock: whether the zone could allocate it whole.
    whole: Vec<bool>,
}

impl Blocks {
    fn of<A: Cpu>(zone: &Zone<A>, geometry: Geometry) -> Self {
        let span = zone.extent.span();
        let first = geometry.block_of(Pfn::new(span.start));
        let count = span.end.div_ceil(geometry.block_pages()) - first;
        Self { geometry, first, free: vec![0; count], whole: vec![false; count] }
    }
    fn add(&mut self, pfn: Pfn, pages: usize) {
        let (at, each) = (self.geometry.block_of(pfn) - self.first, self.geometry.block_pages());
        for (nth, free) in self.free[at..].iter_mut().take(pages.div_ceil(each)).enumerate() {
            *free += (pages - nth * each).min(each) as u16;
        }
    }
    /// Adds free pages of the zone itself: pageblocks among them are whole.
    fn add_to_zone(&mut self, pfn: Pfn, pages: usize) {
        self.add(pfn, pages);
        let at = self.geometry.block_of(pfn) - self.first;
        self.whole[at..at + (pages >> self.geometry.pageblock.get())].fill(true);
    }
    /// Counts the pageblocks that are not movable, and the GiB that they are in.
    fn count_tainted<A: Cpu>(
        &self,
        zone: &Zone<A>,
        is_movable: impl Fn(Pfn) -> bool,
        census: &mut Census,
    ) {
        let (mut last, each) = (None, self.geometry.block_pages());
        for block in (self.first..).take(self.free.len()).map(|at| at * each) {
            if zone.extent.present_in(block..block + each) > 0 && !is_movable(Pfn::new(block)) {
                census.tainted_blocks += 1;
                let gib = Some(block >> self.geometry.gib_order());
                census.tainted_gib += u64::from(core::mem::replace(&mut last, gib) != gib);
            }
        }
    }
    /// Sorts the pageblocks into `census`. Those at the zone's ends or at holes may have fewer
    /// pages than others, or none. Pages that went from a CPU to the zone meanwhile count twice.
    fn count<A: Cpu>(&self, zone: &Zone<A>, census: &mut Census) {
        for (nth, (&free, &whole)) in self.free.iter().zip(&self.whole).enumerate() {
            let each = self.geometry.block_pages();
            let block = (self.first + nth) * each;
            let pages = zone.extent.present_in(block..block + each);
            match usize::from(free) {
                _ if pages == 0 => {}
                _ if whole => census.whole_blocks += 1,
                0 => census.full_blocks += 1,
                free if free >= pages => census.loose_blocks += 1,
                _ => census.partial_blocks += 1,
            }
        }
    }
}

impl<A: Cpu> FrameAllocator<A> {
    /// Counts free blocks, by walking lists under their locks; the walk itself costs no time of the
    /// machine. Exact only while no CPU allocates or frees: it takes the locks one after the other.
    pub fn census(&self) -> Census {
        let mut census = Census::default();
        for zone in self.zones.iter() {
            census.pages += u64::from(zone.pages());
            match &zone.free {
                ZoneFree::Lists(lists) => self.listed_census(zone, lists, &mut census),
                ZoneFree::Blocks(blocks) => mapped_census(zone, &blocks.map, &mut census),
                ZoneFree::Guest(guest) => {
                    census.has_guest = true;
                    self.recorded_census(zone, &mut census);
                    census.metadata_bytes += guest.bytes() as u64;
                }
            }
        }
        census.metadata_bytes += self.frames.bytes() as u64;
        census.metadata_bytes += self.isolated.bytes();
        census
    }

    /// Counts a zone of which only the records are known: free neighbours count as merged.
    fn recorded_census(&self, zone: &Zone<A>, census: &mut Census) {
        let mut blocks = Blocks::of(zone, Geometry::BASE);
        let span = zone.extent.span();
        let mut at = span.start;
        while at < span.end {
            let held = |at: usize| {
                let word = self.frames.word(Pfn::new(at));
                (word.state() == FrameState::Held).then(|| word.order().pages())
            };
            if let Some(pages) = held(at) {
                at += pages;
                continue;
            }
            let end = (at..span.end).find(|&at| held(at).is_some()).unwrap_or(span.end);
            while at < end {
                let aligned = (at.trailing_zeros() as u8).min((end - at).ilog2() as u8);
                let order = Order::new(aligned).unwrap_or(Order::MAX);
                blocks.add_to_zone(Pfn::new(at), order.pages());
                census.free_blocks[order.index()] += 1;
                at += order.pages();
            }
        }
        blocks.count(zone, census);
    }

    /// Counts a zone whose free blocks are on the lists of its buddy allocator and of page caches.
    fn listed_census(&self, zone: &Zone<A>, lists: &FreeLists<A>, census: &mut Census) {
        let mut blocks = Blocks::of(zone, self.config.geometry());
        for (_, pcp) in lists.pcps.iter() {
            let pcp = pcp.lock();
            census.cached_pages += u64::from(pcp.count());
            // Errors of the lists are ignored here: `verify` reports them.
            let _ = pcp.check(&self.frames, |pfn, word| blocks.add(pfn, word.order().pages()));
        }
        let buddy = lists.buddy.lock_irqsave();
        let untouched = buddy.untouched();
        blocks.add_to_zone(Pfn::new(untouched.start as usize), untouched.len());
        for (order, _, list) in buddy.lists() {
            for (pfn, _) in list.walk(&self.frames) {
                blocks.add_to_zone(pfn, order.pages());
            }
        }
        for order in self.config.geometry().orders() {
            census.free_blocks[order.index()] += u64::from(buddy.free_blocks(order));
        }
        let is_movable = |block| buddy.block_type(block) == MigrateType::Movable;
        blocks.count_tainted(zone, is_movable, census);
        let list_bytes = buddy.list_bytes();
        drop(buddy);
        blocks.count(zone, census);
        census.metadata_bytes += lists.metadata_bytes(blocks.free.len(), list_bytes);
        census.cpu_metadata_bytes += lists.cpu_metadata_bytes();
    }
}

/// Counts a zone whose free pages are bits of a map.
fn mapped_census<A: Cpu>(zone: &Zone<A>, map: &BlockMap<A>, census: &mut Census) {
    let mut blocks = Blocks::of(zone, Geometry::BASE);
    let mut before = None;
    map.pieces(|pfn, order, kept| {
        if kept {
            blocks.add(pfn, order.pages());
            census.cached_pages += order.pages() as u64;
            return;
        }
        blocks.add_to_zone(pfn, order.pages());
        census.free_blocks[order.index()] += 1;
        if order == Order::PAGEBLOCK {
            // Two halves of a largest block count as one.
            if before == Some(pfn.buddy(order)) && before < Some(pfn) {
                census.free_blocks[order.index()] -= 2;
                census.free_blocks[Order::MAX.index()] += 1;
            }
            before = Some(pfn);
        }
    });
    let is_movable = |block| map.block_type(block) == MigrateType::Movable;
    blocks.count_tainted(zone, is_movable, census);
    blocks.count(zone, census);
    let (shared, per_cpu) = map.metadata_bytes();
    let for_cpus = per_cpu * map.cpus();
    census.metadata_bytes += (shared + for_cpus) as u64;
    census.cpu_metadata_bytes += for_cpus as u64;
}
