//! The timer wheel: levels of 64 buckets, each level eight times coarser than the one below.
//!
//! Level n has a granularity of 8^n jiffies and takes timers at least `63 * 8^(n-1)` jiffies ahead.
//! A timer fires with its bucket, at `((expires >> 3n) + 1) << 3n`: never early, late by at most
//! one granule. It never cascades to a finer level: a timer 1 s ahead is rounded to a grid of 64 ms
//! at HZ=1000, so CPUs that were meant to be spread fire together.
//!
//! A wheel stores timers by slot number. A bucket is a bit mask of slots, so there are no lists, no
//! links and no allocation.

use super::jiffies::Hz;

/// Maximum of timers in a wheel: slot numbers are below it.
pub const SLOTS: usize = 16;

const LEVEL_BITS: u32 = 6;
const LEVEL_SIZE: usize = 1 << LEVEL_BITS;
const LEVEL_MASK: u64 = LEVEL_SIZE as u64 - 1;
const CLK_SHIFT: u32 = 3;
const MAX_LEVELS: usize = 9;

/// The position of a timer in its wheel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WheelPosition {
    level: u8,
    bucket: u8,
    /// The jiffy in which the bucket fires.
    pub(super) expiry: u64,
}

/// One wheel. Times are in jiffies.
pub(super) struct Wheel {
    /// All buckets before it have fired.
    clk: u64,
    /// The first bucket that will fire; `u64::MAX` when the wheel is empty.
    next_expiry: u64,
    levels: usize,
    /// Nonempty buckets of each level.
    pending: [u64; MAX_LEVELS],
    buckets: [[u16; LEVEL_SIZE]; MAX_LEVELS],
}

const _: () = assert!(SLOTS <= u16::BITS as usize);

/// Returns the number of levels at `hz` ticks a second, as the kernel chooses it.
const fn levels(hz: u32) -> usize {
    if hz > 100 { 9 } else { 8 }
}

/// Returns the smallest delta of level `level`.
const fn level_start(level: usize) -> u64 {
    (LEVEL_SIZE as u64 - 1) << ((level as u32 - 1) * CLK_SHIFT)
}

/// Returns the position of a timer that is added when the wheel's clock is `clk`.
fn place(levels: usize, clk: u64, expires: u64) -> WheelPosition {
    if expires < clk {
        return WheelPosition { level: 0, bucket: (clk & LEVEL_MASK) as u8, expiry: clk };
    }
    let delta = expires - clk;
    let level = (1..levels).find(|&level| delta < level_start(level)).unwrap_or(levels);
    let last = level_start(levels);
    // Beyond the last level: as far ahead as the wheel reaches.
    let (level, expires) = match delta {
        _ if level < levels => (level - 1, expires),
        _ if delta < last => (levels - 1, expires),
        _ => (levels - 1, clk + last - (1 << ((levels as u32 - 1) * CLK_SHIFT))),
    };
    let shift = level as u32 * CLK_SHIFT;
    let granule = (expires >> shift) + 1;
    WheelPosition {
        level: level as u8,
        bucket: (granule & LEVEL_MASK) as u8,
        expiry: granule << shift,
    }
}

impl Hz {
    /// Returns the jiffy in which the bucket of a timer fires that is added to an idle wheel in
    /// jiffy `now` for jiffy `expires`.
    pub fn bucket_expiry(self, now: u64, expires: u64) -> u64 {
        place(levels(self.get()), now, expires).expiry
    }
}

impl Wheel {
    /// Creates an empty wheel whose clock is `clk`.
    pub(super) fn new(hz: u32, clk: u64) -> Self {
        Self {
            clk,
            next_expiry: u64::MAX,
            levels: levels(hz),
            pending: [0; MAX_LEVELS],
            buckets: [[0; LEVEL_SIZE]; MAX_LEVELS],
        }
    }

    /// Returns the jiffy in which the next bucket fires; `u64::MAX` if none is armed.
    #[inline]
    pub(super) fn next_expiry(&self) -> u64 {
        self.next_expiry
    }

    /// Adds the timer of `slot`, which is in no wheel, in jiffy `now`.
    pub(super) fn insert(&mut self, slot: usize, now: u64, expires: u64) -> WheelPosition {
        // The clock of an empty or idle wheel does not advance: set it to now, but past no bucket.
        if now > self.clk {
            self.clk = now.min(self.next_expiry);
        }
        let place = place(self.levels, self.clk, expires);
        let (level, bucket) = (usize::from(place.level), usize::from(place.bucket));
        self.buckets[level][bucket] |= 1 << slot;
        self.pending[level] |= 1 << bucket;
        self.next_expiry = self.next_expiry.min(place.expiry);
        place
    }

    /// Removes the timer of `slot` from its position.
    pub(super) fn remove(&mut self, slot: usize, place: WheelPosition) {
        let (level, bucket) = (usize::from(place.level), usize::from(place.bucket));
        self.buckets[level][bucket] &= !(1 << slot);
        if self.buckets[level][bucket] == 0 {
            self.pending[level] &= !(1 << bucket);
            if place.expiry == self.next_expiry {
                self.next_expiry = self.find_next();
            }
        }
    }

    /// Returns the timers of the next bucket that has fired by jiffy `now`, as a mask of slots. The
    /// caller repeats the call until it returns `None`.
    pub(super) fn expire(&mut self, now: u64) -> Option<u16> {
        if self.next_expiry > now {
            return None;
        }
        self.clk = self.next_expiry;
        let mut expired = 0;
        let mut granule = self.clk;
        for level in 0..self.levels {
            let bucket = (granule & LEVEL_MASK) as usize;
            expired |= core::mem::take(&mut self.buckets[level][bucket]);
            self.pending[level] &= !(1 << bucket);
            if granule & ((1 << CLK_SHIFT) - 1) != 0 {
                break;
            }
            granule >>= CLK_SHIFT;
        }
        self.clk += 1;
        self.next_expiry = self.find_next();
        Some(expired)
    }

    /// Returns the first bucket at or after the clock, over all levels.
    fn find_next(&self) -> u64 {
        let mut next = u64::MAX;
        for level in 0..self.levels {
            if self.pending[level] == 0 {
                continue;
            }
            let shift = level as u32 * CLK_SHIFT;
            let first = self.clk.div_ceil(1 << shift);
            let ahead = self.pending[level].rotate_right((first & LEVEL_MASK) as u32);
            let granule = first + u64::from(ahead.trailing_zeros());
            next = next.min(granule << shift);
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// splitmix64.
    fn next(state: &mut u64) -> u64 {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The kernel's rule, written down directly.
    fn formula(clk: u64, delta: u64) -> u64 {
        let mut n = 0;
        while delta >= 63 << (3 * n) {
            n += 1;
        }
        (((clk + delta) >> (3 * n)) + 1) << (3 * n)
    }

    #[test]
    fn every_delta_goes_off_where_the_formula_says_and_never_early() {
        let mut seed = 1;
        for delta in 0..100_000 {
            let clk = next(&mut seed) >> 20;
            let mut wheel = Wheel::new([100, 250, 300, 1000][delta as usize % 4], clk);
            let place = wheel.insert(3, clk, clk + delta);
            let expected = formula(clk, delta);
            assert_eq!((place.expiry, wheel.next_expiry()), (expected, expected));
            assert!(expected > clk + delta);
            assert_eq!(wheel.expire(expected - 1), None);
            assert_eq!(wheel.expire(expected + 5), Some(1 << 3));
            assert_eq!(wheel.next_expiry(), u64::MAX);
        }
    }

    #[test]
    fn the_farthest_and_the_past_are_taken_too() {
        for hz in [100, 250, 300, 1000] {
            let clk = 123_456;
            let mut wheel = Wheel::new(hz, clk);
            assert_eq!(wheel.insert(0, clk, clk - 50).expiry, clk);
            assert_eq!(wheel.expire(clk), Some(1));
            let far = wheel.insert(1, clk, u64::MAX / 2);
            let reach = level_start(levels(hz));
            assert!(far.expiry <= clk + 1 + reach && far.expiry > clk + reach / 2);
            assert_eq!(wheel.expire(far.expiry), Some(2));
        }
    }

    /// Compares many timers together with a plain list of expiries.
    #[test]
    fn a_full_wheel_agrees_with_a_plain_list() {
        let mut seed = 7;
        let mut now = 1000;
        let mut wheel = Wheel::new(250, now);
        let mut list: [Option<WheelPosition>; SLOTS] = [None; SLOTS];
        for _ in 0..200_000 {
            let dice = next(&mut seed);
            let slot = (dice >> 8) as usize % SLOTS;
            match (dice % 4, list[slot]) {
                (0 | 1, None) => {
                    let delta = (dice >> 20) % (1 << ((dice >> 16) % 16));
                    list[slot] = Some(wheel.insert(slot, now, now + delta));
                }
                (2, Some(place)) => {
                    wheel.remove(slot, place);
                    list[slot] = None;
                }
                _ => now += (dice >> 24) % 300,
            }
            let mut due: Vec<_> = (0..SLOTS)
                .filter_map(|slot| list[slot].map(|place| (place.expiry, slot)))
                .filter(|&(expiry, _)| expiry <= now)
                .collect();
            due.sort_unstable();
            let mut fired = Vec::new();
            while let Some(mask) = {
                let at = wheel.next_expiry();
                wheel.expire(now).map(|mask| (at, mask))
            } {
                fired.extend((0..SLOTS).filter(|s| mask.1 >> s & 1 == 1).map(|s| (mask.0, s)));
            }
            assert_eq!(fired, due);
            due.iter().for_each(|&(_, slot)| list[slot] = None);
            let first = list.iter().flatten().map(|place| place.expiry).min();
            assert_eq!(wheel.next_expiry(), first.unwrap_or(u64::MAX));
        }
    }

    fn firings(hz: u32, cpu: usize, count: usize) -> Vec<u64> {
        let rate = Hz::new(hz).unwrap();
        let mut wheel = Wheel::new(hz, 0);
        let mut now = 5 + cpu as u64 % 40;
        (0..count)
            .map(|_| {
                let delay = rate.round_relative(now, u64::from(hz), cpu);
                now = wheel.insert(0, now, now + delay).expiry;
                assert_eq!(wheel.expire(now), Some(1));
                now
            })
            .collect()
    }

    #[test]
    fn at_250_hz_one_second_is_992_or_1024_ms() {
        for cpu in 0..16 {
            let times = firings(250, cpu, 500);
            let gaps: Vec<_> = times[2..].windows(2).map(|w| (w[1] - w[0]) * 4).collect();
            assert!(gaps.iter().all(|gap| [992, 1024].contains(gap)), "{gaps:?}");
            assert!(gaps.contains(&992) && gaps.contains(&1024));
        }
    }

    #[test]
    fn at_1000_hz_72_cpus_meet_in_a_few_buckets() {
        let last: Vec<u64> = (0..72).map(|cpu| firings(1000, cpu, 20)[19] % 64).collect();
        assert!(last.iter().all(|at| *at == 0), "all on the 64 ms grid");
        let mut buckets: Vec<u64> = (0..72).map(|cpu| firings(1000, cpu, 20)[19]).collect();
        buckets.sort_unstable();
        buckets.dedup();
        assert!((4..=5).contains(&buckets.len()), "{buckets:?}");
    }
}
