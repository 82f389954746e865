//! A copy of the tree below `target/`, with mutants in its sources. The user's tree is only read.

use super::list::Mutant;
use super::weave::{Switch, Woven, weave};
use crate::planted::build;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The function that returns whether a mutant is enabled, compiled into `arch`.
const ON: &str = include_str!("on.rs.in");
/// The source to which [`ON`] is appended.
const ON_IN: &str = "crates/arch/src/lib.rs";

/// The environment of cargo. Debug information takes a third of the time of a build.
const ENVIRONMENT: [(&str, &str); 2] =
    [("CARGO_PROFILE_DEV_DEBUG", "false"), ("CARGO_PROFILE_TEST_DEBUG", "false")];

/// The copy of the tree.
pub(super) struct Scratch<'a> {
    pub(super) root: PathBuf,
    /// The sources of the sample, read once: the user may edit them while the tests run.
    originals: BTreeMap<String, String>,
    target: PathBuf,
    sample: &'a [Mutant],
}

/// A place of a compiler error: the file, the bytes in it, and whether it is the primary place.
type Objection = (String, Range<usize>, bool);

impl<'a> Scratch<'a> {
    /// Copies the files that git tracks or would add.
    ///
    /// # Errors
    /// Fails if a file cannot be read or written.
    pub(super) fn new(root: &Path, folder: &Path, sample: &'a [Mutant]) -> Result<Self, String> {
        let (tree, target) = (folder.join("tree"), folder.join("build"));
        let mut scratch = Self { root: tree, originals: BTreeMap::new(), target, sample };
        for file in scratch.files() {
            let text =
                fs::read_to_string(root.join(file)).map_err(|why| format!("{file}: {why}"))?;
            scratch.originals.insert(file.to_owned(), text);
        }
        let mut git = Command::new("git");
        git.current_dir(root).args(["ls-files", "-co", "--exclude-standard", "-z"]);
        let listed = git.output().map_err(|why| format!("starting git: {why}"))?.stdout;
        let listed = String::from_utf8_lossy(&listed).into_owned();
        let listed: BTreeSet<&str> = listed.split_terminator('\0').collect();
        let had = folder.join("files");
        for old in fs::read_to_string(&had).unwrap_or_default().lines() {
            if !listed.contains(old) {
                let _ = fs::remove_file(scratch.root.join(old));
            }
        }
        for file in listed.iter().filter(|file| root.join(file).exists()) {
            // `weave` writes the woven sources, and leaves an unchanged one untouched.
            if !scratch.originals.contains_key(*file) {
                scratch.copy(root, file)?;
            }
        }
        fs::write(&had, listed.into_iter().collect::<Vec<_>>().join("\n"))
            .map_err(|why| format!("{}: {why}", had.display()))?;
        Ok(scratch)
    }
    /// Copies a file, or a link to a folder, of which `git` lists no more than the link.
    fn copy(&self, root: &Path, file: &str) -> Result<(), String> {
        let told = |why: std::io::Error| format!("{file}: {why}");
        let (from, to) = (root.join(file), self.root.join(file));
        if from.is_file() {
            return self.write(file, &fs::read(from).map_err(told)?);
        }
        if to.exists() {
            return Ok(());
        }
        let parent = to.parent().map_or(Ok(()), fs::create_dir_all);
        let link = parent.and_then(|()| fs::read_link(from));
        link.and_then(|link| std::os::unix::fs::symlink(link, to)).map_err(told)
    }
    /// Writes a file of the copy, unless it has this content.
    fn write(&self, file: &str, bytes: &[u8]) -> Result<(), String> {
        let path = self.root.join(file);
        if fs::read(&path).is_ok_and(|old| old == bytes) {
            return Ok(());
        }
        let written = path.parent().map_or(Ok(()), fs::create_dir_all);
        written.and_then(|()| fs::write(&path, bytes)).map_err(|why| format!("{file}: {why}"))
    }
    /// Returns the files of the sample's mutants, and the one to which [`ON`] is appended.
    fn files(&self) -> BTreeSet<&'a str> {
        self.sample.iter().map(|mutant| mutant.file.as_str()).chain([ON_IN]).collect()
    }
    /// Writes all mutants of the sample except for `alone` into the sources, as switches. Adds to
    /// `alone` the mutants that do not compile as switches.
    ///
    /// # Errors
    /// Fails if a file cannot be written, or on a compiler error that no mutant explains.
    pub(super) fn weave(&self, alone: &mut BTreeSet<usize>) -> Result<(), String> {
        loop {
            let mut woven = BTreeMap::new();
            for file in self.files() {
                let mutants: Vec<(usize, &Mutant)> = (self.sample.iter().enumerate())
                    .filter(|(id, mutant)| mutant.file == file && !alone.contains(id))
                    .collect();
                let arch = file.starts_with("crates/arch/");
                let on = if arch { "crate::mutants::on" } else { "::mmscale_arch::mutants::on" };
                let mut one = weave(&self.originals[file], on, &mutants);
                if file == ON_IN {
                    one.text += &ON.replace("COUNT", &self.sample.len().to_string());
                }
                self.write(file, one.text.as_bytes())?;
                alone.extend(one.alone.iter());
                woven.insert(file, one);
            }
            let dropped = self.refused(&woven)?;
            if dropped.is_empty() {
                return Ok(());
            }
            eprintln!("mutants: {} cannot be switched", dropped.len());
            alone.extend(dropped);
        }
    }
    /// Returns the mutants that the compiler refuses.
    fn refused(&self, woven: &BTreeMap<&str, Woven>) -> Result<BTreeSet<usize>, String> {
        let mut cargo = self.cargo("check");
        cargo.args(["--message-format=json", "-p", "mmscale-mm"]).stderr(Stdio::null());
        let output = cargo.output().map_err(|why| format!("starting cargo: {why}"))?;
        let (mut refused, mut others) = (BTreeSet::new(), String::new());
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let line: Value = serde_json::from_str(line).unwrap_or_default();
            let message = &line["message"];
            if message["level"] != "error" || message["spans"].as_array().is_none_or(Vec::is_empty)
            {
                continue;
            }
            let blamed = blamed(woven, &objections(message));
            if blamed.is_empty() {
                others += message["rendered"].as_str().unwrap_or_default();
            }
            refused.extend(blamed);
        }
        // If a mutant has an error, errors at other places follow from it.
        match (output.status.success(), refused.is_empty()) {
            (false, true) => Err(format!("the copy of the tree does not build\n{others}")),
            _ => Ok(refused),
        }
    }
    /// Builds the tests of packages.
    ///
    /// # Errors
    /// Fails if they do not build.
    pub(super) fn build(&self, packages: &[&str]) -> Result<Vec<build::Suite>, String> {
        let mut cargo = self.cargo("test");
        // Excludes examples.
        cargo.arg("--tests");
        build::tests(cargo.stderr(Stdio::null()), packages)
    }
    /// Writes the sources without switches, with at most one mutant.
    ///
    /// # Errors
    /// Fails if a file cannot be written.
    pub(super) fn only(&self, mutant: Option<&Mutant>) -> Result<(), String> {
        for file in self.files() {
            let text = &self.originals[file];
            let text = match mutant {
                Some(mutant) if mutant.file == file => mutant.applied(text),
                _ => text.clone(),
            };
            self.write(file, text.as_bytes())?;
        }
        Ok(())
    }
    fn cargo(&self, command: &str) -> Command {
        let mut cargo = Command::new("cargo");
        cargo.current_dir(&self.root).arg(command).envs(ENVIRONMENT);
        cargo.env("CARGO_TARGET_DIR", &self.target).env("CARGO_INCREMENTAL", "1");
        cargo
    }
}

/// Returns the places of a compiler message.
fn objections(message: &Value) -> Vec<Objection> {
    let own = message["spans"].as_array().into_iter().flatten();
    let children = message["children"].as_array().into_iter().flatten();
    let others = children.flat_map(|child| child["spans"].as_array().into_iter().flatten());
    let of = |span: &Value| {
        let byte = |key: &str| span[key].as_u64().and_then(|byte| usize::try_from(byte).ok());
        let file = span["file_name"].as_str()?.to_owned();
        Some((file, byte("byte_start")?..byte("byte_end")?, span["is_primary"] == true))
    };
    let primary = own.filter_map(of);
    let others = others.filter_map(of).map(|(file, range, _)| (file, range, false));
    primary.chain(others).collect()
}

/// Returns the mutants whose switches the compiler points at. If there are none, returns the
/// innermost one around the error's place.
fn blamed(woven: &BTreeMap<&str, Woven>, objections: &[Objection]) -> BTreeSet<usize> {
    let of = |file: &str| woven.get(file).map_or(&[][..], |woven| &woven.switches);
    let meets = |switch: &&Switch, range: &Range<usize>| {
        switch.inserted.start < range.end.max(range.start + 1) && range.start < switch.inserted.end
    };
    for primary in [true, false] {
        let found: BTreeSet<usize> = (objections.iter())
            .filter(|(_, _, own)| *own == primary)
            .flat_map(|(file, range, _)| {
                // A range that covers a whole switch does not identify it.
                of(file).iter().filter(move |switch| meets(switch, range)).filter(move |switch| {
                    range.start >= switch.whole.start && range.end <= switch.whole.end
                })
            })
            .map(|switch| switch.id)
            .collect();
        if !found.is_empty() {
            return found;
        }
    }
    let around = objections.iter().filter(|(_, _, own)| *own).flat_map(|(file, range, _)| {
        of(file).iter().filter(move |switch| {
            switch.whole.contains(&range.start) && range.end <= switch.whole.end
        })
    });
    around.min_by_key(|switch| switch.whole.len()).map(|switch| switch.id).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_the_files_behind_links_to_folders() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir_all(from.path().join("machines")).unwrap();
        fs::create_dir_all(from.path().join("crates")).unwrap();
        fs::write(from.path().join("machines/one.toml"), "cpus = 1").unwrap();
        std::os::unix::fs::symlink("../machines", from.path().join("crates/machines")).unwrap();
        let root = to.path().to_owned();
        let (originals, target) = (BTreeMap::new(), root.join("build"));
        let scratch = Scratch { root, originals, target, sample: &[] };
        // The second time everything is there.
        for _ in 0..2 {
            for file in ["machines/one.toml", "crates/machines"] {
                scratch.copy(from.path(), file).unwrap();
            }
        }
        let copied = fs::read_to_string(to.path().join("crates/machines/one.toml")).unwrap();
        assert_eq!(copied, "cpus = 1");
    }
}
