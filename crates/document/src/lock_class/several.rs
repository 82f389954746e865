//! Functions that take several locks of one kind, so that their names do not determine the lock.

use super::LockKind;

/// A function that takes several locks of a kind.
struct Several {
    function: &'static str,
    kind: LockKind,
    /// The functions with which it takes them, and the names of the locks that each may take.
    through: &'static [(&'static str, &'static [&'static str])],
}

const PI: &str = "p->pi_lock";
const RQ: &str = "rq->__lock";
const CID: &str = "the lock of mm_cid";
const MMAP: &str = "mmap_lock";
const FILE: &str = "i_mmap_rwsem";
const ANON: &str = "anon_vma->root->rwsem";

/// How a task that is woken or moved is locked: first the task, then its run queue.
const OF_TASK: &[(&str, &[&str])] = &[("_raw_spin_lock_irqsave", &[PI]), ("_raw_spin_lock", &[RQ])];

/// How a fork locks the address space of the parent, and the files that it maps.
const OF_FORK: &[(&str, &[&str])] =
    &[("down_write_killable", &[MMAP]), ("down_write", &[FILE, MMAP])];

/// How an allocation of per-CPU memory keeps others out until it has found a place.
const OF_PERCPU: &[(&str, &[&str])] = &[("mutex_lock_killable", &["pcpu_alloc_mutex"])];

const SEVERAL: [Several; 11] = [
    Several { function: "try_to_wake_up", kind: LockKind::Spin, through: OF_TASK },
    Several { function: "wake_up_new_task", kind: LockKind::Spin, through: OF_TASK },
    Several { function: "task_rq_lock", kind: LockKind::Spin, through: OF_TASK },
    Several {
        function: "migration_cpu_stop",
        kind: LockKind::Spin,
        through: &[("_raw_spin_lock_irqsave", &[PI]), ("_raw_spin_lock", &[PI, RQ])],
    },
    // Linux 6.3, and 6.18 and later, lock the CPU numbers of an address space here.
    Several {
        function: "__schedule",
        kind: LockKind::Spin,
        through: &[("_raw_spin_lock_irq", &[RQ]), ("_raw_spin_lock", &[RQ, CID])],
    },
    Several { function: "dup_mmap", kind: LockKind::Rwsem, through: OF_FORK },
    Several { function: "dup_mm", kind: LockKind::Rwsem, through: OF_FORK },
    Several { function: "copy_process", kind: LockKind::Rwsem, through: OF_FORK },
    // The lock of both names is `pcpu_lock`, unless they wait for a mutex.
    Several { function: "pcpu_alloc", kind: LockKind::Mutex, through: OF_PERCPU },
    Several { function: "pcpu_alloc_noprof", kind: LockKind::Mutex, through: OF_PERCPU },
    Several {
        function: "collapse_huge_page",
        kind: LockKind::Rwsem,
        through: &[("down_read", &[MMAP]), ("down_write", &[ANON, MMAP])],
    },
];

/// Returns the names of the locks that a function may wait for, if it takes several of a kind:
/// those that it takes with another function, if that is known. Empty for all other functions.
pub(super) fn candidates(
    function: &str,
    kind: LockKind,
    through: Option<&str>,
) -> Vec<&'static str> {
    let row = SEVERAL.iter().find(|row| row.function == function && row.kind == kind);
    let Some(row) = row else { return vec![] };
    let known = row.through.iter().find(|(name, _)| Some(*name) == through);
    let mut locks: Vec<&str> = match known {
        Some((_, locks)) => locks.to_vec(),
        None => row.through.iter().flat_map(|(_, locks)| locks.iter().copied()).collect(),
    };
    locks.sort_unstable();
    locks.dedup();
    locks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_function_of_the_lock_may_decide() {
        let of = |through| candidates("try_to_wake_up", LockKind::Spin, through);
        assert_eq!(of(Some("_raw_spin_lock_irqsave")), [PI]);
        assert_eq!(of(Some("_raw_spin_lock")), [RQ]);
        assert_eq!(of(None), [PI, RQ]);
        assert_eq!(of(Some("do_raw_spin_lock")), [PI, RQ], "it does not decide");
        assert!(candidates("try_to_wake_up", LockKind::Mutex, None).is_empty());
        assert!(candidates("free_pcppages_bulk", LockKind::Spin, None).is_empty());
        let percpu = |kind| candidates("pcpu_alloc_noprof", kind, None);
        assert_eq!(percpu(LockKind::Mutex), ["pcpu_alloc_mutex"]);
        assert!(percpu(LockKind::Spin).is_empty(), "its class is known");
        let fork = candidates("dup_mmap", LockKind::Rwsem, Some("down_write"));
        assert_eq!(fork, [FILE, MMAP]);
    }
}
