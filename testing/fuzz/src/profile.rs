//! Machine profiles, and the files that `profile new` makes them of.

use std::path::Path;

use serde_json::{Value, json};

use crate::call::Calls;
use crate::json;
use crate::mutate;
use crate::outcome::Outcome;
use crate::random::Random;
use crate::run::{Runs, request};
use crate::target::{Input, Target};

pub(crate) struct Profiles {
    /// The profiles of the repository.
    shipped: Vec<Vec<u8>>,
    runs: Runs,
}

impl Profiles {
    pub(crate) fn new(root: &Path) -> Self {
        let shipped = crate::files(root, &["machines", "gallery/machines"], "toml");
        Self { shipped, runs: Runs::new() }
    }

    fn profile(&self, random: &mut Random) -> Vec<u8> {
        let others: Vec<&[u8]> = self.shipped.iter().map(Vec::as_slice).collect();
        let mut bytes = others[random.below(others.len())].to_vec();
        if random.percent(30) {
            mutate::text(random, &mut bytes, &others);
            return bytes;
        }
        let text = String::from_utf8_lossy(&bytes);
        let mut value: Value = toml::from_str(&text).expect("a profile of the repository");
        if random.percent(90) {
            json::change(random, &mut value);
        }
        if let (Some(table), true) = (value.as_object_mut(), random.percent(30)) {
            let base = random.one_of(&["x86-2", "x86-512", "chain.toml", "case.toml", "./", ""]);
            table.insert("base".to_owned(), base.into());
            // A part of its numbers only.
            if random.percent(60) {
                table.retain(|key, _| key == "base" || random.percent(60));
            }
        }
        toml::to_string(&value).map_or(bytes, String::into_bytes)
    }
}

/// Returns what `lscpu -J -e`, or `lscpu -J`, prints of a small machine.
fn lscpu(random: &mut Random) -> Vec<u8> {
    let cpus = 1 + random.few(16);
    let mut value = if random.percent(60) {
        let row = |cpu: usize| {
            json!({"cpu": cpu, "node": cpu % 2, "socket": 0, "core": cpu / 2, "online": true,
                "l1d:l1i:l2:l3": format!("{0}:{0}:{0}:{1}", cpu / 2, cpu / 4)})
        };
        json!({"cpus": (0..cpus).map(row).collect::<Vec<_>>()})
    } else {
        let fields = [
            ("Architecture:", "x86_64".to_owned()),
            ("CPU(s):", cpus.to_string()),
            ("On-line CPU(s) list:", format!("0-{}", cpus - 1)),
            ("Model name:", "AMD EPYC 9654 96-Core Processor".to_owned()),
            ("Thread(s) per core:", "2".to_owned()),
            ("Core(s) per socket:", (cpus / 2).to_string()),
            ("Socket(s):", "1".to_owned()),
            ("L3 cache:", "384 MiB (12 instances)".to_owned()),
            ("NUMA node(s):", "1".to_owned()),
            ("NUMA node0 CPU(s):", format!("0-{}", cpus - 1)),
        ];
        json!({"lscpu": fields.map(|(field, data)| json!({"field": field, "data": data}))})
    };
    if random.percent(80) {
        json::change(random, &mut value);
    }
    let mut bytes = value.to_string().into_bytes();
    if random.percent(20) {
        mutate::text(random, &mut bytes, &[]);
    }
    bytes
}

/// Returns a matrix of latencies.
fn latencies(random: &mut Random) -> Vec<u8> {
    let cpus = 4;
    let cell = |row: usize, column: usize| match row.cmp(&column) {
        std::cmp::Ordering::Greater => format!("{}", 10 * (row ^ column)),
        _ => String::new(),
    };
    let row = |row: usize| (0..cpus).map(|at| cell(row, at)).collect::<Vec<_>>().join(",");
    let text: Vec<String> = (0..cpus).map(row).collect();
    let mut bytes = (text.join("\n") + "\n").into_bytes();
    mutate::text(random, &mut bytes, &[]);
    bytes
}

impl Target for Profiles {
    fn input(&self, random: &mut Random) -> Input {
        match random.below(10) {
            0 | 1 => Input { extension: "json", bytes: lscpu(random) },
            2 => Input { extension: "csv", bytes: latencies(random) },
            _ => Input { extension: "toml", bytes: self.profile(random) },
        }
    }
    fn check(&self, calls: &Calls, input: &Input, random: &mut Random) -> Outcome {
        let file = calls.file(&format!("case.{}", input.extension), &input.bytes);
        let new = ["profile", "new", "--base", "x86-512"];
        let with = |words: &[&str]| calls.call(&[&new[..], words].concat()).outcome();
        match input.extension {
            "json" => with(&["--lscpu", &file]),
            "csv" => with(&["--cpus", "4", "--cluster", "2", "--nodes", "1", "--latencies", &file]),
            _ => {
                let chain = "base = \"case.toml\"\ndescription = \"on top\"\n";
                let chain = calls.file("chain.toml", chain.as_bytes());
                match random.below(8) {
                    0..=2 => calls.call(&["profile", "check", &file]).outcome(),
                    3 => calls.call(&["profile", "show", &file]).outcome(),
                    4 => calls.call(&["profile", "show", &file, "--format", "json"]).outcome(),
                    5 => calls.call(&["profile", "check", &chain]).outcome(),
                    6 => calls.call(&[&new[..3], &[&file, "--cpus", "4"]].concat()).outcome(),
                    _ => {
                        let cpus = format!("cpus={}", 2 + random.below(3));
                        let settings = [&*cpus, "pages=1024"];
                        self.runs.run(&request("reap", &file, &settings, random))
                    }
                }
            }
        }
    }
}
