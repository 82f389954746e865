//! The name of a lock, by the functions that take it.

use mmscale_document::{LockKind, class_of};
use mmscale_vm::instructions::Hold;

/// Functions whose attempts to take a lock are for the CPU's page cache: zone->lock is waited for
/// there (mm/page_alloc.c, `pcp_spin_trylock`).
const OF_PAGE_CACHES: [&str; 6] = [
    "get_page_from_freelist",
    "rmqueue",
    "free_unref_page",
    "free_unref_folios",
    "free_unref_page_list",
    "__free_frozen_pages",
];

/// Returns the class of the lock of some holds, or its own name if it has one.
pub(super) fn class(hold: &Hold) -> &str {
    if let [name] = &hold.names[..] {
        return name;
    }
    // A semaphore of each VMA in Linux 6.4 to 6.13, under the fault that found it.
    if hold.caller == "lock_vma_under_rcu" {
        return "vma_lock";
    }
    if hold.acquire.contains("trylock") && OF_PAGE_CACHES.contains(&hold.caller.as_str()) {
        return "pcp";
    }
    let kind = match hold.acquire.as_str() {
        acquire if acquire.starts_with("down_") => LockKind::Rwsem,
        acquire if acquire.starts_with("mutex_") => LockKind::Mutex,
        _ => LockKind::Spin,
    };
    class_of(&[hold.outer.clone(), hold.caller.clone()], kind)
}

/// Returns the place that takes it: the caller, and the function that calls it.
pub(super) fn place(hold: &Hold) -> String {
    format!("{} < {}", hold.caller, hold.outer)
}
