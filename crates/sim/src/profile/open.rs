//! Loading a profile by its name or path.

use super::base::{Merged, ProfileSource, merge};
use super::builtin::Profiles;
use super::{Profile, ProfileError, ProfileFile};
use std::path::Path;

impl Profiles {
    /// Opens a built-in profile by its name, or a file by its path, and merges it with its bases. A
    /// name that contains a `/` or ends in `.toml` is a path.
    pub fn open(&self, name_or_path: impl AsRef<Path>) -> Result<Merged, ProfileError> {
        let place = ProfileSource::of(self, name_or_path.as_ref(), Path::new(""))?;
        merge(self, &place.shown(), place.file(self)?, place)
    }

    /// Loads a profile as [`Profiles::open`] does. A file's profile has the name of the file,
    /// without `.toml`.
    pub fn load(&self, name_or_path: impl AsRef<Path>) -> Result<Profile, ProfileError> {
        self.open(name_or_path)?.machine()
    }
}

impl Merged {
    /// Resolves an opened profile. A file's profile has the name of the file, without `.toml`.
    pub fn machine(&self) -> Result<Profile, ProfileError> {
        Ok(Profile { name: self.title(), ..self.resolve()? })
    }
}

/// Opens a profile of `machines/` by its name, or a file by its path, as [`Profiles::open`].
pub fn open(name_or_path: impl AsRef<Path>) -> Result<Merged, ProfileError> {
    Profiles::default().open(name_or_path)
}

/// Loads a profile of `machines/` by its name, or a file by its path, as [`Profiles::load`].
pub fn load(name_or_path: impl AsRef<Path>) -> Result<Profile, ProfileError> {
    Profiles::default().load(name_or_path)
}

/// Returns a profile of `machines/` merged with its bases: all numbers, with ranges and sources.
pub fn builtin_file(name: &str) -> Result<ProfileFile, ProfileError> {
    let profiles = Profiles::default();
    match ProfileSource::of(&profiles, Path::new(name), Path::new(""))? {
        ProfileSource::BuiltIn(_) => Ok(open(name)?.file),
        ProfileSource::File(_) | ProfileSource::Memory => Err(profiles.unknown(name)),
    }
}
