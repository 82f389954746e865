//! Reports of lockups, stalls and hung tasks in the log of a kernel: which task waits on which CPU,
//! and the stacks of the others.
//!
//! A report begins with a line such as `watchdog: BUG: soft lockup - CPU#11 stuck for 22s!
//! [stress-ng:878]`. Registers and the stack follow. The innermost function is that of `RIP:`
//! (`pc :` and `NIP` on other architectures); frames with a question mark are what is left of other
//! calls, unless the report has no others. The frames of the interrupt that printed the stack are
//! left out; those of an interrupt that waits are not, and then the interrupted task is.

mod head;

use crate::frame::{Mark, frame, is_printed, mark, printed, stale};
use crate::stacks::{Stack, Unit};
use crate::text::Line;
use head::{Head, head, register, task_of};

/// Something that a log reports of one CPU or task.
#[derive(Clone, Debug, Default)]
struct Entry {
    what: String,
    cpu: Option<u32>,
    task: Option<String>,
    seconds: Option<u32>,
    /// The function in which the CPU was.
    at: Option<String>,
    /// Frames by context, innermost first.
    contexts: Vec<Vec<String>>,
    /// Those with frames of which the kernel is not sure.
    guesses: Vec<Vec<String>>,
    /// Whether the context is of a non-maskable interrupt, which prints stacks.
    in_nmi: bool,
    line: usize,
}

/// The contents of a log.
#[derive(Default)]
pub(crate) struct Found {
    /// A stack for each CPU or task.
    pub(crate) stacks: Vec<Stack>,
    /// Holders that the log names: the lock and the task.
    pub(crate) holders: Vec<(String, String)>,
    /// The index of the line after it.
    pub(crate) end: usize,
}

impl Found {
    /// Returns whether it has a stack or a holder.
    pub(crate) fn any(&self) -> bool {
        !self.stacks.is_empty() || !self.holders.is_empty()
    }
}

/// Returns whether a line begins a report of a CPU or a task.
pub(crate) fn is_head(text: &str) -> bool {
    head(text).is_some()
}

/// Lines after the beginning of a crash that are of it.
const CRASH: usize = 80;

/// Returns whether the stacks at a line are of a crash or of a warning that is no lockup: they may
/// be in a function of a lock, and nothing waits.
pub(crate) fn is_crash(lines: &[Line], at: usize) -> bool {
    const BEGINNINGS: [&str; 14] = [
        "BUG: KASAN",
        "BUG: KCSAN",
        "BUG: KMSAN",
        "BUG: unable to handle",
        "BUG: kernel NULL pointer",
        "BUG: sleeping function",
        "BUG: scheduling while atomic",
        "BUG: spinlock bad magic",
        "Unable to handle kernel",
        "Oops: ",
        "general protection fault",
        "kernel BUG at",
        "WARNING: CPU: ",
        "unreferenced object",
    ];
    let before = lines[at.saturating_sub(CRASH)..=at].iter().rev();
    let mut known = before.filter_map(|line| {
        let crash = BEGINNINGS.iter().any(|begin| line.text.contains(begin));
        (crash || is_report(&line.text)).then_some(crash)
    });
    known.next().unwrap_or(false)
}

/// Returns whether a line begins a report of a lockup, a stall or a task, not only its registers.
pub(crate) fn is_report(text: &str) -> bool {
    head(text).is_some_and(|head| !head.what.is_empty())
}

/// Lines without a frame or a register after which a report has ended, in a log without prefixes.
const GAP: usize = 1;

/// Reads the reports that begin at a line. `None` if none begins there.
pub(crate) fn parse(lines: &[Line], from: usize) -> Option<Found> {
    let mut found = Found { end: from + 1, ..Found::default() };
    let mut entries = match head(&lines[from].text) {
        Some(head) => vec![begin(head, &lines[from])],
        // Words of an author may be before the line of the owner.
        None => {
            found.holders.push((String::new(), head::owner(&lines[from].text)?));
            vec![]
        }
    };
    // The first line that an author copied may have lost its prefix.
    let is_log = lines[from].log || lines.get(from + 1).is_some_and(|line| line.log);
    let (mut gap, mut holder) = (0, None::<String>);
    for (at, line) in lines.iter().enumerate().skip(from + 1) {
        if let Some(next) = head(&line.text) {
            enter(&mut entries, next, line);
        } else if let Some(current) = entries.last_mut()
            && current.read(line)
        {
        } else if let Some(task) = head::holds(&line.text) {
            holder = Some(task);
        } else if let (Some(task), Some(lock)) = (&holder, head::held(&line.text)) {
            found.holders.push((lock, task.clone()));
        } else if let Some(owner) = head::owner(&line.text) {
            found.holders.push((String::new(), owner));
        } else if is_log {
            if !line.log && !line.is_blank() {
                break;
            }
            continue;
        } else if !head::is_other(&line.text) && !line.is_elision() {
            gap += 1;
            if gap > GAP || !line.is_blank() {
                break;
            }
            continue;
        }
        gap = 0;
        found.end = at + 1;
    }
    if is_crash(lines, from) {
        entries.retain(|entry| !entry.what.is_empty());
    }
    found.stacks = once(entries).iter().filter_map(Entry::stack).collect();
    Some(found)
}

/// Returns the reports without those of a task that is on the same CPU and in the same functions as
/// in one before, such as in a lockup and the panic that follows it.
fn once(all: Vec<Entry>) -> Vec<Entry> {
    let mut kept: Vec<Entry> = vec![];
    for entry in all {
        let path = |entry: &Entry| entry.stack().map(|stack| stack.path);
        let is_same = |known: &&mut Entry| {
            known.cpu.is_some()
                && known.task.is_some()
                && (known.cpu, &known.task) == (entry.cpu, &entry.task)
                && path(known) == path(&entry)
        };
        match kept.iter_mut().find(is_same) {
            Some(known) => known.seconds = known.seconds.max(entry.seconds),
            None => kept.push(entry),
        }
    }
    kept
}

fn begin(head: Head, line: &Line) -> Entry {
    let mut entry = Entry {
        line: line.number,
        contexts: vec![vec![]],
        guesses: vec![vec![]],
        ..Entry::default()
    };
    entry.name(head);
    entry
}

/// Enters the head of a report: the same CPU or task again only adds to the last one.
fn enter(entries: &mut Vec<Entry>, head: Head, line: &Line) {
    if let Some(last) = entries.last_mut() {
        let empty = last.at.is_none() && last.guesses.iter().all(Vec::is_empty);
        let other =
            |known: Option<u32>, new: Option<u32>| known.zip(new).is_some_and(|(a, b)| a != b);
        if empty
            && !other(last.cpu, head.cpu)
            && (head.what.is_empty() || last.what.is_empty() || last.cpu.is_none())
        {
            last.name(head);
            return;
        }
    }
    entries.push(begin(head, line));
}

impl Entry {
    fn name(&mut self, head: Head) {
        if self.what.is_empty() || self.cpu.is_none() && self.task.is_none() {
            self.what = if head.what.is_empty() { self.what.clone() } else { head.what };
        }
        self.cpu = self.cpu.or(head.cpu);
        self.seconds = self.seconds.or(head.seconds);
        self.task = self.task.take().or(head.task);
    }

    fn begin_context(&mut self) {
        self.contexts.push(vec![]);
        self.guesses.push(vec![]);
    }

    /// Adds functions to the last context.
    fn add(&mut self, names: Vec<String>, sure: bool) {
        if let (true, Some(frames)) = (sure, self.contexts.last_mut()) {
            frames.extend_from_slice(&names);
        }
        if let Some(frames) = self.guesses.last_mut() {
            frames.extend(names);
        }
    }

    /// Reads a line of the report. Returns `false` if it is none.
    fn read(&mut self, line: &Line) -> bool {
        let text = line.text.trim();
        if let Some(function) = register(text) {
            if self.guesses.last().is_some_and(|frames| !frames.is_empty()) {
                self.begin_context();
            }
            if let Some(function) = function {
                match self.at {
                    None => self.at = Some(function),
                    Some(_) => {
                        self.add(vec![function], true);
                    }
                }
            }
            return true;
        }
        if let Some(task) = task_of(text) {
            let task = Some(task).filter(|_| self.task.is_none());
            self.task = self.task.take().or(task);
            return true;
        }
        // A context may begin on the line of its first frame: `<IRQ>  [<..>] f+0x`.
        let marked = mark(text);
        let mut inner = line.clone();
        if let Some((mark, rest)) = marked {
            self.in_nmi = mark == Mark::Nmi;
            self.begin_context();
            inner.text = rest.to_owned();
        }
        let Some(frame) = frame(&inner).filter(|frame| frame.offset || frame.place) else {
            return head::is_other(text) || marked.is_some();
        };
        if !self.in_nmi {
            self.add(frame.names, frame.sure);
        }
        true
    }

    /// Returns the stack of the innermost context that did not print it.
    fn stack(&self) -> Option<Stack> {
        let other = |frames: &Vec<String>| -> Vec<String> {
            let names: Vec<&str> = frames.iter().map(String::as_str).collect();
            match printed(&names) {
                0 if is_printed(&names) => vec![],
                of_interrupt => frames[of_interrupt..].to_vec(),
            }
        };
        let any = self.contexts.iter().any(|frames| !frames.is_empty());
        let contexts = if any { &self.contexts } else { &self.guesses };
        let mut contexts = contexts.iter().map(other);
        let mut path = contexts.find(|frames| !frames.is_empty()).unwrap_or_default();
        if !any {
            let between = stale(&path.iter().map(String::as_str).collect::<Vec<_>>());
            drop(path.drain(between));
        }
        if let Some(at) = &self.at
            && path.first() != Some(at)
        {
            path.insert(0, at.clone());
        }
        path.reverse();
        let is_guess = !any && self.guesses.iter().any(|frames| !frames.is_empty());
        let (line, who) = (self.line, Some(self.who(is_guess)));
        (!path.is_empty()).then_some(Stack { path, weight: None, unit: Unit::Task, line, who })
    }

    /// Describes the CPU and the task.
    fn who(&self, is_uncertain: bool) -> String {
        let cpu = self.cpu.map(|cpu| format!("CPU {cpu}"));
        let seconds = self.seconds.map(|seconds| format!("{seconds} s"));
        let what = Some(self.what.clone()).filter(|what| !what.is_empty());
        let uncertain = is_uncertain.then(|| "by frames with question marks".to_owned());
        let parts = [cpu, self.task.clone(), seconds, what, uncertain];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests;
