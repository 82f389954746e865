//! The table of locks and mechanisms of Linux that are not simulated, by the calls that reach them.

use super::Call::{
    self, Access, Close, Exec, Exit, Fadvise, File, Fork, Hotplug, Kill, Madvise, MakeGroup, Mbind,
    Mincore, Mlock, Mmap, MmapFile, Mprotect, Mrelease, Mremap, Msync, Munmap, OomScore, Pidfd,
    Process, RemoveGroup, Sleep, Spawn, VmReadv, Wait, Zoneinfo,
};
use super::{Gap, Scope};

const fn gap(
    name: &'static str,
    scope: Scope,
    what: &'static str,
    file: &'static str,
    calls: &'static [Call],
) -> Gap {
    Gap { name, scope, what, file, calls, once: None, unless: None }
}

/// A gap that calls reach only if the run has made the call `once`.
const fn after(once: Call, gap: Gap) -> Gap {
    Gap { once: Some(once), ..gap }
}

/// A gap that calls do not reach if the run has made the call `unless`.
const fn unless(unless: Call, gap: Gap) -> Gap {
    Gap { unless: Some(unless), ..gap }
}

/// All gaps: those where all CPUs meet come first.
pub const GAPS: &[Gap] = &[
    gap(
        "css_set_lock",
        Scope::Machine,
        "cgroups of a task, at its start and end",
        "kernel/cgroup/cgroup.c",
        &[Fork, Process, Spawn, Exit, RemoveGroup],
    ),
    gap(
        "kernfs_rwsem",
        Scope::Machine,
        "directory and files of a cgroup, made and removed under cgroup_mutex",
        "fs/kernfs/dir.c",
        &[MakeGroup, RemoveGroup],
    ),
    gap(
        "kmem_cache_node->list_lock",
        Scope::Machine,
        "slabs of VMAs, tree nodes and tasks, when a CPU's own are used up",
        "mm/slub.c",
        &[Mmap, MmapFile, Munmap, Mremap, Mprotect, Fork, Process, Spawn, Exit],
    ),
    gap(
        "cgroup_threadgroup_rwsem",
        Scope::Machine,
        "read by each start and end of a task; a move to another cgroup waits for all of them",
        "kernel/cgroup/cgroup.c",
        &[Fork, Process, Spawn, Exit],
    ),
    gap(
        "oom_adj_mutex",
        Scope::Machine,
        "a change of any process's oom_score_adj",
        "fs/proc/base.c",
        &[OomScore],
    ),
    after(
        File,
        gap(
            "s_inode_list_lock",
            Scope::Machine,
            "list of all files of tmpfs, at the begin and end of one",
            "fs/inode.c",
            &[File, Close, Exit],
        ),
    ),
    unless(
        Exec,
        gap(
            "i_mmap_rwsem of libraries",
            Scope::Machine,
            "binary and libraries of a process, mapped at its start and unmapped at its end",
            "mm/vma.c",
            &[Fork, Process, Exit],
        ),
    ),
    gap(
        "d_lockref",
        Scope::Machine,
        "count and state of a name; all tasks meet at the root, their directory and their binary",
        "fs/dcache.c",
        &[Fork, Process, Exit],
    ),
    gap(
        "ucounts",
        Scope::Shared,
        "counts of a user's and a cgroup's processes, in one cache line each",
        "kernel/ucount.c",
        &[Fork, Process, Spawn, Exit],
    ),
    after(
        File,
        gap(
            "i_pages of dirty pages",
            Scope::Shared,
            "marks of dirty pages and of writeback in the page cache, if a file is not on tmpfs",
            "mm/page-writeback.c",
            &[Access, Msync],
        ),
    ),
    after(
        File,
        gap(
            "invalidate_lock",
            Scope::Shared,
            "readahead and faults of a file against its truncation, if it is not on tmpfs",
            "mm/filemap.c",
            &[Access],
        ),
    ),
    after(
        File,
        gap(
            "folio lock",
            Scope::Shared,
            "held for a moment by each fault on a page of a file in memory",
            "mm/filemap.c",
            &[Access],
        ),
    ),
    after(
        File,
        gap(
            "i_rwsem",
            Scope::Shared,
            "size of a file: truncation, MADV_REMOVE",
            "mm/shmem.c",
            &[File, Madvise],
        ),
    ),
    after(
        File,
        gap(
            "writeback",
            Scope::Shared,
            "wb->list_lock, dirty limits, blocks and journal, if a file is not on tmpfs",
            "fs/fs-writeback.c",
            &[Access],
        ),
    ),
    after(
        File,
        gap(
            "shared_policy->lock",
            Scope::Shared,
            "memory policies of a file",
            "mm/mempolicy.c",
            &[Mbind],
        ),
    ),
    gap(
        "locks of fsync",
        Scope::Shared,
        "inode, journal and flush of the disk's cache, if a file is not on tmpfs",
        "fs/sync.c",
        &[Msync],
    ),
    gap(
        "lru_lock of file pages",
        Scope::Shared,
        "pages of files on LRU lists, from which a drop removes them",
        "mm/truncate.c",
        &[Fadvise],
    ),
    after(
        Fadvise,
        gap(
            "readahead",
            Scope::Work,
            "pages read before they are needed, several in a request, and mapped together",
            "mm/readahead.c",
            &[Access, Madvise],
        ),
    ),
    gap(
        "mmap_lock of first faults",
        Scope::Process,
        "the first fault of a VMA takes mmap_lock for reading, to get an anon_vma",
        "mm/memory.c",
        &[Access],
    ),
    gap(
        "files->file_lock",
        Scope::Process,
        "table of descriptors, copied by a fork",
        "fs/file.c",
        &[Fork, Exec, File, Pidfd, Close],
    ),
    gap(
        "siglock of signals",
        Scope::Process,
        "delivery of a signal: the target's siglock, and its threads one by one",
        "kernel/signal.c",
        &[Kill],
    ),
    gap(
        "signal->wait_chldexit",
        Scope::Process,
        "queue of a parent's waits, woken by each end of a child",
        "kernel/exit.c",
        &[Wait, Exit],
    ),
    gap(
        "task->alloc_lock",
        Scope::Process,
        "memory of a task that may end in the meantime",
        "mm/oom_kill.c",
        &[Exit, Mrelease, VmReadv, OomScore],
    ),
    gap(
        "exec_update_lock",
        Scope::Process,
        "held while a reader gets the memory of a process; an exec of that process waits for it",
        "fs/exec.c",
        &[VmReadv],
    ),
    gap(
        "rq->__lock",
        Scope::Shared,
        "run queues: wake-ups from other CPUs, load balance, migration of tasks",
        "kernel/sched/core.c",
        &[Fork, Process, Spawn, Wait, Sleep],
    ),
    gap(
        "callbacks of CPU hotplug",
        Scope::Machine,
        "scheduler, block layer and drivers, at each change of the online CPUs",
        "kernel/cpu.c",
        &[Hotplug],
    ),
    gap(
        "exec",
        Scope::Work,
        "lookup and reading of a binary, its arguments and credentials; memory is empty after it",
        "fs/exec.c",
        &[Process, Exec],
    ),
    gap("pidfs", Scope::Work, "file and inode of a pidfd", "fs/pidfs.c", &[Pidfd]),
    gap(
        "hrtimer_cpu_base->lock",
        Scope::Process,
        "timers of sleeps: each is on the queue of its CPU",
        "kernel/time/hrtimer.c",
        &[Sleep],
    ),
    gap(
        "large folios",
        Scope::Work,
        "orders between a page and a huge page; faults and unmaps of several pages",
        "mm/memory.c",
        &[Access],
    ),
    gap(
        "multi-gen LRU",
        Scope::Work,
        "the other LRU of Linux, if lru_gen is enabled",
        "mm/vmscan.c",
        &[Access, Madvise],
    ),
    gap(
        "NUMA balancing",
        Scope::Work,
        "hinting faults and migration to the node of the user",
        "mm/memory.c",
        &[Access],
    ),
];

/// Calls without a row in [`GAPS`] that always holds, and the locks of Linux on their paths: all of
/// them are simulated.
pub const COMPLETE: &[(Call, &str)] = &[
    (Mlock, "mmap_lock, locks of VMAs and page tables, lru_lock"),
    (
        Mbind,
        "mmap_lock, locks of VMAs and page tables, the drain of all CPUs, lru_lock, rmap locks",
    ),
    (Mincore, "mmap_lock and locks of page tables"),
    (Zoneinfo, "zone->lock"),
];
