//! Scripts: those of the repository and random ones, whole and damaged. They are parsed and
//! compiled, and small ones run on a simulated machine with few CPUs.

mod statement;
mod text;
mod value;

use std::path::Path;

use mmscale_script::Script;

use crate::call::{Calls, control};
use crate::mutate;
use crate::outcome::Outcome;
use crate::random::Random;
use crate::run::{Runs, request};
use crate::target::{Input, Target};

/// Bytes of an error that a person reads.
const LONGEST_ERROR: usize = 4 << 10;

pub(crate) struct Scripts {
    /// The scripts of the repository.
    shipped: Vec<Vec<u8>>,
    runs: Runs,
}

impl Scripts {
    pub(crate) fn new(root: &Path) -> Self {
        let shipped = crate::files(root, &["scripts", "gallery"], "mms");
        Self { shipped, runs: Runs::new() }
    }
}

impl Target for Scripts {
    fn input(&self, random: &mut Random) -> Input {
        let others: Vec<&[u8]> = self.shipped.iter().map(Vec::as_slice).collect();
        let bytes = match random.below(10) {
            0 => {
                let mut bytes = self.shipped[random.below(self.shipped.len())].clone();
                mutate::text(random, &mut bytes, &others);
                bytes
            }
            1 | 2 => {
                let mut bytes = text::script(random, false).into_bytes();
                mutate::text(random, &mut bytes, &others);
                bytes
            }
            3 | 4 => text::script(random, true).into_bytes(),
            5 if random.percent(5) => deep(random).into_bytes(),
            _ => text::script(random, false).into_bytes(),
        };
        Input { extension: "mms", bytes }
    }
    fn check(&self, calls: &Calls, input: &Input, random: &mut Random) -> Outcome {
        // A file that is not UTF-8 is refused before it is a script.
        let text = String::from_utf8_lossy(&input.bytes);
        let parse = || Script::parse("case.mms", &text);
        let script = match parse() {
            Ok(script) => script,
            Err(why) => return refused(&why.to_string()),
        };
        let params: Vec<i64> = script.params().iter().map(|param| param.default).collect();
        let _ = (script.content(), script.needs(&params, 64), script.is_per_cpu(&params));
        let again = parse().map(|script| format!("{script:?}"));
        if again != Ok(format!("{script:?}")) {
            return Outcome::Wrong("the same text is not the same program again".to_owned());
        }
        if random.percent(10) {
            let file = calls.file("case.mms", text.as_bytes());
            let profile = random.one_of(&["x86-2", "x86-16", "arm64-480g-64k-72"]).to_owned();
            let cpus = format!("cpus={}", 1 + random.below(4));
            let window = format!("duration_ms={}", random.one_of(&["0.1", "0.2", "1"]));
            let settings = [&*cpus, &*window, "warm_ms=0"];
            return self.runs.run(&request(&file, &profile, &settings, random));
        }
        Outcome::Accepted
    }
}

fn refused(why: &str) -> Outcome {
    if why.len() > LONGEST_ERROR {
        return Outcome::Wrong(format!("an error of {} bytes", why.len()));
    }
    match control(why) {
        Some(found) => Outcome::Wrong(format!("a control character in an error: {found:?}")),
        None => Outcome::Refused(why.to_owned()),
    }
}

/// Returns a script that nests or repeats one construct.
fn deep(random: &mut Random) -> String {
    let (before, after) = random.pick(&[
        ("loop { ", " }"),
        ("if 1 { ", " }"),
        ("x = fork { ", " }"),
        ("threads 2 { ", " }"),
        ("choose { 1: { ", " } }"),
        ("try ", ""),
        ("x = (", ");"),
        ("x = 1 + ", ";"),
        ("x = -", ";"),
        ("x = m[", "];"),
        ("x = rand(", ");"),
        ("/* ", " */"),
    ]);
    let times = if random.percent(50) { random.below(60) } else { random.few(20_000) };
    let (before, after) = (before.repeat(times), after.repeat(times));
    let body = match random.below(3) {
        0 => format!("{before} count; {after}"),
        1 => format!("{before} 1 {after}"),
        _ => "count; ".repeat(times),
    };
    // Each program uses the one before twice: the text grows with each.
    let mut programs = String::from("program p0 { count; }\n");
    for n in 1..random.few(45) {
        programs.push_str(&format!("program p{n} {{ p{0}(); p{0}(); }}\n", n - 1));
    }
    let last = programs.lines().count() - 1;
    format!("{programs} process one {{ m = mmap(1 page); {body} p{last}(); }}")
}
