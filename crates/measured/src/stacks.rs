//! Call paths in a text: stacks with a function a line, with their weights, and chains with arrows
//! in sentences.
//!
//! | form | weight |
//! |---|---|
//! | maps of bpftrace | the number after `]:`, or the counts of a histogram |
//! | offcputime, profile, stackcount of bcc | the number on the line after the stack |
//! | `perf script` | the period before the name of the event, or one |
//! | folded stacks, `a;b;c 12` | the number at the end, or before the stack |
//! | histograms of the kernel with stacks | `hitcount` |
//! | anything else | none |

use std::cmp::Ordering;

use mmscale_document::{is_locking, is_sleeping, is_tracing, wait_frames};

use crate::frame::{Frame, Mark, frame, is_memory, is_printed, is_registers, mark, printed, stale};
use crate::text::{Line, Word};

/// The unit of a weight.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Unit {
    /// Shares of all samples.
    Share,
    /// Shares of the samples of a caller that the text does not have.
    Part,
    /// Samples or periods of `perf script`, by event.
    Event(String),
    /// Counts or times of a map, by its name, or of stacks.
    Map(String),
    /// Folded stacks.
    Folded,
    /// A task of a kernel's log: one.
    Task,
    /// None.
    None,
}

/// A call path.
#[derive(Clone, PartialEq, Debug)]
pub struct Stack {
    /// Functions from the outermost to the innermost.
    pub path: Vec<String>,
    /// Its weight, if the text has it: a share of the samples, a count or a time.
    pub weight: Option<f64>,
    /// The unit of the weight: only weights of one unit have a sum.
    pub unit: Unit,
    /// The number of the line.
    pub line: usize,
    /// The task and CPU, if a kernel's log names them.
    pub who: Option<String>,
}

impl Stack {
    /// Returns whether the innermost function requests a lock or sleeps for one.
    pub fn is_wait(&self) -> bool {
        self.wait_frames().is_some()
    }
    /// Returns the number of the innermost functions that belong to a wait for a lock, if it is
    /// one.
    pub(crate) fn wait_frames(&self) -> Option<usize> {
        // Functions in a sentence may be called one after the other.
        let unknown = self.unit != Unit::None;
        wait_frames(self.path.iter().rev().map(String::as_str), unknown)
    }
    /// Returns whether the innermost function gives up the CPU for something else than a lock.
    pub fn is_sleep(&self) -> bool {
        let mut inner = self.path.iter().rev().filter(|name| !is_tracing(name));
        inner.next().is_some_and(|name| is_sleeping(name)) && !self.is_wait()
    }
}

/// Number of frames below which lines are no stack.
const LEAST: usize = 3;

/// Number of frames below which a stack with a weight is none.
const LEAST_WEIGHED: usize = 1;

/// Innermost functions, with which a task gives up its CPU, before that of a lock.
const MOST_SLEEPING: usize = 4;

/// The longest stack; the rest of a longer one is another.
const MOST: usize = 256;

/// Reads the stack that begins at a line. Returns it, and the index of the line after it.
///
/// # Errors
/// Without a stack, the index of a line before which none begins.
pub(crate) fn parse(lines: &[Line], from: usize) -> Result<(Stack, usize), usize> {
    if let Some(found) = map(lines, from).or_else(|| sample(lines, from)) {
        return Ok(found);
    }
    if let Some(stack) = folded(&lines[from]) {
        return Ok((stack, from + 1));
    }
    let (frames, end) = frames(lines, from);
    let (weight, end) = weight_after(lines, end);
    let named = frames.iter().flat_map(|frame| &frame.names).filter(|name| name.contains('_'));
    let least = if weight.is_some() { LEAST_WEIGHED + 1 } else { LEAST };
    if frames.len() < least || named.count() < least.min(2) {
        return Err(end.max(from + 1));
    }
    let indents = frames[0].column.cmp(&frames[frames.len() - 1].column);
    let ends = |name: Option<&Frame>| {
        name.is_some_and(|frame| {
            frame.names.iter().any(|name| is_locking(name) || is_sleeping(name))
        })
    };
    let inner_first = match (ends(frames.first()), ends(frames.last()), indents) {
        _ if weight.is_some() => true,
        (true, false, _) => true,
        (false, true, _) | (_, _, Ordering::Less) => false,
        (_, _, Ordering::Greater) => true,
        (first, _, Ordering::Equal) => first || frames.iter().any(|frame| frame.offset),
    };
    let unit = if weight.is_some() { Unit::Map("stacks".to_owned()) } else { Unit::None };
    Ok((stack(frames, inner_first, weight, unit, lines[from].number), end))
}

/// Reads frames, one a line. Returns the index of the line after them. Of several contexts, such as
/// an interrupt and the task that it interrupted, the innermost one counts that does not print the
/// stack.
fn frames(lines: &[Line], from: usize) -> (Vec<Frame>, usize) {
    let (mut contexts, mut end): (Vec<Vec<Frame>>, usize) = (vec![vec![]], from);
    let (mut count, mut in_nmi, mut is_exception) = (0, false, false);
    for (at, line) in lines.iter().enumerate().skip(from) {
        if count == MOST {
            break;
        }
        if count > 0 && (line.is_elision() || is_separator(line) || is_memory(&line.text)) {
            continue;
        }
        // `crash` prints the registers at an exception between the frames.
        is_exception |= count > 0 && line.text.trim_start().starts_with("[exception ");
        if is_exception && is_registers(&line.text) {
            continue;
        }
        let next = match mark(&line.text) {
            Some((mark, rest)) => {
                in_nmi = mark == Mark::Nmi;
                contexts.push(vec![]);
                let blank = " ".repeat(line.text.trim_end().len() - rest.len());
                let inner = Line { text: blank + rest, ..line.clone() };
                frame(&inner)
            }
            None => match frame(line) {
                Some(next) => Some(next),
                None => break,
            },
        };
        if let (Some(next), false, Some(frames)) = (next, in_nmi, contexts.last_mut()) {
            frames.push(next);
        }
        (count, end) = (count + 1, at + 1);
    }
    let of_printing = |frames: &Vec<Frame>| {
        let names = frames.iter().flat_map(|frame| &frame.names);
        is_printed(&names.map(String::as_str).collect::<Vec<_>>())
    };
    if contexts.len() > 1 {
        contexts.retain(|frames| !frames.is_empty() && !of_printing(frames));
        let is_sure = |frames: &Vec<Frame>| frames.iter().any(|frame| frame.sure);
        if contexts.iter().any(is_sure) {
            contexts.retain(is_sure);
        }
    }
    let mut frames = contexts.into_iter().next().unwrap_or_default();
    let first: Vec<&str> = frames.iter().map(|frame| frame.names[0].as_str()).collect();
    let of_interrupt = printed(&first);
    frames.drain(..of_interrupt);
    // Frames with a question mark are what is left of other calls, unless they are the innermost.
    if frames.iter().any(|frame| frame.sure) {
        let mut inner = true;
        frames.retain(|frame| {
            inner &= !frame.sure && frame.names.iter().any(|name| is_locking(name));
            frame.sure || inner
        });
    } else if frames.iter().take(MOST_SLEEPING).any(|frame| is_locking(&frame.names[0])) {
        let first = |frame: &Frame| frame.names[0].clone();
        let names: Vec<String> = frames.iter().map(first).collect();
        drop(frames.drain(stale(&names.iter().map(String::as_str).collect::<Vec<_>>())));
    }
    (frames, end)
}

/// Returns whether a line is between a kernel's part of a stack and a program's.
fn is_separator(line: &Line) -> bool {
    matches!(line.text.trim(), "--" | "-")
}

fn stack(
    frames: Vec<Frame>,
    inner_first: bool,
    weight: Option<f64>,
    unit: Unit,
    line: usize,
) -> Stack {
    let mut path: Vec<Vec<String>> = frames.into_iter().map(|frame| frame.names).collect();
    if inner_first {
        path.reverse();
    }
    Stack { path: path.concat(), weight, unit, line, who: None }
}

fn number(text: &str) -> Option<f64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b',');
    digits.then(|| text.replace(',', "").parse().ok()).flatten()
}

/// Reads the weight on the lines after a stack: `- comm (12)` and a number, a number, or
/// `} hitcount: 12`. Returns the index of the line after it.
fn weight_after(lines: &[Line], end: usize) -> (Option<f64>, usize) {
    for (at, line) in lines.iter().enumerate().skip(end).take(3) {
        let text = line.text.trim();
        if let Some(weight) = number(text) {
            return (Some(weight), at + 1);
        }
        if let Some(rest) = text.split_once("hitcount:").filter(|_| text.starts_with('}')) {
            let count = rest.1.split_whitespace().next().and_then(number);
            return (count, at + 1);
        }
        // The task: `-                java (4211)`.
        let task = text.ends_with(')') && text.contains(" (") && text.starts_with('-')
            || text.starts_with("b'")
            || text == "--";
        if !task {
            break;
        }
    }
    (None, end)
}

/// The most lines of an entry of a map.
const MAP_LINES: usize = 2 * MOST;

/// Reads an entry of a map of bpftrace: `@name[`, frames, `]: 12`.
fn map(lines: &[Line], from: usize) -> Option<(Stack, usize)> {
    let first = lines[from].text.trim();
    let name = first.strip_prefix('@')?;
    let (name, key) = name.split_once('[')?;
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if !plain || key.contains("]:") {
        return None;
    }
    let mut all: Vec<Frame> = vec![];
    for (at, line) in lines.iter().enumerate().skip(from + 1).take(MAP_LINES) {
        let text = line.text.trim();
        if let Some((_, value)) =
            text.split_once("]:").or_else(|| text.strip_prefix(']').map(|_| ("", "")))
        {
            let (weight, end) = match value.split_whitespace().next() {
                Some(word) => (number(word), at + 1),
                None => histogram(lines, at + 1),
            };
            if all.is_empty() {
                return None;
            }
            let unit = if weight.is_some() { Unit::Map(format!("@{name}")) } else { Unit::None };
            return Some((stack(all, true, weight, unit, line.number), end));
        }
        // Other keys, such as the name of the task, begin or end with a comma.
        if let Some(next) = frame(line).filter(|_| !text.starts_with(',')) {
            all.push(next);
        }
    }
    None
}

/// Reads a histogram: `[1K, 2K)   12 |@@@ |`. Returns the sum of its counts.
fn histogram(lines: &[Line], from: usize) -> (Option<f64>, usize) {
    let (mut sum, mut end) = (None, from);
    for (at, line) in lines.iter().enumerate().skip(from) {
        let text = line.text.trim();
        let count = text.strip_prefix(['[', '(']).and_then(|rest| {
            let (_, rest) = rest.split_once([')', ']'])?;
            number(rest.split_whitespace().next()?)
        });
        let Some(count) = count else { break };
        sum = Some(sum.unwrap_or(0.0) + count);
        end = at + 1;
    }
    (sum, end)
}

/// Reads a sample of `perf script`, or a stack of ftrace: a line with task, time and event, then
/// frames.
fn sample(lines: &[Line], from: usize) -> Option<(Stack, usize)> {
    let words = lines[from].words();
    let time = words.iter().position(|word| {
        let text = word.text.strip_suffix(':').unwrap_or("");
        text.contains('.') && text.bytes().all(|b| b.is_ascii_digit() || b == b'.')
    });
    let rest = match time {
        Some(at) => words.get(at + 1..)?,
        // Without a time, the event ends the line.
        None if words.len() >= 3 && words.last()?.text.ends_with(':') => {
            let digits =
                |word: &Word<'_>| word.text.bytes().all(|b| b.is_ascii_digit() || b == b'/');
            words.iter().take(words.len() - 1).find(|word| digits(word))?;
            &words[words.len() - 2..]
        }
        None => return None,
    };
    let event = rest.iter().position(|word| word.text.len() > 1 && word.text.ends_with(':'));
    let (event, weight) = match event {
        Some(at) => {
            let period = at.checked_sub(1).and_then(|before| number(rest[before].text));
            (rest[at].text.trim_end_matches(':').to_owned(), period.unwrap_or(1.0))
        }
        None if lines[from].text.contains("<stack trace") => ("kernel_stack".to_owned(), 1.0),
        None => return None,
    };
    let (frames, end) = frames(lines, from + 1);
    if frames.is_empty() {
        return None;
    }
    let line = lines[from].number;
    Some((stack(frames, true, Some(weight), Unit::Event(event), line), end))
}

/// Reads a folded stack: functions from the outermost, with semicolons, and a count.
fn folded(line: &Line) -> Option<Stack> {
    let text = line.text.trim();
    if text.matches(';').count() < 2 {
        return None;
    }
    let (path, weight) = match (text.rsplit_once(' '), text.split_once(' ')) {
        (Some((path, last)), _) if number(last).is_some() => (path, number(last)),
        (_, Some((first, path))) if number(first).is_some() => (path.trim(), number(first)),
        _ => (text, None),
    };
    let mut steps = vec![];
    for part in path.split(';') {
        let part = part.trim();
        let name =
            ["_[k]", "_[j]", "_[i]", "_[u]", "_[p]"].iter().find_map(|end| part.strip_suffix(end));
        let name = name.unwrap_or(part);
        if name.is_empty() || name.chars().all(|c| c == '-') {
            continue;
        }
        if name.contains("; ") || name.split_whitespace().count() > 6 {
            return None;
        }
        steps.push(mmscale_document::plain_function(name).to_owned());
    }
    // A sentence with semicolons has blanks after them.
    let sentence = path.matches("; ").count() > 0;
    let unit = if weight.is_some() { Unit::Folded } else { Unit::None };
    let stack = Stack { path: steps, weight, unit, line: line.number, who: None };
    (!sentence && stack.path.len() >= LEAST).then_some(stack)
}

/// Returns the chains of functions with arrows between them in a paragraph: `a() -> b() -> c()`
/// from caller to callee, or `c < b < a`.
pub(crate) fn chains(lines: &[&Line]) -> Vec<Stack> {
    let words: Vec<Word<'_>> = lines.iter().flat_map(|line| line.words()).collect();
    let mut chains = Vec::new();
    let mut at = 0;
    while at + 2 < words.len() {
        let arrow = words[at + 1].text;
        let first = function(words[at].text).filter(|_| ["->", "=>", "<", "<-"].contains(&arrow));
        let Some(first) = first else {
            at += 1;
            continue;
        };
        let mut path = vec![first];
        let line = words[at].line;
        while at + 2 < words.len() && words[at + 1].text == arrow {
            let Some(next) = function(words[at + 2].text) else { break };
            path.push(next);
            at += 2;
        }
        at += 1;
        if path.len() >= 2 && path.iter().any(|name| name.contains('_')) {
            if arrow.starts_with('<') {
                path.reverse();
            }
            chains.push(Stack { path, weight: None, unit: Unit::None, line, who: None });
        }
    }
    chains
}

/// Returns the function that a word of a sentence names.
fn function(word: &str) -> Option<String> {
    let word = word.trim_end_matches([',', '.', ';', ':', ')']).trim_end_matches('(');
    let first = word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let all = word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    (first && all && word.len() >= 3).then(|| word.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::lines;

    fn of(text: &str) -> Option<String> {
        parse(&lines(text), 0).ok().map(|(stack, _)| stack.path.join(" "))
    }

    #[test]
    fn the_order_of_frames_follows_from_their_form() {
        let indented = "  sys_munmap\n    __vm_munmap\n      ...\n        release_pages\n";
        assert_eq!(of(indented).unwrap(), "sys_munmap __vm_munmap release_pages");
        let offsets = "csd_lock_wait+12\n flush_x/flush_tlb_mm_range\n...\nexit_mmap+7\n]";
        let listed = offsets.replace(" flush_x", "flush_x");
        assert_eq!(of(&listed).unwrap(), "exit_mmap flush_x flush_tlb_mm_range csd_lock_wait");
        let dumped = " ? _raw_spin_lock+0x1/0x20\n free_one_page+0x2/0x30\n __free_pages+0x1 [x]\n";
        assert_eq!(of(dumped).unwrap(), "__free_pages free_one_page _raw_spin_lock");
        let script = "  ffffffff81a0 _raw_spin_lock ([kernel.kallsyms])\n  ffffffff81a1 a_b (x)\n\
                      \x20 ffffffff81a2 c_d (x)\n";
        assert_eq!(of(script).unwrap(), "c_d a_b _raw_spin_lock");
    }

    #[test]
    fn weights_of_all_forms_are_read() {
        let of = |text: &str| {
            let (stack, _) = parse(&lines(text), 0).ok()?;
            Some((stack.path.join(" "), stack.weight))
        };
        let path = "do_exit exit_mmap _raw_spin_lock".to_owned();
        let frames = "    _raw_spin_lock+5\n    exit_mmap+1\n    do_exit+2\n";
        for (text, weight) in [
            (format!("@wait[\n{frames}, usemem]: 48213\n"), 48213.0),
            (format!("@wait[usemem,\n{frames}]: 5\n"), 5.0),
            (format!("@ns[\n{frames}]:\n[1K, 2K)   7 |@@|\n[2K, 4K)   3 |@|\n"), 10.0),
            (format!("{frames}    -                java (4211)\n        19283746\n"), 19_283_746.0),
            (format!("{frames}    12\n"), 12.0),
            (format!("a 12 [001] 1.5:  250000 cpu-clock:ppp: \n{frames}"), 250_000.0),
            (format!("a 12 [001] 1.5: cycles:  \n{frames}"), 1.0),
            (format!("{frames}}} hitcount:          4  sum: 3\n"), 4.0),
            ("do_exit;exit_mmap;_raw_spin_lock 77".to_owned(), 77.0),
            ("  77 do_exit;exit_mmap;_raw_spin_lock".to_owned(), 77.0),
            ("do_exit_[k];exit_mmap_[k];-;_raw_spin_lock_[k] 77".to_owned(), 77.0),
        ] {
            assert_eq!(of(&text), Some((path.clone(), Some(weight))), "{text}");
        }
        assert_eq!(of(frames), Some((path, None)));
        assert_eq!(of("we saw this; then that; and so on"), None);
    }

    #[test]
    fn sentences_are_no_stacks() {
        assert_eq!(of("Thanks,\nJoe\nNext\nline"), None);
        assert_eq!(of("a_b\nc_d\n"), None, "two lines are too few");
        assert_eq!(of("one_two three\nfour_five\nsix_seven\n"), None);
    }

    #[test]
    fn chains_of_arrows_are_read_over_lines() {
        let all =
            lines("Time is in vm_mmap_pgoff() -> __mm_populate ->\nlru_add_drain, and zone->lock");
        let chains = chains(&all.iter().collect::<Vec<_>>());
        assert_eq!(chains.len(), 1);
        assert_eq!(chains[0].path, ["vm_mmap_pgoff", "__mm_populate", "lru_add_drain"]);
        let all = lines("  52 % folio_batch_move_lru < lru_add_drain_cpu < lru_add_drain");
        let chains = super::chains(&all.iter().collect::<Vec<_>>());
        assert_eq!(chains[0].path, ["lru_add_drain", "lru_add_drain_cpu", "folio_batch_move_lru"]);
    }
}
