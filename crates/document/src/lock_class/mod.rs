//! Lock classes of Linux, in one table: the functions that take a lock of the class, its names, and
//! its counterpart in the simulated memory manager.
//!
//! The live kernel reports the address of a lock, and most tools report the function that waited.
//! So the call path determines the class, or the lock's name where a tool reports it. A row is
//! added here, and nowhere else, when a lock gets a name.

mod table;

use crate::passes;
use Counterpart::Unknown;
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

/// Classes of the table that are reader-writer semaphores, other than mmap_lock.
const RWSEMS: [&str; 5] = ["anon_vma", "i_mmap", "i_rwsem", "invalidate_lock", "s_umount"];

/// The only semaphore of the table that has a counter for each CPU.
const THREADGROUP: &str = "threadgroup";

/// The class of locks that are in no row of the table.
pub const OTHER_CLASS: &str = "other";

/// Number of innermost functions that may determine a class. The caller of a caller takes other
/// locks, too.
const DEPTH: usize = 4;

/// Returns the class of the lock that a task waited for, by its call path, outermost function
/// first, without the functions that implement locks.
pub fn class_of(path: &[String], kind: LockKind) -> &'static str {
    let mmap = || MMAP.iter().any(|function| passes(path, function));
    // A function may take locks of several kinds.
    let by_function = |is_kind: fn(&str) -> bool| {
        let of = |step: &String| {
            let takes = |row: &&LockClassRow| row.functions.contains(&step.as_str());
            LOCK_CLASSES.iter().filter(|row| is_kind(row.class)).find(takes)
        };
        path.iter().rev().take(DEPTH).find_map(of).map(|row| row.class)
    };
    match kind {
        LockKind::Mutex => by_function(|class| class == "pcpu").unwrap_or("mutex"),
        LockKind::PercpuRwsem => {
            by_function(|class| class == THREADGROUP).unwrap_or("percpu_rwsem")
        }
        LockKind::Rwsem => match by_function(|class| RWSEMS.contains(&class)) {
            Some(class) => class,
            None if mmap() => "mmap_lock",
            None => "rwsem",
        },
        LockKind::Spin => {
            let spins = |class: &str| !RWSEMS.contains(&class) && class != THREADGROUP;
            by_function(spins).unwrap_or(OTHER_CLASS)
        }
        LockKind::Other => match by_function(|_| true) {
            Some(class) => class,
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
        assert_eq!(of("&sb->s_type->i_mutex_key#17"), Some("i_rwsem"));
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
