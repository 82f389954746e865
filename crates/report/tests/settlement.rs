//! The text of a map of the best arms.

use mmscale_document::Settlement;
use mmscale_report::{WIDTH, settlement_text};
use serde_json::json;

fn map(costs: bool) -> Settlement {
    let values = [90.0, 100.0, 100.2];
    let points = |at: [f64; 2], best: &[&str]| json!({"at": at, "values": values, "best": best});
    let place = |same: u32| json!({"at": [12.0, 4e6], "best": ["vma"], "same": same});
    let mut map = json!({
        "schema": "mmscale/settle/1",
        "build": {"name": "mmscale", "version": "0.1.0", "commit": "0123456789ab"},
        "command": ["mmscale", "settle"],
        "study": "fault-io",
        "profile": "x86-512",
        "params": {},
        "seeds": [1, 2],
        "arms": ["stock", "vma", "hold"],
        "metric": "ops_per_s",
        "unit": "1/s",
        "better": "higher",
        "matters_percent": 1.0,
        "knobs": [
            {"name": "readers", "unit": "1", "range": [2.0, 64.0], "log": true, "decides": 0.32},
            {"name": "pause", "unit": "ns", "range": [1e5, 1e8], "log": true, "decides": 0.44},
        ],
        "points": [points([2.0, 1e5], &["stock", "vma"]), points([64.0, 1e8], &["vma"])],
        "regions": [
            {
                "best": ["stock", "vma"], "share": 0.617, "covers": 0.44,
                "limits": [
                    {"knob": "readers", "above": false, "value": 12.6},
                    {"knob": "pause", "above": false, "value": 4.87e6},
                ],
            },
            {"best": ["stock", "vma", "hold"], "share": 0.2, "limits": []},
            {
                "best": ["vma"], "share": 0.18, "covers": 0.97,
                "limits": [{"knob": "pause", "above": false, "value": 562_341.0}],
            },
            {"best": ["hold"], "share": 0.003, "limits": []},
        ],
        "error": {"share": 0.046, "missed": 15, "points": 60, "distance": 0.0214},
        "sections": [],
    });
    if costs {
        map["costs"] = json!({"machines": 10, "away": 0.1, "places": [place(10), place(7)]});
    }
    serde_json::from_value(map).unwrap()
}

#[test]
fn a_map_has_its_regions_its_errors_and_other_machines() {
    let text = settlement_text(&map(true));
    assert!(text.lines().all(|line| line.chars().count() <= WIDTH));
    insta::assert_snapshot!(text);
}

#[test]
fn a_map_says_nothing_of_machines_that_were_not_asked_for() {
    let (with, without) = (settlement_text(&map(true)), settlement_text(&map(false)));
    let rest = with.strip_prefix(&without).unwrap();
    assert!(rest.starts_with("With all costs drawn from their ranges, the best"), "{rest}");
}
