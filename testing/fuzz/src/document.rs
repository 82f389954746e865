//! Documents of runs, analyses and measurements with damage, in the commands that read them.

use std::path::Path;

use serde_json::{Value, json};

use crate::call::Calls;
use crate::json;
use crate::mutate;
use crate::outcome::Outcome;
use crate::random::Random;
use crate::target::{Input, Target};

pub(crate) struct Documents {
    /// Whole documents, the same in each process.
    whole: Vec<Value>,
}

/// The smallest run of reap.
const REAP: [&str; 2] = ["--set=pages=1024", "--set=layout=app"];
/// Calls that write the documents.
const WRITERS: &[&[&str]] = &[
    &["run", "reap", "--cpus", "2", "--arm", "stock,claims", REAP[0], REAP[1], "--seeds", "2"],
    &["run", "fork1", "--cpus", "4", "--set", "duration_ms=0.3", "--seeds", "2", "--blame"],
    &["run", "forkstorm", "--cpus", "1", "--set", "duration_ms=0.3", "--seeds", "1"],
    &["robust", "reap", "--cpus", "2", "--arm", "stock,claims", REAP[0], REAP[1], "--seeds", "2"],
];

/// A measurement, as `explain --save` reads it.
const MEASURED: &str = "\
 contended   total wait     max wait     avg wait         type   caller\n\n\
      1638      7.80 ms     37.40 us      4.76 us     spinlock   folio_lruvec_lock_irqsave+0x5f\n\
         2     61.00 us     40.00 us     30.50 us      rwsem:R   do_user_addr_fault+0x1e1\n";

/// Writes the documents into a folder.
pub(crate) fn prepare(seeds: &Path) {
    let shown = seeds.to_string_lossy();
    let call = |words: &[&str]| {
        let words: Vec<String> =
            ["mmscale"].iter().chain(words).map(|word| (*word).to_owned()).collect();
        let code = mmscale::call(mmscale_studies::all(), &words);
        assert_eq!(code, std::process::ExitCode::SUCCESS, "{words:?}");
    };
    for writer in WRITERS {
        call(
            &[
                writer,
                &["--quick", "--replace", "-o", &shown][usize::from(writer[0] == "robust")..],
            ]
            .concat(),
        );
    }
    let report = seeds.join("measured.txt");
    std::fs::write(&report, MEASURED).expect("the folder can be written");
    let (report, place) = (report.to_string_lossy(), seeds.join("measured.json"));
    let place = place.to_string_lossy();
    call(&["explain", &report, "--cpus", "4", "--seconds", "2", "--replace", "--save", &place]);
}

/// Replaces what is not the same in each run and on each computer.
fn settle(value: &mut Value) {
    match value {
        Value::Array(all) => all.iter_mut().for_each(settle),
        Value::Object(all) => {
            for (key, value) in all {
                match (key.as_str(), value) {
                    ("host_metrics", Value::Object(times)) => {
                        times.values_mut().for_each(|time| *time = json!(1.5));
                    }
                    ("host" | "build" | "program", Value::Object(of)) => {
                        of.values_mut().filter(|v| v.is_string()).for_each(|v| *v = json!("x"));
                        of.values_mut().filter(|v| v.is_number()).for_each(|v| *v = json!(2));
                    }
                    ("command", value) => *value = json!(["mmscale", "run"]),
                    (_, value) => settle(value),
                }
            }
        }
        _ => {}
    }
}

impl Documents {
    pub(crate) fn new(seeds: &Path) -> Self {
        let files = crate::files(seeds, &["."], "json");
        assert!(files.len() > WRITERS.len(), "{} has no documents", seeds.display());
        let whole = files.iter().map(|file| {
            let mut value = serde_json::from_slice(file).expect("a document of this program");
            settle(&mut value);
            // A document without one is read as far as its values agree with its means.
            value.as_object_mut().expect("a document has fields").remove("checksum");
            value
        });
        Self { whole: whole.collect() }
    }
}

impl Target for Documents {
    fn input(&self, random: &mut Random) -> Input {
        let whole = &self.whole[random.below(self.whole.len())];
        let mut value = whole.clone();
        if random.percent(85) {
            json::change(random, &mut value);
        }
        let mut bytes = value.to_string().into_bytes();
        if random.percent(15) {
            let other = self.whole[random.below(self.whole.len())].to_string();
            mutate::text(random, &mut bytes, &[other.as_bytes()]);
        }
        Input { extension: "json", bytes }
    }
    fn check(&self, calls: &Calls, input: &Input, random: &mut Random) -> Outcome {
        let file = calls.file("case.json", &input.bytes);
        let other = self.whole[random.below(self.whole.len())].to_string();
        let other = calls.file("other.json", other.as_bytes());
        let sides = if random.percent(50) { [&file, &other] } else { [&other, &file] };
        let format = random.one_of(&["text", "md", "csv"]);
        match random.below(6) {
            0 | 1 => calls.call(&["compare", sides[0], sides[1], "--format", format]).outcome(),
            2 => calls.call(&["compare", &file, &file, "--fail-on-regression", "*=5%"]).outcome(),
            3 => calls.call(&["report", "--letter", &file, &other]).outcome(),
            _ => {
                let page = calls.no_file("page.html");
                let shown = calls.call(&["report", sides[0], sides[1], "-o", &page]).outcome();
                let text = std::fs::read(&page).unwrap_or_default();
                shown.and(|| match crate::call::control(&String::from_utf8_lossy(&text)) {
                    Some(found) => Outcome::Wrong(format!("a control character: {found:?}")),
                    None => Outcome::Accepted,
                })
            }
        }
    }
}
