//! The origin of runs, as documents name it.

use mmscale_document::Build;

/// The origin of runs: the program, its build, and its command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The build of mmscale.
    pub build: Build,
    /// The program that contains mmscale, if it is not the `mmscale` binary.
    pub program: Option<Build>,
    /// The command line, word by word.
    pub command: Vec<String>,
}

impl Default for Origin {
    /// The origin of library callers: this version, unknown commit.
    fn default() -> Self {
        let build = Build::new("mmscale", env!("CARGO_PKG_VERSION"), "unknown");
        Self { build, program: None, command: Vec::new() }
    }
}
