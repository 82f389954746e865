//! `mmscale live stress STUDY`.

use std::time::Duration;

use anyhow::{Context, anyhow};
use mmscale_live::stress::{
    Figure, Scale, StressError, StressRequest, Stressed, max_cpus, prepare, stress as run,
};
use mmscale_report::wrap;

use crate::args::{Format, StressArgs, Workers};
use crate::failure::Failure;
use crate::interrupt::{self, Grace};
use crate::output;

use super::preparation::clear;
use super::watch::seconds;

impl From<StressError> for Failure {
    fn from(error: StressError) -> Self {
        match error {
            StressError::Call(_) => Self::Call(error.into()),
            error => Self::Run(error.into()),
        }
    }
}

/// Maximum number of runs of stress-ng, which correspond to seeds elsewhere.
const MAX_RUNS: u64 = 1000;

/// Runs stress-ng in place of a study's workload.
pub(super) fn stress(args: &StressArgs) -> Result<(), Failure> {
    let request = request(args)?;
    let runs = request.runs;
    let prepared = prepare(request)?;
    let interrupt = interrupt::on_signals(Grace::Live)
        .context("cannot watch for Ctrl-C")
        .map_err(Failure::Run)?;
    clear();
    let told = |run| output::tell(&format!("{}: run {} of {runs}", prepared.command(), run + 1));
    let found = run(&prepared, &interrupt, told)?;
    output::print(&match args.format {
        Format::Text => text(&found),
        Format::Json => {
            let line = serde_json::to_string(&found).expect("figures are plain data");
            format!("{line}\n")
        }
    })
}

fn request(args: &StressArgs) -> Result<StressRequest, Failure> {
    let wrong = |what: String| Failure::Call(anyhow!(what));
    let cpus = match &args.cpus {
        None => max_cpus(),
        Some(text) => {
            let most = max_cpus();
            let fits = |cpus: &usize| (1..=most).contains(cpus);
            text.parse().ok().filter(fits).ok_or_else(|| {
                wrong(format!("cannot run on `{text}` CPUs; allowed: 1 to {most}"))
            })?
        }
    };
    let (default_s, runs) = if args.quick { (5, 1) } else { (30, 3) };
    let length = args.length.as_deref().map(seconds).transpose()?;
    let length = length.unwrap_or(Duration::from_secs(default_s));
    if length < Duration::from_secs(1) {
        return Err(wrong("stress-ng runs for whole seconds: give --for 1s or more".to_owned()));
    }
    let runs = args.runs.unwrap_or(runs);
    if !(1..=MAX_RUNS).contains(&runs) {
        return Err(wrong(format!(
            "cannot run stress-ng {runs} times; allowed: --runs 1 to {MAX_RUNS}"
        )));
    }
    Ok(StressRequest {
        study: args.study.clone(),
        cpus,
        length,
        scale: match args.workers {
            Workers::Machine => Scale::Machine,
            Workers::Report => Scale::Report,
        },
        runs,
    })
}

fn text(found: &Stressed) -> String {
    let mut lines =
        vec![format!("{} with stress-ng on the live kernel, {} CPUs", found.study, found.cpus)];
    lines.extend(wrap(&found.command, "", "  "));
    lines.push(String::new());
    lines.push("                                 says    median       min       max".to_owned());
    lines.extend(found.figures.iter().map(row));
    let runs = found.figures.first().map_or(0, |figure| figure.values.len());
    lines.push(format!("runs: {runs}"));
    if !found.paths.is_empty() {
        lines.push(String::new());
        lines.push("waits by call path, as shares of the total wait in the last run".to_owned());
    }
    for (path, share) in &found.paths {
        lines.extend(wrap(path, &format!("  {:>3.0} % ", share * 100.0), "        "));
    }
    if let Some(why) = &found.unwatched {
        lines.push(String::new());
        lines.extend(wrap(why, "waits were not observed: ", "  "));
    }
    lines.push(String::new());
    for (name, value) in &found.provenance {
        lines.extend(wrap(value, &format!("{name}: "), "  "));
    }
    lines.join("\n") + "\n"
}

fn row(figure: &Figure) -> String {
    let name = match figure.unit {
        "1" => figure.name.to_owned(),
        unit => format!("{}, {unit}", figure.name),
    };
    let low = figure.values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = figure.values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let [median, low, high] = [figure.median, low, high].map(number);
    format!("{name:<27}{:>10}{median:>10}{low:>10}{high:>10}", figure.by)
}

/// Formats a number with at least four digits.
fn number(value: f64) -> String {
    match value.abs() {
        x if x >= 1e9 => format!("{value:.3e}"),
        x if x >= 1000.0 => format!("{value:.0}"),
        x if x >= 1.0 => format!("{value:.2}"),
        0.0 => "0".to_owned(),
        _ => format!("{value:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_fit_a_mail_and_say_who_says_it() {
        let figure = Figure {
            name: "cpu_ns_per_bogo_op",
            unit: "ns",
            by: "stress-ng",
            values: vec![9_056.2, 1e12, 0.00012],
            median: 9_056.2,
        };
        let row = row(&figure);
        assert!(row.len() <= 72, "{row}");
        assert!(row.contains("stress-ng      9056    0.0001  1.000e12"), "{row}");
    }
}
