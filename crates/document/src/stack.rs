//! Names of functions on the stacks of Linux.

/// Functions on every path to a lock and to its release, and those of the tracepoint or of the
/// program that records it. All other functions that begin with one of these names implement locks,
/// too.
const LOCKING: [&str; 90] = [
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
    "__rwsem_down_",
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
    "__rt_mutex_slowlock",
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
    "pv_queued_spin_lock",
    "pv_spin_lock",
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
    "ftrace_call",
    "ftrace_regs_c",
    "ftrace_graph_c",
    "ftrace_trampoline",
    "ftrace_stub",
    "preempt_count_",
    "queue_read_lock",
    "queue_write_lock",
    "__raw_read_lock",
    "__raw_write_lock",
    "native_queued_read",
    "native_queued_write",
    "call_rwsem_down",
    "__pv_queued",
    "pv_wait",
    "kvm_wait",
    "xen_qlock_wait",
    "hv_qlock_wait",
    "__spin_yield",
    "__pv_spin",
    "splpar_spin_yield",
    "spin_yield",
    "arch_spin_lock",
    "arch_write_lock",
    "arch_read_lock",
    "arch_mcs_spin",
    "mcs_spin_lock",
    "ticket_spin_lock",
    "virt_spin_lock",
    "osq_",
    "mutex_optimistic_spin",
    "__ww_mutex_lock",
    "ww_mutex_lock",
    "rwbase_",
    "rt_read_lock",
    "rt_write_lock",
    "do_raw_read_lock",
    "do_raw_write_lock",
    "lock_acquired",
    "_spin_lock",
];

/// Functions that wait for a semaphore, by their whole names: other functions begin as they do.
const SEMAPHORE: [&str; 6] =
    ["down", "__down", "___down_common", "down_interruptible", "down_killable", "down_timeout"];

/// Functions that release a semaphore, by their whole names.
const SEMAPHORE_UP: [&str; 2] = ["up", "__up"];

/// Functions with which a task gives up its CPU, above the lock for which it waits.
const SLEEPING: [&str; 17] = [
    "__schedule",
    "__schedule_loop",
    "schedule",
    "schedule_preempt_disabled",
    "schedule_rtlock",
    "schedule_timeout",
    "finish_task_switch",
    "context_switch",
    "__switch_to",
    "__switch_to_asm",
    "preempt_schedule",
    "preempt_schedule_common",
    "preempt_schedule_irq",
    "io_schedule",
    "perf_event_task_sched_out",
    "__perf_event_task_sched_out",
    "prepare_task_switch",
];

/// Frames of tracepoints and of BPF programs. Other functions of the tracer, and those that BPF
/// programs call, such as `bpf_lru_pop_free`, take locks themselves.
const TRACING: [&str; 18] = [
    "bpf_prog_",
    "bpf_trace_run",
    "bpf_trampoline",
    "bpf_dispatcher_",
    "bpf_get_stack",
    "bpf_overflow_handler",
    "bpf_raw_tp_",
    "bpf_perf_event",
    "__bpf_",
    "trace_contention",
    "trace_lock_",
    "trace_event_",
    "trace_call_bpf",
    "trace_preempt_",
    "trace_hardirqs_",
    "trace_irq_",
    "__traceiter_",
    "__cfi_",
];

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
    LOCKING.iter().any(|prefix| name.starts_with(prefix))
        || SEMAPHORE.contains(&name)
        || SEMAPHORE_UP.contains(&name)
        || is_tracing(name)
}

/// Returns whether a function waits for a semaphore, which counts and has no owner.
pub fn is_semaphore(name: &str) -> bool {
    let rwsem = ["__down_read", "__down_write"].iter().any(|prefix| name.starts_with(prefix));
    SEMAPHORE.contains(&name) || name.starts_with("__down_") && !rwsem
}

/// Returns whether a function requests a lock, so that a task in it may wait.
pub fn is_acquiring(name: &str) -> bool {
    let releases = name.contains("unlock")
        || ["up_", "__up_", "percpu_up_", "__percpu_up_"].iter().any(|up| name.starts_with(up));
    let other = ["ftrace_", "preempt_count_", "perf_trace_"];
    (SEMAPHORE.contains(&name) || LOCKING.iter().any(|prefix| name.starts_with(prefix)))
        && !releases
        && !is_sleeping(name)
        && !other.iter().any(|prefix| name.starts_with(prefix))
}

/// Returns whether a function gives up the CPU.
pub fn is_sleeping(name: &str) -> bool {
    SLEEPING.contains(&name)
}

/// Returns whether a frame is of a tracepoint or of a program that records it.
pub fn is_tracing(name: &str) -> bool {
    TRACING.iter().any(|prefix| name.starts_with(prefix))
}

/// Returns whether an interrupt or an exception enters the kernel with a function, or serves one.
fn is_interrupt(name: &str) -> bool {
    const PARTS: [&str; 9] =
        ["interrupt", "irq", "IRQ", "nmi", "sysvec", "intr", "fault", "exc_", "vector"];
    PARTS.iter().any(|part| name.contains(part))
}

/// The most innermost functions of a stack with unknown names above those of a lock.
const UNKNOWN: usize = 4;

/// Returns the number of the innermost frames of a stack that belong to a wait for a lock: those
/// of the lock, and those above it with which the task gave up its CPU or was traced. `None` if the
/// stack is of no wait. The frames are innermost first.
///
/// A tool may give the wrong name to a function, above all to the innermost one. So with `unknown`
/// a few functions of unknown names may be above those of the lock: a lock calls nothing else, and
/// an interrupt is known by its entry.
pub fn wait_frames<'a>(frames: impl IntoIterator<Item = &'a str>, unknown: bool) -> Option<usize> {
    let frames: Vec<&str> = frames.into_iter().collect();
    let above = frames.iter().position(|name| !is_tracing(name) && !is_sleeping(name))?;
    let hidden = frames[above..]
        .iter()
        .take_while(|name| !is_locking(name) && !is_sleeping(name) && !is_interrupt(name));
    let hidden = hidden.count();
    let lock = above + hidden;
    if !frames.get(lock).is_some_and(|name| is_acquiring(name)) {
        return None;
    }
    // A task that sleeps is switched by a function of a known name.
    let slept = frames[..above].iter().any(|name| is_sleeping(name));
    if hidden > 0 && (!unknown || slept || hidden > UNKNOWN || frames[lock] == "rwsem_wake") {
        return None;
    }
    let own = frames[lock..].iter().take_while(|name| is_locking(name) && !is_sleeping(name));
    let end = lock + own.count();
    // Without a caller the order of the frames may be the other one.
    (hidden == 0 || end < frames.len()).then_some(end)
}

/// Returns the function with which the path of a stack requests a lock: the outermost of those that
/// [`path_of`] leaves out. The frames are innermost first.
pub fn taken_through<'a>(frames: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let inner = frames.into_iter().map(plain_function).take_while(|name| is_locking(name));
    inner.last().filter(|name| !is_tracing(name))
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
    fn frames_of_unknown_names_hide_no_wait() {
        let slow = "__pv_queued_spin_lock_slowpath";
        let hidden = ["a_exit", "a_exit", "b_exit", slow, "_raw_spin_lock", "free_one_page"];
        assert_eq!(wait_frames(hidden, true), Some(5));
        assert_eq!(wait_frames(hidden, false), None);
        assert_eq!(wait_frames(["a_exit", slow, "_raw_spin_lock"], true), None, "no caller");
        let interrupt = ["tick_x", "asm_sysvec_apic_timer_interrupt", slow, "free_one_page"];
        assert_eq!(wait_frames(interrupt, true), None);
        assert_eq!(wait_frames(["a_b", "_raw_spin_unlock", slow, "c_d"], true), None);
        let switched = ["a_b", "__schedule", "schedule", "rwsem_down_read_slowpath", "c_d"];
        assert_eq!(wait_frames(switched, true), None, "work of the scheduler");
    }

    #[test]
    fn a_lock_may_be_taken_by_the_scheduler() {
        let sleeps = ["__schedule", "schedule", "rwsem_down_read_slowpath", "down_read", "a_b"];
        assert_eq!(wait_frames(sleeps, false), Some(4));
        let spins = ["_raw_spin_lock", "__schedule", "schedule", "down_read", "a_b"];
        assert_eq!(wait_frames(spins, false), Some(1));
    }

    #[test]
    fn functions_of_bpf_programs_take_locks() {
        let program = ["bpf_prog_0a1b_x", "bpf_trace_run2", "__traceiter_contention_begin"];
        let lock = ["native_queued_spin_lock_slowpath", "_raw_spin_lock_irqsave"];
        let rest = ["bpf_lru_pop_free", "htab_lru_map_update_elem", "bpf_prog_0a1b_y"];
        let all: Vec<&str> = program.iter().chain(&lock).chain(&rest).copied().collect();
        assert_eq!(wait_frames(all.iter().copied(), false), Some(5));
        assert_eq!(path_of(all).last().map(String::as_str), Some("bpf_lru_pop_free"));
    }

    #[test]
    fn semaphores_are_locks() {
        let stack = ["__schedule", "schedule_timeout", "__down_common", "__down", "down", "a_get"];
        assert_eq!(wait_frames(stack, false), Some(5));
        assert_eq!(path_of(["__down", "down", "a_get"]), ["a_get"]);
        let old = ["__rwsem_down_read_failed_common", "call_rwsem_down_read_failed", "down_read"];
        let old = ["__schedule", "schedule"].into_iter().chain(old).chain(["rmap_walk_file"]);
        assert_eq!(wait_frames(old, false), Some(5));
        assert!(is_semaphore("__down_common") && !is_semaphore("__down_read_common"));
        assert!(!is_locking("download") && !is_acquiring("up"));
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
        assert_eq!(taken_through(stack), Some("_raw_spin_lock_irqsave"));
        assert_eq!(taken_through(["do_exit"]), None);
        assert_eq!(path_of(["_raw_spin_lock"]), [""; 0]);
        let stack = [
            "pv_queued_spin_unlock_traced+0x3a",
            "_raw_spin_unlock_irqrestore+0x1d",
            "free_pcppages_bulk+0x1f0",
        ];
        assert_eq!(path_of(stack), ["free_pcppages_bulk"]);
    }
}
