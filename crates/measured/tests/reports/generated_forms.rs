//! Generated texts of forms that mails and logs have in other languages and encodings, or cut.
//!
//! Strategy: paths and figures that are known, in a form of its own for each test.
//! Invariants: the locks, tasks and figures are those of the text.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::generated::{below, draw, quoted};
use crate::inputs::found;

type Random = Xoshiro256PlusPlus;

const RUNS: u64 = 600;

#[test]
fn rows_of_a_robot_have_any_sign_of_a_deviation() {
    const SIGNS: [&str; 6] = ["±", "ą", "Â±", "+-", "\u{fffd}", "+/-"];
    for seed in 0..RUNS {
        let rng = &mut Random::seed_from_u64(seed);
        let sign = SIGNS[below(rng, SIGNS.len())];
        let [before, after] = [(); 2].map(|()| (100 + below(rng, 4000)) as f64 / 100.0);
        let gap = ["", " ", "  "][below(rng, 3)];
        let text = format!(
            "     {before:.2} {sign}{gap}8%     {:+.1}       {after:.2} {sign}{gap}17%  \
             perf-profile.calltrace.cycles-pp.down_write_killable.vm_mmap_pgoff.do_syscall_64\n",
            after - before
        );
        let (report, found) = found(&quoted(rng, &text));
        let robot = report.robot.unwrap_or_else(|| panic!("seed {seed}: nothing\n{text}"));
        let sides = (robot.paths[0].before, robot.paths[0].after);
        assert_eq!(sides, (before, after), "seed {seed}\n{text}");
        assert_eq!(found.items[0].class, "mmap_lock");
    }
}

#[test]
fn a_label_below_the_headings_of_lockdep_is_no_row() {
    for seed in 0..RUNS {
        let rng = &mut Random::seed_from_u64(seed);
        let label = ["Before the patch:", "With 8 memcgs:", "BEFORE", "the base kernel:"];
        let (first, second) = (label[below(rng, 4)], label[below(rng, 4)]);
        let n = 1 + rng.next_u64() % 1_000_000;
        let row = |n: u64| {
            format!(
                "\n  &(&zone->lru_lock)->rlock:  176843  176913  0.23  31.09  {n}.72  1322312  \
                 3680197  0.00  45.20  6064010.97\n  -------\n  &(&zone->lru_lock)->rlock  71797  \
                 [<ffffffff810f25a8>] pagevec_lru_move_fn+0x6b/0xc2\n\n"
            )
        };
        let text = format!(
            "class name    con-bounces    contentions   waittime-min   waittime-max \
             waittime-total    acq-bounces   acquisitions   holdtime-min   holdtime-max \
             holdtime-total\n\n{first}\n{}{second}\n{}",
            row(n),
            row(n + 1)
        );
        let (report, found) = found(&quoted(rng, &text));
        let faults: Vec<_> = report.tables.iter().filter_map(|t| t.fault.as_ref()).collect();
        assert!(faults.is_empty(), "seed {seed}: {faults:?}\n{text}");
        assert_eq!(found.items[0].class, "lruvec", "seed {seed}\n{text}");
        assert_eq!(found.weight(), n as f64 * 1e3 + 720.0, "seed {seed}\n{text}");
    }
}

#[test]
fn a_log_may_be_in_another_language_or_typed_by_hand() {
    const STAMPS: [&str; 5] = [
        "6月 04 20:24:03 nixos kernel: ",
        "févr. 04 20:24:03 host kernel: ",
        "Mai 4 20:24:03 host kernel: ",
        "июн 04 20:24:03 host kernel: ",
        "",
    ];
    for seed in 0..RUNS {
        let rng = &mut Random::seed_from_u64(seed);
        let drawn = draw(rng, 1, 2);
        let stamp = STAMPS[below(rng, STAMPS.len())];
        let (call, typed) = (["Call Trace:", "call trace:"][below(rng, 2)], below(rng, 2) == 0);
        let switch = if typed { "__switch_to_0x104/0x1c8 (T)" } else { "__switch_to+0x104/0x1c8" };
        let mut text = "INFO: task swapper/0:1 blocked for more than 122 seconds.\n".to_owned();
        text.push_str(&format!("{call}\n {switch}\n __schedule+0x2c9/0x7f0\n"));
        text.extend(drawn.path.iter().map(|name| format!(" {name}+0x28/0x130\n")));
        let text: String = text.lines().map(|line| format!("{stamp}{line}\n")).collect();
        let found = found(&text).1;
        let who: Vec<&str> = found.items.iter().filter_map(|item| item.who.as_deref()).collect();
        assert_eq!(who, ["swapper/0:1, 122 s, hung task"], "seed {seed}\n{text}");
    }
}

#[test]
fn inlined_functions_of_a_lock_take_none() {
    for (lock, raw) in [("spin_lock", "_raw_spin_lock"), ("write_lock_irq", "_raw_write_lock_irq")]
    {
        let text = format!(
            "Call Trace:\n <NMI>\n </NMI>\n <IRQ>\n pv_wait arch/x86/a.h:596 [inline]\n \
             __pv_queued_spin_lock_slowpath+0x6ff/0xc60 kernel/a.c:511\n \
             pv_queued_spin_lock_slowpath arch/x86/a.h:584 [inline]\n \
             queued_spin_lock_slowpath+0x42/0x50 arch/a.h:51\n {raw}+0x1/0x2 kernel/a.c:154\n \
             {lock} include/linux/spinlock.h:351 [inline]\n a_tx_frame+0x97f/0x18d0 net/a.c:1805\n \
             b_tx+0x1cc/0x220 net/b.c:2200\n"
        );
        assert_eq!(found(&text).1.items[0].named(), "other lock in a_tx_frame", "{text}");
    }
}

#[test]
fn a_warning_of_lockdep_without_its_first_line_waits_for_nothing() {
    for seed in 0..RUNS {
        let rng = &mut Random::seed_from_u64(seed);
        let drawn = draw(rng, 1, 2);
        let frame = |name: &String| match below(&mut Random::seed_from_u64(seed), 2) {
            0 => format!("       {name}+0x28/0x130\n"),
            _ => format!("       {name}\n"),
        };
        let frames: String = drawn.path.iter().map(frame).collect();
        let text = format!(
            "is trying to acquire lock:\nffff8 (&n->list_lock){{-.-.}}-{{2:2}}, at: a_b ...\n\nbut \
             task is already holding lock:\nffff8 (&trie->lock){{-.-.}}-{{2:2}}, at: c_d ...\n\n\
             which lock already depends on the new lock.\n\nthe existing dependency chain (in \
             reverse order) is:\n\n-> #1 (&trie->lock){{-.-.}}-{{2:2}}:\n{frames}       ......\n\
             e_f+0x1/0x2\n"
        );
        let (report, found) = found(&quoted(rng, &text));
        assert!(found.items.is_empty(), "seed {seed}: {:?}\n{text}", found.items);
        assert_eq!(report.orders.len(), 1, "seed {seed}\n{text}");
    }
}

#[test]
fn units_and_blank_lines_are_inside_of_tables() {
    for seed in 0..RUNS {
        let rng = &mut Random::seed_from_u64(seed);
        let rows = 2 + below(rng, 4);
        let values: Vec<(u64, u64)> =
            (0..rows).map(|_| (1 + rng.next_u64() % 9000, 1 + rng.next_u64() % 9000)).collect();
        let gap = below(rng, rows);
        let middle = ["", "                (extending)     (extending)\n"][below(rng, 2)];
        let rule = ["", "-------------------------------------------\n"][below(rng, 2)];
        let mut text = format!("                unpatched       patched\n{middle}{rule}");
        text.push_str(&format!("{:>22}{:>16}\n", "MB/s", "MB/s"));
        for (at, (a, b)) in values.iter().enumerate() {
            let blank = if at == gap && at > 0 { "\n" } else { "" };
            text.push_str(&format!("{blank}test{at:<8}{a:>9}.50{b:>13}.25\n"));
        }
        let all = crate::comparisons::found(&quoted(rng, &text));
        assert_eq!(all.found.len(), rows, "seed {seed}: {all:#?}\n{text}");
        for (found, (a, b)) in all.found.iter().zip(&values) {
            assert_eq!(
                found.values,
                [[*a as f64 + 0.5], [*b as f64 + 0.25]],
                "seed {seed}\n{text}"
            );
            assert!(found.sides[0].starts_with("unpatched"), "seed {seed}: {:?}", found.sides);
        }
    }
}

#[test]
fn rows_of_a_robot_without_a_slow_path_show_no_wait() {
    const FAST: [&str; 4] = ["down_read", "down_write", "mutex_lock", "down_write_killable"];
    const SLOW: [&str; 4] = [
        "rwsem_down_read_slowpath",
        "rwsem_down_write_slowpath",
        "__mutex_lock",
        "rwsem_down_write_slowpath",
    ];
    for seed in 0..RUNS {
        let rng = &mut Random::seed_from_u64(seed);
        let row = |share: f64, path: &str| {
            format!(
                "      0.00           +{share:.1}       {share:5.2} ± 7%  \
                 perf-profile.calltrace.cycles-pp.{path}\n"
            )
        };
        let (mut text, mut fast, mut all) = (String::new(), 0.0, 0.0);
        for taker in 0..1 + below(rng, 4) {
            let (at, share) = (below(rng, 4), (100 + below(rng, 1500)) as f64 / 100.0);
            let path = format!("{}.a_taker{taker}.b_open.c_lookup", FAST[at]);
            text.push_str(&row(share, &path));
            match below(rng, 3) {
                0 => text.push_str(&row(share * 0.95, &format!("{}.{path}", SLOW[at]))),
                1 => {
                    text.push_str(&row(share * 0.2, &format!("{}.{path}", SLOW[at])));
                    fast += share;
                }
                _ => fast += share,
            }
            all += share;
        }
        text.push_str(&row(30.0, "up_read.a_taker0.b_open.c_lookup"));
        let (report, found) = found(&quoted(rng, &text));
        let robot = report.robot.expect("a report of the robot");
        let sum: f64 = robot.paths.iter().map(|row| row.after).sum();
        assert!((sum - all).abs() < 0.1, "seed {seed}: {sum} for {all}\n{text}");
        let share = fast / all;
        assert!((found.fast() - share).abs() < 0.01, "seed {seed}: {}\n{text}", found.fast());
    }
}

#[test]
fn figures_with_a_power_of_a_thousand_have_its_unit() {
    const UNITS: [(&str, &str); 6] = [
        ("M/s", "/s"),
        ("K/s", "/s"),
        ("Mops/s", "ops/s"),
        ("kops", "ops"),
        (" Mops/s", "ops/s"),
        ("G/s", "/s"),
    ];
    for seed in 0..RUNS {
        let rng = &mut Random::seed_from_u64(seed);
        let (written, unit) = UNITS[below(rng, UNITS.len())];
        let factor = match written.trim().as_bytes()[0] {
            b'M' => 1e6,
            b'G' => 1e9,
            _ => 1e3,
        };
        let rows = 2 + below(rng, 4);
        let values: Vec<(u64, u64)> =
            (0..rows).map(|_| (100 + rng.next_u64() % 900, 100 + rng.next_u64() % 900)).collect();
        let (one, two) = match below(rng, 2) {
            0 => ("1 kernel, 24 tasks", "2 kernels, 12+12 tasks"),
            _ => ("stock", "other"),
        };
        let mut text = format!("| Test | {one} | {two} | Ratio |\n|---|---|---|---|\n");
        for (at, (a, b)) in values.iter().enumerate() {
            let ratio = *b as f64 / *a as f64;
            let bold = ["", "**"][below(rng, 2)];
            text.push_str(&format!(
                "| test{at} | {a}{written} | {bold}{b}{written}{bold} | {bold}{ratio:.2}x{bold} |\n"
            ));
        }
        let all = crate::comparisons::found(&quoted(rng, &text));
        assert_eq!(all.found.len(), rows, "seed {seed}: {all:#?}\n{text}");
        for (found, (a, b)) in all.found.iter().zip(&values) {
            assert_eq!(found.sides, [one, two], "seed {seed}\n{text}");
            assert_eq!(found.unit, unit, "seed {seed}\n{text}");
            let right = [[*a as f64 * factor], [*b as f64 * factor]];
            assert_eq!(found.values, right, "seed {seed}\n{text}");
        }
    }
}

#[test]
fn words_may_be_before_the_line_of_an_owner() {
    const WORDS: [&str; 4] = [
        "",
        "\n",
        "\nwhich the worker owns, and that waits for memory\n\n",
        "\nThe owner of it:\n\n[..]\n",
    ];
    for seed in 0..RUNS {
        let rng = &mut Random::seed_from_u64(seed);
        let (waiter, owner) = (100 + below(rng, 900), 1000 + below(rng, 900));
        let text = format!(
            "INFO: task ring:{waiter} blocked for more than 122 seconds.\n\
             task:ring state:D stack:0 pid:{waiter} ppid:2 flags:0x00000008\nCall trace:\n \
             __switch_to+0x108/0x208\n schedule+0x544/0x11f0\n __mutex_lock_common+0x410/0x850\n \
             mutex_lock+0x5c/0x90\n a_run+0x9c/0x140\n kthread+0x114/0x138\n{}\
             INFO: task ring:{waiter} is blocked on a mutex likely owned by task worker:{owner}.\n\
             task:worker state:D stack:0 pid:{owner} ppid:2 flags:0x00000008\nCall trace:\n \
             __switch_to+0x108/0x208\n schedule+0x544/0x11f0\n a_fence_wait+0x6c/0x1c0\n",
            WORDS[below(rng, 4)]
        );
        let (_, found) = found(&quoted(rng, &text));
        let waits: Vec<&str> = found.items.iter().filter_map(|item| item.who.as_deref()).collect();
        let [one] = waits[..] else { panic!("seed {seed}: {waits:?}\n{text}") };
        assert!(one.contains(&format!("ring:{waiter}")), "seed {seed}: {one}\n{text}");
        let holders: Vec<&str> = found.holders.iter().map(|holder| holder.who.as_str()).collect();
        assert_eq!(holders, [format!("worker:{owner}")], "seed {seed}\n{text}");
    }
}

#[test]
fn a_mail_program_may_break_the_lines_of_a_warning_of_lockdep() {
    for seed in 0..RUNS {
        let rng = &mut Random::seed_from_u64(seed);
        let mut gap = || [" ", "\n", "\n "][below(rng, 3)];
        let text = [
            format!("kswapd0/{seed} is trying to acquire lock:"),
            format!("ffff88811346a920{}(&a->lock){{++++}}-{{4:4}}, at:", gap())
                + &format!("{}a_reclaim+0x3ac/0x590{}[ext9]\n", gap(), gap()),
            "but task is already holding lock:".to_owned(),
            format!(
                "ffffffff8bb33100 (fs_reclaim){{+.+.}}-{{0:0}}, at:{}b_pgdat+0x5d9/0xad0",
                gap()
            ),
            "\nwhich lock already depends on the new lock.\n".to_owned(),
            "the existing dependency chain (in reverse order) is:".to_owned(),
            "-> #1 (fs_reclaim){+.+.}-{0:0}:\n       lock_acquire+0x15d/0x400".to_owned(),
            "       c_alloc+0xb5/0x100\n".to_owned(),
        ]
        .join("\n");
        let (report, found) = found(&text);
        assert!(found.items.is_empty(), "seed {seed}: {:?}\n{text}", found.items);
        let [order] = report.orders.as_slice() else {
            panic!("seed {seed}: {:?}\n{text}", report.orders)
        };
        let right = ("&a->lock".to_owned(), "a_reclaim".to_owned());
        assert_eq!((&order.wanted, order.held.as_deref()), (&right, Some("fs_reclaim")), "{text}");
    }
}

#[test]
fn a_blocked_task_of_an_old_kernel_needs_no_line_before_it() {
    for seed in 0..RUNS {
        let rng = &mut Random::seed_from_u64(seed);
        let (pid, stamp) = (100 + below(rng, 9000), ["", "[  160.435539] "][below(rng, 2)]);
        let state = ["D", "S"][below(rng, 2)];
        let text = format!(
            "aio_test  {state}    0  {pid}   1474 0x00004000\nCall Trace:\n schedule+0x33/0x90\n \
             schedule_preempt_disabled+0xa/0x10\n __mutex_lock.isra.0+0x25a/0x4b0\n \
             a_check+0x66a/0xa80 [a]\n b_fault+0x1d2/0x360\n"
        );
        let text: String = text.lines().map(|line| format!("{stamp}{line}\n")).collect();
        let (_, found) = found(&quoted(rng, &text));
        let places: Vec<_> = found.items.iter().filter_map(|item| item.path.last()).collect();
        assert_eq!(places, ["a_check"], "seed {seed}\n{text}");
        if state == "D" {
            let who = found.items[0].who.as_deref();
            assert_eq!(
                who,
                Some(format!("aio_test:{pid}, blocked").as_str()),
                "seed {seed}\n{text}"
            );
        }
    }
}
