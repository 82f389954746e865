//! Disks without room: each call ends with one error that names the file.

use crate::{IMAGE, is_absent, kernel, skipped, stderr};
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

/// A small file system in memory, which is full.
struct Full(tempfile::TempDir);

impl Full {
    /// Mounts it; `None` without the rights.
    fn mounted() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", "size=64k", "mmscale-full"]).arg(folder.path());
        let output = command.output().ok()?;
        if !output.status.success() {
            skipped("a full disk", &stderr(&output));
            return None;
        }
        let full = Self(folder);
        // An error of the last byte is what is wanted.
        let _ = fs::write(full.path().join("filling"), vec![1; 1 << 20]);
        Some(full)
    }
    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Full {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.path()).status();
    }
}

#[test]
fn a_program_in_c_is_not_left_half_written() {
    let Some(full) = Full::mounted() else { return };
    let out = full.path().join("repro");
    let output = kernel(&["reproduce", "page_fault1", "-o"]).arg(&out).output().unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("No space left on device") && said.contains("repro"), "{said}");
    let left: Vec<_> = fs::read_dir(&out).into_iter().flatten().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
#[ignore = "boots kernels in an emulator"]
fn a_console_and_an_output_without_room_are_errors() {
    let Some(full) = Full::mounted() else { return };
    let console = full.path().join("console");
    let boot = |console: Option<&Path>| {
        let mut command = kernel(&["boot", "--kernel", IMAGE, "--append", "debug ignore_loglevel"]);
        if let Some(path) = console {
            command.arg("--console").arg(path);
        }
        command.args(["--", "live", "doctor"]);
        command
    };
    let output = boot(Some(&console)).output().unwrap();
    let said = stderr(&output);
    if is_absent(&said) {
        return skipped("a full disk", &said);
    }
    let error = said.lines().last().unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(error.contains("cannot write the console to") && error.contains("No space"), "{said}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("kernel images"), "{said}");

    let to = File::options().write(true).open("/dev/full").unwrap();
    let output = boot(None).stdout(to).output().unwrap();
    let said = stderr(&output);
    let error = said.lines().last().unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(error.contains("cannot write to standard output: No space"), "{said}");
}
