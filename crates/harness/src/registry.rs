//! The studies that there are.

use crate::file::{FileError, Source};
use crate::file_study::FileStudy;
use crate::names::UnknownName;
use crate::study::Study;
use crate::workload::Workload;
use mmscale_sim::profile::Profiles;
use thiserror::Error;

/// Studies by name.
#[derive(Clone, Copy, Debug)]
pub struct Registry {
    studies: &'static [&'static dyn Study],
    broken: &'static [FileError],
    profiles: Profiles,
}

impl Registry {
    /// A registry of given studies; names differ.
    pub const fn new(studies: &'static [&'static dyn Study]) -> Self {
        Self { studies, broken: &[], profiles: Profiles::with(&[]) }
    }

    /// The studies on a shelf, which lives as long as the program.
    pub fn of(shelf: &'static Shelf) -> Self {
        let profiles = Profiles::with(&shelf.profiles);
        Self { studies: &shelf.studies, broken: &shelf.broken, profiles }
    }

    /// All studies, in the order in which `all` runs them, but those that are [`broken`].
    ///
    /// [`broken`]: Self::broken
    pub fn all(self) -> impl Iterator<Item = &'static dyn Study> + Clone {
        self.studies.iter().copied()
    }

    /// The machine profiles that have names.
    pub fn profiles(self) -> Profiles {
        self.profiles
    }

    /// What is wrong with the files of studies that cannot be run.
    pub fn broken(self) -> &'static [FileError] {
        self.broken
    }

    /// The study of a name.
    pub fn find(self, name: &str) -> Result<&'static dyn Study, NoStudy> {
        if let Some(why) = self.broken.iter().find(|why| why.study == name) {
            return Err(why.clone().into());
        }
        let unknown = || UnknownName::new("study", name, self.all().map(|study| study.name()));
        Ok(self.all().find(|study| study.name() == name).ok_or_else(unknown)?)
    }
}

/// Why a study cannot be had.
#[derive(Debug, Error)]
pub enum NoStudy {
    /// None has this name.
    #[error(transparent)]
    Unknown(#[from] UnknownName),
    /// Its file is broken.
    #[error(transparent)]
    Broken(#[from] FileError),
}

impl From<Shelf> for Registry {
    /// The studies of a program, which live as long as it.
    fn from(shelf: Shelf) -> Self {
        Self::of(Box::leak(Box::new(shelf)))
    }
}

/// Studies as their files are read.
#[derive(Debug, Default)]
pub struct Shelf {
    studies: Vec<&'static dyn Study>,
    broken: Vec<FileError>,
    profiles: Vec<(&'static str, &'static str)>,
}

impl Shelf {
    /// With a machine profile: its name, and the text of its file, which may have one of
    /// `machines/` as its base. It comes before the studies that name it.
    #[must_use]
    pub fn with_profile(mut self, name: &'static str, text: &'static str) -> Self {
        self.profiles.push((name, text));
        self
    }

    /// With a study as its file describes it.
    #[must_use]
    pub fn with<W: Workload>(self) -> Self {
        self.with_file::<W>(W::FILE)
    }

    /// With a study as another file describes it: for tests of files.
    #[must_use]
    pub fn with_file<W: Workload>(mut self, file: Source) -> Self {
        match FileStudy::<W>::of_file(file, Profiles::with(self.profiles.clone().leak())) {
            Ok(study) => self.studies.push(Box::leak(Box::new(study))),
            Err(why) => self.broken.push(why),
        }
        self
    }
}
