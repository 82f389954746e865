//! The header is that of the sources, and the examples in C compile and run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_header_is_that_of_the_sources() {
    let config = cbindgen::Config::from_file(here().join("cbindgen.toml")).expect("a valid file");
    let bindings = cbindgen::generate_with_config(here(), config).expect("the sources are read");
    let mut made = Vec::new();
    bindings.write(&mut made);
    let made = String::from_utf8(made).expect("the header is text");
    let kept = here().join("include/mmscale_frames.h");
    if std::env::var_os("MMSCALE_UPDATE").is_some() {
        fs::write(&kept, &made).expect("the header can be written");
    }
    let kept = fs::read_to_string(&kept).unwrap_or_default();
    assert!(kept == made, "the header is not up to date: run this test with MMSCALE_UPDATE=1");
}

/// The static library, which is built with this test: the newest of those next to it.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("this program has a path");
    let folder = fs::read_dir(test.parent().expect("it is in a folder")).expect("a folder");
    let paths = folder.flatten().map(|entry| entry.path()).filter(|path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("libmmscale_frames_c") && name.ends_with(".a")
    });
    let built = |path: &PathBuf| path.metadata().and_then(|file| file.modified()).ok();
    paths.max_by_key(built).expect("the library is built")
}

/// Compiles an example, runs it, and returns what it prints.
fn run_example(name: &str) -> String {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = folder.path().join(name);
    let compiled = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pthread", "-I"])
        .arg(here().join("include"))
        .arg(here().join("examples").join(name).with_extension("c"))
        .arg(library())
        .args(["-ldl", "-lm", "-o"])
        .arg(&program)
        .output()
        .expect("a C compiler: the linker that Rust uses is one");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let ran = Command::new(&program).output().expect("the program starts");
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{}: {said}{errors}", ran.status);
    said
}

#[test]
fn the_example_with_threads_runs() {
    let wanted = "95945 frames are free\n\
        a frame of the range again: the frame is in use, or in the cache of a CPU\n\
        the first half again: the frame is free already, or was never allocated\n\
        95945 frames are free\n";
    assert_eq!(run_example("threads"), wanted);
}

/// `cargo xtask no-std` runs it without std and without a C library.
#[test]
fn the_example_of_a_kernel_runs_in_a_static_buffer() {
    assert_eq!(run_example("kernel"), "all frames are free\n");
}
