//! The results of a call: what is shown and written when a plan is complete, and at the end.

use std::ops::ControlFlow;

use mmscale_document::{Document, FailureRecord, Robustness, plain};
use mmscale_files::{Folder, Written};
use mmscale_harness::{Plan, RunError};
use mmscale_report::{
    CSV_HEAD, Notes, brief, csv_rows, foot_text, json_line, markdown, markdown_page, page,
    robust_brief, robust_text, sweep_text, text,
};
use serde::Serialize;

use crate::args::{RunArgs, RunFormat};
use crate::destination::files_of;
use crate::failure::Failure;
use crate::interrupt;
use crate::output::{self, Reader};

/// The results of a call so far.
pub(super) struct Results<'a> {
    args: &'a RunArgs,
    plans: &'a [Plan],
    /// The names of the plans' files.
    names: Vec<String>,
    folder: Option<Folder>,
    complete: Vec<(Document, Notes<'static>)>,
    written: Vec<Written>,
    /// Documents and runs without a result, if others have one.
    lost_documents: usize,
    lost_runs: usize,
    /// Runs of documents, with those that failed.
    runs: usize,
}

impl<'a> Results<'a> {
    pub(super) fn new(
        args: &'a RunArgs,
        plans: &'a [Plan],
        names: Vec<String>,
        folder: Option<Folder>,
    ) -> Self {
        let (complete, written) = (Vec::new(), Vec::new());
        Self {
            args,
            plans,
            names,
            folder,
            complete,
            written,
            lost_documents: 0,
            lost_runs: 0,
            runs: 0,
        }
    }
    /// Shows and writes what the plan at `place` gave, with its analysis. Breaks with the end of
    /// the call.
    pub(super) fn take(
        &mut self,
        place: usize,
        result: Result<Document, RunError>,
        analyse: impl FnOnce() -> Option<Result<Robustness, Failure>>,
    ) -> ControlFlow<Result<(), Failure>> {
        let document = match result {
            Ok(document) => document,
            Err(error @ RunError::Failed { .. }) if self.plans.len() > 1 => {
                output::tell(&format!("error: {error}"));
                self.lost_documents += 1;
                self.runs += self.plans[place].least_runs();
                return ControlFlow::Continue(());
            }
            Err(error) => {
                // An interrupt loses no document that is complete.
                let why = stopped(error, place - self.lost_documents, self.plans.len());
                let shown = if self.args.details { Ok(()) } else { self.show_together() };
                return ControlFlow::Break(shown.and(Err(why)));
            }
        };
        self.count_lost(&document);
        // A failed analysis loses no document.
        let (analysis, failed) = match analyse() {
            Some(Err(why)) => (None, Some(why)),
            analysed => (analysed.and_then(Result::ok), None),
        };
        let mut notes = notes(&self.plans[place], &self.args.only);
        notes.robust = analysis.as_ref().map(robust_brief);
        match self.show(place, &document, &notes, analysis.as_ref()) {
            Ok(Reader::Gone) if self.folder.is_none() => return ControlFlow::Break(self.lost()),
            Ok(_) => self.complete.push((document, notes)),
            Err(why) => return ControlFlow::Break(Err(why)),
        }
        failed.map_or(ControlFlow::Continue(()), |why| ControlFlow::Break(self.end().and(Err(why))))
    }
    fn show(
        &mut self,
        place: usize,
        document: &Document,
        notes: &Notes<'_>,
        analysis: Option<&Robustness>,
    ) -> Result<Reader, Failure> {
        interrupt::whole(|| {
            if let Some(folder) = &self.folder {
                self.written.extend(store(folder, &self.names[place], document, notes, analysis)?);
            }
            let (of, before) = (self.plans.len(), self.complete.len());
            show(self.args, document, notes, analysis, of, before)
        })
    }
    /// Shows the complete documents of several plans side by side.
    fn show_together(&self) -> Result<(), Failure> {
        let there_are = self.plans.len() > 1 && !self.complete.is_empty();
        if there_are && is_together(self.args) {
            interrupt::whole(|| output::print(&together(&self.complete, self.args)))?;
        }
        Ok(())
    }
    /// Ends the call after its last document.
    pub(super) fn end(&self) -> Result<(), Failure> {
        self.show_together()?;
        let named = output::as_named(&self.written);
        self.lost()?;
        named
    }
    /// Counts and reports the failed runs of a document.
    fn count_lost(&mut self, document: &Document) {
        self.lost_runs += document.failures.len();
        let done: usize = document.arms.iter().map(|arm| arm.seeds.len()).sum();
        self.runs += done + document.failures.len();
        for FailureRecord { arm, seed, why } in &document.failures {
            let Document { study, on, .. } = document;
            output::tell(&format!(
                "error: study `{study}`, arm `{arm}`, seed {seed} on {on}: {why}"
            ));
        }
    }
    /// Returns an error if documents or runs have no result.
    fn lost(&self) -> Result<(), Failure> {
        let all = self.runs;
        let mut what = Vec::new();
        if self.lost_documents > 0 {
            let of = self.plans.len();
            what.push(format!("{} of {of} documents have no result", self.lost_documents));
        }
        if self.lost_runs > 0 {
            let lost = self.lost_runs;
            what.push(format!("{lost} of {all} runs failed and are left out of their documents"));
        }
        if what.is_empty() { Ok(()) } else { Err(Failure::Run(anyhow::anyhow!(what.join("; ")))) }
    }
}

/// Writes a document to stdout in the requested format, as JSON with its analysis. Several are
/// shown together at the end; before that only on request.
fn show(
    args: &RunArgs,
    document: &Document,
    notes: &Notes<'_>,
    analysis: Option<&Robustness>,
    of: usize,
    place: usize,
) -> Result<Reader, Failure> {
    let separator = if place == 0 { "" } else { "\n" };
    match args.format {
        RunFormat::Json => {
            let analysis = analysis.map_or_else(String::new, json_line);
            output::write(&format!("{}{analysis}", json_line(document)))
        }
        RunFormat::Csv => {
            let head = if place == 0 { CSV_HEAD } else { "" };
            output::write(&format!("{head}{}", csv_rows(document, notes)))
        }
        RunFormat::Text if args.details => {
            output::write(&format!("{separator}{}", text(document, notes)))
        }
        RunFormat::Text if of == 1 => output::write(&brief(document, notes)),
        RunFormat::Md if args.details || of == 1 => {
            output::write(&format!("{separator}{}", markdown(document, notes, args.details)))
        }
        RunFormat::Text | RunFormat::Md => Ok(Reader::There),
    }
}

/// Returns whether several documents are shown together, at the end of a call.
pub(super) fn is_together(args: &RunArgs) -> bool {
    matches!(args.format, RunFormat::Text | RunFormat::Md)
}

/// Formats several documents: the points of sweeps side by side, or a page with an answer of each.
fn together(complete: &[(Document, Notes<'_>)], args: &RunArgs) -> String {
    let separator = if args.details { "\n" } else { "" };
    if args.format == RunFormat::Md {
        return format!("{separator}{}", markdown_page(complete));
    }
    let mut studies: Vec<&str> =
        complete.iter().map(|(document, _)| document.study.as_str()).collect();
    studies.dedup();
    let shown = if studies.len() > 1 {
        page(complete)
    } else {
        let documents: Vec<Document> =
            complete.iter().map(|(document, _)| document.clone()).collect();
        format!("{}{}", sweep_text(&documents), foot_text(complete))
    };
    format!("{separator}{shown}")
}

/// Writes a document and its analysis, with all details.
fn store(
    folder: &Folder,
    name: &str,
    document: &Document,
    notes: &Notes<'_>,
    analysis: Option<&Robustness>,
) -> Result<Vec<Written>, Failure> {
    let all = Notes { only: vec![], ..notes.clone() };
    let mut written: Vec<Written> =
        write_files(folder, name, document, &text(document, &all))?.into();
    if let Some(analysis) = analysis {
        let (name, text) = (robust_name(name), robust_text(analysis));
        written.extend(write_files(folder, &name, analysis, &text)?);
    }
    Ok(written)
}

fn write_files(
    folder: &Folder,
    name: &str,
    document: &impl Serialize,
    shown: &str,
) -> Result<[Written; 2], Failure> {
    let [json, text] = files_of(name);
    let json = folder.write(&json, json_line(document))?;
    let text = folder.write(&text, plain(shown).as_bytes())?;
    output::tell(&format!("wrote {} and {}", json.path.display(), text.path.display()));
    Ok([json, text])
}

/// Returns the name of an analysis next to the document of a run.
pub(super) fn robust_name(name: &str) -> String {
    format!("{name}-robust")
}

/// Converts a failure, with the number of documents that are already complete.
fn stopped(error: RunError, complete: usize, all: usize) -> Failure {
    let error = anyhow::Error::from(error);
    Failure::Run(if all > 1 {
        anyhow::anyhow!("{error} ({complete} of {all} documents are complete)")
    } else {
        error
    })
}

fn notes(plan: &Plan, only: &[String]) -> Notes<'static> {
    Notes {
        summary: plan.study.summary().to_owned(),
        order: plan.study.metrics().iter().map(|metric| metric.name).collect(),
        defaults: plan.defaults(),
        remarks: plan.remarks(),
        only: only.to_vec(),
        robust: None,
    }
}
