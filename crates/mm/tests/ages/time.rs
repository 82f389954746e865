//! The tick, the idle CPU's timer, sleepers and exact timers.

use crate::ages::machine::{Machine, SEC};
use mmscale_arch::{Cpu as _, CpuId, Ipi, Machine as _, TaskId};
use mmscale_mm::time::{Expiry, OverIdle, Time, TimerSlot};
use mmscale_mm::vmstat_work::TickPolicy;
use mmscale_stepped::{self as stepped, Stepped};

const SLOT: TimerSlot = TimerSlot::new(15);
const MS: u64 = 1_000_000;

/// Timers of `cpus` CPUs, one of which is busy.
fn time(cpus: usize, hz: u32) -> Time<Stepped> {
    stepped::boot(cpus, hz);
    let time = Time::new().unwrap();
    stepped::interrupt(|| time.idle_exit());
    time
}

/// The next interrupt of this CPU: the time, and the slots that fired.
fn next(time: &Time<Stepped>) -> (u64, Vec<TimerSlot>) {
    let at_ns = stepped::take_timer().expect("a timer is armed");
    stepped::set_clock(at_ns.max(Stepped::now_ns()));
    let mut slots = Vec::new();
    stepped::interrupt(|| time.interrupt(|slot| slots.push(slot)));
    (at_ns, slots)
}

#[test]
fn a_busy_cpu_ticks_on_every_jiffy_edge() {
    for hz in [100, 250, 300, 1000] {
        let time = time(1, hz);
        for jiffy in 1..700 {
            assert_eq!(next(&time).0, time.hz().edge_ns(jiffy));
        }
    }
}

#[test]
fn an_idle_cpu_wakes_for_standard_timers_only() {
    let time = time(1, 1000);
    let cpu = CpuId::new(0);
    time.arm(cpu, SLOT, Expiry::Deferrable { jiffies: 10 });
    time.arm(
        cpu,
        TimerSlot::new(14),
        Expiry::Exact { deadline_ns: 5 * MS, over_idle: OverIdle::Defer { spread_ns: 0 } },
    );
    stepped::interrupt(|| time.idle_enter());
    assert_eq!(stepped::timer_of(0), None);
    time.arm(cpu, TimerSlot::new(13), Expiry::Standard { jiffies: 40 });
    // 41: a wheel timer is never early, so a bucket fires one jiffy later.
    assert_eq!(stepped::timer_of(0), Some(41 * MS));
    stepped::set_clock(41 * MS);
    stepped::take_timer();
    let mut slots = Vec::new();
    stepped::interrupt(|| {
        time.idle_exit();
        time.interrupt(|slot| slots.push(slot.index()));
        time.idle_enter();
    });
    // The tick that wakes the CPU runs all overdue timers, exact timers too.
    assert_eq!(slots, [13, 14, 15]);
}

#[test]
fn an_exact_timer_is_exact_while_busy_and_late_by_its_own_share_after_idle() {
    let time = time(1, 100);
    let cpu = CpuId::new(0);
    let expiry = Expiry::Exact {
        deadline_ns: 3 * MS + 17,
        over_idle: OverIdle::Defer { spread_ns: 2 * MS + 5 },
    };
    time.arm(cpu, SLOT, expiry);
    assert_eq!(next(&time), (3 * MS + 17, vec![SLOT]));
    assert_eq!(next(&time).0, 10 * MS, "the tick stays on its edge");
    time.arm(
        cpu,
        SLOT,
        Expiry::Exact {
            deadline_ns: 12 * MS,
            over_idle: OverIdle::Defer { spread_ns: 2 * MS + 5 },
        },
    );
    stepped::interrupt(|| time.idle_enter());
    assert_eq!(stepped::timer_of(0), None);
    stepped::set_clock(51 * MS);
    stepped::interrupt(|| time.idle_exit());
    assert_eq!(next(&time), (53 * MS + 5, vec![SLOT]));
    // A CPU that goes idle again runs its overdue timers first.
    time.arm(
        cpu,
        SLOT,
        Expiry::Exact { deadline_ns: 54 * MS, over_idle: OverIdle::Defer { spread_ns: 2 * MS } },
    );
    stepped::interrupt(|| time.idle_enter());
    stepped::set_clock(55 * MS);
    stepped::interrupt(|| time.idle_exit());
    assert_eq!(stepped::timer_of(0), Some(57 * MS));
    stepped::interrupt(|| time.idle_enter());
    assert_eq!(next(&time), (55 * MS, vec![SLOT]));
    // A timer that wakes the CPU is never late.
    stepped::interrupt(|| time.idle_enter());
    time.arm(cpu, SLOT, Expiry::Exact { deadline_ns: 56 * MS + 3, over_idle: OverIdle::Wake });
    assert_eq!(next(&time), (56 * MS + 3, vec![SLOT]));
}

#[test]
fn a_timer_that_is_armed_for_an_idle_cpu_sends_for_it() {
    let time = time(2, 1000);
    stepped::set_cpu(1);
    stepped::interrupt(|| time.idle_enter());
    stepped::set_cpu(0);
    let other = CpuId::new(1);
    time.arm(other, SLOT, Expiry::Deferrable { jiffies: 5 });
    assert!(stepped::take_ipis().is_empty(), "a deferrable timer can wait");
    time.arm(other, TimerSlot::new(14), Expiry::Standard { jiffies: 5 });
    assert_eq!(stepped::take_ipis(), [(other, Ipi::Timer)]);
    stepped::set_cpu(1);
    stepped::interrupt(|| time.reprogram());
    assert_eq!(stepped::timer_of(1), Some(6 * MS));
    stepped::set_cpu(0);
    time.arm(other, TimerSlot::new(13), Expiry::Standard { jiffies: 50 });
    assert!(stepped::take_ipis().is_empty(), "it wakes earlier anyway");
}

#[test]
fn a_cancelled_timer_never_goes_off() {
    let time = time(1, 250);
    let cpu = CpuId::new(0);
    for expiry in [
        Expiry::Standard { jiffies: 3 },
        Expiry::Deferrable { jiffies: 300 },
        Expiry::Exact { deadline_ns: SEC, over_idle: OverIdle::Defer { spread_ns: 0 } },
    ] {
        time.arm(cpu, SLOT, expiry);
        assert!(time.due_ns(cpu, SLOT).is_some());
        assert!(time.cancel(cpu, SLOT));
        assert!(!time.cancel(cpu, SLOT));
        assert_eq!(time.due_ns(cpu, SLOT), None);
    }
    for _ in 0..1000 {
        assert!(next(&time).1.is_empty());
    }
}

/// A sleeper parks once per wake-up token; on this machine a park without a token panics.
#[test]
fn sleepers_wake_to_the_nanosecond_in_order() {
    let time = time(1, 100);
    // The machine stores the token of an unparked task: it sleeps "in advance".
    let task = TaskId::new(7);
    stepped::set_task(task);
    Stepped::unpark(task);
    let asleep = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        time.sleep_until(4 * MS + 321, || false);
    }));
    assert!(asleep.is_err(), "an early return from park is not enough to wake up");
    assert_eq!(stepped::timer_of(0), Some(4 * MS + 321));
    assert!(next(&time).1.is_empty());
    assert_eq!(Stepped::now_ns(), 4 * MS + 321);
    assert_eq!(stepped::unpark_tokens(), [task]);
    time.sleep_until(4 * MS + 321, || false);
    time.sleep_until(0, || false);
    // The end of the run ends every sleep.
    time.stop_sleeping();
    time.sleep_until(u64::MAX, || false);
}

/// A sleeper whose condition is true stops sleeping, and is not woken at its original time.
#[test]
fn a_sleeper_that_wakes_early_leaves_no_timer_behind() {
    let time = time(2, 100);
    let (early, other) = (TaskId::new(7), TaskId::new(8));
    for task in [early, other] {
        stepped::set_task(task);
        Stepped::unpark(task);
        let sleep = || time.sleep_until(4 * MS, || task == early);
        let slept = std::panic::catch_unwind(std::panic::AssertUnwindSafe(sleep));
        assert_eq!(slept.is_ok(), task == early);
    }
    next(&time);
    assert_eq!(Stepped::now_ns(), 4 * MS);
    assert_eq!(stepped::unpark_tokens(), [other]);
}

#[test]
fn a_dead_cpus_sleepers_and_timers_go_elsewhere() {
    let time = time(2, 1000);
    stepped::set_cpu(1);
    let task = TaskId::new(9);
    stepped::set_task(task);
    let asleep = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        time.sleep_until(500_123, || false);
    }));
    assert!(asleep.is_err());
    time.arm(CpuId::new(1), SLOT, Expiry::Standard { jiffies: 100 });
    stepped::take_timer();
    stepped::set_cpu(0);
    let mut orphans = Vec::new();
    time.cpu_dead(CpuId::new(1), |slot, expiry| orphans.push((slot, expiry)));
    // Level 1: granules of 8 jiffies.
    assert_eq!(orphans, [(SLOT, Expiry::Standard { jiffies: 104 })]);
    assert_eq!(next(&time).0, 500_123);
    assert_eq!(stepped::unpark_tokens(), [task]);
}

#[test]
fn a_whole_machine_that_is_idle_sleeps_for_good() {
    let mut machine = Machine::boot(4, 1000, TickPolicy::Stock);
    (0..4).for_each(|cpu| machine.go_idle(cpu));
    machine.run_until(100 * SEC, |_, cpu| panic!("cpu{cpu} was woken"));
    assert_eq!(stepped::earliest_timer(), None);
}
