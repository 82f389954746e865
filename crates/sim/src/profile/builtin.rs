//! The profiles of `machines/`, built into the program.

use super::error::nearest;
use super::{Profile, ProfileError, ProfileFile, parse, resolve};
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Name and text of each built-in profile, by name.
const BUILTIN: [(&str, &str); 8] = [
    ("arm64-72", include_str!("../../../../machines/arm64-72.toml")),
    ("arm64-8", include_str!("../../../../machines/arm64-8.toml")),
    ("x86-16", include_str!("../../../../machines/x86-16.toml")),
    ("x86-2", include_str!("../../../../machines/x86-2.toml")),
    ("x86-2-live", include_str!("../../../../machines/x86-2-live.toml")),
    ("x86-26", include_str!("../../../../machines/x86-26.toml")),
    ("x86-32", include_str!("../../../../machines/x86-32.toml")),
    ("x86-512", include_str!("../../../../machines/x86-512.toml")),
];

/// The names of the built-in profiles, sorted.
pub fn builtin_names() -> Vec<&'static str> {
    BUILTIN.iter().map(|(name, _)| *name).collect()
}

/// The file of a built-in profile, with ranges and sources.
pub fn builtin_file(name: &str) -> Result<ProfileFile, ProfileError> {
    match BUILTIN.iter().find(|(builtin, _)| *builtin == name) {
        Some((name, text)) => parse(name, text),
        None => Err(unknown(name)),
    }
}

fn unknown(name: &str) -> ProfileError {
    ProfileError::Unknown {
        name: name.to_owned(),
        nearest: nearest(name, builtin_names()),
        all: builtin_names().join(", "),
    }
}

/// The most bytes of a profile file: some twenty times what one with all keys and sources has.
const MAX_BYTES: u64 = 1 << 20;

/// Loads a built-in profile by its name, or a file by its path. What holds a `/` or ends in
/// `.toml` is a path.
pub fn load(name_or_path: impl AsRef<Path>) -> Result<Profile, ProfileError> {
    let path = name_or_path.as_ref();
    let shown = path.to_string_lossy();
    if let Some((name, text)) = BUILTIN.iter().find(|(name, _)| path == Path::new(name)) {
        return resolve(name, &parse(name, text)?);
    }
    if !shown.contains('/') && !shown.ends_with(".toml") {
        return Err(unknown(&shown));
    }
    let text = read(path).map_err(|error| ProfileError::Read {
        file: shown.clone().into_owned(),
        reason: error.to_string(),
    })?;
    let mut profile = resolve(&shown, &parse(&shown, &text)?)?;
    if let Some(stem) = path.file_stem() {
        profile.name = stem.to_string_lossy().into_owned();
    }
    Ok(profile)
}

/// The text of a regular file of at most [`MAX_BYTES`]. Anything else might have no end, and is
/// opened without waiting for a writer.
fn read(path: &Path) -> io::Result<String> {
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut text = String::new();
    file.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(io::Error::other(format!("it has more than {MAX_BYTES} bytes")));
    }
    Ok(text)
}
