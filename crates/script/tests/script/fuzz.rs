//! Texts that are nearly scripts: reading them gives an error with a place, or a script that ends.

use crate::fake::Fake;
use mmscale_script::{ProgramSpec, Script, Sink, Times};
use proptest::prelude::{ProptestConfig, any, prop, proptest};
use proptest::test_runner::RngSeed;
use std::fs;
use std::path::Path;
use std::sync::Arc;

const TIMES: Times = Times { begin_ns: 10_000, from_ns: 20_000, until_ns: 200_000 };

/// Words that scripts consist of.
const WORDS: &[&str] = &[
    "process",
    "p",
    "per_cpu",
    "{",
    "}",
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    ";",
    ";",
    ";",
    ",",
    ":",
    "..",
    "=",
    "+=",
    "-",
    "*",
    "/",
    "%",
    "<",
    "!",
    "&&",
    "loop",
    "for",
    "i",
    "in",
    "while",
    "if",
    "else",
    "choose",
    "threads",
    "thread",
    "fork",
    "start",
    "count",
    "break",
    "continue",
    "return",
    "try",
    "on",
    "priority",
    "0",
    "1",
    "3",
    "64",
    "4 KiB",
    "2 pages",
    "10us",
    "1ms",
    "m",
    "m",
    "mmap",
    "munmap",
    "write",
    "read",
    "madvise",
    "DONTNEED",
    "POPULATE",
    "SHARED",
    "memfd_create",
    "rand",
    "wait",
    "kill",
    "cpu",
    "cpus",
    "now",
    "param",
    "\"help\"",
    "program",
    "file",
    "window",
    "//",
    "\n",
    "/*",
    "*/",
    "\"",
    "ä",
    "9223372036854775807",
    "1 GiB",
];

/// Reads a text, and runs it if it is a script.
fn survive(text: &str) {
    match Script::parse("fuzz.mms", text) {
        Ok(script) => {
            let params: Vec<i64> = script.params().iter().map(|param| param.default).collect();
            let ignored: Sink = Arc::new(|_| ());
            script.needs(&params, 4);
            let spec = ProgramSpec {
                name: "fuzz",
                params: &params,
                written_by: "",
                simulated_by: &[],
                remarks: &[],
            };
            // A program in C, or why there is none.
            let _ = script.reproduce(&spec);
            script.run(&params, 1, TIMES, ignored, &Fake::default());
        }
        Err(why) => {
            let lines = text.matches('\n').count() + 1;
            assert!((1..=lines).contains(&why.line) && why.column > 0, "{why}");
        }
    }
}

/// The scripts of the repository, as words with the blanks between them.
fn shipped() -> Vec<Vec<String>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts");
    let mut paths: Vec<_> =
        fs::read_dir(folder).expect("the folder exists").flatten().map(|e| e.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "mms"));
    paths.sort();
    let words = |path: &std::path::PathBuf| {
        let text = fs::read_to_string(path).expect("it is readable");
        // Windows of memory small enough for a test.
        let text = text.replace("128 MiB", "64 KiB");
        let is_edge = |a: char, b: char| !(a.is_alphanumeric() && b.is_alphanumeric());
        let mut words = vec![String::new()];
        for letter in text.chars() {
            let last = words.last_mut().expect("it has one");
            match last.chars().last() {
                Some(before) if is_edge(before, letter) => words.push(letter.to_string()),
                _ => last.push(letter),
            }
        }
        words
    };
    paths.iter().map(words).collect()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000,
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn words_in_any_order(words in prop::collection::vec(0..WORDS.len(), 0..40)) {
        let body: Vec<&str> = words.iter().map(|&word| WORDS[word]).collect();
        survive(&body.join(" "));
        survive(&format!("process p {{ m = mmap(1 page); count; {} }}", body.join(" ")));
    }

    #[test]
    fn any_text(text in any::<String>()) {
        survive(&text);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 600,
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Scripts in which some words are lost, doubled, exchanged, or replaced.
    #[test]
    fn scripts_with_mistakes(
        which in any::<prop::sample::Index>(),
        mistakes in prop::collection::vec(
            (0..4_u8, any::<prop::sample::Index>(), 0..WORDS.len()),
            1..4,
        ),
    ) {
        let all = shipped();
        let mut words = which.get(&all).clone();
        for (kind, at, word) in mistakes {
            let at = at.index(words.len());
            match kind {
                0 => words[at].clear(),
                1 => words.insert(at, words[at].clone()),
                2 => words[at] = WORDS[word].to_owned(),
                _ => {
                    let other = (at + 7) % words.len();
                    words.swap(at, other);
                }
            }
        }
        survive(&words.concat());
    }
}
