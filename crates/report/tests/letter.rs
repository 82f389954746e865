//! Tests of the block for a cover letter, of Markdown and of CSV.

mod records;

use std::collections::BTreeMap;

use mmscale_document::{
    ArmRecord, Average, Better, Build, Claim, CpuTimeRecord, Document, DrawnLimit, GapRecord, Host,
    Level, LockRecord, Metric, MovedLimit, MovedNumber, ParamValue, ROBUST_SCHEMA, Robustness,
    Value, WaitShare,
};
use mmscale_report::{
    About, CSV_HEAD, Calls, Letter, Notes, WIDTH, csv_rows, letter_text, markdown, markdown_page,
    page, robust_brief, robust_text,
};

const LINK: &str =
    "https://example.org/a-report-whose-address-is-longer-than-a-line-of-a-mail.html";

fn metric(unit: &str, better: Option<Better>, headline: bool, scale: f64) -> Metric {
    let values: Vec<f64> = (1..=7).map(|seed| scale * f64::from(100 + seed % 4)).collect();
    Metric {
        unit: unit.into(),
        better,
        headline,
        average: Average::Arithmetic,
        mean: values.iter().sum::<f64>() / 7.0,
        ci95: None,
        values: values.into_iter().map(|x| Some(Value::Real(x))).collect(),
    }
}

/// Returns an arm whose time is multiplied by a factor, and whose memory by its inverse.
fn arm(name: &str, factor: f64) -> ArmRecord {
    let lower = Some(Better::Lower);
    let metrics = [
        ("cpu_ns_per_op", metric("ns", lower, true, 20.0 * factor)),
        ("wait_max_ns", metric("ns", lower, false, 900.0 * factor)),
        ("op_p99_ns", metric("ns", lower, false, 500.0 * factor)),
        ("retries_per_pass", metric("1", lower, false, 1.0)),
        ("held_max", metric("folios", lower, false, 1.0 / factor)),
    ];
    let lock = |site: &str, wait_total_ns| LockRecord {
        class: "lruvec".into(),
        sleeps: false,
        site: site.into(),
        acquisitions: 7000,
        contentions: 700,
        wait_total_ns,
        wait_max_ns: 90_000,
        hold_total_ns: 700_000,
        ..LockRecord::default()
    };
    let wait = |ns: f64| (ns * factor) as u64;
    ArmRecord {
        arm: name.into(),
        policies: BTreeMap::from([("lru".into(), name.into())]),
        seeds: (1..=7).collect(),
        metrics: metrics.map(|(name, metric)| (name.to_owned(), metric)).into(),
        cpu_time: Some(CpuTimeRecord {
            all_ns: 20_000_000,
            busy_ns: 14_000_000,
            ..CpuTimeRecord::default()
        }),
        locks: vec![lock("folio_add", wait(4e6)), lock("release_pages", wait(3e6))],
        ..ArmRecord::default()
    }
}

fn document(study: &str, cpus: u32) -> Document {
    Document {
        command: ["mmscale", "run", study].map(str::to_owned).into(),
        study: study.into(),
        profile: "x86-512".into(),
        profile_hash: Some("0123456789abcdef".into()),
        cpus,
        window_ns: Some(2_000_000),
        params: BTreeMap::from([("pages".into(), ParamValue::Count(4))]),
        host: Host { kernel: "Linux 6.18.0".into(), cpu: "A CPU".into() },
        fingerprint: "0123456789abcdef".into(),
        arms: vec![arm("stock", 1.0), arm("lazy", 0.25)],
        not_simulated: vec![GapRecord {
            name: "vm_committed_as".into(),
            shared_by: "machine".into(),
            what: "accounts memory".into(),
            file: "mm/util.c".into(),
        }],
        ..records::empty()
    }
}

fn analysis() -> Robustness {
    let moved = MovedNumber {
        name: "handoff_ns".into(),
        value: 575.0,
        range: [110.0, 1200.0],
        basis: "assumed".into(),
        percent: [3.0, -85.0],
    };
    Robustness {
        own_seeds: vec![],
        limit: None,
        moved_limits: vec![],
        drawn_limits: vec![],
        levels: vec![],
        rounds_min: None,
        schema: ROBUST_SCHEMA.into(),
        build: Build::new("mmscale", "0.1.0", "0123456789ab"),
        command: ["mmscale", "robust", "churn"].map(str::to_owned).into(),
        study: "churn".into(),
        profile: "x86-512".into(),
        profile_hash: "0123456789abcdef".into(),
        cpus: 32,
        params: BTreeMap::from([("pages".into(), ParamValue::Count(1))]),
        seeds: vec![1, 2],
        base: "stock".into(),
        claims: vec![
            Claim {
                ci95: None,
                arm: "lazy".into(),
                metric: "cpu_ns_per_op".into(),
                percent: -75.0,
                moved: vec![moved],
                drawn_percent: vec![-70.0, -40.0, 5.0, -60.0],
            },
            Claim {
                ci95: None,
                arm: "freeze".into(),
                metric: "cpu_ns_per_op".into(),
                percent: -5.0,
                moved: vec![],
                drawn_percent: vec![],
            },
        ],
        numbers: 60,
        without_effect: vec!["ipi_send_ns".into()],
        machines: 4,
        failures: vec![],
        checksum: None,
    }
}

fn notes() -> Notes<'static> {
    Notes {
        summary: "what does the LRU lock cost?".to_owned(),
        order: vec!["cpu_ns_per_op"],
        defaults: BTreeMap::from([("pages".into(), ParamValue::Count(1))]),
        ..Notes::default()
    }
}

fn about() -> About<'static> {
    let call = |text: &str| Some(format!("mmscale {text}"));
    About {
        notes: notes(),
        link: Some(LINK),
        arms: BTreeMap::from([("stock", "as in Linux 6.18"), ("lazy", "joins its list later")]),
        sources: Some("the profile has 71 numbers: 20 measured, 51 assumed".into()),
        calls: Calls {
            smaller: call("run churn --cpus 2,8 --shape fill -o DIR"),
            profile: call("run churn --profile PROFILE -o DIR"),
            workloads: call("run vmstat pcp --policy lazy:lru=lazy -o DIR"),
            robust: call("robust churn -o DIR"),
            check: call("run churn --check -o DIR"),
        },
    }
}

/// Returns a letter, of which every line but the address fits a mail.
fn shown(letter: &Letter<'_>) -> String {
    let text = letter_text(letter);
    for line in text.lines().filter(|line| !line.starts_with("Link: ")) {
        assert!(line.chars().count() <= WIDTH && line == line.trim_end(), "{line}");
    }
    text
}

#[test]
fn a_letter_has_an_answer_to_each_question_of_a_reviewer() {
    let (main, small) = (document("churn", 64), document("churn", 2));
    let (mut other, analysis) = (document("vmstat", 72), analysis());
    other.arms[1] = arm("lazy", 1.5);
    let others = vec![(&small, notes()), (&other, Notes::default())];
    let letter = Letter { document: &main, others, analyses: vec![&analysis], about: about() };
    insta::assert_snapshot!(shown(&letter));
}

#[test]
fn what_is_missing_is_named_with_the_call_for_it() {
    let main = document("churn", 64);
    let letter = Letter { document: &main, others: vec![], analyses: vec![], about: about() };
    let text = shown(&letter).replace("\n  ", " ");
    for missing in [
        "no smaller machine was run: mmscale run churn --cpus 2,8 --shape fill -o DIR",
        "no other kind of machine was run: mmscale run churn --profile PROFILE -o DIR",
        "no other workload was run: mmscale run vmstat pcp --policy lazy:lru=lazy -o DIR",
        "the costs of this profile only: mmscale robust churn -o DIR",
        "not checked in these runs: mmscale run churn --check -o DIR",
    ] {
        assert!(text.contains(missing), "{missing}\n{text}");
    }
    // Without a call that can be repeated, the gap is still named.
    let letter =
        Letter { document: &main, others: vec![], analyses: vec![], about: About::default() };
    let text = shown(&letter).replace("\n  ", " ");
    for missing in ["no smaller machine was run.", "no other workload was run.", "Link: none;"] {
        assert!(text.contains(missing), "{missing}\n{text}");
    }
}

#[test]
fn a_summary_that_is_no_sentence_ends_before_the_limit() {
    let (main, mut about) = (document("churn", 64), about());
    about.notes.summary = "barriers of a collector".to_owned();
    let letter = Letter { document: &main, others: vec![], analyses: vec![], about };
    let text = shown(&letter).replace("\n  ", " ");
    assert!(text.starts_with("Problem: churn: barriers of a collector. With 64 CPUs, "), "{text}");
}

#[test]
fn an_analysis_of_other_arms_does_not_count() {
    let (mut main, analysis) = (document("churn", 64), analysis());
    main.arms[1].arm = "other".into();
    let about = about();
    let letter = Letter { document: &main, others: vec![], analyses: vec![&analysis], about };
    assert!(shown(&letter).contains("not analysed"));
}

#[test]
fn few_seeds_show_nothing_worse() {
    let mut main = document("churn", 1);
    for arm in &mut main.arms {
        arm.seeds.truncate(2);
        arm.metrics.values_mut().for_each(|metric| metric.values.truncate(2));
    }
    let about = about();
    let letter = Letter { document: &main, others: vec![], analyses: vec![], about };
    let text = shown(&letter);
    assert!(text.contains("too few seeds to show that a metric is worse"), "{text}");
    let text = text.replace("\n  ", " ");
    assert!(text.contains("exploratory, 2 pairs: no change can hold over seeds"), "{text}");
}

#[test]
fn csv_has_a_row_for_each_arm_metric_and_seed() {
    let mut main = document("churn", 64);
    main.arms[1].metrics.get_mut("held_max").unwrap().values[2] = None;
    main.arms[1].arm = "lazy, twice".into();
    let rows = csv_rows(&main, &notes());
    assert_eq!(rows.lines().count(), 2 * 5 * 7);
    assert_eq!(CSV_HEAD, "study,arm,cpus,seed,metric,value,unit,on,profile,hz,set\n");
    for row in [
        "churn,stock,64,1,cpu_ns_per_op,2020,ns,sim,x86-512,1000,pages=4",
        "churn,\"lazy, twice\",64,3,held_max,,folios,sim,x86-512,1000,pages=4",
    ] {
        assert!(rows.lines().any(|line| line == row), "{row}\n{rows}");
    }
    let only = Notes { only: vec!["p99".into()], ..notes() };
    assert_eq!(csv_rows(&main, &only).lines().count(), 2 * 7);
}

#[test]
fn markdown_has_the_answer_and_a_table() {
    let main = document("churn", 64);
    let text = markdown(&main, &notes(), false);
    insta::assert_snapshot!(text);
    let all = markdown(&main, &notes(), true);
    assert!(
        all.contains("\n| `op_p99_ns` | 50.86us | 12.71us | -75.0% [-75.0..-75.0] |\n"),
        "{all}"
    );
    let page = markdown_page(&[(main, notes()), (document("churn", 8), notes())]);
    assert!(
        page.starts_with("Changes are against the first arm of each study (stock). "),
        "{page}"
    );
    let row = "| churn 8 | lruvec 50% | lazy | `cpu_ns_per_op` | 2.034us | 508.6ns | \
               -75.0% [-75.0..-75.0]\\* |";
    assert!(page.lines().any(|line| line == row), "{page}");
}

#[test]
fn a_page_names_first_arms_seeds_and_machines() {
    let mut other = document("reap", 8);
    other.profile = "x86-32".into();
    other.arms[0].arm = "exit".into();
    other.arms[0].seeds.truncate(6);
    let text = page(&[(document("churn", 64), notes()), (other, notes())]);
    let head = "Changes are against the first arm of each study (exit, stock). Number of\n\
                seeds: 6 to 7. Machines: 64 CPUs of x86-512, simulated (churn); 8 CPUs\n\
                of x86-32, simulated (reap).\n\n";
    assert!(text.starts_with(head), "{text}");
}

#[test]
fn what_got_worse_names_the_point_of_a_sweep() {
    let text = page(&[(document("churn", 64), notes()), (document("churn", 8), notes())]);
    let worse = "worse: churn 64 lazy: held_max +300.0%; churn 8 lazy: held_max +300.0%";
    assert!(text.contains(worse), "{text}");
}

#[test]
fn an_analysis_says_what_a_change_holds_against() {
    let mut analysis = analysis();
    analysis.own_seeds = (1..=7).collect();
    analysis.claims[0].ci95 = Some([-76.0, -74.0]);
    let limit = |class: &str, share| WaitShare { class: class.into(), share };
    analysis.limit = Some(limit("lruvec", 0.7));
    analysis.moved_limits =
        vec![MovedLimit { name: "handoff_ns".into(), value: 110.0, limit: None }];
    let text = robust_text(&analysis).replace("\n  ", " ");
    assert!(text.contains("holds over costs on 3 of 4 drawn machines"), "{text}");
    assert!(text.contains("(least and most)"), "four machines have no percentiles: {text}");
    assert!(
        text.contains(
            "stock waits for lruvec (70% of the time); with handoff_ns = 110 for no lock or line."
        ),
        "{text}"
    );
    assert!(text.contains("It holds unless handoff_ns is below 130"), "{text}");
    let brief = robust_brief(&analysis);
    assert!(brief.contains("drawn machines unless handoff_ns is below 130"), "{brief}");
    assert!(
        brief.contains("cpu_ns_per_op is +3.0% to -85.0% with handoff_ns 110 to 1200"),
        "{brief}"
    );
    assert!(brief.contains("stock waits with handoff_ns = 110 for no lock or line"), "{brief}");

    // The same change, which other seeds reverse.
    analysis.claims[0].ci95 = Some([-80.0, 9.0]);
    analysis.rounds_min = Some(1.5);
    let text = robust_text(&analysis).replace("\n  ", " ");
    assert!(text.contains("Seeds alone reverse it: over 7 seeds"), "{text}");
    assert!(!text.contains("It holds unless"), "{text}");
    assert!(text.contains("The window is short: the slowest program begins 1.5 rounds"), "{text}");
    assert!(robust_brief(&analysis).contains("cpu_ns_per_op no change shown"));
}

#[test]
fn an_analysis_of_one_arm_says_its_levels_and_what_limits_it() {
    let drawn =
        |class: Option<&str>, machines| DrawnLimit { class: class.map(str::to_owned), machines };
    let level = Level {
        metric: "ops_per_s".into(),
        unit: "1/s".into(),
        mean: 2e6,
        ci95: Some([1.9e6, 2.1e6]),
        moved: analysis().claims[0].moved.clone(),
        drawn: vec![3e6, 1e6, 2.5e6, 1.5e6],
    };
    let analysis = Robustness {
        claims: vec![],
        levels: vec![level],
        limit: Some(WaitShare { class: "lruvec".into(), share: 0.7 }),
        drawn_limits: vec![drawn(Some("lruvec"), 3), drawn(None, 1)],
        own_seeds: (1..=7).collect(),
        ..analysis()
    };
    let text = robust_text(&analysis).replace("\n  ", " ");
    for part in [
        "churn: what the levels depend on",
        "With all costs drawn, it waits most for lruvec on 3 of 4 machines, for no lock or line on \
         1 of 4 machines.",
        "stock: ops_per_s 2.000M",
        "1.000M to 3.000M on 4 machines with all costs drawn from their ranges (least and most)",
        "Over 7 seeds on the profile's machine: 1.900M to 2.100M (95 % interval).",
        "+3.0%    -85.0%",
    ] {
        assert!(text.contains(part), "no `{part}` in {text}");
    }
    assert!(!text.contains("conclusion"), "nothing is compared: {text}");
    let brief = robust_brief(&analysis);
    assert!(brief.contains("stock waits most for lruvec on 3 of 4 machines"), "{brief}");
    assert!(brief.contains("ops_per_s 1.000M to 3.000M on 4 machines"), "{brief}");
}
