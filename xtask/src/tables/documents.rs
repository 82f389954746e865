//! The given documents, and the selection of those that a table shows.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use mmscale_document::Document;

/// The run that a table shows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Mark {
    study: String,
    /// Keys with their values.
    wanted: Vec<(String, String)>,
    /// Columns that have another name than the arm that they show.
    columns: Vec<(String, String)>,
}

impl Mark {
    /// Parses the text after `table:`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let study =
            words.next().ok_or("a mark must name a study: `<!-- table: STUDY KEY=VALUE.. -->`")?;
        let mut mark = Self { study: study.to_owned(), wanted: vec![], columns: vec![] };
        for word in words {
            let (pairs, split) = match (word.split_once('='), word.split_once(':')) {
                (Some(pair), _) => (&mut mark.wanted, pair),
                (None, Some(pair)) => (&mut mark.columns, pair),
                (None, None) => {
                    return Err(format!("`{word}` in a mark is neither KEY=VALUE nor COLUMN:ARM"));
                }
            };
            pairs.push((split.0.to_owned(), split.1.to_owned()));
        }
        Ok(mark)
    }
    /// The arm that a column shows.
    pub(super) fn arm<'a>(&'a self, column: &'a str) -> &'a str {
        let renamed = self.columns.iter().find(|(name, _)| name == column);
        renamed.map_or(column, |(_, arm)| arm)
    }
    fn fits(&self, document: &Document) -> bool {
        let has = |(key, value): &(String, String)| about(document, key).as_ref() == Some(value);
        document.study == self.study && self.wanted.iter().all(has)
    }
    fn words(&self) -> String {
        let wanted = self.wanted.iter().map(|(key, value)| format!(" {key}={value}"));
        format!("{}{}", self.study, wanted.collect::<String>())
    }
}

/// Returns the value of a key in a document.
fn about(document: &Document, key: &str) -> Option<String> {
    Some(match key {
        "seeds" => document.arms.first()?.seeds.len().to_string(),
        "cpus" => document.cpus.to_string(),
        "hz" => document.hz.to_string(),
        "profile" => document.profile.clone(),
        "on" => document.on.name().to_owned(),
        _ => document.params.get(key)?.to_string(),
    })
}

/// All given documents.
pub(super) struct Documents(Vec<Document>);

impl Documents {
    /// Reads every `.json` file in the folders.
    pub(super) fn read(folders: &[PathBuf]) -> Result<Self, String> {
        let mut all = Vec::new();
        for folder in folders {
            let fail = |why| format!("reading {}: {why}", folder.display());
            for entry in fs::read_dir(folder).map_err(fail)? {
                let path = entry.map_err(fail)?.path();
                if path.extension().is_some_and(|kind| kind == "json") {
                    all.push(document(&path)?);
                }
            }
        }
        if all.is_empty() {
            return Err(
                "no documents in these folders; create some with `mmscale run all --output DIR`"
                    .to_owned(),
            );
        }
        Ok(Self(all))
    }
    /// Checks that there is a document of `mark`.
    pub(super) fn has(&self, mark: &Mark) -> Result<(), String> {
        let fits = self.0.iter().any(|document| mark.fits(document));
        if fits { Ok(()) } else { Err(none_of(&mark.words())) }
    }
    /// Returns the only document of `mark` that matches all of `values`: `KEY=VALUE`, or the value
    /// of a parameter alone.
    pub(super) fn find(&self, mark: &Mark, values: &[&str]) -> Result<&Document, String> {
        let has = |document: &Document, value: &str| match value.split_once('=') {
            Some((key, value)) => about(document, key).as_deref() == Some(value),
            None => document.params.values().any(|param| param.to_string() == value),
        };
        let fits = |document: &&Document| {
            mark.fits(document) && values.iter().all(|value| has(document, value))
        };
        let found: Vec<&Document> = self.0.iter().filter(fits).collect();
        let values = values.iter().map(|value| format!(", `{value}`"));
        let words = mark.words() + &values.collect::<String>();
        match found[..] {
            [one] => Ok(one),
            [] => Err(none_of(&words)),
            _ => Err(format!(
                "{} documents fit `{words}`: {}",
                found.len(),
                match differences(&found) {
                    keys if keys.is_empty() =>
                        "they are of the same run; give only one of them".to_owned(),
                    keys => format!("select one by: {}", keys.join(", ")),
                }
            )),
        }
    }
}

fn none_of(words: &str) -> String {
    format!("no document of `{words}` is given: run it, or correct the mark")
}

fn document(path: &Path) -> Result<Document, String> {
    let fail = |why: String| format!("reading {}: {why}", path.display());
    let text = fs::read_to_string(path).map_err(|why| fail(why.to_string()))?;
    serde_json::from_str(&text).map_err(|why| fail(format!("not a document of a run: {why}")))
}

/// Returns the keys whose values differ between the documents.
fn differences(documents: &[&Document]) -> Vec<String> {
    let own = ["seeds", "cpus", "hz", "profile", "on"].map(str::to_owned);
    let params = documents.iter().flat_map(|document| document.params.keys().cloned());
    let keys: BTreeSet<String> = params.chain(own).collect();
    let differs = |key: &String| {
        let values: BTreeSet<_> = documents.iter().map(|d| about(d, key)).collect();
        values.len() > 1
    };
    keys.into_iter().filter(differs).collect()
}
