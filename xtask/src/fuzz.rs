//! `cargo xtask fuzz`: builds and starts the program of `testing/fuzz`, which has the targets.
//!
//! It is a package of its own, because it knows the whole command line, which no other check needs.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Starts a search with these arguments.
///
/// # Errors
/// A build that fails, or a search that finds something.
pub fn run(root: &Path, args: &[&str]) -> Result<String, String> {
    let (args, program) = match *args {
        [ref args @ .., "--program", program] => (args, PathBuf::from(program)),
        _ => (args, build(root)?),
    };
    let mut command = Command::new(program);
    let status = command.args(args).status();
    let status = status.map_err(|why| format!("cannot run {command:?}: {why}"))?;
    if status.success() {
        Ok("fuzz: nothing found".to_owned())
    } else {
        Err("see above".to_owned())
    }
}

/// Builds the program, optimised and with assertions. Returns its path.
fn build(root: &Path) -> Result<PathBuf, String> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root).args(["build", "--quiet", "--profile", "fuzz"]);
    let status = command.args(["--package", "mmscale-fuzz"]).status();
    let status = status.map_err(|why| format!("cannot run {command:?}: {why}"))?;
    if !status.success() {
        return Err(format!("{command:?} failed"));
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target.map_or_else(|| root.join("target"), |target| root.join(target));
    Ok(target.join("fuzz/mmscale-fuzz"))
}
