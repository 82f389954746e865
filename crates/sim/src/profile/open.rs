//! Loading a profile by its name or path.

use super::base::{Merged, Place, merge};
use super::{Profile, ProfileError, ProfileFile};
use std::path::Path;

/// Opens a built-in profile by its name, or a file by its path, and merges it with its bases. A
/// name that holds a `/` or ends in `.toml` is a path.
pub fn open(name_or_path: impl AsRef<Path>) -> Result<Merged, ProfileError> {
    let place = Place::of(name_or_path.as_ref(), Path::new(""))?;
    merge(&place.shown(), place.file()?, place)
}

/// Loads a profile as [`open`] does. The name of a file's profile is the file's, without `.toml`.
pub fn load(name_or_path: impl AsRef<Path>) -> Result<Profile, ProfileError> {
    let merged = open(name_or_path)?;
    Ok(Profile { name: merged.title(), ..merged.resolve()? })
}

/// The file of a built-in profile with its bases: all numbers, with ranges and sources.
pub fn builtin_file(name: &str) -> Result<ProfileFile, ProfileError> {
    match Place::of(Path::new(name), Path::new(""))? {
        Place::BuiltIn(_) => Ok(open(name)?.file),
        Place::File(_) | Place::Memory => Err(super::builtin::unknown(name)),
    }
}
