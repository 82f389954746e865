//! Saved documents, and which of two sets belong together.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use mmscale_document::{
    Document, MEASURED_SCHEMA, Measurement, ParamValue, ROBUST_SCHEMA, Robustness, SCHEMA, Target,
    short,
};
use mmscale_files::{Folder, Limit, Pipe};
use serde::Deserialize;
use serde_json::value::RawValue;
use thiserror::Error;

use super::amounts::add_up;
use super::verify::{intact, verify};
use crate::html::documents_of;

/// Several times the size of the largest pages.
const LIMIT: Limit = Limit::new("documents", 64 << 20);

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
    /// Measured waits, as `mmscale explain --save` writes them.
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
    /// The file cannot be read.
    #[error("cannot read `{path}`: {source}; give a document, or a folder that `-o` wrote")]
    Unreadable {
        /// The path.
        path: PathBuf,
        /// The reason.
        #[source]
        source: mmscale_files::ReadError,
    },
    /// The document is not what the program wrote.
    #[error(
        "`{path}` was changed or damaged after it was written: {why}; write it again with \
         `mmscale run`"
    )]
    Changed {
        /// The path of the file.
        path: PathBuf,
        /// The contradiction.
        why: String,
    },
    /// The file is not JSON at all.
    #[error(
        "`{path}` is not a document of mmscale; if it is the report of another tool, read it with \
         `mmscale explain {path} --save report.json`, and if not, `mmscale run STUDY -o DIR` \
         writes a document"
    )]
    Foreign {
        /// The path of the file.
        path: PathBuf,
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
    let fail = |path: &Path, source: mmscale_files::ReadError| ReadError::Unreadable {
        path: path.into(),
        source,
    };
    let mut side = Side::default();
    if path.is_dir() {
        let folder = Folder::only_read(path).map_err(|why| fail(path, why.into()))?;
        for name in folder.names(".json").map_err(|why| fail(path, why.into()))? {
            let file = folder.path(&name);
            let text = folder.read(&name, LIMIT).map_err(|why| fail(&file, why))?;
            read_text(&file, &text.unwrap_or_default(), &mut side)?;
        }
    } else {
        let text = mmscale_files::text(path, LIMIT, Pipe::Refuse);
        read_text(path, &text.map_err(|why| fail(path, why))?, &mut side)?;
    }
    if side.len() == 0 {
        return Err(ReadError::Empty { path: path.to_owned() });
    }
    Ok(side)
}

/// The field that every document has.
#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    schema: Option<serde_json::Value>,
}

/// Adds the documents of a file with this text.
fn read_text(path: &Path, text: &str, side: &mut Side) -> Result<(), ReadError> {
    let path = || path.to_owned();
    let broken = |why: serde_json::Error| ReadError::Broken { path: path(), why: why.to_string() };
    let changed = |why| ReadError::Changed { path: path(), why };
    let documents = documents_of(text);
    let text = documents.as_deref().unwrap_or(text);
    if !text.trim_start().is_empty() && !text.trim_start().starts_with('{') {
        return Err(ReadError::Foreign { path: path() });
    }
    let before = side.len();
    for value in serde_json::Deserializer::from_str(text).into_iter::<&RawValue>() {
        let text = value.map_err(broken)?.get();
        let head: Head = serde_json::from_str(text).map_err(broken)?;
        if !add_up(&serde_json::from_str(text).map_err(broken)?) {
            return Err(ReadError::Amounts { path: path() });
        }
        match head.schema.as_ref().and_then(|schema| schema.as_str()) {
            Some(SCHEMA) => {
                let document = serde_json::from_str(text).map_err(broken)?;
                verify(&document).map_err(changed)?;
                side.runs.push(Saved { path: path(), document });
            }
            Some(MEASURED_SCHEMA) => {
                let measurement = serde_json::from_str(text).map_err(broken)?;
                intact(&measurement).map_err(changed)?;
                side.measured.push(Measured { path: path(), measurement });
            }
            Some(ROBUST_SCHEMA) => {
                let analysis = serde_json::from_str(text).map_err(broken)?;
                intact(&analysis).map_err(changed)?;
                side.analyses.push(analysis);
            }
            found => {
                return Err(ReadError::Other {
                    path: path(),
                    found: found.map(|found| short(found).into()),
                });
            }
        }
    }
    if side.len() == before {
        return Err(ReadError::Empty { path: path() });
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
