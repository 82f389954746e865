//! Warnings of lockdep on the order of locks. Their stacks are those of requests at some time
//! before, or of one that succeeds: they are no waits.
//!
//! ```text
//! kswapd0/79 is trying to acquire lock:
//! ffff8b1654603e08 (&mm->mmap_lock){++++}-{3:3}, at: a_function+0x12a/0x140
//!
//! but task is already holding lock:
//! ffffffffba151dc0 (fs_reclaim){+.+.}-{0:0}, at: __fs_reclaim_acquire+0x5/0x30
//! ```

use mmscale_document::plain_function;

use crate::frame::frame;
use crate::kernel_log;
use crate::text::Line;

/// A warning.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Order {
    /// The task that requests the lock, as the kernel prints it.
    pub task: String,
    /// The name of the lock, and the function that requests it.
    pub wanted: (String, String),
    /// The name of a lock that the task holds, if it holds one.
    pub held: Option<String>,
    /// The number of the first line.
    pub line: usize,
}

/// Reads the warning that begins at a line. Returns it, and the index of the line after it.
pub(crate) fn parse(lines: &[Line], from: usize) -> Option<(Order, usize)> {
    let task = requester(&lines[from].text)?;
    let next = (from + 1..lines.len()).find(|at| !lines[*at].is_blank())?;
    let wanted = lock_from(lines, next)?;
    let mut order = Order { task, wanted, held: None, line: lines[from].number };
    let (mut end, mut holds) = (from + 1, false);
    for (at, line) in lines.iter().enumerate().skip(from + 1) {
        let is_log = line.log && !kernel_log::is_report(&line.text);
        if !(is_log || line.is_blank() || is_part(line)) {
            break;
        }
        if holds && !line.is_blank() {
            order.held = order.held.or_else(|| Some(lock_from(lines, at)?.0));
        }
        holds = line.text.contains("already holding lock") || holds && line.is_blank();
        end = if line.is_blank() { end } else { at + 1 };
    }
    Some((order, end))
}

/// Returns the task of `a/12 is trying to acquire lock:` and `a/12 [HC0[0]:SC0[0]] takes:`.
fn requester(text: &str) -> Option<String> {
    let text = text.trim();
    if text == "is trying to acquire lock:" {
        // The line before it was cut off.
        return Some("a task".to_owned());
    }
    let (task, _) = text
        .split_once(" is trying to acquire lock:")
        .or_else(|| text.split_once(" is trying to lock:"))
        .or_else(|| {
            let rest = text.strip_suffix(" takes:")?;
            rest.split_once(" [HC")
        })?;
    let id = task.rsplit_once('/')?.1;
    let number = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit());
    number.then(|| task.to_owned())
}

/// Reads the lock that begins at a line, which a mail program may have broken behind the address
/// and behind `at:`.
fn lock_from(lines: &[Line], at: usize) -> Option<(String, String)> {
    let mut text = lines[at].text.trim().to_owned();
    for next in lines.iter().skip(at + 1).take(2) {
        let is_broken = !text.contains('(') || text.ends_with("at:");
        if !is_broken || next.is_blank() {
            break;
        }
        text = format!("{text} {}", next.text.trim());
    }
    lock(&text)
}

/// Returns the name of the lock of `ffff8b1654603e08 (&mm->mmap_lock){++++}, at: f+0x1`, and the
/// function, which may be missing.
fn lock(text: &str) -> Option<(String, String)> {
    let (_, rest) = text.split_once('(')?;
    let end = [").{", "){", "), at", ") at"].iter().find_map(|end| rest.find(end))?;
    let name = rest[..end].trim().to_owned();
    let at = text.split_once("at: ").map_or("", |(_, at)| at.trim());
    // Older kernels print the address before the function.
    let at = at.split_whitespace().find(|word| !word.starts_with('[')).unwrap_or("");
    (!name.is_empty()).then(|| (name, plain_function(at).to_owned()))
}

/// Returns whether a line without a prefix of a log belongs to a warning.
fn is_part(line: &Line) -> bool {
    const BEGIN: [&str; 34] = [
        "but task is",
        "but there is",
        "but this lock",
        "which lock",
        "which would",
        "and this task",
        "the existing dependency",
        "the dependencies between",
        "the shortest dependencies",
        "other info that might",
        "Possible unsafe",
        "Possible interrupt unsafe",
        "Chain exists",
        "May be due",
        "*** ",
        "CPU",
        "Call Trace",
        "Call trace",
        "Backtrace",
        "Hardware name",
        "Workqueue",
        "stack backtrace",
        "irq event stamp",
        "hardirqs last",
        "softirqs last",
        "{",
        "<",
        "lock(",
        "lock (",
        "->",
        "...",
        "=>",
        "ffff",
        "(",
    ];
    const RULES: [char; 4] = ['-', '=', ' ', '#'];
    let text = line.text.trim();
    let is_rule = text.len() >= 3 && text.chars().all(|c| RULES.contains(&c));
    is_rule
        || frame(line).is_some_and(|frame| frame.offset || line.text.starts_with("    "))
        || line.is_elision()
        || BEGIN.iter().any(|begin| text.starts_with(begin))
        || text.starts_with('#') && text.contains("at: ")
        // A module that a mail program broke off.
        || text.starts_with('[') && text.ends_with(']') && !text.contains(' ')
        || ["lock held by", "locks held by", " at: ", "to a HARDIRQ", "to a SOFTIRQ"]
            .iter()
            .any(|part| text.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::lines;

    #[test]
    fn the_locks_of_a_warning_are_named() {
        let text = "a_b/12 is trying to acquire lock:\n\
            ffff8b1654603e08 (&mm->mmap_lock#2){++++}-{3:3}, at: c_d+0x12a/0x140 [e]\n\n\
            but task is already holding lock:\n(&(&x->y)->rlock){+.+.}, at: f_g+0x5/0x30\n\n\
            -> #1 (x){+.+.}:\n       lock_acquire+0xd8/0x204\n       h_i+0x1/0x2\n\nAnd so on.\n";
        let all = lines(text);
        let (order, end) = parse(&all, 0).unwrap();
        assert_eq!(order.wanted, ("&mm->mmap_lock#2".to_owned(), "c_d".to_owned()));
        assert_eq!(
            (order.task.as_str(), order.held.as_deref()),
            ("a_b/12", Some("&(&x->y)->rlock"))
        );
        assert_eq!(all[end].text, "");
        let old = "x/1 [HC0[0]:SC1[1]:HE1:SE0] takes:\n\
            (&l){+.?...}, at: [<ffffffff81234567>] f_g+0x1/0x2\n";
        assert_eq!(parse(&lines(old), 0).unwrap().0.wanted.1, "f_g");
        let cut = "is trying to acquire lock:\nffff88801544e6d8 (&n->l){-.-.}-{2:2}, at: f ...\n\n\
            but task is already holding lock:\nffff88802d (&t->l){-.-.}-{2:2}, at: g ...\n\n\
            -> #1 (&t->l){-.-.}-{2:2}:\n       __raw_spin_lock_irqsave\n       a_b+0xb0/0x820\n\
            ......\n       c_d\n\nAnd so on.\n";
        let all = lines(cut);
        let (order, end) = parse(&all, 0).unwrap();
        assert_eq!((order.wanted.0.as_str(), order.held.as_deref()), ("&n->l", Some("&t->l")));
        assert_eq!(all[end + 1].text, "And so on.", "all of it is of the warning");
        assert!(parse(&lines("it is trying to acquire lock:\n(x){}, at: y"), 0).is_none());
    }
}
