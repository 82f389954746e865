//! The folder of a sweep: a document for each finished run, named by the run's key.
//!
//! A document is written under another name and renamed, so that a file is whole or not there. A
//! run is executed under a lock, which ends with the process that holds it: two processes with one
//! folder do not execute a run twice, and a killed process blocks none.
//!
//! A file is believed only if it is the document of its key: of the same run, with the checksum of
//! its contents. Files come from other computers, too, and a wrong copy must not become a result.

use std::path::Path;

use mmscale_document::{Document, Kept};
use mmscale_files::{Existing, Folder, Limit};
use mmscale_report::compare::verify;
use mmscale_report::json_line;

use super::tasks::Task;
use crate::failure::Failure;
use crate::interrupt;

/// The document of a run has some KiB for each CPU.
const LIMIT: Limit = Limit::new("the document of a run", 64 << 20);

pub(crate) struct Store {
    runs: Folder,
}

/// The contents of a folder for a run.
pub(crate) enum Found {
    /// Nothing.
    Nothing,
    /// The document of the run.
    Finished(Box<Document>),
    /// A file that is not the document of the run, with the reason.
    Other(String),
}

impl Store {
    /// Opens the folder `runs` of a sweep, which is created if it is missing.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        Ok(Self { runs: Folder::open(path, Existing::Replace)?.inside("runs")? })
    }

    /// Returns what the folder has for a run.
    pub(crate) fn find(&self, task: &Task) -> Found {
        let name = file(&task.key);
        let text = match self.runs.read(&name, LIMIT) {
            Ok(None) => return Found::Nothing,
            Ok(Some(text)) => Ok(text),
            Err(why) => Err(why.to_string()),
        };
        let document = text.and_then(|text| {
            let document: Document = serde_json::from_str(&text)
                .map_err(|why| format!("it is not a complete document ({why})"))?;
            of_task(&document, task)?;
            Ok(document)
        });
        match document {
            Ok(document) => Found::Finished(document.into()),
            Err(why) => Found::Other(format!("`{}`: {why}", self.runs.path(&name).display())),
        }
    }

    /// Returns the document of a finished run.
    pub(crate) fn finished(&self, task: &Task) -> Option<Document> {
        match self.find(task) {
            Found::Finished(document) => Some(*document),
            Found::Nothing | Found::Other(_) => None,
        }
    }

    /// Refuses a directory that has the name of a run's document.
    pub(crate) fn may_replace(&self, task: &Task) -> Result<(), Failure> {
        Ok(self.runs.free(&file(&task.key))?)
    }

    /// Executes a run, unless it is finished by now, and keeps its document in place of a file that
    /// is not. Returns whether it was executed.
    pub(crate) fn once(
        &self,
        task: &Task,
        run: impl FnOnce() -> Result<Document, Failure>,
    ) -> Result<bool, Failure> {
        let _lock = self.runs.lock(&format!("{}.lock", task.key))?;
        if self.finished(task).is_some() {
            return Ok(false);
        }
        let name = file(&task.key);
        let document = run()?;
        interrupt::whole(|| self.runs.write(&name, json_line(&document)))?;
        Ok(true)
    }
}

fn file(key: &str) -> String {
    format!("{key}.json")
}

/// Returns why a document is not that of a task.
fn of_task(document: &Document, task: &Task) -> Result<(), String> {
    verify(document)?;
    if document.is_intact().is_none() {
        return Err("it has no checksum, so that a change cannot be seen".to_owned());
    }
    task.plan.owns(task.arm, task.seed, document)
}
