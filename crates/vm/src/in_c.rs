//! Programs in C for a machine, compiled on this computer.

use mmscale_files::{Limit, Pipe};
use std::env;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// The largest program.
const LIMIT: Limit = Limit::new("a program", 64 << 20);
/// Linked statically, a process has few mappings.
const FLAGS: [&str; 8] = ["-x", "c", "-", "-std=gnu11", "-O2", "-static", "-pthread", "-pipe"];

/// Compiles a program in `folder`, which is for it alone.
///
/// # Errors
/// Why there is none, and what to do.
pub fn static_program(text: &str, folder: &Path) -> Result<Vec<u8>, String> {
    let compiler = env::var("CC").ok().filter(|name| !name.is_empty());
    compiled(compiler.as_deref().unwrap_or("cc"), text, folder)
}

fn compiled(compiler: &str, text: &str, folder: &Path) -> Result<Vec<u8>, String> {
    let path = folder.join("program");
    let mut command = Command::new(compiler);
    command.args(FLAGS).arg("-o").arg(&path).env("TMPDIR", folder);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|why| {
        format!(
            "cannot run `{compiler}` ({why}), which --in-c needs: on Debian apt-get install gcc \
             libc6-dev, or name another one in CC"
        )
    })?;
    // A compiler that ends early says why.
    let _ = child.stdin.take().expect("a pipe").write_all(text.as_bytes());
    let output = child.wait_with_output().map_err(|why| format!("cannot wait for it: {why}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let first = said.lines().find(|line| line.contains("error")).unwrap_or("no message");
        return Err(format!("`{compiler}` does not compile the program: {first}"));
    }
    mmscale_files::bytes(&path, LIMIT, Pipe::Refuse)
        .map_err(|why| format!("cannot read the program: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compiler_that_is_missing_or_refuses_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let compiled = |compiler, text| compiled(compiler, text, folder.path());
        let why = compiled("/no/such/compiler", "").unwrap_err();
        assert!(why.contains("/no/such/compiler") && why.contains("apt-get install gcc"), "{why}");
        let why = compiled("false", "int main(void) { return 0; }").unwrap_err();
        assert!(why.contains("`false` does not compile the program"), "{why}");
    }
}
