//! Names of functions on the stacks of Linux.

/// Functions on every path to a lock and to its release, and those of the tracepoint or of the
/// program that records it. All other functions that begin with one of these names implement locks,
/// too.
const LOCKING: [&str; 48] = [
    "native_queued_spin_lock_slowpath",
    "queued_",
    "__pv_queued_spin_lock_slowpath",
    "__raw_spin_lock",
    "__raw_callee_save___pv_queued_spin",
    "_raw_spin_lock",
    "_raw_read_lock",
    "_raw_write_lock",
    "do_raw_spin_lock",
    "pv_hybrid_queued",
    "rwsem_",
    "down_read",
    "down_write",
    "__down_",
    "mutex_lock",
    "mutex_spin_on_owner",
    "__mutex_lock",
    "osq_lock",
    "rt_spin_lock",
    "rtlock_slowlock",
    "rt_mutex_slowlock",
    "lock_acquire",
    "lock_contended",
    "__lock_text_start",
    "percpu_down_read",
    "__percpu_down_read",
    "percpu_rwsem_wait",
    "queue_spin_lock_slowpath",
    "__ticket_spin_lock",
    "native_queued_spin_unlock",
    "pv_queued_spin_unlock",
    "_raw_spin_unlock",
    "_raw_read_unlock",
    "_raw_write_unlock",
    "do_raw_spin_unlock",
    "rt_spin_unlock",
    "up_read",
    "up_write",
    "__up_",
    "mutex_unlock",
    "__mutex_unlock",
    "percpu_up_",
    "__percpu_up_",
    "contention_begin",
    "perf_trace_",
    "schedule_preempt_disabled",
    "ftrace_",
    "preempt_count_",
];

/// Frames of tracepoints and of BPF programs.
const TRACING: [&str; 5] = ["bpf_", "__bpf_", "trace_", "__traceiter_", "__cfi_"];

/// Removes what compilers and tools add to the name of a function: `.isra.0`, `.part.0`,
/// `.constprop.0`, `.cold`, an offset (`+0x5f/0x100`), a module (` [ext4]`).
pub fn plain_function(name: &str) -> &str {
    let name = name.split_whitespace().next().unwrap_or("");
    let name = name.split_once('+').map_or(name, |(name, _)| name);
    name.split_once('.').map_or(name, |(name, _)| name)
}

/// Returns whether a frame of a stack is of a lock's implementation, of a tracepoint, or of a
/// program that records it.
pub fn is_locking(name: &str) -> bool {
    LOCKING.iter().any(|prefix| name.starts_with(prefix)) || is_tracing(name)
}

fn is_tracing(name: &str) -> bool {
    TRACING.iter().any(|prefix| name.starts_with(prefix))
}

/// Returns the path of a stack, from the outermost function to the one that requested the lock,
/// without the functions that implement locks. The frames are innermost first.
pub fn path_of<'a>(frames: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut path: Vec<String> = frames
        .into_iter()
        .map(plain_function)
        .skip_while(|name| is_locking(name))
        .filter(|name| !is_tracing(name))
        .map(str::to_owned)
        .collect();
    path.reverse();
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lose_suffixes_of_compilers_and_tools() {
        assert_eq!(plain_function("__page_cache_release.part.0+0x58"), "__page_cache_release");
        assert_eq!(plain_function("ext4_iget+0x1/0x100 [ext4]"), "ext4_iget");
        assert_eq!(plain_function(""), "");
    }

    #[test]
    fn a_stack_loses_its_locking_functions() {
        let stack = [
            "__traceiter_contention_begin+0x2f",
            "__pv_queued_spin_lock_slowpath+0x10e",
            "_raw_spin_lock_irqsave+0x4d",
            "folio_lruvec_lock_irqsave+0x5f",
            "__page_cache_release.part.0+0x58",
        ];
        assert_eq!(path_of(stack), ["__page_cache_release", "folio_lruvec_lock_irqsave"]);
        assert_eq!(path_of(["_raw_spin_lock"]), [""; 0]);
        let stack = [
            "pv_queued_spin_unlock_traced+0x3a",
            "_raw_spin_unlock_irqrestore+0x1d",
            "free_pcppages_bulk+0x1f0",
        ];
        assert_eq!(path_of(stack), ["free_pcppages_bulk"]);
    }
}
