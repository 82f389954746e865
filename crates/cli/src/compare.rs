//! `mmscale compare`: two saved runs.

use anyhow::anyhow;
use mmscale_report::compare::{
    Comparison, Gate, GateError, Matched, ReadError, Saved, Side, Waits, by_arm, csv, markdown,
    matched, read, text, waits_csv, waits_text,
};

use crate::args::{CompareArgs, CompareFormat};
use crate::failure::Failure;
use crate::output;

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        Self::Call(error.into())
    }
}

impl From<GateError> for Failure {
    fn from(error: GateError) -> Self {
        Self::Call(error.into())
    }
}

/// Compares all documents that belong together, and fails on regressions beyond the given limits.
pub(crate) fn compare(args: &CompareArgs) -> Result<(), Failure> {
    let gates = args.fail_on_regression.iter().map(|text| Gate::parse(text));
    let gates = gates.collect::<Result<Vec<_>, _>>()?;
    let before = read(&args.before)?;
    let (before, after) = match &args.after {
        Some(after) => {
            let after = read(after)?;
            if !before.measured.is_empty() || !after.measured.is_empty() {
                return measured(args, &before, &after);
            }
            (before.runs, after.runs)
        }
        None => arms(&before, args.base.as_deref())?,
    };
    let Matched { pairs, only } = matched(&before, &after)?;
    for (side, rest) in ["before", "after"].into_iter().zip(&only) {
        rest.iter().for_each(|saved| output::tell(&format!("only {side}: {}", named(saved))));
    }
    let compared = pairs.into_iter().map(|(before, after)| Comparison::new(before, after));
    let compared: Vec<Comparison<'_>> =
        compared.collect::<Result<_, _>>().map_err(|why| Failure::Call(why.into()))?;
    output::print(&match args.format {
        CompareFormat::Text => text(&compared),
        CompareFormat::Md => markdown(&compared),
        CompareFormat::Csv => csv(&compared),
    })?;
    if args.exact {
        return exact(&compared, &only);
    }
    if let (false, Some(lost)) = (gates.is_empty(), only[0].first()) {
        return Err(GateError::Lost(named(lost)).into());
    }
    let mut found = Vec::new();
    for gate in &gates {
        found.extend(gate.regressions(&compared)?);
    }
    match found.len() {
        0 => Ok(()),
        n => {
            let found: Vec<String> = found.into_iter().map(|regression| regression.0).collect();
            let what = if n == 1 { "a regression" } else { "regressions" };
            Err(Failure::Run(anyhow!("{what} beyond the limit: {}", found.join("; "))))
        }
    }
}

/// Fails unless both sides have the same runs with equal results.
fn exact(compared: &[Comparison<'_>], only: &[Vec<&Saved>; 2]) -> Result<(), Failure> {
    let alone = only.iter().flatten().map(|saved| format!("only on one side: {}", named(saved)));
    let differ = compared.iter().filter(|comparison| !comparison.is_equal());
    let differ = differ.map(|comparison| format!("differs: {}", named(comparison.after)));

    let found: Vec<String> = alone.chain(differ).collect();
    if found.is_empty() {
        return Ok(());
    }
    Err(Failure::Run(anyhow!("the results are not equal: {}", found.join("; "))))
}

/// Returns the runs of a side with the base in place of each arm, and the same runs with the other
/// arms.
fn arms(side: &Side, base: Option<&str>) -> Result<(Vec<Saved>, Vec<Saved>), Failure> {
    if side.runs.is_empty() {
        let what = "the documents have no arms to compare with each other: give a second document";
        return Err(Failure::Call(anyhow!(what)));
    }
    let mut sides = (vec![], vec![]);
    for saved in &side.runs {
        let [before, after] = by_arm(saved, base).map_err(|why| Failure::Call(why.into()))?;
        sides.0.push(before);
        sides.1.push(after);
    }
    Ok(sides)
}

/// Compares measured waits with other measured waits or with those of runs.
fn measured(args: &CompareArgs, before: &Side, after: &Side) -> Result<(), Failure> {
    if !args.fail_on_regression.is_empty() || args.exact {
        let what = "--fail-on-regression and --exact compare metrics of runs, which measured waits \
                    do not have: leave them out";
        return Err(Failure::Call(anyhow!(what)));
    }
    let (before, after) = (waits(before)?, waits(after)?);
    let mut text = String::new();
    for before in &before {
        for after in &after {
            let separator = if text.is_empty() { "" } else { "\n" };
            let names = ["before", "after"];
            let shown = match args.format {
                CompareFormat::Text => waits_text(names, [before, after]),
                CompareFormat::Csv => waits_csv(names, [before, after]),
                CompareFormat::Md => {
                    let what = "measured waits have no Markdown form: use --format text or csv";
                    return Err(Failure::Call(anyhow!(what)));
                }
            };
            text.push_str(&format!("{separator}{shown}"));
        }
    }
    output::print(&text)
}

/// Returns the waits of a side: of each measurement, and of the first arm of each run.
fn waits(side: &Side) -> Result<Vec<Waits>, Failure> {
    let measured = side.measured.iter().map(|one| Waits::of_measurement(&one.measurement));
    let runs = side
        .runs
        .iter()
        .filter_map(|saved| Some(Waits::of_arm(&saved.document, saved.document.arms.first()?)));
    let all: Vec<Waits> = measured.chain(runs).collect();
    if all.is_empty() {
        return Err(Failure::Call(anyhow!("the documents have no arm with a result")));
    }
    Ok(all)
}

fn named(saved: &Saved) -> String {
    format!("`{}`", saved.path.display())
}
