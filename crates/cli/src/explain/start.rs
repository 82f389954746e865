//! The script to begin with when a report resembles no known problem, but its locks are simulated.

use mmscale_document::{Counterpart, counterpart};
use mmscale_harness::Registry;
use mmscale_measured::Resemblance;

use super::Case;

/// Scripts that are built in, and functions of Linux on the paths of their calls.
const SCRIPTS: [(&str, &[&str]); 7] = [
    ("stress-mremap", &["do_mremap", "__do_sys_mremap", "move_page_tables"]),
    ("brk1", &["__do_sys_brk", "__x64_sys_brk", "do_brk_flags"]),
    ("stress-fork", &["copy_process", "dup_mmap", "exit_mmap", "do_exit", "release_task"]),
    ("tlb_flush1", &["do_madvise", "mprotect_fixup", "change_protection", "do_mprotect_pkey"]),
    ("page_fault3", &["do_shared_fault", "do_read_fault", "do_fault"]),
    (
        "page_fault1",
        &["do_anonymous_page", "handle_mm_fault", "do_user_addr_fault", "lock_mm_and_find_vma"],
    ),
    ("mmap1", &["vm_mmap_pgoff", "do_mmap", "__vm_munmap", "do_vmi_align_munmap"]),
];
/// The least share of simulated waits for which a script is worth writing.
const SHARE: f64 = 0.5;

/// Returns whether a function reclaims or compacts memory.
fn is_reclaim(function: &str) -> bool {
    const BEGINNINGS: [&str; 9] = [
        "kswapd",
        "balance_pgdat",
        "shrink_",
        "try_to_free_",
        "compact_zone",
        "try_to_compact",
        "evict_folios",
        "isolate_migratepages",
        "folio_rotate_reclaimable",
    ];
    BEGINNINGS.iter().any(|begin| function.starts_with(begin))
}

/// Returns what to do next. `None` if less than half of the waits are for simulated locks.
pub(super) fn script(case: &Case<'_>, found: &Resemblance, registry: &Registry) -> Option<String> {
    let own = found.items.iter().filter(|item| {
        matches!(counterpart(&item.class), Counterpart::Class(_)) && !item.path.is_empty()
    });
    let share = own.clone().map(|item| item.weight).sum::<f64>() / found.weight();
    if share.is_nan() || share < SHARE {
        return None;
    }
    let weight = |functions: &[&str]| {
        let passes = |path: &[String]| path.iter().any(|step| functions.contains(&step.as_str()));
        own.clone().filter(|item| passes(&item.path)).map(|item| item.weight).sum::<f64>()
    };
    let best = SCRIPTS.iter().map(|(name, functions)| (*name, weight(functions)));
    let best = best.max_by(|a, b| a.1.total_cmp(&b.1)).filter(|(_, weight)| *weight > 0.0);
    // Only threads of one process share its mmap_lock. Scripts of stress-ng have no such choice.
    let is_shared = own.clone().any(|item| item.class == "mmap_lock");
    let threads = |name: &str| {
        if is_shared && !name.starts_with("stress") { " --set in_threads=1" } else { "" }
    };
    let size = case.cpus.map_or(String::new(), |cpus| format!(" --cpus {cpus} --shape fill"));
    let how = "write the workload as a script (docs/your-workload.md)";
    let reclaims = own.clone().filter(|item| item.path.iter().any(|step| is_reclaim(step)));
    if reclaims.map(|item| item.weight).sum::<f64>() / found.weight() >= SHARE {
        return Some(format!(
            "{how} with memory pressure: more memory than the machine has, or madvise(m, PAGEOUT); \
             no study and no built-in script reclaims pages"
        ));
    }
    Some(match best.filter(|(name, _)| registry.find(name).is_ok()) {
        Some((name, _)) => format!(
            "{how}; one with such calls is built in: mmscale run {name}{}{size}, and `mmscale list \
             {name}` shows it",
            threads(name)
        ),
        None => how.to_owned(),
    })
}
