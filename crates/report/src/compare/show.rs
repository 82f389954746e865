//! Comparisons as text of 72 columns, Markdown, and CSV.

use mmscale_document::Better;

use super::{ArmComparison, Comparison, Row};
use crate::csv::quoted;
use crate::figure;
use crate::number::scaled;
use crate::text::{beside, listed, wrap};
use crate::words;

/// Formats comparisons as text, with lines of at most [`WIDTH`](crate::WIDTH) columns.
pub fn text(all: &[Comparison<'_>]) -> String {
    let mut lines = Vec::new();
    for comparison in all {
        if !lines.is_empty() {
            lines.push(String::new());
        }
        lines.extend(header(comparison));
        for arm in &comparison.arms {
            lines.push(String::new());
            lines.extend(arm_lines(arm));
        }
    }
    lines.push(String::new());
    lines.extend(legend(all));
    let mut text = String::new();
    for line in lines {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn header(of: &Comparison<'_>) -> Vec<String> {
    let document = &of.before.document;
    let machine = format!(
        "{} on {}, {}, {} CPUs, HZ={}",
        document.study,
        document.on,
        document.machine(),
        document.cpus,
        document.hz
    );
    let mut lines = wrap(&machine, "", "  ");
    let mut entry = |key: &str, text: &str| {
        lines.extend(wrap(text, &format!("{key:<9} "), "          "));
    };
    entry("before", &of.before.path.display().to_string());
    entry("after", &of.after.path.display().to_string());
    for (what, before, after) in &of.differences {
        entry("differs", &format!("{what}: {before} -> {after}"));
    }
    for (side, arms) in ["before", "after"].into_iter().zip(&of.only) {
        if !arms.is_empty() {
            entry("arms", &format!("only {side}: {}", arms.join(", ")));
        }
    }
    if of.is_equal() {
        entry("results", &format!("equal bit for bit, fingerprint {}", document.fingerprint));
    }
    lines
}

fn arm_lines(arm: &ArmComparison<'_>) -> Vec<String> {
    let (same, shown): (Vec<&Row<'_>>, Vec<&Row<'_>>) =
        arm.rows.iter().partition(|row| row.found.change.unchanged);
    let mut lines = Vec::new();
    let name = format!("arm {}", arm.arm);
    if shown.is_empty() {
        lines.push(name);
    } else {
        let cells = format!(
            "{:>10}{:>10}{:>9}{:>16} {:7}",
            "before", "after", "change", "95 % interval", ""
        );
        lines.extend(beside(&name, &cells));
    }
    for row in shown {
        let [before, after] = [row.before, row.after].map(|m| scaled(m.mean, &m.unit));
        let (change, interval) = (figure::estimate(&row.found), figure::interval(&row.found));
        let verdict = marked(row);
        let cells = format!("{before:>10}{after:>10}{change:>9}{interval:>16} {verdict:<7}");
        lines.extend(beside(row.metric, &cells));
    }
    if !same.is_empty() {
        let names: Vec<&str> = same.iter().map(|row| row.metric).collect();
        let first = if names.len() == arm.rows.len() {
            format!("equal in every pair: all {} metrics", names.len())
        } else {
            format!("equal in every pair: {}", names.join(", "))
        };
        lines.extend(wrap(&first, "", "  "));
    }
    for (side, names) in ["before", "after"].into_iter().zip(&arm.only) {
        if !names.is_empty() {
            lines.extend(wrap(&names.join(", "), &format!("only {side}: "), "  "));
        }
    }
    lines
}

/// Returns the verdict, with a mark if the change holds.
fn marked(row: &Row<'_>) -> String {
    format!("{}{}", row.verdict(), figure::star(Some(&row.found)))
}

fn legend(all: &[Comparison<'_>]) -> Vec<String> {
    let rows = || all.iter().flat_map(|one| &one.arms).flat_map(|arm| &arm.rows);
    let count = |verdict: &str| rows().filter(|row| row.verdict() == verdict).count();
    let counts = ["worse", "better", "changed", "unclear", "same"]
        .map(|verdict| format!("{} {verdict}", count(verdict)));
    let mut lines = wrap(&counts.join(", "), "metrics: ", "  ");
    let pairs = rows().map(|row| row.found.change.pairs).max().unwrap_or(0);
    let tests =
        |arm: &ArmComparison<'_>| arm.rows.iter().filter(|row| row.found.holds.is_some()).count();
    let tests = all.iter().flat_map(|one| &one.arms).map(tests).max().unwrap_or(0);
    let seeds = all.first().map_or(String::new(), common_seeds);
    let mut text = format!("{pairs} pairs of equal seeds ({seeds});");
    let first_look = rows().any(|row| row.found.first_look);
    let few = words::too_few(pairs, tests).filter(|_| !first_look);
    text.push_str(&match few {
        Some(few) => format!(" {few}"),
        None if tests > 0 => format!(
            " {}; all other verdicts are exploratory: the 95 % interval of the change excludes 0",
            words::tested_together(first_look)
        ),
        None => " the studies have no headlines: all verdicts are exploratory".to_owned(),
    });
    if first_look {
        text.push_str(&format!("; {}", words::first_look()));
    }
    lines.extend(wrap(&text, "", "  "));
    lines
}

/// Returns the seeds that both documents have in some arm.
fn common_seeds(of: &Comparison<'_>) -> String {
    let seeds = |saved: &super::Saved| -> std::collections::BTreeSet<u64> {
        saved.document.arms.iter().flat_map(|arm| &arm.seeds).copied().collect()
    };
    let both: Vec<u64> = seeds(of.before).intersection(&seeds(of.after)).copied().collect();
    listed(&both)
}

/// Formats comparisons as Markdown: a table for each arm.
pub fn markdown(all: &[Comparison<'_>]) -> String {
    let mut text = String::new();
    for comparison in all {
        let document = &comparison.before.document;
        text.push_str(&format!(
            "## {} on {}, {}, {} CPUs\n\n",
            document.study,
            document.on,
            document.machine(),
            document.cpus
        ));
        for (what, before, after) in &comparison.differences {
            text.push_str(&format!("- {what}: `{before}` to `{after}`\n"));
        }
        for arm in &comparison.arms {
            text.push_str(&format!("\n### {}\n\n", arm.arm));
            text.push_str("| metric | before | after | change | 95 % interval | verdict |\n");
            text.push_str("|---|---|---|---|---|---|\n");
            for row in &arm.rows {
                let [before, after] = [row.before, row.after].map(|m| scaled(m.mean, &m.unit));
                let (change, interval) =
                    (figure::estimate(&row.found), figure::interval(&row.found));
                text.push_str(&format!(
                    "| `{}` | {before} | {after} | {change} | {interval} | {} |\n",
                    row.metric,
                    marked(row).replace('*', "\\*")
                ));
            }
        }
        text.push('\n');
    }
    for line in legend(all) {
        text.push_str(&line.replace('*', "\\*"));
        text.push('\n');
    }
    text
}

/// Formats comparisons as CSV with one row for each metric of each arm, in the metrics' own units.
pub fn csv(all: &[Comparison<'_>]) -> String {
    let mut text = String::from(
        "study,on,profile,cpus,hz,document,arm,metric,unit,better,headline,before,after,pairs,\
         change_percent,low_percent,high_percent,p,verdict,holds\n",
    );
    let number = |x: Option<f64>| x.map_or(String::new(), |x| x.to_string());
    for comparison in all {
        let document = &comparison.before.document;
        let file = comparison.before.path.file_name().unwrap_or_default().to_string_lossy();
        for (arm, row) in
            comparison.arms.iter().flat_map(|arm| arm.rows.iter().map(move |row| (arm, row)))
        {
            let change = &row.found.change;
            let [low, high] = change.percent_ci95().map_or([None; 2], |ends| ends.map(Some));
            let better = match row.found.better {
                Some(Better::Lower) => "lower",
                Some(Better::Higher) => "higher",
                None => "",
            };
            let holds = row.found.holds;
            let cells = [
                document.study.clone(),
                document.on.to_string(),
                document.profile.clone(),
                document.cpus.to_string(),
                document.hz.to_string(),
                file.to_string(),
                arm.arm.to_owned(),
                row.metric.to_owned(),
                row.after.unit.clone(),
                better.to_owned(),
                holds.is_some().to_string(),
                row.before.mean.to_string(),
                row.after.mean.to_string(),
                change.pairs.to_string(),
                number(change.percent()),
                number(low),
                number(high),
                change.p.to_string(),
                row.verdict().to_owned(),
                holds.map_or(String::new(), |holds| holds.to_string()),
            ];
            text.push_str(&cells.map(|cell| quoted(&cell)).join(","));
            text.push('\n');
        }
    }
    text
}
