//! Tests of comparisons of saved documents.

mod records;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use mmscale_document::{
    ArmRecord, Average, Better, Build, Document, Host, Kept, Metric, ParamValue, Value,
};
use mmscale_report::WIDTH;
use mmscale_report::compare::{
    CompareError, Comparison, Gate, GateError, ReadError, Saved, by_arm, csv, markdown, matched,
    read, text,
};

const SEEDS: [u64; 7] = [1, 2, 3, 4, 5, 6, 7];

fn metric(unit: &str, better: Option<Better>, headline: bool, of: impl Fn(u64) -> f64) -> Metric {
    let values: Vec<f64> = SEEDS.map(of).to_vec();
    Metric {
        unit: unit.into(),
        better,
        headline,
        average: Average::Arithmetic,
        mean: values.iter().sum::<f64>() / values.len() as f64,
        ci95: None,
        values: values.into_iter().map(|x| Some(Value::Real(x))).collect(),
    }
}

/// Returns an arm whose waits and throughput are multiplied by a factor.
fn arm(name: &str, factor: f64) -> ArmRecord {
    let noise = |seed: u64| 1.0 + (seed * 7 % 5) as f64 / 10.0;
    let metrics = [
        ("wait_ns", metric("ns", Some(Better::Lower), true, |seed| 1e6 * factor * noise(seed))),
        ("ops_per_s", metric("1/s", Some(Better::Higher), true, |seed| 5e4 * factor * noise(seed))),
        (
            "a_metric_with_a_name_that_takes_most_of_a_line_ns",
            metric("ns", None, false, |seed| {
                noise(seed) * if factor == 1.0 { 1.0 } else { 0.5 + (seed % 2) as f64 }
            }),
        ),
        ("failures", metric("1", Some(Better::Lower), false, |_| 0.0)),
    ];
    ArmRecord {
        arm: name.into(),
        policies: BTreeMap::from([("tick".into(), name.into())]),
        seeds: SEEDS.to_vec(),
        metrics: metrics.map(|(name, metric)| (name.to_owned(), metric)).into(),
        ..ArmRecord::default()
    }
}

fn saved(file: &str, factor: f64) -> Saved {
    let document = Document {
        command: ["mmscale", "run", "vmstat"].map(str::to_owned).into(),
        study: "vmstat".into(),
        profile: "arm64-72".into(),
        profile_hash: Some("0123456789abcdef".into()),
        cpus: 72,
        window_ns: Some(4_000_000_000),
        params: BTreeMap::from([("pages".into(), ParamValue::Count(4096))]),
        host: Host { kernel: "Linux 6.18.0".into(), cpu: "A CPU".into() },
        fingerprint: format!("{:016x}", factor.to_bits()),
        arms: vec![arm("stock", factor), arm("phased", 1.0)],
        ..records::empty()
    };
    Saved { path: PathBuf::from(file), document }
}

/// Returns the text of a comparison, whose lines fit a mail.
fn shown(before: &Saved, after: &Saved) -> String {
    let text = text(&[Comparison::new(before, after).unwrap()]);
    for line in text.lines() {
        assert!(line.chars().count() <= WIDTH && line == line.trim_end(), "{line}");
    }
    text
}

#[test]
fn a_change_is_told_with_its_interval_and_verdict_worse_ones_first() {
    let (mut before, mut after) = (saved("before/x.json", 1.0), saved("after/x.json", 1.25));
    after.document.build = Build::new("mmscale", "0.1.0", "0123456789ab+fedcba987654");
    // One mechanism is the same in both runs, one is new in the second.
    before.document.arms[0].policies.insert("lru".into(), "stock".into());
    let policies = [("lru", "stock"), ("tick", "phased"), ("rwsem", "stock")];
    let policies = policies.map(|(key, policy)| (key.into(), policy.into()));
    after.document.arms[0].policies.extend(policies);
    insta::assert_snapshot!(shown(&before, &after));
}

#[test]
fn a_run_against_itself_holds_nothing() {
    let one = saved("x.json", 1.0);
    let text = shown(&one, &one);
    assert!(text.contains("results   equal bit for bit"), "{text}");
    assert_eq!(text.matches("equal in every pair: all 4 metrics").count(), 2, "{text}");
    assert!(text.contains("metrics: 0 worse, 0 better, 0 changed, 0 unclear, 8 same"), "{text}");
    let all = [Comparison::new(&one, &one).unwrap()];
    assert_eq!(Gate::parse("*=0%").unwrap().regressions(&all), Ok(vec![]));
}

#[test]
fn tables_for_pages_and_programs_have_every_metric() {
    let (before, after) = (saved("b.json", 1.0), saved("a, \"b\".json", 1.25));
    let (markdown, csv) = (
        markdown(&[Comparison::new(&after, &before).unwrap()]),
        csv(&[Comparison::new(&after, &before).unwrap()]),
    );
    assert!(markdown.contains("| `wait_ns` | 1.536ms | 1.229ms | -20.0% |"), "{markdown}");
    assert!(markdown.contains(" better\\* |"), "{markdown}");
    let rows: Vec<&str> = csv.lines().collect();
    assert_eq!(rows.len(), 1 + 2 * 4);
    let columns = rows[0].split(',').count();
    assert!(rows[1..].iter().all(|row| row.replace(", ", " ").split(',').count() == columns));
    assert!(rows[1].contains(",\"a, \"\"b\"\".json\",stock,ops_per_s,1/s,higher,true,"), "{csv}");
}

#[test]
fn gates_fail_on_what_is_worse_by_more_than_allowed() {
    let (before, after) = (saved("b.json", 1.0), saved("a.json", 1.25));
    let all = [Comparison::new(&before, &after).unwrap()];
    let of = |gate: &str| Gate::parse(gate).unwrap().regressions(&all);
    let found = of("*=5%").unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].0, "vmstat, stock: wait_ns +25.0%");
    assert_eq!(of("wait_ns=25.1%"), Ok(vec![]));
    assert_eq!(of("ops_*=0%"), Ok(vec![]), "better is no regression");
    assert!(matches!(of("a_metric*=5%"), Err(GateError::NoMetric(..))), "it has no direction");
    let back = [Comparison::new(&after, &before).unwrap()];
    assert_eq!(Gate::parse("ops_per_s=5%").unwrap().regressions(&back).unwrap().len(), 1);
    // From 0, every change is beyond any limit.
    let mut failing = saved("a.json", 1.0);
    let failures = metric("1", Some(Better::Lower), false, |_| 1.0);
    failing.document.fingerprint = "0000000000000001".into();
    failing.document.arms[0].metrics.insert("failures".into(), failures);
    let all = [Comparison::new(&before, &failing).unwrap()];
    let found = Gate::parse("failures=900%").unwrap().regressions(&all).unwrap();
    assert_eq!(found[0].0, "vmstat, stock: failures from 0");
}

#[test]
fn gates_refuse_what_they_cannot_see() {
    let before = saved("b.json", 1.0);
    let gate = Gate::parse("wait_ns=5%").unwrap();
    let of = |after: &Saved| gate.regressions(&[Comparison::new(&before, after).unwrap()]);
    let mut few = saved("a.json", 1.25);
    few.document.fingerprint = "0000000000000001".into();
    few.document.arms.iter_mut().for_each(|arm| arm.seeds = vec![1, 2, 3, 4, 5, 96, 97]);
    let why = of(&few).unwrap_err();
    assert!(matches!(why, GateError::TooFew { pairs: 5, .. }), "{why}");
    let mut lost = saved("a.json", 1.0);
    lost.document.fingerprint = "0000000000000002".into();
    lost.document.arms[1].metrics.remove("wait_ns");
    assert!(of(&lost).unwrap_err().to_string().starts_with("`wait_ns` of `vmstat`, arm `phased`"));
    lost.document.arms.truncate(1);
    assert!(of(&lost).unwrap_err().to_string().starts_with("arm `phased` of `vmstat`"));
}

#[test]
fn runs_without_common_seeds_or_arms_are_refused() {
    let (before, mut after) = (saved("b.json", 1.0), saved("a.json", 1.0));
    after.document.arms.iter_mut().for_each(|arm| arm.seeds.iter_mut().for_each(|s| *s += 10));
    let why = Comparison::new(&before, &after).unwrap_err();
    assert!(matches!(why, CompareError::NoCommonSeed { .. }), "{why}");
    assert!(why.to_string().contains("before 1 to 7, after 11 to 17"), "{why}");
    after.document.arms.iter_mut().for_each(|arm| arm.arm.push('2'));
    let why = Comparison::new(&before, &after).unwrap_err().to_string();
    assert!(why.contains("before stock, phased, after stock2, phased2"), "{why}");
}

#[test]
fn documents_of_equal_settings_belong_together_then_the_only_ones_of_a_study() {
    let with = |file: &str, study: &str, pages: u64| {
        let mut saved = saved(file, 1.0);
        saved.document.study = study.into();
        saved.document.params.insert("pages".into(), ParamValue::Count(pages));
        saved
    };
    let before = [with("1", "pcp", 1), with("2", "pcp", 2), with("3", "vmstat", 1)];
    let after = [with("4", "vmstat", 9), with("5", "pcp", 2), with("6", "pcp", 3)];
    let found = matched(&before, &after).unwrap();
    let names: Vec<_> =
        found.pairs.iter().map(|(b, a)| [b, a].map(|saved| saved.path.to_str().unwrap())).collect();
    assert_eq!(names, [["2", "5"], ["1", "6"], ["3", "4"]]);
    let many = [with("4", "pcp", 7), with("5", "pcp", 2), with("6", "pcp", 3)];
    let found = matched(&before, &many).unwrap();
    assert_eq!(found.pairs.len(), 1, "one document of two cannot be chosen");
    assert_eq!(found.only.map(|side| side.len()), [2, 2]);
    let twice = [with("7", "pcp", 1), with("8", "pcp", 1)];
    assert!(matches!(matched(&before, &twice), Err(ReadError::Twice { .. })));
    let why = matched(&before[2..], &[with("9", "churn", 1)]).unwrap_err().to_string();
    assert!(why.contains("before there are `vmstat` on sim, after `churn` on sim"), "{why}");
}

#[test]
fn files_that_are_no_documents_are_told_with_advice() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let why = |path: &std::path::Path| read(path).unwrap_err().to_string();
    assert!(why(folder.path()).contains("no document in"));
    let line = serde_json::to_string(&saved("", 1.0).document).unwrap();
    assert_eq!(read(&file("lines.txt", &format!("{line}\n{line}\n"))).unwrap().runs.len(), 2);
    for (text, expected) in [
        ("", "no document in"),
        (&line[..line.len() / 2], "is not a complete document: EOF while parsing"),
        (&line.replace("run/3", "run/2"), "version `mmscale/run/2`, and this program reads"),
        (&line.replace("run/3", "ab/2"), "is a `mmscale/ab/2`, not the document of a run"),
        ("{}", "is not a document of mmscale"),
        ("=== Lock contention ===", "read it with `mmscale explain "),
        (&line.replace("\"cpus\"", "\"cups\""), "is not a complete document: unknown field"),
    ] {
        let why = why(&file("x.json", text));
        assert!(why.contains(expected), "`{why}` does not say `{expected}`");
    }
    assert!(why(&folder.path().join("nothing")).contains("cannot read"));
}

/// Damage and changes that were made without the program, and the sentence about each.
#[test]
fn a_document_that_was_changed_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.json");
    let check = |document: &Document, expected: Option<&str>| {
        fs::write(&path, serde_json::to_string(document).unwrap()).unwrap();
        match (read(&path), expected) {
            (Ok(side), None) => assert_eq!(side.runs.len(), 1),
            (Err(why), Some(expected)) => {
                let why = why.to_string();
                assert!(why.contains("x.json` was changed or damaged"), "{why}");
                assert!(why.contains(expected), "`{why}` does not say `{expected}`");
            }
            (found, expected) => panic!("{expected:?}: {found:?}"),
        }
    };
    let plain = saved("", 1.0).document;
    let sealed = plain.clone().sealed();
    check(&plain, None);
    check(&sealed, None);
    let changes: [fn(&mut Document); 6] = [
        |document| document.fingerprint = "0123456789abcdef".into(),
        |document| document.study = "reap".into(),
        |document| document.arms[0].seeds[0] += 1000,
        |document| document.cpus += 1,
        |document| document.build.commit = "other".into(),
        |document| document.arms[0].arm = "other".into(),
    ];
    for change in changes {
        let mut changed = sealed.clone();
        change(&mut changed);
        check(&changed, Some("its checksum is not that of its contents"));
    }
    // Documents of earlier versions have no checksum.
    let name = plain.arms[0].metrics.keys().next().unwrap().clone();
    let mut doubled = plain.clone();
    let metric = doubled.arms[0].metrics.get_mut(&name).unwrap();
    for value in metric.values.iter_mut().flatten() {
        *value = Value::Real(2.0 * value.as_f64() + 1.0);
    }
    check(&doubled, Some("have the mean"));
    let mut wider = plain.clone();
    wider.arms[0].metrics.get_mut(&name).unwrap().ci95 = Some([-1e9, 1e9]);
    check(&wider, Some("is not that of its values"));
    let mut twice = plain;
    twice.arms[0].seeds[1] = twice.arms[0].seeds[0];
    check(&twice, Some("has a seed twice"));
}

#[test]
fn equal_fingerprints_of_different_values_are_a_contradiction() {
    let (before, mut after) = (saved("a.json", 1.0), saved("b.json", 1.0));
    after.document.fingerprint = before.document.fingerprint.clone();
    assert!(Comparison::new(&before, &after).unwrap().is_equal());
    let metric = after.document.arms[0].metrics.values_mut().next().unwrap();
    metric.values[0] = Some(Value::Real(0.5));
    let why = Comparison::new(&before, &after).unwrap_err().to_string();
    assert!(why.contains("`a.json` and `b.json` have the fingerprint"), "{why}");
}

#[test]
fn arms_of_one_document_are_compared_with_each_other() {
    let mut one = saved("a.json", 1.0);
    one.document.arms = vec![arm("stock", 1.0), arm("lazy", 0.5), arm("slow", 2.0)];
    let [before, after] = by_arm(&one, None).unwrap();
    let comparison = Comparison::new(&before, &after).unwrap();
    assert!(!comparison.is_equal());
    let ratios: Vec<(&str, f64)> = comparison
        .arms
        .iter()
        .map(|arm| {
            let row = arm.rows.iter().find(|row| row.metric == "wait_ns").unwrap();
            (arm.arm, row.found.change.estimate)
        })
        .collect();
    assert_eq!(ratios, [("lazy", 0.5), ("slow", 2.0)]);
    assert!(text(&[comparison]).contains("before    a.json, arm stock\n"));
    let [before, after] = by_arm(&one, Some("lazy")).unwrap();
    let back = Comparison::new(&before, &after).unwrap();
    assert_eq!(back.arms.iter().map(|arm| arm.arm).collect::<Vec<_>>(), ["stock", "slow"]);
    let why = by_arm(&one, Some("frozen")).unwrap_err().to_string();
    assert!(why.ends_with("has no arm `frozen` (known: stock, lazy, slow)"), "{why}");
    one.document.arms.truncate(1);
    assert!(by_arm(&one, None).unwrap_err().to_string().contains("one arm only, stock"));
}
