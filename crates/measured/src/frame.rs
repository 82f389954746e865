//! A frame of a stack.

use std::ops::Range;

use mmscale_document::{is_acquiring, plain_function};

use crate::text::{Line, Word};

/// A frame.
pub(crate) struct Frame {
    /// The function; several if the text gives alternatives with slashes between them.
    pub(crate) names: Vec<String>,
    /// The column of the name.
    pub(crate) column: usize,
    /// Whether it has an offset.
    pub(crate) offset: bool,
    /// Whether the kernel is sure of it: no question mark, and not `(unreliable)`.
    pub(crate) sure: bool,
    /// Whether the place in the source follows: `mm/swap.c:512`.
    pub(crate) place: bool,
}

/// Reads a line with a frame and nothing else.
pub(crate) fn frame(line: &Line) -> Option<Frame> {
    let words = line.words();
    let is_address = |text: &str| {
        let hex = text.trim_start_matches('[').trim_start_matches('<');
        let hex = hex.trim_end_matches(']').trim_end_matches('>').trim_start_matches("0x");
        let long = hex.len() >= 8 || text.starts_with("[<") && text.ends_with(">]");
        long && hex.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let (mut rest, mut sure): (&[Word<'_>], bool) = (&words, true);
    while let [first, more @ ..] = rest
        && (matches!(first.text, "?" | "=>" | "at")
            || is_address(first.text)
            || is_ordinal(first.text))
    {
        sure &= first.text != "?";
        rest = more;
    }
    let (name, after) = rest.split_first()?;
    let (after, from) = without_caller(after);
    // `crash` has the address of the instruction behind the function: `f at ffffffff81234567`.
    let (after, at) = match after {
        [at, address, more @ ..] if at.text == "at" && is_address(address.text) => (more, true),
        _ => (after, false),
    };
    let module = |word: &Word<'_>| word.text.starts_with(['[', '(', '<']);
    let place = after.first().is_some_and(|word| is_place(word.text));
    // Authors write remarks behind a frame of `crash`, whose form no sentence has.
    let is_crash = at && words.first().is_some_and(|word| is_ordinal(word.text));
    let is_plain = after[usize::from(place)..].iter().all(module) || is_crash;
    if !is_plain || name.text.len() < 3 {
        return None;
    }
    sure &= after.iter().all(|word| word.text != "(unreliable)");
    let text = name.text.strip_prefix("b'").map_or(name.text, |name| name.trim_end_matches('\''));
    // An author wrote a frame by hand: `f_0x10/0x20`.
    let typed = text.contains("/0x") && !text.contains('+');
    let typed = typed.then(|| text.replacen("_0x", "+0x", 1));
    let text = typed.as_deref().unwrap_or(text);
    let offset = text.contains('+') || at || from;
    // The code of a function on PowerPC.
    let text = text.strip_prefix('.').filter(|_| offset).unwrap_or(text);
    let text = if from { text.trim_matches(['(', ')']) } else { text };
    let mut names = Vec::new();
    for part in text.split('/').filter(|part| *part != "...") {
        let plain = plain_function(part);
        let is_function = plain.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && plain.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        // The size of the function after its offset.
        if is_function {
            names.push(plain.to_owned());
        } else if !part.starts_with("0x") {
            return None;
        }
    }
    (!names.is_empty()).then_some(Frame { names, column: name.column, offset, sure, place })
}

/// Returns whether a line is of the memory of a frame, as `crash` prints it with `bt -f`:
/// `ffff000060f2f970: ffff000060f2f990 ffff55d9323960f8`.
pub(crate) fn is_memory(text: &str) -> bool {
    let is_word = |word: &str| word.len() == 16 && word.bytes().all(|b| b.is_ascii_hexdigit());
    let Some((address, rest)) = text.trim().split_once(':') else { return false };
    // Authors and `crash` write in brackets what a word is.
    let first = rest.split_whitespace().next().map(|word| word.split('[').next().unwrap_or(word));
    is_word(address) && first.is_some_and(|word| is_word(word) || word.is_empty())
}

/// Returns whether a function takes a lock for which tasks sleep, and waits only in functions that
/// it calls.
pub(crate) fn is_fast_path(name: &str) -> bool {
    const FAST: [&str; 6] =
        ["down_read", "down_write", "mutex_lock", "down_read_", "down_write_", "mutex_lock_"];
    const SUFFIXES: [&str; 5] = ["", "killable", "interruptible", "nested", "io"];
    let is = |fast: &&str| name.strip_prefix(*fast).is_some_and(|end| SUFFIXES.contains(&end));
    FAST.iter().any(is)
}

/// Returns whether a function takes a spin lock that is free, where another one waits for it.
pub(crate) fn is_fast_spin(name: &str) -> bool {
    const FAST: [&str; 6] = [
        "_raw_spin_lock",
        "__raw_spin_lock",
        "do_raw_spin_lock",
        "_raw_read_lock",
        "_raw_write_lock",
        "_spin_lock",
    ];
    FAST.iter().any(|fast| name.starts_with(fast)) && !name.contains("slow")
}

/// Returns whether a line is of the registers at an exception, as `crash` prints them in a stack.
pub(crate) fn is_registers(text: &str) -> bool {
    let mut words = text.split_whitespace();
    let Some((name, value)) = words.next().zip(words.next()) else { return false };
    let is_name = name.ends_with(':') && name.starts_with(|c: char| c.is_ascii_uppercase());
    let is_value = value.len() >= 4 && value.bytes().all(|byte| byte.is_ascii_hexdigit());
    name == "[exception" || is_name && is_value
}

/// The context of the frames after a mark of a stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mark {
    /// They are of a non-maskable interrupt or of a double fault, which print stacks.
    Nmi,
    /// They are of what such an interrupt interrupted.
    NmiEnd,
    /// They are of another context.
    Context,
}

/// Splits the mark of a context from the beginning of a line: a frame may follow it.
pub(crate) fn mark(text: &str) -> Option<(Mark, &str)> {
    const MARKS: [(&str, Mark); 15] = [
        ("<NMI>", Mark::Nmi),
        ("<#DF>", Mark::Nmi),
        ("</NMI>", Mark::NmiEnd),
        ("</#DF>", Mark::NmiEnd),
        ("<<EOE>>", Mark::NmiEnd),
        ("<EOE>", Mark::NmiEnd),
        ("<IRQ>", Mark::Context),
        ("</IRQ>", Mark::Context),
        ("<SOFTIRQ>", Mark::Context),
        ("</SOFTIRQ>", Mark::Context),
        ("<<EOI>>", Mark::Context),
        ("<EOI>", Mark::Context),
        ("<TASK>", Mark::Context),
        ("</TASK>", Mark::Context),
        ("<UNK>", Mark::Context),
    ];
    let text = text.trim();
    // `crash`: `--- <NMI exception stack> ---`.
    let is_stack = text.starts_with("--- <") && text.ends_with("> ---");
    let split = |(name, mark): &(&str, Mark)| Some((*mark, text.strip_prefix(name)?));
    MARKS.iter().find_map(split).or_else(|| is_stack.then_some((Mark::NmiEnd, "")))
}

/// Functions with which an interrupt enters the kernel: the next frame is of what it interrupted.
const ENTRIES: [&str; 22] = [
    "el1_irq",
    "el1h_64_irq",
    "el1t_64_irq",
    "el0_irq",
    "el0t_64_irq",
    "__irq_svc",
    "__irq_usr",
    "apic_timer_interrupt",
    "asm_sysvec_apic_timer_interrupt",
    "asm_sysvec_call_function_single",
    "asm_sysvec_call_function",
    "asm_sysvec_reschedule_ipi",
    "asm_common_interrupt",
    "asm_call_irq_on_stack",
    "common_interrupt",
    "ret_from_intr",
    "end_repeat_nmi",
    "asm_exc_nmi",
    "reschedule_interrupt",
    "call_function_single_interrupt",
    "decrementer_common",
    "handle_exception",
];

/// Returns the number of the innermost frames that are of the interrupt that printed a stack, in a
/// stack without marks of contexts. The names are innermost first.
pub(crate) fn printed(names: &[&str]) -> usize {
    if !is_printed(names) {
        return 0;
    }
    let Some(last) = names.iter().rposition(|name| prints(name)) else { return 0 };
    let entry = names[last..].iter().position(|name| ENTRIES.contains(name));
    entry.map_or(0, |at| last + at + 1)
}

/// Returns whether frames are of a context that prints stacks: a function that prints them calls
/// none that takes a lock. The names are innermost first.
pub(crate) fn is_printed(names: &[&str]) -> bool {
    let first = names.iter().position(|name| prints(name));
    first.is_some_and(|first| !names[..first].iter().any(|name| is_acquiring(name)))
}

/// Functions that print a stack.
const PRINTING: [&str; 26] = [
    "dump_stack",
    "dump_stack_lvl",
    "__dump_stack",
    "show_stack",
    "show_regs",
    "nmi_cpu_backtrace",
    "nmi_cpu_backtrace_handler",
    "nmi_trigger_cpumask_backtrace",
    "arch_trigger_cpumask_backtrace",
    "watchdog_timer_fn",
    "watchdog_overflow_callback",
    "watchdog_hardlockup_check",
    "watchdog_hardlockup_check.cold",
    "rcu_dump_cpu_stacks",
    "print_cpu_stall",
    "rcu_sched_clock_irq",
    "rcu_check_callbacks",
    "sched_show_task",
    "panic",
    "hardlockup_panic",
    "__perf_event_overflow",
    "check_cpu_stall",
    "print_other_cpu_stall",
    "dump_cpu_task",
    "crash_nmi_callback",
    "machine_kexec",
];

/// Returns whether a function prints a stack, so that its context is not what the stack is about.
fn prints(name: &str) -> bool {
    PRINTING.contains(&name)
}

/// How far out the next function of a lock may be.
const STALE: usize = 6;

/// Returns the places of frames between two functions of one lock, in a stack of whose frames the
/// kernel is sure of none: a lock calls nothing else, so that they are left of other calls. The
/// names are innermost first.
pub(crate) fn stale(names: &[&str]) -> Range<usize> {
    let kind = |name: &str| {
        let kinds: [&[&str]; 3] = [&["mutex"], &["rwsem", "down_read", "down_write"], &["spin"]];
        let has = |parts: &&[&str]| parts.iter().any(|part| name.contains(part));
        kinds.iter().position(has).filter(|_| is_acquiring(name))
    };
    let first = names.iter().position(|name| kind(name).is_some()).unwrap_or(names.len());
    let own = names[first..].iter().take_while(|name| kind(name).is_some()).count();
    let inner = first + own;
    let outer = names[inner..].iter().take(STALE);
    let is_same = |name: &&str| first < names.len() && kind(name) == kind(names[first]);
    let last = outer.rev().position(is_same);
    let most = names.len().min(inner + STALE);
    last.map_or(inner..inner, |at| inner..most - 1 - at)
}

/// Returns the words behind a function, without the caller that ARM prints there: `f from
/// g+0x5/0x10`, `(f) from [<c0008000>] (g+0x5/0x10)`. The next frame is that of the caller. Returns
/// whether there was one, too.
fn without_caller<'a, 'b>(after: &'b [Word<'a>]) -> (&'b [Word<'a>], bool) {
    let at = after.iter().take(2).position(|word| word.text == "from");
    let caller = at.and_then(|at| after.get(at + 1..));
    let is_caller = caller.is_some_and(|words| {
        words.len() <= 3 && words.iter().any(|word| word.text.contains("+0x"))
    });
    match at {
        Some(at) if is_caller => (&after[..at], true),
        _ => (after, false),
    }
}

/// Returns whether a word is a place in the source of a kernel: `mm/swap.c:512`.
fn is_place(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(file, line)| {
        let kinds = [".c", ".h", ".S", ".rs"];
        !line.is_empty()
            && line.bytes().all(|byte| byte.is_ascii_digit())
            && kinds.iter().any(|kind| file.ends_with(kind))
    })
}

/// Returns whether a word numbers a frame: `#3`, `3)`.
fn is_ordinal(text: &str) -> bool {
    let digits = text.trim_start_matches('#').trim_end_matches([')', ':']);
    digits.len() < text.len()
        && !digits.is_empty()
        && digits.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::lines;

    fn of(text: &str) -> Option<(String, bool)> {
        frame(&lines(text)[0]).map(|frame| (frame.names.join("/"), frame.offset))
    }

    #[test]
    fn the_interrupt_that_prints_is_left_out() {
        let stack = ["dump_backtrace", "sched_show_task", "dump_cpu_task", "tick_a", "el1_irq"];
        assert_eq!(printed(&[&stack[..], &["_raw_spin_lock", "a_b"]].concat()), 5);
        assert_eq!(printed(&["_raw_spin_lock", "a_b", "el1_irq", "c_d"]), 0, "it waits itself");
        assert_eq!(printed(&["dump_stack", "a_b"]), 0, "no interrupt");
        let remark = "#7 [ffff94cfbf2cf828] a_cap at ffffffffc1ac1366 [ceph]------here we wait";
        assert_eq!(of(remark), Some(("a_cap".to_owned(), true)));
        assert_eq!(mark("--- <NMI exception stack> ---"), Some((Mark::NmiEnd, "")));
    }

    #[test]
    fn a_mark_may_have_a_frame() {
        assert_eq!(mark("  <EOE>  [<ffffffff8b5d4df8>] a_b+0x1/0x2"), {
            Some((Mark::NmiEnd, "  [<ffffffff8b5d4df8>] a_b+0x1/0x2"))
        });
        assert_eq!(mark(" <NMI>"), Some((Mark::Nmi, "")));
        assert_eq!(mark("<a@b.example>"), None);
    }

    #[test]
    fn frames_between_functions_of_a_lock_are_stale() {
        let all =
            ["schedule", "__mutex_lock_common", "_atomic_dec_and_lock", "b_c", "mutex_lock", "d_e"];
        assert_eq!(stale(&all), 2..4);
        assert!(stale(&["__mutex_lock_common", "mutex_lock", "b_c", "d_e"]).is_empty());
        assert!(stale(&["mutex_lock", "b_c", "down_read", "d_e"]).is_empty(), "another lock");
        assert!(stale(&["a_b"]).is_empty() && stale(&[]).is_empty());
    }

    #[test]
    fn frames_of_crash_and_of_arm_have_one_function() {
        let known = |name: &str| Some((name.to_owned(), true));
        let crash = " #4 [ffffa6226fb4bc70] native_queued_spin_lock_slowpath at ffffffff99cd4b7e";
        assert_eq!(of(crash), known("native_queued_spin_lock_slowpath"));
        let module = "#5 [ffffa6226fb4bc70] ext4_iget at ffffffffc0cd4b7e [ext4]";
        assert_eq!(of(module), known("ext4_iget"));
        assert_eq!(of("[<807762c0>] (__schedule) from [<80776938>] (schedule+0x50/0xa8)"), {
            known("__schedule")
        });
        let module = "[<7f4ba618>] (fuse_writepages [fuse]) from [<8022e284>] (do_writepages+0x30)";
        assert_eq!(of(module), known("fuse_writepages"));
        assert_eq!(of(" rwsem_down_write_slowpath from down_write+0x60/0x80"), {
            known("rwsem_down_write_slowpath")
        });
        assert_eq!(of("patch_one from me"), None);
        assert_eq!(of("look_at at noon"), None);
    }
}
