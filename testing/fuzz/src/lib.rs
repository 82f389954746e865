//! Random scripts, documents, profiles, recordings, reports and files of machines for the code that
//! reads them.
//!
//! Nothing that a file contains may cause a panic, a hang, more memory than [`MOST_MEMORY`], a
//! control character in the output, or an endless error. Case N of a seed is always the same input.
//!
//! A *worker* is a process that executes cases. Its *frame* starts one after another, knows which
//! case is in progress, and reports a case whose worker ended or was killed.
//!
//! | module | content |
//! |---|---|
//! | `frame` | the command: which cases, workers and their limits, the summary |
//! | `worker` | the process that executes cases |
//! | `target`, `targets`, `outcome` | the interface of a target; all targets; results |
//! | `script`, `document`, `profile`, `recording`, `report` | the targets |
//! | `planted` | cases that fail in every way, for tests of the frame |
//! | `random`, `mutate`, `json` | random numbers; damage to texts and to JSON values |
//! | `call`, `run` | commands of `mmscale` in this process; short runs |

mod call;
mod document;
mod frame;
mod json;
mod machine;
mod mutate;
mod outcome;
mod planted;
mod profile;
mod random;
mod recording;
mod report;
mod run;
mod script;
mod target;
mod targets;
mod worker;

use std::path::{Path, PathBuf};

pub use frame::{Counts, Search, command};
pub use outcome::Outcome;
pub use targets::NAMES;

/// Most bytes of memory of a worker.
pub const MOST_MEMORY: u64 = 1 << 30;

/// The file with what a worker prints on standard error, in its folder.
const STDERR: &str = "stderr";

/// Returns the workspace's root.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

/// Reads all files in some folders whose names end in `.extension`, by name.
fn files(root: &Path, folders: &[&str], extension: &str) -> Vec<Vec<u8>> {
    let paths = folders.iter().flat_map(|folder| std::fs::read_dir(root.join(folder)));
    let mut paths: Vec<PathBuf> = paths.flatten().flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == extension));
    paths.sort();
    paths.iter().flat_map(std::fs::read).collect()
}
