//! The class of a lock, by the functions that take it.

use mmscale_document::{LockKind, class_of};

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

/// Returns the class of a lock that `acquire` takes, called by `caller`, and that by `outer`.
pub(crate) fn class_at(acquire: &str, caller: &str, outer: &str) -> &'static str {
    // A semaphore of each VMA in Linux 6.4 to 6.13, under the fault that found it.
    if caller == "lock_vma_under_rcu" {
        return "vma_lock";
    }
    if acquire.contains("trylock") && OF_PAGE_CACHES.contains(&caller) {
        return "pcp";
    }
    let kind = match acquire {
        name if name.starts_with("_raw_read_") || name.starts_with("_raw_write_") => {
            LockKind::Rwlock
        }
        name if name.starts_with("down_") => LockKind::Rwsem,
        name if name.starts_with("mutex_") => LockKind::Mutex,
        _ => LockKind::Spin,
    };
    // The caller may be a wrapper that is in no table.
    match class_of(&[caller.to_owned()], kind) {
        "other" | "rwsem" | "mutex" => class_of(&[outer.to_owned()], kind),
        class => class,
    }
}
