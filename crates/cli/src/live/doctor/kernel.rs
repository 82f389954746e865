//! The kernel: its release and its tick.

use rustix::time::{ClockId, clock_getres};

use super::system::System;
use super::{Finding, State};

pub(super) fn examine(system: &System) -> Vec<Finding> {
    let release = system.read("/proc/sys/kernel/osrelease");
    let Some(release) = release else {
        return vec![Finding {
            what: "kernel",
            state: State::Limited,
            seen: "the release cannot be read".to_owned(),
            means: "documents do not contain the kernel release",
            remedy: "mount /proc, or run on Linux",
        }];
    };
    let arch = std::env::consts::ARCH;
    vec![match tick_hz() {
        Some(hz) => Finding::good("kernel", format!("Linux {release} {arch}, HZ={hz}")),
        None => Finding {
            what: "kernel",
            state: State::Limited,
            seen: format!("Linux {release} {arch}, HZ unknown"),
            means: "a simulation of this kernel needs its HZ",
            remedy: "find CONFIG_HZ in the kernel's configuration and pass it by --hz",
        },
    }]
}

/// Returns the HZ of this kernel, from the resolution of its coarse clock.
fn tick_hz() -> Option<u32> {
    let resolution = clock_getres(ClockId::MonotonicCoarse);
    hz_of(u64::try_from(resolution.tv_nsec).ok().filter(|_| resolution.tv_sec == 0)?)
}

/// Returns the HZ with ticks of `tick_ns`, if kernels can be built with it.
fn hz_of(tick_ns: u64) -> Option<u32> {
    [100, 250, 300, 1000]
        .into_iter()
        .find(|&hz| (1_000_000_000 / u64::from(hz)).abs_diff(tick_ns) <= 1)
}

#[cfg(test)]
mod tests {
    use super::hz_of;

    #[test]
    fn a_ticks_length_stands_for_its_hz() {
        let found = [1_000_000, 3_333_333, 4_000_000, 10_000_000].map(hz_of);
        assert_eq!(found, [Some(1000), Some(300), Some(250), Some(100)]);
        assert_eq!((hz_of(1), hz_of(0)), (None, None));
    }
}
