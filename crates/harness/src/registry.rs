//! The registry of studies.

use crate::file::{FileError, Source};
use crate::file_study::FileStudy;
use crate::names::UnknownName;
use crate::study::Study;
use crate::workload::Workload;
use mmscale_files::{Limit, Pipe};
use mmscale_script::{SUFFIX, Script, ScriptError};
use mmscale_sim::profile::Profiles;
use std::fmt::Display;
use std::path::Path;
use thiserror::Error;

/// As many bytes as the parser accepts.
const SCRIPT_LIMIT: Limit = Limit::new("a script", mmscale_script::MAX_BYTES as u64);

/// All studies, by name.
#[derive(Clone, Copy, Debug)]
pub struct Registry {
    studies: &'static [&'static dyn Study],
    scripts: &'static [&'static dyn Study],
    broken: &'static [FileError],
    profiles: Profiles,
}

impl Registry {
    /// Creates a registry of studies, whose names must differ.
    pub const fn new(studies: &'static [&'static dyn Study]) -> Self {
        Self { studies, scripts: &[], broken: &[], profiles: Profiles::with(&[]) }
    }

    /// Creates a registry of the studies on a shelf.
    pub fn of(shelf: &'static Shelf) -> Self {
        let profiles = Profiles::with(&shelf.profiles);
        let Shelf { studies, scripts, broken, .. } = shelf;
        Self { studies, scripts, broken, profiles }
    }

    /// Returns all studies in the order in which `all` runs them, except those that are [`broken`].
    ///
    /// [`broken`]: Self::broken
    pub fn all(self) -> impl Iterator<Item = &'static dyn Study> + Clone {
        self.studies.iter().copied()
    }

    /// Returns the scripts that are part of the program. `all` does not run them.
    pub fn scripts(self) -> impl Iterator<Item = &'static dyn Study> + Clone {
        self.scripts.iter().copied()
    }

    /// Returns the named machine profiles.
    pub fn profiles(self) -> Profiles {
        self.profiles
    }

    /// Returns the same studies and scripts with other named machine profiles.
    #[must_use]
    pub fn with_profiles(self, profiles: Profiles) -> Self {
        Self { profiles, ..self }
    }

    /// Returns the errors in the files of studies that cannot be run.
    pub fn broken(self) -> &'static [FileError] {
        self.broken
    }

    /// Returns the study or script with this name, or the script of a file.
    pub fn find(self, name: &str) -> Result<&'static dyn Study, NoStudy> {
        if name.ends_with(SUFFIX) {
            return self.script(name);
        }
        if let Some(why) = self.broken.iter().find(|why| why.study == name) {
            return Err(why.clone().into());
        }
        let all = || self.all().chain(self.scripts());
        let unknown = || UnknownName::new("study or script", name, all().map(|study| study.name()));
        Ok(all().find(|study| study.name() == name).ok_or_else(unknown)?)
    }

    /// Returns the script that a document has.
    pub fn script_of(self, name: &str, text: &str) -> Result<&'static dyn Study, NoStudy> {
        let path = format!("{name}{SUFFIX}");
        let script = Script::parse(&path, text)?;
        let study = FileStudy::of_script(script, self.profiles);
        let study = study.map_err(|why| NoStudy::File { path, why: why.to_string() })?;
        Ok(Box::leak(Box::new(study)))
    }

    /// Reads the script of a file.
    fn script(self, path: &str) -> Result<&'static dyn Study, NoStudy> {
        let path_of =
            |why: &dyn Display| NoStudy::File { path: path.to_owned(), why: why.to_string() };
        let text = mmscale_files::text(Path::new(path), SCRIPT_LIMIT, Pipe::Refuse);
        let text = text.map_err(|why| path_of(&why))?;
        let script = Script::parse(path, &text)?;
        if let Some(same) = self.all().find(|study| study.name() == script.name()) {
            let why = format!("there is a study named `{}`; rename the file", same.name());
            return Err(path_of(&why));
        }
        let study = FileStudy::of_script(script, self.profiles).map_err(|why| path_of(&why))?;
        Ok(Box::leak(Box::new(study)))
    }
}

/// Why a study cannot be used.
#[derive(Debug, Error)]
pub enum NoStudy {
    /// No study has this name.
    #[error(transparent)]
    Unknown(#[from] UnknownName),
    /// The file of the study has an error.
    #[error(transparent)]
    Broken(#[from] FileError),
    /// The script has an error.
    #[error("{0}")]
    Script(#[from] ScriptError),
    /// The file of a script cannot be used.
    #[error("{path}: {why}")]
    File {
        /// The path as given.
        path: String,
        /// The reason.
        why: String,
    },
}

impl From<Shelf> for Registry {
    /// Creates a registry for the lifetime of the program.
    fn from(shelf: Shelf) -> Self {
        Self::of(Box::leak(Box::new(shelf)))
    }
}

/// Studies and profiles, collected while their files are read.
#[derive(Debug, Default)]
pub struct Shelf {
    studies: Vec<&'static dyn Study>,
    scripts: Vec<&'static dyn Study>,
    broken: Vec<FileError>,
    profiles: Vec<(&'static str, &'static str)>,
}

impl Shelf {
    /// Adds a machine profile: its name, and the text of its file, which may use a profile of
    /// `machines/` as its base. Must precede the studies that use it.
    #[must_use]
    pub fn with_profile(mut self, name: &'static str, text: &'static str) -> Self {
        self.profiles.push((name, text));
        self
    }

    /// Adds a study with its file.
    #[must_use]
    pub fn with<W: Workload>(self) -> Self {
        self.with_file::<W>(W::FILE)
    }

    /// Adds a script that is compiled in: the name of its file, and its text.
    ///
    /// # Panics
    /// If the script has an error.
    #[must_use]
    pub fn with_script(mut self, file: &str, text: &str) -> Self {
        let script = Script::parse(file, text).unwrap_or_else(|why| panic!("{why}"));
        let profiles = Profiles::with(self.profiles.clone().leak());
        let study = FileStudy::of_script(script, profiles);
        self.scripts.push(Box::leak(Box::new(study.unwrap_or_else(|why| panic!("{file}: {why}")))));
        self
    }

    /// Adds a study with another file, for tests of files.
    #[must_use]
    pub fn with_file<W: Workload>(mut self, file: Source) -> Self {
        match FileStudy::<W>::of_file(file, Profiles::with(self.profiles.clone().leak())) {
            Ok(study) => self.studies.push(Box::leak(Box::new(study))),
            Err(why) => self.broken.push(why),
        }
        self
    }
}
