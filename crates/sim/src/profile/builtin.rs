//! Profiles with names: those of `machines/`, and those that a program adds.

use super::ProfileError;
use super::error::nearest;

/// Name and text of each built-in profile, sorted by name.
const BUILTIN: [(&str, &str); 24] = [
    ("altra", include_str!("../../machines/altra.toml")),
    ("arm64-480g-64k-72", include_str!("../../machines/arm64-480g-64k-72.toml")),
    ("arm64-480g-72", include_str!("../../machines/arm64-480g-72.toml")),
    ("arm64-72", include_str!("../../machines/arm64-72.toml")),
    ("arm64-8", include_str!("../../machines/arm64-8.toml")),
    ("cascadelake", include_str!("../../machines/cascadelake.toml")),
    ("cooperlake", include_str!("../../machines/cooperlake.toml")),
    ("genoa", include_str!("../../machines/genoa.toml")),
    ("grace", include_str!("../../machines/grace.toml")),
    ("graviton2", include_str!("../../machines/graviton2.toml")),
    ("graviton3", include_str!("../../machines/graviton3.toml")),
    ("icelake", include_str!("../../machines/icelake.toml")),
    ("milan", include_str!("../../machines/milan.toml")),
    ("phone", include_str!("../../machines/phone.toml")),
    ("rome", include_str!("../../machines/rome.toml")),
    ("sapphirerapids", include_str!("../../machines/sapphirerapids.toml")),
    ("skylake", include_str!("../../machines/skylake.toml")),
    ("turin", include_str!("../../machines/turin.toml")),
    ("x86-16", include_str!("../../machines/x86-16.toml")),
    ("x86-2", include_str!("../../machines/x86-2.toml")),
    ("x86-2-live", include_str!("../../machines/x86-2-live.toml")),
    ("x86-26", include_str!("../../machines/x86-26.toml")),
    ("x86-32", include_str!("../../machines/x86-32.toml")),
    ("x86-512", include_str!("../../machines/x86-512.toml")),
];

/// The built-in profiles: those of `machines/`, and a program's own, as names and texts of files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profiles {
    own: Vec<(&'static str, &'static str)>,
}

impl Profiles {
    /// Adds a program's own profiles to those of `machines/`. They win where names are equal.
    pub fn with(own: &[(&'static str, &'static str)]) -> Self {
        Self { own: own.to_vec() }
    }

    /// Adds a profile: its name, and the text of its file.
    pub fn add(&mut self, name: &'static str, text: &'static str) {
        self.own.push((name, text));
    }

    /// Returns the names: those of `machines/` sorted, then the program's own.
    pub fn names(&self) -> Vec<&'static str> {
        let own = self.own.iter().map(|(name, _)| *name);
        BUILTIN.iter().map(|(name, _)| *name).filter(|name| !self.is_own(name)).chain(own).collect()
    }

    fn is_own(&self, name: &str) -> bool {
        self.own.iter().any(|(own, _)| *own == name)
    }

    /// Returns the text of a profile.
    pub(super) fn text(&self, name: &str) -> Option<&'static str> {
        let all = self.own.iter().chain(&BUILTIN);
        all.clone().find(|(of, _)| *of == name).map(|(_, text)| *text)
    }

    /// Returns the error for a name that is not built in.
    pub(super) fn unknown(&self, name: &str) -> ProfileError {
        ProfileError::Unknown {
            name: name.to_owned(),
            nearest: nearest(name, self.names()),
            all: self.names().join(", "),
        }
    }
}

/// Returns the names of the profiles of `machines/`, sorted.
pub fn builtin_names() -> Vec<&'static str> {
    Profiles::default().names()
}
