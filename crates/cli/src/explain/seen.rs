//! What was seen in a file in which nothing is known, and what can be read.

use mmscale_measured::{Report, Unit};
use mmscale_report::wrap;

/// Returns the lines that say what a file has, and what could be given.
pub(super) fn lines(report: &Report) -> Vec<String> {
    let mut seen = vec![];
    let count = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    if report.log_lines > 0 {
        seen.push(count(report.log_lines, "line") + " of a kernel's log");
    }
    let of = |meant: fn(&Unit) -> bool| report.stacks.iter().filter(|s| meant(&s.unit)).count();
    for (n, what) in [
        (of(|unit| *unit == Unit::Share), "path of a profile, none at a lock"),
        (of(|unit| *unit == Unit::Task), "task of a log that waits for no lock"),
        (
            of(|unit| matches!(unit, Unit::Map(_) | Unit::Event(_) | Unit::Folded)),
            "stack with a weight, none at a lock",
        ),
        (of(|unit| *unit == Unit::None), "call path, none at a lock"),
    ] {
        if n > 0 {
            seen.push(format!("{n} {what}"));
        }
    }
    let seen = match seen.is_empty() {
        true => format!("{}, all of them prose or an unknown form", count(report.lines, "line")),
        false => format!("{} of {}", seen.join("; "), count(report.lines, "line")),
    };
    let forms = "perf lock contention, /proc/lock_stat, klockstat; perf report -g, perf script, \
                 folded stacks; maps of bpftrace, offcputime; dmesg with lockups, stalls or hung \
                 tasks; reports of the kernel test robot (docs/your-report.md)";
    [("seen", seen.as_str()), ("known", forms)]
        .iter()
        .flat_map(|(key, text)| wrap(text, &format!("{key:<9} "), "          "))
        .collect()
}
