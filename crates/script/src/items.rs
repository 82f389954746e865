//! Declarations at the top of a script.

use crate::ast::{Literal, Tree, Unit};
use crate::error::{Wrong, wrong};
use crate::estimate::is_constant;

/// A parameter of a script.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScriptParam {
    /// The name.
    pub name: String,
    /// The unit of its default in the script. Values are in bytes, ns, or without a unit.
    pub unit: Unit,
    /// The default.
    pub default: i64,
    /// The smallest and the largest value.
    pub range: [i64; 2],
    /// A description, in one line.
    pub help: String,
}

/// An arm of a script: policies by the names of their mechanisms.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScriptArm {
    /// The name of the arm.
    pub name: String,
    /// Mechanisms with their policies.
    pub choices: Vec<(String, String)>,
}

/// The lengths of the window in which operations count, in ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScriptWindow {
    /// Its length on simulated machines.
    pub length_ns: u64,
    /// The time from the start of the programs to the window.
    pub after_ns: u64,
    /// Its length on the live kernel.
    pub live_ns: u64,
}

/// The length of a window that a script does not choose.
const LENGTH_NS: u64 = 20_000_000;
/// Its length on the live kernel, where a tick is 1 to 10 ms long.
const LIVE_NS: u64 = 1_000_000_000;
/// The longest window.
const MAX_WINDOW_NS: i64 = 600_000_000_000;
/// The largest value of a parameter without a range: pages of 1 TiB, or 2^28 of other things.
const MAX_BYTES: i64 = 1 << 40;
const MAX_NUMBER: i64 = 1 << 28;
/// The largest value of a time without a range: a minute.
const MAX_NS: i64 = 60_000_000_000;

pub(crate) fn params(tree: &Tree) -> Result<Vec<ScriptParam>, Wrong> {
    let param = |item: &crate::ast::ParamItem| {
        let Literal { value: default, unit, at } = item.default;
        let kind = |unit| match unit {
            Unit::Pages => Unit::Bytes,
            other => other,
        };
        let range = match item.range {
            Some(ends) => {
                let of_kind = |end: &&Literal| end.value != 0 && kind(end.unit) != kind(unit);
                if let Some(end) = ends.iter().find(of_kind) {
                    return wrong(end.at, "the range has another kind of unit than the default");
                }
                ends.map(|end| end.value)
            }
            None => match kind(unit) {
                Unit::One => [0, MAX_NUMBER],
                Unit::Time => [0, MAX_NS],
                Unit::Bytes | Unit::Pages => [0, MAX_BYTES],
            },
        };
        if !(range[0]..=range[1]).contains(&default) {
            return wrong(at, "the default is outside its range");
        }
        let (name, help) = (item.name.text.clone(), item.help.clone());
        Ok(ScriptParam { name, unit, default, range, help })
    };
    tree.params.iter().map(param).collect()
}

pub(crate) fn arms(tree: &Tree) -> Result<Vec<ScriptArm>, Wrong> {
    let mut arms: Vec<ScriptArm> = Vec::new();
    for item in &tree.arms {
        let name = item.name.text.clone();
        if name == "stock" || arms.iter().any(|other| other.name == name) {
            return wrong(item.name.at, format!("a second arm `{name}`; stock is Linux"));
        }
        let choices = item.choices.iter();
        let choices = choices.map(|(key, policy)| (key.text.clone(), policy.text.clone()));
        arms.push(ScriptArm { name, choices: choices.collect() });
    }
    Ok(arms)
}

/// Checks the machine and the window.
pub(crate) fn check(tree: &Tree) -> Result<(), Wrong> {
    if let Some(cpus) = &tree.cpus
        && (cpus.unit != Unit::One || !(1..=4096).contains(&cpus.value))
    {
        return wrong(cpus.at, "the number of CPUs is 1 to 4096");
    }
    // The machine has it before any program runs.
    if let Some(swap) = &tree.swap
        && !is_constant(tree, &swap.size)
    {
        return wrong(
            swap.at,
            "the size of the swap area may have numbers, parameters and `cpus` only",
        );
    }
    for (nth, item) in tree.memory_groups.iter().enumerate() {
        let at = item.name.at;
        if tree.memory_groups[..nth].iter().any(|other| other.name.text == item.name.text) {
            return wrong(at, format!("a second memory group `{}`", item.name.text));
        }
        let mut parts = [&item.number, &item.depth, &item.limit].into_iter().flatten();
        if let Some(part) = parts.find(|part| !is_constant(tree, part)) {
            let what = "the number, depth and limit of memory groups may have numbers, \
                        parameters and `cpus` only";
            return wrong(part.at, what);
        }
    }
    let Some(window) = &tree.window else { return Ok(()) };
    for length in [Some(window.length), window.after, window.live].into_iter().flatten() {
        if length.unit != Unit::Time || length.value > MAX_WINDOW_NS {
            return wrong(length.at, "a time of at most 600s is needed here, such as 20ms");
        }
    }
    for length in [Some(window.length), window.live].into_iter().flatten() {
        if length.value < 100_000 {
            return wrong(length.at, "a window is 0.1ms long or longer");
        }
    }
    Ok(())
}

pub(crate) fn window(tree: &Tree) -> ScriptWindow {
    let of = |literal: Option<Literal>, default: u64| {
        literal.and_then(|literal| u64::try_from(literal.value).ok()).unwrap_or(default)
    };
    let item = tree.window.as_ref();
    let length_ns = of(item.map(|item| item.length), LENGTH_NS);
    ScriptWindow {
        length_ns,
        after_ns: of(item.and_then(|item| item.after), length_ns / 4),
        live_ns: of(item.and_then(|item| item.live), LIVE_NS),
    }
}

/// Returns a text without comments, with one space in place of each blank outside of quotes.
pub(crate) fn content(text: &str) -> String {
    let (mut content, mut rest, mut blank) = (String::new(), text, false);
    while let Some(letter) = rest.chars().next() {
        let skipped = if letter == '"' {
            // To the closing quote.
            rest[1..].find(['"', '\n']).map_or(rest.len(), |end| end + 2)
        } else if rest.starts_with("//") {
            let end = rest.find('\n').unwrap_or(rest.len());
            (rest, blank) = (&rest[end..], true);
            continue;
        } else if rest.starts_with("/*") {
            let end = rest.find("*/").map_or(rest.len(), |end| end + 2);
            (rest, blank) = (&rest[end..], true);
            continue;
        } else if letter.is_whitespace() {
            (rest, blank) = (&rest[letter.len_utf8()..], true);
            continue;
        } else {
            letter.len_utf8()
        };
        if blank && !content.is_empty() {
            content.push(' ');
        }
        blank = false;
        content.push_str(&rest[..skipped]);
        rest = &rest[skipped..];
    }
    content
}

#[cfg(test)]
mod tests {
    use super::content;

    #[test]
    fn the_content_of_a_text_has_no_comments_and_single_spaces() {
        let text = "a // one\n  b /* two\n */ c \"d  // e\"  f";
        assert_eq!(content(text), "a b c \"d  // e\" f");
        assert_eq!(content("\"open"), "\"open");
        assert_eq!(content("/* open"), "");
    }
}
