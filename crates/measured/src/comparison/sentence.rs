//! Lists and sentences with changes in percent: `page_fault1: +34.3 %`, `a 12% improvement in
//! fork1`.

use super::{Comparison, Comparisons, doubt};
use crate::role::{Role, role};
use crate::text::Line;

/// Words that say in which direction a figure changes.
const MORE: [&str; 6] = ["increase", "increased", "increases", "rises", "rose", "higher"];
const LESS: [&str; 14] = [
    "decrease",
    "decreased",
    "decreases",
    "reduction",
    "reduced",
    "reduces",
    "reduce",
    "drop",
    "dropped",
    "drops",
    "falls",
    "fell",
    "lower",
    "less",
];
/// Words that say whether a change is good, which is a direction only for rates.
const BETTER: [&str; 7] =
    ["improvement", "improved", "improves", "improve", "gain", "gains", "speedup"];
const WORSE: [&str; 6] =
    ["regression", "regressed", "regresses", "degradation", "degraded", "slowdown"];
/// Parts of names of metrics of which less is better.
const TIMES: [&str; 19] = [
    "latency",
    "time",
    "elapsed",
    "duration",
    "seconds",
    "runtime",
    "usr",
    "sys",
    "user",
    "stall",
    "overhead",
    "misses",
    "miss",
    "memory",
    "usage",
    "contention",
    "wait",
    "cycles",
    "delay",
];
/// Words after which a percentage is a limit or a guess.
const VAGUE: [&str; 15] = [
    "up",
    "to",
    "about",
    "around",
    "roughly",
    "approximately",
    "approx",
    "nearly",
    "almost",
    "over",
    "least",
    "most",
    "than",
    "between",
    "~",
];
/// Words that end the name of a metric.
const ENDS: [&str; 22] = [
    "on", "with", "when", "at", "and", "for", "due", "after", "from", "compared", "by", "while",
    "but", "which", "because", "over", "under", "using", "since", "to", "in", "as",
];
/// The most words between a change and its verb, and between a limit and its verb.
const NEAR: usize = 2;
const FAR: usize = 5;
/// The most words of a name of a list, and of a name in a sentence.
const NAME: usize = 5;

/// Words that make a claim a wish or its opposite.
const UNSURE: [&str; 19] = [
    "not", "no", "never", "cannot", "would", "could", "should", "might", "may", "if", "expect",
    "expected", "hope", "target", "goal", "unless", "why", "instead", "like",
];

/// Enters the changes of lists and sentences.
pub(super) fn changes(lines: &[&Line], all: &mut Comparisons) {
    // A sentence may go on in the next line.
    let mut prose: Vec<(String, usize)> = vec![];
    for (nth, line) in lines.iter().enumerate() {
        let apart = nth > 0 && {
            let last = lines[nth - 1];
            last.number + 1 != line.number || last.is_blank() || last.quote != line.quote
        };
        let percents = percents(&words(&line.text));
        let label = label(&line.text, &percents);
        if apart || label.is_some() || is_item(&line.text) {
            sentences(&prose, all);
            prose.clear();
        }
        match (&percents[..], label) {
            ([percent], Some(label)) if percent.signed => match role(&label) {
                Role::Change | Role::Other => {
                    let what = "a change of a metric that the line does not name";
                    all.doubts.push(doubt(line.number, what));
                }
                _ => enter(line.number, label, percent.value, all),
            },
            _ => prose.extend(words(&line.text).into_iter().map(|word| (word, line.number))),
        }
    }
    sentences(&prose, all);
}

/// Returns whether a line begins a point of a list.
fn is_item(text: &str) -> bool {
    let mark = text.split_whitespace().next().unwrap_or("");
    MARKS.contains(&mark) || mark.trim_end_matches(['.', ')']).parse::<u8>().is_ok()
}

/// The marks of lists.
const MARKS: [&str; 5] = ["-", "*", "+", "o", "•"];

/// Enters the claims of the sentences of a paragraph.
fn sentences(prose: &[(String, usize)], all: &mut Comparisons) {
    let ends = |word: &(String, usize)| word.0.ends_with(['.', '!', '?', ';']);
    for sentence in prose.split_inclusive(ends) {
        let words: Vec<String> = sentence.iter().map(|(word, _)| word.clone()).collect();
        let percents = percents(&words);
        let Some(first) = percents.first() else { continue };
        let line = sentence[first.from].1;
        match claim(&words, &percents) {
            Some(Ok((metric, value))) => enter(line, metric, value, all),
            Some(Err(why)) => all.doubts.push(doubt(line, why)),
            None => {}
        }
    }
}

fn enter(line: usize, metric: String, percent: f64, all: &mut Comparisons) {
    all.found.push(Comparison {
        line,
        metric,
        sides: vec!["before".to_owned(), "after".to_owned()],
        values: vec![vec![100.0], vec![100.0 + percent]],
        only_changes: true,
        ..Comparison::default()
    });
}

/// A percentage of a line.
struct Percent {
    value: f64,
    signed: bool,
    /// Where it begins and ends in the words of the line.
    from: usize,
    to: usize,
}

/// The words of a line, with a sign or a `%` of its own joined to its number.
fn words(text: &str) -> Vec<String> {
    let mut all: Vec<String> = vec![];
    let sign = |word: &str| word == "+" || word == "-";
    for word in text.split_whitespace() {
        match all.last_mut() {
            Some(last) if word.trim_end_matches([',', '.', ';', ')']) == "%" => last.push_str(word),
            Some(last) if sign(last) && word.starts_with(|c: char| c.is_ascii_digit()) => {
                last.push_str(word);
            }
            _ => all.push(word.to_owned()),
        }
    }
    // The mark of a list is no sign.
    if let Some(first) =
        all.first().filter(|_| ["- ", "+ "].iter().any(|mark| text.trim_start().starts_with(mark)))
    {
        let rest = first[1..].to_owned();
        let mark = first[..1].to_owned();
        all.splice(..1, [mark, rest].into_iter().filter(|word| !word.is_empty()));
    }
    all
}

fn percents(words: &[String]) -> Vec<Percent> {
    let mut all = vec![];
    for (at, word) in words.iter().enumerate() {
        let plain =
            word.trim_matches(['(', ')', ',', '.', ';', ':', '[', ']', '*', '\'', '"', '`']);
        if !plain.ends_with('%') {
            continue;
        }
        let figure = super::figure::word(plain).filter(|figure| figure.percent);
        let value = figure.as_ref().map_or(f64::NAN, |figure| figure.value);
        let signed = figure.is_some_and(|figure| figure.signed);
        all.push(Percent { value, signed, from: at, to: at + 1 });
    }
    all
}

/// Returns the label of a line that has nothing but a label and a change.
fn label(text: &str, percents: &[Percent]) -> Option<String> {
    let [percent] = percents else { return None };
    let words = words(text);
    let (before, after) = (&words[..percent.from], &words[percent.to..]);
    let words: Vec<&String> = match (before, after) {
        (before, []) => before.iter().collect(),
        ([], after) => after.iter().collect(),
        ([mark], after) if MARKS.contains(&mark.as_str()) => after.iter().collect(),
        _ => return None,
    };
    let mut words: Vec<&str> = words.iter().map(|word| word.as_str()).collect();
    if words.first().is_some_and(|first| MARKS.contains(first)) {
        words.remove(0);
    }
    let name = words.join(" ");
    let name = name.trim_end_matches([':', '=', ' ', '|']).trim_end_matches("->").trim();
    let prose = name.contains([',', ';', '?', '!']) || name.contains(". ") || name.ends_with('.');
    let plain = !name.is_empty()
        && words.len() <= NAME
        && name.contains(char::is_alphabetic)
        && !prose
        && !words.iter().any(|word| {
            let word = word.to_lowercase();
            let word = word.trim_matches(['(', ')', ',', ':', '.']);
            [&MORE[..], &LESS, &BETTER, &WORSE, &VAGUE].iter().any(|list| list.contains(&word))
                || ["is", "are", "was", "see", "we", "of", "the", "a"].contains(&word)
        });
    plain.then(|| name.to_owned())
}

/// Reads a sentence that claims a change. `None` if it claims none.
fn claim(words: &[String], percents: &[Percent]) -> Option<Result<(String, f64), String>> {
    let clean = |word: &String| {
        word.to_lowercase().trim_matches(|c: char| !c.is_alphanumeric() && c != '~').to_owned()
    };
    let plain: Vec<String> = words.iter().map(clean).collect();
    let lists: [(&[&str], i8, bool); 4] =
        [(&MORE, 1, false), (&LESS, -1, false), (&BETTER, 1, true), (&WORSE, -1, true)];
    let verbs: Vec<(usize, i8, bool)> = plain
        .iter()
        .enumerate()
        .filter_map(|(at, word)| {
            let list = lists.iter().find(|(list, ..)| list.contains(&word.as_str()))?;
            Some((at, list.1, list.2))
        })
        .collect();
    if verbs.is_empty() {
        return None;
    }
    let percent = match percents {
        [one] if one.value.is_finite() => one,
        _ => return Some(Err("a sentence with several changes, or a range".to_owned())),
    };
    let near = |at: usize, words: usize| at.abs_diff(percent.from) <= words;
    let [(verb, sign, judges)] = verbs[..] else {
        return Some(Err("a sentence with several changes".to_owned()));
    };
    let vague = plain[percent.from.saturating_sub(2)..percent.from]
        .iter()
        .any(|word| VAGUE.contains(&word.as_str()));
    if near(verb, FAR) && (vague || words[percent.from].starts_with('~')) {
        return Some(Err("a change that is not exact (about, up to)".to_owned()));
    }
    if !near(verb, NEAR) {
        return None;
    }
    let unsure = |word: &String| UNSURE.contains(&word.as_str()) || word.ends_with("n't");
    if plain.iter().any(unsure) || words.last().is_some_and(|word| word.ends_with('?')) {
        return Some(Err("a change that is denied, expected or asked for".to_owned()));
    }
    let Some(metric) = metric(words, &plain, verb, percent) else {
        return Some(Err("a change of a metric that the sentence does not name".to_owned()));
    };
    let lower = metric.to_lowercase();
    if judges && TIMES.iter().any(|part| lower.contains(part)) {
        let what = "a change for the better or the worse of a figure of which less may be better";
        return Some(Err(what.to_owned()));
    }
    if percent.signed && (percent.value < 0.0) != (sign < 0) {
        return Some(Err("a change whose sign contradicts its word".to_owned()));
    }
    Some(Ok((metric, percent.value.abs() * f64::from(sign))))
}

/// Returns the metric of a sentence: behind `of` or `in`, or before the verb.
fn metric(words: &[String], plain: &[String], verb: usize, percent: &Percent) -> Option<String> {
    let after = verb.max(percent.from) + 1;
    let trimmed = |words: &[String]| {
        let name = words.join(" ");
        name.trim_matches(|c: char| ".,;:()'\"`*".contains(c) || c.is_whitespace()).to_owned()
    };
    if let Some(link) = plain.get(after)
        && ["of", "in", "for", "on"].contains(&link.as_str())
    {
        let rest = &words[after + 1..];
        let mut count = 0;
        for (word, plain) in rest.iter().zip(&plain[after + 1..]) {
            if ENDS.contains(&plain.as_str()) {
                break;
            }
            count += 1;
            if word.ends_with([',', '.', ';', ':', ')']) {
                break;
            }
        }
        let article = usize::from(
            rest.first().is_some_and(|word| ["the", "a", "an"].contains(&word.as_str())),
        );
        return (article + 1..=NAME).contains(&count).then(|| trimmed(&rest[article..count]));
    }
    // `page_fault1 improved by 12%`.
    let before = &words[..verb.min(percent.from)];
    let start =
        before.iter().rposition(|word| word.ends_with(['.', ',', ';', ':'])).map_or(0, |at| at + 1);
    let subject = &before[start..];
    let has_verb = verb < percent.from;
    let skip = subject
        .iter()
        .take_while(|word| {
            ["the", "a", "an", "-", "*", "this"].contains(&word.to_lowercase().as_str())
        })
        .count();
    let subject = &subject[skip..];
    let pronoun = subject.first().is_some_and(|word| {
        ["it", "that", "patch", "which", "we", "series", "commit"]
            .contains(&word.to_lowercase().as_str())
    });
    (has_verb && !pronoun && (1..=3).contains(&subject.len())).then(|| trimmed(subject))
}
