//! Output of the faults, and of the tests that caught them.

use super::fault::{Expected, Fault};
use super::suite::SuiteResult;
use std::fmt::Write;

/// The result of one fault.
pub(super) struct FaultRow<'a> {
    /// Its place among all faults.
    pub(super) number: usize,
    pub(super) fault: &'a Fault,
    /// The suite that caught the fault, with its result.
    pub(super) caught: Option<(String, SuiteResult)>,
    pub(super) seconds: f64,
}

impl FaultRow<'_> {
    fn by(&self) -> String {
        let Some((suite, outcome)) = &self.caught else {
            return match &self.fault.expected {
                Expected::Missed(why) => format!("not caught: {why}"),
                _ => "**not caught**".to_owned(),
            };
        };
        match outcome {
            SuiteResult::Passed => "nothing".to_owned(),
            SuiteResult::Failed { test, .. } => format!("{suite} `{test}`"),
            SuiteResult::Hung { test } => format!("{suite} `{test}`, which hangs"),
            SuiteResult::Died { test } => format!("{suite} `{test}`, which ends the program"),
        }
    }
    fn schedule(&self) -> &str {
        match &self.caught {
            Some((_, SuiteResult::Failed { schedule: Some(schedule), .. })) => schedule,
            _ => "",
        }
    }
    /// Formats the row in one line.
    pub(super) fn short(&self) -> String {
        let schedule = self.schedule();
        let mark = if schedule.is_empty() { "" } else { ", " };
        format!("{:.1} s: {}: {}{mark}{schedule}", self.seconds, self.fault.name, self.by())
    }
}

/// Lists the faults without running tests.
pub(super) fn list(faults: &[(usize, &Fault)]) -> String {
    let mut text = String::new();
    for (_, fault) in faults {
        let Fault { name, what, .. } = fault;
        let expected = match &fault.expected {
            Expected::Quick => "caught in seconds".to_owned(),
            Expected::Caught => "caught".to_owned(),
            Expected::Missed(why) => format!("missed: {why}"),
        };
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name} ({}, {expected})\n    {what}", fault.krate());
    }
    text + &format!("{} faults", faults.len())
}

/// Formats the rows as a Markdown table.
pub(super) fn markdown(rows: &[FaultRow<'_>]) -> String {
    let mut text = "| fault | what the code does wrong | caught by | schedule | s |\n\
                    |---|---|---|---|---|\n"
        .to_owned();
    for row in rows {
        let Fault { name, what, .. } = row.fault;
        let (by, schedule) = (row.by(), row.schedule());
        let _ = writeln!(text, "| {name} | {what} | {by} | {schedule} | {:.1} |", row.seconds);
    }
    text
}

/// Returns whether all results are as declared.
pub(super) fn verdict(rows: &[FaultRow<'_>]) -> Result<String, String> {
    let missed = |row: &&FaultRow<'_>| matches!(row.fault.expected, Expected::Missed(_));
    let caught = rows.iter().filter(|row| row.caught.is_some()).count();
    let told = format!("planted: {caught} of {} faults are caught", rows.len());
    let mut wrong = Vec::new();
    for row in rows.iter().filter(|row| row.caught.is_some() == missed(row)) {
        let what = match row.caught {
            Some(_) => "is caught, but declared as missed",
            None => "is not caught",
        };
        wrong.push(format!("{} {what}", row.fault.name));
    }
    if wrong.is_empty() { Ok(told) } else { Err(format!("{told}\n{}", wrong.join("\n"))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_that_is_not_as_declared_is_an_error() {
        let [due, quick, missed] = &super::super::fault::some()[..] else { panic!("three") };
        let of = |fault: &Fault, caught: bool| {
            let failed = SuiteResult::Failed { test: "a::b".to_owned(), schedule: None };
            let caught = caught.then(|| ("mm".to_owned(), failed));
            verdict(&[FaultRow { number: 0, fault, caught, seconds: 0.0 }]).is_ok()
        };
        assert!(of(due, true) && !of(due, false) && of(quick, true) && !of(quick, false));
        assert!(of(missed, false) && !of(missed, true));
    }
}
