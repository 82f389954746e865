//! Programs in C of all scripts and studies, compiled and run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// All scripts and studies.
fn names() -> Vec<String> {
    let mut list = Command::new(env!("CARGO_BIN_EXE_mmscale"));
    let listed = list.args(["list", "--format", "json"]).output().expect("mmscale starts");
    let text = String::from_utf8(listed.stdout).expect("JSON is UTF-8");
    let list: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    let of = |key: &str| {
        let all = list[key].as_array().unwrap_or_else(|| panic!("no {key}")).clone();
        all.into_iter().map(|one| one["name"].as_str().expect("a name").to_owned())
    };
    of("studies").chain(of("scripts")).collect()
}

fn reproduce(name: &str, folder: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mmscale"));
    command.args(["kernel", "reproduce", name, "-o"]).arg(folder).args(more);
    command.output().expect("mmscale starts")
}

/// Builds a program with warnings as errors. `None`: there is no compiler.
fn built(folder: &Path) -> Option<PathBuf> {
    let flags = "CFLAGS=-O2 -Wall -Wextra -Werror";
    let missing = |what: &str| println!("SKIPPED: programs in C are not compiled: no {what}");
    if Command::new("cc").arg("--version").output().is_err() {
        missing("cc");
        return None;
    }
    let Ok(made) = Command::new("make").args(["CC=cc", flags, "-C"]).arg(folder).output() else {
        missing("make");
        return None;
    };
    let errors = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "{}: {errors}", folder.display());
    Some(folder.join("repro"))
}

#[test]
fn every_script_and_study_is_a_program_that_compiles() {
    let made = tempfile::tempdir().unwrap();
    let all = names();
    assert!(all.len() > 20, "{all:?}");
    for name in &all {
        let folder = made.path().join(name);
        let output = reproduce(name, &folder, &[]);
        assert!(output.status.success(), "{name}: {output:?}");
        let readme = fs::read_to_string(folder.join("README")).unwrap();
        assert!(readme.contains(&format!("mmscale run {name} ")), "{readme}");
        let text = |line: &&str| !line.starts_with("    ");
        let long = readme.lines().filter(text).find(|line| line.len() > 72);
        assert_eq!(long, None, "{name}: a line of a mail has 72 columns");
        built(&folder);
    }
}

#[test]
fn a_program_runs_and_leaves_no_process() {
    let made = tempfile::tempdir().unwrap();
    for name in ["page_fault1", "forkstorm", "purge", "shell-storm"] {
        let folder = made.path().join(name);
        assert!(reproduce(name, &folder, &[]).status.success());
        let Some(program) = built(&folder) else { return };
        let mut run = Command::new(&program);
        let output = run.args(["-n", "1", "-t", "1", "-w", "0"]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{name}: {output:?}");
        assert!(text.starts_with("1 CPUs, 1 processes\n"), "{text}");
        // How many depends on the computer's load.
        let all = text.lines().find_map(|line| line.strip_suffix(" operations in all"));
        assert!(all.is_some_and(|all| all != "0"), "{text}");
        // A killed program takes its processes with it.
        let mut running = Command::new(&program).args(["-n", "1", "-t", "100"]).spawn().unwrap();
        while !has_process_of(&program, 2) {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        running.kill().unwrap();
        running.wait().unwrap();
        let gone = (0..1000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            !has_process_of(&program, 1)
        });
        assert!(gone, "{name}: processes are left");
    }
}

/// Whether at least `wanted` processes execute a program.
fn has_process_of(program: &Path, wanted: usize) -> bool {
    let program = program.canonicalize().unwrap();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let is_one = |entry: &fs::DirEntry| {
        fs::read_link(entry.path().join("exe")).ok().as_ref() == Some(&program)
    };
    processes.filter(is_one).count() >= wanted
}

#[test]
fn parameters_and_existing_files_are_respected() {
    let made = tempfile::tempdir().unwrap();
    let folder = made.path().join("repro");
    assert!(reproduce("mmap1", &folder, &["--set", "bytes=64KiB"]).status.success());
    let program = fs::read_to_string(folder.join("repro.c")).unwrap();
    assert!(
        program.contains("#define BYTES\t\t(64L << 10)\t/* memory that is mapped */"),
        "{program}"
    );
    assert!(program.contains("`mmscale kernel reproduce mmap1 --set bytes=64KiB`"), "{program}");

    let again = reproduce("mmap2", &folder, &[]);
    assert_eq!(again.status.code(), Some(2));
    assert_eq!(fs::read_to_string(folder.join("repro.c")).unwrap(), program);
    assert!(reproduce("mmap2", &folder, &["--replace"]).status.success());
    assert_ne!(fs::read_to_string(folder.join("repro.c")).unwrap(), program);
}

/// As `lift record --in-c` runs it, but on this computer.
#[test]
#[cfg(feature = "live")]
fn tasks_of_a_program_take_turns() {
    use mmscale_harness::{ProgramSpec, Registry};
    let text = "process forks 2 { start; loop { child = fork { } wait(child); count; count; } }";
    let study = Registry::default().script_of("forks", text).unwrap();
    let spec = ProgramSpec {
        name: "forks",
        params: &[],
        written_by: "a test",
        simulated_by: &[],
        remarks: &[],
    };
    let program = study.script().unwrap().in_turns(&spec, Some(3)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let bytes = match mmscale_vm::static_program(&program, folder.path()) {
        Ok(bytes) => bytes,
        Err(why) => return println!("SKIPPED: programs in C are not compiled: {why}"),
    };
    let path = folder.path().join("program");
    fs::write(&path, bytes).unwrap();
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let output = Command::new(&path).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    let turns: mmscale_live::turns::Turns =
        serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert_eq!((turns.members, &turns.ops[..]), (2, &[2; 6][..]));
    assert!(turns.sleeps <= 6, "{turns:?}");
    let without = "process one { start; count; }";
    let study = Registry::default().script_of("one", without).unwrap();
    let why = study.script().unwrap().in_turns(&spec, None).unwrap_err().to_string();
    assert!(why.contains("no rounds"), "{why}");
}
