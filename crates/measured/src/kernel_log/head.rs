//! Lines of a kernel's log that are no frames.

use mmscale_document::plain_function;

use crate::frame::is_memory;

/// The head of a report.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Head {
    /// The kind of the report: `soft lockup`. Empty if the line only names a CPU.
    pub(super) what: String,
    pub(super) cpu: Option<u32>,
    pub(super) task: Option<String>,
    pub(super) seconds: Option<u32>,
}

/// Reads the head of a report.
pub(super) fn head(text: &str) -> Option<Head> {
    let text = text.trim();
    let of = |what: &str| Head { what: what.to_owned(), ..Head::default() };
    if text.contains("soft lockup") && text.contains("CPU#") {
        let cpu = after(text, "CPU#").and_then(number);
        let seconds = after(text, "stuck for ").and_then(number);
        return Some(Head { cpu, seconds, task: in_brackets(text), ..of("soft lockup") });
    }
    if text.contains("hard LOCKUP") || text.contains("Hard LOCKUP") {
        let other = after(text, "other CPUs ").and_then(number);
        let cpu = other.or_else(|| after(text, "on cpu ").and_then(number));
        let cpu = Some(cpu.or_else(|| after(text, "CPU ").and_then(number))?);
        return Some(Head { cpu, ..of("hard lockup") });
    }
    if text.contains("spinlock lockup") {
        return Some(Head { cpu: after(text, "CPU#").and_then(number), ..of("spin lock lockup") });
    }
    let stall = ["self-detected stall", "detected stall", "detected expedited stalls"];
    if text.contains("INFO: rcu") && stall.iter().any(|words| text.contains(words)) {
        return Some(of("RCU stall"));
    }
    if text.contains("BUG: workqueue lockup") {
        return Some(of("work queue lockup"));
    }
    if let Some(rest) = after(text, "INFO: task ")
        && let Some((task, rest)) = rest.split_once(" blocked for more than ")
    {
        return Some(Head {
            task: Some(task.to_owned()),
            seconds: number(rest),
            ..of("hung task")
        });
    }
    let lower = text.to_ascii_lowercase();
    if let Some(rest) = after(&lower, "nmi backtrace for cpu ") {
        return Some(Head { cpu: number(rest), ..of("backtrace") });
    }
    if let Some(rest) = after(text, "Task dump for CPU ") {
        return Some(Head { cpu: number(rest), ..of("task dump") });
    }
    // The line with which each dump of registers begins.
    if let Some(rest) = text.strip_prefix("CPU: ") {
        let cpu = number(rest)?;
        let pid = after(rest, "PID: ").and_then(number);
        let comm = after(rest, "Comm: ").and_then(|rest| rest.split_whitespace().next());
        let task = comm.map(|comm| match pid {
            Some(pid) => format!("{comm}:{pid}"),
            None => comm.to_owned(),
        });
        return Some(Head { cpu: Some(cpu), task, ..Head::default() });
    }
    // `crash`: `PID: 2865  TASK: ffff888139214d40  CPU: 40  COMMAND: "kswapd0"`.
    if let Some(rest) = text.strip_prefix("PID: ")
        && let Some((cpu, command)) = after(rest, "CPU: ").zip(after(rest, "COMMAND: \""))
    {
        let pid = number(rest)?;
        let task = Some(format!("{}:{pid}", command.trim_end_matches('"')));
        return Some(Head { cpu: number(cpu), task, ..of("backtrace") });
    }
    task_head(text)
}

/// Reads the head of a task alone: `task:a  state:D stack:0 pid:12 ..`, or in kernels before 5.10
/// `a  D  0  12  2 0x00000000`.
fn task_head(text: &str) -> Option<Head> {
    let of = |what: &str, task: String| Head {
        what: what.to_owned(),
        task: Some(task),
        ..Head::default()
    };
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_old = words.last().is_some_and(|word| word.starts_with("0x"));
    if let Some(task) = task_of(text).filter(|_| is_old) {
        return (words[1] == "D").then(|| of("blocked", task));
    }
    let task = text.strip_prefix("task:").filter(|rest| rest.contains("state:"))?;
    let name = task.split("state:").next()?.trim();
    let pid = after(task, "pid:").and_then(number);
    let task = pid.map_or(name.to_owned(), |pid| format!("{name}:{pid}"));
    let state = after(text, "state:").and_then(|rest| rest.chars().next());
    let what = match state {
        Some('D') => "blocked",
        Some('R') => "running",
        _ => "task",
    };
    Some(of(what, task))
}

/// Returns the text after the first occurrence of another.
fn after<'a>(text: &'a str, what: &str) -> Option<&'a str> {
    text.find(what).map(|at| &text[at + what.len()..])
}

fn number(text: &str) -> Option<u32> {
    let text = text.trim_start();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

/// Returns the task in the last brackets of a line: `[stress-ng:878]`.
fn in_brackets(text: &str) -> Option<String> {
    let (_, inner) = text.rsplit_once('[')?;
    let inner = inner.split(']').next()?.trim();
    inner.contains(':').then(|| inner.to_owned())
}

/// Reads the register with the address of the instruction. Returns its function, `None` inside
/// if that is of a program.
pub(super) fn register(text: &str) -> Option<Option<String>> {
    if let Some(word) = text.strip_prefix("[exception RIP: ") {
        return Some(Some(plain_function(word.trim_end_matches(']')).to_owned()));
    }
    let rest = [
        "RIP: ",
        "RIP ",
        "EIP: ",
        "EIP is at ",
        "pc : ",
        "NIP ",
        "epc : ",
        "PC is at ",
        "Krnl PSW :",
    ]
    .iter()
    .find_map(|name| text.strip_prefix(name))?;
    if rest.starts_with("0033:") {
        return Some(None);
    }
    let word = rest.split_whitespace().find(|word| word.contains("+0x"))?;
    let word = word
        .trim_start_matches("0010:")
        .trim_start_matches("e030:")
        .trim_matches(['(', ')', '[', ']']);
    Some(Some(plain_function(word).to_owned()))
}

/// Reads the task of a line `java   D ffff8800 0  4211  1 0x00000000`.
pub(super) fn task_of(text: &str) -> Option<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let state = words.get(1).is_some_and(|word| ["D", "R", "S"].contains(word));
    let pid =
        words.get(3..6)?.iter().find_map(|word| word.parse::<u32>().ok().filter(|n| *n > 1))?;
    (state && words.len() >= 5).then(|| format!("{}:{pid}", words[0]))
}

/// Reads `2 locks held by java/4211:`.
pub(super) fn holds(text: &str) -> Option<String> {
    let (count, task) = text.trim().split_once(" held by ")?;
    let plural = count.ends_with(" locks") || count.ends_with(" lock");
    let (name, pid) = task.trim_end_matches([':', '.']).rsplit_once('/')?;
    plural.then(|| format!("{name}:{pid}"))
}

/// Reads `#0: ffff8881 (&mm->mmap_lock){++++}-{3:3}, at: do_mprotect_pkey+0x5/0x10`.
pub(super) fn held(text: &str) -> Option<String> {
    let text = text.trim();
    let lock = text.strip_prefix('#')?.split_once('(')?.1;
    let end = lock.find("){")?;
    Some(lock[..end].to_owned())
}

/// Reads `INFO: task a:1 is blocked on a mutex likely owned by task b:2.`
pub(super) fn owner(text: &str) -> Option<String> {
    let rest = after(text, " likely owned by task ")
        .or_else(|| after(text, " likely last held by task "))?;
    Some(rest.split_whitespace().next()?.trim_end_matches('.').to_owned())
}

/// Beginnings of other lines of a report.
const OTHER: [&str; 41] = [
    "task_flags:",
    "flags:0x",
    "stack:",
    "pid:",
    "tgid:",
    "ppid:",
    "Call Trace",
    "Call trace",
    "call trace",
    "Backtrace:",
    "Modules linked in",
    "Hardware name",
    "Code:",
    "RSP:",
    "RAX:",
    "RDX:",
    "RBP:",
    "R10:",
    "R13:",
    "FS:",
    "CS:",
    "CR2:",
    "DR0:",
    "DR3:",
    "PKRU:",
    "ORIG_RAX",
    "Not tainted",
    "Tainted:",
    "\"echo 0 >",
    "Workqueue:",
    "Sending NMI",
    "NMI",
    "rcu:",
    "irq event stamp",
    "hardirqs last",
    "softirqs last",
    "Stack:",
    "pstate:",
    "lr :",
    "LR ",
    "sp :",
];

/// Returns whether a line without a frame is of a report.
pub(super) fn is_other(text: &str) -> bool {
    let text = text.trim();
    let register = text.split_once(':').is_some_and(|(name, rest)| {
        let value = rest.split_whitespace().next().unwrap_or("");
        let letters = name.starts_with(|c: char| c.is_ascii_alphabetic());
        letters
            && name.len() <= 5
            && value.len() >= 8
            && value.bytes().all(|byte| byte.is_ascii_hexdigit())
    });
    // A frame of PowerPC without a function.
    let unnamed = text.starts_with('[') && text.ends_with("(unreliable)");
    // Words of the stack, in kernels before 4.8.
    let mut words = text.split_whitespace().peekable();
    let is_word = |word: &str| {
        matches!(word.len(), 8 | 16) && word.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let dumped = words.peek().is_some() && words.all(is_word);
    dumped
        || is_memory(text)
        || register
        || unnamed
        || OTHER.iter().any(|begin| text.starts_with(begin))
        || text.starts_with("x2")
}
