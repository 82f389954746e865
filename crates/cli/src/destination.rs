//! The place that `-o` names: a file if the path ends in the suffix of one, else a folder.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use mmscale_files::{Existing, Folder};

use crate::args::DocumentsArgs;
use crate::failure::Failure;
use crate::output;

/// A kind of file.
pub(crate) struct Kind {
    /// The contents, in a word.
    what: &'static str,
    /// The extension of the file name.
    extension: &'static str,
    /// The name of the file in a folder.
    name: &'static str,
    /// A command that uses the file, up to its name.
    use_with: &'static str,
}

/// A machine profile.
pub(crate) const PROFILE: Kind = Kind {
    what: "profile",
    extension: "toml",
    name: "machine.toml",
    use_with: "mmscale run --profile",
};

/// Returns a base as the profile that is written to `file` names it. A relative path is relative to
/// the folder of the file, so a path from the current folder is made absolute if the file is
/// written elsewhere.
pub(crate) fn base_of(base: &str, file: Option<&Path>) -> Result<String, Failure> {
    let elsewhere = file.is_some_and(|path| {
        is_folder(path) || path.parent().is_some_and(|folder| !folder.as_os_str().is_empty())
    });
    let path = base.contains('/') || base.ends_with(".toml");
    if !(elsewhere && path) {
        return Ok(base.to_owned());
    }
    let whole = std::path::absolute(base);
    let whole = whole.map_err(|why| Failure::Call(anyhow!("cannot use --base: {why}")))?;
    Ok(whole.to_string_lossy().into_owned())
}

/// Waits that another tool measured.
pub(crate) const MEASUREMENT: Kind = Kind {
    what: "measurement",
    extension: "json",
    name: "production.json",
    use_with: "mmscale compare",
};

/// Items of the gallery.
pub(crate) const ITEMS: Kind = Kind {
    what: "file of items",
    extension: "toml",
    name: "item.toml",
    use_with: "mmscale profile fidelity",
};

/// A page for a browser.
pub(crate) const PAGE: Kind = Kind {
    what: "report",
    extension: "html",
    name: "report.html",
    use_with: "a browser, or mmscale compare",
};

/// A picture.
pub(crate) const PICTURE: Kind = Kind {
    what: "picture",
    extension: "svg",
    name: "report.svg",
    use_with: "a browser, or in Markdown",
};

/// A timeline.
pub(crate) const TRACE: Kind = Kind {
    what: "trace",
    extension: "perfetto-trace",
    name: "trace.perfetto-trace",
    use_with: "https://ui.perfetto.dev, or trace_processor",
};

/// Folded stacks.
pub(crate) const FOLDED: Kind =
    Kind { what: "stacks", extension: "folded", name: "trace.folded", use_with: "flamegraph.pl" };

/// A recording of a kernel's operations.
pub(crate) const RECORDING: Kind = Kind {
    what: "recording",
    extension: "lift",
    name: "recording.lift",
    use_with: "mmscale lift show",
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
        let Kind { what, extension, name, .. } = kind;
        let wrong = |why: String| {
            let path = path.display();
            Failure::Call(anyhow!("cannot write the {what} to `{path}`: {why}"))
        };
        let inside;
        let path = if is_folder(path) {
            inside = path.join(name);
            inside.as_path()
        } else {
            path
        };
        if path.extension().is_none_or(|found| found != extension) {
            return Err(wrong(format!(
                "the file name of a {what} must end in .{extension}; a name without a suffix is a \
                 folder, for a file {name} in it"
            )));
        }
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| wrong("the file name is not UTF-8".to_owned()))?.to_owned();
        let folder = Folder::open(&parent(path), existing)?;
        folder.free(&name)?;
        Ok(Self { folder, name, kind })
    }

    /// Writes the file and reports its path and how to use it.
    pub(crate) fn write(&self, contents: impl AsRef<[u8]>) -> Result<(), Failure> {
        self.write_to(contents).map(drop)
    }

    /// Writes the file like [`Destination::write`]; returns its path.
    pub(crate) fn write_to(&self, contents: impl AsRef<[u8]>) -> Result<PathBuf, Failure> {
        let written = self.folder.write(&self.name, contents)?;
        let path = written.path.display();
        output::tell(&format!("wrote {path}; use it with: {} {path}", self.kind.use_with));
        output::as_named([&written])?;
        Ok(written.path)
    }
}

/// Returns whether a path of `-o` names a folder: an existing one, or a name without a suffix.
pub(crate) fn is_folder(path: &Path) -> bool {
    path.is_dir() || path.extension().is_none()
}

fn parent(path: &Path) -> PathBuf {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new(".")).to_owned()
}

/// The suffixes of the two files of a document.
const SUFFIXES: [&str; 2] = ["json", "txt"];

/// Returns the file names of a document.
pub(crate) fn files_of(name: &str) -> [String; 2] {
    SUFFIXES.map(|suffix| format!("{name}.{suffix}"))
}

impl DocumentsArgs {
    /// Returns the folder for documents, if the call names one, and their names in it.
    pub(crate) fn open(
        &self,
        names: Vec<String>,
    ) -> Result<(Option<Folder>, Vec<String>), Failure> {
        for_documents(self.output.as_deref(), names, output::existing(self.replace))
    }
}

/// Returns the folder of `-o` for documents, if there is one, and their names in it, which are
/// free. A path that ends in .json or .txt is the file of the only document, whose other file is
/// next to it.
fn for_documents(
    path: Option<&Path>,
    names: Vec<String>,
    existing: Existing,
) -> Result<(Option<Folder>, Vec<String>), Failure> {
    let Some(path) = path else { return Ok((None, names)) };
    let suffix = path.extension().and_then(|suffix| suffix.to_str());
    let is_file = !path.is_dir() && suffix.is_some_and(|suffix| SUFFIXES.contains(&suffix));
    let stem = path.file_stem().and_then(|stem| stem.to_str()).filter(|_| is_file);
    let (folder, names) = match (stem, names.len()) {
        (None, _) => (path.to_owned(), names),
        (Some(stem), 1) => (parent(path), vec![stem.to_owned()]),
        (Some(_), documents) => {
            return Err(Failure::Call(anyhow!(
                "cannot write {documents} documents to the file `{}`: give -o a folder, a name \
                 without .json or .txt",
                path.display()
            )));
        }
    };
    let folder = Folder::open(&folder, existing)?;
    names.iter().flat_map(|name| files_of(name)).try_for_each(|file| folder.free(&file))?;
    Ok((Some(folder), names))
}
