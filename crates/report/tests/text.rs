//! Tests of the text form.

mod records;

use std::collections::BTreeMap;

use mmscale_document::{
    ArmRecord, Average, Better, Build, CallRecord, CpuTimeRecord, Document, FailureRecord, Groups,
    HALVES_METRIC, Histogram, Host, LineRecord, LockRecord, Looks, Metric, ParamValue,
    ROUNDS_METRIC, SectionRecord, SectionWait, Target, Topology, Unsettled, Value,
};
use mmscale_report::{Notes, WIDTH, json_line, page, sweep_text, text};

fn metric(unit: &str, values: &[f64]) -> Metric {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(0.0, f64::max);
    let ci95 = (values.len() > 1).then_some([low, high]);
    let values = values.iter().map(|&x| Some(Value::Real(x))).collect();
    let (better, average) = (Some(Better::Lower), Average::default());
    Metric { unit: unit.into(), better, headline: unit == "ns", average, mean, ci95, values }
}

fn lock(class: &str, site: &str, n: u64, contentions: u64) -> LockRecord {
    LockRecord {
        class: class.into(),
        sleeps: ["mutex", "mmap_lock"].contains(&class),
        site: site.into(),
        acquisitions: n,
        contentions,
        wait_total_ns: contentions * 228_000,
        wait_max_ns: contentions * 4_800,
        hold_total_ns: n * 2_310,
        ..LockRecord::default()
    }
}

fn arm(name: &str, scale: f64) -> ArmRecord {
    let of = |values: [f64; 7]| values.map(|x| x * scale);
    let pages = [12.3, 12.5, 12.4, 12.6, 12.2, 12.45, 12.55].map(|x| x * 1e6);
    let moved = |at: usize| pages[at] + [1.0, -2.0, 3.0][at % 3] * 1e4 * (1.0 - scale);
    let metrics = [
        (
            "zone_lock_contentions",
            metric("1", &of([872.0, 901.0, 845.0, 930.0, 866.0, 889.0, 910.0])),
        ),
        (
            "zone_lock_wait_total_ns",
            metric("ns", &of([199.43, 187.1, 230.0, 210.0, 195.5, 188.0, 221.0]).map(|x| x * 1e6)),
        ),
        ("tick_firings_per_cpu_per_interval_mean", metric("1", &[1.0; 7])),
        ("pages_allocated_per_s", metric("1/s", &std::array::from_fn::<f64, 7, _>(moved))),
        ("tick_trylock_failures", metric("1", &of([0.0; 7]))),
    ];
    let contentions = (2618.0 * scale) as u64;
    ArmRecord {
        arm: name.into(),
        policies: BTreeMap::from([("tick".into(), name.into()), ("lru".into(), "lazy".into())]),
        seeds: (1..=7).collect(),
        metrics: metrics.map(|(name, metric)| (name.to_owned(), metric)).into(),
        locks: vec![
            lock("pcp", "free_pages", 9_000_000, 0),
            lock("zone", "free_pcppages_bulk", 412_345, contentions),
            lock("zone", "rmqueue_bulk", 398_000, contentions / 2),
        ],
        host_metrics: BTreeMap::from([("host_ns_per_event".into(), 71.523)]),
        ..ArmRecord::default()
    }
}

fn document(arms: Vec<ArmRecord>) -> Document {
    let params = [
        ("burst_pages", ParamValue::Count(4096)),
        ("duration_s", ParamValue::Real(4.0)),
        ("hold_scale", ParamValue::Real(6.0)),
        ("hotplug", ParamValue::Switch(false)),
    ];
    Document {
        command: "mmscale run vmstat --set hold_scale=6".split(' ').map(str::to_owned).collect(),
        study: "vmstat".into(),
        profile: "arm64-72".into(),
        profile_hash: Some("0123456789abcdef".into()),
        cpus: 72,
        topology: Some(Topology {
            shape: "keep".into(),
            nodes: 1,
            node_cpus: 72,
            cache_cpus: 72,
            core_threads: 1,
            profile: None,
        }),
        window_ns: Some(4_000_000_000),
        params: params.map(|(name, value)| (name.to_owned(), value)).into(),
        host: Host {
            kernel: "Linux 6.18.0 x86_64".into(),
            cpu: "A CPU of some maker at 2.50GHz with a long name".into(),
        },
        arms,
        ..records::empty()
    }
}

fn notes() -> Notes<'static> {
    let defaults = [
        ("burst_pages", ParamValue::Count(4096)),
        ("duration_s", ParamValue::Real(4.0)),
        ("hold_scale", ParamValue::Real(1.0)),
        ("hotplug", ParamValue::Switch(false)),
    ];
    Notes {
        summary: "the upkeep tick of every CPU and zone->lock".to_owned(),
        order: vec!["zone_lock_contentions", "zone_lock_wait_total_ns"],
        defaults: defaults.map(|(name, value)| (name.to_owned(), value)).into(),
        remarks: vec!["Maxima want longer runs: --set duration_s=60.".into()],
        only: vec![],
        robust: None,
    }
}

fn rendered(arms: Vec<ArmRecord>) -> String {
    let text = text(&document(arms), &notes());
    for line in text.lines() {
        assert!(line.chars().count() <= WIDTH, "too wide: {line}");
        assert_eq!(line, line.trim_end());
    }
    text
}

#[test]
fn three_arms() {
    insta::assert_snapshot!(rendered(vec![
        arm("stock", 1.0),
        arm("posted", 0.1342),
        arm("phased", 0.01)
    ]));
}

#[test]
fn an_arm_with_one_site_of_several_has_its_sum() {
    let mut one_site = arm("posted", 1.0);
    one_site.locks = vec![lock("zone", "rmqueue_bulk", 206, 7)];
    let text = rendered(vec![arm("stock", 1.0), one_site.clone()]);
    let of_posted = |site: &str| {
        let block = text.split_once(&format!("\nzone {site}\n")).expect("a block").1;
        block.lines().find(|line| line.starts_with("  posted")).expect("a line").to_owned()
    };
    assert!(of_posted("rmqueue_bulk").contains(" 206 "), "{text}");
    assert_eq!(of_posted("(all sites)"), of_posted("rmqueue_bulk"));
    let text = rendered(vec![one_site]);
    assert!(!text.contains("(all sites)"), "one site in all needs no sum: {text}");
}

#[test]
fn the_live_kernel_does_not_tell_how_often_a_lock_was_taken() {
    let waits = |name: &str, site: &str| ArmRecord {
        locks: vec![LockRecord { acquisitions: 0, ..lock("mutex", site, 0, 5) }],
        ..arm(name, 1.0)
    };
    let mut live = document(vec![waits("stock", "exp_funnel_lock"), waits("numa", "do_exit")]);
    live.on = Target::Live;
    let text = text(&live, &notes());
    let locks = text.split_once("\nlocks").expect("locks").1;
    let rows =
        locks.lines().filter(|line| line.starts_with("  stock  ") || line.starts_with("  numa  "));
    let taken: Vec<_> = rows.map(|row| row.split_whitespace().nth(1).unwrap()).collect();
    // Two functions and their sum, for two arms each.
    assert_eq!(taken, ["-"; 6], "{text}");
}

#[test]
fn the_answer_names_sleeping_locks_and_their_share_of_the_tasks_time() {
    let mut only = arm("stock", 1.0);
    only.cpu_time =
        Some(CpuTimeRecord { all_ns: 10_000_000, busy_ns: 6_000_000, ..CpuTimeRecord::default() });
    let waits = |class: &str, site: &str, wait_total_ns| LockRecord {
        wait_total_ns,
        ..lock(class, site, 10, 5)
    };
    only.locks =
        vec![waits("mmap_lock", "dup_mmap", 6_000_000), waits("zone", "rmqueue_bulk", 1_200_000)];
    let answer = text(&document(vec![only.clone()]), &notes());
    let limit: Vec<&str> = answer.lines().skip_while(|line| !line.starts_with("limit")).collect();
    let limit = limit.join(" ").split_whitespace().collect::<Vec<_>>().join(" ");
    let wanted = "limit stock: tasks wait, mostly asleep, for mmap_lock (50%), and CPU time goes \
                  into waiting for zone (20%); mmap_lock is held in dup_mmap 100%";
    assert!(limit.starts_with(wanted), "{limit}");
    // Waits asleep are not CPU time.
    only.locks.truncate(1);
    only.locks[0].wait_total_ns = 60_000;
    let text = text(&document(vec![only]), &notes());
    assert!(text.contains("no lock; CPUs are busy for 60% of the time"), "{text}");
    assert!(text.contains("for locks for 0.0% of that"), "{text}");
}

/// Returns the entry of the answer with this name, in one line.
fn entry(document: &Document, name: &str) -> String {
    let text = text(document, &notes());
    let mut lines = text.lines().skip_while(|line| !line.starts_with(name));
    let first = lines.next().unwrap_or_default();
    let rest = lines.take_while(|line| line.starts_with("          "));
    let words: Vec<&str> =
        std::iter::once(first).chain(rest).flat_map(str::split_whitespace).collect();
    words.join(" ")
}

#[test]
fn the_limit_is_what_takes_the_time_a_lock_lines_or_nothing_on_idle_cpus() {
    let mut only = arm("stock", 1.0);
    let time = CpuTimeRecord { all_ns: 10_000_000, busy_ns: 200_000, ..CpuTimeRecord::default() };
    only.cpu_time = Some(time);
    only.locks.clear();
    let limit = |only: &ArmRecord| entry(&document(vec![only.clone()]), "limit");
    assert_eq!(
        limit(&only),
        "limit stock: no lock and no cache line; CPUs are idle for 98% of the time"
    );
    only.cpu_time = Some(CpuTimeRecord { busy_ns: 9_000_000, lines_ns: 5_400_000, ..time });
    only.calls = vec![CallRecord {
        path: vec!["program".into(), "folio_remove_rmap".into()],
        lines_ns: 5_400_000,
        ..CallRecord::default()
    }];
    only.locks = vec![LockRecord { wait_total_ns: 900_000, ..lock("zone", "rmqueue_bulk", 10, 5) }];
    assert_eq!(
        limit(&only),
        "limit stock: CPU time goes into waiting for cache lines from other CPUs (60%), in \
         folio_remove_rmap 100%"
    );
    let line = |line: &str, wait_ns| LineRecord { line: line.into(), moves: 9, wait_ns };
    only.lines = vec![line("vm_lock", 4_590_000), line("rss_stat", 810_000), line("zone", 5)];
    assert_eq!(
        limit(&only),
        "limit stock: CPU time goes into waiting for cache lines from other CPUs (60%): vm_lock \
         85%, rss_stat 15%, in folio_remove_rmap 100%"
    );
    only.locks[0].wait_total_ns = 6_300_000;
    let text = limit(&only);
    assert!(text.starts_with("limit stock: CPU time goes into waiting for zone (70%)"), "{text}");
    assert_eq!(entry(&document(vec![only]), "idle"), "", "no task waited next to an idle CPU");
}

#[test]
fn tasks_that_wait_next_to_idle_cpus_are_named_in_the_first_lines() {
    let mut only = arm("stock", 1.0);
    only.cpu_time = Some(CpuTimeRecord {
        all_ns: 10_000_000,
        busy_ns: 200_000,
        stranded_ns: 2_500_000,
        ..CpuTimeRecord::default()
    });
    let text = entry(&document(vec![only]), "idle");
    let wanted = "idle stock: tasks share CPUs while others are idle: CPUs are idle for 98% \
                  of the time, and 25% of all CPU time is idle time in which a task waited for \
                  another CPU";
    assert!(text.starts_with(wanted), "{text}");
}

#[test]
fn one_arm_and_one_seed() {
    let mut only = arm("stock", 1.0);
    only.seeds.truncate(1);
    for metric in only.metrics.values_mut() {
        metric.values.truncate(1);
        metric.ci95 = None;
    }
    only.metrics.retain(|name, _| name.starts_with("zone"));
    only.locks.clear();
    only.host_metrics.clear();
    insta::assert_snapshot!(rendered(vec![only]));
}

#[test]
fn each_arm_has_a_row_and_long_names_are_cut() {
    let names = ["stock", "posted", "phased", "an-arm-with-a-name-that-is-far-too-long", "fifth"];
    let text = rendered(names.iter().map(|name| arm(name, 1.0)).collect());
    let table = text.split_once("\n\nlocks").expect("locks follow").0;
    let rows = |start: &str| table.lines().filter(|line| line.starts_with(start)).count();
    // Metrics with a long name have a row for the first arm, too.
    assert_eq!((rows("  stock "), rows("  fifth "), rows("  an-arm-with-a-name-t…")), (1, 4, 4));
}

#[test]
fn a_value_of_any_size_stays_within_the_width() {
    let huge = |name: &str, values: [f64; 7]| {
        let mut arm = arm(name, 1.0);
        arm.metrics.insert("huge".to_owned(), metric("1", &values));
        arm
    };
    let other = [1e-300, 2e290, 1e290, -1e290, 1e290, 3e290, 1e290];
    let text = rendered(vec![huge("stock", [1e290; 7]), huge("posted", other)]);
    assert!(text.contains("1.00e281G"), "{text}");
}

#[test]
fn changes_have_intervals_and_only_headlines_hold() {
    let text = rendered(vec![arm("stock", 1.0), arm("same", 0.999)]);
    let row = |text: &str, metric: &str| {
        let rows = text.split_once(&format!("\n{metric}")).expect("the metric").1;
        rows.lines().nth(1).expect("a row of the other arm").to_owned()
    };
    // All pairs change by the same share, which seven pairs distinguish from nothing.
    let wait = row(&text, "zone_lock_wait_total_ns");
    assert!(wait.ends_with("-0.1%      -0.1..-0.1 better*"), "{wait}");
    let contentions = row(&text, "zone_lock_contentions");
    assert!(contentions.ends_with("-0.1%      -0.1..-0.1 better"), "{contentions}");
    let none = rendered(vec![arm("stock", 1.0), arm("none", 0.0)]);
    assert!(
        row(&none, "zone_lock_wait_total_ns").contains("-100.0%  -100.0..-100.0 better*"),
        "{none}"
    );
    let noise = row(&none, "pages_allocated_per_s");
    assert!(!noise.contains("better") && !noise.contains("worse"), "{noise}");
}

#[test]
fn few_seeds_say_how_many_are_needed() {
    let few = |mut arm: ArmRecord| {
        arm.seeds.truncate(5);
        arm
    };
    let text = rendered(vec![few(arm("stock", 1.0)), few(arm("other", 0.5))]);
    assert!(!text.contains(".."), "no interval: {text}");
    let text = text.replace("\n  ", " ");
    let wanted = "exploratory, 5 pairs: no change can hold over seeds, 6 are needed (--seeds 6)";
    assert!(text.contains(wanted), "{text}");
    let mut one = arm("other", 0.5);
    one.metrics.get_mut("zone_lock_contentions").unwrap().values[2] = None;
    let text = rendered(vec![arm("stock", 1.0), one]);
    assert!(text.contains("\n  other (6 pairs) "), "{text}");
}

#[test]
fn json_is_one_line() {
    let line = json_line(&document(vec![arm("stock", 1.0)]));
    assert!(line.ends_with("}\n"));
    assert_eq!(line.matches('\n').count(), 1);
    assert!(line.starts_with(r#"{"schema":"mmscale/run/3""#));
}

#[test]
fn call_trees_have_arms_side_by_side_and_callees_under_their_callers() {
    let mut arms = vec![arm("stock", 1.0), arm("posted", 0.2), arm("a-third-arm-of-ours", 0.1)];
    for (nth, arm) in arms.iter_mut().enumerate() {
        arm.seeds.truncate(3);
        let call = |path: &str, total_ns: u64, self_ns: u64| CallRecord {
            path: path.split(' ').map(str::to_owned).collect(),
            entered: 3,
            total_ns: total_ns / (nth as u64 + 1),
            self_ns: self_ns / (nth as u64 + 1),
            ..CallRecord::default()
        };
        arm.calls = vec![
            call("do_exit", 300_000_000, 3_000_000),
            call("do_exit exit_mmap", 297_000_000, 297_000_000 - 31_000_000),
            call("do_exit exit_mmap a_function_with_a_name_that_is_too_long", 30_000_000, 0),
            call("do_exit exit_mmap small", 1_000_000, 1_000_000),
            call("process_mrelease", 600_000_000, 600_000_000),
        ];
    }
    let text = text(&document(arms), &Notes::default());
    assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
    let from = text.find("CPU time in ms").expect("there are calls");
    let tree: Vec<&str> = text[from..].lines().take(10).collect();
    let wanted = [
        "CPU time in ms of one run, spinning included and sleeping not: with all",
        "  that a function calls, and in it alone; functions below 0.5 % of their",
        "  tree add up in (-)",
        "                                       stock        posted a-third-arm-…",
        "                                total   self  total   self  total   self",
        "process_mrelease                200.0  200.0  100.0  100.0  66.67  66.67",
        "do_exit                         100.0   1.00  50.00   0.50  33.33   0.33",
        " exit_mmap                      99.00  88.67  49.50  44.33  33.00  29.56",
        "  a_function_with_a_name_tha…   10.00      -   5.00      -   3.33      -",
        "  (-)                            0.33   0.33   0.17   0.17   0.11   0.11",
    ];
    assert_eq!(tree, wanted, "{text}");
}

#[test]
fn histograms_have_arms_side_by_side_and_sections_say_what_they_waited_for() {
    let mut arms = vec![arm("stock", 1.0), arm("posted", 0.2)];
    for (nth, arm) in arms.iter_mut().enumerate() {
        let buckets = vec![[1024, 2048, 250_000], [1 << 20, 1 << 21, 9 - 5 * nth as u64]];
        let histogram = Histogram { unit: "ns".into(), buckets };
        arm.histograms = BTreeMap::from([("preempt_off_ns".to_owned(), histogram)]);
        let section = |seed, ns| SectionRecord {
            seed,
            cpu: 11,
            begin_ns: 5,
            ns,
            path: ["program", "do_munmap", "flush_tlb_mm_range"].map(str::to_owned).into(),
            waits: vec![SectionWait { what: "cpu 7".into(), ns: ns - 8_000 }],
        };
        arm.sections = vec![section(1, 9_000), section(2, 16_723_000)];
        arm.sections[0].waits.clear();
    }
    arms[1].histograms.get_mut("preempt_off_ns").unwrap().buckets.remove(0);
    let text = text(&document(arms), &Notes::default());
    assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
    let from = text.find("histogram of").expect("there are histograms");
    let shown: Vec<&str> = text[from..].lines().take(13).collect();
    let wanted = [
        "histogram of preempt_off_ns, summed over seeds",
        "       from    to below                                 stock     posted",
        "    1.024us -   2.048us                                250.0k          0",
        "    1.049ms -   2.097ms                                     9          4",
        "",
        "longest sections without preemption, of all seeds: where most of it",
        "  passed, and what it waited for; the rest is work",
        "stock",
        "   16.72ms cpu11   program > do_munmap > flush_tlb_mm_range; waited for",
        "                   cpu 7 16.71ms",
        "   9.000us cpu11   program > do_munmap > flush_tlb_mm_range; waited for",
        "                   nothing",
        "posted",
    ];
    assert_eq!(shown, wanted, "{text}");
}

/// Returns the lines of a document's header.
fn header(change: impl FnOnce(&mut Document)) -> String {
    let mut document = document(vec![arm("stock", 1.0), arm("phased", 0.1)]);
    change(&mut document);
    let text = text(&document, &notes());
    assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
    // The answer precedes it.
    let header = text.split("\n\n").nth(1).expect("an empty line before and after");
    // A continued line has no key.
    header.replace("\n          ", " ")
}

fn shaped(cpus: u32, topology: Topology) -> String {
    header(|document| {
        document.profile = "x86-512".into();
        (document.cpus, document.topology) = (cpus, Some(topology));
    })
}

/// Without these lines, a curve over CPU counts would compare machines of different topologies, and
/// no reader could tell.
#[test]
fn groups_of_cpus_that_are_not_the_profiles_are_said() {
    let own = Some(Groups { cpus: 512, nodes: 2, cache_cpus: 16, core_threads: 2 });
    let like = |nodes, node_cpus, cache_cpus, core_threads| Topology {
        shape: "keep".into(),
        nodes,
        node_cpus,
        cache_cpus,
        core_threads,
        profile: None,
    };
    let same = shaped(96, like(2, 48, 16, 2));
    let groups = "topology  2 nodes of 48 CPUs, 2 threads a core, last-level caches of 16 CPUs";
    assert!(same.lines().any(|line| line == groups), "{same}");
    assert!(!same.contains("not as x86-512"), "{same}");
    let flat = Topology { shape: "flat".into(), profile: own, ..like(1, 95, 95, 1) };
    let flat = shaped(95, flat);
    let groups = "topology  1 node, 1 thread a core, one last-level cache a node not as x86-512 \
                  itself, which has 2 nodes, 2 threads a core and last-level caches of 16 CPUs \
                  (--shape flat)";
    assert!(flat.lines().any(|line| line == groups), "{flat}");
    // Only what differs is said.
    let one_node = Topology { shape: "fill".into(), profile: own, ..like(1, 256, 16, 2) };
    let one_node = shaped(24, one_node);
    assert!(one_node.contains("itself, which has 2 nodes (--shape fill)"), "{one_node}");
    let small_caches = shaped(16, Topology { profile: own, ..like(2, 8, 8, 2) });
    let said = "itself, which has last-level caches of 16 CPUs (--shape keep)";
    assert!(small_caches.contains(said), "{small_caches}");
    let fill = |cpus, nodes| shaped(cpus, like(nodes, 256, 16, 2));
    assert!(fill(95, 1).contains("95 of the 256 CPUs of 1 node"), "{}", fill(95, 1));
    let two = fill(300, 2);
    assert!(two.contains("2 nodes of 256 CPUs, 44 of them in the last"), "{two}");
}

#[test]
fn builds_and_commands_are_said() {
    let text = header(|document| {
        document.build = Build::new("mmscale", "0.1.0", "9ccc9e473612+3fa2b1c0d9e8");
        document.program = Some(Build::new("forkstorm", "0.3.0", "unknown"));
        document.command = vec!["mmscale".into(), "run".into(), "a b".into(), "x".repeat(80)];
    });
    let changed =
        "mmscale   0.1.0, commit 9ccc9e473612 + changes 3fa2b1c0d9e8\nresults   fingerprint";
    assert!(text.contains(changed), "{text}");
    assert!(text.contains("\nprogram   forkstorm 0.3.0, commit unknown\n"), "{text}");
    assert!(text.contains("\ncommand   mmscale run 'a b' xxx"), "{text}");
}

#[test]
fn policies_are_said_where_arms_differ_and_where_they_are_not_linux() {
    let text = header(|document| {
        for arm in &mut document.arms {
            arm.policies.insert("exit".into(), "stock".into());
        }
    });
    let line =
        "policies  stock: tick=stock; phased: tick=phased; all arms: lru=lazy; the rest stock";
    assert!(text.lines().any(|other| other == line), "{text}");
}

#[test]
fn runs_without_a_result_are_told_and_counted() {
    let mut document = document(vec![arm("stock", 1.0), arm("posted", 2.0)]);
    document.arms[1].seeds = vec![1, 3];
    let why = "no page came or went".to_owned();
    document.failures = vec![FailureRecord { arm: "posted".into(), seed: 2, why }];
    let text = text(&document, &Notes::default());
    assert!(text.contains("seeds     stock: 1 to 7 (7 runs); posted: 1 3 (2 runs)\n"), "{text}");
    let failed = "failed    1 of 10 runs, which no figure includes. posted, seed 2: no";
    assert!(text.contains(failed), "{text}");
}

#[test]
fn a_long_name_of_a_host_stays_within_the_width() {
    let mut document = document(vec![arm("stock", 1.0)]);
    document.host.kernel = "k".repeat(64);
    document.host.cpu = "c".repeat(200);
    let text = text(&document, &Notes::default());
    assert!(text.lines().all(|line| line.chars().count() <= 72), "{text}");
}

/// Parts of a round differ: a window that covers less than some rounds is not silently believed.
#[test]
fn a_window_of_a_few_rounds_is_named_with_its_remedy() {
    let window = |rounds: [f64; 2]| {
        let mut document = document(vec![arm("stock", 1.0), arm("lazy", 0.5)]);
        document.window_ns = Some(40_000_000);
        for (arm, rounds) in document.arms.iter_mut().zip(rounds) {
            arm.metrics.insert(ROUNDS_METRIC.into(), metric("1", &[rounds; 7]));
        }
        let text = text(&document, &Notes::default());
        let lines = text.lines().skip_while(|line| !line.starts_with("window")).take(3);
        lines.collect::<Vec<_>>().join(" ").split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let short = window([5.0, 1.5]);
    let wanted = "window lazy: the slowest program begins 1.5 rounds of its loop in the window, so \
                  the figures depend on the part of a round that it covers: give it --set \
                  duration_ms=80 or more";
    assert!(short.starts_with(wanted), "{short}");
    assert!(!window([5.0, 3.0]).contains("rounds of its loop"));
}

/// A point of a sweep with two arms, whose second has half of the values of the first.
fn point(cpus: u32, seeds: usize) -> Document {
    let few = |mut arm: ArmRecord| {
        arm.seeds.truncate(seeds);
        arm
    };
    let mut document = document(vec![few(arm("stock", 1.0)), few(arm("other", 0.5))]);
    document.cpus = cpus;
    document
}

#[test]
fn a_sweep_marks_what_holds_and_calls_no_change_noise_for_want_of_seeds() {
    let marked = sweep_text(&[point(8, 7), point(32, 7)]);
    assert!(marked.contains(" -50.0%*\n"), "{marked}");
    assert!(marked.contains("* the change holds over seeds"), "{marked}");
    let few = sweep_text(&[point(8, 2), point(32, 2)]);
    assert!(few.contains(" -50.0%\n"), "{few}");
    assert!(!few.contains('~') && !few.contains('*'), "{few}");
    assert!(few.contains("exploratory, 2 pairs: no change can hold over seeds"), "{few}");
    let mixed = sweep_text(&[point(8, 2), point(32, 7)]).replace("\n  ", " ");
    assert!(mixed.contains("6 are needed (--seeds 6) at vmstat 8."), "{mixed}");
}

#[test]
fn a_page_has_means_next_to_changes_and_whole_names() {
    let mut other = point(8, 7);
    other.study = "ipi".into();
    let name = "preempt_off_max_window_p99_ns";
    for arm in &mut other.arms {
        let metric = arm.metrics.remove("zone_lock_wait_total_ns").unwrap();
        arm.metrics.insert(name.into(), metric);
    }
    let documents = [point(8, 7), other].map(|document| (document, Notes::default()));
    let text = page(&documents);
    assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
    assert!(text.contains(&format!("ipi 8: {name}")) || text.contains(name), "{text}");
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("  other ")).collect();
    assert_eq!(rows.len(), 2, "{text}");
    let words: Vec<&str> = rows[0].split_whitespace().collect();
    assert_eq!(words, ["other", "102.2ms", "-50.0%*"], "{text}");
}

#[test]
fn the_own_error_of_a_recording_is_in_the_answer_and_at_each_point() {
    let at = |cpus: u32, differ: f64| {
        let mut document = document(vec![arm("recorded", 1.0)]);
        document.cpus = cpus;
        document.arms[0].metrics.insert(HALVES_METRIC.into(), metric("1", &[differ; 7]));
        document
    };
    let joined = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let one = |differ| joined(text(&at(8, differ), &notes()));
    let error = "error the recording's own error: its halves, every second round and the others, \
                 replayed alone, differ by";
    assert!(one(0.031).contains(&format!("{error} 3.1%")), "{}", one(0.031));
    assert!(one(0.0).contains(&format!("{error} 0.0%")), "{}", one(0.0));
    let curve = joined(sweep_text(&[at(8, 0.0), at(64, 0.4)]));
    assert!(curve.contains("recorded: the recording's own error: its halves,"), "{curve}");
    assert!(curve.contains("differ by 0.0% at cpus 8, 40% at cpus 64."), "{curve}");
    let none = joined(text(&document(vec![arm("stock", 1.0)]), &notes()));
    assert!(!none.contains("halves"), "{none}");
}

#[test]
fn a_sweep_names_the_points_with_short_windows() {
    let at = |cpus: u32, rounds: f64| {
        let mut document = document(vec![arm("stock", 1.0)]);
        document.cpus = cpus;
        let metric = metric("1", &[rounds; 7]);
        document.arms[0].metrics.insert(ROUNDS_METRIC.into(), metric);
        document
    };
    let text = |last| sweep_text(&[at(8, 9.0), at(32, 2.0), at(96, last)]);
    let short = text(0.5);
    assert!(
        short.contains("The window is short at cpus 32; 96: the slowest program begins"),
        "{short}"
    );
    assert!(text(3.0).contains("short at cpus 32: the slowest"));
    assert!(!sweep_text(&[at(8, 9.0), at(96, 3.0)]).contains("window"));
}

#[test]
fn a_document_without_arms_has_text_whatever_its_first_look_found() {
    let mut document = document(vec![]);
    let unsettled = vec![Unsettled { arm: "posted".into(), metric: "ops_per_s".into() }];
    document.looks = Some(Looks { first: 3, second: 7, margin_percent: 2.0, unsettled });
    let shown = text(&document, &notes());
    assert!(shown.contains("left posted: ops_per_s open"), "{shown}");
}
