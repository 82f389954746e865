//! A copy of the tree below `target/`, with mutants in its sources. The user's tree is only read.

use super::list::Mutant;
use super::weave::{Switch, Woven, weave};
use crate::planted::build;
use crate::planted::tree_copy::TreeCopy;
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
    copy: TreeCopy,
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
        let mut originals = BTreeMap::new();
        for file in files(sample) {
            let text =
                fs::read_to_string(root.join(file)).map_err(|why| format!("{file}: {why}"))?;
            originals.insert(file.to_owned(), text);
        }
        // `weave` writes the woven sources, and leaves an unchanged one untouched.
        let copy = TreeCopy::new(root, folder, |file| originals.contains_key(file))?;
        Ok(Self { copy, originals, target: folder.join("build"), sample })
    }
    /// Writes all mutants of the sample except for `alone` into the sources, as switches. Adds to
    /// `alone` the mutants that do not compile as switches.
    ///
    /// # Errors
    /// Fails if a file cannot be written, or on a compiler error that no mutant explains.
    pub(super) fn weave(&self, alone: &mut BTreeSet<usize>) -> Result<(), String> {
        loop {
            let mut woven = BTreeMap::new();
            for file in files(self.sample) {
                let mutants: Vec<(usize, &Mutant)> = (self.sample.iter().enumerate())
                    .filter(|(id, mutant)| mutant.file == file && !alone.contains(id))
                    .collect();
                let arch = file.starts_with("crates/arch/");
                let on = if arch { "crate::mutants::on" } else { "::mmscale_arch::mutants::on" };
                let mut one = weave(&self.originals[file], on, &mutants);
                if file == ON_IN {
                    one.text += &ON.replace("COUNT", &self.sample.len().to_string());
                }
                self.copy.write(file, one.text.as_bytes())?;
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
        for file in files(self.sample) {
            let text = &self.originals[file];
            let text = match mutant {
                Some(mutant) if mutant.file == file => mutant.applied(text),
                _ => text.clone(),
            };
            self.copy.write(file, text.as_bytes())?;
        }
        Ok(())
    }
    fn cargo(&self, command: &str) -> Command {
        let mut cargo = Command::new("cargo");
        cargo.current_dir(&self.copy.root).arg(command).envs(ENVIRONMENT);
        cargo.env("CARGO_TARGET_DIR", &self.target).env("CARGO_INCREMENTAL", "1");
        cargo
    }
}

/// Returns the files of the sample's mutants, and the one to which [`ON`] is appended.
fn files(sample: &[Mutant]) -> BTreeSet<&str> {
    sample.iter().map(|mutant| mutant.file.as_str()).chain([ON_IN]).collect()
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
