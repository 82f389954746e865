//! Tuning of `high`, refills and drains by a CPU's allocations and frees (`mm/page_alloc.c`, 6.19).

use super::{BATCH_SCALE_MAX, COSTLY_ORDER, DrainSize, Pcp};
use mmscale_arch::Order;

/// The memory pressure of a zone.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Pressure {
    /// The zone was found below its high watermark.
    pub below_high: bool,
    /// Reclaim is active in the zone.
    pub reclaim_active: bool,
}

impl Pcp {
    fn clamped(&self, high: u32) -> u32 {
        high.clamp(self.limits.high_min, self.limits.high_max)
    }
    /// Records an allocation: halves the count of recent frees, and the exponent of drains.
    #[inline]
    pub(crate) fn note_alloc(&mut self) {
        self.free_count >>= 1;
        self.free_factor >>= 1;
    }
    /// The number of blocks of a refill of an empty list (`nr_pcp_alloc`).
    ///
    /// Each refill without a free in between doubles it, and raises `high`, unless the zone is
    /// short of memory.
    pub(crate) fn refill_size(&mut self, order: Order, below_high: bool) -> u32 {
        let base = self.limits.batch;
        self.high = self.clamped(self.high);
        if self.high < base {
            return 1;
        }
        let single = order == Order::ZERO;
        let mut batch = if single { base << self.alloc_factor } else { base };
        if self.limits.high_min != self.limits.high_max && !below_high {
            self.high = (self.high + batch).min(self.limits.high_max);
        }
        if single {
            let most = self.high.saturating_sub(self.count + base).max(base);
            if batch <= most && self.alloc_factor < self.limits.scale_max {
                self.alloc_factor += 1;
            }
            batch = batch.min(most);
        }
        if batch > 1 { (batch >> order.get()).max(2) } else { batch }
    }
    /// Records a free of a block of `order` into the cache; returns the number of pages to move to
    /// the zone now (`free_frozen_page_commit`).
    #[inline]
    pub(crate) fn note_free(&mut self, order: Order, pressure: Pressure) -> u32 {
        self.alloc_factor >>= 1;
        let batch = self.limits.batch;
        if self.limits.drains == DrainSize::Doubled {
            return self.note_free_doubled(order, pressure);
        }
        let mut storm = false;
        if order > Order::ZERO && order.get() <= COSTLY_ORDER {
            storm = self.prev_free_high
                && self.free_count >= batch + self.limits.high_min / 2
                && (!self.free_high_batch || self.count >= batch);
            self.prev_free_high = true;
        } else {
            self.prev_free_high = false;
        }
        if self.free_count < self.limits.largest_drain() {
            self.free_count += order.pages() as u32;
        }
        let high = self.high_at_free(pressure, storm);
        if self.count < high { 0 } else { self.drain_size(high, storm) }
    }
    /// Does the work of [`Pcp::note_free`] where drains double (`free_unref_page_commit` and
    /// `nr_pcp_free` of Linux 6.1). While drains grow, a free of order 1 to 3 drains everything.
    /// The stable releases of these versions have the largest drain of 6.7, which their first ones
    /// lacked.
    fn note_free_doubled(&mut self, order: Order, pressure: Pressure) -> u32 {
        self.high = self.clamped(self.high);
        let (batch, high) = (self.limits.batch, self.high);
        let is_small = order > Order::ZERO && order.get() <= COSTLY_ORDER;
        if self.free_factor > 0 && is_small {
            return self.count;
        }
        let high = if pressure.reclaim_active { (batch << 2).min(high) } else { high };
        if self.count < high {
            return 0;
        }
        if high < batch {
            return 1;
        }
        let (doubled, most) = (batch << self.free_factor, high - batch);
        if doubled <= most && self.free_factor < BATCH_SCALE_MAX {
            self.free_factor += 1;
        }
        doubled.min(most).max(batch)
    }
    /// Tunes `high`, and returns the limit for a free (`nr_pcp_high`).
    #[inline]
    fn high_at_free(&mut self, pressure: Pressure, storm: bool) -> u32 {
        let (batch, floor) = (self.limits.batch, self.limits.high_min);
        self.high = self.clamped(self.high);
        if self.high == 0 {
            return 0;
        }
        if storm {
            self.high = self.high.saturating_sub(self.limits.largest_drain()).max(floor);
            return 0;
        }
        if pressure.reclaim_active {
            self.high = self.high.saturating_sub(self.free_count.max(batch)).max(floor);
            return (batch << 2).min(self.high);
        }
        let high = self.high;
        if floor == self.limits.high_max {
            return high;
        }
        if pressure.below_high {
            self.high = high.saturating_sub(self.free_count.max(batch)).max(floor);
            return self.count.max(floor);
        }
        if self.count >= high {
            let need = self.free_count + batch;
            if self.high < need {
                self.high = self.clamped(need);
            }
        }
        high
    }
    /// The number of pages that a free drains when it reaches the limit `high` (`nr_pcp_free`).
    fn drain_size(&self, high: u32, storm: bool) -> u32 {
        let batch = self.limits.batch;
        if storm {
            return self.count.min(self.limits.largest_drain());
        }
        if high < batch {
            return 1;
        }
        // If `high` is little above one batch, the upper bound applies.
        self.free_count.max(batch).min(high - batch)
    }
}
