//! Reports of the kernel test robot (LKP): a benchmark before and after a commit, with profiles.
//!
//! ```text
//! kernel test robot noticed a -34.3% regression of will-it-scale.per_process_ops on:
//! testcase: will-it-scale
//! test machine: 104 threads 2 sockets (Skylake) with 192G memory
//! parameters:
//!     nr_task: 100%
//!     test: page_fault1
//!          %stddev     %change         %stddev
//!      41.55 ±  2%     -41.6        0.00        perf-profile.calltrace.cycles-pp.f.g.h
//! ```
//!
//! A path is dotted, the innermost function first, and its share is with callees, so that of the
//! paths into one lock the outermost counts.

use std::collections::BTreeMap;

use mmscale_document::{CALLING, is_acquiring, plain_function};

use crate::frame::is_fast_path;
use crate::number::{deviation, real};
use crate::text::Line;

/// The report of a robot.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Robot {
    /// The benchmark: `will-it-scale`.
    pub testcase: Option<String>,
    /// Parameters of the benchmark: `nr_task`, `mode`, `test`, ...
    pub parameters: BTreeMap<String, String>,
    /// The name of the machine: `lkp-skl-fpga01`.
    pub machine: Option<String>,
    /// Its description: `104 threads 2 sockets (Skylake) with 192G memory`.
    pub hardware: Option<String>,
    /// The claim: change in percent and metric.
    pub claim: Option<(f64, String)>,
    /// Metrics, before and after.
    pub metrics: Vec<Change>,
    /// Paths of samples that wait, before and after, outermost function first; in percent.
    pub paths: Vec<PathChange>,
    /// Number of lines of profiles.
    pub profile_lines: usize,
    /// The line of the first row that was cut behind a function of its path, and is not counted.
    pub cut: Option<usize>,
    /// Whether the figures are of one commit, as in a JSON file of the robot: both sides are equal.
    pub is_single: bool,
}

/// A metric of a report, before and after.
#[derive(Clone, PartialEq, Debug)]
pub struct Change {
    /// The metric.
    pub name: String,
    /// Before the commit.
    pub before: f64,
    /// After it.
    pub after: f64,
}

/// A path, before and after.
#[derive(Clone, PartialEq, Debug)]
pub struct PathChange {
    /// Functions from the outermost to the innermost.
    pub path: Vec<String>,
    /// Percent of all samples before the commit.
    pub before: f64,
    /// After it.
    pub after: f64,
    /// The number of the line.
    pub line: usize,
    /// Whether the innermost function takes a lock for which tasks sleep, and most of its samples
    /// are in no slow path of the text, so that they show no wait.
    pub is_fast: bool,
}

/// Parameters that are kept. Others are of the robot itself.
const PARAMETERS: [&str; 12] = [
    "nr_task",
    "nr_threads",
    "mode",
    "test",
    "runtime",
    "testtime",
    "cpufreq_governor",
    "class",
    "disk",
    "size",
    "sc_pid_max",
    "thp_enabled",
];

/// The most paths of a report.
const MAX_PATHS: usize = 1000;

/// Reads the report in the lines of a file. `None` if there is none.
pub(crate) fn parse(lines: &[Line]) -> Option<Robot> {
    let mut robot = Robot::default();
    let mut rows: Vec<PathChange> = vec![];
    let mut keys: Option<Vec<&str>> = None;
    for line in lines {
        let text = line.text.trim();
        if let Some(keys) = keys.take() {
            robot.heading(&keys, text);
        }
        let is_heading = text.ends_with(':') && text.contains("/tbox_group");
        keys = is_heading.then(|| text.trim_end_matches(':').split('/').collect());
        if let Some((name, value)) = single(text)
            && let Some(path) = path(name)
        {
            robot.profile_lines += 1;
            robot.is_single = true;
            let row =
                PathChange { path, before: value, after: value, line: line.number, is_fast: false };
            if rows.len() < MAX_PATHS && !rows.iter().any(|r| r.path == row.path) {
                rows.push(row);
            }
        } else if let Some((name, before, after)) = change(text) {
            match path(name) {
                Some(path) => {
                    robot.profile_lines += 1;
                    let row = PathChange { path, before, after, line: line.number, is_fast: false };
                    if rows.len() < MAX_PATHS && !rows.iter().any(|r| r.path == row.path) {
                        rows.push(row);
                    }
                }
                None if name.contains("perf-profile.") => robot.profile_lines += 1,
                None => robot.metrics.push(Change { name: name.to_owned(), before, after }),
            }
        }
        robot.fact(text);
    }
    robot.claim = claim(lines);
    let last = lines.iter().filter(|line| !line.is_blank()).map(|line| line.number).max();
    robot.cut = remove_cut(&mut rows, last.unwrap_or(0));
    robot.paths = waits(rows);
    let is_report = robot.profile_lines > 0
        || robot.testcase.is_some() && (robot.claim.is_some() || !robot.metrics.is_empty());
    is_report.then_some(robot)
}

impl Robot {
    /// Returns the number of CPUs of the machine.
    pub fn cpus(&self) -> Option<u32> {
        let words: Vec<&str> = self.hardware.as_deref()?.split_whitespace().collect();
        let at = words.iter().position(|word| *word == "threads")?;
        words[at.checked_sub(1)?].parse().ok()
    }

    /// Enters the values below the heading of the first table.
    fn heading(&mut self, keys: &[&str], text: &str) {
        let values: Vec<&str> = text.split('/').collect();
        if values.len() != keys.len() {
            return;
        }
        keys.iter().zip(values).for_each(|(key, value)| self.fact(&format!("{key}: {value}")));
    }

    fn fact(&mut self, text: &str) {
        let text = text.trim_start_matches(['-', '+', '*', ' ']);
        let Some((key, value)) = text.split_once(':') else { return };
        let (key, value) = (key.trim(), value.trim());
        if value.is_empty() || value.len() > 120 {
            return;
        }
        match key {
            "testcase" => self.testcase = self.testcase.take().or(Some(value.to_owned())),
            "test machine" | "on test machine" => {
                self.hardware = self.hardware.take().or(Some(value.to_owned()));
            }
            "tbox_group" => self.machine = self.machine.take().or(Some(value.to_owned())),
            _ if PARAMETERS.contains(&key) => {
                self.parameters.entry(key.to_owned()).or_insert_with(|| value.to_owned());
            }
            _ => {}
        }
    }
}

/// Reads a row: figures before and after with the change between them, and the name. With several
/// commits, the first and the last.
fn change(text: &str) -> Option<(&str, f64, f64)> {
    let name = text.split_whitespace().last()?;
    let dotted = name.contains('.') && name.starts_with(|c: char| c.is_ascii_alphabetic());
    if !dotted || name.ends_with('.') || name.contains("//") {
        return None;
    }
    let mut words = text.split_whitespace().peekable();
    let (mut values, mut changes) = (vec![], 0);
    while let Some(word) = words.next() {
        if word == name && words.peek().is_none() {
            break;
        }
        match word {
            _ if let Some(rest) = deviation(word) => {
                if rest.is_empty() {
                    words.next();
                }
            }
            // Some mail programs lose the sign of a deviation.
            _ if !values.is_empty() && is_bare_deviation(word) => {}
            _ if word.starts_with(['+', '-']) => {
                let change = word[1..].trim_end_matches('%');
                real(change).or_else(|| change.parse().ok())?;
                changes += 1;
            }
            _ => values.push(figure(word)?),
        }
    }
    // A row without a change: nothing stands between the figures.
    let fits = values.len() >= 2 && changes >= 1;
    fits.then(|| (name, values[0], values[values.len() - 1]))
}

/// Returns whether a word is a deviation without its sign: `8%`.
fn is_bare_deviation(word: &str) -> bool {
    word.strip_suffix('%').is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

fn figure(word: &str) -> Option<f64> {
    let plain = word.bytes().all(|byte| byte.is_ascii_digit() || b".,eE+-".contains(&byte));
    plain
        .then(|| real(word).or_else(|| word.parse().ok()))
        .flatten()
        .filter(|x: &f64| x.is_finite())
}

/// The parts of a name before the functions of a path: of today's robot, and of those of 2013 to
/// 2016.
const EVENTS: [&str; 6] = [
    "calltrace.cycles-pp.",
    "calltrace.cycles.",
    "calltrace.cpu-cycles.",
    "cycles-pp.",
    "cycles.",
    "cpu-cycles.",
];

/// Reads a row of a JSON file of the robot: `"vmstat.swap.so": 1428002,`.
fn single(text: &str) -> Option<(&str, f64)> {
    let (name, value) = text.strip_prefix('"')?.split_once("\":")?;
    let value = value.trim().trim_end_matches(',');
    name.contains('.').then(|| figure(value)).flatten().map(|value| (name, value))
}

/// Returns the path of a line of a profile, the outermost function first.
fn path(name: &str) -> Option<Vec<String>> {
    let rest = name.split_once("perf-profile.")?.1;
    let rest = EVENTS.iter().find_map(|event| rest.strip_prefix(event))?;
    let mut path: Vec<String> = rest
        .split('.')
        // Compilers add parts to names.
        .filter(|part| {
            !["isra", "part", "constprop", "cold", "llvm"].contains(part)
                && !part.bytes().all(|byte| byte.is_ascii_digit())
        })
        .map(|part| plain_function(part).to_owned())
        .collect();
    path.reverse();
    Some(path)
}

/// Removes rows that were cut: those that end within the functions of their lock, if others have
/// its caller, and one in the last line whose functions are the inner ones of another row. Returns
/// the line of the first one.
fn remove_cut(rows: &mut Vec<PathChange>, last_line: usize) -> Option<usize> {
    let most = rows.iter().map(|row| row.path.len()).max()?;
    let is_of_lock = |row: &PathChange| row.path.iter().all(|name| is_acquiring(name));
    let is_lock = |row: &PathChange| row.path.last().is_some_and(|name| is_acquiring(name));
    let has_caller = rows.iter().any(|row| is_lock(row) && !is_of_lock(row));
    let mut cut = rows.iter().position(|row| has_caller && is_of_lock(row));
    let mut is_part = false;
    if let Some((last, whole)) = rows.split_last()
        && last.line == last_line
    {
        let names = || whole.iter().flat_map(|row| &row.path);
        // The outermost name may be cut, too: then another row has all of it.
        is_part = last.path.first().is_some_and(|name| {
            names().any(|other| other.starts_with(name)) && names().all(|other| other != name)
        });
        let inner = &last.path[usize::from(is_part)..];
        let is_inner =
            whole.iter().any(|row| row.path.len() > inner.len() && row.path.ends_with(inner));
        let is_short = last.path.len() < most || is_part;
        // A function that takes a lock has a caller.
        let [outermost, lock @ ..] = last.path.as_slice() else { return None };
        let is_taker = !lock.is_empty()
            && lock.iter().all(|name| is_acquiring(name))
            && names().all(|other| other != outermost);
        cut = cut.or((is_short && (is_inner || is_taker)).then_some(whole.len()));
    }
    if is_part && let Some(last) = rows.last_mut() {
        last.path.remove(0);
    }
    let line = rows[cut?].line;
    rows.retain(|row| row.line != line && !(has_caller && is_of_lock(row)));
    Some(line)
}

/// Shares below this are of the rounding of rows, in percent.
const ROUNDING: f64 = 0.1;

/// Returns the paths whose innermost function waits, each sample once.
///
/// The share of a function has those of the functions that it calls. So the row of the outermost
/// function of a lock counts, and one that continues it only with what it has beyond that: rows of
/// a text may be missing. A row for other CPUs counts if no other one continues it.
fn waits(rows: Vec<PathChange>) -> Vec<PathChange> {
    let inner = |row: &PathChange| row.path.last().cloned().unwrap_or_default();
    let is_lock = |row: &PathChange| is_acquiring(&inner(row));
    let is_call = |row: &PathChange| CALLING.contains(&inner(row).as_str());
    let mut rows: Vec<PathChange> =
        rows.into_iter().filter(|row| is_lock(row) || is_call(row)).collect();
    // A longer path has one function more inside, and may have lost the outermost ones.
    let continues = |inner: &PathChange, outer: &PathChange| {
        (1..inner.path.len()).any(|cut| {
            let rest = &inner.path[..inner.path.len() - cut];
            let n = rest.len().min(outer.path.len());
            n >= 2.min(outer.path.len())
                && rest[rest.len() - n..] == outer.path[outer.path.len() - n..]
        })
    };
    let all = rows.clone();
    rows.retain(|row| is_lock(row) || !all.iter().any(|one| one != row && continues(one, row)));
    // Outer rows first: their path has fewer functions of the lock.
    let depth = |row: &PathChange| row.path.iter().filter(|name| is_acquiring(name)).count();
    rows.sort_by_key(|row| (depth(row), row.line));
    let mut own: Vec<PathChange> = vec![];
    for row in rows {
        let outer: Vec<&PathChange> =
            own.iter().filter(|outer| is_lock(outer) && continues(&row, outer)).collect();
        let is_outer = outer.is_empty();
        let mut left = row.clone();
        left.is_fast = is_fast_path(&inner(&row)) && {
            let slow = all.iter().filter(|one| is_lock(one) && continues(one, &row));
            let slow = slow.map(|one| one.before.max(one.after)).fold(0.0, f64::max);
            slow < row.before.max(row.after) / 2.0
        };
        for outer in outer {
            left.before = (left.before - outer.before).max(0.0);
            left.after = (left.after - outer.after).max(0.0);
        }
        if is_outer || left.before.max(left.after) > ROUNDING {
            own.push(left);
        }
    }
    own.sort_by_key(|row| row.line);
    own
}

/// Reads `noticed a -34.3% regression of will-it-scale.per_process_ops on:`, which may be broken.
fn claim(lines: &[Line]) -> Option<(f64, String)> {
    for (at, line) in lines.iter().enumerate() {
        if !line.text.contains(" noticed ") && !line.text.contains("FYI, we noticed") {
            continue;
        }
        let next = lines.get(at + 1).map_or("", |line| line.text.trim());
        let text = format!("{} {next}", line.text.trim());
        let (_, rest) = text.split_once("noticed ")?;
        let words: Vec<&str> = rest.split_whitespace().collect();
        let of = words.iter().position(|word| *word == "regression" || *word == "improvement")?;
        let percent = words[..of].iter().find_map(|word| word.strip_suffix('%')?.parse().ok());
        let metric = words.get(of + 2).filter(|_| words.get(of + 1) == Some(&"of"));
        if let (Some(percent), Some(metric)) = (percent, metric) {
            return Some((percent, metric.trim_end_matches([',', ':']).to_owned()));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::lines;

    #[test]
    fn rows_have_figures_before_and_after() {
        assert_eq!(change("41.55 ±  2%     -41.6        0.00     a.b"), Some(("a.b", 41.55, 0.0)));
        assert_eq!(change("0.00            +25.0       25.04 ±3%  a.b"), Some(("a.b", 0.0, 25.04)));
        assert_eq!(
            change("1234567 ±  2%     -34.3%     811111        will-it-scale.per_process_ops"),
            Some(("will-it-scale.per_process_ops", 1_234_567.0, 811_111.0))
        );
        assert_eq!(
            change("1.0  +1.0  2.0 ± 4%  +2.0  3.0  a.b"),
            Some(("a.b", 1.0, 3.0)),
            "the first and the last commit"
        );
        assert_eq!(change("0.00   +8.2   8.22   8%  a.b"), Some(("a.b", 0.0, 8.22)));
        assert_eq!(change("32.91  58%   -63.5%   12.01 115%  a.b"), Some(("a.b", 32.91, 12.01)));
        for sign in ["±", "A+-", "+-", "Â±", "+/-"] {
            let row = format!("12 {sign}  3%  +50.0%  18 {sign}4%  a.b");
            assert_eq!(change(&row), Some(("a.b", 12.0, 18.0)), "{sign}");
        }
        assert_eq!(change("see mm/vmscan.c"), None);
        assert_eq!(change("20 and 30 in a.b"), None);
    }

    #[test]
    fn a_report_has_a_claim_a_machine_and_waits() {
        let text = "kernel test robot noticed a -34.3% regression of\n\
            will-it-scale.per_process_ops on:\n\ntestcase: will-it-scale\n\
            test machine: 104 threads 2 sockets (Skylake) with 192G memory\nparameters:\n\n\
            \tnr_task: 100%\n\tmode: process\n\ttest: page_fault1\n\n\
            mode/nr_task/tbox_group/testcase:\n  process/100%/lkp-skl-fpga01/will-it-scale\n\n\
            30.0 +5.0 35.0 perf-profile.calltrace.cycles-pp._raw_spin_lock_irqsave.folio_lruvec_\
            lock_irqsave.release_pages.tlb_finish_mmu.unmap_region\n\
            29.0 +5.0 34.0 perf-profile.calltrace.cycles-pp.native_queued_spin_lock_slowpath._raw_\
            spin_lock_irqsave.folio_lruvec_lock_irqsave.release_pages.tlb_finish_mmu\n\
            60.0 +5.0 65.0 perf-profile.calltrace.cycles-pp.release_pages.tlb_finish_mmu\n";
        let robot = parse(&lines(text)).expect("a report");
        assert_eq!(robot.claim, Some((-34.3, "will-it-scale.per_process_ops".to_owned())));
        assert_eq!(robot.cpus(), Some(104));
        assert_eq!(robot.machine.as_deref(), Some("lkp-skl-fpga01"));
        assert_eq!(robot.parameters["test"], "page_fault1");
        assert_eq!((robot.paths.len(), robot.profile_lines), (1, 3), "{:?}", robot.paths);
        assert_eq!((robot.paths[0].before, robot.paths[0].after), (30.0, 35.0));
        assert_eq!(parse(&lines("a mail\nwithout a report\n")), None);
    }

    fn sum(rows: &[(f64, &str)]) -> (usize, f64) {
        let text: String = rows
            .iter()
            .map(|(share, path)| {
                format!("{share:.2} -1.0 0.00 perf-profile.calltrace.cycles-pp.{path}\n")
            })
            .collect();
        let paths = parse(&lines(&text)).expect("a report").paths;
        let sum: f64 = paths.iter().map(|path| path.before).sum();
        (paths.len(), (sum * 100.0).round() / 100.0)
    }

    #[test]
    fn the_outermost_function_of_a_lock_has_its_share() {
        let spin = "native_queued_spin_lock_slowpath";
        let write = "queued_write_lock_slowpath";
        let inner = format!("{spin}.{write}.f.g.h");
        let outer = format!("{write}.f.g.h.i");
        assert_eq!(sum(&[(14.52, &outer), (10.05, &inner)]), (1, 14.52));
        let (inner_two, outer_two) = (format!("{spin}.{write}.k.l.m"), format!("{write}.k.l.m.n"));
        let two = [(14.52, &*outer), (14.05, &*inner), (14.04, &*outer_two), (13.5, &*inner_two)];
        assert_eq!(sum(&two), (2, 28.56));
        assert_eq!(sum(&[(10.05, &inner)]), (1, 10.05), "the outer row is not in the text");
        let other = format!("{write}.f.g.h.j");
        let rows = [(6.0, &*outer), (4.05, &*other), (10.0, &*inner)];
        assert_eq!(sum(&rows), (2, 10.05), "an inner row of two outer ones");
        assert_eq!(sum(&rows[..1]).1, 6.0);
        assert_eq!(sum(&[rows[0], rows[2]]), (2, 10.0), "another outer row is missing");
        let chain = [
            (9.0, "mutex_lock.f.g.h.i"),
            (8.5, "__mutex_lock.mutex_lock.f.g.h"),
            (5.0, "osq_lock.__mutex_lock.mutex_lock.f.g"),
            (3.0, "mutex_spin_on_owner.__mutex_lock.mutex_lock.f.g"),
        ];
        assert_eq!(sum(&chain), (1, 9.0));
    }

    #[test]
    fn profiles_of_other_years_and_of_json_are_read() {
        let of = |text: &str| parse(&lines(text)).expect("a report");
        for event in ["cycles-pp", "cycles", "cpu-cycles", "calltrace.cycles-pp"] {
            let text =
                format!("9.8 A+- 8% -31.6% 6.7 A+- 2% perf-profile.{event}._raw_spin_lock.f.g");
            let robot = of(&text);
            assert_eq!((robot.paths[0].before, robot.paths[0].after), (9.8, 6.7), "{event}");
            assert!(!robot.is_single);
        }
        let robot = of("  \"vmstat.swap.so\": 1428002,\n\
             \x20 \"perf-profile.calltrace.cycles-pp._raw_spin_lock.f.g\": 13.94,\n\
             \x20 \"perf-profile.calltrace.cycles-pp.h.f.g\": 3.0\n");
        assert!(robot.is_single);
        assert_eq!(robot.paths.len(), 1);
        assert_eq!((robot.paths[0].path.join(" "), robot.paths[0].after), {
            ("g f _raw_spin_lock".to_owned(), 13.94)
        });
    }
}
