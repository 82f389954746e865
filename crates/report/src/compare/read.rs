//! Saved documents, and which of two sets belong together.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use mmscale_document::{
    Document, MEASURED_SCHEMA, Measurement, ParamValue, ROBUST_SCHEMA, Robustness, SCHEMA, Target,
};
use thiserror::Error;

use super::amounts::add_up;
use crate::html::documents_of;

/// A document of a file.
#[derive(Clone, Debug)]
pub struct Saved {
    /// The path of the file.
    pub path: PathBuf,
    /// The document.
    pub document: Document,
}

/// Measured waits of a file.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The path of the file.
    pub path: PathBuf,
    /// The waits.
    pub measurement: Measurement,
}

/// The documents of one side of a comparison.
#[derive(Clone, Debug, Default)]
pub struct Side {
    /// Documents of runs.
    pub runs: Vec<Saved>,
    /// Measured waits, as `mmscale import` writes them.
    pub measured: Vec<Measured>,
    /// Robustness analyses, which a letter uses.
    pub analyses: Vec<Robustness>,
}

impl Side {
    fn len(&self) -> usize {
        self.runs.len() + self.measured.len() + self.analyses.len()
    }
}

/// Why documents cannot be read, or do not belong together.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The operating system returned an error.
    #[error("cannot read `{path}`: {source}; give a document, or a folder that `-o` wrote")]
    Io {
        /// The path.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// There is no document.
    #[error("no document in `{path}`; write some with `mmscale run STUDY -o {path}`")]
    Empty {
        /// The path of the folder or file.
        path: PathBuf,
    },
    /// The file is not JSON, or ends early.
    #[error("`{path}` is not a complete document: {why}; write it again with `mmscale run`")]
    Broken {
        /// The path of the file.
        path: PathBuf,
        /// The error of the parser.
        why: String,
    },
    /// Counts of the document add up to more than a number has.
    #[error(
        "`{path}` has counts and times that add up to more than 2^64: it was changed after it was \
         written; write it again with `mmscale run`"
    )]
    Amounts {
        /// The path of the file.
        path: PathBuf,
    },
    /// The file is a document of another kind or version.
    #[error("{}", other(path, found.as_deref()))]
    Other {
        /// The path of the file.
        path: PathBuf,
        /// The kind and version, if the file has one.
        found: Option<String>,
    },
    /// Two documents of one side have equal settings.
    #[error(
        "`{first}` and `{second}` are of equal runs, so that neither can be chosen: give one of \
         them as a file"
    )]
    Twice {
        /// The path of one file.
        first: PathBuf,
        /// The path of the other file.
        second: PathBuf,
    },
    /// No document of one side belongs to one of the other side.
    #[error(
        "nothing to compare: before there are {before}, after {after}; compare runs of the same \
         studies on the same kind of machine"
    )]
    Strangers {
        /// The studies before.
        before: String,
        /// The studies after.
        after: String,
    },
}

fn other(path: &Path, found: Option<&str>) -> String {
    let path = path.display();
    match found {
        Some(version) if version.starts_with("mmscale/run/") => format!(
            "`{path}` is of version `{version}`, and this program reads `{SCHEMA}`: use the \
             program that wrote it, or run it again with this one"
        ),
        Some(kind) => format!(
            "`{path}` is a `{kind}`, not the document of a run; `mmscale run STUDY -o DIR` writes \
             one"
        ),
        None => {
            format!("`{path}` is not a document of mmscale; `mmscale run STUDY -o DIR` writes one")
        }
    }
}

/// Reads a file with one or more documents, a page of `mmscale report`, or all `.json` files of a
/// folder, by name.
pub fn read(path: &Path) -> Result<Side, ReadError> {
    let fail = |source| ReadError::Io { path: path.to_owned(), source };
    let mut files = Vec::new();
    if path.is_dir() {
        for entry in fs::read_dir(path).map_err(fail)? {
            let file = entry.map_err(fail)?.path();
            files.extend(file.extension().is_some_and(|kind| kind == "json").then_some(file));
        }
        files.sort();
    } else {
        files.push(path.to_owned());
    }
    let mut side = Side::default();
    for file in files {
        read_file(&file, &mut side)?;
    }
    if side.len() == 0 {
        return Err(ReadError::Empty { path: path.to_owned() });
    }
    Ok(side)
}

/// Adds the documents of a file.
fn read_file(path: &Path, side: &mut Side) -> Result<(), ReadError> {
    let fail = |source| ReadError::Io { path: path.to_owned(), source };
    let broken =
        |why: serde_json::Error| ReadError::Broken { path: path.to_owned(), why: why.to_string() };
    let text = fs::read_to_string(path).map_err(fail)?;
    let text = documents_of(&text).unwrap_or(text);
    let values = serde_json::Deserializer::from_str(&text).into_iter::<serde_json::Value>();
    let before = side.len();
    for value in values {
        let value = value.map_err(broken)?;
        let path = path.to_owned();
        if !add_up(&value) {
            return Err(ReadError::Amounts { path });
        }
        match value.get("schema").and_then(|schema| schema.as_str()) {
            Some(SCHEMA) => {
                let document = serde_json::from_value(value).map_err(broken)?;
                side.runs.push(Saved { path, document });
            }
            Some(MEASURED_SCHEMA) => {
                let measurement = serde_json::from_value(value).map_err(broken)?;
                side.measured.push(Measured { path, measurement });
            }
            Some(ROBUST_SCHEMA) => {
                side.analyses.push(serde_json::from_value(value).map_err(broken)?);
            }
            found => return Err(ReadError::Other { path, found: found.map(str::to_owned) }),
        }
    }
    if side.len() == before {
        return Err(ReadError::Empty { path: path.to_owned() });
    }
    Ok(())
}

/// A study and its kind of machine.
type Subject<'a> = (&'a str, Target);

/// The settings of a run within its subject: profile, CPUs, HZ, and parameters.
type Settings<'a> = (&'a str, u32, u32, &'a BTreeMap<String, ParamValue>);

fn subject(saved: &Saved) -> Subject<'_> {
    (&saved.document.study, saved.document.on)
}

fn settings(saved: &Saved) -> Settings<'_> {
    let Document { profile, cpus, hz, params, .. } = &saved.document;
    (profile, *cpus, *hz, params)
}

/// The documents of two sides.
#[derive(Clone, Debug)]
pub struct Matched<'a> {
    /// Documents that belong together, in the order of the first side.
    pub pairs: Vec<(&'a Saved, &'a Saved)>,
    /// Documents of the first side without a partner, and those of the second side.
    pub only: [Vec<&'a Saved>; 2],
}

/// Finds the documents of two sides that belong together: those of equal study, machine and
/// settings, then the only remaining ones of a study on both sides, whose settings differ.
pub fn matched<'a>(before: &'a [Saved], after: &'a [Saved]) -> Result<Matched<'a>, ReadError> {
    for side in [before, after] {
        for (at, one) in side.iter().enumerate() {
            let equal =
                |other: &&Saved| subject(one) == subject(other) && settings(one) == settings(other);
            if let Some(other) = side[at + 1..].iter().find(equal) {
                let (first, second) = (one.path.clone(), other.path.clone());
                return Err(ReadError::Twice { first, second });
            }
        }
    }
    let (mut pairs, mut left, mut right) =
        (Vec::new(), Vec::new(), after.iter().collect::<Vec<_>>());
    for one in before {
        let equal =
            |other: &&Saved| subject(one) == subject(other) && settings(one) == settings(other);
        match right.iter().position(equal) {
            Some(at) => pairs.push((one, right.remove(at))),
            None => left.push(one),
        }
    }
    let alone = |side: &[&Saved], of: &Saved| {
        side.iter().filter(|other| subject(other) == subject(of)).count() == 1
    };
    let differing = left.iter().filter(|one| alone(&left, one) && alone(&right, one));
    let differing: Vec<&Saved> = differing.copied().collect();
    for one in differing {
        let at = right.iter().position(|other| subject(other) == subject(one));
        pairs.push((one, right.remove(at.expect("there is exactly one"))));
        left.retain(|other| !std::ptr::eq(*other, one));
    }
    if pairs.is_empty() {
        return Err(ReadError::Strangers { before: named(before), after: named(after) });
    }
    Ok(Matched { pairs, only: [left, right] })
}

/// Returns the subjects of documents, with the number of each.
fn named(side: &[Saved]) -> String {
    let mut counts = BTreeMap::<Subject<'_>, usize>::new();
    side.iter().for_each(|saved| *counts.entry(subject(saved)).or_default() += 1);
    let one = |((study, on), n): (Subject<'_>, usize)| match n {
        1 => format!("`{study}` on {on}"),
        n => format!("{n} of `{study}` on {on}"),
    };
    counts.into_iter().map(one).collect::<Vec<_>>().join(", ")
}
