//! Call paths in a text: stacks with a function a line, and chains with arrows in sentences.

use std::cmp::Ordering;

use mmscale_document::{is_locking, plain_function};

use crate::text::{Line, Word};

/// A call path.
#[derive(Clone, PartialEq, Debug)]
pub struct Stack {
    /// Functions from the outermost to the innermost.
    pub path: Vec<String>,
    /// Its share of the samples or counts, if the text has it.
    pub share: Option<f64>,
    /// The number of the line.
    pub line: usize,
}

/// Number of frames below which lines are no stack.
const LEAST: usize = 3;

/// The longest stack; the rest of a longer one is another.
const MOST: usize = 256;

/// Reads the stack that begins at a line. Returns it, and the index of the line after it.
///
/// # Errors
/// Without a stack, the index of a line before which none begins.
pub(crate) fn parse(lines: &[Line], from: usize) -> Result<(Stack, usize), usize> {
    let mut frames: Vec<(Vec<String>, usize)> = Vec::new();
    let (mut offsets, mut end) = (false, from);
    for (at, line) in lines.iter().enumerate().skip(from) {
        if frames.len() == MOST {
            break;
        }
        if line.is_elision() && !frames.is_empty() {
            continue;
        }
        let Some((names, column, offset)) = frame(line) else { break };
        offsets |= offset;
        frames.push((names, column));
        end = at + 1;
    }
    let functions = frames.iter().flat_map(|(names, _)| names).filter(|name| name.contains('_'));
    if frames.len() < LEAST || functions.count() < LEAST {
        return Err(end.max(from + 1));
    }
    let indents = frames[0].1.cmp(&frames[frames.len() - 1].1);
    let inner_first = match indents {
        Ordering::Less => false,
        Ordering::Greater => true,
        Ordering::Equal => offsets || frames[0].0.iter().any(|name| is_locking(name)),
    };
    let mut path: Vec<Vec<String>> = frames.into_iter().map(|(names, _)| names).collect();
    if inner_first {
        path.reverse();
    }
    let path: Vec<String> = path.concat();
    Ok((Stack { path, share: None, line: lines[from].number }, end))
}

/// Returns the functions of a frame (alternatives have slashes between them), the column, and
/// whether the frame has an offset.
fn frame(line: &Line) -> Option<(Vec<String>, usize, bool)> {
    let words = line.words();
    let is_address = |text: &str| {
        let hex = text.trim_start_matches("[<").trim_end_matches(">]").trim_start_matches("0x");
        hex.len() >= 8 && hex.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let mut rest: &[Word<'_>] = &words;
    while let [first, more @ ..] = rest
        && (first.text == "?" || is_address(first.text) || is_ordinal(first.text))
    {
        rest = more;
    }
    let (name, after) = rest.split_first()?;
    let module = |word: &Word<'_>| word.text.starts_with(['[', '(']);
    if !after.iter().all(module) || name.text.len() < 3 {
        return None;
    }
    let offset = name.text.contains('+');
    let names = name.text.split('/').filter(|part| *part != "...");
    let mut functions = Vec::new();
    for part in names {
        let plain = plain_function(part);
        let is_function = plain.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && plain.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        // The size of the function after its offset.
        if is_function {
            functions.push(plain.to_owned());
        } else if !part.starts_with("0x") {
            return None;
        }
    }
    (!functions.is_empty()).then_some((functions, name.column, offset))
}

/// Returns whether a word numbers a frame: `#3`, `3)`.
fn is_ordinal(text: &str) -> bool {
    let digits = text.trim_start_matches('#').trim_end_matches([')', ':']);
    digits.len() < text.len()
        && !digits.is_empty()
        && digits.bytes().all(|byte| byte.is_ascii_digit())
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
            chains.push(Stack { path, share: None, line });
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
