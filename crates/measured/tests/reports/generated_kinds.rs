//! Generated texts of forms that mail programs and authors make: trees broken within their lines,
//! profiles of several events, two profiles in one text, contexts of interrupts, turned tables.
//!
//! Strategy: trees, stacks and tables of known shares, as in `generated`, changed as their form
//! does it. Invariants: the shares are those of the text; a further profile is read apart from the
//! first; a function that takes several locks determines none of them.

use std::collections::BTreeMap;

use mmscale_measured::{Basis, read, resemble};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::generated::{Drawn, below, check, draw, expected, quoted, tree};
use crate::inputs::{found, shares};

type Random = Xoshiro256PlusPlus;

const RUNS: u64 = 600;

/// Draws a tree with the lines of `perf report --stdio`, whose shares are of all samples.
pub(crate) fn stdio(rng: &mut Random) -> (Vec<Drawn>, u64, String) {
    loop {
        let all: Vec<Drawn> = (0..1 + below(rng, 5)).map(|_| draw(rng, 300, 3000)).collect();
        let sum: u64 = all.iter().map(|drawn| drawn.weight).sum();
        let total = sum + rng.next_u64() % sum;
        let (text, what) = tree(rng, &all, total);
        if ["callee", "caller"].contains(&what) {
            return (all, total, text);
        }
    }
}

/// Breaks lines of a tree between their bars and what follows them, as mail programs do.
fn broken(rng: &mut Random, text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let mark = line.find("|--").or_else(|| line.find("--").filter(|at| *at > 8));
        let name = line.rfind(' ').map(|at| at + 1).filter(|_| !line.contains("--"));
        let at = mark.or(name).unwrap_or(0);
        let bars = &line[..at];
        let is_bars = bars.len() > 12 && bars.bytes().all(|byte| b"| ".contains(&byte));
        let has_bar = bars.trim_start().starts_with('|');
        let first = bars.len() - bars.trim_start().len();
        let rest_has_name = line[at..].contains('_');
        if is_bars && has_bar && first > 6 && rest_has_name && below(rng, 3) == 0 {
            out.push_str(&format!("{}\n{}\n", &bars[..bars.len() - 1], &line[at..]));
        } else {
            out.push_str(&format!("{line}\n"));
        }
    }
    out
}

#[test]
fn trees_that_a_mail_program_broke_have_their_shares() {
    let mut count = 0;
    for seed in 0..RUNS {
        let rng = &mut Random::seed_from_u64(seed);
        let (all, _, text) = stdio(rng);
        let cut = broken(rng, &text);
        count += u64::from(cut != text);
        check(&quoted(rng, &cut), &expected(&all), 0.5, &format!("seed {seed}"));
    }
    assert!(count > RUNS / 4, "{count} of {RUNS} are broken");
}

#[test]
fn of_several_events_the_first_counts() {
    for seed in 0..RUNS {
        let rng = &mut Random::seed_from_u64(seed);
        let (all, _, text) = stdio(rng);
        let events = 2 + below(rng, 2);
        let names = ["cycles", "instructions", "cache-misses"][..events].join(", ");
        let mut grouped = match below(rng, 2) {
            0 => format!("# Samples: 20K of events 'anon group {{ {names} }}'\n#\n"),
            _ => format!("# Samples: 20K of events '{names}'\n#\n"),
        };
        for line in text.lines() {
            let mut parts: Vec<String> = line.splitn(2, "%  ").map(str::to_owned).collect();
            if parts.len() == 2 && line.contains("[k]") {
                // With callees, each event has two shares.
                let own = parts[1].trim_start().split_once("%  ").is_some();
                let more: String = (1..events)
                    .map(|_| format!("{:>9.2}%", below(rng, 10_000) as f64 / 100.0))
                    .collect();
                let rest = parts.pop().unwrap_or_default();
                let rest = match (own, rest.split_once("%  ")) {
                    (true, Some((share, rest))) => format!("{share}%{more}  {rest}"),
                    _ => rest,
                };
                grouped.push_str(&format!("{}%{more}  {rest}\n", parts[0]));
            } else {
                grouped.push_str(&format!("{line}\n"));
            }
        }
        check(&grouped, &expected(&all), 0.5, &format!("seed {seed}"));
        let report = read(grouped.as_bytes()).unwrap();
        assert!(report.notes.iter().any(|note| note.contains("only cycles")), "{:?}", report.notes);
    }
}

#[test]
fn a_second_profile_is_read_apart_from_the_first() {
    let mut seen = 0;
    for seed in 0..RUNS {
        let rng = &mut Random::seed_from_u64(seed);
        let ((before, _, first), (after, total, second)) = (stdio(rng), stdio(rng));
        let between = ["", "\n", "\nWith the patch:\n\n"][below(rng, 3)];
        let text = format!("{first}{between}{second}");
        let (report, found) = found(&text);
        // Without a function that both have, nothing shows where the second begins.
        let [other] = found.others.as_slice() else { continue };
        if report.notes.iter().all(|note| !note.contains("another profile")) {
            panic!("seed {seed}: no note\n{text}");
        }
        let waits: u64 = after.iter().map(|drawn| drawn.weight).sum();
        let of_all = waits as f64 / total as f64;
        // The whole of both has one profile only if its largest row is known in the first.
        if (other.of_all - of_all).abs() > 0.005 {
            continue;
        }
        seen += 1;
        let right: BTreeMap<String, f64> = expected(&after);
        for (lock, share) in &other.locks {
            if let Some(right) = right.get(lock.as_str()) {
                assert!(
                    (right / 100.0 - share).abs() < 0.01,
                    "seed {seed}: {lock} {share}\n{text}"
                );
            }
        }
        check(&text, &expected(&before), 0.5, &format!("seed {seed}"));
    }
    assert!(seen > RUNS / 3, "{seen} of {RUNS} have two profiles");
}

#[test]
fn the_context_that_prints_a_stack_is_left_out() {
    const PRINTED: [[&str; 4]; 2] = [
        ["dump_stack", "watchdog_overflow_callback", "__perf_event_overflow", "do_nmi"],
        // Frames of which the kernel is not sure.
        ["? a_timer", "? __hrtimer_run_queues", "? hrtimer_interrupt", "? sysvec_apic_timer"],
    ];
    for seed in 0..RUNS {
        let rng = &mut Random::seed_from_u64(seed);
        let drawn = draw(rng, 1, 2);
        let (begin, end) =
            [("<NMI>", "<<EOE>>"), ("<NMI>", "</NMI>"), ("<NMI>", "<EOE>"), ("<IRQ>", "</IRQ>")]
                [below(rng, 4)];
        let own_line = below(rng, 2) == 0;
        let mut text = String::new();
        let mut mark: Option<&str> = Some(begin);
        let unsure = below(rng, 2);
        let printed = PRINTED[unsure].iter().copied();
        let frames = printed.chain((unsure == 0).then_some("_raw_spin_lock"));
        let frames = frames.map(|name| (name, false));
        let frames = frames.chain(drawn.path.iter().map(|name| (name.as_str(), true)));
        let mut is_outer = false;
        for (name, outer) in frames {
            if outer && !is_outer {
                (is_outer, mark) = (true, Some(end));
            }
            let (mark_of, name) = name.strip_prefix("? ").map_or(("", name), |name| ("? ", name));
            let frame = format!("[<ffffffff8b5d4df8>] {mark_of}{name}+0x28/0x130");
            match mark.take() {
                Some(mark) if own_line => text.push_str(&format!(" {mark}\n {frame}\n")),
                Some(mark) => text.push_str(&format!(" {mark}  {frame}\n")),
                None => text.push_str(&format!(" {frame}\n")),
            }
        }
        let text = match below(rng, 3) {
            0 => text,
            1 => format!("Call Trace:\n{text}"),
            _ => text.lines().map(|line| format!("[  312.018466] {line}\n")).collect(),
        };
        check(&text, &expected(&[drawn]), 1e-6, &format!("seed {seed}"));
    }
}

#[test]
fn a_turned_table_of_lockdep_has_its_sides() {
    for seed in 0..RUNS {
        let rng = &mut Random::seed_from_u64(seed);
        let lock = ["&zone->lock", "&counter->lock", "&mm->mmap_lock-R"][below(rng, 3)];
        let sides = 1 + below(rng, 3);
        let waits: Vec<u64> = (0..sides).map(|_| 1 + rng.next_u64() % 100_000_000).collect();
        let row = |name: &str, values: &[String]| {
            let cells: String = values.iter().map(|value| format!("{value:<22}")).collect();
            format!("{name:<16} {cells}\n")
        };
        let of =
            |unit: fn(u64) -> String| -> Vec<String> { waits.iter().map(|n| unit(*n)).collect() };
        let text = row("", &["Before", "After", "Both"][..sides].map_names())
            + &row("class name", &vec![format!("{lock}:"); sides])
            + &row("con-bounces", &of(|n| (n / 3).to_string()))
            + &row("contentions", &of(|n| (n / 2).to_string()))
            + &row("waittime-max", &of(|n| format!("{}.{:02}", n / 700, n % 100)))
            + &row("waittime-total", &of(|n| format!("{}.{:02}", n / 100, n % 100)))
            + &row("acquisitions", &of(|n| n.to_string()));
        let text = quoted(rng, &text);
        let report = read(text.as_bytes()).unwrap();
        let [table] = report.tables.as_slice() else { panic!("seed {seed}: {text}") };
        let totals: Vec<Option<u64>> = table.waits.iter().map(|wait| wait.wait_total_ns).collect();
        let right: Vec<Option<u64>> = waits.iter().map(|n| Some(n * 10)).collect();
        assert_eq!(totals, right, "seed {seed}\n{text}");
        let names: Vec<Option<&str>> =
            table.waits.iter().map(|wait| wait.lock.as_deref()).collect();
        assert_eq!(names, vec![Some(lock); sides], "seed {seed}");
    }
}

/// Owned names.
trait MapNames {
    fn map_names(&self) -> Vec<String>;
}

impl MapNames for [&str] {
    fn map_names(&self) -> Vec<String> {
        self.iter().map(|name| (*name).to_owned()).collect()
    }
}

#[test]
fn a_function_of_several_locks_determines_none() {
    let of = |frames: &[&str]| -> String {
        let text: String = frames.iter().map(|name| format!(" {name}+0x1/0x20\n")).collect();
        let text = format!("RIP: 0010:native_queued_spin_lock_slowpath+0x1/0x2\n{text}");
        found(&text).1.items[0].named()
    };
    let cid = of(&["_raw_spin_lock", "__schedule", "schedule", "do_nanosleep"]);
    assert_eq!(cid, "other lock rq->__lock or the lock of mm_cid in __schedule");
    assert!(of(&["_raw_spin_lock_irq", "__schedule", "schedule"]).starts_with("runqueue"));
    let wake = of(&["_raw_spin_lock_irqsave", "try_to_wake_up", "wake_up_q", "futex_wake"]);
    assert_eq!(wake, "other lock p->pi_lock in try_to_wake_up");
    assert!(of(&["_raw_spin_lock", "try_to_wake_up", "wake_up_q"]).starts_with("runqueue"));
    let callers = [
        "rwsem_optimistic_spin",
        "rwsem_down_write_slowpath",
        "down_write",
        "dup_mmap",
        "copy_process",
    ];
    let callers: String = callers.iter().map(|name| format!("               {name}\n")).collect();
    let fork = format!(
        "    80.00%  a  [kernel]  [k] osq_lock\n            |\n            ---osq_lock\n{callers}"
    );
    assert_eq!(found(&fork).1.items[0].named(), "rwsem lock i_mmap_rwsem or mmap_lock in dup_mmap");
    let killable = fork.replace("down_write\n", "down_write_killable\n");
    assert_eq!(shares(&killable)[0].0, "mmap_lock");
    let table = " contended   total wait     max wait     avg wait         type   caller\n\n\
                 \x20     100      1.00 ms     10.00 us     10.00 us     spinlock   \
                 try_to_wake_up+0x7c\n";
    let report = read(table.as_bytes()).unwrap();
    let found = resemble(&report, &report.tables.iter().collect::<Vec<_>>());
    assert_eq!(found.basis, Basis::Waits);
    assert_eq!(found.items[0].named(), "other lock p->pi_lock or rq->__lock in try_to_wake_up");
}

#[test]
fn tables_of_several_measurements_have_no_sum() {
    for seed in 0..RUNS {
        let rng = &mut Random::seed_from_u64(seed);
        let row = |n: u64, function: &str| {
            format!(
                "{:>11} {:>11}.00 us {n:>9}.00 us {n:>9}.00 us        mutex   {function}+0x39\n",
                2, n
            )
        };
        let heading = " contended   total wait     max wait     avg wait         type   caller\n\n";
        let [a, b, c] = [(); 3].map(|()| 1 + rng.next_u64() % 10_000);
        let text = format!(
            "{heading}{}{}\nThe same by another command:\n\n{heading}{}",
            row(a, "a_exit"),
            row(b, "b_exit"),
            row(c, "a_exit")
        );
        let (report, found) = found(&quoted(rng, &text));
        assert_eq!(report.tables.len(), 2, "seed {seed}\n{text}");
        let share = found.items.iter().find(|item| item.path == ["a_exit"]).unwrap().weight;
        let right = a as f64 / (a + b) as f64;
        assert!((share / found.weight() - right).abs() < 1e-9, "seed {seed}\n{text}");
        assert_eq!(found.others.len(), 1, "seed {seed}");
        assert_eq!(found.others[0].locks, [("mutex lock in a_exit".to_owned(), 1.0)]);
    }
}

#[test]
fn of_a_diff_of_lockdep_the_first_file_counts() {
    for seed in 0..RUNS {
        let rng = &mut Random::seed_from_u64(seed);
        let line = |sign: char, lock: &str, n: u64| {
            format!(
                "{sign}   {lock}:     4642      7231     57.00   109595.18  {n}.93   7484   \
                 16093    2.41   2276.98    94821.51\n"
            )
        };
        let [write, read, other] = [(); 3].map(|()| 1 + rng.next_u64() % 1_000_000);
        let text = format!(
            " class name    con-bounces    contentions   waittime-min   waittime-max   \
             waittime-total   acq-bounces   acquisitions   holdtime-min   holdtime-max   \
             holdtime-total\n ------\n{}{}{}",
            line('-', "&mm->mmap_sem-W", write),
            line('-', "&mm->mmap_sem-R", read),
            line('+', "&mm->mmap_sem-W", other)
        );
        let (report, found) = found(&text);
        assert_eq!(shares(&text), [("mmap_lock".to_owned(), 100.0)], "seed {seed}\n{text}");
        let sum = (write + read) as f64 * 1e3 + 2.0 * 930.0;
        assert!((found.weight() - sum).abs() < 10.0, "seed {seed}: {}", found.weight());
        assert!(report.tables[0].notes[0].contains("another file"), "seed {seed}");
    }
}

#[test]
fn the_name_of_a_lock_alone_names_no_study_of_the_lru_lists() {
    let text = "class name con-bounces contentions waittime-min waittime-max waittime-total \
                acq-bounces acquisitions holdtime-min holdtime-max holdtime-total\n\
                &(&zone->lru_lock)->rlock: 4872501 4882517 0.23 106.26 42040610.52 29395780 \
                35129035 0.00 69.07 125609975.67\n";
    let (_, found) = found(text);
    assert_eq!((found.items[0].class.as_str(), found.best()), ("lruvec", None));
}

#[test]
fn the_interrupt_that_prints_a_stack_without_marks_is_left_out() {
    const INTERRUPT: [&str; 7] = [
        "dump_backtrace",
        "show_stack",
        "sched_show_task",
        "dump_cpu_task",
        "rcu_dump_cpu_stacks",
        "update_process_times",
        "hrtimer_interrupt",
    ];
    for seed in 0..RUNS {
        let rng = &mut Random::seed_from_u64(seed);
        let drawn = draw(rng, 1, 2);
        let entry = ["el1_irq", "asm_sysvec_apic_timer_interrupt", "__irq_svc", "ret_from_intr"]
            [below(rng, 4)];
        let names = INTERRUPT.iter().copied().chain([entry]);
        let names = names.chain(drawn.path.iter().map(String::as_str));
        let head = ["Task dump for CPU 0:\n", ""][below(rng, 2)];
        let frames: String = names.map(|name| format!(" {name}+0x28/0x130\n")).collect();
        let text = format!("{head}Call trace:\n{frames}");
        let text = match below(rng, 2) {
            0 => text,
            _ => text.lines().map(|line| format!("[  312.018466] {line}\n")).collect(),
        };
        check(&text, &expected(&[drawn]), 1e-6, &format!("seed {seed}"));
    }
}

#[test]
fn a_stack_of_crash_may_have_marks_and_remarks() {
    for seed in 0..RUNS {
        let rng = &mut Random::seed_from_u64(seed);
        let drawn = draw(rng, 1, 2);
        let mut text = "PID: 3669   TASK: ffff88aef892c000  CPU: 28  COMMAND: \"kworker/28:0\"\n \
                        #0 [fffffe0000549e38] crash_nmi_callback at ffffffff810e3a34\n \
                        #1 [fffffe0000549ef0] end_repeat_nmi at ffffffff82e016b4\n"
            .to_owned();
        text.push_str(&format!("    [exception RIP: {}+1291]\n", drawn.path[0]));
        text.push_str("    RIP: ffffffff8127e72b  RSP: ffff88aa841ef778  RFLAGS: 00000046\n");
        text.push_str("    ORIG_RAX: ffffffffffffffff  CS: 0010  SS: 0000\n");
        text.push_str(["--- <NMI exception stack> ---\n", "--- <IRQ stack> ---\n"][below(rng, 2)]);
        let remarked = below(rng, drawn.path.len());
        for (at, name) in drawn.path.iter().enumerate() {
            let remark = if at == remarked { "-------- it waits here" } else { "" };
            let module = ["", " [ceph]"][below(rng, 2)];
            text.push_str(&format!(
                " #{} [ffff88aa841ef778] {name} at ffffffff8127e72b{module}{}{remark}\n",
                at + 5,
                if module.is_empty() && !remark.is_empty() { "  " } else { "" },
            ));
        }
        check(&quoted(rng, &text), &expected(&[drawn]), 1e-6, &format!("seed {seed}"));
    }
}

#[test]
fn a_crash_in_the_function_of_a_lock_waits_for_nothing() {
    const HEADS: [&str; 4] = [
        "BUG: KASAN: use-after-free in _raw_spin_lock_bh+0x78/0xe0",
        "BUG: unable to handle page fault for address: ffffffff8f220860",
        "general protection fault, probably for non-canonical address 0xdead: 0000 [#1] SMP",
        "WARNING: CPU: 2 PID: 4088 at kernel/a.c:12 a_b+0x1/0x2",
    ];
    for seed in 0..RUNS {
        let rng = &mut Random::seed_from_u64(seed);
        let (crash, wait) = (draw(rng, 1, 2), draw(rng, 1, 2));
        let frames = |drawn: &Drawn, from: usize| -> String {
            drawn.path[from..].iter().map(|name| format!(" {name}+0x28/0x130\n")).collect()
        };
        let registers = below(rng, 2) == 0;
        let mut text = format!("{}\n", HEADS[below(rng, 4)]);
        if registers {
            text.push_str("CPU: 1 PID: 0 Comm: swapper/1 Kdump: loaded Tainted: G S 5.10.0 #23\n");
            text.push_str(&format!("RIP: 0010:{}+0x176/0x1b0\n", crash.path[0]));
        }
        text.push_str(&format!("Call Trace:\n <TASK>\n{} </TASK>\n", frames(&crash, 0)));
        let also = below(rng, 2) == 0;
        if also {
            text.push_str("\nwatchdog: BUG: soft lockup - CPU#3 stuck for 22s! [b:7]\n");
            text.push_str("CPU: 3 PID: 7 Comm: b Not tainted 6.12.0 #1\n");
            text.push_str(&format!("RIP: 0010:{}+0x88/0x300\n", wait.path[0]));
            text.push_str(&format!("Call Trace:\n <TASK>\n{} </TASK>\n", frames(&wait, 1)));
        }
        let text = match below(rng, 2) {
            0 => text,
            _ => text.lines().map(|line| format!("[  312.018466] {line}\n")).collect(),
        };
        let waits = if also { expected(&[wait]) } else { BTreeMap::new() };
        check(&text, &waits, 1e-6, &format!("seed {seed}"));
        assert_eq!(found(&text).1.items.len(), usize::from(also), "seed {seed}\n{text}");
    }
}

#[test]
fn where_lockdep_saw_a_lock_nothing_waits() {
    let text = ".. which became HARDIRQ-irq-unsafe at:\n..\n  \
                lock_acquire kernel/locking/lockdep.c:5754 [inline]\n  \
                lock_acquire+0x1b1/0x540 kernel/locking/lockdep.c:5719\n  \
                _raw_spin_lock_bh+0x33/0x40 kernel/locking/spinlock.c:178\n  \
                a_delete_elem+0xcb/0x260 net/core/a.c:939\n  b_run+0x179/0x460 kernel/b.c:2422\n";
    assert!(found(text).1.items.is_empty());
}

#[test]
fn a_mark_of_rows_that_were_left_out_ends_no_tree() {
    const MARKS: [&str; 6] = ["...", "....", "......", "[...]", "<snip>", "\n[...]\n"];
    let mut count = 0;
    for seed in 0..RUNS {
        let rng = &mut Random::seed_from_u64(seed);
        let (all, _, text) = stdio(rng);
        let mut marked = String::new();
        for line in text.lines() {
            if line.contains("%--") && marked.contains("--") && below(rng, 2) == 0 {
                marked.push_str(&format!("{}\n", MARKS[below(rng, MARKS.len())]));
                count += 1;
            }
            marked.push_str(&format!("{line}\n"));
        }
        check(&quoted(rng, &marked), &expected(&all), 0.5, &format!("seed {seed}"));
    }
    assert!(count > RUNS / 4, "{count} marks in {RUNS} texts");
}

#[test]
fn samples_in_functions_that_take_a_lock_show_no_wait() {
    const FAST: [&str; 5] =
        ["down_read", "down_write_killable", "mutex_lock", "down_read_killable", "down_write"];
    const RCU: [&str; 4] =
        ["__rcu_read_lock", "rcu_read_lock", "srcu_read_lock", "__srcu_read_lock"];
    for seed in 0..RUNS {
        let rng = &mut Random::seed_from_u64(seed);
        let [fast, slow, rcu] = [(); 3].map(|()| 100 + below(rng, 2000) as u64);
        let share = |n: u64| format!("{}.{:02}", n / 100, n % 100);
        let lock = FAST[below(rng, FAST.len())];
        let text = format!(
            "- 99.00% a_call\n   - {}% b_open\n      - down_read\n           \
             rwsem_down_read_slowpath\n   - {}% c_find\n        {}\n   - {}% \
             d_exit\n        {lock}\n",
            share(slow),
            share(rcu),
            RCU[below(rng, RCU.len())],
            share(fast)
        );
        let (_, found) = found(&quoted(rng, &text));
        let places: Vec<&str> =
            found.items.iter().filter_map(|item| item.path.last()).map(String::as_str).collect();
        assert!(!places.contains(&"c_find"), "seed {seed}: {places:?}\n{text}");
        let right = fast as f64 / (fast + slow) as f64;
        assert!((found.fast() - right).abs() < 1e-6, "seed {seed}: {}\n{text}", found.fast());
        // What a task does when it leaves the CPU is a wait.
        let sleeps = text
            .replace(&format!("        {lock}\n"), &format!("        {lock}\n        schedule\n"));
        assert!(self::found(&sleeps).1.fast() < 1e-9, "seed {seed}\n{sleeps}");
    }
}

#[test]
fn memory_between_the_frames_of_crash_cuts_no_stack() {
    for seed in 0..RUNS {
        let rng = &mut Random::seed_from_u64(seed);
        let drawn = draw(rng, 1, 2);
        let mut text =
            "PID: 34685  TASK: ffffa6d08c22ec00  CPU: 44  COMMAND: \"find\"\n".to_owned();
        for (at, name) in drawn.path.iter().enumerate() {
            text.push_str(&format!(" #{at} [ffff000060f2f970] {name} at ffff55d931ac74b8\n"));
            for line in 0..below(rng, 4) {
                let remark = ["", "", "[lock_flags]"][below(rng, 3)];
                text.push_str(&format!(
                    "    ffff000060f2f9{line}0: {:016x}{remark} ffff55d9323960f8\n",
                    rng.next_u64()
                ));
            }
        }
        check(&quoted(rng, &text), &expected(&[drawn]), 1e-6, &format!("seed {seed}"));
    }
}

#[test]
fn a_task_that_is_printed_twice_counts_once() {
    for seed in 0..RUNS {
        let rng = &mut Random::seed_from_u64(seed);
        let drawn = draw(rng, 1, 2);
        let head = |task: u32| {
            format!("CPU: 32 PID: {task} Comm: fork12 Kdump: loaded Tainted: G S 5.10.0+ #1\n")
        };
        let frames: String =
            drawn.path[1..].iter().map(|name| format!(" {name}+0x28/0x130\n")).collect();
        let register = format!("RIP: 0010:{}+0x4d/0x80\n", drawn.path[0]);
        let second = [1_151_212, 7][below(rng, 2)];
        let text = format!(
            "NMI watchdog: Watchdog detected hard LOCKUP on cpu 32\n{}{register}Call Trace:\n\
             {frames}Kernel panic - not syncing: Hard LOCKUP\n{}Call Trace:\n <NMI>\n \
             dump_stack+0x77/0x97\n panic+0x10c/0x2fb\n{register} </NMI>\n{frames}",
            head(1_151_212),
            head(second)
        );
        let text: String = text.lines().map(|line| format!("[348439.713178] {line}\n")).collect();
        let tasks = if second == 7 { 2 } else { 1 };
        assert_eq!(found(&text).1.items.len(), tasks, "seed {seed}\n{text}");
    }
}

/// Breaks lines of a tree as mail programs do that put the rest into the first column: at the
/// dashes of a branch, behind the bars, or where a line has no bar. `all` is the number of lines of
/// which one is broken.
fn broken_left(rng: &mut Random, text: &str, all: usize) -> String {
    let mut out = String::new();
    // A line without bars is restored only if others show that the tree is broken.
    let mut is_known = false;
    for line in text.lines() {
        let bars = line.len() - line.trim_start_matches(['|', ' ']).len();
        let (inner, rest) = (&line[..bars], &line[bars..]);
        let branch = rest.strip_prefix("--").and_then(|rest| rest.split_once("%--"));
        let has_bar = inner.trim_start().starts_with('|');
        match branch {
            Some((share, name)) if bars > 12 && below(rng, all) == 0 => match below(rng, 3) {
                0 => out.push_str(&format!("{inner}--{share}%\n--{name}\n")),
                1 => out.push_str(&format!("{inner}--{share}%-\n-{name}\n")),
                // The bars of the branch itself precede it.
                _ if has_bar && !inner.ends_with('|') => {
                    is_known = true;
                    out.push_str(&format!("{}\n{rest}\n", inner.trim_end()));
                }
                _ if is_known && !has_bar => out.push_str(&format!("\n{rest}\n")),
                _ => out.push_str(&format!("{line}\n")),
            },
            _ => {
                is_known &= !line.trim().is_empty();
                out.push_str(&format!("{line}\n"));
            }
        }
    }
    out
}

#[test]
fn trees_that_a_mail_program_broke_in_the_first_column_have_their_shares() {
    let mut count = 0;
    for seed in 0..RUNS {
        let rng = &mut Random::seed_from_u64(seed);
        let (all, _, text) = stdio(rng);
        let cut = broken_left(rng, &text, 2);
        count += u64::from(cut != text);
        check(&quoted(rng, &cut), &expected(&all), 0.5, &format!("seed {seed}"));
    }
    assert!(count > RUNS / 4, "{count} of {RUNS} are broken");
}

#[test]
fn a_tree_without_its_structure_has_no_shares() {
    let mut count = 0;
    for seed in 0..RUNS {
        let rng = &mut Random::seed_from_u64(seed);
        let (_, _, text) = stdio(rng);
        let rows: Vec<usize> = text
            .lines()
            .enumerate()
            .filter(|(_, line)| line.contains("--") && !line.contains("---") && line.len() > 20)
            .map(|(at, _)| at)
            .collect();
        let Some(torn) = rows.get(1..).filter(|rows| !rows.is_empty()) else { continue };
        let torn = torn[below(rng, torn.len())];
        let line = |(at, line): (usize, &str)| match at == torn {
            true => format!("{}\n", line.trim_start_matches(['|', ' '])),
            false => format!("{line}\n"),
        };
        let text: String = text.lines().enumerate().map(line).collect();
        // The bars before it may show where it belongs.
        let bars = text.lines().nth(torn - 1).is_some_and(|line| !line.trim().is_empty());
        let (report, found) = found(&text);
        let is_said = report.notes.iter().any(|note| note.contains("broke this tree"));
        let restored = bars && found.basis == Basis::Samples;
        assert!(is_said || restored, "seed {seed}: {:?}\n{text}", report.notes);
        count += u64::from(is_said);
    }
    assert!(count > 0);
}

#[test]
fn samples_of_collapsed_callers_have_an_unknown_lock() {
    const TAKERS: [(&str, &str); 4] = [
        ("rmqueue_bulk", "zone"),
        ("folio_lruvec_lock_irqsave", "lruvec"),
        ("alloc_vmap_area", "vmap"),
        ("a_new_function", "other"),
    ];
    for seed in 0..RUNS {
        let rng = &mut Random::seed_from_u64(seed);
        let mut all = BTreeMap::<String, f64>::new();
        let (mut rows, mut sum) = (String::new(), 0);
        for caller in 0..2 + below(rng, 4) {
            let own = 100 + below(rng, 1500);
            let (taker, class) = TAKERS[below(rng, TAKERS.len())];
            let share = format!("{}.{:02}%", own / 100, own % 100);
            let open = caller == 0 || below(rng, 2) == 0;
            rows.push_str(&match (open, below(rng, 2)) {
                (true, _) => format!(
                    "   - {share} b_caller{caller}\n        {taker}\n        _raw_spin_lock\n      \
                     \x20 native_queued_spin_lock_slowpath\n"
                ),
                (false, 0) => format!("   + {share} b_caller{caller}\n"),
                (false, _) => format!("   - {share} b_caller{caller}\n      + {share} c_call\n"),
            });
            *all.entry(if open { class } else { "other" }.to_owned()).or_default() += own as f64;
            sum += own;
        }
        // Callers with little are in no row.
        let rest = [0, 7, 300][below(rng, 3)];
        *all.entry("other".to_owned()).or_default() += rest as f64;
        sum += rest;
        all.values_mut().for_each(|own| *own *= 100.0 / sum as f64);
        let percent = format!("{}.{:02}%", sum / 100, sum % 100);
        let gap = ["  ", "\n"][below(rng, 2)];
        let text = format!(
            "-   {percent}    {percent}  mbbsd    [kernel.kallsyms]{gap}[k] \
             native_queued_spin_lock_slowpath\n{rows}"
        );
        check(&quoted(rng, &text), &all, 0.6, &format!("seed {seed}"));
        let of_all = found(&text).1.of_all.unwrap();
        assert!((of_all - sum as f64 / 1e4).abs() < 1e-3, "seed {seed}: {of_all}\n{text}");
    }
}

#[test]
fn the_first_line_of_a_log_may_have_lost_its_prefix() {
    for seed in 0..RUNS {
        let rng = &mut Random::seed_from_u64(seed);
        let drawn = draw(rng, 1, 2);
        let frames: String =
            drawn.path[1..].iter().map(|name| format!(" {name}+0x28/0x130\n")).collect();
        let register = format!("RIP: 0010:{}+0x4d/0x80\n", drawn.path[0]);
        let task = "CPU: 32 PID: 1151212 Comm: fork12 Kdump: loaded Tainted: G S 5.10.0+ #1\n";
        let head = [
            "NMI watchdog: Watchdog detected hard LOCKUP on cpu 32\nirq event stamp: 0\n",
            "watchdog: BUG: soft lockup - CPU#32 stuck for 22s! [fork12:1151212]\n",
        ][below(rng, 2)];
        let panic = [
            "",
            "Kernel panic - not syncing: Hard LOCKUP\n",
            "watchdog: BUG: soft lockup - CPU#32 stuck for 48s! [fork12:1151212]\n",
        ][below(rng, 3)];
        let again = match panic {
            "" => String::new(),
            panic => format!("{panic}{task}{register}Call Trace:\n{frames}"),
        };
        let text = format!("{head}{task}{register}Call Trace:\n{frames}{again}");
        let cut = below(rng, 16);
        let stamp = |(at, line): (usize, &str)| {
            let whole = format!("[348439.7131{at:02}] {line}\n");
            if at == 0 { whole[cut..].to_owned() } else { whole }
        };
        let text: String = text.lines().enumerate().map(stamp).collect();
        let found = found(&text).1;
        assert_eq!(found.items.len(), 1, "seed {seed}\n{text}");
        check(&text, &expected(&[drawn]), 1e-6, &format!("seed {seed}"));
    }
}

#[test]
fn numbers_of_lines_are_not_of_the_text() {
    for seed in 0..RUNS {
        let rng = &mut Random::seed_from_u64(seed);
        let (text, right) = match below(rng, 3) {
            0 => {
                let n = 1 + rng.next_u64() % 1_000_000;
                let text = format!(
                    "lock_stat version 0.4\n-----\n class name con-bounces contentions \
                     waittime-min waittime-max waittime-total waittime-avg acq-bounces \
                     acquisitions holdtime-min holdtime-max holdtime-total holdtime-avg\n-----\n\n\
                     &mm->mmap_sem-R: 37 100 1.31 299502.61 {n}.52 3256.30 212344 34316685 0.10 \
                     7744.91 95016910.20 2.77\n---------------\n&mm->mmap_sem 96 \
                     [<ffffffff815351c4>] __do_page_fault+0x1d4/0x510\n---------------\n\
                     &mm->mmap_sem 60 [<ffffffff81129e29>] SyS_mprotect+0xe9/0x250\n"
                );
                (text, BTreeMap::from([("mmap_lock".to_owned(), 100.0)]))
            }
            1 => {
                let (all, _, text) = stdio(rng);
                (format!("Samples\n\n{text}\n\n\n"), expected(&all))
            }
            _ => {
                let drawn = draw(rng, 1, 2);
                let frames: String = drawn
                    .path
                    .iter()
                    .map(|name| format!("[  312.018466]  {name}+0x28/0x130\n"))
                    .collect();
                let head = "[  312.018460] INFO: task java:4211 blocked for more than 120 \
                            seconds.\n[  312.018462] Call Trace:\n";
                (format!("{head}{frames}"), expected(&[drawn]))
            }
        };
        let first = below(rng, 95);
        let form = below(rng, 3);
        let numbered = |(at, line): (usize, &str)| match form {
            0 => format!("{:>4} {line}\n", first + at),
            1 => format!("  {:02}\t{line}\n", first + at),
            _ if line.starts_with("---") => format!("  {}{line}\n", first + at),
            _ => format!("  {} {line}\n", first + at),
        };
        let text: String = text.lines().enumerate().map(numbered).collect();
        check(&quoted(rng, &text), &right, 0.5, &format!("seed {seed}"));
    }
    // Numbers of tasks are of the table.
    let table: String = (1..12).map(|n| format!("{n}  {}  {}\n", 1000 * n, 1100 * n)).collect();
    let all = crate::comparisons::one(&format!("tasks  before  after\n{table}"));
    assert_eq!(all.at, (1..12).collect::<Vec<_>>());
}

#[test]
fn a_stack_of_crash_needs_no_task() {
    for seed in 0..RUNS {
        let rng = &mut Random::seed_from_u64(seed);
        let drawn = draw(rng, 1, 2);
        let mut text = " #0 [fffffe000046be58] crash_nmi_callback at ffffffff8103f48b\n \
                        #1 [fffffe000046beb8] default_do_nmi at ffffffff8102027e\n \
                        #2 [fffffe000046bef0] end_repeat_nmi at ffffffff81c01093\n"
            .to_owned();
        text.push_str(&format!("    [exception RIP: {}+68]\n", drawn.path[0]));
        for registers in [
            "RIP: ffffffff8110be24  RSP: ffffc9002219f770  RFLAGS: 00000002",
            "RAX: 0000000000000101  RBX: 0000000000000046  RCX: 000000000000002a",
            "RBP: 0000000000000000   R8: ffff88870f11f040   R9: 0000000000000000",
            "R10: 0000000000000008  R11: 00000000acd93e4d  R12: ffff88871c96c044",
            "ORIG_RAX: ffffffffffffffff  CS: 0010  SS: 0018",
        ] {
            text.push_str(&format!("    {registers}\n"));
        }
        text.push_str("--- <NMI exception stack> ---\n");
        // What a program of an event calls may wait, too.
        let outer = ["bpf_overflow_handler", "__perf_event_overflow", "perf_swevent_overflow"];
        let outer = outer.iter().take(if below(rng, 2) == 0 { 0 } else { 3 });
        let names = drawn.path.iter().map(String::as_str).chain(outer.copied());
        for (at, name) in names.enumerate() {
            let at = at + 3;
            text.push_str(&format!(" #{at} [ffffc9002219f770] {name} at ffffffff8110be24\n"));
        }
        check(&quoted(rng, &text), &expected(&[drawn]), 1e-6, &format!("seed {seed}"));
    }
}
