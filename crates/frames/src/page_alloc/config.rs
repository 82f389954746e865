//! The settings of an administrator.

use crate::guest::Guest;
use crate::pcp::BATCH_SCALE_MAX;
use crate::zone::{Geometry, Watermarks, ZoneId, ZoneLists};
use core::alloc::Layout;
use mmscale_arch::MAX_CPUS;

mmscale_arch::policies! {
    /// Limit of the pages that one hold of the zone lock frees, when many are due.
    pub enum BulkHold: "bulk", "pages that one hold of zone->lock frees" {
        /// Frees one batch in a hold; the page cache's lock is released between holds.
        Batch = "stock",
        /// Frees all pages that are due in one hold.
        Whole = "whole",
    }
}

mmscale_arch::policies! {
    /// The limit `high` of a per-CPU page cache, and of its refills.
    pub enum HighPolicy: "high", "size of per-CPU page caches and of their refills" {
        /// Tunes `high` and refills by a CPU's allocations and frees.
        Tuned = "stock",
        /// Fixes `high` at the CPU's share of the low watermark; a refill has one batch, and drains
        /// double while the CPU only frees.
        Watermark = "watermark",
        /// Fixes `high` at six batches; refills and drains have one batch.
        Batches = "batches",
    }
}

mmscale_arch::policies! {
    /// Checks of the pages of a block before it is handed out: whether their records are as the
    /// allocator left them.
    pub enum PageCheck: "check", "checks of free pages" {
        /// Checks no page at all.
        Never = "stock",
        /// Checks in a refill of a page cache, under zone->lock, and after it if there is none.
        Refill = "refill",
        /// Checks when a block is handed out, without a lock.
        Alloc = "alloc",
    }
}

mmscale_arch::policies! {
    /// The batch of a per-CPU page cache: the least number of pages moved in one step.
    pub enum BatchPolicy: "batch", "pages that a per-CPU page cache moves in one step" {
        /// Moves up to 63 pages of 4 KiB.
        Stock = "stock",
        /// Moves half as many, up to 31.
        Half = "half",
        /// Moves 7, as where page caches were sized before most memory of the zone was counted.
        Boot = "boot",
    }
}

impl BatchPolicy {
    /// Returns the batch of this policy where the formula gives `batch`.
    pub(super) const fn of(self, batch: u32) -> u32 {
        match self {
            Self::Stock => batch,
            Self::Half => {
                if batch > 1 {
                    batch / 2
                } else {
                    1
                }
            }
            Self::Boot => {
                if batch < 7 {
                    batch
                } else {
                    7
                }
            }
        }
    }
}

mmscale_arch::policies! {
    /// The blocks that per-CPU page caches have with `caches=stock`; the others go to the buddy
    /// allocator and come from it.
    pub enum CachedOrders: "orders", "blocks that per-CPU page caches have" {
        /// Caches blocks of orders 0 to 3, and huge pages.
        Low = "stock",
        /// Caches single pages alone, with caches=stock: each larger block takes zone->lock when it
        /// is allocated and when it is freed.
        Single = "zone",
    }
}

mmscale_arch::policies! {
    /// Policy of per-CPU page caches. `Posted` is "mm: page_alloc: pcp buddy allocator" of
    /// linux-mm; `Blockmap` is the module [`blockmap`](crate::blockmap).
    pub enum PcpPolicy: "caches", "per-CPU page caches and the free memory of a zone" {
        /// Frees a page into the cache of the freeing CPU, and from there to the zone, under
        /// zone->lock (Linux).
        Stock = "stock",
        /// Merges the pages of a drain in the page cache, before zone->lock is taken.
        Premerge = "premerge",
        /// Lets a CPU own whole pageblocks: their pages return to its cache, whichever CPU frees
        /// them, and buddies merge there (RFC of April 2026).
        Posted = "posted",
        /// Keeps free pages as bits in maps of pageblocks that CPUs own; there is no zone->lock.
        Blockmap = "blockmap",
    }
}

/// Whether each frame has a record.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Records {
    /// Each frame has a record ([`FrameTable`](crate::frame::FrameTable)): a free of a block that
    /// is not allocated, or with another order, is detected. The rest of the memory manager needs
    /// these records too.
    #[default]
    Kept,
    /// Each frame has a byte: the order of the block that is allocated there, if one is. For
    /// [`PcpPolicy::Blockmap`] only, whose free blocks are on no lists. The same wrong frees are
    /// detected as with `Kept`.
    Orders,
    /// Frames have no records: for [`PcpPolicy::Blockmap`] only, which needs just its maps. A
    /// double free may be detected late; a wrong order is not detected.
    None,
}

/// Settings of an administrator. The defaults are the kernel's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AllocConfig {
    /// The size of a page in KiB; 4, 16 or 64. Pageblocks follow it ([`Geometry`]).
    pub page_kib: u32,
    /// `vm.min_free_kbytes`; `None`: the kernel's formula.
    pub min_free_kb: Option<u64>,
    /// `vm.watermark_scale_factor`: the distance between watermarks in 1/10000 of the zone.
    pub watermark_scale: u32,
    /// The watermarks of zones of kind `Normal`; `None`: by the formula of Linux. A kernel may have
    /// computed its own when the zone had other pages.
    pub normal_marks: Option<Watermarks>,
    /// `vm.percpu_pagelist_high_fraction`; `None`: page caches tune themselves.
    pub high_fraction: Option<u32>,
    /// The batch of page caches in pages, 1 to 1024, before [`AllocConfig::batch`]; `None`:
    /// [`batch_size`](crate::pcp::batch_size) of the zone.
    pub batch_pages: Option<u32>,
    /// Refills grow up to `batch << batch_scale_max` pages (`CONFIG_PCP_BATCH_SCALE_MAX`, 0 to 6).
    pub batch_scale_max: u8,
    /// One CPU's share of its last data cache, in pages; 0: unknown.
    pub cache_slice_pages: u32,
    /// The limit of a hold of the zone lock.
    pub hold: BulkHold,
    /// The policy of `high`.
    pub high: HighPolicy,
    /// The policy of the batch.
    pub batch: BatchPolicy,
    /// Where pages are checked.
    pub check: PageCheck,
    /// The orders of blocks in page caches.
    pub orders: CachedOrders,
    /// The policy of per-CPU page caches.
    pub caches: PcpPolicy,
    /// The lists of zones.
    pub lists: ZoneLists,
    /// Whether each frame has a record.
    pub records: Records,
    /// Another allocator that has the free memory of all zones, in place of `caches`.
    pub guest: Option<Guest>,
    /// The number of CPUs that use this allocator: their numbers are below it; `None`: all possible
    /// CPUs ([`Cpu::cpus_possible`](mmscale_arch::Cpu::cpus_possible)). Allocators of one machine
    /// may differ in it.
    pub cpus: Option<usize>,
    /// The most pages that a CPU's cache of a zone may have: 0, or at least
    /// [`AllocConfig::LEAST_CACHED_PAGES`]; `None`: as many as the policy allows. With 0 each
    /// allocation and each free goes to the zone. Policies with lists may exceed another limit by
    /// what one refill moves.
    pub cached_pages: Option<u32>,
}

impl Default for AllocConfig {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// An invalid memory map or configuration. Zones are given by their index in the map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConfigError {
    /// There is no zone.
    NoMemory,
    /// There are more zones than numbers for them.
    TooManyZones,
    /// A zone has no frame.
    EmptyZone(u8),
    /// A zone overlaps an earlier one.
    Overlap(u8),
    /// A zone ends after the last frame that has a number.
    TooFar(u8),
    /// No zone has a frame of the hole that begins with this one.
    Hole(usize),
    /// A zone's node has an earlier zone of the same kind.
    SameKind(u8),
    /// A page must be 4, 16 or 64 KiB.
    PageSize(u32),
    /// With pages of this size the policies `posted` and `blockmap` of page caches do not work:
    /// `posted` follows an RFC for pages of 4 KiB, and the maps of `blockmap` have 8 words for each
    /// pageblock.
    Pageblocks(u32),
    /// The watermark scale must be within 1..=3000.
    WatermarkScale(u32),
    /// The fraction for page caches must be at least 8.
    HighFraction(u32),
    /// A batch has 1 to 1024 pages.
    BatchPages(u32),
    /// Refills can grow by at most 2^6.
    BatchScale(u8),
    /// Only the policy `blockmap` works without records of frames.
    NoRecords,
    /// A guest has zones of 4 KiB pages without holes, and frames have records.
    Guest,
    /// An allocator needs a CPU, and has at most the possible ones.
    Cpus(usize),
    /// A CPU's cache has no pages, or room for [`AllocConfig::LEAST_CACHED_PAGES`] at least.
    CachedPages(u32),
    /// The buffer for the allocator's tables is too small, or not aligned.
    Buffer {
        /// The size and the alignment of the tables.
        needed: Layout,
        /// The size of the buffer, in bytes.
        bytes: usize,
        /// The largest power of two, in bytes, that divides the address of the buffer.
        align: usize,
    },
}

impl core::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NoMemory => f.write_str("the memory map has no zone: at least one is required"),
            Self::TooManyZones => write!(f, "more than {} zones: merge some", ZoneId::MAX),
            Self::EmptyZone(zone) => write!(f, "zone {zone} has no frame: remove it"),
            Self::Overlap(zone) => {
                write!(f, "zone {zone} has frames of an earlier one: shorten or merge them")
            }
            Self::TooFar(zone) => write!(
                f,
                "zone {zone} ends after frame {}: its numbers are frames, not addresses",
                u32::MAX - 1
            ),
            Self::Hole(frame) => write!(
                f,
                "hole at frame {frame}: in no zone; its numbers are frames, not addresses"
            ),
            Self::SameKind(zone) => {
                write!(f, "zone {zone}: its node has a zone of that kind already; merge the two")
            }
            Self::PageSize(kib) => write!(f, "page size {kib} KiB: 4, 16 or 64 are allowed"),
            Self::Pageblocks(kib) => write!(
                f,
                "page size {kib} KiB: pageblocks have more than 512 pages there, which only \
                 caches=stock and caches=premerge support"
            ),
            Self::WatermarkScale(scale) => {
                write!(f, "watermark scale {scale}: 1 to 3000 are allowed")
            }
            Self::HighFraction(fraction) => {
                write!(f, "percpu_pagelist_high_fraction {fraction}: 8 or more is allowed")
            }
            Self::NoRecords => f.write_str(
                "less than records of frames: only the policy `blockmap` works without them",
            ),
            Self::Guest => f.write_str(
                "a guest allocator works with pages of 4 KiB, records, and zones without holes",
            ),
            Self::BatchPages(pages) => write!(f, "batch of {pages} pages: 1 to 1024 are allowed"),
            Self::Cpus(cpus) => {
                write!(
                    f,
                    "allocator for {cpus} CPUs: 1 to all possible CPUs (`Bare::cpus`) are allowed, \
                     and at most {MAX_CPUS}"
                )
            }
            Self::CachedPages(pages) => write!(
                f,
                "CPU caches of at most {pages} pages: 0, or {} and more are allowed",
                AllocConfig::LEAST_CACHED_PAGES
            ),
            Self::Buffer { needed, bytes, align } => write!(
                f,
                "buffer of {bytes} bytes, aligned to {align}: the tables of the allocator need {} \
                 bytes, aligned to {}",
                needed.size(),
                needed.align()
            ),
            Self::BatchScale(scale) => write!(f, "batch scale {scale}: 0 to 6 are allowed"),
        }
    }
}

impl core::error::Error for ConfigError {}

impl AllocConfig {
    /// The kernel's defaults.
    pub const DEFAULT: Self = Self {
        page_kib: 4,
        min_free_kb: None,
        watermark_scale: 10,
        normal_marks: None,
        high_fraction: None,
        batch_pages: None,
        batch_scale_max: BATCH_SCALE_MAX,
        cache_slice_pages: 0,
        hold: BulkHold::Batch,
        high: HighPolicy::Tuned,
        batch: BatchPolicy::Stock,
        check: PageCheck::Never,
        orders: CachedOrders::Low,
        caches: PcpPolicy::Stock,
        lists: ZoneLists::Whole,
        records: Records::Kept,
        guest: None,
        cpus: None,
        cached_pages: None,
    };
    /// The smallest limit of a CPU's cache: a word of each of the two parts that the cache of the
    /// policy `blockmap` has.
    pub const LEAST_CACHED_PAGES: u32 = 128;

    /// The orders of pageblocks and of the largest blocks; those of 4 KiB for a size of pages that
    /// [`AllocConfig::check`] refuses.
    pub(super) fn geometry(&self) -> Geometry {
        Geometry::of_page(self.page_kib).unwrap_or(Geometry::BASE)
    }
    /// Checks that the values are valid.
    pub fn check(&self) -> Result<(), ConfigError> {
        let page_size = ConfigError::PageSize(self.page_kib);
        let geometry = Geometry::of_page(self.page_kib).ok_or(page_size)?;
        let any_size = matches!(self.caches, PcpPolicy::Stock | PcpPolicy::Premerge);
        if geometry != Geometry::BASE && !any_size {
            return Err(ConfigError::Pageblocks(self.page_kib));
        }
        if !(1..=3000).contains(&self.watermark_scale) {
            return Err(ConfigError::WatermarkScale(self.watermark_scale));
        }
        if let Some(pages) = self.batch_pages.filter(|pages| !(1..=1024).contains(pages)) {
            return Err(ConfigError::BatchPages(pages));
        }
        let too_few = |&pages: &u32| (1..Self::LEAST_CACHED_PAGES).contains(&pages);
        if let Some(pages) = self.cached_pages.filter(too_few) {
            return Err(ConfigError::CachedPages(pages));
        }
        if self.batch_scale_max > 6 {
            return Err(ConfigError::BatchScale(self.batch_scale_max));
        }
        if self.records != Records::Kept && self.caches != PcpPolicy::Blockmap {
            return Err(ConfigError::NoRecords);
        }
        let is_plain = self.records == Records::Kept && geometry == Geometry::BASE;
        if self.guest.is_some() && !is_plain {
            return Err(ConfigError::Guest);
        }
        match self.high_fraction {
            Some(fraction) if fraction < 8 => Err(ConfigError::HighFraction(fraction)),
            _ => Ok(()),
        }
    }
}
