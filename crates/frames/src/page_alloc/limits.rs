//! Limits of zones and page caches that follow from a configuration, without an allocator.

use super::{AllocConfig, HighPolicy};
use crate::pcp::{DrainSize, PcpLimits, batch_size};
use crate::zone::{Geometry, Watermarks, default_min_free_kb, huge_page_min_free, watermarks};

impl AllocConfig {
    /// Returns the pages that the min watermarks of all zones have together (`min_free_kbytes`), on
    /// a machine of `total` pages.
    pub fn min_free_pages(&self, total: u64) -> u64 {
        let page_kib = u64::from(self.page_kib);
        let kb = self.min_free_kb.unwrap_or_else(|| {
            let geometry = self.geometry();
            // With pages of 4 KiB it is small, and left out (`huge_page_min_free`).
            let huge = if geometry == Geometry::BASE {
                0
            } else {
                huge_page_min_free(2, geometry.block_pages() as u64).min(total / 20)
            };
            default_min_free_kb(total * page_kib).max(huge * page_kib)
        });
        kb / page_kib
    }
    /// Returns the watermarks of a zone of `pages` of the `total` pages of a machine.
    pub fn watermarks(&self, pages: u64, total: u64) -> Watermarks {
        watermarks(pages, total, self.min_free_pages(total), self.watermark_scale)
    }
    /// Returns the limits of the page caches of a zone of `pages` pages with the low watermark
    /// `low`, whose node has `cpus` online CPUs.
    pub fn pcp_limits(&self, pages: u64, low: u32, cpus: usize) -> PcpLimits {
        let fraction = self.high_fraction;
        let by_size = || batch_size(pages, self.page_kib);
        let batch = self.batch.of(self.batch_pages.unwrap_or_else(by_size));
        let limits = self.policy_limits(PcpLimits::of(pages, low, cpus, batch, fraction));
        match self.cached_pages {
            Some(most) if most > 0 => PcpLimits {
                batch: limits.batch.min(most / 4),
                high_min: limits.high_min.min(most),
                high_max: limits.high_max.min(most),
                ..limits
            },
            _ => limits,
        }
    }
    /// Applies the policy of `high`.
    fn policy_limits(&self, limits: PcpLimits) -> PcpLimits {
        let fraction = self.high_fraction;
        match self.high {
            HighPolicy::Tuned => PcpLimits { scale_max: self.batch_scale_max, ..limits },
            HighPolicy::Watermark => limits.fixed(limits.high_min, DrainSize::Doubled),
            HighPolicy::Batches if fraction.is_some() => {
                limits.fixed(limits.high_min, DrainSize::Batch)
            }
            HighPolicy::Batches => limits.fixed(6 * limits.batch, DrainSize::Batch),
        }
    }
}
