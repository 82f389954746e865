//! The file to which a profile or a measurement is written.

use std::path::Path;

use anyhow::anyhow;
use mmscale_files::{Existing, Folder};

use crate::failure::Failure;
use crate::output;

/// A kind of file.
pub(crate) struct Kind {
    /// The contents, in a word.
    what: &'static str,
    /// The extension of the file name.
    extension: &'static str,
    /// An example of a file name.
    example: &'static str,
    /// A command that uses the file, up to its name.
    use_with: &'static str,
}

/// A machine profile.
pub(crate) const PROFILE: Kind = Kind {
    what: "profile",
    extension: "toml",
    example: "this-computer.toml",
    use_with: "mmscale run --profile",
};

/// Waits that another tool measured.
pub(crate) const MEASUREMENT: Kind = Kind {
    what: "measurement",
    extension: "json",
    example: "production.json",
    use_with: "mmscale compare",
};

/// A page for a browser.
pub(crate) const PAGE: Kind = Kind {
    what: "report",
    extension: "html",
    example: "report.html",
    use_with: "a browser, or mmscale compare",
};

/// A timeline.
pub(crate) const TRACE: Kind = Kind {
    what: "trace",
    extension: "perfetto-trace",
    example: "trace.perfetto-trace",
    use_with: "https://ui.perfetto.dev, or trace_processor",
};

/// Folded stacks.
pub(crate) const FOLDED: Kind = Kind {
    what: "stacks",
    extension: "folded",
    example: "trace.folded",
    use_with: "flamegraph.pl",
};

/// A writable location, checked before the work begins.
pub(crate) struct Destination {
    folder: Folder,
    name: String,
    kind: Kind,
}

impl Destination {
    /// Checks whether a file may be written to `path`.
    pub(crate) fn open(path: &Path, existing: Existing, kind: Kind) -> Result<Self, Failure> {
        let Kind { what, extension, example, .. } = kind;
        let wrong = |why: String| {
            let path = path.display();
            Failure::Call(anyhow!("cannot write the {what} to `{path}`: {why}"))
        };
        if path.is_dir() {
            let why = format!("it is a directory; give a file in it, such as {example}");
            return Err(wrong(why));
        }
        if path.extension().is_none_or(|found| found != extension) {
            return Err(wrong(format!("the file name of a {what} must end in .{extension}")));
        }
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| wrong("the file name is not UTF-8".to_owned()))?.to_owned();
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let folder = Folder::open(parent.unwrap_or(Path::new(".")), existing)?;
        folder.free(&name)?;
        Ok(Self { folder, name, kind })
    }

    /// Writes the file and reports its path and how to use it.
    pub(crate) fn write(&self, contents: impl AsRef<[u8]>) -> Result<(), Failure> {
        let written = self.folder.write(&self.name, contents)?;
        let path = written.path.display();
        output::tell(&format!("wrote {path}; use it with: {} {path}", self.kind.use_with));
        output::as_named([&written])
    }
}
