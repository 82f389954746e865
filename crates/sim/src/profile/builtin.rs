//! The profiles of `machines/`, built into the program.

use super::ProfileError;
use super::error::nearest;

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

/// The text of a built-in profile.
pub(super) fn builtin_text(name: &str) -> Option<&'static str> {
    BUILTIN.iter().find(|(builtin, _)| *builtin == name).map(|(_, text)| *text)
}

/// The refusal of a name that is not built in.
pub(super) fn unknown(name: &str) -> ProfileError {
    ProfileError::Unknown {
        name: name.to_owned(),
        nearest: nearest(name, builtin_names()),
        all: builtin_names().join(", "),
    }
}
