//! The folder of a sweep: a document for each finished run, named by the run's key.
//!
//! A document is written under another name and renamed, so that a file is whole or not there. A
//! run is executed under a lock, which ends with the process that holds it: two processes with one
//! folder do not execute a run twice, and a killed process blocks none.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use mmscale_document::Document;
use mmscale_report::{Existing, Folder, json_line};

use crate::failure::Failure;
use crate::interrupt;

pub(super) struct Store {
    runs: PathBuf,
    folder: Folder,
}

impl Store {
    /// Opens the folder `runs` of a sweep, which is created if it is missing.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let runs = path.join("runs");
        let folder = Folder::open(&runs, Existing::Replace)?;
        Ok(Self { runs, folder })
    }

    fn file(&self, key: &str) -> PathBuf {
        self.runs.join(format!("{key}.json"))
    }

    /// Returns whether a run is finished.
    pub(super) fn has(&self, key: &str) -> bool {
        self.file(key).exists()
    }

    /// Returns the document of a finished run.
    pub(super) fn read(&self, key: &str) -> Result<Option<Document>, Failure> {
        let file = self.file(key);
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(why) => return Err(fail(&file, &why)),
        };
        let document = serde_json::from_str(&text);
        document.map(Some).map_err(|why| fail(&file, &format!("{why}; remove it")))
    }

    /// Executes a run, unless it is finished by now, and keeps its document. Returns whether it was
    /// executed.
    pub(super) fn once(
        &self,
        key: &str,
        run: impl FnOnce() -> Result<Document, Failure>,
    ) -> Result<bool, Failure> {
        let path = self.runs.join(format!("{key}.lock"));
        let lock = File::create(&path).and_then(|file| file.lock().map(|()| file));
        let _lock = lock.map_err(|why| fail(&path, &why))?;
        let executed = !self.has(key);
        if executed {
            let document = run()?;
            interrupt::whole(|| self.folder.write(&format!("{key}.json"), json_line(&document)))?;
        }
        // Only after the document is there: another process that opens a new lock then sees it.
        let _ = fs::remove_file(&path);
        Ok(executed)
    }
}

fn fail(path: &Path, why: &dyn std::fmt::Display) -> Failure {
    Failure::Run(anyhow!("cannot use `{}`: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finished_run_is_not_executed_and_a_failed_one_is_again() {
        let root = tempfile::tempdir().unwrap();
        let store = Store::open(root.path()).unwrap();
        let failed = || Err(Failure::Run(anyhow!("no")));
        store.once("a", failed).unwrap_err();
        assert!(!store.has("a"));
        store.once("a", failed).unwrap_err();
        fs::write(store.file("a"), "{}").unwrap();
        assert!(!store.once("a", failed).unwrap());
        assert!(!root.path().join("runs/a.lock").exists());
        let why = store.read("a").unwrap_err().to_string();
        assert!(why.contains("missing field") && why.ends_with("remove it"), "{why}");
        assert!(store.read("b").unwrap().is_none());
    }
}
