//! The path of the command line with the fake study.

use std::path::{Path, PathBuf};

/// Returns the path of the example `fake`, which `cargo test` builds next to the binary. (Building
/// it from here would compile every crate a second time.)
pub(crate) fn path() -> PathBuf {
    let folder = Path::new(env!("CARGO_BIN_EXE_mmscale")).parent().expect("a file has a folder");
    let path = folder.join("examples/fake");
    assert!(path.exists(), "{} is not built: run cargo build --examples first", path.display());
    path
}
