//! Timelines: the worst wait, and what CPUs do in a window, both without a change of the run.

use crate::blame::{convoy, exact, lock, random_run_of, work};
use crate::common::{config, run_well};
use mmscale_arch::{Access, Cpu as _, Line, LockClass};
use mmscale_document::{Interval, Timeline};
use mmscale_sim::{Policy, Sim, SimConfig, TimelineOf};

const ALL: Interval = Interval { from_ps: 0, to_ps: u64::MAX };

fn recorded(of: TimelineOf) -> Timeline {
    convoy(SimConfig { timeline: of, blame: false, ..exact(3) }).timeline
}

#[test]
fn the_convoy_is_on_the_timeline() {
    let worst = recorded(TimelineOf::Worst(LockClass::Zone)).worst.expect("two CPUs wait");
    // CPU 2 asks at 2000 ns, and CPU 1 hands over 85 ns after 10110.
    assert_eq!((worst.cpu, worst.from_cpu), (2, 1));
    assert_eq!(worst.at, Interval { from_ps: 2_000_000, to_ps: 10_195_000 });
    assert_eq!(worst.path, ["task", "exit_mmap"].map(str::to_owned)[2 - worst.path.len()..]);
    assert_eq!(recorded(TimelineOf::Worst(LockClass::Lruvec)).worst, None);

    let all = recorded(TimelineOf::Window(ALL));
    let holds = all.holds.iter().map(|hold| (hold.cpu, hold.at.from_ps, hold.at.to_ps));
    let zone: Vec<_> = holds.collect();
    let ns = |from: u64, to: u64| (from * 1000, to * 1000);
    let expected = [(0, ns(15, 5_020)), (1, ns(5_105, 10_110)), (2, ns(10_195, 15_200))];
    assert_eq!(zone, expected.map(|(cpu, (from, to))| (cpu, from, to)));
    assert_eq!(all.waits.iter().map(|wait| wait.cpu).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(all.waits[1], worst);
    let site = |cpu: u32| {
        let on = all.stretches.iter().filter(|stretch| stretch.cpu == cpu);
        let longest = on.filter(|stretch| stretch.task.is_some()).max_by_key(|on| on.at.ps());
        longest.and_then(|stretch| stretch.path.last().cloned())
    };
    assert_eq!(site(1).as_deref(), Some("free_pcppages_bulk"));
}

#[test]
fn a_window_has_what_meets_it() {
    let window = Interval { from_ps: 6_000_000, to_ps: 7_000_000 };
    let part = recorded(TimelineOf::Window(window));
    assert_eq!(part.holds.iter().map(|hold| hold.cpu).collect::<Vec<_>>(), [1]);
    assert_eq!(part.waits.iter().map(|wait| wait.cpu).collect::<Vec<_>>(), [2]);
}

#[test]
fn a_hold_has_the_lines_that_came_from_other_cpus() {
    let config = SimConfig { timeline: TimelineOf::Window(ALL), blame: false, ..exact(2) };
    let outcome = run_well(config, |script| {
        let zone = lock(LockClass::Zone);
        let write = |lines: &[u32]| {
            lines.iter().for_each(|&line| Sim::touch(Line::FreeArea(line), Access::Write));
        };
        script.spawn(0, move || write(&[1, 4]));
        script.spawn(1, move || {
            work(1_000);
            let first = zone.lock();
            write(&[1, 4, 1]);
            drop(first);
            let second = zone.lock();
            write(&[1, 4]);
            drop(second);
        });
    });
    let misses: Vec<u64> = outcome.timeline.holds.iter().map(|hold| hold.misses).collect();
    assert_eq!(misses, [2, 0]);
}

#[test]
fn a_timeline_changes_nothing_and_agrees_under_both_schedules() {
    for seed in 0..10 {
        let run =
            |policy, timeline| random_run_of(SimConfig { seed, policy, timeline, ..config(6) });
        let plain = run(Policy::Lazy, TimelineOf::Nothing);
        let worst = TimelineOf::Worst(LockClass::Other);
        let found = run(Policy::Lazy, worst);
        assert_eq!((plain.fingerprint, &plain.locks), (found.fingerprint, &found.locks));
        let wait = found.timeline.worst.expect("CPUs wait");
        let most = plain.locks.iter().map(|row| row.wait_max_ns).max();
        assert_eq!(Some(wait.at.ps() / 1000), most, "seed {seed}");
        let naive = run(Policy::Naive, worst).timeline.worst;
        assert_eq!(
            naive.map(|wait| (wait.cpu, wait.at, wait.path)),
            Some((wait.cpu, wait.at, wait.path.clone()))
        );
        let all = run(Policy::Lazy, TimelineOf::Window(ALL));
        assert_eq!(plain.fingerprint, all.fingerprint);
        assert!(
            all.timeline.waits.iter().any(|other| (other.cpu, other.at) == (wait.cpu, wait.at))
        );
        let held: u64 = all.timeline.holds.iter().map(|hold| hold.at.ps()).sum();
        let counted: u64 = plain.locks.iter().map(|row| row.hold_total_ns).sum();
        assert!(held / 1000 >= counted, "seed {seed}: {held} {counted}");
        // No two stretches of a CPU overlap.
        for pair in all.timeline.stretches.windows(2).filter(|pair| pair[0].cpu == pair[1].cpu) {
            assert!(pair[0].at.to_ps <= pair[1].at.from_ps, "seed {seed}: {pair:?}");
        }
    }
}
