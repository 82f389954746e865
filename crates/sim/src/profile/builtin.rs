//! The profiles of `machines/`, built into the program.

use super::error::nearest;
use super::{Profile, ProfileError, ProfileFile, parse, resolve};

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

/// Loads a built-in profile by its name, or a file by its path. What holds a `/` or ends in
/// `.toml` is a path.
pub fn load(name_or_path: &str) -> Result<Profile, ProfileError> {
    if let Some((name, text)) = BUILTIN.iter().find(|(name, _)| *name == name_or_path) {
        return resolve(name, &parse(name, text)?);
    }
    if !name_or_path.contains('/') && !name_or_path.ends_with(".toml") {
        return Err(unknown(name_or_path));
    }
    let text = std::fs::read_to_string(name_or_path).map_err(|error| ProfileError::Read {
        file: name_or_path.to_owned(),
        reason: error.to_string(),
    })?;
    let mut profile = resolve(name_or_path, &parse(name_or_path, &text)?)?;
    if let Some(stem) = std::path::Path::new(name_or_path).file_stem() {
        profile.name = stem.to_string_lossy().into_owned();
    }
    Ok(profile)
}
