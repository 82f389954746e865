//! Compares tables of pages with the documents that they come from.
//!
//! A mark before a table identifies the run that it shows:
//!
//! ```text
//! <!-- table: pcp seeds=5 -->
//! | | stock | posted |
//! |---|---|---|
//! | a page of `purger`, `sys_ns_per_page` | 2280 | -13.2 % |
//! ```
//!
//! The mark has the study, and as many properties of the run as distinguish it from others that may
//! be given: parameters, `seeds` (their number), `cpus`, `hz`, `profile`, `on`. The last name in
//! back quotes in a row is the metric. Names before it are values of parameters, alone or as
//! `KEY=VALUE`, if the table shows several runs. A column belongs to an arm if it has the arm's
//! name, or if the mark names its arm (`ours:lazy`); other columns and empty cells are ignored. A
//! table of several studies has a mark for each, one a line, and a row shows the first of them that
//! has its metric. Values have the form of the text report: a
//! mean, a mean with its standard deviation (`19.25 ms ± 58 %`), or a change against the first arm
//! (`~+0.7 %`).

mod cell;
mod documents;
mod page;
mod pictures;
mod runs;

use std::fs;
use std::path::{Path, PathBuf};

use documents::Documents;
use page::Seen;

/// The treatment of a cell that differs from the documents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Report it.
    Check,
    /// Replace it.
    Write,
}

/// Executes the runs of the tables, and treats their documents as [`run`] does.
///
/// # Errors
/// As [`run`], or a run that fails.
pub fn run_all(root: &Path, mode: Mode) -> Result<String, String> {
    run(root, &runs::execute(root)?, mode)
}

/// Checks the marked tables of all pages below `root`. `folders` have the documents, as written by
/// `mmscale run --output`. Errors name pages and lines.
pub fn run(root: &Path, folders: &[PathBuf], mode: Mode) -> Result<String, String> {
    let tree = crate::tidy::Tree::read(root)
        .map_err(|why| format!("reading {}: {why}", root.display()))?;
    let documents = Documents::read(folders)?;
    let mut all = Seen::default();
    let mut written = 0;
    for page in tree.sources().filter(|source| source.is_page()) {
        let (text, seen) = page::look(&page.path, &page.text, &documents, mode);
        if mode == Mode::Write && text != page.text {
            let path = root.join(&page.path);
            fs::write(&path, text).map_err(|why| format!("writing {}: {why}", path.display()))?;
            written += 1;
        }
        all.add(seen);
    }
    written += pictures::treat(root, folders, mode, &mut all.errors)?;
    let counts = format!("{} figures in {} marked tables", all.figures, all.tables);
    if !all.errors.is_empty() {
        let errors = all.errors.join("\n");
        return Err(format!("{errors}\n{counts}, {} errors", all.errors.len()));
    }
    Ok(match mode {
        Mode::Check => format!("tables: {counts}, all equal to the documents"),
        Mode::Write => format!("tables: {counts}, {written} pages written"),
    })
}
