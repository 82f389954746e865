//! The table of lock classes.

mod pages;
mod tasks;

use super::LockClassRow;

/// All classes that a path or a name determines. For a path the function that takes the lock
/// decides.
pub const LOCK_CLASSES: &[LockClassRow] = &[
    pages::ZONE,
    pages::LRUVEC,
    pages::PTE,
    pages::PMD,
    pages::ANON_VMA,
    pages::I_MMAP,
    pages::I_PAGES,
    pages::LIST_LRU,
    pages::SLAB,
    pages::PCPU,
    pages::PCPU_MUTEX,
    pages::CGROUP_MUTEX,
    pages::PERCPU_COUNTERS,
    pages::COMMITTED,
    tasks::TASKLIST,
    tasks::PIDMAP,
    tasks::CSS_SET,
    tasks::SIGLOCK,
    tasks::FILES,
    tasks::RUNQUEUE,
    pages::SWAP,
    pages::ZS_POOL,
    pages::ZS_CLASS,
    tasks::RSTAT,
    tasks::RCU,
    tasks::TIMER,
    tasks::WORK,
    tasks::WAIT_QUEUE,
    tasks::THREADGROUP,
    tasks::KERNFS,
    tasks::INODES,
    tasks::DENTRY,
    tasks::I_RWSEM,
    tasks::INVALIDATE_LOCK,
    tasks::S_UMOUNT,
    tasks::WRITEBACK,
    tasks::MPOL,
    tasks::CHLDEXIT,
    tasks::TASK,
    tasks::HRTIMER,
    pages::PCP,
    pages::SPLIT_QUEUE,
    pages::VMAP,
    pages::HUGETLB,
    tasks::VMA_LOCK,
    tasks::PAGE_LOCK,
    tasks::EP,
    tasks::MMAP_LOCK,
];
