//! `mmscale report`: saved documents as one HTML page.

use anyhow::anyhow;
use mmscale_document::{Document, Robustness};
use mmscale_harness::Registry;
use mmscale_report::compare::read;
use mmscale_report::{Notes, html_page, robust_brief};

use crate::args::PageArgs;
use crate::destination::{Destination, PAGE};
use crate::failure::Failure;
use crate::letter::notes;
use crate::output;

/// Writes a page with the documents of all paths.
pub(crate) fn report(registry: &Registry, args: &PageArgs) -> Result<(), Failure> {
    let existing = output::existing(args.replace);
    let place = Destination::open(&args.output, existing, PAGE)?;
    let (mut runs, mut analyses) = (vec![], vec![]);
    for path in &args.paths {
        let side = read(path)?;
        if let Some(measured) = side.measured.first() {
            return Err(Failure::Call(anyhow!(
                "`{}` has measured waits, of which there are no pictures: `mmscale compare` shows \
                 them; give documents of runs",
                measured.path.display()
            )));
        }
        runs.extend(side.runs.into_iter().map(|saved| saved.document));
        analyses.extend(side.analyses);
    }
    // A file that two paths name is shown once.
    dedup(&mut runs);
    dedup(&mut analyses);
    let with_notes = |document| (document, whole(registry, document, &analyses));
    let runs: Vec<(&Document, Notes<'_>)> = runs.iter().map(with_notes).collect();
    let analyses: Vec<&Robustness> = analyses.iter().collect();
    let page = html_page(&runs, &analyses).map_err(|why| Failure::Call(why.into()))?;
    place.write(&page)
}

fn dedup<T: PartialEq>(all: &mut Vec<T>) {
    let mut kept: Vec<T> = vec![];
    for one in all.drain(..) {
        if !kept.contains(&one) {
            kept.push(one);
        }
    }
    *all = kept;
}

/// Returns the additions of a document's study, with what an analysis of the same point found.
fn whole(registry: &Registry, document: &Document, analyses: &[Robustness]) -> Notes<'static> {
    let same = |analysis: &&Robustness| {
        analysis.study == document.study
            && analysis.cpus == document.cpus
            && Some(&analysis.profile_hash) == document.profile_hash.as_ref()
            && analysis.params == document.params
    };
    let robust = analyses.iter().find(same).map(robust_brief);
    Notes { robust, ..notes(registry, document) }
}
