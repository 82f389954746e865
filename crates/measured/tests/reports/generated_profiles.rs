//! Generated profiles that were cut, and several of them in one text.
//!
//! Strategy: profiles of known shares, of which lines are left out as authors and search results
//! leave them out. Invariants: a share that does not follow from the text is not given; no row that
//! was cut is a lock of its own; a further profile is read apart from the first.

use std::collections::BTreeMap;

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::generated::{below, check, expected, quoted};
use crate::generated_kinds::stdio;
use crate::inputs::found;

type Random = Xoshiro256PlusPlus;

const RUNS: u64 = 600;

fn share(hundredths: u64) -> String {
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

#[test]
fn samples_in_functions_that_take_a_spin_lock_do_not_wait() {
    const SLOW: [&str; 4] = [
        "native_queued_spin_lock_slowpath",
        "queued_spin_lock_slowpath",
        "__pv_queued_spin_lock_slowpath",
        "osq_lock",
    ];
    const FAST: [&str; 4] =
        ["_raw_spin_lock", "_raw_spin_lock_irqsave", "_raw_spin_lock_irq", "_raw_spin_lock_bh"];
    for seed in 0..RUNS {
        let rng = &mut Random::seed_from_u64(seed);
        let mut rows: Vec<(&str, u64)> = vec![("a_copy", 900), ("b_clear_page", 700)];
        let [mut slow, mut fast] = [0; 2];
        for name in SLOW {
            if below(rng, 2) == 0 {
                continue;
            }
            rows.push((name, 100 + below(rng, 900) as u64));
            slow += rows[rows.len() - 1].1;
        }
        for name in FAST {
            if below(rng, 2) == 0 {
                continue;
            }
            rows.push((name, 100 + below(rng, 900) as u64));
            fast += rows[rows.len() - 1].1;
        }
        rows.sort_by_key(|row| std::cmp::Reverse(row.1));
        let row = |(name, of): &(&str, u64)| format!("    {}%  [kernel]  [k] {name}\n", share(*of));
        let text: String = rows.iter().map(row).collect();
        let (report, _) = found(&quoted(rng, &text));
        match report.spinning() {
            None => assert_eq!(slow + fast, 0, "seed {seed}\n{text}"),
            Some(found) => {
                let close = |a: f64, b: u64| (a - b as f64 / 10_000.0).abs() < 1e-9;
                assert!(close(found.waits, slow), "seed {seed}: {found:?}\n{text}");
                assert!(close(found.takes, fast), "seed {seed}: {found:?}\n{text}");
            }
        }
    }
}

const BARS: &str = "             |          ";

#[test]
fn shares_of_a_caller_that_was_cut_are_not_of_all_samples() {
    for seed in 0..RUNS {
        let rng = &mut Random::seed_from_u64(seed);
        let callers = 2 + below(rng, 3);
        let mut left = 10_000_u64;
        let mut parts = vec![];
        for _ in 1..callers {
            parts.push(100 + rng.next_u64() % (left / 2 - 100));
            left -= parts[parts.len() - 1];
        }
        parts.push(left);
        let lock = ["_raw_spin_lock_irq", "_raw_spin_lock"][below(rng, 2)];
        // The branch of another caller, which was cut: its lock has a share of unknown samples.
        let cut = match below(rng, 2) {
            0 => String::new(),
            _ => {
                let share = share(3000 + below(rng, 6000) as u64);
                ["         z_other", "         z_outer", ""].iter().fold(
                    format!("             |           --{share}%-- _raw_spin_lock_bh\n"),
                    |text, name| format!("{text}             |            {name}\n"),
                )
            }
        };
        let mut text =
            format!("{cut}             |--{}%-- {lock}\n", share(500 + below(rng, 4000) as u64));
        for (at, part) in parts.iter().enumerate() {
            text.push_str(&format!(
                "{BARS}|\n{BARS}|--{}%-- a_taker{at}\n{BARS}|          b_outer\n",
                share(*part)
            ));
        }
        let (report, found) = found(&text);
        assert_eq!(found.of_all, None, "seed {seed}\n{text}");
        let shares: BTreeMap<&str, f64> = found
            .items
            .iter()
            .filter_map(|item| Some((item.path.last()?.as_str(), item.weight / found.weight())))
            .collect();
        assert_eq!(shares.len(), callers, "seed {seed}: {shares:?}\n{text}");
        for (at, part) in parts.iter().enumerate() {
            let name = format!("a_taker{at}");
            let right = *part as f64 / 10_000.0;
            assert!((shares[&*name] - right).abs() < 0.001, "seed {seed}: {shares:?}\n{text}");
        }
        let noted =
            report.notes.iter().any(|note| note.contains("a caller that the text does not"));
        assert!(noted, "seed {seed}: {:?}\n{text}", report.notes);
    }
}

#[test]
fn a_row_of_a_robot_that_was_cut_is_no_other_lock() {
    const ROWS: [&str; 4] = [
        "osq_lock.rwsem_optimistic_spin.rwsem_down_write_slowpath.down_write.unlink_file_vma",
        "rwsem_optimistic_spin.rwsem_down_write_slowpath.down_write.unlink_file_vma.free_pgtables",
        "rwsem_down_write_slowpath.down_write.unlink_file_vma.free_pgtables.exit_mmap",
        "down_write.unlink_file_vma.free_pgtables.exit_mmap.mmput",
    ];
    for seed in 0..RUNS {
        let rng = &mut Random::seed_from_u64(seed);
        let row = |path: &str| {
            format!(
                "     20.00           -20.0        0.00        \
                 perf-profile.calltrace.cycles-pp.{path}\n"
            )
        };
        let kept = 1 + below(rng, 4);
        let mut text: String = ROWS.iter().rev().take(kept).map(|path| row(path)).collect();
        let last = row(ROWS[below(rng, 4)]);
        let path = last.find("cycles-pp.").map_or(0, |at| at + "cycles-pp.".len());
        text.push_str(&last[..path + 1 + below(rng, last.len() - path - 1)]);
        let (report, found) = found(&text);
        let robot = report.robot.expect("a report of the robot");
        let takers: Vec<&str> = robot
            .paths
            .iter()
            .map(|row| {
                row.path
                    .iter()
                    .rev()
                    .find(|name| *name == "unlink_file_vma")
                    .map_or("?", String::as_str)
            })
            .collect();
        assert!(takers.iter().all(|taker| *taker != "?"), "seed {seed}: {:?}\n{text}", robot.paths);
        assert!(found.items.iter().all(|item| item.class == "i_mmap"), "seed {seed}\n{text}");
        let sum: f64 = robot.paths.iter().map(|row| row.before).sum();
        assert!((sum - 20.0).abs() < 0.2, "seed {seed}: {sum}\n{text}");
    }
}

#[test]
fn profiles_without_a_common_row_are_read_apart() {
    const BETWEEN: [&str; 4] = [
        "\n# Samples: 20K of event 'cycles'\n#\n# Overhead  Command  Shared Object  Symbol\n#\n",
        "\nWith the patch:\n\n",
        "\nAfter:\n\n",
        "\n   PerfTop:    7706 irqs/sec  kernel:13.3%  exact: 13.3%\n\n",
    ];
    for seed in 0..RUNS {
        let rng = &mut Random::seed_from_u64(seed);
        let ((before, _, first), (after, total, second)) = (stdio(rng), stdio(rng));
        // The second one has rows of other programs.
        let second = second.replace("  usemem  ", "  forker  ");
        let text = format!("{first}{}{second}", BETWEEN[below(rng, 4)]);
        let (report, found) = found(&quoted(rng, &text));
        let [other] = found.others.as_slice() else {
            panic!("seed {seed}: {:?}\n{text}", found.others)
        };
        assert!(report.notes.iter().any(|note| note.contains("another profile")), "{text}");
        let waits: u64 = after.iter().map(|drawn| drawn.weight).sum();
        let of_all = waits as f64 / total as f64;
        assert!(
            (other.of_all - of_all).abs() < 0.005,
            "seed {seed}: {} for {of_all}\n{text}",
            other.of_all
        );
        check(&text, &expected(&before), 0.5, &format!("seed {seed}"));
    }
}

#[test]
fn a_heading_with_dashes_is_no_function() {
    for seed in 0..RUNS {
        let rng = &mut Random::seed_from_u64(seed);
        let slow = 100 + below(rng, 300) as u64;
        let rows = |of: u64, names: [&str; 2]| {
            let row = |of: u64, name: &str| {
                format!(" {}%  swapper          [kernel.kallsyms]  [k] {name}\n", share(of))
            };
            row(of + 500, names[0]) + &row(of, names[1])
        };
        let what = ["10G", "ETH@1G", "Rx path,"][below(rng, 3)];
        let text = format!(
            "--- {what} before\n{}--- {what}: after\n{}",
            rows(slow, ["a_copy", "queued_spin_lock_slowpath"]),
            rows(200, ["b_copy", "c_clear"])
        );
        let (report, _) = found(&quoted(rng, &text));
        assert!(report.stacks.is_empty(), "seed {seed}: {:?}\n{text}", report.stacks);
        let spinning = report.spinning().expect("a lock");
        assert!((spinning.waits - slow as f64 / 10_000.0).abs() < 1e-9, "{spinning:?}\n{text}");
        assert_eq!(report.flat.len(), 2, "seed {seed}: {:?}\n{text}", report.flat);
    }
}

#[test]
fn callers_above_a_lock_that_is_not_shown_wait_for_an_unknown_one() {
    for seed in 0..RUNS {
        let rng = &mut Random::seed_from_u64(seed);
        let [known, inner, outer, rest] = [(); 4].map(|()| 20 + below(rng, 900) as u64);
        let all = known + inner + outer + rest;
        let gap = |columns: usize| " ".repeat(columns);
        let text = [
            format!("    {}%  a_task  [kernel.vmlinux]  [k] queued_spin_lock_slowpath", share(all)),
            gap(12) + "|",
            gap(12) + "---ret_from_fork",
            gap(15) + "kthread",
            gap(15) + "|",
            format!("{}--{}%--b_shrink", gap(16), share(all - rest)),
            gap(26) + "|",
            format!("{}--{}%--c_shrink_list", gap(27), share(known + inner)),
            gap(37) + "|",
            format!("{}--{}%--_raw_spin_lock_irqsave", gap(38), share(known)),
            gap(48) + "queued_spin_lock_slowpath\n",
        ]
        .join("\n");
        let (_, found) = found(&quoted(rng, &text));
        let of_all = found.of_all.expect("shares");
        assert!((of_all - all as f64 / 10_000.0).abs() < 1e-6, "seed {seed}: {of_all}\n{text}");
        let of = |name: Option<&str>| {
            let own =
                found.items.iter().filter(|item| item.path.last().map(String::as_str) == name);
            own.map(|item| item.weight).sum::<f64>() * 10_000.0
        };
        let taker = of(Some("c_shrink_list"));
        assert!((taker - known as f64).abs() < 0.01, "seed {seed}: {taker}\n{text}");
        assert!((of(None) - (all - known) as f64).abs() < 0.01, "seed {seed}\n{text}");
    }
}
