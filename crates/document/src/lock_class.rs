//! Lock classes of Linux, in one table: the functions that take a lock of the class, its names, and
//! its counterpart in the simulated memory manager.
//!
//! The live kernel reports the address of a lock, and most tools report the function that waited.
//! So the call path determines the class, or the lock's name where a tool reports it. A row is
//! added here, and nowhere else, when a lock gets a name.

use crate::passes;

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

use Counterpart::{Class, Gap, Unknown};

/// All classes that a path or a name determines. For a path the innermost function in any row
/// decides.
pub const LOCK_CLASSES: &[LockClassRow] = &[
    LockClassRow {
        class: "zone",
        counterpart: Class("zone"),
        names: &["zone->lock", "zone_lock", "zone lock"],
        functions: &[
            "free_pcppages_bulk",
            "rmqueue_bulk",
            "__rmqueue_pcplist",
            "rmqueue_buddy",
            "free_one_page",
            "drain_pages_zone",
            "unreserve_highatomic_pageblock",
            "free_unref_folios",
            "free_frozen_page_commit",
            "get_page_from_freelist",
            "__free_frozen_pages",
            "decay_pcp_high",
            "drain_zone_pages",
            "refresh_cpu_vm_stats",
        ],
    },
    LockClassRow {
        class: "lruvec",
        counterpart: Class("lruvec"),
        names: &["lruvec->lru_lock", "lru_lock", "lruvec lock", "pgdat->lru_lock"],
        functions: &[
            "folio_lruvec_lock",
            "folio_lruvec_lock_irq",
            "folio_lruvec_lock_irqsave",
            "folio_lruvec_relock_irq",
            "folio_lruvec_relock_irqsave",
            "folio_batch_move_lru",
            "__page_cache_release",
            "folios_put_refs",
            "lru_add_drain_cpu",
            "lru_add_drain",
            "__folio_batch_add_and_move",
            "lruvec_add_folio",
            "shrink_inactive_list",
            "shrink_active_list",
            "move_folios_to_lru",
            "isolate_lru_page",
            "folio_isolate_lru",
            "mlock_folio_batch",
            "check_move_unevictable_folios",
        ],
    },
    LockClassRow {
        class: "pte",
        counterpart: Class("pte"),
        names: &["ptlock_ptr(page)", "ptlock_ptr(ptdesc)", "pte lock", "pte spinlock"],
        functions: &[
            "zap_pte_range",
            "unmap_page_range",
            "__pte_offset_map_lock",
            "pte_offset_map_lock",
            "do_anonymous_page",
            "copy_pte_range",
            "change_pte_range",
            "madvise_free_pte_range",
            "page_vma_mapped_walk",
            "handle_pte_fault",
            "finish_fault",
            "do_wp_page",
            "wp_page_copy",
            "copy_page_range",
            "madvise_cold_or_pageout_pte_range",
        ],
    },
    LockClassRow {
        class: "pmd",
        counterpart: Class("pmd"),
        names: &[],
        functions: &["zap_huge_pmd", "pmd_trans_huge_lock", "__pmd_trans_huge_lock", "__pte_alloc"],
    },
    LockClassRow {
        class: "anon_vma",
        counterpart: Class("anon_vma"),
        names: &["anon_vma->root->rwsem", "anon_vma->rwsem"],
        functions: &[
            "unlink_anon_vmas",
            "anon_vma_clone",
            "anon_vma_fork",
            "rmap_walk_anon",
            "folio_lock_anon_vma_read",
        ],
    },
    LockClassRow {
        class: "i_mmap",
        counterpart: Class("i_mmap"),
        names: &["mapping->i_mmap_rwsem", "i_mmap_rwsem"],
        functions: &[
            "unlink_file_vma",
            "unlink_file_vma_batch_process",
            "free_pgtables",
            "vma_link_file",
            "rmap_walk_file",
            "unmap_mapping_range",
        ],
    },
    LockClassRow {
        class: "i_pages",
        counterpart: Gap("i_pages"),
        names: &["mapping->i_pages", "i_pages"],
        functions: &[
            "filemap_add_folio",
            "__filemap_add_folio",
            "filemap_remove_folio",
            "delete_from_page_cache_batch",
            "folio_mark_dirty_lock",
            "__folio_mark_dirty",
            "__folio_start_writeback",
            "__folio_end_writeback",
        ],
    },
    LockClassRow {
        class: "list_lru",
        counterpart: Unknown,
        names: &[],
        functions: &["list_lru_add", "list_lru_del", "list_lru_walk_one"],
    },
    LockClassRow {
        class: "slab",
        counterpart: Gap("kmem_cache_node->list_lock"),
        names: &["n->list_lock", "kmem_cache_node->list_lock"],
        functions: &[
            "get_partial_node",
            "__put_partials",
            "__slab_free",
            "___slab_alloc",
            "__unfreeze_partials",
            "deactivate_slab",
            "free_to_partial_list",
        ],
    },
    LockClassRow {
        class: "pcpu",
        counterpart: Gap("pcpu_lock"),
        names: &["pcpu_lock", "pcpu_alloc_mutex"],
        functions: &["pcpu_alloc", "pcpu_alloc_noprof", "free_percpu", "pcpu_balance_workfn"],
    },
    LockClassRow {
        class: "committed",
        counterpart: Gap("vm_committed_as"),
        names: &["vm_committed_as.lock", "vm_committed_as"],
        functions: &["__vm_enough_memory", "vm_acct_memory", "vm_unacct_memory"],
    },
    LockClassRow {
        class: "tasklist",
        counterpart: Class("tasklist"),
        names: &["tasklist_lock"],
        functions: &[
            "copy_process",
            "release_task",
            "exit_notify",
            "do_wait",
            "__do_wait",
            "wait_consider_task",
        ],
    },
    LockClassRow {
        class: "pidmap",
        counterpart: Class("pidmap"),
        names: &["pidmap_lock"],
        functions: &["alloc_pid", "free_pid", "free_pids"],
    },
    LockClassRow {
        class: "css_set",
        counterpart: Gap("css_set_lock"),
        names: &["css_set_lock"],
        functions: &["cgroup_post_fork", "cgroup_exit", "cgroup_task_exit", "cgroup_css_set_fork"],
    },
    LockClassRow {
        class: "siglock",
        counterpart: Class("siglock"),
        names: &["sighand->siglock", "siglock"],
        functions: &[
            "__lock_task_sighand",
            "lock_task_sighand",
            "get_signal",
            "exit_signals",
            "do_sigaction",
            "__set_current_blocked",
            "sigprocmask",
        ],
    },
    LockClassRow {
        class: "files",
        counterpart: Gap("files->file_lock"),
        names: &["files->file_lock", "newf->file_lock"],
        functions: &["alloc_fd", "close_fd", "file_close_fd", "dup_fd", "do_dup2"],
    },
    LockClassRow {
        class: "runqueue",
        counterpart: Gap("rq->__lock"),
        names: &["rq->__lock", "rq->lock", "rq_lock"],
        functions: &[
            "raw_spin_rq_lock_nested",
            "_raw_spin_rq_lock_irqsave",
            "try_to_wake_up",
            "__schedule",
            "sched_tick",
            "scheduler_tick",
            "task_rq_lock",
            "__task_rq_lock",
            "sched_balance_rq",
        ],
    },
    LockClassRow {
        class: "swap",
        counterpart: Class("swap"),
        names: &[],
        functions: &["folio_alloc_swap", "cluster_alloc_swap_entry", "swap_entries_free"],
    },
    LockClassRow {
        class: "rstat",
        counterpart: Class("rstat"),
        names: &["cgroup_rstat_lock"],
        functions: &["css_rstat_flush", "cgroup_rstat_flush", "cgroup_rstat_flush_locked"],
    },
    LockClassRow {
        class: "rcu",
        counterpart: Class("rcu"),
        names: &["rcu_node_0", "rnp->lock"],
        functions: &[
            "rcu_report_qs_rnp",
            "rcu_report_qs_rdp",
            "note_gp_changes",
            "force_qs_rnp",
            "rcu_gp_init",
            "rcu_gp_cleanup",
        ],
    },
    LockClassRow {
        class: "timer",
        counterpart: Class("timer"),
        names: &["base->lock", "timer_base->lock"],
        functions: &["lock_timer_base", "__mod_timer", "add_timer_on", "call_timer_fn"],
    },
    LockClassRow {
        class: "work",
        counterpart: Class("work"),
        names: &["pool->lock"],
        functions: &["__queue_work", "process_one_work", "worker_thread"],
    },
    LockClassRow {
        class: "mmap_lock",
        counterpart: Class("mmap_lock"),
        names: &["mm->mmap_lock", "mmap_lock", "mm->mmap_sem", "mmap_sem"],
        functions: &[],
    },
];

/// Functions below which a reader-writer semaphore is an mmap_lock.
const MMAP: [&str; 19] = [
    "exit_mmap",
    "mmap_read_lock",
    "mmap_read_lock_killable",
    "mmap_write_lock",
    "mmap_write_lock_killable",
    "vm_mmap_pgoff",
    "__vm_munmap",
    "vm_brk_flags",
    "do_madvise",
    "do_user_addr_fault",
    "do_page_fault",
    "exc_page_fault",
    "lock_mm_and_find_vma",
    "__do_sys_process_mrelease",
    "dup_mmap",
    "dup_mm",
    "do_mprotect_pkey",
    "__mm_populate",
    "mremap",
];

/// The kind of a lock, as far as tools report it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LockKind {
    /// A spin lock, or a reader-writer lock whose waiters spin.
    Spin,
    /// A reader-writer semaphore.
    Rwsem,
    /// A mutex.
    Mutex,
    /// A reader-writer semaphore with a counter for each CPU.
    PercpuRwsem,
    /// Another or an unknown kind.
    Other,
}

/// The class of locks that are in no row of the table.
pub const OTHER_CLASS: &str = "other";

/// Number of innermost functions that may determine a class. The caller of a caller takes other
/// locks, too.
const DEPTH: usize = 4;

/// Returns the class of the lock that a task waited for, by its call path, outermost function
/// first, without the functions that implement locks.
pub fn class_of(path: &[String], kind: LockKind) -> &'static str {
    let mmap = || MMAP.iter().any(|function| passes(path, function));
    let by_function = || {
        let inner = path.iter().rev().take(DEPTH);
        inner
            .into_iter()
            .find_map(|step| LOCK_CLASSES.iter().find(|row| row.functions.contains(&step.as_str())))
    };
    match kind {
        LockKind::Mutex => "mutex",
        LockKind::PercpuRwsem => "percpu_rwsem",
        LockKind::Rwsem => match by_function() {
            Some(row) if ["anon_vma", "i_mmap"].contains(&row.class) => row.class,
            _ if mmap() => "mmap_lock",
            _ => "rwsem",
        },
        LockKind::Spin => by_function().map_or(OTHER_CLASS, |row| row.class),
        LockKind::Other => match by_function() {
            Some(row) => row.class,
            None if mmap() => "mmap_lock",
            None => OTHER_CLASS,
        },
    }
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
    fn the_innermost_function_that_is_known_decides() {
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
        let fork = ["kernel_clone", "copy_process", "queued_write_lock_slowpath"];
        assert_eq!(of(&fork, LockKind::Spin), "tasklist");
        assert_eq!(of(&["copy_process", "alloc_pid"], LockKind::Spin), "pidmap");
        assert_eq!(of(&["something"], LockKind::Spin), OTHER_CLASS);
        assert_eq!(of(&["__mmput", "x"], LockKind::Other), "mmap_lock");
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
        assert_eq!(of("&zone->lock_of_another"), None);
        assert_eq!(of(""), None);
    }

    #[test]
    fn a_function_and_a_name_are_in_one_row_only() {
        for (at, row) in LOCK_CLASSES.iter().enumerate() {
            for other in &LOCK_CLASSES[..at] {
                assert_ne!(row.class, other.class);
                let shared = row.functions.iter().find(|f| other.functions.contains(f));
                assert_eq!(shared, None, "{} and {}", row.class, other.class);
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
