//! `cargo xtask robust DIR..`: whether the conclusions of robustness analyses keep their sign.
//!
//! For each conclusion, a row of a Markdown table has the change on the profile's machine, the
//! share of the drawn machines with the same sign, the middle of their changes, and the number of
//! the profile that moves it most. Sums follow.

use std::path::Path;

use mmscale_document::{Claim, Robustness};

/// The share of the drawn machines on which a conclusion that holds keeps its sign.
const HOLDS: f64 = 0.95;

/// Returns the table for the analyses in some folders, which `mmscale robust STUDY -o DIR` wrote.
///
/// # Errors
/// A folder or a file that cannot be read, or no conclusion with machines drawn.
pub fn table(folders: &[&str]) -> Result<String, String> {
    let mut rows = vec![];
    for folder in folders {
        for (file, analysis) in crate::folder::read::<Robustness>(Path::new(folder))? {
            let run = file.strip_suffix("-robust.json").unwrap_or(&file).to_owned();
            rows.extend(analysis.claims.into_iter().map(|claim| (run.clone(), claim)));
        }
    }
    rows.retain(|(_, claim)| claim.holds_share().is_some());
    if rows.is_empty() {
        return Err("no conclusion: analyses need machines drawn (--machines)".to_owned());
    }
    let mut text = String::from(
        "| run | arm | headline | change | same sign | middle 90 % | largest single number | \
         reversed by |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for (run, claim) in &rows {
        text.push_str(&row(run, claim));
    }
    text.push_str(&sums(&rows));
    Ok(text)
}

fn row(run: &str, claim: &Claim) -> String {
    let [low, high] = [0.05, 0.95].map(|share| claim.drawn_quantile(share).unwrap_or(0.0));
    let most = claim.moved.first().map_or("-".to_owned(), |number| {
        let [low, high] = number.percent;
        format!("`{}`: {low:+.1} to {high:+.1} %", number.name)
    });
    let reversing: Vec<_> = claim.reversed_by().collect();
    let reversed = match (reversing.first(), reversing.len()) {
        (None, _) => "none".to_owned(),
        (Some((first, _)), 1) => format!("`{}`", first.name),
        (Some((first, _)), more) => format!("`{}` and {} more", first.name, more - 1),
    };
    format!(
        "| {run} | `{}` | `{}` | {:+.1} % | {} of {} | {low:+.1} to {high:+.1} % | {most} | \
         {reversed} |\n",
        claim.arm,
        claim.metric,
        claim.percent,
        claim.drawn_percent.iter().filter(|&&percent| claim.agrees(percent)).count(),
        claim.drawn_percent.len(),
    )
}

fn sums(rows: &[(String, Claim)]) -> String {
    let changes: Vec<&Claim> =
        rows.iter().map(|(_, claim)| claim).filter(|claim| claim.percent != 0.0).collect();
    let holds = |claim: &&&Claim| claim.holds_share().is_some_and(|share| share >= HOLDS);
    let firm = |claim: &&&Claim| holds(claim) && claim.reversed_by().next().is_none();
    format!(
        "\n{} of {} changes keep their sign on at least {:.0} % of the drawn machines; no single \
         number reverses {} of these.\n",
        changes.iter().filter(holds).count(),
        changes.len(),
        100.0 * HOLDS,
        changes.iter().filter(firm).count(),
    )
}

#[cfg(test)]
mod tests {
    use mmscale_document::MovedNumber;

    use super::*;

    fn claim(percent: f64, drawn: &[f64], ends: [f64; 2]) -> Claim {
        let number = MovedNumber {
            name: "handoff_ns".into(),
            value: 2.0,
            range: [1.0, 4.0],
            basis: "assumed".into(),
            percent: ends,
        };
        Claim {
            ci95: None,
            arm: "lazy".into(),
            metric: "ops_per_s".into(),
            percent,
            moved: vec![number],
            drawn_percent: drawn.to_vec(),
        }
    }

    #[test]
    fn a_conclusion_that_one_number_reverses_is_not_firm() {
        let firm = claim(-10.0, &[-20.0, -5.0], [-30.0, -1.0]);
        let reversed = claim(-10.0, &[-20.0, -5.0], [-30.0, 1.0]);
        let split = claim(10.0, &[20.0, -5.0], [30.0, 1.0]);
        let still = claim(0.0, &[0.0, 1.0], [0.0, 0.0]);
        assert_eq!(
            row("churn", &reversed),
            "| churn | `lazy` | `ops_per_s` | -10.0 % | 2 of 2 | -20.0 to -5.0 % | \
             `handoff_ns`: -30.0 to +1.0 % | `handoff_ns` |\n"
        );
        let rows = [firm, reversed, split, still].map(|claim| ("churn".to_owned(), claim));
        assert_eq!(
            sums(&rows),
            "\n2 of 3 changes keep their sign on at least 95 % of the drawn machines; no single \
             number reverses 1 of these.\n"
        );
    }
}
