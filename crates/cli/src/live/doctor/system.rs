//! A computer as its `/proc` and `/sys` show it. Nothing is written or changed.

use std::fs;
use std::path::{Path, PathBuf};

/// The root folder of `/proc`, `/sys` and `/boot`.
pub(super) struct System {
    root: PathBuf,
}

impl System {
    /// Returns this computer.
    pub(super) fn this() -> Self {
        Self::at(Path::new("/"))
    }

    /// Returns a system with copies of the files below another root, for tests.
    pub(super) fn at(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Returns the trimmed content of a file. `None` if it cannot be read.
    pub(super) fn read(&self, path: &str) -> Option<String> {
        // tidy: opened: a file of /proc or /sys
        fs::read_to_string(self.path(path)).ok().map(|text| text.trim().to_owned())
    }

    /// Returns whether a path exists.
    pub(super) fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// Returns whether a file can be opened for reading.
    pub(super) fn readable(&self, path: &str) -> bool {
        // tidy: opened: a file of /proc or /sys
        fs::File::open(self.path(path)).is_ok()
    }

    /// Returns the value of a `key: value` line of a file.
    pub(super) fn field(&self, path: &str, key: &str) -> Option<String> {
        let text = self.read(path)?;
        text.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            (name.trim() == key).then(|| value.trim().to_owned())
        })
    }
}
