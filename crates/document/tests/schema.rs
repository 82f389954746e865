//! The document's JSON form and its schema agree, and neither changes by accident.

use std::collections::BTreeMap;

use mmscale_document::{
    ArmRecord, Average, Better, Build, CallRecord, Document, FailureRecord, Fingerprint, Histogram,
    Host, Kept, LinuxRecord, LockRecord, LockRow, Metric, ParamValue, PerCpu, SCHEMA, Span, Target,
    Topology, Value, schema_json,
};
use serde_json::json;

fn arm() -> ArmRecord {
    let metric = Metric {
        unit: "1".into(),
        better: Some(Better::Lower),
        headline: true,
        average: Average::Harmonic,
        mean: 872.5,
        ci95: Some([872.0, 873.0]),
        values: vec![Some(Value::Count(872)), Some(Value::Real(873.5)), None],
    };
    let row = LockRow {
        class: "zone".into(),
        path: vec!["root".into(), "free_pcppages_bulk".into()],
        acquisitions: u64::MAX,
        ..LockRow::default()
    };
    ArmRecord {
        arm: "stock".into(),
        policies: BTreeMap::from([("tick".into(), "stock".into())]),
        seeds: vec![1, 2, 3],
        metrics: BTreeMap::from([("zone_lock_contentions".into(), metric)]),
        locks: LockRecord::aggregate([&row]),
        host_metrics: BTreeMap::from([("host_ns_per_event".into(), 71.5)]),
        ..ArmRecord::default()
    }
}

fn document() -> Document {
    let params = [
        ("duration_s", ParamValue::Real(2.5)),
        ("hotplug", ParamValue::Switch(false)),
        ("burst_pages", ParamValue::Count(4096)),
        ("shape", ParamValue::Choice("square".into())),
    ];
    Document {
        schema: SCHEMA.into(),
        build: Build::new("mmscale", "0.1.0", "9ccc9e473612+3fa2b1c0d9e8"),
        program: None,
        command: ["mmscale", "run", "vmstat"].map(str::to_owned).into(),
        study: "vmstat".into(),
        study_file_hash: None,
        script: None,
        on: Target::Sim,
        profile: "arm64-72".into(),
        profile_hash: Some("0123456789abcdef".into()),
        profile_bases: vec!["x86-512".into()],
        linux: Some(LinuxRecord { version: "6.6".into(), unchanged_since: "6.4".into() }),
        cpus: 72,
        topology: Some(Topology {
            shape: "keep".into(),
            nodes: 1,
            node_cpus: 72,
            cache_cpus: 72,
            core_threads: 1,
            profile: None,
        }),
        hz: 1000,
        window_ns: Some(2_500_000_000),
        params: params.map(|(name, value)| (name.into(), value)).into(),
        host: Host { kernel: "Linux".into(), cpu: "CPU".into() },
        fingerprint: "00112233aabbccdd".into(),
        arms: vec![arm()],
        failures: vec![],
        looks: None,
        checksum: None,
        left_out: BTreeMap::new(),
        not_simulated: vec![],
    }
}

#[test]
fn the_form_is_the_documented_one() {
    let text = serde_json::to_string(&document()).unwrap();
    let expected = concat!(
        r#"{"schema":"mmscale/run/3","build":{"name":"mmscale","version":"0.1.0","#,
        r#""commit":"9ccc9e473612","changes":"3fa2b1c0d9e8"},"#,
        r#""command":["mmscale","run","vmstat"],"#,
        r#""study":"vmstat","on":"sim","profile":"arm64-72","profile_hash":"0123456789abcdef","#,
        r#""profile_bases":["x86-512"],"#,
        r#""linux":{"version":"6.6","unchanged_since":"6.4"},"#,
        r#""cpus":72,"topology":{"shape":"keep","nodes":1,"node_cpus":72,"cache_cpus":72,"#,
        r#""core_threads":1},"hz":1000,"window_ns":2500000000,"#,
        r#""params":{"burst_pages":4096,"duration_s":2.5,"hotplug":false,"shape":"square"},"#,
        r#""host":{"kernel":"Linux","cpu":"CPU"},"#,
        r#""fingerprint":"00112233aabbccdd","arms":[{"arm":"stock","#,
        r#""policies":{"tick":"stock"},"seeds":[1,2,3],"#,
        r#""metrics":{"zone_lock_contentions":{"unit":"1","better":"lower","headline":true,"#,
        r#""average":"harmonic","mean":872.5,"ci95":[872.0,873.0],"#,
        r#""values":[872,873.5,null]}},"#,
        r#""locks":[{"class":"zone","site":"free_pcppages_bulk","#,
        r#""acquisitions":18446744073709551615,"contentions":0,"wait_total_ns":0,"#,
        r#""wait_max_ns":0,"hold_total_ns":0}],"host_metrics":{"host_ns_per_event":71.5}}]}"#,
    );
    assert_eq!(text, expected);
    assert_eq!(serde_json::from_str::<Document>(&text).unwrap(), document());
}

#[test]
fn a_document_of_the_earlier_word_for_the_live_kernel_is_read() {
    let live = Document { on: Target::Live, ..document() };
    let text = serde_json::to_string(&live).unwrap();
    assert!(text.contains(r#""on":"live""#), "{text}");

    let text = text.replace(r#""on":"live""#, r#""on":"linux""#);
    let mut sum = Fingerprint::new();
    sum.add_bytes(text.as_bytes());
    let sum = sum.to_hex();
    let text = text.replace("}}]}", &format!(r#"}}}}],"checksum":"{sum}"}}"#));
    let read: Document = serde_json::from_str(&text).unwrap();
    assert_eq!(read, Document { checksum: Some(sum), ..live.clone() });
    assert_eq!(read.is_intact(), Some(true));
    assert_eq!(Document { hz: 250, ..read.clone() }.is_intact(), Some(false));
    assert_eq!(Document { on: Target::Sim, ..read }.is_intact(), Some(false));
    assert_eq!(live.sealed().is_intact(), Some(true));
}

#[test]
fn parts_that_only_some_studies_have_survive_the_round_trip() {
    let mut document = document();
    let arm = &mut document.arms[0];
    arm.per_cpu.insert("fired".into(), PerCpu { unit: "1".into(), values: vec![1.0, 2.0] });
    let mut waits = Histogram { unit: "ns".into(), buckets: vec![[0, 8, 3], [16, 32, 1]] };
    waits.merge(&Histogram { unit: "ns".into(), buckets: vec![[8, 16, 5], [16, 32, 2]] });
    assert_eq!(waits.buckets, [[0, 8, 3], [8, 16, 5], [16, 32, 3]]);
    arm.histograms.insert("wait_ns".into(), waits);
    arm.calls.push(CallRecord {
        path: vec!["f".into()],
        entered: 1,
        total_ns: 9,
        self_ns: 4,
        lines_ns: 1,
    });
    let failed = FailureRecord { arm: "stock".into(), seed: 4, why: "a hang".into() };
    document.failures.push(failed);
    document.left_out.insert("high_decay_ns".to_owned(), "a longer run".to_owned());
    let arm = &mut document.arms[0];
    arm.spans.push(Span { seed: 1, cpu: 0, name: "f".into(), begin_ns: 1, end_ns: 2 });
    let text = serde_json::to_string(&document).unwrap();
    assert_eq!(serde_json::from_str::<Document>(&text).unwrap(), document);
    let validator = jsonschema::validator_for(&schema_json()).unwrap();
    assert!(validator.is_valid(&serde_json::to_value(&document).unwrap()));
}

#[test]
fn the_schema_accepts_documents_and_refuses_others() {
    let validator = jsonschema::validator_for(&schema_json()).unwrap();
    let good = serde_json::to_value(document()).unwrap();
    if let Err(error) = validator.validate(&good) {
        panic!("{error}");
    }
    let spoilt = [
        ("/schema", json!("mmscale/run/2")),
        ("/on", json!("moon")),
        ("/cpus", json!(-1)),
        ("/topology/nodes", json!("two")),
        ("/profile_hash", json!("short")),
        ("/fingerprint", json!("short")),
        ("/arms/0/metrics/zone_lock_contentions/better", json!("more")),
        ("/arms/0/metrics/zone_lock_contentions/ci95", json!([1.0])),
        ("/arms/0/metrics/zone_lock_contentions/values/0", json!("872")),
        ("/arms/0/locks/0/contentions", json!(0.5)),
    ];
    for (pointer, value) in spoilt {
        let mut bad = good.clone();
        *bad.pointer_mut(pointer).unwrap() = value;
        assert!(!validator.is_valid(&bad), "{pointer} is not checked");
    }
    for field in ["schema", "build", "command", "params", "host", "fingerprint", "arms"] {
        let mut bad = good.clone();
        bad.as_object_mut().unwrap().remove(field);
        assert!(!validator.is_valid(&bad), "{field} may be left out");
    }
}

/// The schema as a file, for readers in other languages. `MMSCALE_UPDATE=1` rewrites it.
#[test]
fn the_published_schema_is_this_one() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/run.schema.json");
    let schema = serde_json::to_string_pretty(&schema_json()).unwrap() + "\n";
    if std::env::var_os("MMSCALE_UPDATE").is_some() {
        std::fs::write(path, &schema).unwrap();
    }
    let published = std::fs::read_to_string(path).unwrap();
    assert!(published == schema, "run this test with MMSCALE_UPDATE=1 to publish the new form");
}
