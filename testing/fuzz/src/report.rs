//! Reports of other tools: the samples of `crates/measured` with damage, explained and imported.

use crate::call::Calls;
use crate::mutate;
use crate::outcome::Outcome;
use crate::random::Random;
use crate::target::{Input, Target};

#[path = "../../../crates/measured/tests/reports/samples.rs"]
mod samples;

/// A mail with a stack, a tree, and sizes in its sentences.
const MAIL: &str = "\
Subject: zone lock contention on 96 CPUs\n\n\
> On a 2-socket machine with 192 CPUs free_pcppages_bulk() waits for 12.5 s in 10 s.\n\n\
  native_queued_spin_lock_slowpath\n  _raw_spin_lock_irqsave\n  free_pcppages_bulk\n\
  free_frozen_page_commit\n  folios_put_refs\n\n\
    --66.27%--_raw_spin_lock_irqsave\n              |\n              |--40.1%--rmqueue_bulk\n\
              |          get_page_from_freelist\n               --26.17%--free_pcppages_bulk\n\n\
  vmstat_update() -> decay_pcp_high() -> free_pcppages_bulk()\n\n\
stress-ng --vm 96 --vm-bytes 1G\n";

/// Bytes of the longest reports.
const LONGEST: usize = 2 << 20;

pub(crate) struct Reports;

fn samples() -> Vec<&'static [u8]> {
    samples::ALL.into_iter().chain([MAIL]).map(str::as_bytes).collect()
}

impl Target for Reports {
    fn input(&self, random: &mut Random) -> Input {
        let samples = samples();
        let mut bytes = samples[random.below(samples.len())].to_vec();
        if random.percent(10) {
            bytes.extend_from_slice(samples[random.below(samples.len())]);
        }
        mutate::text(random, &mut bytes, &samples);
        match random.below(400) {
            0 => many_rows(random, &mut bytes),
            1 => bytes = bytes.repeat(1 + random.few(LONGEST / bytes.len().max(1))),
            _ => {}
        }
        Input { extension: "txt", bytes }
    }
    fn check(&self, calls: &Calls, input: &Input, random: &mut Random) -> Outcome {
        let file = calls.file("case.txt", &input.bytes);
        let explain = ["explain", &file, "--cpus", "4", "--seconds", "2"];
        match random.below(6) {
            0..=2 => calls.call(&["explain", &file]).outcome(),
            3 => calls.call(&["explain", &file, "--cpus", "8", "--table", "1"]).outcome(),
            4 => calls.call(&explain).outcome(),
            _ => {
                let place = calls.no_file("measured.json");
                let words = [&explain[..], &["--table", "1", "--save", &place]].concat();
                calls.call(&words).outcome().and(|| {
                    if !std::path::Path::new(&place).exists() {
                        return Outcome::Refused("there is nothing to compare".to_owned());
                    }
                    let format = random.one_of(&["text", "csv"]);
                    calls.call(&["compare", &place, &place, "--format", format]).outcome()
                })
            }
        }
    }
}

/// Repeats a line of a report with other numbers, or as it is.
fn many_rows(random: &mut Random, bytes: &mut Vec<u8>) {
    let at = random.below(bytes.len());
    let from = bytes[..at].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let to = bytes[at..].iter().position(|byte| *byte == b'\n');
    let to = to.map_or(bytes.len(), |length| at + length + 1);
    let row = bytes[from..to].to_vec();
    let other = random.percent(50);
    let mut rows = Vec::new();
    for n in 0..random.few(LONGEST / row.len().max(1)) {
        rows.extend_from_slice(&row);
        if other && rows.last() == Some(&b'\n') {
            rows.pop();
            rows.extend_from_slice(format!("{n}\n").as_bytes());
        }
    }
    bytes.splice(from..to, rows);
}
