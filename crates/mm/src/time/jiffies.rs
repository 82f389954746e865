//! Jiffies: the machine's time in ticks, and the rounding that batches timers.

/// Nanoseconds in a second.
pub const NSEC_PER_SEC: u64 = 1_000_000_000;
/// Skew in jiffies between the rounded seconds of CPUs with consecutive numbers. The kernel's
/// value, meant to keep the CPUs' timers from firing together at the full second.
pub const ROUND_SKEW_JIFFIES: u64 = 3;

/// Ticks a second: the unit of the timer wheel. Jiffy 0 begins at time 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hz(u32);

impl Hz {
    /// Creates a rate of `ticks` ticks a second. Returns `None` for 0 and above 10,000, which no
    /// kernel uses.
    pub const fn new(ticks: u32) -> Option<Self> {
        if ticks == 0 || ticks > 10_000 { None } else { Some(Self(ticks)) }
    }
    /// Returns the ticks a second.
    pub const fn get(self) -> u32 {
        self.0
    }
    /// Returns the number of jiffy edges up to `ns`: exactly `ns * HZ / 10^9`, rounded down.
    #[inline]
    pub const fn jiffies(self, ns: u64) -> u64 {
        let hz = self.0 as u64;
        ns / NSEC_PER_SEC * hz + ns % NSEC_PER_SEC * hz / NSEC_PER_SEC
    }
    /// Returns the first nanosecond of `jiffy`: the time of its tick.
    #[inline]
    pub const fn edge_ns(self, jiffy: u64) -> u64 {
        let hz = self.0 as u64;
        jiffy / hz * NSEC_PER_SEC + (jiffy % hz * NSEC_PER_SEC).div_ceil(hz)
    }
    /// Converts a span of `ns` to whole jiffies, rounded up, as the kernel converts timeouts.
    pub const fn span(self, ns: u64) -> u64 {
        let hz = self.0 as u64;
        ns / NSEC_PER_SEC * hz + (ns % NSEC_PER_SEC * hz).div_ceil(NSEC_PER_SEC)
    }
    /// Rounds `expires` to a whole second: down if it is less than a quarter of a second above one,
    /// otherwise up. The whole seconds of `cpu` are skewed against those of its neighbours. If the
    /// rounded expiry would be in the past, returns `expires`. All in jiffies.
    pub const fn round(self, now: u64, expires: u64, cpu: usize) -> u64 {
        let hz = self.0 as u64;
        let skew = cpu as u64 * ROUND_SKEW_JIFFIES;
        let skewed = expires + skew;
        let above = skewed % hz;
        let whole = if above < hz / 4 { skewed - above } else { skewed - above + hz };
        // The skew of a high-numbered CPU can reach back past time 0 only with a past expiry.
        if whole <= now + skew { expires } else { whole - skew }
    }
    /// Rounds a delay from now as [`Hz::round`] does.
    pub const fn round_relative(self, now: u64, delay: u64, cpu: usize) -> u64 {
        self.round(now, now + delay, cpu) - now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATES: [u32; 4] = [100, 250, 300, 1000];

    #[test]
    fn an_edge_is_the_first_nanosecond_of_its_jiffy() {
        for hz in RATES.map(|hz| Hz::new(hz).unwrap()) {
            for jiffy in (0..2000).chain(1 << 40..(1 << 40) + 2000) {
                let edge = hz.edge_ns(jiffy);
                assert_eq!(hz.jiffies(edge), jiffy);
                assert!(jiffy == 0 || hz.jiffies(edge - 1) == jiffy - 1);
            }
        }
    }

    #[test]
    fn jiffies_do_not_drift_over_years() {
        for hz in RATES {
            let seconds = 500 * 365 * 86_400;
            let clock = Hz::new(hz).unwrap();
            assert_eq!(clock.jiffies(seconds * NSEC_PER_SEC), seconds * u64::from(hz));
        }
    }

    #[test]
    fn rounding_goes_down_below_a_quarter_second_and_keeps_the_skew() {
        let hz = Hz::new(1000).unwrap();
        assert_eq!(hz.round(0, 1249, 0), 1000);
        assert_eq!(hz.round(0, 1250, 0), 2000);
        assert_eq!(hz.round(0, 1249 - 3 * 7, 7), 1000 - 21);
        assert_eq!(hz.round(0, 1250 - 3 * 7, 7), 2000 - 21);
        // Rounding down into the past leaves the expiry alone.
        assert_eq!(hz.round(1000, 1100, 0), 1100);
        assert_eq!(hz.round(999, 1100, 0), 1000);
        for cpu in 0..4096 {
            let delay = hz.round_relative(12_345, 1000, cpu);
            assert_eq!((12_345 + delay + 3 * cpu as u64) % 1000, 0);
            assert!((751..=1750).contains(&delay));
        }
    }
}
