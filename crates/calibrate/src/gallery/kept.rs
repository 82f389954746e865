//! Results that are kept with the sources, so that pages need no runs.

use mmscale_document::Build;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::score::Row;

/// The results of a call.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Kept {
    /// The build that made them.
    pub build: Build,
    /// Its command line.
    pub command: Vec<String>,
    /// The comparisons.
    pub rows: Vec<Row>,
}

/// The kept results cannot be read.
#[derive(Debug, Error)]
#[error("{file}: {why}; write it again with `mmscale profile fidelity -o FILE`")]
pub struct KeptError {
    /// The file.
    file: String,
    /// The reason.
    why: serde_json::Error,
}

/// Returns the results that are kept with the sources, one for each call that made some of them.
pub fn kept() -> Result<Vec<Kept>, KeptError> {
    read("gallery/kept.json", include_str!("../../gallery/kept.json"))
}

/// Returns the results in the text of a file.
pub fn read(file: &str, text: &str) -> Result<Vec<Kept>, KeptError> {
    serde_json::from_str(text).map_err(|why| KeptError { file: file.to_owned(), why })
}
