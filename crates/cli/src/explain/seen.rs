//! The contents of a file in which nothing is known, and the forms that can be read.

use mmscale_document::is_acquiring;
use mmscale_measured::{Report, Unit};
use mmscale_report::wrap;

/// A choice of units.
type Meant = fn(&Unit) -> bool;

/// Number of functions of a path to show.
const STEPS: usize = 4;

/// Returns the lines that say what a file has, and what could be given.
pub(super) fn lines(report: &Report) -> Vec<String> {
    let mut seen = vec![];
    let count = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    if report.log_lines > 0 {
        seen.push(count(report.log_lines, "line") + " of a kernel's log");
    }
    let of = |meant: Meant| report.stacks.iter().filter(|s| meant(&s.unit)).count();
    let forms: [(Meant, &str); 4] = [
        (|unit| matches!(unit, Unit::Share | Unit::Part), "path of a profile"),
        (|unit| *unit == Unit::Task, "stack of a log"),
        (
            |unit| matches!(unit, Unit::Map(_) | Unit::Event(_) | Unit::Folded),
            "stack with a weight",
        ),
        (|unit| *unit == Unit::None, "call path"),
    ];
    for (of_unit, what) in forms {
        let n = of(of_unit);
        if n > 0 {
            let (first, rest) = what.split_once(' ').unwrap_or((what, ""));
            let plural = if n == 1 { "" } else { "s" };
            let what = match what {
                "call path" => format!("call path{plural}"),
                _ => format!("{first}{plural} {rest}"),
            };
            seen.push(format!("{n} {what}, {}", at_locks(report, of_unit)));
        }
    }
    seen.extend(heaviest(report));
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

/// Says whether stacks of a kind are at a lock. A stack that passes the function of a lock
/// elsewhere may be cut or mixed with another.
fn at_locks(report: &Report, of_unit: Meant) -> String {
    let own = report.stacks.iter().filter(|stack| of_unit(&stack.unit));
    let passes = own.filter(|stack| stack.path.iter().any(|name| is_acquiring(name))).count();
    match passes {
        0 => "none at a lock".to_owned(),
        n => format!(
            "none that ends at a lock; {n} pass{} a function of one, and may be cut",
            if n == 1 { "es" } else { "" }
        ),
    }
}

/// Describes the stack with the largest weight.
fn heaviest(report: &Report) -> Option<String> {
    let all: f64 = report.stacks.iter().filter_map(|stack| stack.weight).sum();
    let weighed = report.stacks.iter().filter_map(|stack| Some((stack, stack.weight?)));
    let (stack, weight) = weighed.max_by(|a, b| a.1.total_cmp(&b.1))?;
    let inner: Vec<&str> = stack.path.iter().rev().take(STEPS).map(String::as_str).collect();
    Some(format!("{:.0} % are in {}", 100.0 * weight / all, inner.join(" < ")))
}
