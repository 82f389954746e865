//! Size limits of a page cache, by the kernel's formulas (`mm/page_alloc.c`, 6.19).

/// The number of pages that a free drains when the page cache is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DrainSize {
    /// One batch (before Linux 5.14).
    Batch,
    /// Twice as many as by the drain before, from one batch to 32, or to `high` less a batch. An
    /// allocation halves the next one (`free_factor`, Linux 5.14 to 6.6).
    Doubled,
    /// As many as were freed recently (`free_count`).
    Counted,
}

/// Limits of a page cache; they change only when CPUs go online or offline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PcpLimits {
    /// The least number of pages moved in one step: one refill, one step of a drain.
    pub batch: u32,
    /// The lower bound of `high`, in pages.
    pub high_min: u32,
    /// The upper bound of `high`, in pages.
    pub high_max: u32,
    /// Refills grow up to `batch << scale_max`, and no counted drain is larger.
    pub scale_max: u8,
    /// The size of drains.
    pub drains: DrainSize,
}

/// The kernel's default for [`PcpLimits::scale_max`] (`CONFIG_PCP_BATCH_SCALE_MAX`). At 0 refills
/// are always one batch, as they were before Linux 6.7.
pub const BATCH_SCALE_MAX: u8 = 5;

/// The smallest `percpu_pagelist_high_fraction`: a page cache's `high_max` is its CPU's share of
/// this fraction of the zone.
const HIGH_MAX_FRACTION: u64 = 8;

/// The batch of a zone of `managed` pages: 2^k - 1 near 1.5 times the smaller of a 4096th of the
/// zone and 256 KiB.
pub const fn batch_size(managed: u64, page_kib: u32) -> u32 {
    let share = managed >> 12;
    let cap = (256 / page_kib) as u64;
    let batch = if share < cap { share } else { cap };
    if batch <= 1 {
        return 1;
    }
    let scaled = batch + batch / 2;
    (1 << scaled.ilog2()) - 1
}

impl PcpLimits {
    /// Returns the largest counted drain, in pages.
    pub(crate) const fn largest_drain(self) -> u32 {
        self.batch << self.scale_max
    }
    /// The limits for each of `cpus` CPUs local to a zone of `managed` pages with the low
    /// watermark `low`, with `batch` pages in a batch. With `fraction` the administrator fixes
    /// `high`: the CPU's share of the zone divided by `fraction`. The growth of refills is the
    /// kernel's default.
    pub fn of(managed: u64, low: u32, cpus: usize, batch: u32, fraction: Option<u32>) -> Self {
        let share = |pages: u64| ((pages / cpus.max(1) as u64) as u32).max(batch * 4);
        let (scale_max, drains) = (BATCH_SCALE_MAX, DrainSize::Counted);
        if let Some(fraction) = fraction {
            let high = share(managed / u64::from(fraction).max(HIGH_MAX_FRACTION));
            return Self { batch, high_min: high, high_max: high, scale_max, drains };
        }
        let high_min = share(u64::from(low));
        let high_max = share(managed / HIGH_MAX_FRACTION).max(high_min);
        Self { batch, high_min, high_max, scale_max, drains }
    }
    /// Returns these limits with a fixed `high`, refills of one batch and drains of this size, as
    /// before Linux 6.7.
    pub const fn fixed(self, high: u32, drains: DrainSize) -> Self {
        Self { high_min: high, high_max: high, scale_max: 0, drains, ..self }
    }
}
