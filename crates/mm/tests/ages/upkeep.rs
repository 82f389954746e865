//! The upkeep tick: when it fires under each policy, and what it must never do.

use crate::ages::machine::{Machine, SEC, firings};
use mmscale_arch::{CpuId, Machine as _, NodeId, TickEvent, Trace};
use mmscale_frames::vmstat::NodeItem;
use mmscale_mm::vmstat_work::TickPolicy;
use mmscale_mm::work::WorkItem;
use mmscale_stepped::{self as stepped, Stepped};

/// Firings per interval: (firings - 1) * interval / (last - first).
fn rate(times: &[u64]) -> f64 {
    let span = times[times.len() - 1] - times[0];
    (times.len() - 1) as f64 * SEC as f64 / span as f64
}

/// The mean number of CPUs that fire in the same jiffy as a given firing, including itself.
fn cofiring(all: &[Vec<u64>], hz: u64, from_ns: u64) -> f64 {
    let mut jiffies: Vec<u64> =
        all.iter().flatten().filter(|at| **at >= from_ns).map(|at| at * hz / SEC).collect();
    jiffies.sort_unstable();
    let squares: usize = jiffies.chunk_by(|a, b| a == b).map(|same| same.len().pow(2)).sum();
    squares as f64 / jiffies.len() as f64
}

#[test]
fn stock_at_250_hz_fires_992_or_1024_ms_apart() {
    for times in firings(4, 250, TickPolicy::Stock, 60) {
        assert!(times.len() > 50);
        let gaps: Vec<u64> = times[2..].windows(2).map(|w| (w[1] - w[0]) / 1_000_000).collect();
        assert!(gaps.iter().all(|gap| [992, 1024].contains(gap)), "{gaps:?}");
        assert!(gaps.contains(&992) && gaps.contains(&1024));
    }
}

/// The wheel model: 72 CPUs that always arm again. Stock pulls every start to the same few buckets.
/// Under the posted delays, CPUs with the same period in buckets stay together if they start
/// together, as they do when the shepherd kicks them all (10.0, 5.7, 12.0 from an independent
/// model); from random starts it would be 4.1, 2.5, 4.9.
#[test]
fn the_wheel_makes_cpus_meet_as_the_model_says() {
    let expected = [(1000, 19.2, 9.9), (250, 2.7, 5.7), (100, 5.9, 12.0)];
    for (hz, stock, posted) in expected {
        for (policy, model) in [(TickPolicy::Stock, stock), (TickPolicy::Posted, posted)] {
            let met = cofiring(&firings(72, hz, policy, 60), u64::from(hz), 10 * SEC);
            assert!((met / model - 1.0).abs() < 0.12, "{policy:?} at {hz}: {met} for {model}");
        }
    }
}

#[test]
fn posted_fires_at_seven_tenths_of_the_rate() {
    let all = firings(72, 1000, TickPolicy::Posted, 40);
    let mean = all.iter().map(|times| rate(times)).sum::<f64>() / 72.0;
    assert!((0.68..=0.71).contains(&mean), "{mean}");
    assert!(rate(&all[71]) < 0.52);
}

#[test]
fn phased_fires_once_an_interval_on_every_cpu_and_alone() {
    for hz in [100, 250, 1000] {
        let all = firings(72, hz, TickPolicy::Phased, 20);
        for times in &all {
            assert!((rate(times) - 1.0).abs() < 0.001, "{hz}: {}", rate(times));
        }
        // 13.9 ms apart: no two CPUs fire in the same jiffy, from the first firing on.
        let met = cofiring(&all, u64::from(hz), 0);
        assert!(met < 1.001, "{hz}: {met}");
    }
}

#[test]
fn phased_tells_nodes_apart_and_ranks_within_them() {
    let mut machine = Machine::boot(8, 1000, TickPolicy::Phased);
    (0..8).for_each(|cpu| stepped::set_node(cpu, cpu % 2));
    // Any hotplug event ranks the CPUs anew.
    machine.mm.cpu_online(CpuId::new(0));
    stepped::record(true);
    let mut phases = [0; 8];
    (0..8).for_each(|cpu| machine.count(cpu));
    machine.run_until(3 * SEC, |machine, _| {
        for (cpu, event) in stepped::take_traces() {
            if event == Trace::Tick(TickEvent::Begin) {
                phases[cpu.index()] = Stepped::now_ns() % SEC;
                machine.count(cpu.index());
            }
        }
    });
    // CPU c has rank c / 2 of 4 on node c % 2: eighths of the interval, in the order of numbers.
    assert_eq!(phases, core::array::from_fn(|cpu| cpu as u64 * SEC / 8));
}

/// A tick that finds nothing to do stops; the shepherd starts it again.
#[test]
fn a_tick_stops_when_there_is_nothing_to_do_and_the_shepherd_restarts_it() {
    for policy in TickPolicy::ALL {
        let mut machine = Machine::boot(3, 250, policy);
        stepped::record(true);
        machine.count(1);
        machine.run_until(6 * SEC, |_, _| {});
        let ticks = |traces: &[(CpuId, Trace)]| {
            traces.iter().filter(|(_, event)| *event == Trace::Tick(TickEvent::Begin)).count()
        };
        let traces = stepped::take_traces();
        // One tick folds and arms itself, the next one finds nothing.
        assert_eq!(ticks(&traces), 2, "{policy:?}");
        assert!(
            traces.iter().any(|(_, t)| *t == Trace::Tick(TickEvent::Kicked { cpu: CpuId::new(1) }))
        );
        assert!(!machine.mm.work().is_pending(WorkItem::VmstatTick(CpuId::new(1))));
        machine.count(1);
        machine.run_until(9 * SEC, |_, _| {});
        assert!(ticks(&stepped::take_traces()) >= 1, "{policy:?}");
        assert_eq!(machine.mm.frames().stats().all_nodes(NodeItem::FilePages), 2);
    }
}

/// The longest time until a pending count is folded.
#[test]
fn counters_of_a_busy_cpu_are_never_staler_than_promised() {
    for policy in [TickPolicy::Stock, TickPolicy::Phased] {
        let mut worst = 0;
        for start in 0..6 {
            let mut machine = Machine::boot(72, 1000, policy);
            machine.run_until(4 * SEC + start * SEC / 6, |_, _| {});
            (0..72).for_each(|cpu| machine.count(cpu));
            let counted_ns = Stepped::now_ns();
            machine.run_until(counted_ns + 3 * SEC, |machine, _| {
                if machine.mm.frames().stats().all_nodes(NodeItem::FilePages) < 72 {
                    worst = worst.max(Stepped::now_ns() - counted_ns);
                }
            });
            assert_eq!(machine.mm.frames().stats().all_nodes(NodeItem::FilePages), 72);
        }
        assert!(worst < SEC * 3 / 2, "{policy:?}: {worst}");
    }
}

#[test]
fn going_idle_folds_at_once_and_leaves_the_tick_armed() {
    for policy in TickPolicy::ALL {
        let mut machine = Machine::boot(2, 1000, policy);
        machine.count(1);
        machine.run_until(5 * SEC / 2, |machine, _| machine.count(1));
        let tick = WorkItem::VmstatTick(CpuId::new(1));
        assert!(machine.mm.work().is_pending(tick), "{policy:?}");
        stepped::record(true);
        assert!(machine.mm.frames().stats().needs_update(CpuId::new(1)));
        machine.go_idle(1);
        assert!(!machine.mm.frames().stats().needs_update(CpuId::new(1)), "{policy:?}");
        assert!(machine.mm.work().is_pending(tick));
        assert!(stepped::timer_of(1).is_none(), "a deferrable timer wakes no CPU");
        let due = stepped::take_traces().into_iter().find_map(|(_, event)| match event {
            Trace::Tick(TickEvent::PendingInIdle { expires_ns }) => Some(expires_ns),
            _ => None,
        });
        assert!(due.is_some_and(|due| due > Stepped::now_ns()));
        // The CPU sleeps through the tick, and runs it soon after.
        machine.run_until(8 * SEC, |_, cpu| assert_eq!(cpu, 0, "cpu1 was woken"));
        assert!(
            !stepped::take_traces()
                .iter()
                .any(|(cpu, t)| cpu.index() == 1 && *t == Trace::Tick(TickEvent::Begin))
        );
        machine.wake(1);
        machine.run_until(8 * SEC + SEC / 3, |_, _| {});
        assert!(
            stepped::take_traces()
                .iter()
                .any(|(cpu, t)| cpu.index() == 1 && *t == Trace::Tick(TickEvent::Begin))
        );
    }
}

/// CPUs that wake together with overdue ticks do not run them together.
#[test]
fn phased_ticks_that_were_slept_through_are_spread() {
    let mut machine = Machine::boot(72, 1000, TickPolicy::Phased);
    (0..72).for_each(|cpu| machine.count(cpu));
    machine.run_until(3 * SEC, |machine, cpu| machine.count(cpu));
    (1..72).for_each(|cpu| machine.go_idle(cpu));
    machine.run_until(6 * SEC, |_, _| {});
    stepped::record(true);
    (1..72).for_each(|cpu| machine.wake(cpu));
    let mut times = vec![Vec::new(); 72];
    machine.run_until(8 * SEC, |machine, cpu| {
        machine.count(cpu);
        for (cpu, event) in stepped::take_traces() {
            if event == Trace::Tick(TickEvent::Begin) {
                times[cpu.index()].push(Stepped::now_ns());
            }
        }
    });
    let first: Vec<Vec<u64>> = times[1..].iter().map(|times| vec![times[0]]).collect();
    assert!(first.iter().all(|at| at[0] < 6 * SEC + SEC / 4 + 1_000_000));
    assert!(cofiring(&first, 1000, 0) < 1.01);
    for times in &times[1..] {
        let gap = times[1] - times[0];
        assert!((SEC * 3 / 8..=SEC * 11 / 8).contains(&gap), "{gap}");
    }
}

#[test]
fn hotplug_stops_a_tick_loses_no_count_and_closes_ranks() {
    for policy in TickPolicy::ALL {
        let mut machine = Machine::boot(4, 250, policy);
        machine.run_until(3 * SEC, |machine, cpu| machine.count(cpu));
        let cpu = CpuId::new(0);
        let waits = |machine: &Machine| machine.mm.frames().stats().needs_update(cpu);
        // Includes the pending counts of all CPUs: these may be negative, as a fold leaves half a
        // threshold.
        let counted = |machine: &Machine| {
            machine.mm.frames().stats().node_snapshot(NodeId::new(0), NodeItem::FilePages)
        };
        machine.count(0);
        while !waits(&machine) {
            machine.count(0);
        }
        let before = counted(&machine);
        stepped::set_cpu(1);
        // The shepherd's own CPU goes offline.
        stepped::set_online(0, false);
        machine.mm.work().disable_sync(machine.mm.time(), WorkItem::VmstatTick(cpu));
        assert!(!machine.mm.work().queue_on(cpu, WorkItem::VmstatTick(cpu)), "{policy:?}");
        machine.down_prepare(0);
        machine.on(0, stepped::take_timer);
        machine.mm.cpu_dead(cpu);
        assert!(!waits(&machine), "{policy:?}: the dead CPU's byte is folded");
        assert_eq!(counted(&machine), before, "{policy:?}: no count is lost");
        stepped::record(true);
        let mut last = 0;
        machine.run_until(8 * SEC, |machine, cpu| {
            machine.count(cpu);
            last = last.max(cpu);
        });
        let fired = |cpu: usize, traces: &[(CpuId, Trace)]| {
            traces.iter().any(|(on, t)| on.index() == cpu && *t == Trace::Tick(TickEvent::Begin))
        };
        let traces = stepped::take_traces();
        assert!(!fired(0, &traces) && (1..4).all(|cpu| fired(cpu, &traces)), "{policy:?}");
        stepped::set_online(0, true);
        machine.mm.cpu_online(cpu);
        machine.on(0, || stepped::interrupt(|| machine.mm.idle_exit()));
        machine.run_until(12 * SEC, |machine, cpu| machine.count(cpu));
        assert!(fired(0, &stepped::take_traces()), "{policy:?}");
    }
}

/// A CPU that wakes for 3 ms at a time runs the tick about once per interval, before it goes idle
/// again.
#[test]
fn a_cpu_that_mostly_sleeps_is_kept_up_too() {
    for policy in [TickPolicy::Stock, TickPolicy::Phased] {
        let mut machine = Machine::boot(3, 1000, policy);
        stepped::record(true);
        let mut ticks = 0;
        while Stepped::now_ns() < 20 * SEC {
            machine.wake(1);
            machine.count(1);
            machine.run_until(Stepped::now_ns() + 3_000_000, |_, _| {});
            machine.go_idle(1);
            machine.run_until(Stepped::now_ns() + 307_000_000, |_, _| {});
            let begun = |(cpu, event): &(CpuId, Trace)| {
                cpu.index() == 1 && *event == Trace::Tick(TickEvent::Begin)
            };
            ticks += stepped::take_traces().iter().filter(|trace| begun(trace)).count();
        }
        assert!((11..=20).contains(&ticks), "{policy:?}: {ticks} in 20 intervals");
    }
}

/// An idle CPU with unfolded counts is woken for them once.
#[test]
fn a_kick_wakes_an_idle_cpu() {
    for policy in TickPolicy::ALL {
        let mut machine = Machine::boot(2, 1000, policy);
        // The tick is not armed yet, so going idle folds nothing.
        machine.count(1);
        machine.go_idle(1);
        machine.run_until(4 * SEC, |_, _| {});
        assert_eq!(machine.mm.frames().stats().all_nodes(NodeItem::FilePages), 1, "{policy:?}");
        assert_eq!(stepped::timer_of(1), None, "and sleeps on");
    }
}
