//! Replays of small recordings: what limits them, and what does not.

mod made;

use made::{
    WINDOW, add_calls, add_ticks, all_of, event, line, lock, machine, operation, ops, play, random,
    recording, under,
};
use mmscale_document::{BlameRow, BlameRows, Doing};
use mmscale_lift::{Growing, Growth, LineId, LockKind, Operation, Recording, Share, SiteId, What};
use mmscale_replay::{Played, Replay, ReplayError};
use mmscale_sim::{Policy, SimConfig};
use std::collections::BTreeSet;

/// An operation of 2 us, 90 % of which holds the lock.
fn held(what: What) -> Operation {
    operation(9571, &[event(100, what, 0), event(9000, What::Release, 0)])
}

/// Asserts that `value` is `low` to `high` times `of`.
fn assert_times(value: f64, of: f64, [low, high]: [f64; 2]) {
    assert!((low * of..=high * of).contains(&value), "{value} is {} of {of}", value / of);
}

#[test]
fn the_hold_of_a_lock_limits_two_cpus() {
    let of = recording(&[0, 0], LockKind::Spin, Share::All, &held(What::Acquire));
    // 1 ms; 1.8 us of 2 us, and what the lock costs.
    assert_times(ops(&of, 1, 1), 500.0, [0.98, 1.0]);
    let two = play(&of, machine(2, 1));
    assert_times(two.ops, 1e6 / 1888.0, [0.99, 1.01]);
    let [row] = &two.locks[..] else { panic!("one lock: {:?}", two.locks) };
    assert_eq!((row.class.as_str(), row.sleeps), ("lruvec", false));
    assert_eq!(row.path, ["sys_call", "do_Acquire"]);
    assert!(row.acquisitions.abs_diff(two.rounds) <= 2, "{row:?}");
    assert!(row.contentions.abs_diff(row.acquisitions) <= 2, "{row:?}");
    assert_times(row.hold_total_ns as f64, row.acquisitions as f64 * 1803.0, [0.99, 1.01]);
    assert!(row.wait_max_ns > 1500 && row.wait_max_ns < 2500, "{row:?}");
    assert_eq!(two.cpu_time.busy_ns, two.cpu_time.all_ns);
    let by_path: u64 = two.calls.iter().map(|call| call.self_ns).sum();
    assert_times(by_path as f64, two.cpu_time.all_ns as f64, [0.999, 1.0]);
}

#[test]
fn instructions_cost_less_in_holds() {
    let with = |what| operation(1000, &[event(0, what, 0), event(1000, What::Release, 0)]);
    let of = |kind, what| {
        let private = recording(&[0], kind, Share::Private, &with(what));
        ops(&private, 1, 1)
    };
    assert_times(of(LockKind::Spin, What::Acquire), 5000.0, [0.99, 1.01]);
    assert_times(of(LockKind::Rwsem, What::Acquire), 1e6 / 350.0, [0.99, 1.01]);
}

#[test]
fn private_data_scale() {
    let mut of = recording(&[0, 0], LockKind::Spin, Share::Private, &held(What::Acquire));
    for operations in &mut of.cpus {
        operations[0].events.insert(1, event(100, What::Atomic, 0));
    }
    let alone = ops(&of, 1, 1);
    assert_times(ops(&of, 16, 2), 16.0 * alone, [0.99, 1.01]);
    let played = play(&of, machine(16, 2));
    assert_eq!(played.lines, []);
    let rows: Vec<u64> = played.locks.iter().map(|row| row.contentions).collect();
    assert_eq!(rows, [0]);
}

#[test]
fn data_of_nodes_and_groups_scale_with_them() {
    let of = |share| recording(&[0, 0], LockKind::Spin, share, &held(What::Acquire));
    let saturated = ops(&of(Share::All), 4, 1);
    for (share, cpus, nodes, copies) in [
        (Share::All, 8, 2, 1.0),
        (Share::Node, 4, 1, 1.0),
        (Share::Node, 8, 2, 2.0),
        (Share::Few, 4, 1, 2.0),
        (Share::Few, 8, 2, 4.0),
    ] {
        // A handoff to the other node takes longer.
        assert_times(ops(&of(share), cpus, nodes), copies * saturated, [0.93, 1.02]);
    }
}

#[test]
fn readers_of_a_semaphore_scale_and_writers_do_not() {
    let of = |kind, what| {
        let operation = operation(60_000, &[event(100, what, 0), event(50_000, What::Release, 0)]);
        recording(&[0, 0], kind, Share::All, &operation)
    };
    // Operations of 21 us, 17.5 us of which hold it.
    let alone = ops(&of(LockKind::Rwsem, What::AcquireShared), 1, 1);
    assert_times(alone, 1e6 / 21_000.0, [0.95, 1.02]);
    let readers = play(&of(LockKind::Rwsem, What::AcquireShared), machine(16, 1));
    assert_times(readers.ops, 16.0 * alone, [0.95, 1.0]);
    assert_eq!(readers.locks[0].contentions, 0);
    assert!(readers.locks[0].sleeps);
    for kind in [LockKind::Rwsem, LockKind::Mutex] {
        let writers = play(&of(kind, What::Acquire), machine(16, 1));
        assert!(writers.ops <= 1e6 / 17_500.0 + 1.0, "{kind:?}: {}", writers.ops);
        let row = &writers.locks[0];
        assert!(row.contentions * 10 >= row.acquisitions * 9, "{row:?}");
        assert!(row.wait_total_ns > 10 * row.hold_total_ns, "{row:?}");
        // The owner runs, so the others spin.
        assert_eq!(writers.cpu_time.busy_ns, writers.cpu_time.all_ns);
    }
}

#[test]
fn a_writer_that_downgrades_lets_readers_in() {
    let downgraded = operation(
        60_000,
        &[
            event(100, What::Acquire, 0),
            event(1000, What::Downgrade, 0),
            event(49_000, What::Release, 0),
        ],
    );
    let of = recording(&[0, 0], LockKind::Rwsem, Share::All, &downgraded);
    let mut mixed = of.clone();
    mixed.cpus[1] = vec![operation(
        60_000,
        &[event(100, What::AcquireShared, 0), event(50_000, What::Release, 0)],
    )];
    let (writers, both) = (ops(&of, 8, 1), play(&mixed, machine(8, 1)));
    let ops = both.ops;
    assert!(writers <= 1e6 / 17_500.0 + 1.0 && ops > 1.3 * writers, "{writers} and {ops}");
    // Readers sleep, without a CPU and on no path.
    let busy_ns = both.cpu_time.busy_ns;
    assert!(busy_ns * 10 < both.cpu_time.all_ns * 9, "{:?}", both.cpu_time);
    let by_path: u64 = both.calls.iter().map(|call| call.self_ns).sum();
    assert_times(by_path as f64, busy_ns as f64, [0.95, 1.001]);
}

#[test]
fn a_line_that_all_cpus_write_limits_and_is_named() {
    for what in [What::Atomic, What::Write] {
        let touched = operation(400, &[event(100, what, 0)]);
        let of = recording(&[0, 0], LockKind::Spin, Share::All, &touched);
        let (alone, all) = (ops(&of, 1, 1), play(&of, machine(16, 1)));
        assert!(all.ops < 6.0 * alone, "{what:?}: {} of {alone}", all.ops);
        let [line] = &all.lines[..] else { panic!("one line: {:?}", all.lines) };
        assert_eq!(line.line, "struct file");
        assert!(
            line.moves * 10 > all.rounds * 9 && line.moves <= all.rounds + 32,
            "{what:?}: {line:?}"
        );
        assert_eq!(line.wait_ns, all.cpu_time.lines_ns);
        assert!(all.cpu_time.lines_ns * 2 > all.cpu_time.busy_ns, "{:?}", all.cpu_time);
        let of_path: u64 = all.calls.iter().map(|call| call.lines_ns).sum();
        assert_times(of_path as f64, line.wait_ns as f64, [0.999, 1.001]);
    }
}

#[test]
fn a_read_of_a_line_that_no_cpu_writes_costs_nothing() {
    let read = operation(400, &[event(100, What::Read, 0), event(0, What::Read, 0)]);
    let of = recording(&[0, 0], LockKind::Spin, Share::All, &read);
    assert_times(ops(&of, 16, 1), 16.0 * ops(&of, 1, 1), [0.99, 1.01]);
}

/// Rounds in which a CPU stores once, 400 instructions before their end.
#[test]
fn a_store_is_waited_for_later_than_an_atomic() {
    let with = |what, instructions| {
        let touched = operation(instructions, &[event(100, what, 0)]);
        let of = recording(&[0, 0], LockKind::Spin, Share::All, &touched);
        play(&of, machine(4, 1)).cpu_time.lines_ns
    };
    assert_eq!(with(What::Write, 4000), 0, "the line is there before the buffer is full");
    assert!(with(What::Atomic, 4000) > 0);
    let locked = |what| {
        let then = [event(3900, what, 0), event(0, What::Acquire, 0), event(0, What::Release, 0)];
        let mut of = recording(&[0, 0], LockKind::Spin, Share::All, &operation(4000, &then));
        of.locks[0].share = Share::Private;
        play(&of, machine(4, 1)).cpu_time.lines_ns
    };
    assert_times(locked(What::Write) as f64, locked(What::Atomic) as f64, [0.7, 1.3]);
}

#[test]
fn the_line_of_a_lock_comes_with_it() {
    let with = |own: bool, share| {
        let events = [
            event(100, What::Acquire, 0),
            event(0, What::Atomic, 0),
            event(0, What::Atomic, 0),
            event(100, What::Release, 0),
        ];
        let mut of = recording(&[0, 0], LockKind::Spin, Share::All, &operation(2000, &events));
        of.locks[0].line = own.then_some(LineId(0));
        of.locks[0].share = share;
        let played = play(&of, machine(4, 1));
        played.lines.iter().map(|line| line.line.clone()).collect::<Vec<_>>()
    };
    let all = Share::All;
    assert_eq!(with(true, all), ["lruvec"], "the word of the lock, where it was not waited for");
    assert_eq!(with(true, Share::Private), ["struct file"], "others use the line without the lock");
    let mut both = with(false, all);
    both.sort();
    assert_eq!(both, ["lruvec", "struct file"]);
}

#[test]
fn lines_of_one_object_are_one_row() {
    let events = [event(100, What::Atomic, 0), event(100, What::Atomic, 1)];
    let mut of = recording(&[0, 0], LockKind::Spin, Share::All, &operation(2000, &events));
    of.lines.push(line("struct file", Share::Node));
    let played = play(&of, machine(4, 2));
    assert_eq!(played.lines.len(), 1);
    assert!(played.lines[0].moves > played.rounds, "{:?}", played.lines);
}

#[test]
fn both_schedules_give_the_same() {
    let mut waits = 0;
    for seed in 0..50 {
        let [lazy, naive] = [Policy::Lazy, Policy::Naive].map(|policy| under(seed, policy));
        assert_eq!(all_of(&lazy), all_of(&naive), "seed {seed}");
        waits += lazy.locks.iter().map(|row| row.contentions).sum::<u64>();
    }
    assert!(waits > 1000, "{waits} waits");
}

#[test]
fn a_seed_gives_one_result_and_another_seed_another() {
    let of = |seed| {
        let config = mmscale_sim::SimConfig { seed, ..machine(8, 2) };
        play(&random(3), config)
    };
    assert_eq!(all_of(&of(1)), all_of(&of(1)));
    assert_ne!(of(1).outcome.fingerprint, of(2).outcome.fingerprint);
}

/// Returns the reason for which operations of one lock are refused.
fn refused(kind: LockKind, events: &[mmscale_lift::Event]) -> String {
    let mut of = recording(&[0, 0], kind, Share::All, &operation(1000, events));
    of.locks.push(lock("mmap_lock", LockKind::Rwsem, Share::All));
    of.cpus[0] = vec![operation(10, &[])];
    let why = Replay::new(&of).err().expect("it is refused").to_string();
    assert!(why.contains("operation 0 of CPU 1"), "{why}");
    why
}

/// The kind of the first lock, events with their locks, and a part of the reason.
type Unbalanced<'a> = (LockKind, &'a [(What, u32)], &'a str);

#[test]
fn operations_whose_locks_are_not_balanced_are_refused() {
    use What::{Acquire, AcquireShared, Downgrade, Release};
    let each: [Unbalanced<'_>; 7] = [
        (LockKind::Spin, &[(Acquire, 0)], "does not release the lock `lruvec` in do_Acquire"),
        (LockKind::Spin, &[(Release, 0)], "releases, without having taken it, the lock `lruvec`"),
        (LockKind::Spin, &[(Acquire, 0), (AcquireShared, 0)], "takes twice the lock `lruvec`"),
        (LockKind::Spin, &[(Acquire, 0), (Downgrade, 0)], "downgrades"),
        (LockKind::Rwsem, &[(AcquireShared, 0), (Downgrade, 0)], "downgrades"),
        (LockKind::Mutex, &[(AcquireShared, 0)], "though it is a mutex"),
        (LockKind::Spin, &[(Acquire, 0), (Acquire, 1)], "under a spin lock, for the lock `mmap"),
    ];
    for (kind, events, what) in each {
        let events: Vec<_> = events.iter().map(|&(what, target)| event(10, what, target)).collect();
        let why = refused(kind, &events);
        assert!(why.contains(what), "{why}");
    }
}

/// Returns a recording whose two CPUs take three locks in these orders.
fn ordered(orders: [[u32; 3]; 2]) -> Recording {
    let in_order = |order: &[u32; 3]| {
        let events = |what| order.map(|lock| event(10, what, lock));
        operation(1000, &[events(What::Acquire), events(What::Release)].concat())
    };
    let mut of = recording(&[0, 0], LockKind::Spin, Share::All, &operation(1, &[]));
    of.locks = ["a", "b", "c"].map(|class| lock(class, LockKind::Spin, Share::All)).into();
    of.cpus = orders.iter().map(|order| vec![in_order(order)]).collect();
    of
}

#[test]
fn locks_in_both_orders_are_refused() {
    assert!(Replay::new(&ordered([[0, 1, 2], [0, 1, 2]])).is_ok());
    assert!(play(&ordered([[2, 0, 1], [2, 0, 1]]), machine(4, 1)).rounds > 0);
    for other in [[1, 0, 2], [2, 0, 1], [2, 1, 0]] {
        let why = Replay::new(&ordered([[0, 1, 2], other])).err().expect("it is refused");
        assert!(matches!(why, ReplayError::Order(..)), "{why}");
    }
}

#[test]
fn operations_that_take_no_time_are_refused() {
    let mut of = recording(&[0, 0], LockKind::Spin, Share::All, &operation(10, &[]));
    of.cpus[1].push(operation(0, &[]));
    let why = Replay::new(&of).err().expect("it is refused").to_string();
    assert!(why.contains("operation 1 of CPU 1 has 0 instructions"), "{why}");
    of.cpus[1].clear();
    assert_eq!(Replay::new(&of).err(), Some(ReplayError::Empty(1)));
    of.cpus[1] = vec![operation(10, &[event(1, What::Read, 9)])];
    assert!(matches!(Replay::new(&of).err(), Some(ReplayError::Unknown(_))));
}

#[test]
fn an_operation_counts_what_the_script_counted() {
    let twelve = Operation { count: 12, ..operation(1000, &[]) };
    let of = recording(&[0], LockKind::Spin, Share::All, &twelve);
    let played = play(&of, machine(2, 1));
    assert!((played.ops - 12.0 * played.rounds as f64).abs() <= 24.0, "{}", played.ops);
    let all_ns = (WINDOW.until_ns - WINDOW.from_ns) * 2;
    assert_eq!(played.cpu_time.all_ns, all_ns);
    assert_times(played.rounds as f64, all_ns as f64 / 350.0, [0.99, 1.01]);
}

/// Returns the event as an attempt.
fn tried(event: mmscale_lift::Event) -> mmscale_lift::Event {
    mmscale_lift::Event { offset: 1, ..event }
}

#[test]
fn a_lock_that_is_tried_in_another_order_is_accepted_and_left_out_if_it_is_held() {
    let mut of = ordered([[0, 1, 2], [2, 1, 0]]);
    for event in &mut of.cpus[1][0].events {
        *event = if event.what == What::Acquire { tried(*event) } else { *event };
    }
    // Nothing stops in a deadlock.
    assert!(play(&of, machine(2, 1)).rounds > 100);
    // Two CPUs that only try do not wait for one another.
    let mut of = recording(&[0, 0], LockKind::Spin, Share::All, &held(What::Acquire));
    for operations in &mut of.cpus {
        operations[0].events[0] = tried(operations[0].events[0]);
    }
    let two = play(&of, machine(2, 1));
    assert!(two.ops > 1.5 * ops(&of, 1, 1), "{}", two.ops);
    assert_eq!(two.locks[0].contentions, 0);
}

#[test]
fn memory_that_is_cleared_and_copied_takes_time() {
    let with = |events: &[mmscale_lift::Event]| {
        let of = recording(&[0], LockKind::Spin, Share::Private, &operation(1000, events));
        1e6 / ops(&of, 1, 1)
    };
    let plain = with(&[]);
    let time = |what, bytes| with(&[event(0, what, bytes); 16]) / 16.0 - plain / 16.0;
    let costs = mmscale_sim::sample_profile(1).costs;
    let page = |op: mmscale_arch::Op| costs.op_ps[op as usize] as f64 / 1000.0;
    // Half a page stays in the cache.
    assert_times(time(What::Clear, 2048), page(mmscale_arch::Op::ClearPage) / 2.0, [0.95, 1.05]);
    assert_times(time(What::Copy, 2048), page(mmscale_arch::Op::CopyPage) / 2.0, [0.95, 1.05]);
    // A page waits for the memory of its node, and a copy moves more bytes.
    let (cleared, copied) = (time(What::Clear, 4096), time(What::Copy, 4096));
    assert!(cleared > 2.0 * page(mmscale_arch::Op::ClearPage), "{cleared}");
    assert!(copied > 1.3 * cleared, "{copied} and {cleared}");
}

/// Returns a recording of CPUs, the first of which calls all others once in 20,000 instructions and
/// waits. The others execute 10,000 instructions an operation.
fn calling(cpus: usize, instructions: u64, is_flush: bool) -> Recording {
    let alone = operation(10_000, &[]);
    let mut of = recording(&vec![0; cpus], LockKind::Spin, Share::Private, &alone);
    add_calls(&mut of, instructions, is_flush);
    of.cpus[0] = vec![operation(20_000, &[event(5000, What::Call, 0), event(10, What::Wait, 0)])];
    of
}

#[test]
fn a_called_cpu_pays_and_the_caller_waits() {
    let config = machine(2, 1);
    let (send_ps, delivery_ps) =
        (config.profile.costs.ipi_send_ps, config.profile.costs.ipi_delivery_ps);
    let (short, long) =
        (play(&calling(2, 1000, false), config), play(&calling(2, 9000, false), machine(2, 1)));
    for (played, instructions) in [(&short, 1000), (&long, 9000)] {
        let called = played.called;
        assert!(called.calls > 30 && called.receivers == called.calls, "{called:?}");
        let answer_ps = called.answer_ps / called.receivers;
        assert_times(answer_ps as f64, f64::from(instructions) * 350.0, [0.95, 1.2]);
        // Until the function's last write; the interrupt ends later.
        let wait_ps = called.wait_ps / called.calls;
        assert!(wait_ps > delivery_ps - send_ps, "{called:?}");
        // The time of an answer is neither counted for the operation nor lost.
        let by_path: u64 = played.calls.iter().map(|call| call.self_ns).sum();
        assert_times(by_path as f64, played.cpu_time.all_ns as f64, [0.8, 1.0]);
    }
    assert!(long.ops < short.ops, "{} and {}", long.ops, short.ops);
    let none = play(&calling(2, 9000, false), machine(1, 1));
    assert_eq!(none.called, mmscale_replay::CallSums::default());
}

#[test]
fn a_call_reaches_all_cpus_or_those_of_its_group() {
    let receivers = |of: &Recording, cpus: usize, nodes: usize| {
        let called = play(of, machine(cpus, nodes)).called;
        called.receivers as f64 / called.calls as f64
    };
    // Three of four CPUs are many: all CPUs, those included that play the caller.
    assert_times(receivers(&calling(4, 500, false), 8, 1), 7.0, [0.999, 1.001]);
    assert_times(receivers(&calling(4, 500, false), 8, 2), 7.0, [0.999, 1.001]);
    let mut few = calling(16, 500, false);
    few.calls[0].receivers.truncate(2);
    assert_times(receivers(&few, 48, 1), 2.0, [0.999, 1.001]);
    let mut node = calling(8, 500, false);
    node.origin.node_of_cpu = vec![0, 0, 0, 0, 1, 1, 1, 1];
    node.calls[0].receivers.truncate(3);
    assert_times(receivers(&node, 16, 2), 7.0, [0.999, 1.001]);
}

#[test]
fn a_flush_leaves_out_cpus_without_a_task() {
    let receivers = |is_flush| {
        let events = [
            event(100, What::Acquire, 0),
            event(40_000, What::Call, 0),
            event(0, What::Wait, 0),
            event(100, What::Release, 0),
        ];
        let mut of = calling(2, 500, is_flush);
        of.locks[0] = lock("mmap_lock", LockKind::Rwsem, Share::All);
        of.cpus[0] = vec![operation(41_000, &events)];
        // It sleeps until the other one releases the lock.
        let reads = [event(0, What::AcquireShared, 0), event(10, What::Release, 0)];
        of.cpus[1] = vec![operation(8000, &reads)];
        let called = play(&of, machine(2, 1)).called;
        (called.receivers, called.calls)
    };
    let (reached, calls) = receivers(false);
    assert!(calls > 10 && reached == calls, "{reached} of {calls}");
    let (flushed, _) = receivers(true);
    assert!(flushed * 2 < reached, "{flushed} and {reached}");
}

#[test]
fn cpus_begin_within_long_rounds() {
    // A round of 7 ms in a window of 1 ms: the first half reads the line, the second half writes.
    let half = |what| (0..1000).map(move |_| event(10_000, what, 0));
    let events: Vec<_> = half(What::Read).chain(half(What::Write)).collect();
    let with = |count| {
        let of = Operation { count, ..operation(20_000_000, &events) };
        play(&recording(&[0, 0], LockKind::Spin, Share::Few, &of), machine(32, 1))
    };
    let share = |played: &Played| {
        let of = |name: &str| {
            let of_path = played.calls.iter().filter(|call| call.path.last().unwrap() == name);
            of_path.map(|call| call.self_ns).sum::<u64>() as f64
        };
        of("do_Write") / (of("do_Read") + of("do_Write"))
    };
    let (short, long) = (with(mmscale_replay::LONG - 1), with(2000));
    assert_eq!(share(&short), 0.0);
    assert!((0.25..0.75).contains(&share(&long)), "{}", share(&long));
    // Each CPU does 3.5 us of a round of 2000 operations.
    assert_times(long.ops, 32.0 * 1000.0 / 3.5, [0.9, 1.0]);
}

#[test]
fn ticks_follow_hz_and_callbacks_follow_rounds() {
    let plain = recording(&[0, 0], LockKind::Spin, Share::Private, &operation(10_000, &[]));
    let with = |[tick, batch]: [u64; 2], batches: f64, hz: u32| {
        let mut of = plain.clone();
        add_ticks(&mut of, [tick, batch], batches);
        let mut config = machine(4, 1);
        config.hz = hz;
        play(&of, config)
    };
    let none = play(&plain, machine(4, 1));
    assert_eq!(none.ticks, mmscale_replay::TickSums::default());
    // 1 ms: 10 ticks of each of 4 CPUs, and a batch for every second round.
    let played = with([10_000, 2000], 0.5, 10_000);
    let ticks = played.ticks;
    assert!(ticks.ticks.abs_diff(40) <= 4, "{ticks:?}");
    assert_times(ticks.batches as f64, played.rounds as f64 / 2.0, [0.85, 1.0]);
    let expected_ps = ticks.ticks * 3_500_000 + ticks.batches * 700_000;
    assert_times(ticks.ps as f64, expected_ps as f64, [0.97, 1.05]);
    // The time is neither lost nor an operation's.
    let left = 1.0 - ticks.ps as f64 / 1e3 / played.cpu_time.all_ns as f64;
    assert_times(played.ops, none.ops * left, [0.97, 1.01]);
    let by_path: u64 = played.calls.iter().map(|call| call.self_ns).sum();
    assert_times(by_path as f64, played.cpu_time.all_ns as f64, [0.97, 1.0]);
    // Fewer ticks, as many callbacks.
    let slow = with([10_000, 2000], 0.5, 2000);
    assert!(slow.ticks.ticks.abs_diff(8) <= 4, "{:?}", slow.ticks);
    assert!(slow.ops > played.ops, "{} and {}", slow.ops, played.ops);
    assert_times(slow.ticks.batches as f64, slow.rounds as f64 / 2.0, [0.6, 1.05]);
}

#[test]
fn ticks_that_name_what_is_not_there_are_refused() {
    let mut of = recording(&[0, 0], LockKind::Spin, Share::Private, &operation(10_000, &[]));
    add_ticks(&mut of, [100, 100], 1.0);
    assert!(Replay::new(&of).is_ok());
    of.ticks.as_mut().unwrap().batches = f64::NAN;
    assert_eq!(Replay::new(&of).err(), Some(ReplayError::Calls));
}

#[test]
fn calls_that_name_what_is_not_there_are_refused() {
    let mut of = calling(2, 500, false);
    of.cpus[0][0].events[0].target = 9;
    assert!(matches!(Replay::new(&of).err(), Some(ReplayError::Unknown(_))));
    let mut of = calling(2, 500, false);
    of.answers[0].events[0].what = What::Acquire;
    assert_eq!(Replay::new(&of).err(), Some(ReplayError::Calls));
    of.answers.clear();
    assert_eq!(Replay::new(&of).err(), Some(ReplayError::Calls));
}

/// A scan of the data of four recorded CPUs, 100 instructions each, which each writes.
#[test]
fn a_scan_grows_with_the_machine() {
    let events: Vec<_> = (0..4).map(|target| event(100, What::Read, target)).collect();
    let mut of = recording(&[0; 4], LockKind::Spin, Share::All, &operation(1400, &events));
    of.lines = (0..4).map(|cpu| line(&format!("rq {cpu}"), Share::All)).collect();
    for (cpu, operations) in of.cpus.iter_mut().enumerate() {
        operations[0].events.push(event(0, What::Write, cpu as u32));
    }
    let site = SiteId(What::Read as u32);
    let place = Growing { site, instructions: 0.25, accesses: 0.25 };
    let each = (0..4).map(LineId).collect();
    let growth = Growth { sizes: vec![2, 4], error: None, places: vec![place], each };
    let fitted = Recording { growth: Some(growth), ..of.clone() };
    let moves = |of: &Recording, cpus: usize| {
        let played = play(of, machine(cpus, 1));
        let moves: u64 = played.lines.iter().map(|line| line.moves).sum();
        (played.ops, moves as f64 / played.rounds as f64)
    };
    // As it was recorded, to some rounds: the lines are those of each CPU.
    assert_times(moves(&fitted, 4).1, moves(&of, 4).1, [0.98, 1.02]);
    assert_times(ops(&fitted, 1, 1), 1e6 / (1100.0 * 0.35), [0.99, 1.01]);
    // Lines of all CPUs, each of which has written its own since.
    let (slow, all) = moves(&fitted, 16);
    let (fast, four) = moves(&of, 16);
    assert!(slow < fast && all > 15.0 && four < 9.0, "{slow} {fast} {all} {four}");
}

/// CPUs of both nodes use the data of each CPU, which the machine has once if it is as large as the
/// recording.
#[test]
fn a_fitted_recording_is_as_it_was_on_as_many_cpus() {
    let mut of = recording(&[0, 0, 1, 1], LockKind::Spin, Share::All, &operation(4000, &[]));
    add_calls(&mut of, 500, false);
    of.lines = (0..4).map(|cpu| line(&format!("queue {cpu}"), Share::All)).collect();
    of.lines.extend((0..4).map(|cpu| line(&format!("csd {cpu}"), Share::Few)));
    for answer in &mut of.answers {
        answer.events = vec![
            event(10, What::Atomic, answer.receiver),
            event(10, What::Write, 4 + answer.sender),
        ];
    }
    for (cpu, operations) in of.cpus.iter_mut().enumerate() {
        let own = event(1000, What::Write, 4 + cpu as u32);
        let queues = (0..4).map(|target| event(10, What::Atomic, target));
        let sent = [event(0, What::Call, cpu as u32), event(0, What::Wait, 0)];
        operations[0].events = std::iter::once(own).chain(queues).chain(sent).collect();
    }
    let place = Growing { site: SiteId(What::Atomic as u32), instructions: 0.25, accesses: 0.25 };
    let each = (0..4).map(LineId).collect();
    let growth = Growth { sizes: vec![2, 4], error: None, places: vec![place], each };
    let fitted = Recording { growth: Some(growth), ..of.clone() };
    let on_four = [&of, &fitted].map(|of| all_of(&play(of, machine(4, 2))));
    assert_eq!(on_four[0], on_four[1]);
    // What a CPU writes for others moves to those of the other node, too.
    let played = play(&of, machine(4, 2));
    let csd: u64 =
        played.lines.iter().filter(|of| of.line.starts_with("csd")).map(|of| of.moves).sum();
    assert!(csd > 3 * played.called.calls, "{csd} of {:?}", played.called);
}

/// Returns what a run with blame gave.
fn blamed(of: &Recording, config: SimConfig) -> Played {
    play(of, SimConfig { blame: true, ..config })
}

#[test]
fn waits_have_the_work_of_holders_by_the_names_of_the_recording() {
    let events =
        [event(100, What::Acquire, 0), event(3000, What::Atomic, 0), event(6000, What::Release, 0)];
    let of = recording(&[0, 0], LockKind::Spin, Share::All, &operation(9571, &events));
    let played = blamed(&of, machine(4, 1));
    let rows = &played.blame.shares;
    assert!(rows.iter().all(|row| row.class == "lruvec" && row.through.is_none()), "{rows:?}");
    assert!(rows.iter().all(|row| row.waiter == ["sys_call", "do_Acquire"]), "{rows:?}");
    let sum = |of: &dyn Fn(&BlameRow) -> bool| {
        rows.iter().filter(|row| of(row)).map(|row| row.wait_ps).sum::<u64>() as f64
    };
    let all = sum(&|_| true);
    let lock_wait_ns: u64 = played.locks.iter().map(|lock| lock.wait_total_ns).sum();
    assert_times(all / 1e3, lock_wait_ns as f64, [0.999, 1.001]);
    let works = |function: &str| {
        sum(&|row| row.doing == Doing::Work && row.holder == ["sys_call", function])
    };
    // A CPU that asks for the lock again misses the begin of a hold.
    assert_times(works("do_Release"), 2.0 * works("do_Atomic"), [1.0, 1.15]);
    assert!(works("do_Atomic") > 0.25 * all, "{rows:?}");
    assert!(sum(&|row| row.doing == Doing::MissCluster) > 0.0, "the line that all write: {rows:?}");
    assert!(sum(&|row| row.doing == Doing::Handover) > 0.0, "{rows:?}");
    // A release whose function is not known counts for the place that took the lock.
    let mut unknown = of.clone();
    unknown.functions[What::Release as usize] = "?".to_owned();
    let rows = blamed(&unknown, machine(4, 1)).blame.shares;
    let holders: BTreeSet<&str> =
        rows.iter().filter_map(|row| row.holder.last().map(String::as_str)).collect();
    assert_eq!(holders, BTreeSet::from(["do_Acquire", "do_Atomic", "interrupt"]));
}

#[test]
fn blame_changes_nothing_and_does_not_depend_on_the_schedule() {
    let mut waited = 0;
    for seed in 0..6 {
        let with = |of: &Recording, policy| blamed(of, SimConfig { seed, policy, ..machine(8, 2) });
        let called = random(seed);
        let lazy = with(&called, Policy::Lazy);
        assert_eq!(lazy.blame.locks, with(&called, Policy::Naive).blame.locks, "seed {seed}");
        assert_eq!(all_of(&lazy), all_of(&under(seed, Policy::Lazy)), "seed {seed}");
        let spun = lazy.locks.iter().filter(|row| !row.sleeps).map(|row| row.wait_total_ns);
        let spun: u64 = spun.sum();
        let shares: u64 = lazy.blame.shares.iter().map(|row| row.wait_ps / 1000).sum();
        // Interrupts before a CPU joins the queue are part of the row's wait alone.
        let is_near = shares <= spun + 10 && shares * 20 >= spun * 19;
        assert!(is_near, "seed {seed}: {shares} and {spun}");
        // An interrupt of another CPU counts for the path on which it is delivered, which is up to
        // the schedule.
        let mut alone = called;
        alone.ticks = None;
        for operation in alone.cpus.iter_mut().flatten() {
            operation.events.retain(|event| !matches!(event.what, What::Call | What::Wait));
        }
        let [lazy, naive] = [Policy::Lazy, Policy::Naive].map(|policy| with(&alone, policy).blame);
        assert_eq!(lazy, naive, "seed {seed}");
        waited += usize::from(!lazy.shares.is_empty());
    }
    assert!(waited >= 3, "CPUs waited in {waited} runs");
}

#[test]
fn locks_are_named_by_their_class_and_the_cpus_that_have_them() {
    let names = |share, cpus, nodes, more: &[&str]| {
        let mut of = recording(&[0, 0], LockKind::Spin, share, &held(What::Acquire));
        for (at, class) in more.iter().enumerate() {
            of.locks.push(lock(class, LockKind::Spin, share));
            let events = [
                event(100, What::Acquire, at as u32 + 1),
                event(9000, What::Release, at as u32 + 1),
            ];
            of.cpus.iter_mut().for_each(|all| all.push(operation(9571, &events)));
        }
        let played = blamed(&of, machine(cpus, nodes));
        played.blame.locks.into_iter().map(|row| row.lock).collect::<BTreeSet<String>>()
    };
    let set = |all: &[&str]| all.iter().map(|&name| name.to_owned()).collect::<BTreeSet<String>>();
    assert_eq!(names(Share::All, 8, 2, &[]), set(&["lruvec"]));
    assert_eq!(names(Share::Node, 8, 2, &[]), set(&["lruvec of node 0", "lruvec of node 1"]));
    let groups = ["lruvec of group 0", "lruvec of group 1"];
    assert_eq!(
        names(Share::Few, 4, 1, &["zone"]),
        set(&[&groups[..], &["zone of group 0", "zone of group 1"]].concat())
    );
    assert_eq!(names(Share::All, 8, 2, &["lruvec"]), set(&["lruvec 0", "lruvec 1"]));
    // A recorded node has one each.
    let mut nodes = recording(&[0, 0, 1, 1], LockKind::Spin, Share::Node, &held(What::Acquire));
    nodes.locks.push(lock("lruvec", LockKind::Spin, Share::Node));
    for operation in nodes.cpus[2..].iter_mut().flatten() {
        operation.events.iter_mut().for_each(|event| event.target = 1);
    }
    let played = blamed(&nodes, machine(8, 2));
    let names: Vec<&str> = played.blame.locks.iter().map(|row| row.lock.as_str()).collect();
    assert_eq!(names, ["lruvec of node 0", "lruvec of node 1"]);
}

#[test]
fn waits_for_sleeping_locks_are_no_work() {
    let with = |kind| {
        let operation =
            operation(60_000, &[event(100, What::Acquire, 0), event(50_000, What::Release, 0)]);
        blamed(&recording(&[0, 0], kind, Share::All, &operation), machine(8, 1))
    };
    let work_ns = |played: &Played| played.work.iter().map(|row| row.self_ns).sum::<u64>() as f64;
    for kind in [LockKind::Rwsem, LockKind::Mutex] {
        let played = with(kind);
        assert_eq!(played.blame, BlameRows::default(), "{kind:?}: it has no spin lock");
        // 21 us an operation.
        assert_times(work_ns(&played), played.ops * 21_000.0, [0.95, 1.1]);
        assert!(played.cpu_time.busy_ns as f64 > 5.0 * work_ns(&played), "{kind:?}");
    }
    let spins = with(LockKind::Spin);
    assert_eq!(work_ns(&spins), spins.calls.iter().map(|row| row.self_ns).sum::<u64>() as f64);
}
