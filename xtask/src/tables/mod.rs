//! Tables of pages against the documents that they come from.
//!
//! A mark before a table says which run it shows:
//!
//! ```text
//! <!-- table: pcp seeds=5 -->
//! | | stock | posted |
//! |---|---|---|
//! | a page of `purger`, `sys_ns_per_page` | 2280 | -13.2 % |
//! ```
//!
//! That is the study, and as much of the run as tells it from others that may be given: parameters,
//! `seeds` (how many), `cpus`, `hz`, `profile`, `on`. The last name in back quotes in a row is the
//! metric; those before it are values of parameters, alone or as `KEY=VALUE`, where the table shows
//! several runs. A column is an arm's if it is named so; others are left alone, and so are empty
//! cells. Figures have the form of the text report: a mean, a mean with its standard deviation
//! (`19.25 ms ± 58 %`), or a change against the first arm (`~+0.7 %`).

mod cell;
mod documents;
mod page;

use std::fs;
use std::path::{Path, PathBuf};

use documents::Documents;
use page::Seen;

/// What to do with a cell that is not as the documents have it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Tell.
    Check,
    /// Write what they have.
    Write,
}

/// Looks at the marked tables of all pages below `root`; `folders` have the documents, as
/// `mmscale run --output` leaves them there. Errors name pages and lines.
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
    let counts = format!("{} figures in {} marked tables", all.figures, all.tables);
    if !all.errors.is_empty() {
        let errors = all.errors.join("\n");
        return Err(format!("{errors}\n{counts}, {} errors", all.errors.len()));
    }
    Ok(match mode {
        Mode::Check => format!("tables: {counts}, all as the documents have them"),
        Mode::Write => format!("tables: {counts}, {written} pages written"),
    })
}
