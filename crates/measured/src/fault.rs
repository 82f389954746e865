//! Errors, with their places.

use std::fmt;

use thiserror::Error;

/// An error at a place of the text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The problem, and what to do.
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.what)
    }
}

/// Why a file cannot be read at all.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ReadError {
    /// The file has no text.
    #[error("the file is empty; give the output of `perf lock contention`")]
    Empty,
    /// The file is larger than a report can be.
    #[error("the file has {mib} MiB, more than {max_mib}; give the tables only")]
    Large {
        /// Its size, in MiB.
        mib: usize,
        /// The largest size, in MiB.
        max_mib: usize,
    },
    /// The file is not text.
    #[error("the file is {what}; {advice}")]
    NotText {
        /// The format, as far as its first bytes determine it.
        what: &'static str,
        /// How to get a text.
        advice: &'static str,
    },
    /// A document of this project has an error.
    #[error(transparent)]
    Document(#[from] DocumentError),
}

/// Why a document of this project cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum DocumentError {
    /// It is not JSON, or ends early.
    #[error("line {line}, column {column}: not a complete document: {why}")]
    Broken {
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
        /// The error of the parser.
        why: String,
    },
    /// It is a document of another kind.
    #[error(
        "the file is a document `{0}`, and waits are read from `mmscale/live/1`; \
         `mmscale compare` reads documents of runs"
    )]
    Kind(String),
}
