//! Files that are no kernel images, and computers without QEMU: each call ends with one error that
//! says what to do. Nothing is booted.

use crate::{mmscale, stderr};
use std::fs;
use std::path::Path;

/// A bzImage whose kernel would have to unpack itself.
fn bzimage() -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    bytes[0x1f1] = 1;
    bytes[0x1fe..0x200].copy_from_slice(&[0x55, 0xaa]);
    bytes[0x202..0x206].copy_from_slice(b"HdrS");
    bytes[0x206..0x208].copy_from_slice(&0x020f_u16.to_le_bytes());
    bytes[0x248..0x24c].copy_from_slice(&0_u32.to_le_bytes());
    bytes[0x24c..0x250].copy_from_slice(&1024_u32.to_le_bytes());
    bytes
}

/// A package with one file that is no kernel.
fn package() -> Vec<u8> {
    let mut tar = vec![0_u8; 512];
    tar[..10].copy_from_slice(b"./usr/none");
    let head = |name: &str, size: usize| {
        format!("{name:<16}0           0     0     100644  {size:<10}`\n")
    };
    [b"!<arch>\n", head("data.tar", 512).as_bytes(), &tar].concat()
}

/// Runs each command on an image. Returns their one error.
fn refused(image: &Path, path: Option<&str>) -> String {
    let image = image.to_str().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let recording = folder.path().join("x.lift");
    let to = recording.to_str().unwrap();
    let calls: [&[&str]; 3] = [
        &["kernel", "boot", "--kernel", image, "--", "live", "doctor"],
        &["kernel", "instructions", "--kernel", image],
        &["lift", "record", "--kernel", image, "mmap1", "-o", to],
    ];
    let said = calls.map(|args| {
        let mut command = mmscale();
        command.args(args);
        if let Some(path) = path {
            command.env("PATH", path);
        }
        let output = command.output().unwrap();
        let said = stderr(&output);
        assert!(!output.status.success() && output.stdout.is_empty(), "{args:?}: {said}");
        let errors: Vec<&str> = said.lines().filter(|line| line.starts_with("error: ")).collect();
        assert_eq!(errors.len(), 1, "{said}");
        assert!(said.ends_with(&format!("{}\n", errors[0])), "{said}");
        errors[0].to_owned()
    });
    assert!(said.iter().all(|error| *error == said[0]), "{said:?}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "a recording is left");
    said[0].clone()
}

#[test]
fn files_that_are_no_images_are_named_with_what_would_be_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut arm = vec![0; 4096];
    arm[0x38..0x3c].copy_from_slice(b"ARM\x64");
    let files: [(&str, Vec<u8>, &str); 5] = [
        ("empty", vec![], "an empty file"),
        ("text", b"hello\n".to_vec(), "neither a bzImage, nor an ELF file, nor a package"),
        ("cut", bzimage()[..1000].to_vec(), "a bzImage that is cut off"),
        ("arm", arm, "an image for arm64, and only x86-64 is emulated"),
        ("none.deb", package(), "a package that has no kernel"),
    ];
    for (name, bytes, why) in files {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        let error = refused(&path, None);
        assert!(error.contains(why) && error.contains(name), "{error}");
        assert!(error.contains("give a bzImage (/boot/vmlinuz-*"), "{error}");
    }
    for (path, why) in [(folder.path(), "it is a directory"), (Path::new("/no/such"), "No such")] {
        let error = refused(path, None);
        assert!(error.contains(why) && error.contains("debian:VERSION"), "{error}");
    }
}

#[test]
fn a_computer_without_qemu_is_told_how_to_get_it() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("bzImage");
    fs::write(&image, bzimage()).unwrap();
    let error = refused(&image, Some("/no/such/folder"));
    assert!(error.contains("qemu-system-x86_64 is not installed"), "{error}");
    assert!(error.contains("apt-get install qemu-system-x86"), "{error}");
}
