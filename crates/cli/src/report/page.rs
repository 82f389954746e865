//! Saved documents as one HTML page.

use anyhow::anyhow;
use mmscale_document::{Document, Robustness};
use mmscale_harness::Registry;
use mmscale_report::compare::read;
use mmscale_report::{Notes, curves_svg, html_page, robust_brief};

use crate::args::ReportArgs;
use crate::destination::{Destination, PAGE, PICTURE};
use crate::failure::Failure;
use crate::output;

use super::letter::notes;

/// Writes a page with the documents of all paths, or a picture of the curves of their runs.
pub(super) fn page(registry: &Registry, args: &ReportArgs) -> Result<(), Failure> {
    let existing = output::existing(args.replace);
    let is_picture = args.output.extension().is_some_and(|suffix| suffix == "svg");
    let kind = if is_picture { PICTURE } else { PAGE };
    let place = Destination::open(&args.output, existing, kind)?;
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
    if is_picture {
        let runs: Vec<&Document> = runs.iter().collect();
        return match curves_svg(&runs) {
            Some(svg) => place.write(svg),
            None => Err(Failure::Call(anyhow!(
                "there are no curves to draw: they are over numbers of CPUs, as of `mmscale run \
                 STUDY --cpus 1,8,32 -o DIR`"
            ))),
        };
    }
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
