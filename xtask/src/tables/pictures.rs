//! Pictures of pages, which are made of the documents of a run.

use std::fs;
use std::path::{Path, PathBuf};

use mmscale_report::compare::read;
use mmscale_report::curves_svg;

use super::Mode;

/// The folder of documents, and the picture of their curves.
const PICTURES: [(&str, &str); 1] = [("churn-cpus", "docs/churn.svg")];

/// Compares the pictures whose documents are in `folders`, or writes them. Returns the number of
/// pictures that were written.
///
/// # Errors
/// Documents that cannot be read, or a picture that cannot be written.
pub(super) fn treat(
    root: &Path,
    folders: &[PathBuf],
    mode: Mode,
    errors: &mut Vec<String>,
) -> Result<usize, String> {
    let mut written = 0;
    for (name, picture) in PICTURES {
        let Some(folder) = folders.iter().find(|folder| folder.ends_with(name)) else { continue };
        let saved = read(folder).map_err(|why| why.to_string())?;
        let runs: Vec<_> = saved.runs.iter().map(|saved| &saved.document).collect();
        let drawn = curves_svg(&runs).ok_or(format!("{} has no curves", folder.display()))?;

        let path = root.join(picture);
        if fs::read_to_string(&path).is_ok_and(|text| text == drawn) {
            continue;
        }
        match mode {
            Mode::Check => errors.push(format!("{picture}: not the curves of {name}")),
            Mode::Write => {
                fs::write(&path, drawn).map_err(|why| format!("{}: {why}", path.display()))?;
                written += 1;
            }
        }
    }
    Ok(written)
}
