//! Recordings of kernels.

use std::io::{Read, Write};
use std::path::Path;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::Value;

use crate::call::Calls;
use crate::json;
use crate::mutate;
use crate::outcome::Outcome;
use crate::random::Random;
use crate::target::{Input, Target};

pub(crate) struct Recordings {
    /// Those of the repository, packed.
    shipped: Vec<Vec<u8>>,
}

impl Recordings {
    pub(crate) fn new(root: &Path) -> Self {
        Self { shipped: crate::files(root, &["gallery/kernels"], "lift") }
    }
}

/// Returns the lines of a recording.
fn lines(packed: &[u8]) -> Vec<String> {
    let mut text = String::new();
    GzDecoder::new(packed).read_to_string(&mut text).expect("a recording of the repository");
    text.lines().map(str::to_owned).collect()
}

/// Replaces one number of a line by a small one.
fn other_number(random: &mut Random, line: &str) -> String {
    let digits = |letter: char| letter.is_ascii_digit();
    let begins: Vec<usize> = line
        .char_indices()
        .filter(|(at, letter)| digits(*letter) && !line[..*at].ends_with(digits))
        .map(|(at, _)| at)
        .collect();
    if begins.is_empty() {
        return line.to_owned();
    }
    let at = begins[random.below(begins.len())];
    let rest = line[at..].trim_start_matches(digits);
    format!("{}{}{rest}", &line[..at], random.few(64))
}

fn packed(lines: &[String]) -> Vec<u8> {
    let mut to = GzEncoder::new(Vec::new(), Compression::fast());
    let text = lines.join("\n") + "\n";
    to.write_all(text.as_bytes()).and_then(|()| to.finish()).expect("memory can be written")
}

impl Target for Recordings {
    fn input(&self, random: &mut Random) -> Input {
        let mut bytes = self.shipped[random.below(self.shipped.len())].clone();
        let extension = "lift";
        if random.percent(20) {
            mutate::text(random, &mut bytes, &[]);
            return Input { extension, bytes };
        }
        let mut lines = lines(&bytes);
        for _ in 0..=random.few(3) {
            // The lists are the first lines, and operations the others.
            let most = if random.percent(60) { 5.min(lines.len()) } else { lines.len() };
            let at = random.below(most);
            if random.percent(10) {
                lines.remove(at);
            } else if random.percent(50) {
                lines[at] = other_number(random, &lines[at]);
            } else if let Ok(mut value) = serde_json::from_str::<Value>(&lines[at]) {
                json::change(random, &mut value);
                lines[at] = value.to_string();
            }
            if lines.is_empty() {
                break;
            }
        }
        Input { extension, bytes: packed(&lines) }
    }

    fn check(&self, calls: &Calls, input: &Input, random: &mut Random) -> Outcome {
        let path = calls.file("case.lift", &input.bytes);
        let shown = calls.call(&["lift", "show", &path]).outcome();
        if !matches!(shown, Outcome::Accepted) {
            return shown;
        }
        if random.percent(30) {
            let json = calls.call(&["lift", "show", &path, "--format", "json"]).outcome();
            let same = calls.call(&["lift", "diff", &path, &path]).outcome();
            if !matches!((&json, &same), (Outcome::Accepted, Outcome::Accepted)) {
                return Outcome::Wrong("what is shown cannot be compared".to_owned());
            }
        }
        let short = ["--seeds", "1", "--set", "duration_ms=0.1", "--set", "warm_ms=0"];
        let run = ["run", &path, "--profile", "x86-2", "--cpus", "4"];
        calls.call(&[&run[..], &short].concat()).outcome()
    }
}
