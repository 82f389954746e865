//! The studies that there are.

use crate::file::{FileError, Source};
use crate::names::UnknownName;
use crate::shipped::{Experiment, Shipped};
use crate::study::Study;
use crate::{churn, ipi, pcp, reap, vmstat};
use std::sync::LazyLock;
use thiserror::Error;

/// Studies by name. The shipped ones are [`Registry::shipped`]; tests have their own.
#[derive(Clone, Copy, Debug)]
pub struct Registry {
    studies: &'static [&'static dyn Study],
    broken: &'static [FileError],
}

impl Registry {
    /// A registry of given studies; names differ.
    pub const fn new(studies: &'static [&'static dyn Study]) -> Self {
        Self { studies, broken: &[] }
    }

    /// The studies of this workspace.
    pub fn shipped() -> Self {
        static SHIPPED: LazyLock<Shelf> = LazyLock::new(|| {
            let mut shelf = Shelf::default();
            shelf.add::<vmstat::UpkeepTick>(vmstat::FILE);
            shelf.add::<churn::PageChurn>(churn::FILE);
            shelf.add::<pcp::PageCaches>(pcp::FILE);
            shelf.add::<reap::Exits>(reap::FILE);
            shelf.add::<ipi::CrossCalls>(ipi::FILE);
            shelf
        });
        SHIPPED.registry()
    }

    /// All studies, in the order in which `all` runs them, but those that are [`broken`].
    ///
    /// [`broken`]: Self::broken
    pub fn all(self) -> impl Iterator<Item = &'static dyn Study> + Clone {
        self.studies.iter().copied()
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

/// Studies as their files are read.
#[derive(Default)]
struct Shelf {
    studies: Vec<&'static dyn Study>,
    broken: Vec<FileError>,
}

impl Shelf {
    fn add<E: Experiment + Sync + Send>(&mut self, source: Source) {
        match Shipped::<E>::of_file(source) {
            Ok(study) => self.studies.push(Box::leak(Box::new(study))),
            Err(why) => self.broken.push(why),
        }
    }

    fn registry(&'static self) -> Registry {
        Registry { studies: &self.studies, broken: &self.broken }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that is broken is found here; a program with one says so and runs the other studies.
    #[test]
    fn every_shipped_file_is_whole() {
        assert_eq!(Registry::shipped().broken(), []);
        assert_eq!(Registry::shipped().all().count(), 5);
    }

    #[test]
    fn a_broken_file_is_told_where_its_study_is_asked_for_and_spares_the_others() {
        let mut shelf = Shelf::default();
        shelf.add::<churn::PageChurn>(churn::FILE);
        let text = vmstat::FILE.text.replace("tick = \"phased\"", "tick = \"jitter\"").leak();
        shelf.add::<vmstat::UpkeepTick>(Source { text, ..vmstat::FILE });
        let shelf: &'static Shelf = Box::leak(Box::new(shelf));
        let registry = shelf.registry();
        assert!(registry.find("churn").is_ok());
        let why = registry.find("vmstat").unwrap_err().to_string();
        assert_eq!(
            why,
            "studies/vmstat/study.toml, arm `phased`: key `tick`: there is no policy named \
             `jitter` (known: stock, posted, phased)"
        );
    }
}
