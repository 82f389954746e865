//! The contention problems that have a study, recognised by lock class and call path.

use crate::passes;

/// A contention problem, named by its study.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Problem {
    /// Ticks of `vmstat_update` meet on `zone->lock`.
    Vmstat,
    /// Programs that populate and unmap wait for the lock of the LRU lists.
    Churn,
    /// An exit and a reaper of one address space wait for each other.
    Reap,
    /// Page caches are refilled from and drained to the zone.
    Pcp,
    /// CPUs wait for functions that other CPUs execute for them.
    Ipi,
}

/// Functions of the upkeep tick.
pub const TICK: [&str; 4] =
    ["vmstat_update", "refresh_cpu_vm_stats", "decay_pcp_high", "quiet_vmstat"];

/// Functions that end an address space.
pub const ENDING: [&str; 4] =
    ["exit_mmap", "__do_sys_process_mrelease", "oom_reap_task_mm", "__oom_reap_task_mm"];

/// Functions that wait for other CPUs.
pub const CALLING: [&str; 12] = [
    "csd_lock_wait",
    "__csd_lock_wait",
    "smp_call_function",
    "smp_call_function_many_cond",
    "smp_call_function_single",
    "smp_call_function_many",
    "on_each_cpu_cond_mask",
    "flush_tlb_mm_range",
    "flush_tlb_kernel_range",
    "native_flush_tlb_multi",
    "flush_tlb_multi",
    "arch_tlbbatch_flush",
];

/// Functions on the paths of reclaim, compaction, writeback, migration, invalidation, mlock and
/// advice, which take the lock of the LRU lists for other purposes than programs that populate and
/// unmap.
const OTHER_LRU: [&str; 68] = [
    "mlock_folio",
    "mlock_new_folio",
    "__mlock_folio",
    "__mlock_new_folio",
    "mlock_folio_batch",
    "mlock_drain_local",
    "mlock_drain_remote",
    "munlock_folio",
    "__munlock_folio",
    "mlock_pagevec",
    "__munlock_pagevec",
    "munlock_vma_page",
    "clear_page_mlock",
    "deactivate_file_folio",
    "deactivate_file_page",
    "lru_deactivate_file",
    "lru_deactivate_file_fn",
    "invalidate_mapping_pages",
    "mapping_try_invalidate",
    "invalidate_inode_pages2_range",
    "folio_deactivate",
    "deactivate_page",
    "folio_mark_lazyfree",
    "mark_page_lazyfree",
    "kswapd",
    "balance_pgdat",
    "shrink_node",
    "shrink_lruvec",
    "shrink_zone",
    "shrink_inactive_list",
    "shrink_active_list",
    "shrink_folio_list",
    "shrink_page_list",
    "move_folios_to_lru",
    "move_pages_to_lru",
    "putback_inactive_pages",
    "isolate_lru_pages",
    "isolate_lru_folios",
    "evict_folios",
    "isolate_folios",
    "try_to_shrink_lruvec",
    "lru_gen_shrink_lruvec",
    "try_to_inc_max_seq",
    "lru_note_cost",
    "lru_note_cost_refault",
    "lru_note_cost_folio",
    "lru_note_cost_page",
    "lru_note_cost_unlock_irq",
    "workingset_refault",
    "try_to_free_pages",
    "try_to_free_mem_cgroup_pages",
    "do_try_to_free_pages",
    "reclaim_pages",
    "reclaim_folio_list",
    "isolate_migratepages_block",
    "isolate_migratepages_range",
    "isolate_migratepages",
    "compact_zone",
    "try_to_compact_pages",
    "folio_rotate_reclaimable",
    "rotate_reclaimable_page",
    "pagevec_move_tail",
    "lru_move_tail",
    "folio_end_writeback",
    "end_page_writeback",
    "check_move_unevictable_folios",
    "migrate_pages",
    "lru_gen_look_around",
];

/// Functions that take a zone's lock for other purposes than a CPU's page cache.
const OTHER_ZONE: [&str; 17] = [
    "compaction_alloc",
    "isolate_freepages_block",
    "isolate_freepages",
    "fast_isolate_freepages",
    "compact_zone",
    "set_migratetype_isolate",
    "unset_migratetype_isolate",
    "start_isolate_page_range",
    "setup_per_zone_wmarks",
    "__setup_per_zone_wmarks",
    "page_reporting_process",
    "page_reporting_cycle",
    "pagetypeinfo_show",
    "frag_show_print",
    "walk_zones_in_node",
    "take_page_off_buddy",
    "unreserve_highatomic_pageblock",
];

impl Problem {
    /// All problems, in the order of their studies.
    pub const ALL: [Self; 5] = [Self::Vmstat, Self::Churn, Self::Pcp, Self::Reap, Self::Ipi];

    /// Returns the name of the study.
    pub const fn study(self) -> &'static str {
        match self {
            Self::Vmstat => "vmstat",
            Self::Churn => "churn",
            Self::Reap => "reap",
            Self::Pcp => "pcp",
            Self::Ipi => "ipi",
        }
    }

    /// Returns the problem to which a wait for a lock belongs, by the lock's class and the path to
    /// it, outermost function first. A wait for a zone's lock belongs to the tick if a function of
    /// the tick is on the path, and to the page caches otherwise; so a path that was cut before the
    /// tick's functions is assigned to the page caches.
    pub fn of(class: &str, path: &[String]) -> Option<Self> {
        let any = |functions: &[&str]| functions.iter().any(|function| passes(path, function));
        match class {
            "zone" | "pcp" if any(&TICK) => Some(Self::Vmstat),
            "zone" if any(&OTHER_ZONE) => None,
            "zone" | "pcp" => Some(Self::Pcp),
            "lruvec" if any(&OTHER_LRU) => None,
            "lruvec" => Some(Self::Churn),
            "pte" | "pmd" | "mmap_lock" if any(&ENDING) => Some(Self::Reap),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_and_path_determine_the_problem() {
        let of = |class: &str, path: &[&str]| {
            let path: Vec<String> = path.iter().map(|&step| step.to_owned()).collect();
            Problem::of(class, &path)
        };
        let tick = ["vmstat_update", "decay_pcp_high", "free_pcppages_bulk"];
        assert_eq!(of("zone", &tick), Some(Problem::Vmstat));
        assert_eq!(of("zone", &["free_unref_folios", "free_pcppages_bulk"]), Some(Problem::Pcp));
        assert_eq!(of("lruvec", &["folio_batch_move_lru"]), Some(Problem::Churn));
        let invalidation =
            ["mapping_try_invalidate", "deactivate_file_folio", "folio_batch_move_lru"];
        assert_eq!(of("lruvec", &invalidation), None);
        assert_eq!(of("lruvec", &["do_mlock", "__mm_populate", "mlock_folio_batch"]), None);
        assert_eq!(of("pte", &["oom_reaper", "unmap_page_range"]), Some(Problem::Reap));
        assert_eq!(of("mmap_lock", &["do_exit", "exit_mmap"]), Some(Problem::Reap));
        assert_eq!(of("pte", &["handle_mm_fault", "do_anonymous_page"]), None);
        assert_eq!(of("mmap_lock", &["do_user_addr_fault"]), None);
        assert_eq!(of("other", &["ext4_iget"]), None);
        let reclaim = ["kswapd", "balance_pgdat", "shrink_lruvec", "shrink_inactive_list"];
        assert_eq!(of("lruvec", &reclaim), None, "no study reclaims");
        assert_eq!(of("zone", &["compact_zone", "isolate_freepages_block"]), None);
    }
}
