//! How a page cache shrinks with time.

use super::Pcp;

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

/// `pages` * (7/8)^(`elapsed_ns` / `interval_ns`), rounded up, without floating point.
///
/// After exactly n intervals it is what n runs that each take away an eighth leave, up to
/// rounding; and it does not matter into which pieces the time is cut.
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

/// `a * b`, both fractions of 2^32 up to 1.
const fn scale(a: u64, b: u64) -> u64 {
    ((a as u128 * b as u128) >> 32) as u64
}

impl Pcp {
    fn may_drop_to(&self) -> u32 {
        self.count.saturating_sub(self.largest_drain())
    }
    /// One run of the stock decay (`decay_pcp_high`): takes an eighth off `high`, but never so much
    /// that more than `batch << 5` pages have to go. Returns the pages that are too many now.
    pub(crate) fn decay_by_run(&mut self) -> u32 {
        let floor = self.limits.high_min;
        if self.high > floor {
            self.high = (self.high - self.high / 8).max(self.may_drop_to()).max(floor);
        }
        self.count.saturating_sub(self.high)
    }
    /// Where `high` should be after `elapsed_ns`: the same decay, in proportion to time, from
    /// where it should have been last time. Changes nothing yet.
    pub(crate) fn decay_target(&self, elapsed_ns: u64, interval_ns: u64) -> u32 {
        let floor = self.limits.high_min;
        if self.high <= floor {
            return self.high;
        }
        let due = self.high.saturating_sub(self.pending);
        decayed(due, elapsed_ns, interval_ns).max(self.may_drop_to()).max(floor).min(self.high)
    }
    /// Sets `high` to `target`, or, as long as pages are left to give back, so far above what is
    /// held that the next free does not have to wait for the zone; the rest stays due.
    pub(crate) fn approach(&mut self, target: u32, left: u32) {
        let room = if left == 0 { target } else { self.count + self.limits.batch };
        self.high = room.clamp(target, self.high.max(target));
        self.pending = self.high - target;
    }
}
