//! The files of a machine: this program as its first process, the libraries that this process has
//! loaded, and the job.

use super::archive::Archive;
use super::init::{JOB, LIBRARIES, PROGRAM};
use super::{Job, JobFile};
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Endianness, elf};
use std::fs;
use std::io;
use std::path::Path;

/// Returns the archive of a machine that does a job.
///
/// # Errors
/// This program's files cannot be read.
pub(crate) fn archive_of(job: &Job, files: &[JobFile]) -> io::Result<Vec<u8>> {
    let mut archive = Archive::default();
    // The kernel opens it for the first process.
    archive.device("dev/console", (5, 1));
    archive.device("dev/null", (1, 3));
    // tidy: opened: this program
    let program = fs::read("/proc/self/exe")?;
    archive.file(inside(PROGRAM), &loaded_part(&program).unwrap_or(program.clone()));
    if let Some(loader) = loader_of(&program) {
        // tidy: opened: the loader that this program names
        archive.file(inside(&loader), &fs::read(&loader)?);
    }
    for library in libraries()? {
        let name = Path::new(&library).file_name().unwrap_or_default().to_string_lossy();
        // tidy: opened: a library of this process
        archive.file(&format!("{}/{name}", inside(LIBRARIES)), &fs::read(&library)?);
    }
    archive.folder(inside(&job.folder));
    for file in files {
        archive.file(inside(&file.path), &file.bytes);
    }
    archive.file(inside(JOB), &serde_json::to_vec(job).expect("plain data"));
    Ok(archive.finish())
}

/// A path without its first slash.
fn inside(path: &str) -> &str {
    path.trim_start_matches('/')
}

/// Returns a program without what is not loaded: debugging information and symbols are behind it in
/// the file, and would take memory of the machine. `None` if it is no ELF file.
fn loaded_part(program: &[u8]) -> Option<Vec<u8>> {
    let file = ElfFile64::<Endianness>::parse(program).ok()?;
    let endian = file.endian();
    let ends = file.elf_program_headers().iter().map(|header| {
        let (from, size) = header.file_range(endian);
        from + size
    });
    let mut part = program.get(..usize::try_from(ends.max()?).ok()?)?.to_vec();
    // The table of sections is behind it: its place, and the numbers of entries and of their names.
    let header = size_of::<elf::FileHeader64<Endianness>>();
    let (place, numbers) = (0x28..0x30, 0x3c..0x40);
    debug_assert!(numbers.end == header, "the numbers end the header");
    part[place].fill(0);
    part[numbers].fill(0);
    Some(part)
}

/// Returns the path of the loader that a program names; a static program names none.
fn loader_of(program: &[u8]) -> Option<String> {
    let file = ElfFile64::<Endianness>::parse(program).ok()?;
    let endian = file.endian();
    let path = file
        .elf_program_headers()
        .iter()
        .find_map(|header| header.interpreter(endian, program).ok().flatten())?;
    String::from_utf8(path.to_vec()).ok()
}

/// Returns the paths of the libraries that this process has loaded.
fn libraries() -> io::Result<Vec<String>> {
    // tidy: opened: a file of /proc
    let maps = fs::read_to_string("/proc/self/maps")?;
    let own = fs::read_link("/proc/self/exe")?;
    let mut paths: Vec<String> = maps
        .lines()
        // Address, rights, offset, device, number, path.
        .filter(|line| line.split_whitespace().nth(1).is_some_and(|rights| rights.contains('x')))
        .filter_map(|line| line.find('/').map(|at| line[at..].to_owned()))
        .filter(|path| Path::new(path) != own && Path::new(path).is_file())
        .collect();
    paths.sort_unstable();
    paths.dedup();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_without_its_symbols_still_runs() {
        let own = fs::read("/proc/self/exe").unwrap();
        let part = loaded_part(&own).unwrap();
        assert!(part.len() < own.len());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("part");
        fs::write(&path, &part).unwrap();
        let rights = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&path, rights).unwrap();
        let listed = std::process::Command::new(&path).arg("--list").output().unwrap();
        assert!(String::from_utf8_lossy(&listed.stdout).contains("still_runs"));
        assert_eq!(loaded_part(b"#!/bin/sh"), None);
    }

    #[test]
    fn the_libraries_of_a_process_are_found() {
        let own = fs::read("/proc/self/exe").unwrap();
        let has_loader = loader_of(&own).is_some();
        let has_library = libraries().unwrap().iter().any(|path| path.contains("libc"));
        assert_eq!(has_loader, has_library);
    }

    #[test]
    fn an_archive_has_program_job_and_files() {
        let job = Job { args: vec!["x".to_owned()], folder: "/a/b".to_owned(), ..Job::default() };
        let file = JobFile { path: "/a/b/c.mms".to_owned(), bytes: b"text".to_vec() };
        let archive = archive_of(&job, &[file]).unwrap();
        let has = |text: &str| archive.windows(text.len()).any(|part| part == text.as_bytes());
        for path in ["\0init\0", "\0mmscale-job\0", "\0a/b/c.mms\0"] {
            assert!(has(path.trim_start_matches('\0')), "{path}");
        }
    }
}
