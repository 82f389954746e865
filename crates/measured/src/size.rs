//! The number of CPUs that a text names.

use std::collections::BTreeMap;

use crate::text::Line;

/// The most CPUs of a computer.
const MOST: u32 = 65_536;

/// How sure a line is of the number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Kind {
    /// At least one more than the number of a CPU that is named.
    AtLeast,
    /// Cores, of which each may have several CPUs.
    Cores,
    /// CPUs, in a sentence.
    Cpus,
    /// Counted by the kernel, by lscpu or by a robot.
    Exact,
}

/// The numbers of CPUs of a text.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Sizes {
    /// Numbers of the surest kind, each with its first line.
    pub cpus: BTreeMap<u32, usize>,
    /// The least number of CPUs, from the number of one that is named.
    pub at_least: Option<(u32, usize)>,
}

impl Sizes {
    /// Adds what a later part of the same file says.
    pub(crate) fn add(&mut self, later: Self) {
        if self.cpus.is_empty() {
            self.cpus = later.cpus;
        }
        self.at_least = match (self.at_least, later.at_least) {
            (Some(own), Some(other)) if other.0 > own.0 => Some(other),
            (own, other) => own.or(other),
        };
        if let Some((least, _)) = self.at_least {
            self.cpus.retain(|n, _| *n >= least);
        }
    }
}

/// Returns the numbers of CPUs in lines.
pub(crate) fn sizes(lines: &[&Line]) -> Sizes {
    let mut found: Vec<(Kind, u32, usize)> = vec![];
    let mut rows = std::collections::BTreeSet::new();
    for line in lines.iter().filter(|line| !is_machine_code(&line.text)) {
        let mut enter = |kind, n: u32| {
            if (1..=MOST).contains(&n) {
                found.push((kind, n, line.number));
            }
        };
        exact(&line.text, &mut enter);
        sentence(&line.text, &mut enter);
        named(&line.text, &mut enter);
        let first = line.text.split_whitespace().next().unwrap_or("");
        rows.extend(first.strip_prefix("cpu").and_then(|n| n.parse::<u32>().ok()));
    }
    // A table with a row for each CPU.
    if rows.len() >= 4 && rows.first() == Some(&0) {
        let line = lines.first().map_or(1, |line| line.number);
        found.push((Kind::Exact, rows.last().map_or(0, |last| last + 1), line));
    }
    let mut sizes = Sizes::default();
    let best = found.iter().map(|(kind, ..)| *kind).max();
    for (kind, n, line) in found {
        if kind == Kind::AtLeast {
            let more = sizes.at_least.is_none_or(|(most, _)| n > most);
            sizes.at_least = if more { Some((n, line)) } else { sizes.at_least };
        } else if Some(kind) == best {
            sizes.cpus.entry(n).or_insert(line);
        }
    }
    // A CPU with a higher number refutes a smaller size.
    if let Some((least, _)) = sizes.at_least {
        sizes.cpus.retain(|n, _| *n >= least);
    }
    sizes
}

/// Whether a line has bytes in hexadecimal, as the code at a kernel's fault: `Code: 48 8b <0f> 1f`.
fn is_machine_code(text: &str) -> bool {
    let is_byte = |word: &&str| {
        let byte = word.trim_matches(['<', '>', '(', ')']);
        byte.len() == 2 && byte.bytes().all(|digit| digit.is_ascii_hexdigit())
    };
    let bytes = || text.split_whitespace().filter(is_byte);
    // Numbers of CPUs are decimal.
    bytes().count() >= 4 && bytes().any(|byte| byte.contains(|c: char| c.is_ascii_alphabetic()))
}

fn number(text: &str) -> Option<u32> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b',');
    digits.then(|| text.replace(',', "").parse().ok()).flatten()
}

/// Returns the number that a text begins with.
fn leading(text: &str) -> Option<u32> {
    let text = text.trim_start();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

/// `CPU(s): 128`, `ncpus=256`, `nr_cpu_ids:128`, `test machine: 104 threads`, `x 64 online`.
fn exact(text: &str, enter: &mut dyn FnMut(Kind, u32)) {
    let trimmed = text.trim();
    if let Some(n) = trimmed.strip_prefix("CPU(s):").and_then(leading) {
        enter(Kind::Exact, n);
    }
    for key in ["ncpus=", "nr_cpu_ids:", "nr_cpu_ids=", "nr_cpus_online=", "num_online_cpus="] {
        if let Some(at) = text.find(key)
            && let Some(n) = leading(&text[at + key.len()..])
        {
            enter(Kind::Exact, n);
        }
    }
    if let Some(at) = text.find("test machine:") {
        let rest = text[at + "test machine:".len()..].trim_start();
        if let (Some(n), true) = (leading(rest), rest.contains("threads")) {
            enter(Kind::Exact, n);
        }
    }
    // numactl -H: `node 1 cpus: 16 17 18`; it lists all CPUs of a node.
    if let Some((node, cpus)) = trimmed.split_once(" cpus:")
        && node.starts_with("node ")
        && let Some(last) = cpus.split_whitespace().filter_map(number).max()
    {
        enter(Kind::AtLeast, last.saturating_add(1));
    }
    if let Some(at) = trimmed.find("smp: Brought up ") {
        let words: Vec<&str> = trimmed[at..].split_whitespace().collect();
        let cpus = words.iter().position(|word| word.starts_with("CPU"));
        if let Some(n) = cpus.and_then(|at| number(words[at.checked_sub(1)?])) {
            enter(Kind::Exact, n);
        }
    }
}

/// A word with a number that is joined to it, `72-CPU`, or before it.
struct Size<'a> {
    n: u32,
    unit: &'a str,
}

/// `72-CPU`, `16 cores`, `224 logical CPUs`, `48c96t`, `2 x 64-core`, `2-socket 40 core (80
/// threads)`, `2 sockets, 128 cores each`.
fn sentence(text: &str, enter: &mut dyn FnMut(Kind, u32)) {
    let split = |c: char| c.is_whitespace() || "/(),;:'\"`*|[]{}".contains(c);
    let words: Vec<&str> = text
        .split(split)
        .map(|word| word.trim_matches(['.', '?', '!', '=']))
        .filter(|word| !word.is_empty())
        .collect();
    let sizes = joined(&words);
    let of = |is: fn(&str) -> bool| sizes.iter().filter(move |size| is(size.unit)).map(|s| s.n);
    let cpus: Vec<u32> = of(is_cpus).filter(|n| *n >= 2).collect();
    let each = words.iter().any(|word| ["each", "per", "per-socket"].contains(word));
    let sockets = of(is_sockets).next().filter(|n| *n <= 64);
    let times = times(&words);
    let factor = times.or(sockets.filter(|_| each)).unwrap_or(1);
    for n in &cpus {
        enter(Kind::Cpus, *n);
    }
    let cores: Vec<u32> = of(is_cores).filter(|n| *n >= 2).collect();
    // Threads are CPUs only next to cores or sockets: programs have threads, too.
    let threads: Vec<u32> = of(is_threads).filter(|n| *n >= 2).collect();
    let near = !cores.is_empty() || sockets.is_some();
    if let Some(n) = threads.iter().max().filter(|n| near && cores.iter().all(|c| **n >= *c)) {
        enter(Kind::Cpus, n * if times.is_some() && cores.len() == 1 { factor } else { 1 });
        return;
    }
    if cpus.is_empty() {
        for n in cores {
            enter(Kind::Cores, n * factor);
        }
    }
}

/// Returns the numbers of a sentence with their units: `72-CPU`, `72 CPUs`, `48c96t`, `128C`.
fn joined<'a>(words: &[&'a str]) -> Vec<Size<'a>> {
    let mut sizes = vec![];
    for (at, word) in words.iter().enumerate() {
        if let Some((n, unit)) = word.split_once('-') {
            sizes.extend(number(n).map(|n| Size { n, unit }));
        }
        if let (Some(n), Some(next)) = (number(word), words.get(at + 1)) {
            let other =
                ["logical", "physical", "online", "hardware", "hw", "virtual", "total", "isolated"];
            let unit = words.get(at + 2).filter(|_| other.contains(next)).unwrap_or(next);
            sizes.push(Size { n, unit });
        }
        // `48c96t`, `48C/96T`.
        let lower = word.find(['c', 'C', 't', 'T']).unwrap_or(word.len());
        if let Some(cores) = number(&word[..lower]).filter(|_| lower > 0 && lower < word.len()) {
            let (unit, rest) = word[lower..].split_at(1);
            let unit = if unit.eq_ignore_ascii_case("c") { "cores" } else { "threads" };
            let threads = rest.strip_suffix(['t', 'T']).and_then(number);
            if threads.is_some() && unit == "cores" {
                sizes.push(Size { n: cores, unit });
                sizes.extend(threads.map(|n| Size { n, unit: "threads" }));
            } else if rest.is_empty() && words.len() > 1 {
                sizes.push(Size { n: cores, unit });
            }
        }
    }
    sizes
}

/// Returns the factor of `2 x 64-core`, `2x 64 cores`, `dual 64-core`.
fn times(words: &[&str]) -> Option<u32> {
    for (at, word) in words.iter().enumerate() {
        let has_size = |from: usize| {
            let first = words.get(from)?;
            let unit =
                first.split_once('-').map(|(_, unit)| unit).or(words.get(from + 1).copied())?;
            let n = number(first.split('-').next()?)?;
            (n > 1 && (is_cores(unit) || is_cpus(unit))).then_some(())
        };
        let small = |n: &u32| (2..=64).contains(n);
        if ["x", "X", "×"].contains(word) && at > 0 && has_size(at + 1).is_some() {
            return number(words[at - 1]).filter(small);
        }
        let joined = word.strip_suffix(['x', 'X']).and_then(number).filter(small);
        if joined.is_some() && has_size(at + 1).is_some() {
            return joined;
        }
        if word.eq_ignore_ascii_case("dual") && has_size(at + 1).is_some() {
            return Some(2);
        }
    }
    None
}

fn is_cpus(word: &str) -> bool {
    const UNITS: [&str; 6] = ["cpu", "cpus", "way", "vcpu", "vcpus", "processors"];
    UNITS.contains(&word.to_lowercase().as_str())
}
fn is_cores(word: &str) -> bool {
    ["core", "cores"].contains(&word.to_lowercase().as_str())
}
fn is_threads(word: &str) -> bool {
    ["thread", "threads", "hyperthreads"].contains(&word.to_lowercase().as_str())
}
fn is_sockets(word: &str) -> bool {
    ["socket", "sockets", "s"].contains(&word.to_lowercase().as_str())
}

/// `on cpu 466`, `CPU#11`, `CPU: 11 PID: 5`: there is at least one more.
fn named(text: &str, enter: &mut dyn FnMut(Kind, u32)) {
    for mark in ["CPU#", "on cpu ", "for cpu ", "CPU: ", "on CPU "] {
        if let Some(at) = text.find(mark)
            && let Some(n) = leading(&text[at + mark.len()..])
        {
            enter(Kind::AtLeast, n.saturating_add(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::lines;

    fn of(text: &str) -> (Vec<u32>, Option<u32>) {
        let all = lines(text);
        let found = sizes(&all.iter().collect::<Vec<_>>());
        (found.cpus.into_keys().collect(), found.at_least.map(|(n, _)| n))
    }

    #[test]
    fn sizes_have_many_forms() {
        for (text, cpus) in [
            ("on a 72-CPU system", 72),
            ("a 32-way machine", 32),
            ("16 cores", 16),
            ("test machine: 104 threads 2 sockets (Skylake) with 192G memory", 104),
            ("a 48c96t machine", 96),
            ("a machine with 224 logical CPUs", 224),
            ("CPU(s):              128", 128),
            ("rcu: (detected by 12, t=15010 jiffies, g=639685, q=26165 ncpus=256)", 256),
            ("On a x86-64 2-socket 40 core (80 threads) machine", 80),
            ("2 x 64-core EPYC", 128),
            ("512 logical CPUs, 2 sockets, 128 cores each", 512),
            ("dual 28-core Xeon", 56),
            ("smp: Brought up 2 nodes, 96 CPUs", 96),
            ("a 2 socket machine with 64 cores per socket", 128),
        ] {
            assert_eq!(of(text).0, [cpus], "{text}");
        }
    }

    #[test]
    fn a_cpu_that_is_named_gives_the_least_size() {
        assert_eq!(of("watchdog: Watchdog detected hard LOCKUP on cpu 466"), (vec![], Some(467)));
        assert_eq!(of("CPU#11 stuck\na 8-CPU box"), (vec![], Some(12)), "it has more than 8");
        assert_eq!(of("node 0 cpus: 0 1 2 3\nnode 1 cpus: 4 5 6 7\n"), (vec![], Some(8)));
        assert_eq!(of("node 1 cpus: 16 17 18 19\n"), (vec![], Some(20)));
        let code = "Code: 8d 47 c1 e8 03 4c 01 e8 <0f> b6 00\n[ 3.1] 44 4c 01 e8 24c 8c 48\n";
        assert_eq!(of(code), (vec![], None));
        assert_eq!(of("with 8192 processes, 4 threads, per-CPU caches, v6 of 12"), (vec![], None));
    }
}
