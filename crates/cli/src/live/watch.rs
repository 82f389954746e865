//! `mmscale live watch`: observes this kernel.

use std::time::Duration;

use anyhow::{Context, anyhow};
use mmscale_harness::Unit;
use mmscale_live::holders::Holder;
use mmscale_live::observe::{Class, Ends, Observation, STUDIES, Verdict, observe};
use mmscale_report::wrap;

use crate::args::{Format, WatchArgs};
use crate::failure::Failure;
use crate::interrupt::{self, Grace};
use crate::output;

/// Observes the kernel, then shows the result.
pub(super) fn watch(args: &WatchArgs) -> Result<(), Failure> {
    let length = seconds(&args.length)?;
    let studies = studies(&args.studies)?;
    let interrupt = interrupt::on_signals(Grace::Live)
        .context("cannot watch for Ctrl-C")
        .map_err(Failure::Run)?;
    output::tell(&format!("observing this kernel for {} s", length.as_secs_f64()));
    let seen = observe(length, &studies, &interrupt).map_err(|why| {
        let hint = "`mmscale live doctor` lists what is missing and how to get it";
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

/// Returns the named studies; all if none is named.
fn studies(names: &[String]) -> Result<Vec<&'static str>, Failure> {
    let known = |name: &String| {
        let found = STUDIES.into_iter().find(|study| study == name);
        found.ok_or_else(|| {
            let all = STUDIES.join(", ");
            Failure::Call(anyhow!("`{name}` cannot be observed on a live kernel; allowed: {all}"))
        })
    };
    match names {
        [] => Ok(STUDIES.to_vec()),
        names => names.iter().map(known).collect(),
    }
}

/// Parses `30s`, `500ms`, `2min`, or a number of seconds.
pub(crate) fn seconds(text: &str) -> Result<Duration, Failure> {
    const DAY_S: f64 = 86_400.0;
    match Unit::Seconds.parse_real(text.trim()) {
        Ok(s) if (0.1..=DAY_S).contains(&s) => Ok(Duration::from_secs_f64(s)),
        _ => Err(Failure::Call(anyhow!(
            "`{text}` is not a valid time; allowed: 100ms to 1440min, such as 30s"
        ))),
    }
}

fn text(seen: &Observation) -> String {
    let mut lines = vec![format!(
        "this kernel, observed for {:.1} s: {} CPUs, all processes",
        seen.seconds, seen.cpus
    )];
    if let Some(kernel) = seen.provenance.get("policies") {
        lines.extend(wrap(kernel, "", "  "));
    }
    lines.extend([
        String::new(),
        "                     verdict       waits       sum   longest  CPU time".to_owned(),
    ]);
    for class in &seen.classes {
        lines.push(row(class));
    }
    for class in seen.classes.iter().filter(|class| class.verdict > Verdict::Quiet) {
        lines.push(String::new());
        lines.push(class.name.to_owned());
        let limits = class.limits;
        lines.push(format!(
            "  problem: {} % of all CPU time, or one wait of {}; visible: {} %",
            limits.problem_share * 100.0,
            time(limits.long_ns),
            limits.visible_share * 100.0
        ));
        for (path, share) in &class.paths {
            lines.extend(wrap(path, &format!("  {:>3.0} % ", share * 100.0), "        "));
        }
        lines.extend(class.holders.as_deref().map_or(vec![], of_holders));
        lines.extend(wrap(class.advice, "  try: ", "       "));
    }
    if let Some(ends) = &seen.ends {
        lines.push(String::new());
        lines.extend(of_ends(ends));
    }
    if let Some(longest_ns) = seen.resched_max_ns {
        lines.push(String::new());
        lines.push(format!(
            "longest time from a reschedule request to the next task: {}",
            time(longest_ns)
        ));
    }
    if !seen.missing.is_empty() {
        let missing = seen.missing.join(", ");
        lines.extend(wrap(&missing, "hidden by this kernel: ", "  "));
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

/// Formats the holders with the longest waits, by their share of the waits whose end was seen.
fn of_holders(holders: &[Holder]) -> Vec<String> {
    const SHOWN: usize = 3;
    let all_ns = holders.iter().map(|holder| holder.wait_total_ns).sum::<u64>().max(1);
    let waits = holders.iter().map(|holder| holder.waits).sum::<u64>();
    if waits == 0 {
        return vec![];
    }
    let mut lines = vec![format!("  held by, of {waits} waits whose end was seen")];
    for holder in holders.iter().take(SHOWN) {
        let share = holder.wait_total_ns as f64 / all_ns as f64;
        let held = holder.hold_mean_ns().map_or(String::new(), |mean_ns| {
            format!("; held {} on average, {} at most", time(mean_ns), time(holder.hold_max_ns))
        });
        let text = format!("{}{held}", holder.name());
        lines.extend(wrap(&text, &format!("  {:>3.0} % ", share * 100.0), "        "));
    }
    lines
}

/// Formats the phases that occurred, and the events of the OOM killer.
fn of_ends(ends: &Ends) -> Vec<String> {
    let mut lines = vec!["exits and reaping                 count       sum   longest".to_owned()];
    for phase in ends.phases.iter().filter(|phase| phase.count > 0) {
        let (sum, longest) = (time(phase.total_ns), time(phase.max_ns));
        lines.push(format!("{:<29}{:>10} {sum:>10}{longest:>10}", phase.name, phase.count));
    }
    if lines.len() == 1 {
        lines.push("none".to_owned());
    }
    let events: Vec<String> =
        ends.oom.iter().map(|(event, count)| format!("{event} {count}")).collect();
    lines.extend(wrap(&events.join(", "), "out of memory: ", "  "));
    lines
}

pub(crate) fn time(ns: u64) -> String {
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
    fn studies_are_those_that_a_live_kernel_shows() {
        let read = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            studies(&names).map_err(|why| why.to_string())
        };
        assert_eq!(read(&[]).unwrap(), STUDIES);
        assert_eq!(read(&["ipi", "reap"]).unwrap(), ["ipi", "reap"]);
        assert!(read(&["ip"]).unwrap_err().contains("vmstat, churn, reap, pcp, ipi"));
    }

    #[test]
    fn ends_that_there_were_are_told() {
        let phase = |name, count| mmscale_live::observe::Phase {
            name,
            count,
            total_ns: 3_000_000,
            max_ns: 2_000_000,
        };
        let ends = Ends {
            phases: vec![phase("exit: unmapping", 2), phase("oom_reaper: unmapping", 0)],
            oom: vec![("victims", 1), ("reaper woken", 0)],
        };
        let lines = of_ends(&ends);
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(lines[1].ends_with("2    3.00 ms   2.00 ms"), "{lines:?}");
        assert_eq!(lines[2], "out of memory: victims 1, reaper woken 0");
    }

    #[test]
    fn holders_have_shares_and_lengths_where_these_are_known() {
        let holder = |function: &str, wait_total_ns, holds| Holder {
            class: "zone",
            path: vec!["kthread".to_owned(), function.to_owned()],
            waits: 4,
            wait_total_ns,
            wait_max_ns: 1000,
            holds,
            hold_total_ns: holds * 2000,
            hold_max_ns: 3000,
        };
        let holders = [holder("free_pcppages_bulk", 9000, 2), holder("rmqueue_bulk", 1000, 0)];
        let lines = of_holders(&holders);
        assert_eq!(lines[0], "  held by, of 8 waits whose end was seen");
        let text: Vec<&str> = lines[1..].iter().flat_map(|line| line.split_whitespace()).collect();
        assert_eq!(
            text.join(" "),
            "90 % free_pcppages_bulk < kthread; held 2.0 us on average, 3.0 us at most 10 % \
             rmqueue_bulk < kthread"
        );
        assert!(lines.iter().all(|line| line.len() <= 72), "{lines:?}");
        assert!(of_holders(&[]).is_empty());
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
            limits: mmscale_live::observe::Limits {
                problem_share: 0.01,
                visible_share: 0.001,
                long_ns: 1_000_000,
            },
            holders: None,
            advice: "",
        };
        assert!(row(&class).len() <= 72, "{}", row(&class));
    }
}
