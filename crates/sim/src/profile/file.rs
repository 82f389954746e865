//! The form of a profile file, and reading and writing it.

use super::ProfileError;
use mmscale_arch::Op;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A number of a profile with what stands behind it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Number {
    /// The value, in the unit that the key ends with.
    pub value: f64,
    /// The smallest and the largest value that the source, or its scatter, allows.
    pub range: [f64; 2],
    /// Where the number comes from. Assumptions say that they are.
    pub source: String,
}

/// Numbers by key.
pub type Section = BTreeMap<String, Number>;

/// A profile file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileFile {
    /// What machine this is, in words.
    pub description: String,
    /// CPUs and their groups.
    pub topology: Section,
    /// Memory of a node.
    pub memory: Section,
    /// The timer interrupt.
    pub timer: Section,
    /// Cache lines, locks, interrupts, tasks.
    pub costs: Section,
    /// The swap device.
    pub swap: Section,
    /// Disturbance from outside, where it is known or fitted; empty where it is not.
    #[serde(default, skip_serializing_if = "Section::is_empty")]
    pub noise: Section,
    /// The straight-line operations of the memory manager, see [`op_key`].
    pub ops: Section,
}

/// The key of an operation's cost.
pub fn op_key(op: Op) -> String {
    format!("{}_ns", op.name())
}

/// Reads the text of a profile file; `file` is for messages. Keys are checked by
/// [`super::resolve`].
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

/// The text of a profile file; [`parse`] gives `file` back.
pub fn write(file: &ProfileFile) -> String {
    let mut text = format!("description = {}\n", quoted(&file.description));
    let sections = [
        ("topology", &file.topology),
        ("memory", &file.memory),
        ("timer", &file.timer),
        ("costs", &file.costs),
        ("swap", &file.swap),
        ("noise", &file.noise),
        ("ops", &file.ops),
    ];
    for (name, section) in sections {
        if name == "noise" && section.is_empty() {
            continue;
        }
        let _ = write!(text, "\n[{name}]\n");
        for (key, number) in section {
            let [low, high] = number.range;
            let _ = writeln!(
                text,
                "{key} = {{ value = {:?}, range = [{low:?}, {high:?}], source = {} }}",
                number.value,
                quoted(&number.source)
            );
        }
    }
    text
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}
