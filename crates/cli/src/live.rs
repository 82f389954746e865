//! `mmscale live`: this kernel as it is.

use std::time::Duration;

use anyhow::{Context, anyhow};
use mmscale_report::wrap;
use mmscale_study::observe::{Class, Observed, Verdict, observe};

use crate::args::{Format, LiveArgs};
use crate::failure::Failure;
use crate::interrupt;
use crate::output;

/// Watches, then tells.
pub(crate) fn live(args: &LiveArgs) -> Result<(), Failure> {
    let length = seconds(&args.length)?;
    let interrupt =
        interrupt::on_signals().context("cannot watch for Ctrl-C").map_err(Failure::Run)?;
    eprintln!("watching this kernel for {} s", length.as_secs_f64());
    let seen = observe(length, &interrupt).map_err(|why| {
        let hint = "`mmscale doctor` says what is missing, and what to do about it";
        Failure::Run(anyhow!("{why}; {hint}"))
    })?;
    output::print(&match args.format {
        Format::Text => text(&seen),
        Format::Json => {
            let line = serde_json::to_string(&seen).expect("what was seen is plain data");
            format!("{line}\n")
        }
    })
}

/// `30s`, `500ms`, `2m`, or seconds.
fn seconds(text: &str) -> Result<Duration, Failure> {
    const DAY_S: f64 = 86_400.0;
    let units = [("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("", 1.0)];
    let found = units.into_iter().find_map(|(unit, scale)| {
        let number: f64 = text.strip_suffix(unit)?.trim().parse().ok()?;
        Some(number * scale)
    });
    match found {
        Some(s) if (0.1..=DAY_S).contains(&s) => Ok(Duration::from_secs_f64(s)),
        _ => Err(Failure::Call(anyhow!(
            "cannot watch for `{text}`: give a time from 100ms to 1440m, such as 30s"
        ))),
    }
}

fn text(seen: &Observed) -> String {
    let mut lines = vec![
        format!("this kernel for {:.1} s, {} CPUs, everybody on it", seen.seconds, seen.cpus),
        "a problem: 1 % of all CPU time, or 1 ms at a time; visible: 0.1 %".to_owned(),
        String::new(),
        "                     verdict       waits       sum   longest  CPU time".to_owned(),
    ];
    for class in &seen.classes {
        lines.push(row(class));
    }
    for class in seen.classes.iter().filter(|class| class.verdict > Verdict::Quiet) {
        lines.push(String::new());
        lines.push(class.name.to_owned());
        for (path, share) in &class.paths {
            lines.extend(wrap(path, &format!("  {:>3.0} % ", share * 100.0), "        "));
        }
        lines.extend(wrap(class.advice, "  try: ", "       "));
    }
    lines.push(String::new());
    lines.push(format!("longest wait for a task switch: {}", time(seen.resched_max_ns)));
    if !seen.missing.is_empty() {
        let missing = seen.missing.join(", ");
        lines.extend(wrap(&missing, "not shown by this kernel: ", "  "));
    }
    lines.join("\n") + "\n"
}

fn row(class: &Class) -> String {
    let verdict = match class.verdict {
        Verdict::Quiet => "quiet",
        Verdict::Visible => "visible",
        Verdict::Problem => "problem",
    };
    format!(
        "{:<20} {verdict:<8}{:>10} {:>10}{:>10}{:>8.3} %",
        class.name,
        class.count,
        time(class.total_ns),
        time(class.max_ns),
        class.share * 100.0
    )
}

fn time(ns: u64) -> String {
    match ns as f64 {
        x if x >= 1e9 => format!("{:.2} s", x / 1e9),
        x if x >= 1e6 => format!("{:.2} ms", x / 1e6),
        x if x >= 1e3 => format!("{:.1} us", x / 1e3),
        x => format!("{x} ns"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_or_are_seconds() {
        let read = |text| seconds(text).ok().map(|time| time.as_millis());
        assert_eq!(["30s", "500ms", "2m", "3"].map(read), [30_000, 500, 120_000, 3_000].map(Some));
        assert_eq!(["", "x", "0s", "-1s", "9999h"].map(read), [None; 5]);
    }

    #[test]
    fn rows_fit_a_mail() {
        let class = Class {
            name: "calls between CPUs",
            study: "ipi",
            verdict: Verdict::Problem,
            count: 123_456_789,
            total_ns: 123_000_000,
            max_ns: 9_990_000,
            share: 0.123,
            paths: vec![],
            advice: "",
        };
        assert!(row(&class).len() <= 72, "{}", row(&class));
    }
}
