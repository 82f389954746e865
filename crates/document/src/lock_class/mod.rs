//! Lock classes of Linux, in one table: the functions that take a lock of the class, its names, and
//! its counterpart in the simulated memory manager.
//!
//! The live kernel reports the address of a lock, and most tools report the function that waited.
//! So the call path determines the class, or the lock's name where a tool reports it. A row is
//! added here, and nowhere else, when a lock gets a name.

mod several;
mod table;

use Counterpart::Unknown;
use several::candidates;
pub use table::LOCK_CLASSES;

/// The counterpart of a lock class in the simulated memory manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counterpart {
    /// A lock class of the simulator, by its name there.
    Class(&'static str),
    /// None: a row of the table of locks that are not simulated, by its name there.
    Gap(&'static str),
    /// None, and no call of a program reaches it in the table of locks that are not simulated.
    Unknown,
}

/// A class of locks of Linux.
#[derive(Clone, Copy, Debug)]
pub struct LockClassRow {
    /// The name of the class in documents.
    pub class: &'static str,
    /// The counterpart in the simulated memory manager.
    pub counterpart: Counterpart,
    /// Names of the lock in Linux, as lockdep and mails write them, without `&` and suffixes.
    pub names: &'static [&'static str],
    /// Functions that take it.
    pub functions: &'static [&'static str],
}

/// System calls that take an mmap_lock themselves. The names of their functions have prefixes that
/// depend on the architecture and the version: `__x64_sys_brk`, `__do_sys_brk`, `SyS_brk`.
const MMAP_CALLS: [&str; 26] = [
    "brk",
    "mmap",
    "mmap2",
    "mmap_pgoff",
    "uselib",
    "mremap",
    "munmap",
    "mprotect",
    "pkey_mprotect",
    "madvise",
    "process_madvise",
    "process_mrelease",
    "mlock",
    "mlock2",
    "mlockall",
    "munlock",
    "munlockall",
    "msync",
    "mincore",
    "mbind",
    "mseal",
    "remap_file_pages",
    "shmat",
    "shmdt",
    "map_shadow_stack",
    "set_mempolicy_home_node",
];

/// Prefixes of the functions of system calls.
const CALL_PREFIXES: [&str; 12] = [
    "__x64_sys_",
    "__ia32_sys_",
    "__arm64_sys_",
    "__riscv_sys_",
    "__s390x_sys_",
    "__se_sys_",
    "__do_sys_",
    "__loongarch_sys_",
    "SyS_",
    "SYSC_",
    "ksys_",
    "sys_",
];

/// Functions that take a lock for their caller: a waiter's lock is that of the first function
/// outside of them. Most are inlined.
const WRAPPERS: [&str; 53] = [
    "spin_lock",
    "spin_lock_bh",
    "spin_lock_irq",
    "spin_lock_irqsave",
    "spin_lock_nested",
    "raw_spin_lock",
    "raw_spin_lock_irqsave",
    "read_lock",
    "read_lock_irq",
    "read_lock_irqsave",
    "write_lock",
    "write_lock_irq",
    "write_lock_irqsave",
    "compact_lock_irqsave",
    "compact_checklock_irqsave",
    "compact_trylock_irqsave",
    "compact_unlock_should_abort",
    "percpu_counter_add",
    "percpu_counter_add_batch",
    "__percpu_counter_add",
    "__percpu_counter_sum",
    "percpu_counter_sum",
    "percpu_counter_sum_positive",
    "__percpu_counter_compare",
    "percpu_counter_set",
    "atomic_dec_and_lock",
    "_atomic_dec_and_lock",
    "_atomic_dec_and_lock_irqsave",
    "_atomic_dec_and_raw_lock",
    "_atomic_dec_and_raw_lock_irqsave",
    "refcount_dec_and_lock",
    "refcount_dec_and_lock_irqsave",
    "refcount_dec_and_mutex_lock",
    "xa_lock_irq",
    "xas_lock_irq",
    "class_spinlock_constructor",
    "class_spinlock_irqsave_constructor",
    "class_raw_spinlock_constructor",
    "class_raw_spinlock_irqsave_constructor",
    "class_mutex_constructor",
    "class_rwsem_read_constructor",
    "class_rwsem_write_constructor",
    "__wake_up",
    "__wake_up_common_lock",
    "__wake_up_sync_key",
    "__wake_up_locked_key",
    "add_wait_queue",
    "add_wait_queue_exclusive",
    "remove_wait_queue",
    "prepare_to_wait",
    "prepare_to_wait_event",
    "prepare_to_wait_exclusive",
    "finish_wait",
];

/// The kind of a lock, as far as tools report it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LockKind {
    /// A spin lock.
    Spin,
    /// A reader-writer lock, whose waiters spin.
    Rwlock,
    /// A reader-writer semaphore.
    Rwsem,
    /// A mutex.
    Mutex,
    /// A semaphore that counts.
    Semaphore,
    /// A reader-writer semaphore with a counter for each CPU.
    PercpuRwsem,
    /// Another or an unknown kind.
    Other,
}

/// Classes of the table that are reader-writer semaphores, other than mmap_lock.
const RWSEMS: [&str; 5] = ["anon_vma", "i_mmap", "i_rwsem", "invalidate_lock", "s_umount"];

/// The only semaphore of the table that has a counter for each CPU.
const THREADGROUP: &str = "threadgroup";

/// The class of locks that are in no row of the table.
pub const OTHER_CLASS: &str = "other";

/// Classes of the table that are reader-writer locks.
const RWLOCKS: [&str; 3] = ["tasklist", "mpol", "ep"];

/// The class of the semaphores that protect an address space.
const MMAP_LOCK: &str = "mmap_lock";

/// Returns whether locks of a class are of a kind, as far as the kind is known.
fn fits(class: &str, kind: LockKind) -> bool {
    let rwsem = RWSEMS.contains(&class) || class == MMAP_LOCK || class == "vma_lock";
    let rwlock = RWLOCKS.contains(&class);
    match kind {
        LockKind::Spin => !rwsem && class != THREADGROUP && (!rwlock || class == "ep"),
        LockKind::Rwlock => rwlock,
        LockKind::Rwsem => rwsem,
        LockKind::Mutex => class == "pcpu",
        LockKind::Semaphore => false,
        LockKind::PercpuRwsem => class == THREADGROUP,
        // Tools that do not report the kind see sleeping locks only.
        LockKind::Other => rwsem || class == "pcpu" || class == THREADGROUP,
    }
}

/// Returns the class of the lock that a task waited for, by its call path, outermost function
/// first, without the functions that implement locks. The innermost function decides, because a
/// function further out takes other locks, too: only [`WRAPPERS`] are passed over. So a function
/// that is in no row is never given the lock of its caller.
pub fn class_of(path: &[String], kind: LockKind) -> &'static str {
    let taker = path.iter().rev().find(|step| !WRAPPERS.contains(&step.as_str()));
    let row = taker.and_then(|taker| {
        let takes = |row: &&LockClassRow| {
            fits(row.class, kind)
                && (row.functions.contains(&taker.as_str())
                    || row.class == MMAP_LOCK && is_call(taker, &MMAP_CALLS))
        };
        LOCK_CLASSES.iter().find(takes)
    });
    match (row, kind) {
        (Some(row), _) => row.class,
        (None, LockKind::Mutex) => "mutex",
        (None, LockKind::PercpuRwsem) => "percpu_rwsem",
        (None, LockKind::Rwsem) => "rwsem",
        (None, LockKind::Semaphore) => "semaphore",
        (None, LockKind::Spin | LockKind::Rwlock | LockKind::Other) => OTHER_CLASS,
    }
}

/// Returns the class of the lock that a path requests with a function of the lock (`through`), if
/// that is known, and a name if no class has it. A function that takes several such locks
/// determines none: the name is then that of each.
pub fn lock_of(
    path: &[String],
    kind: LockKind,
    through: Option<&str>,
) -> (&'static str, Option<String>) {
    match path.last().map_or(vec![], |taker| candidates(taker, kind, through)).as_slice() {
        [] => (class_of(path, kind), None),
        [one] => match class_of_name(one) {
            Some(class) => (class, None),
            None => (OTHER_CLASS, Some((*one).to_owned())),
        },
        several => {
            let class = if kind == LockKind::Rwsem { "rwsem" } else { OTHER_CLASS };
            (class, Some(several.join(" or ")))
        }
    }
}

/// Returns whether a function is one of the system calls with these names.
fn is_call(function: &str, calls: &[&str]) -> bool {
    let name = CALL_PREFIXES.iter().find_map(|prefix| function.strip_prefix(prefix));
    name.is_some_and(|name| calls.contains(&name))
}

/// Returns the class of a lock by its name in Linux, as lockdep prints it (`&zone->lock`,
/// `&mm->mmap_lock-R`, `ptlock_ptr(ptdesc)#2`).
pub fn class_of_name(name: &str) -> Option<&'static str> {
    let plain = plain_lock_name(name);
    LOCK_CLASSES.iter().find(|row| row.names.contains(&plain)).map(|row| row.class)
}

/// Removes the parts of a lock's name that do not distinguish locks: `&`, the parentheses that old
/// versions write, the number of a subclass, the side of a reader-writer lock.
fn plain_lock_name(name: &str) -> &str {
    let name = name.trim();
    let name = name.strip_suffix("-R").or_else(|| name.strip_suffix("-W")).unwrap_or(name);
    let name = name.strip_suffix("->rlock").unwrap_or(name);
    let name = name.split_once('#').map_or(name, |(name, _)| name);
    let name = name.split_once('/').map_or(name, |(name, _)| name);
    let name = name.trim_start_matches(['&', '(']);
    if name.contains('(') { name } else { name.trim_end_matches(')') }
}

/// Returns the counterpart of a class in the simulated memory manager.
pub fn counterpart(class: &str) -> Counterpart {
    LOCK_CLASSES.iter().find(|row| row.class == class).map_or(Unknown, |row| row.counterpart)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(steps: &[&str]) -> Vec<String> {
        steps.iter().map(|&step| step.to_owned()).collect()
    }

    #[test]
    fn an_unknown_function_is_not_given_the_lock_of_its_caller() {
        let of = |steps: &[&str]| class_of(&path(steps), LockKind::Spin);
        let steps = ["unmap_page_range", "zap_pte_range", "folio_remove_rmap_ptes", "a_new_one"];
        assert_eq!(of(&steps), OTHER_CLASS);
        assert_eq!(of(&["copy_process", "__vmalloc_node_range", "alloc_vmap_area"]), "vmap");
        assert_eq!(of(&["isolate_migratepages_block", "compact_lock_irqsave"]), "lruvec");
        assert_eq!(of(&["isolate_freepages_block", "compact_lock_irqsave"]), "zone");
        assert_eq!(of(&["__vm_enough_memory", "percpu_counter_add_batch"]), "committed");
        assert_eq!(of(&["ext4_x", "percpu_counter_add_batch"]), OTHER_CLASS);
        let of = |steps: &[&str]| class_of(&path(steps), LockKind::Rwsem);
        assert_eq!(of(&["do_syscall_64", "__x64_sys_brk"]), "mmap_lock");
        assert_eq!(of(&["do_user_addr_fault", "handle_mm_fault", "a_new_one"]), "rwsem");
        for old in ["sys_mmap_pgoff", "SyS_mmap_pgoff", "sys_mmap", "sys32_mmap2", "do_mmap2"] {
            assert_eq!(of(&["system_call_fastpath", old]), "mmap_lock", "{old}");
        }
        assert_eq!(class_of(&path(&["xfs_buf_lock"]), LockKind::Semaphore), "semaphore");
    }

    #[test]
    fn a_function_of_several_locks_determines_none() {
        let of = |steps: &[&str], kind, through| {
            let (class, lock) = lock_of(&path(steps), kind, through);
            (class, lock.unwrap_or_default())
        };
        let fork = ["copy_process", "dup_mmap"];
        let both = "i_mmap_rwsem or mmap_lock".to_owned();
        assert_eq!(of(&fork, LockKind::Rwsem, None), ("rwsem", both));
        let killable = of(&fork, LockKind::Rwsem, Some("down_write_killable"));
        assert_eq!(killable, ("mmap_lock", String::new()));
        let switch = ["schedule", "__schedule"];
        let through = Some("_raw_spin_lock_irq");
        assert_eq!(of(&switch, LockKind::Spin, through), ("runqueue", String::new()));
        assert_eq!(of(&switch, LockKind::Spin, Some("_raw_spin_lock")).0, OTHER_CLASS);
        let one = of(&["exit_mmap", "unmap_page_range"], LockKind::Spin, None);
        assert_eq!(one, ("pte", String::new()));
    }

    #[test]
    fn the_function_that_takes_the_lock_decides() {
        let of = |steps: &[&str], kind| class_of(&path(steps), kind);
        let tick = ["vmstat_update", "decay_pcp_high", "free_pcppages_bulk"];
        assert_eq!(of(&tick, LockKind::Spin), "zone");
        let drain = ["vm_mmap_pgoff", "lru_add_drain_cpu", "folio_batch_move_lru"];
        assert_eq!(of(&drain, LockKind::Spin), "lruvec");
        assert_eq!(of(&["exit_mmap", "unmap_vmas", "unmap_page_range"], LockKind::Spin), "pte");
        assert_eq!(of(&["do_exit", "exit_mmap"], LockKind::Rwsem), "mmap_lock");
        assert_eq!(of(&["dup_mmap", "anon_vma_fork"], LockKind::Rwsem), "anon_vma");
        assert_eq!(of(&["exit_mmap", "free_pgtables"], LockKind::Rwsem), "i_mmap");
        assert_eq!(of(&["ext4_iget"], LockKind::Rwsem), "rwsem");
        assert_eq!(of(&["free_pcppages_bulk"], LockKind::Mutex), "mutex");
        assert_eq!(of(&["mm_init", "pcpu_alloc_noprof"], LockKind::Mutex), "pcpu");
    }

    #[test]
    fn a_semaphore_of_another_subsystem_is_no_mmap_lock() {
        let of = |steps: &[&str], kind| class_of(&path(steps), kind);
        let write = ["vfs_write", "generic_file_write_iter"];
        assert_eq!(of(&write, LockKind::Rwsem), "i_rwsem");
        assert_eq!(of(&write, LockKind::Spin), OTHER_CLASS);
        assert_eq!(of(&["iterate_supers", "super_lock"], LockKind::Rwsem), "s_umount");
        // The fault holds mmap_lock, and waits for the file.
        let fault = ["do_user_addr_fault", "filemap_fault", "filemap_create_folio"];
        assert_eq!(of(&fault, LockKind::Rwsem), "invalidate_lock");
        let fork = ["copy_process", "cgroup_can_fork"];
        assert_eq!(of(&fork, LockKind::PercpuRwsem), "threadgroup");
        assert_eq!(of(&["ext4_writepages"], LockKind::PercpuRwsem), "percpu_rwsem");
        let fork = ["kernel_clone", "copy_process"];
        assert_eq!(of(&fork, LockKind::Rwlock), "tasklist");
        assert_eq!(of(&fork, LockKind::Spin), OTHER_CLASS, "it takes several spin locks");
        assert_eq!(of(&["copy_process", "alloc_pid"], LockKind::Spin), "pidmap");
        assert_eq!(of(&["something"], LockKind::Spin), OTHER_CLASS);
        assert_eq!(of(&["__mmput"], LockKind::Other), "mmap_lock");
        assert_eq!(of(&["__mmput", "x"], LockKind::Other), OTHER_CLASS, "x may take any lock");
    }

    #[test]
    fn names_of_lockdep_have_a_class() {
        let of = class_of_name;
        assert_eq!(of("&zone->lock"), Some("zone"));
        assert_eq!(of("&(&zone->lock)->rlock"), Some("zone"));
        assert_eq!(of("&mm->mmap_lock-R"), Some("mmap_lock"));
        assert_eq!(of("&mm->mmap_sem-W"), Some("mmap_lock"));
        assert_eq!(of("ptlock_ptr(ptdesc)#2"), Some("pte"));
        assert_eq!(of("&rq->__lock"), Some("runqueue"));
        assert_eq!(of("&sb->s_type->i_mutex_key#17"), Some("i_rwsem"));
        assert_eq!(of("&zone->lock_of_another"), None);
        assert_eq!(of(""), None);
    }

    #[test]
    fn a_function_and_a_name_are_in_one_row_only() {
        for (at, row) in LOCK_CLASSES.iter().enumerate() {
            for other in &LOCK_CLASSES[..at] {
                assert_ne!(row.class, other.class);
                // A function may take locks of several kinds.
                let kinds = [LockKind::Spin, LockKind::Rwlock, LockKind::Rwsem, LockKind::Mutex];
                let both = kinds.iter().any(|&k| fits(row.class, k) && fits(other.class, k));
                let shared = row.functions.iter().find(|f| other.functions.contains(f));
                assert!(!both || shared.is_none(), "{} and {}: {shared:?}", row.class, other.class);
                let shared = row.names.iter().find(|name| other.names.contains(name));
                assert_eq!(shared, None, "{} and {}", row.class, other.class);
            }
        }
    }

    #[test]
    fn a_class_knows_its_counterpart() {
        assert_eq!(counterpart("mmap_lock"), Counterpart::Class("mmap_lock"));
        assert_eq!(counterpart("css_set"), Counterpart::Gap("css_set_lock"));
        assert_eq!(counterpart("ext4"), Counterpart::Unknown);
    }
}
