//! Shrinking of a page cache with time.

use super::{Pcp, PcpLimits};

/// (7/8)^(2^-k) for k = 1..=16, as fractions of 2^32, rounded.
const ROOTS: [u64; 16] = [
    0xef77_508b,
    0xf798_55f8,
    0xfbc3_3085,
    0xfddf_54d7,
    0xfeef_18f5,
    0xff77_680a,
    0xffbb_aae6,
    0xffdd_d32b,
    0xffee_e904,
    0xfff7_745d,
    0xfffb_ba26,
    0xfffd_dd10,
    0xfffe_ee88,
    0xffff_7744,
    0xffff_bba2,
    0xffff_ddd1,
];
/// 7/8 as a fraction of 2^32.
const SEVEN_EIGHTHS: u64 = 7 << 29;

/// Computes `pages` * (7/8)^(`elapsed_ns` / `interval_ns`), rounded up, without floating point.
///
/// After exactly n intervals the result is that of n runs that each remove an eighth, up to
/// rounding. It does not depend on how the time is divided into runs.
pub const fn decayed(pages: u32, elapsed_ns: u64, interval_ns: u64) -> u32 {
    if interval_ns == 0 {
        return 0;
    }
    let mut left = 1 << 32;
    let (mut whole, mut power) = (elapsed_ns / interval_ns, SEVEN_EIGHTHS);
    if whole > 256 {
        return 0;
    }
    while whole > 0 {
        if whole & 1 == 1 {
            left = scale(left, power);
        }
        power = scale(power, power);
        whole >>= 1;
    }
    let mut rest = (elapsed_ns % interval_ns) as u128;
    let mut bit = 0;
    while bit < ROOTS.len() {
        rest *= 2;
        if rest >= interval_ns as u128 {
            rest -= interval_ns as u128;
            left = scale(left, ROOTS[bit]);
        }
        bit += 1;
    }
    (pages as u64 * left).div_ceil(1 << 32) as u32
}

/// Computes `a * b`, both fractions of 2^32 up to 1.
const fn scale(a: u64, b: u64) -> u64 {
    ((a as u128 * b as u128) >> 32) as u64
}

/// Returns `high` after one run of the stock decay (`decay_pcp_high`) in a page cache of `count`
/// pages: an eighth less, but never so much that more than `batch << 5` pages have to be freed.
pub fn decayed_by_run(high: u32, count: u32, limits: PcpLimits) -> u32 {
    let floor = limits.high_min;
    if high <= floor {
        return high;
    }
    (high - high / 8).max(count.saturating_sub(limits.largest_drain())).max(floor)
}

impl Pcp {
    fn may_drop_to(&self) -> u32 {
        self.count.saturating_sub(self.limits.largest_drain())
    }
    /// Does one run of the stock decay. Returns the pages above `high`.
    pub(crate) fn decay_by_run(&mut self) -> u32 {
        self.high = decayed_by_run(self.high, self.count, self.limits);
        self.count.saturating_sub(self.high)
    }
    /// The value of `high` that is due after `elapsed_ns`: the stock decay, in proportion to time,
    /// from the value that was due last time. Changes nothing.
    pub(crate) fn decay_target(&self, elapsed_ns: u64, interval_ns: u64) -> u32 {
        let floor = self.limits.high_min;
        if self.high <= floor {
            return self.high;
        }
        let due = self.high.saturating_sub(self.pending);
        decayed(due, elapsed_ns, interval_ns).max(self.may_drop_to()).max(floor).min(self.high)
    }
    /// Sets `high` to `target`. While pages are left to free, sets it a batch above the pages in
    /// the cache, so that the next free does not wait for the zone lock; the rest remains due.
    pub(crate) fn approach(&mut self, target: u32, left: u32) {
        let room = if left == 0 { target } else { self.count + self.limits.batch };
        self.high = room.clamp(target, self.high.max(target));
        self.pending = self.high - target;
    }
}
