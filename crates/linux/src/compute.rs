//! Computation without system calls: a loop of known speed for short times, and the clock for long
//! ones.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Times below this are counted in rounds of a loop, because a read of the clock takes time too.
const SHORT_NS: u64 = 20_000;
/// Rounds in which the loop's speed is measured; the fastest of several stretches counts.
const STRETCH: u64 = 20_000;
const STRETCHES: usize = 200;

fn turn(n: u64) {
    let mut x = 1_u64;
    for at in 0..n {
        x = black_box(x.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ at);
    }
    black_box(x);
}

/// Measures the rounds of the loop in 1024 ns, on this CPU at this time.
pub(crate) fn turns_in_1024_ns() -> u64 {
    let stretch = |_| {
        let begin = Instant::now();
        turn(STRETCH);
        begin.elapsed().as_nanos() as u64
    };
    let best_ns = (0..STRETCHES).map(stretch).min().unwrap_or(1).max(1);
    (STRETCH * 1024 / best_ns).max(1)
}

/// Computes for about `ns`.
pub(crate) fn compute(ns: u64, turns_1024: u64) {
    if ns < SHORT_NS {
        turn(ns * turns_1024 / 1024);
        return;
    }
    let end = Instant::now() + Duration::from_nanos(ns);
    while Instant::now() < end {
        turn(turns_1024 / 4);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twice_as_long_is_more_turns() {
        let turns = turns_in_1024_ns();
        assert!(turns > 10, "{turns} turns in 1024 ns");
        let begin = Instant::now();
        compute(3_000_000, turns);
        assert!(begin.elapsed() >= Duration::from_millis(3));
    }
}
