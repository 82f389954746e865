//! `mmscale compare`: two saved runs.

use anyhow::anyhow;
use mmscale_report::compare::{
    Comparison, Gate, GateError, Matched, ReadError, Saved, csv, markdown, matched, read, text,
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
    let (before, after) = (read(&args.before)?, read(&args.after)?);
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

fn named(saved: &Saved) -> String {
    format!("`{}`", saved.path.display())
}
