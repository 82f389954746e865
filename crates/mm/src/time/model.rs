//! Compares the wheel and the rounding with plain models, at every usual HZ, with random sequences
//! that are reduced when they fail.

use super::Hz;
use super::wheel::{SLOTS, Wheel, WheelPosition};
use alloc::vec::Vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};

fn runner(cases: u32) -> TestRunner {
    let rng_seed = RngSeed::Fixed(0x6a69_6666_6965_7321);
    TestRunner::new(Config { cases, rng_seed, failure_persistence: None, ..Config::default() })
}

fn rates() -> impl Strategy<Value = u32> {
    prop::sample::select(&[100u32, 250, 300, 1000][..])
}

/// An operation on a wheel.
#[derive(Clone, Copy, Debug)]
enum Step {
    Arm { slot: usize, delta: u64 },
    Cancel { slot: usize },
    Pass { jiffies: u64 },
}

/// Deltas of every level up to days, with small and large ones equally likely.
fn step() -> impl Strategy<Value = Step> {
    let delta = (0u32..26).prop_flat_map(|bits| 0u64..1 << bits);
    let jiffies = prop_oneof![8 => 1u64..4, 2 => 1u64..600, 1 => 1u64..100_000];
    prop_oneof![
        3 => (0..SLOTS, delta).prop_map(|(slot, delta)| Step::Arm { slot, delta }),
        1 => (0..SLOTS).prop_map(|slot| Step::Cancel { slot }),
        3 => jiffies.prop_map(|jiffies| Step::Pass { jiffies }),
    ]
}

/// Returns the expiry of a timer that is armed `delta` jiffies after the wheel's clock: on the grid
/// of the finest level that reaches so far, one granule later. A wheel has 8 levels at HZ=100,
/// otherwise 9; all deltas used here are within them.
fn due(clk: u64, delta: u64) -> u64 {
    let level = (0..9).find(|level| delta < 63 << (3 * level)).expect("within reach");
    (((clk + delta) >> (3 * level)) + 1) << (3 * level)
}

/// A timer of the plain list.
#[derive(Clone, Copy)]
struct Armed {
    due: u64,
    place: WheelPosition,
}

#[test]
fn a_wheel_is_a_list_of_expiries() {
    let inputs = (rates(), 0u64..1 << 40, prop::collection::vec(step(), 1..200));
    let result = runner(500).run(&inputs, |(hz, start, steps)| {
        let (mut wheel, mut now) = (Wheel::new(hz, start), start);
        let mut list: [Option<Armed>; SLOTS] = [None; SLOTS];
        // The wheel's clock: one past the last bucket that expired, or now.
        let mut passed = start;
        for step in steps {
            match step {
                Step::Arm { slot, delta } => {
                    if let Some(armed) = list[slot].take() {
                        wheel.remove(slot, armed.place);
                    }
                    let first = list.iter().flatten().map(|armed| armed.due).min();
                    passed = passed.max(now.min(first.unwrap_or(now)));
                    let ahead = (now + delta).saturating_sub(passed);
                    let place = wheel.insert(slot, now, now + delta);
                    let due = if now + delta < passed { passed } else { due(passed, ahead) };
                    prop_assert_eq!(place.expiry, due);
                    list[slot] = Some(Armed { due, place });
                }
                Step::Cancel { slot } => {
                    if let Some(armed) = list[slot].take() {
                        wheel.remove(slot, armed.place);
                    }
                }
                Step::Pass { jiffies } => {
                    now += jiffies;
                    let mut fired = Vec::new();
                    let mut expected: Vec<(u64, usize)> = Vec::new();
                    for (slot, armed) in list.iter_mut().enumerate() {
                        if let Some(gone) = armed.take_if(|armed| armed.due <= now) {
                            expected.push((gone.due, slot));
                            passed = passed.max(gone.due + 1);
                        }
                    }
                    expected.sort_unstable();
                    let mut at = wheel.next_expiry();
                    while let Some(mask) = wheel.expire(now) {
                        fired.extend((0..SLOTS).filter(|s| mask >> s & 1 == 1).map(|s| (at, s)));
                        at = wheel.next_expiry();
                    }
                    prop_assert_eq!(fired, expected);
                }
            }
            let first = list.iter().flatten().map(|armed| armed.due).min();
            prop_assert_eq!(wheel.next_expiry(), first.unwrap_or(u64::MAX));
        }
        Ok(())
    });
    if let Err(why) = result {
        panic!("{why}");
    }
}

/// The model searches for the jiffy instead of computing it: the CPU's first whole second that is
/// at most a quarter of a second before the expiry.
#[test]
fn rounding_finds_the_cpus_own_second() {
    let inputs = (rates(), 0u64..1 << 40, 0u64..100_000, 0usize..4096);
    let result = runner(4_000).run(&inputs, |(hz, now, delay, cpu)| {
        let (rate, second) = (Hz::new(hz).expect("a usual rate"), u64::from(hz));
        let expires = now + delay;
        let whole = |at: &u64| (at + 3 * cpu as u64).is_multiple_of(second);
        let earliest = (expires + 1).saturating_sub(second / 4);
        let found = (earliest..).find(whole).expect("there is one every second");
        let expected = if found <= now { expires } else { found };
        prop_assert_eq!(rate.round(now, expires, cpu), expected);
        prop_assert_eq!(rate.round_relative(now, delay, cpu), expected - now);
        Ok(())
    });
    if let Err(why) = result {
        panic!("{why}");
    }
}
