//! The rest of a text: the functions and locks that it names, and commands.

use std::collections::{BTreeMap, BTreeSet};

use mmscale_document::{LOCK_CLASSES, class_of_name};

use crate::text::Line;

/// Facts of the sentences of a text.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Prose {
    /// Words that may be functions or locks, each with the number of the first line.
    pub names: BTreeMap<String, usize>,
    /// Lock classes that are named, with the words that name them.
    pub classes: BTreeMap<&'static str, BTreeSet<String>>,
    /// The duration of the measurement, in ns, from a command such as `perf lock .. sleep 10`.
    pub window_ns: Option<u64>,
    /// The first command of stress-ng.
    pub stress_ng: Option<String>,
    /// Whether KASAN is named, which makes all hold times longer.
    pub kasan: bool,
}

impl Prose {
    /// Reads sentences.
    pub(crate) fn of(lines: &[&Line]) -> Self {
        let mut prose = Self::default();
        lines.iter().for_each(|line| prose.line(line));
        prose
    }

    /// Returns whether a function is named.
    pub fn names_function(&self, function: &str) -> bool {
        self.names.contains_key(function)
    }

    fn line(&mut self, line: &Line) {
        let separators = |c: char| c.is_whitespace() || "/(),;:'\"`*|[]{}".contains(c);
        let words: Vec<&str> = line
            .text
            .split(separators)
            .map(|word| word.trim_matches(['.', '?', '!', '=']))
            .filter(|word| !word.is_empty())
            .collect();
        for word in &words {
            self.names.entry((*word).to_owned()).or_insert(line.number);
            self.kasan |= *word == "KASAN";
            if let Some(class) = class_of_name(word).or_else(|| class_of_function(word)) {
                self.classes.entry(class).or_default().insert((*word).to_owned());
            }
        }
        for pair in words.windows(2) {
            let both = format!("{} {}", pair[0], pair[1]).to_lowercase();
            if let Some(class) = class_of_name(&both) {
                self.classes.entry(class).or_default().insert(both);
            }
        }
        for three in words.windows(3) {
            let all = three.join(" ").to_lowercase();
            if let Some(class) = class_of_name(&all) {
                self.classes.entry(class).or_default().insert(all);
            }
        }
        self.commands(line);
    }

    fn commands(&mut self, line: &Line) {
        let text = line.text.trim();
        if let Some(at) = text.find("stress-ng --") {
            let command = options(&text[at..]);
            // A sentence may name fewer options than the command.
            if self.stress_ng.as_ref().is_none_or(|known| known.len() < command.len()) {
                self.stress_ng = Some(command);
            }
        }
        let words: Vec<&str> = text.split_whitespace().collect();
        let perf = text.contains("perf lock");
        let sleep = words.iter().position(|word| *word == "sleep").filter(|_| perf);
        if let Some(seconds) = sleep.and_then(|at| words.get(at + 1)) {
            let seconds: Option<u32> = seconds.trim_end_matches('s').parse().ok();
            let ns = seconds.filter(|s| *s > 0).map(|s| u64::from(s) * 1_000_000_000);
            self.window_ns = self.window_ns.or(ns);
        }
    }
}

/// Returns the program and its options: words after it that begin with a dash, each with a value
/// that has a digit.
fn options(text: &str) -> String {
    let mut words = text.split_whitespace();
    let mut command: Vec<&str> = words.next().into_iter().collect();
    let mut option = false;
    for word in words {
        let word = word.trim_end_matches(['.', ':', ',', ';', ')', '"', '\'', '`']);
        let value = option && word.contains(|c: char| c.is_ascii_digit());
        option = word.starts_with("--");
        if !option && !value {
            break;
        }
        command.push(word);
    }
    command.join(" ")
}

fn class_of_function(word: &str) -> Option<&'static str> {
    LOCK_CLASSES.iter().find(|row| row.functions.contains(&word)).map(|row| row.class)
}

/// Returns the lines of a text that are no part of a patch. The names in a patch are of code that
/// it changes, not of what was measured.
pub(crate) fn without_patches(lines: &[Line]) -> Vec<&Line> {
    const HEADS: [&str; 13] = [
        "index ",
        "new file",
        "deleted file",
        "similarity ",
        "rename ",
        "old mode",
        "new mode",
        "--- ",
        "+++ ",
        "@@",
        "diff --git ",
        "copy ",
        "Binary ",
    ];
    let mut patch = false;
    let mut kept = Vec::new();
    for line in lines {
        let text = &line.text;
        if text.starts_with("diff --git ") {
            patch = true;
        } else if patch && !text.is_empty() {
            let head = HEADS.iter().any(|head| text.starts_with(head));
            patch = head || text.starts_with(['+', '-', ' ', '\t', '\\']) && text != "-- ";
        }
        if !patch {
            kept.push(line);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::lines;

    fn of(text: &str) -> Prose {
        let all = lines(text);
        Prose::of(&all.iter().collect::<Vec<_>>())
    }

    #[test]
    fn names_are_found_in_sentences() {
        let prose = of("CPUs wait for `zone->lock` in free_pcppages_bulk(), see Zone lock.");
        assert_eq!(prose.classes.keys().copied().collect::<Vec<_>>(), ["zone"]);
        assert!(prose.names_function("free_pcppages_bulk"));
        let prose = of("$ perf lock contention -a -b sleep 10\nwith stress-ng --vm to load\n\
                        stress-ng --vm 4 --timeout 30.\nsleep 3");
        assert_eq!(prose.window_ns, Some(10_000_000_000));
        assert_eq!(prose.stress_ng.as_deref(), Some("stress-ng --vm 4 --timeout 30"));
    }

    #[test]
    fn patches_are_left_out() {
        let all = lines(
            "before\ndiff --git a/x b/x\nindex 1..2\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n\
                         \x20 vmstat_update();\n+new\n-old\n\n-- \n2.17\n",
        );
        let kept: Vec<&str> = without_patches(&all).iter().map(|l| l.text.as_str()).collect();
        assert_eq!(kept, ["before", "-- ", "2.17"]);
    }
}
