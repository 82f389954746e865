//! The class of the lock that a task waited for. The kernel reports an address; the call path
//! determines the class.

use mmscale_document::passes;

/// `lock:contention_begin`'s flags, from `trace/events/lock.h`.
const SPIN: u32 = 1;
const READ: u32 = 2;
const WRITE: u32 = 4;
const PERCPU: u32 = 16;
const MUTEX: u32 = 32;

/// A class of locks and the functions that take them, innermost first in each path.
const BY_FUNCTION: [(&str, &[&str]); 8] = [
    (
        "zone",
        &[
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
    ),
    (
        "lruvec",
        &[
            "folio_lruvec_lock",
            "folio_lruvec_lock_irq",
            "folio_lruvec_lock_irqsave",
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
    ),
    (
        "pte",
        &[
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
    ),
    ("pmd", &["zap_huge_pmd", "pmd_trans_huge_lock", "__pmd_trans_huge_lock", "__pte_alloc"]),
    ("anon_vma", &["unlink_anon_vmas", "anon_vma_clone", "anon_vma_fork", "rmap_walk_anon"]),
    ("list_lru", &["list_lru_add", "list_lru_del", "list_lru_walk_one"]),
    (
        "tasklist",
        &[
            "copy_process",
            "release_task",
            "exit_notify",
            "do_wait",
            "__do_wait",
            "wait_consider_task",
            "alloc_pid",
            "free_pid",
        ],
    ),
    ("runqueue", &["raw_spin_rq_lock_nested", "try_to_wake_up", "__schedule", "sched_tick"]),
];

/// Functions below which a reader-writer semaphore is an mmap_lock.
const MMAP: [&str; 12] = [
    "exit_mmap",
    "mmap_read_lock",
    "mmap_write_lock_killable",
    "vm_mmap_pgoff",
    "__vm_munmap",
    "do_madvise",
    "do_user_addr_fault",
    "lock_mm_and_find_vma",
    "__do_sys_process_mrelease",
    "dup_mmap",
    "do_mprotect_pkey",
    "__mm_populate",
];

/// Returns the class of the lock for which a task waited on a path.
pub(crate) fn of(path: &[String], flags: u32) -> &'static str {
    if flags & MUTEX != 0 {
        return "mutex";
    }
    if flags & PERCPU != 0 {
        return "percpu_rwsem";
    }
    if flags & SPIN == 0 && flags & (READ | WRITE) != 0 {
        let mmap = MMAP.iter().any(|function| passes(path, function));
        return if mmap { "mmap_lock" } else { "rwsem" };
    }
    // The innermost known function decides.
    for step in path.iter().rev().take(4) {
        let takes = |(_, functions): &&(&str, &[&str])| functions.contains(&step.as_str());
        if let Some((class, _)) = BY_FUNCTION.iter().find(takes) {
            return class;
        }
    }
    "other"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(steps: &[&str]) -> Vec<String> {
        steps.iter().map(|&step| step.to_owned()).collect()
    }

    #[test]
    fn the_innermost_function_that_is_known_decides() {
        let zone = path(&["vmstat_update", "decay_pcp_high", "free_pcppages_bulk"]);
        assert_eq!(of(&zone, SPIN), "zone");
        let lruvec = path(&["vm_mmap_pgoff", "lru_add_drain_cpu", "folio_batch_move_lru"]);
        assert_eq!(of(&lruvec, SPIN), "lruvec");
        assert_eq!(of(&path(&["exit_mmap", "unmap_vmas", "unmap_page_range"]), SPIN), "pte");
        assert_eq!(of(&path(&["do_exit", "exit_mmap"]), WRITE), "mmap_lock");
        assert_eq!(of(&path(&["ext4_iget"]), READ), "rwsem");
        let fork = path(&["kernel_clone", "copy_process", "queued_write_lock_slowpath"]);
        assert_eq!(of(&fork, SPIN | WRITE), "tasklist");
        assert_eq!(of(&path(&["something"]), SPIN), "other");
    }
}
