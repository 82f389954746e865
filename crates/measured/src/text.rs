//! Lines and words with their places.

use std::collections::BTreeMap;

use crate::controls::without_controls;
use crate::fault::Fault;
use crate::mail::quote;
use crate::prefix::{message, next_stamp};

/// A line of the text, without the marks of quotes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Line {
    /// The number of the line, from 1.
    pub(crate) number: usize,
    /// The column of the first character of `text`, from 1.
    pub(crate) column: usize,
    /// The depth of the quote.
    pub(crate) quote: usize,
    /// Whether the line had a prefix of a kernel's log, which `text` does not have.
    pub(crate) log: bool,
    /// Whether it is a line of a call tree that a mail program broke, and perhaps joined with
    /// others: then only its bars are certain, not its columns.
    pub(crate) broken: bool,
    /// The text.
    pub(crate) text: String,
}

/// A word with its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Word<'a> {
    /// The word.
    pub(crate) text: &'a str,
    /// The number of its line, from 1.
    pub(crate) line: usize,
    /// The column of its first character, from 1.
    pub(crate) column: usize,
    /// Where it begins in the line's text, in bytes.
    pub(crate) start: usize,
}

impl Word<'_> {
    /// Returns an error at this word.
    pub(crate) fn fault(&self, what: impl Into<String>) -> Fault {
        Fault { line: self.line, column: self.column, what: what.into() }
    }
}

impl Line {
    /// Returns the words of the line.
    pub(crate) fn words(&self) -> Vec<Word<'_>> {
        let mut words = Vec::new();
        let mut start = None;
        let mut started = 0;
        for (column, (at, letter)) in (self.column..).zip(self.text.char_indices()) {
            match (letter.is_whitespace(), start) {
                (false, None) => (start, started) = (Some(at), column),
                (true, Some(from)) => {
                    words.push(self.word(from, at, started));
                    start = None;
                }
                _ => {}
            }
        }
        words.extend(start.map(|from| self.word(from, self.text.len(), started)));
        words
    }
    fn word(&self, from: usize, to: usize, column: usize) -> Word<'_> {
        Word { text: &self.text[from..to], line: self.number, column, start: from }
    }
    /// Returns whether the line has no word.
    pub(crate) fn is_blank(&self) -> bool {
        self.text.trim().is_empty()
    }
    /// Returns whether the line stands for rows that were left out.
    pub(crate) fn is_elision(&self) -> bool {
        const MARKS: [&str; 7] = ["…", "[...]", "[…]", "<snip>", "[snip]", "<...>", "--snip--"];
        let word = self.text.trim().trim_matches(|c: char| "<>[](){}.…-*=~ ".contains(c));
        let words = ["snip", "snipped", "cut", "trimmed", "truncated", "omitted"];
        let marked = self.text.trim().len() > word.len();
        let dots = self.text.trim().bytes().all(|byte| byte == b'.');
        MARKS.contains(&self.text.trim())
            || dots && self.text.trim().len() >= 3
            || marked && words.contains(&word.to_ascii_lowercase().as_str())
    }
    /// Returns an error behind the last character of the line.
    pub(crate) fn end_fault(&self, what: impl Into<String>) -> Fault {
        let column = self.column + self.text.trim_end().chars().count();
        Fault { line: self.number, column, what: what.into() }
    }
}

/// The length of a line of a log from which a mail program may have broken off the rest.
const LONG: usize = 60;

/// Returns the lines of a text. A line ends with LF, CR LF or CR. Controls of terminals and
/// prefixes of logs are removed; lines of a log that a mail program joined or broke are as they
/// were.
pub(crate) fn lines(text: &str) -> Vec<Line> {
    let unified = text.replace("\r\n", "\n").replace('\r', "\n");
    let unified = without_controls(&unified);
    let mut all: Vec<Line> = Vec::new();
    // The length of the line before, if it is of a log.
    let mut before: Option<usize> = None;
    let numbers = numbers(&unified);
    for (at, raw) in unified.lines().enumerate() {
        let (quote, start) = quote(raw);
        let number = numbers.get(&at).copied();
        let start = start + number.unwrap_or_else(|| gutter(&raw[start..]));
        let line = |from: usize, text: &str, log: bool| {
            let column = raw[..start + from].chars().count() + 1;
            Line { number: at + 1, column, quote, log, broken: false, text: text.to_owned() }
        };
        let inner = &raw[start..];
        let Some(mut from) = message(inner) else {
            let whole = line(0, inner, false);
            match (before.take(), all.last_mut()) {
                (Some(length), Some(last)) if continues(last, &whole, length) => {
                    let gap = if last.text.ends_with(['/', '+']) { "" } else { " " };
                    last.text = format!("{}{gap}{}", last.text.trim_end(), inner.trim_start());
                    before = Some(raw.len());
                }
                (_, Some(_)) => match joined_branch(&all, &whole) {
                    Some((text, broken)) => {
                        let last = all.len() - 1;
                        all[last].broken |= broken;
                        all[last].text = text;
                    }
                    None => all.push(whole),
                },
                _ => all.push(whole),
            }
            continue;
        };
        while let Some(stamp) = next_stamp(&inner[from..]).map(|stamp| stamp + from) {
            all.push(line(from, inner[from..stamp].trim_end(), true));
            from = stamp + message(&inner[stamp..]).unwrap_or(1);
        }
        all.push(line(from, &inner[from..], true));
        before = Some(raw.len());
    }
    all
}

/// Returns the length of the number of a line, which a viewer prints before a bar: `  12   │ `.
fn gutter(text: &str) -> usize {
    let number = text.trim_start_matches(' ');
    let rest = number.trim_start_matches(|c: char| c.is_ascii_digit());
    let bar = rest.trim_start_matches(' ').strip_prefix('│').filter(|_| rest.len() < number.len());
    bar.map_or(0, |inner| text.len() - inner.strip_prefix(' ').unwrap_or(inner).len())
}

/// The fewest lines with numbers that are those of a viewer.
const NUMBERED: usize = 8;

/// Splits a number from the beginning of a line. Returns it, and its length with the blanks before
/// it and the one after it.
fn leading_number(text: &str) -> Option<(usize, usize)> {
    let digits = text.trim_start_matches([' ', '\t']);
    let rest = digits.trim_start_matches(|c: char| c.is_ascii_digit());
    let n = digits[..digits.len() - rest.len()].parse().ok()?;
    let is_end = rest.is_empty() || rest.starts_with([' ', '\t', '-', '.']);
    let gap = usize::from(rest.starts_with([' ', '\t']));
    is_end.then_some((n, text.len() - rest.len() + gap))
}

/// Returns the lengths of the numbers of lines that a viewer printed without a bar, by line: each is
/// one more than the one before. Numbers of a table are those of a viewer only if a blank line or a
/// rule has one, or a line of a log.
fn numbers(text: &str) -> BTreeMap<usize, usize> {
    let mut all = BTreeMap::new();
    let mut run: Vec<(usize, usize, usize)> = vec![];
    let mut is_shown = false;
    let mut close = |run: &mut Vec<(usize, usize, usize)>, is_shown: &mut bool| {
        if run.len() >= NUMBERED && *is_shown {
            all.extend(run.iter().map(|(at, _, length)| (*at, *length)));
        }
        (*is_shown, _) = (false, run.clear());
    };
    for (at, raw) in text.lines().enumerate() {
        let inner = &raw[quote(raw).1..];
        let Some((n, length)) = leading_number(inner) else {
            close(&mut run, &mut is_shown);
            continue;
        };
        if run.last().is_some_and(|(_, last, _)| n != last + 1) {
            close(&mut run, &mut is_shown);
        }
        run.push((at, n, length));
        let rest = inner[length..].trim();
        let is_rule = rest.len() != 1 && rest.bytes().all(|byte| b"-.=".contains(&byte));
        is_shown |= is_rule || message(rest).is_some();
    }
    close(&mut run, &mut is_shown);
    all
}

/// The longest line of a tree that is joined again.
const TREE: usize = 400;
/// The columns by which the rest of a broken line of a tree is to the left of its bars.
const LEFT: usize = 3;

/// Joins a line to the line of a call tree before it, if a mail program broke it off there: it
/// begins to the left of the tree. Returns the text, and whether its columns are lost.
fn joined_branch(before: &[Line], line: &Line) -> Option<(String, bool)> {
    let last = before.last()?;
    let indent = |text: &str| text.len() - text.trim_start().len();
    let (left, rest) = (indent(&line.text), line.text.trim());
    if last.quote != line.quote || left >= LEFT || rest.is_empty() || last.text.len() >= TREE {
        return None;
    }
    if let Some(text) = completed(&last.text, rest).or_else(|| whole_row(&last.text, rest)) {
        return Some((text, false));
    }
    let is_name = !rest.contains(' ')
        && rest.contains('_')
        && rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.@".contains(&byte));
    let is_row = is_branch(rest) || rest.starts_with('|') || is_name;
    let inside = match last.is_blank() {
        // A line without bars is a blank one: only other lines show that the tree is broken.
        true => left == 0 && is_branch(rest) && is_broken(before),
        false => {
            let bars = last.text.bytes().all(|byte| byte == b'|' || byte == b' ');
            bars && (left == 0 && indent(&last.text) > 0 || left + LEFT < indent(&last.text))
        }
    };
    (is_row && inside).then(|| (format!("{} {rest}", last.text), true))
}

/// Returns the line of a branch that a mail program broke at one of its dashes: `|--12.34%` and
/// `--f`.
fn completed(first: &str, rest: &str) -> Option<String> {
    let dashes = first.trim_start_matches(['|', ' ']);
    let indent = first.len() - dashes.len();
    let whole = format!("{dashes}{rest}");
    let is_part = dashes.starts_with("--") && !is_branch(dashes) && !whole.contains(' ');
    (is_part && indent > LEFT && is_branch(&whole)).then(|| format!("{first}{rest}"))
}

/// Returns the row of a profile that a mail program broke before its function: `12.34%  a` and
/// `[kernel]  [k] f`.
fn whole_row(first: &str, rest: &str) -> Option<String> {
    const MARKS: [&str; 2] = ["[k]", "[.]"];
    let share = first.trim_start_matches(['-', '+', ' ', '\t']).split_whitespace().next()?;
    let is_share =
        share.strip_suffix('%').is_some_and(|n| n.contains('.') && n.parse::<f64>().is_ok());
    let is_whole = first.split_whitespace().any(|word| MARKS.contains(&word));
    let mut words = rest.split_whitespace();
    let first_word = words.next()?;
    let marked = MARKS.contains(&first_word)
        || first_word.starts_with('[') && words.next().is_some_and(|word| MARKS.contains(&word));
    let fits = is_share && !is_whole && marked && words.count() == 1;
    fits.then(|| format!("{}  {rest}", first.trim_end()))
}

/// Returns whether a text begins with a branch: `--12.34%--f`.
fn is_branch(text: &str) -> bool {
    let inner = text.strip_prefix("--").and_then(|inner| inner.split_once("%--"));
    inner.is_some_and(|(share, name)| share.parse::<f64>().is_ok() && !name.is_empty())
}

/// Returns whether the tree at the end of lines has a line that was broken.
fn is_broken(lines: &[Line]) -> bool {
    let last = lines.iter().rev().take_while(|line| {
        let inner = line.text.trim_start_matches(['|', ' ']).trim_end();
        !inner.contains(' ') && Some(line.quote) == lines.last().map(|last| last.quote)
    });
    last.take(TREE).any(|line| line.broken)
}

/// Returns whether a line without a prefix is the rest of the line of a log before it.
fn continues(last: &Line, line: &Line, length: usize) -> bool {
    let empty = last.text.trim().is_empty();
    let cut = last.text.trim_end().ends_with(['/', ',', '+', '?']);
    let frame = line.text.contains("+0x") && !line.text.trim_start().starts_with("0x");
    last.quote == line.quote && !line.is_blank() && (empty || cut || length >= LONG && !frame)
}

/// Reads words over the ends of lines.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'a> {
    lines: &'a [Line],
    /// The index of the line.
    at: usize,
    words: Vec<Word<'a>>,
    /// The index of the next word of the line.
    next: usize,
}

impl<'a> Cursor<'a> {
    /// Creates a cursor before the first word of a line.
    pub(crate) fn new(lines: &'a [Line], at: usize) -> Self {
        let words = lines.get(at).map_or(Vec::new(), Line::words);
        Self { lines, at, words, next: 0 }
    }
    /// Returns the index of the line of the next word.
    pub(crate) fn at(&self) -> usize {
        self.at
    }
    /// Returns the line of the next word.
    pub(crate) fn line(&self) -> Option<&'a Line> {
        self.lines.get(self.at)
    }
    /// Returns the next word of the line.
    pub(crate) fn peek(&self) -> Option<Word<'a>> {
        self.words.get(self.next).copied()
    }
    /// Returns the word after the next one, of the line.
    pub(crate) fn peek_second(&self) -> Option<Word<'a>> {
        self.words.get(self.next + 1).copied()
    }
    /// Moves behind the next word of the line.
    pub(crate) fn skip(&mut self) {
        self.next += 1;
    }
    /// Returns the rest of the line from the next word.
    pub(crate) fn rest(&self) -> Option<&'a str> {
        let line = self.lines.get(self.at)?;
        Some(line.text[self.peek()?.start..].trim_end())
    }
    /// Moves to the beginning of the next line.
    pub(crate) fn next_line(&mut self) {
        *self = Self::new(self.lines, self.at + 1);
    }
    /// Returns the next word. At the end of a line that is the first word of the next line, if
    /// that is not blank: mails break long lines.
    pub(crate) fn next_wrapped(&mut self) -> Option<Word<'a>> {
        if self.peek().is_none() {
            let next = Self::new(self.lines, self.at + 1);
            next.peek()?;
            *self = next;
        }
        let word = self.peek()?;
        self.skip();
        Some(word)
    }
    /// Returns an error behind the last word that was read.
    pub(crate) fn end_fault(&self, what: impl Into<String>) -> Fault {
        match self.lines.get(self.at.min(self.lines.len().saturating_sub(1))) {
            Some(line) => line.end_fault(what),
            None => Fault { line: 1, column: 1, what: what.into() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_the_columns_of_the_file() {
        let all = lines("> > ä bc\r\n\r\nx\ry");
        let words: Vec<(&str, usize, usize)> =
            all[0].words().iter().map(|w| (w.text, w.line, w.column)).collect();
        assert_eq!(words, [("ä", 1, 5), ("bc", 1, 7)]);
        assert_eq!((all[0].quote, all[1].is_blank(), all.len()), (2, true, 4));
        assert_eq!(all[3].number, 4);
        assert_eq!(all[0].end_fault("x").column, 9);
    }

    #[test]
    fn numbers_of_a_viewer_are_removed() {
        let all = lines("   9   │ a_b+0x1\n  10   │ 4,5007,12915309105,-; c_d+0x1\n 11 │\n2 | 3\n");
        let texts: Vec<(&str, bool)> = all.iter().map(|l| (l.text.as_str(), l.log)).collect();
        assert_eq!(texts, [("a_b+0x1", false), ("c_d+0x1", true), ("", false), ("2 | 3", false)]);
    }

    #[test]
    fn a_broken_line_of_a_tree_is_one() {
        let text = "      |          | \n|--16.94%--a_b\n      |          |\n      |          \n\
                    --1.5%--c_d\n      |   \n      |--2.00%--e_f\n   |\n  g\n";
        let all: Vec<String> = lines(text).into_iter().map(|line| line.text).collect();
        let joined = [
            "      |          |  |--16.94%--a_b",
            "      |          |",
            "      |           --1.5%--c_d",
            "      |   ",
            "      |--2.00%--e_f",
            "   |",
            "  g",
        ];
        assert_eq!(all, joined);
    }

    #[test]
    fn a_broken_line_is_read_on() {
        let all = lines("a b\nc\n\nd\n");
        let mut cursor = Cursor::new(&all, 0);
        let read: Vec<&str> =
            std::iter::from_fn(|| cursor.next_wrapped()).map(|w| w.text).collect();
        assert_eq!(read, ["a", "b", "c"], "a blank line ends it");
        assert_eq!(cursor.end_fault("x"), Fault { line: 2, column: 2, what: "x".into() });
    }
}
