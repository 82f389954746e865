//! The registry of studies: those of files with a workload, scripts, and recordings.

mod file;
mod recorded;
mod scripted;
mod sources;

pub use file::MAX_HEADLINES;
pub use recorded::RECORDING_SUFFIX;
pub use scripted::script_values;

use crate::names::UnknownName;
use crate::study::{FileError, Source, Study};
use crate::workload::Workload;
use mmscale_files::{Limit, Pipe};
use mmscale_script::{SUFFIX, Script, ScriptError};
use mmscale_sim::profile::{ProfileError, Profiles};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// As many bytes as the parser accepts.
const SCRIPT_LIMIT: Limit = Limit::new("a script", mmscale_script::MAX_BYTES as u64);

/// The most bytes of a recording as a file.
const RECORDING_LIMIT: Limit = Limit::new("a recording", 256 << 20);

/// All studies and scripts of a program, by name, and its machine profiles.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    studies: Vec<Study>,
    scripts: Vec<Study>,
    /// Scripts that make the calls of studies, with the names of the studies.
    likenesses: Vec<(String, Study)>,
    broken: Vec<FileError>,
    files: Vec<PathBuf>,
    profiles: Profiles,
}

impl Registry {
    /// Creates a registry of studies, whose names must differ.
    pub fn new(studies: impl IntoIterator<Item = Study>) -> Self {
        Self { studies: studies.into_iter().collect(), ..Self::default() }
    }

    /// Adds a machine profile: its name, and the text of its file, which may use a profile of
    /// `machines/` as its base. Must precede the studies that use it.
    #[must_use]
    pub fn with_profile(mut self, name: &'static str, text: &'static str) -> Self {
        self.profiles.add(name, text);
        self
    }

    /// Adds a study with its file.
    #[must_use]
    pub fn with<W: Workload>(self) -> Self {
        self.with_file::<W>(W::FILE)
    }

    /// Adds a study with another file, for tests of files.
    #[must_use]
    pub fn with_file<W: Workload>(mut self, file: Source) -> Self {
        self.files.extend(file.path());
        match sources::of_file::<W>(file, &self.profiles) {
            Ok(study) => self.studies.push(study),
            Err(why) => self.broken.push(why),
        }
        self
    }

    /// Adds a script that is compiled in: the name of its file, and its text.
    ///
    /// # Panics
    /// If the script has an error.
    #[must_use]
    pub fn with_script(mut self, file: &str, text: &str) -> Self {
        let script = Script::parse(file, text).unwrap_or_else(|why| panic!("{why}"));
        let study = sources::of_script(script, &self.profiles);
        self.scripts.push(study.unwrap_or_else(|why| panic!("{file}: {why}")));
        self
    }

    /// Adds a script that makes the calls of a study which is none: its text. Its comments of the
    /// form `// Not reproduced: ..` say what it lacks.
    ///
    /// # Panics
    /// If the script has an error.
    #[must_use]
    pub fn with_likeness(mut self, study: &str, text: &str) -> Self {
        let file = format!("{study}{SUFFIX}");
        let script = Script::parse(&file, text).unwrap_or_else(|why| panic!("{why}"));
        let like = sources::of_script(script, &self.profiles);
        self.likenesses
            .push((study.to_owned(), like.unwrap_or_else(|why| panic!("{file}: {why}"))));
        self
    }

    /// Returns these studies and scripts with other named machine profiles.
    #[must_use]
    pub fn with_profiles(self, profiles: Profiles) -> Self {
        Self { profiles, ..self }
    }

    /// Returns all studies in the order in which `all` runs them, except those that are [`broken`].
    ///
    /// [`broken`]: Self::broken
    pub fn all(&self) -> impl Iterator<Item = &Study> + Clone {
        self.studies.iter()
    }

    /// Returns the scripts that are part of the program. `all` does not run them.
    pub fn scripts(&self) -> impl Iterator<Item = &Study> + Clone {
        self.scripts.iter()
    }

    /// Returns the script that makes the calls of a study: the study itself if it is a script, and
    /// otherwise one that was added for it.
    pub fn script_like(&self, study: &Study) -> Option<Study> {
        if study.script().is_some() {
            return Some(study.clone());
        }
        let like = self.likenesses.iter().find(|(name, _)| name == study.name());
        like.map(|(_, script)| script.clone())
    }

    /// Returns the named machine profiles.
    pub fn profiles(&self) -> &Profiles {
        &self.profiles
    }

    /// Returns the files of studies that this program reads from the source tree, as a development
    /// build does.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Returns the errors in the files of studies that cannot be run.
    pub fn broken(&self) -> &[FileError] {
        &self.broken
    }

    /// Returns the study or script with this name, the script of a file, or the recordings of files
    /// with commas between them.
    pub fn find(&self, name: &str) -> Result<Study, NoStudy> {
        if name.ends_with(RECORDING_SUFFIX) {
            return recordings(name);
        }
        if name.ends_with(SUFFIX) {
            return self.script(name);
        }
        if let Some(why) = self.broken.iter().find(|why| why.study == name) {
            return Err(why.clone().into());
        }
        let all = || self.all().chain(self.scripts());
        let unknown = || UnknownName::new("study or script", name, all().map(Study::name));
        Ok(all().find(|study| study.name() == name).cloned().ok_or_else(unknown)?)
    }

    /// Returns the script that a document has.
    pub fn script_of(&self, name: &str, text: &str) -> Result<Study, NoStudy> {
        let path = format!("{name}{SUFFIX}");
        let script = Script::parse(&path, text)?;
        sources::of_script(script, &self.profiles).map_err(|why| NoStudy::File { path, why })
    }

    /// Reads the script of a file.
    fn script(&self, path: &str) -> Result<Study, NoStudy> {
        let error = |why: String| NoStudy::File { path: path.to_owned(), why };
        let text = mmscale_files::text(Path::new(path), SCRIPT_LIMIT, Pipe::Refuse)
            .map_err(|why| error(why.to_string()))?;
        let script = Script::parse(path, &text)?;
        if self.all().any(|study| study.name() == script.name()) {
            let name = script.name();
            return Err(error(format!("there is a study named `{name}`; rename the file")));
        }
        sources::of_script(script, &self.profiles).map_err(error)
    }
}

/// Reads the recordings of files, with commas between them.
fn recordings(paths: &str) -> Result<Study, NoStudy> {
    let error = |path: &str, why: String| NoStudy::File { path: path.to_owned(), why };
    let mut files = Vec::new();
    for path in paths.split(',') {
        let bytes = mmscale_files::bytes(Path::new(path), RECORDING_LIMIT, Pipe::Refuse)
            .map_err(|why| error(path, why.to_string()))?;
        files.push((path, bytes));
    }
    recorded::study_of(&files).map_err(|(at, why)| error(files[at].0, why))
}

impl From<&Registry> for Registry {
    fn from(all: &Registry) -> Self {
        all.clone()
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
    /// The file of a script or of a recording cannot be used.
    #[error("{path}: {why}")]
    File {
        /// The path as given.
        path: String,
        /// The reason.
        why: String,
    },
}

/// A summary of a machine profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileSummary {
    /// The name of the profile.
    pub name: String,
    /// A description of the machine.
    pub description: String,
    /// Number of CPUs.
    pub cpus: usize,
    /// Number of memory nodes.
    pub nodes: usize,
}

/// Returns summaries of all named profiles.
pub fn profiles(of: &Profiles) -> Result<Vec<ProfileSummary>, ProfileError> {
    let summary = |name: &str| {
        let profile = of.load(name)?;
        Ok(ProfileSummary {
            name: profile.name,
            description: profile.description,
            cpus: profile.topology.cpus,
            nodes: profile.topology.nodes,
        })
    };
    of.names().into_iter().map(summary).collect()
}
