//! The file to which a profile is written.

use std::path::Path;

use anyhow::anyhow;
use mmscale_report::{Existing, Folder};

use crate::failure::Failure;
use crate::output;

/// A writable location for a profile, checked before the work begins.
pub(crate) struct Destination {
    folder: Folder,
    name: String,
}

impl Destination {
    /// Checks whether a profile may be written to `path`.
    pub(crate) fn open(path: &Path, existing: Existing) -> Result<Self, Failure> {
        let wrong = |what: &str| {
            let path = path.display();
            Failure::Call(anyhow!("cannot write the profile to `{path}`: {what}"))
        };
        if path.is_dir() {
            return Err(wrong("it is a directory; give a file in it, such as this-computer.toml"));
        }
        if path.extension().is_none_or(|extension| extension != "toml") {
            return Err(wrong("the file name of a profile must end in .toml"));
        }
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| wrong("the file name is not UTF-8"))?.to_owned();
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let folder = Folder::open(parent.unwrap_or(Path::new(".")), existing)?;
        folder.free(&name)?;
        Ok(Self { folder, name })
    }

    /// Writes the profile and reports its path and how to use it.
    pub(crate) fn write(&self, profile: &str) -> Result<(), Failure> {
        let written = self.folder.write(&self.name, profile)?;
        let path = written.path.display();
        output::tell(&format!("wrote {path}; use it with: mmscale run --profile {path}"));
        output::as_named([&written])
    }
}
