//! The direction of a call tree.

use mmscale_document::{is_acquiring, is_sleeping};

/// Functions and the beginnings of functions from which the kernel or a program is entered.
const OUTERMOST: [&str; 26] = [
    "entry_SYSCALL",
    "do_syscall_64",
    "x64_sys_call",
    "asm_exc_page_fault",
    "asm_sysvec",
    "asm_common_interrupt",
    "ret_from_fork",
    "kthread",
    "el0_sync",
    "el0t_64",
    "el0_svc",
    "system_call",
    "tracesys",
    "__libc_start",
    "_start",
    "main",
    "start_thread",
    "clone",
    "__GI_",
    "secondary_startup",
    "start_secondary",
    "page_fault",
    "__do_softirq",
    "system_call_fastpath",
    "vfork",
    "child_rip",
];

/// Returns a positive number if the first functions of paths are the innermost, so that callers
/// follow, and a negative one if they are the outermost. `sampled` is the function of the row.
pub(super) fn votes(sampled: Option<&str>, paths: &[Vec<&str>]) -> i64 {
    paths.iter().map(|path| vote(sampled, path)).sum()
}

/// Returns whether a function of a lock spins.
pub(super) fn is_spinning(name: &str) -> bool {
    depth(name).is_some_and(|depth| depth > 2)
}

/// Returns a positive number if a path begins with the innermost function.
fn vote(sampled: Option<&str>, path: &[&str]) -> i64 {
    let named: Vec<&str> = path.iter().copied().filter(|name| !name.is_empty()).collect();
    let (Some(first), Some(last)) = (named.first(), named.last()) else { return 0 };
    if named.len() == 1 {
        return 0;
    }
    let mut votes = 0;
    if let Some(sampled) = sampled {
        votes += 4 * (i64::from(*first == sampled) - i64::from(*last == sampled));
    }
    let outermost = |name: &str| OUTERMOST.iter().any(|outer| name.starts_with(outer));
    votes += 2 * (i64::from(outermost(last)) - i64::from(outermost(first)));
    votes += 3 * (i64::from(is_inner(first)) - i64::from(is_inner(last)));
    // A function that spins is below the one that takes the lock.
    for pair in named.windows(2) {
        let depths = (depth(pair[0]), depth(pair[1]));
        if let (Some(a), Some(b)) = depths {
            votes += i64::from(a > b) - i64::from(a < b);
        }
        let scheduled = |caller, callee| i64::from(is_scheduled(caller, callee));
        votes += 4 * (scheduled(pair[1], pair[0]) - scheduled(pair[0], pair[1]));
    }
    votes
}

/// Returns whether the scheduler calls a function: each of its own callers has a name of it.
fn is_scheduled(caller: &str, callee: &str) -> bool {
    caller == "__schedule" && !callee.contains("sched") && callee != "do_task_dead"
}

fn is_inner(name: &str) -> bool {
    is_acquiring(name) || is_sleeping(name)
}

/// Returns how deep a function is within the implementation of locks.
fn depth(name: &str) -> Option<u8> {
    let has = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    match () {
        () if !is_acquiring(name) => is_sleeping(name).then_some(4),
        () if has(&["osq_lock", "spin_on_owner", "mcs_spin"]) => Some(4),
        () if has(&["optimistic_spin"]) => Some(3),
        () if has(&["slowpath", "slowlock", "do_raw_", "_down_"]) => Some(2),
        () => Some(1),
    }
}
