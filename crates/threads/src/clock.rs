//! The machine's clock: ns since its start, the same on all CPUs, cheap to read.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long the counter is compared with the system's clock, once in a process. The comparison has
/// an error of the cost of a few clock reads, 100 ns: 5 parts in a million of 20 ms.
const COMPARE: Duration = Duration::from_millis(20);

/// A clock that started at 0.
pub(crate) struct Clock {
    start: Instant,
    /// The processor's own counter at the start, where it counts at a constant rate.
    counter: Option<Counter>,
}

#[derive(Clone, Copy)]
struct Counter {
    start: u64,
    /// Nanoseconds in 2^32 counts.
    scale: u64,
}

impl Clock {
    pub(crate) fn start() -> Self {
        let scale = scale();
        let counter = scale.map(|scale| Counter { start: read_counter(), scale });
        Self { start: Instant::now(), counter }
    }

    /// Returns ns since the start.
    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        match self.counter {
            Some(Counter { start, scale }) => {
                // Counters of different cores may differ by a few counts at the start.
                let counts = read_counter().saturating_sub(start);
                ((u128::from(counts) * u128::from(scale)) >> 32) as u64
            }
            None => self.start.elapsed().as_nanos() as u64,
        }
    }
}

/// Returns the ns in 2^32 counts of the processor's counter; `None` if its rate is not constant.
fn scale() -> Option<u64> {
    static SCALE: OnceLock<Option<u64>> = OnceLock::new();
    *SCALE.get_or_init(|| {
        if !counter_is_constant() {
            return None;
        }
        let (time, count) = (Instant::now(), read_counter());
        std::thread::sleep(COMPARE);
        let (ns, counts) = (time.elapsed().as_nanos(), read_counter().wrapping_sub(count));
        (counts > 0).then(|| ((ns << 32) / u128::from(counts)) as u64)
    })
}

#[cfg(target_arch = "x86_64")]
fn counter_is_constant() -> bool {
    use core::arch::x86_64::__cpuid;
    /// Leaf of the power management features; bit 8 of EDX is set if the counter's rate never
    /// changes.
    const POWER: u32 = 0x8000_0007;
    __cpuid(0x8000_0000).eax >= POWER && __cpuid(POWER).edx >> 8 & 1 == 1
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn read_counter() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and Linux lets programs use it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn counter_is_constant() -> bool {
    false
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn read_counter() -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_moves_on_and_agrees_with_the_system() {
        let (clock, start) = (Clock::start(), Instant::now());
        let mut before = clock.now_ns();
        while start.elapsed() < Duration::from_millis(5) {
            let now = clock.now_ns();
            assert!(now >= before);
            before = now;
        }
        // A pause between the two reads can only make ours later.
        let (low, ours) = (start.elapsed().as_nanos() as u64, clock.now_ns());
        assert!(ours + ours / 1000 >= low, "{ours} ns here, {low} ns there");
    }
}
