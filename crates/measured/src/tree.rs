//! Trees of `perf report`: a function a line, with its share of the samples.
//!
//! ```text
//! |--99.10%-- root_function
//! |  |--70.00%-- callee
//! ```
//!
//! The screen of `perf report` has other marks, and lists without a tree have only functions:
//!
//! ```text
//! - 65.13% root_function
//!    - 46.84% callee
//!         its_only_callee
//! ```
//!
//! ```text
//! 18.10%  command  [kernel.kallsyms]  [k] function
//!  9.02%  other_function
//! ```
//!
//! Shares of callees are of the samples of their caller, or of all samples (`-g graph`). A tree
//! does not say which: if the callees of some function have a larger share than the function, they
//! are of the caller's.

use mmscale_document::{is_locking, plain_function};

use crate::number::real;
use crate::stacks::Stack;
use crate::text::Line;

/// A function of a tree.
struct Node {
    /// The column of the function or of its share.
    column: usize,
    name: String,
    /// The share as written, in percent. The only callee of a function has none.
    percent: Option<f64>,
    /// The index of the caller.
    parent: Option<usize>,
    line: usize,
}

/// The name of the row for a function itself, without its callees.
const ITSELF: &str = "[hit in function]";

/// Shares below this are noise of rounding.
const LEAST: f64 = 0.0005;

/// The longest tree; the rest of a longer one is another.
const MAX_NODES: usize = 10_000;

/// Reads the tree that begins at a line. Returns its stacks, and the index of the line after it.
pub(crate) fn parse(lines: &[Line], from: usize) -> Option<(Vec<Stack>, usize)> {
    branch(&lines[from])?.1?;
    let mut nodes: Vec<Node> = Vec::new();
    // The functions that may have callees still, outermost first.
    let mut open: Vec<usize> = Vec::new();
    let mut end = from;
    for (at, line) in lines.iter().enumerate().skip(from) {
        if at > from && bars(line) {
            end = at + 1;
            continue;
        }
        let Some((column, percent, name)) = branch(line) else { break };
        // Functions without a share in one column are a chain: each is called by the one above.
        let is_chain = |last: &Node| percent.is_none() && last.percent.is_none();
        while open
            .pop_if(|last| {
                let last = &nodes[*last];
                // Shares of a list end in one column, so that they begin in two.
                last.column > column || last.column + 1 >= column && !is_chain(last)
            })
            .is_some()
        {}
        let parent = open.last().copied();
        // A second root begins another tree.
        if parent.is_none() && !nodes.is_empty() && percent.is_none() {
            break;
        }
        if nodes.len() == MAX_NODES {
            break;
        }
        open.push(nodes.len());
        nodes.push(Node { column, name, percent, parent, line: line.number });
        end = at + 1;
    }
    let with_share = nodes.iter().filter(|node| node.percent.is_some()).count();
    (with_share >= 2).then(|| (stacks(&nodes), end))
}

/// Returns whether a line has only bars.
fn bars(line: &Line) -> bool {
    !line.is_blank() && line.text.chars().all(|c| c == '|' || c.is_whitespace())
}

/// Splits a line of a tree into column, share and function.
fn branch(line: &Line) -> Option<(usize, Option<f64>, String)> {
    let text = line.text.trim_end();
    if let Some(at) = text.find("%--") {
        let number = text[..at].rfind("--").map(|dash| dash + 2)?;
        let percent = real(&text[number..at]).filter(|percent| *percent <= 100.0)?;
        let name = text[at + 3..].trim_start_matches('-').trim();
        let name = if name.starts_with(ITSELF) { ITSELF } else { plain_function(name) };
        return (!name.is_empty()).then(|| (number - 2, Some(percent), name.to_owned()));
    }
    if let Some(row) = row(text) {
        return Some(row);
    }
    let inner = text.trim_start_matches(|c: char| c == '|' || c == '-' || c.is_whitespace());
    let column = text.len() - inner.len();
    let branch = text.trim_start().starts_with('|') || text.starts_with("    ");
    let word = inner.split_whitespace().count() == 1 && inner.contains('_');
    (branch && word).then(|| (column, None, plain_function(inner).to_owned()))
}

/// Splits a row of a list or of the screen: a sign, a share or two, and a function, which may have
/// the command and the binary before it.
fn row(text: &str) -> Option<(usize, Option<f64>, String)> {
    let inner = text.trim_start_matches([' ', '\t', '+', '-']);
    let column = text.len() - inner.len();
    let (first, mut rest) = inner.split_once(char::is_whitespace)?;
    let share = |word: &str| real(word.strip_suffix('%')?).filter(|percent| *percent <= 100.0);
    let mut percent = share(first)?;
    // With children, and of the function itself.
    if let Some((second, after)) = rest.trim_start().split_once(char::is_whitespace)
        && let Some(own) = share(second)
    {
        (percent, rest) = (own, after);
    }
    let words: Vec<&str> = rest.split_whitespace().collect();
    let name = match words[..] {
        [name] => name,
        [.., "[k]" | "[.]", name] => name,
        _ => return None,
    };
    let column = if words.len() > 1 { 0 } else { column };
    let name = plain_function(name);
    let letters = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    (letters && name.contains('_')).then(|| (column, Some(percent), name.to_owned()))
}

/// Returns whether the shares of callees are of the samples of their caller.
fn is_relative(nodes: &[Node]) -> bool {
    let mut sums = vec![0.0; nodes.len()];
    for node in nodes {
        if let (Some(parent), Some(percent)) = (node.parent, node.percent) {
            sums[parent] += percent;
        }
    }
    nodes.iter().zip(sums).any(|(node, sum)| node.percent.is_some_and(|own| sum > own + 0.5))
}

fn stacks(nodes: &[Node]) -> Vec<Stack> {
    let relative = is_relative(nodes);
    let mut shares: Vec<f64> = Vec::new();
    for node in nodes {
        let caller = node.parent.map_or(1.0, |parent| shares[parent]);
        shares.push(match node.percent {
            Some(percent) if relative => caller * percent / 100.0,
            Some(percent) => (percent / 100.0).min(caller),
            None => caller,
        });
    }
    let mut own = shares.clone();
    for (at, node) in nodes.iter().enumerate() {
        if let Some(parent) = node.parent.filter(|_| node.name != ITSELF) {
            own[parent] -= shares[at];
        }
    }
    let mut stacks = Vec::new();
    for (at, node) in nodes.iter().enumerate() {
        if node.name == ITSELF || own[at] < LEAST {
            continue;
        }
        let mut path = vec![node.name.clone()];
        let mut next = node.parent;
        while let Some(parent) = next {
            path.push(nodes[parent].name.clone());
            next = nodes[parent].parent;
        }
        // A tree of callers begins with the function that was sampled.
        if !path.last().is_some_and(|root| is_locking(root)) {
            path.reverse();
        }
        stacks.push(Stack { path, share: Some(own[at]), line: node.line });
    }
    stacks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::lines;

    fn of(text: &str) -> Vec<(String, f64)> {
        let (stacks, _) = parse(&lines(text), 0).expect("a tree");
        let one = |stack: &Stack| {
            let share = (stack.share.unwrap() * 10_000.0).round() / 10_000.0;
            (stack.path.join(" "), share)
        };
        stacks.iter().map(one).collect()
    }

    #[test]
    fn shares_of_callees_are_of_their_caller() {
        let tree = "|--90.00%-- oom_reaper\n|  |--50.00%-- unmap_page_range\n\
                    |  |  |--40.00%-- __pte_offset_map_lock\n|  |  |  |--100.00%-- _raw_spin_lock\n\
                    |  |  |--60.00%-- [hit in function]\n|  |--20.00%-- tlb_finish_mmu\n";
        assert_eq!(
            of(tree),
            [
                ("oom_reaper".to_owned(), 0.27),
                ("oom_reaper unmap_page_range".to_owned(), 0.27),
                (
                    "oom_reaper unmap_page_range __pte_offset_map_lock _raw_spin_lock".to_owned(),
                    0.18
                ),
                ("oom_reaper tlb_finish_mmu".to_owned(), 0.18),
            ]
        );
    }

    #[test]
    fn shares_may_be_of_all_samples_and_an_only_callee_has_none() {
        let tree = "|--60.00%--do_exit\n|          |--40.00%--exit_mmap\n|          |\n\
                    |          |          unmap_vmas\n|           --10.00%--exit_files\n";
        assert_eq!(
            of(tree),
            [
                ("do_exit".to_owned(), 0.1),
                ("do_exit exit_mmap unmap_vmas".to_owned(), 0.4),
                ("do_exit exit_files".to_owned(), 0.1),
            ]
        );
    }

    #[test]
    fn callers_of_a_lock_are_reversed() {
        let tree = "|--80.00%-- _raw_spin_lock\n|  |--80.00%-- folio_lruvec_lock\n";
        assert_eq!(of(tree)[0].0, "folio_lruvec_lock _raw_spin_lock");
    }

    #[test]
    fn the_screen_of_perf_report_is_a_tree() {
        let screen = "- 60.00% unmap_page_range\n   - 40.00% release_pages\n      \
                      - 30.00% folio_lruvec_lock_irqsave\n           \
                      _raw_spin_lock_irqsave\n           \
                      native_queued_spin_lock_slowpath\n   - 10.00% free_unref_folios\n";
        assert_eq!(
            of(screen),
            [
                ("unmap_page_range".to_owned(), 0.1),
                ("unmap_page_range release_pages".to_owned(), 0.1),
                (
                    "unmap_page_range release_pages folio_lruvec_lock_irqsave \
                     _raw_spin_lock_irqsave native_queued_spin_lock_slowpath"
                        .to_owned(),
                    0.3
                ),
                ("unmap_page_range free_unref_folios".to_owned(), 0.1),
            ]
        );
    }

    #[test]
    fn a_list_has_a_function_a_row() {
        let rows = [
            ("folio_lruvec_relock_irqsave".to_owned(), 0.181),
            ("free_pcppages_bulk".to_owned(), 0.0902),
            ("down_read".to_owned(), 0.0421),
        ];
        let list = "    18.10%  app  [kernel.kallsyms]  [k] folio_lruvec_relock_irqsave\n     \
                    9.50%  9.02%  app  [kernel]  [k] free_pcppages_bulk\n     \
                    4.21%  app  [kernel]  [k] down_read\n";
        assert_eq!(of(list), rows);
        let typed = " 18.10% folio_lruvec_relock_irqsave\n  9.02% free_pcppages_bulk\n  4.21% \
                     down_read\n";
        assert_eq!(of(typed), rows);
    }

    #[test]
    fn prose_is_no_tree() {
        for text in [
            "-- \n2.17.1",
            "a 50%-- b",
            "|--99%--",
            "|--x%-- y\n|--1%-- z",
            "9 % of it\n5 % more",
            "50% faster\n20% slower",
            "90% of do_exit, 5% of it",
        ] {
            assert!(parse(&lines(text), 0).is_none(), "{text}");
        }
    }
}
