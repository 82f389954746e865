//! `cargo xtask pages`: man pages and shell completions from the commands, in `packaging/`, which
//! git ignores. A test of the command line writes them, so that this program need not compile the
//! whole workspace.

use std::path::Path;
use std::process::Command;

/// The test that writes the pages.
const TEST: &str = "args::pages::every_command_has_a_page_with_its_options";

/// Writes `packaging/`.
pub fn write(root: &Path) -> Result<String, String> {
    let mut cargo = Command::new(env!("CARGO"));
    let cargo = cargo.current_dir(root).env("MMSCALE_PAGES", "1");
    let status = cargo.args(["test", "-q", "-p", "mmscale", "--lib", "--", "--exact", TEST]);
    let status = status.status().map_err(|why| format!("cannot run cargo: {why}"))?;
    if !status.success() {
        return Err("the test that writes the pages failed".to_owned());
    }
    Ok("pages: packaging/ has the man pages and completions of the commands".to_owned())
}
