//! The location of a study's file.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use mmscale_document::Fingerprint;
use mmscale_files::{Limit, Pipe};
use thiserror::Error;

/// Some hundred times the size of the largest.
const LIMIT: Limit = Limit::new("a study.toml", 1 << 20);

/// The name of a study and the location of its file; see [`study_file!`](crate::study_file).
#[derive(Clone, Copy, Debug)]
pub struct Source {
    pub(crate) study: &'static str,
    at: At,
}

#[derive(Clone, Copy, Debug)]
enum At {
    /// The text was compiled in.
    Compiled(&'static str),
    /// Next to a source file of a package.
    Disk { source: &'static str, package: &'static str },
}

impl Source {
    /// The file of `study` with compiled-in text.
    pub const fn compiled(study: &'static str, text: &'static str) -> Self {
        Self { study, at: At::Compiled(text) }
    }

    /// The file `study.toml` next to `source` (a path as `file!` returns it) of the package in the
    /// folder `package`.
    pub const fn on_disk(study: &'static str, source: &'static str, package: &'static str) -> Self {
        Self { study, at: At::Disk { source, package } }
    }

    /// Returns the path of a file on disk, if it is there.
    pub(crate) fn path(self) -> Option<PathBuf> {
        let At::Disk { source, package } = self.at else { return None };
        // The compiler gets paths relative to the top of the workspace, which is the package's
        // folder or a folder above it.
        let beside = |folder: &Path| folder.join(source).with_file_name("study.toml");
        Path::new(package).ancestors().map(beside).find(|path| path.is_file())
    }

    /// Returns the text, and its hash if it was read from disk.
    pub(crate) fn read(self) -> Result<(Cow<'static, str>, Option<String>), FileError> {
        if let At::Compiled(text) = self.at {
            return Ok((text.into(), None));
        }
        let text = self
            .path()
            .ok_or_else(|| "no study.toml next to the study's source".to_owned())
            .and_then(|path| {
                let text = mmscale_files::text(&path, LIMIT, Pipe::Refuse);
                text.map_err(|why| why.to_string())
            });
        let text = text.map_err(|why| FileError {
            study: self.study,
            place: String::new(),
            what: format!(
                "{why}: a development build reads the file from the source tree; restore it, or \
                 build with --release"
            ),
        })?;
        let mut hash = Fingerprint::new();
        hash.add_str(&text);
        Ok((text.into(), Some(hash.to_hex())))
    }
}

/// The [`Source`] for a `study.toml` next to the file that invokes this macro.
#[cfg(not(debug_assertions))]
#[macro_export]
macro_rules! study_file {
    ($study:literal) => {
        $crate::Source::compiled($study, include_str!("study.toml"))
    };
}

/// The [`Source`] for a `study.toml` next to the file that invokes this macro.
#[cfg(debug_assertions)]
#[macro_export]
macro_rules! study_file {
    ($study:literal) => {
        $crate::Source::on_disk($study, file!(), env!("CARGO_MANIFEST_DIR"))
    };
}

/// An error in a `study.toml`.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("study.toml of {study}{place}: {what}")]
pub struct FileError {
    /// The name of the study, which is that of its folder.
    pub study: &'static str,
    pub(crate) place: String,
    pub(crate) what: String,
}
