//! The format of a profile file, and reading and writing it.

use super::{Basis, ProfileError};
use mmscale_arch::Op;
use mmscale_files::{Limit, Pipe, ReadError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// A number of a profile with its range and its source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Number {
    /// The value, in the unit that the key ends with.
    pub value: f64,
    /// The smallest and the largest value that the source, or its scatter, allows.
    pub range: [f64; 2],
    /// Where the number comes from. An assumption is marked as one.
    pub source: String,
}

impl Number {
    /// Returns what is wrong with the number by itself: its value within its range, or its source.
    pub fn problem(&self) -> Option<String> {
        let (value, [from, to]) = (self.value, self.range);
        if !(from <= value && value <= to) {
            return Some(format!(
                "= {value} is outside its range [{from}, {to}]; correct the value or the range"
            ));
        }
        Basis::of(&self.source).err()
    }
}

/// Numbers by key.
pub type Section = BTreeMap<String, Number>;

/// A profile file. Without a base it has all keys; with a base, those that differ.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileFile {
    /// The profile that has the other numbers: the name of a built-in profile, or a path relative
    /// to the folder of this file.
    pub base: Option<String>,
    /// The machine, in words.
    pub description: String,
    /// CPUs and their groups.
    #[serde(default)]
    pub topology: Section,
    /// Memory of a node.
    #[serde(default)]
    pub memory: Section,
    /// The timer interrupt.
    #[serde(default)]
    pub timer: Section,
    /// Cache lines, locks, interrupts, tasks.
    #[serde(default)]
    pub costs: Section,
    /// The swap device.
    #[serde(default)]
    pub swap: Section,
    /// Disturbance from outside, where it is known or fitted; otherwise empty.
    #[serde(default)]
    pub noise: Section,
    /// The clock at which the operations are stated, and those of the machine; empty for a machine
    /// of one speed, that of its costs.
    #[serde(default)]
    pub clock: Section,
    /// The straight-line operations of the memory manager, see [`op_key`].
    #[serde(default)]
    pub ops: Section,
    /// Instructions of operations whose time the profile does not have, see [`instructions_key`]:
    /// those of a version of Linux, unless a file has its own.
    #[serde(default)]
    pub instructions: Section,
}

impl ProfileFile {
    /// Returns all sections with their names, in the order of writing.
    pub fn sections(&self) -> impl Iterator<Item = (&'static str, &Section)> {
        let Self { base: _, description: _, topology, memory, timer, costs, swap, noise, .. } =
            self;
        let Self { clock, ops, instructions, .. } = self;
        let all = [topology, memory, timer, costs, swap, noise, clock, ops, instructions];
        NAMES.into_iter().zip(all)
    }

    /// Returns [`Self::sections`] as mutable references.
    pub fn sections_mut(&mut self) -> impl Iterator<Item = (&'static str, &mut Section)> {
        let Self { base: _, description: _, topology, memory, timer, costs, swap, noise, .. } =
            self;
        let Self { clock, ops, instructions, .. } = self;
        let all = [topology, memory, timer, costs, swap, noise, clock, ops, instructions];
        NAMES.into_iter().zip(all)
    }
}

/// The names of the sections, in the order of [`ProfileFile::sections`].
const NAMES: [&str; 9] =
    ["topology", "memory", "timer", "costs", "swap", "noise", "clock", "ops", "instructions"];

/// Returns the key of an operation's cost.
pub fn op_key(op: Op) -> String {
    format!("{}_ns", op.name())
}

/// Returns the key of the number of an operation's instructions.
pub fn instructions_key(op: Op) -> String {
    format!("{}_instructions", op.name())
}

/// Some twenty times the size of a file with all keys and sources.
const LIMIT: Limit = Limit::new("a profile", 1 << 20);

/// Returns the text of a profile file.
pub(super) fn read(path: &Path) -> Result<String, ReadError> {
    mmscale_files::text(path, LIMIT, Pipe::Refuse)
}

/// Parses the text of a profile file; `file` is the name in messages. [`super::resolve`] checks the
/// keys.
pub fn parse(file: &str, text: &str) -> Result<ProfileFile, ProfileError> {
    toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start.min(text.len()));
        ProfileError::Syntax {
            file: file.to_owned(),
            line: text.as_bytes()[..at].iter().filter(|&&byte| byte == b'\n').count() + 1,
            reason: error.message().to_owned(),
        }
    })
}

/// Writes the text of a profile file; [`parse`] reads it.
pub fn write(file: &ProfileFile) -> String {
    write_with(file, |_, _| None)
}

/// Writes `file` as [`write`] does, with the comment that `remark` returns for a number, by section
/// and key.
pub fn write_with(file: &ProfileFile, remark: impl Fn(&str, &str) -> Option<String>) -> String {
    let mut text = String::new();
    if let Some(base) = &file.base {
        let _ = writeln!(text, "base = {}", quoted(base));
    }
    let _ = writeln!(text, "description = {}", quoted(&file.description));
    for (name, section) in file.sections().filter(|(_, section)| !section.is_empty()) {
        let _ = write!(text, "\n[{name}]\n");
        for (key, Number { value, range: [low, high], source }) in section {
            let source = quoted(source);
            let _ = write!(
                text,
                "{key} = {{ value = {value}, range = [{low}, {high}], source = {source} }}"
            );
            let remark = remark(name, key).map_or(String::new(), |remark| format!(" # {remark}"));
            let _ = writeln!(text, "{remark}");
        }
    }
    text
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}
