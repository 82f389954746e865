//! What asks for runs, as records name it.

use mmscale_document::Build;

/// What asks for runs: the program with its build, and its command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The mmscale that runs.
    pub build: Build,
    /// The program around it, where that is another than the `mmscale` binary.
    pub program: Option<Build>,
    /// The command line, word by word.
    pub command: Vec<String>,
}

impl Default for Origin {
    /// Code that is no program: of this version, of no known commit.
    fn default() -> Self {
        let build = Build::new("mmscale", env!("CARGO_PKG_VERSION"), "unknown");
        Self { build, program: None, command: Vec::new() }
    }
}
