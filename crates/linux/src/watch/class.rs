//! The class of the lock that a task waited for. The kernel reports an address; the call path
//! determines the class.

use mmscale_document::{LockKind, lock_of};

/// `lock:contention_begin`'s flags, from `trace/events/lock.h`.
const SPIN: u32 = 1;
const READ: u32 = 2;
const WRITE: u32 = 4;
const PERCPU: u32 = 16;
const MUTEX: u32 = 32;

fn kind(flags: u32) -> LockKind {
    let has = |flag: u32| flags & flag != 0;
    match flags {
        _ if has(MUTEX) => LockKind::Mutex,
        _ if has(PERCPU) => LockKind::PercpuRwsem,
        _ if !has(SPIN) && has(READ | WRITE) => LockKind::Rwsem,
        _ if has(READ | WRITE) => LockKind::Rwlock,
        _ => LockKind::Spin,
    }
}

/// Returns the class of the lock for which a task waited on a path, and a name if no class has it.
/// `through` is the function with which the path requested the lock.
pub(crate) fn of(
    path: &[String],
    flags: u32,
    through: Option<&str>,
) -> (&'static str, Option<String>) {
    lock_of(path, kind(flags), through)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_determine_the_kind() {
        assert_eq!(kind(SPIN), LockKind::Spin);
        assert_eq!(kind(SPIN | WRITE), LockKind::Rwlock, "a queued rwlock spins");
        assert_eq!([READ, WRITE].map(kind), [LockKind::Rwsem; 2]);
        assert_eq!(kind(MUTEX | SPIN), LockKind::Mutex);
        assert_eq!(kind(PERCPU | READ), LockKind::PercpuRwsem);
    }

    #[test]
    fn path_and_kind_determine_the_class() {
        let path = ["do_exit".to_owned(), "exit_mmap".to_owned()];
        assert_eq!(of(&path, WRITE, None).0, "mmap_lock");
        assert_eq!(of(&["free_pcppages_bulk".to_owned()], SPIN, None).0, "zone");
        let fork = ["dup_mmap".to_owned()];
        let (class, lock) = of(&fork, WRITE, Some("down_write"));
        assert_eq!((class, lock.as_deref()), ("rwsem", Some("i_mmap_rwsem or mmap_lock")));
        assert_eq!(of(&fork, WRITE, Some("down_write_killable")).0, "mmap_lock");
    }
}
