//! Where the command line with the fake study is.

use std::path::{Path, PathBuf};

/// The example `fake`, which `cargo test` builds next to the binary. (Asking cargo for it again
/// would build every crate a second time.)
pub(crate) fn path() -> PathBuf {
    let folder = Path::new(env!("CARGO_BIN_EXE_mmscale")).parent().expect("a file has a folder");
    let path = folder.join("examples/fake");
    assert!(path.exists(), "{} is not built: run cargo build --examples first", path.display());
    path
}
