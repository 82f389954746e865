//! A process of a run, from its own view, and its threads.

use crate::errno::last;
use crate::shared::Region;
use crate::table::Table;
use mmscale_system::{CpuPosition, Errno, Fd, ProcessId, ThreadId};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Where programs' memory begins: below all addresses that the kernel chooses by itself, so that it
/// can be distinguished from the rest of the process, and unmapped in one call.
pub(crate) const USER_BEGIN: u64 = 1 << 16;
/// Where it ends.
pub(crate) const USER_END: u64 = 1 << 46;
/// Where the addresses begin that this system chooses.
pub(crate) const CHOSEN: u64 = 1 << 44;

/// The run of a process.
pub(crate) struct RunState {
    pub(crate) table: Region<Table>,
    /// The kernel's numbers of the CPUs, by ours.
    pub(crate) cpus: Vec<usize>,
    /// Where these CPUs are.
    pub(crate) positions: Vec<CpuPosition>,
    pub(crate) nodes: usize,
    /// Rounds of the computing loop in 1024 ns.
    pub(crate) turns_1024: u64,
}

/// The state of a thread, for its join.
pub(crate) enum Thread {
    Running(JoinHandle<()>),
    /// A thread waits for it, or has waited.
    Claimed,
}

/// The state that each process has for itself.
pub(crate) struct ProcessState {
    pub(crate) id: ProcessId,
    /// Threads that have not returned.
    pub(crate) running: AtomicU32,
    threads: Mutex<BTreeMap<ThreadId, Thread>>,
    descriptors: Mutex<Vec<Option<i32>>>,
    /// Mappings outside of [`USER_BEGIN`] and [`USER_END`], with their sizes in bytes.
    strays: Mutex<Vec<(u64, u64)>>,
    /// The next address to choose.
    pub(crate) next: AtomicU64,
}

fn open<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ProcessState {
    /// Makes the first process, without descriptors and mappings.
    pub(crate) fn new(id: ProcessId) -> Arc<Self> {
        Self::with(id, Vec::new(), Vec::new(), CHOSEN)
    }
    fn with(
        id: ProcessId,
        descriptors: Vec<Option<i32>>,
        strays: Vec<(u64, u64)>,
        next: u64,
    ) -> Arc<Self> {
        Arc::new(Self {
            id,
            running: AtomicU32::new(1),
            threads: Mutex::default(),
            descriptors: Mutex::new(descriptors),
            strays: Mutex::new(strays),
            next: AtomicU64::new(next),
        })
    }
    pub(crate) fn threads(&self) -> MutexGuard<'_, BTreeMap<ThreadId, Thread>> {
        open(&self.threads)
    }
    /// Notes that a thread has returned; returns whether it was the last. `AcqRel`: the last thread
    /// sees the writes of the others.
    pub(crate) fn returned(&self) -> bool {
        self.running.fetch_sub(1, AcqRel) == 1
    }
    /// Forks. The child keeps the memory and descriptors of the caller that `keep` selects.
    pub(crate) fn fork(&self, id: ProcessId, keep: Keep) -> Forked {
        // Held over the fork, so that the child finds both in a consistent state.
        let descriptors = open(&self.descriptors);
        let strays = open(&self.strays);
        // SAFETY: the child continues with memory, locks of the C library's allocator included,
        // that the C library keeps consistent over forks; our own locks are held here or made anew.
        let pid = unsafe { libc::fork() };
        match pid {
            -1 => Forked::Failed(last()),
            0 if keep == Keep::Everything => {
                let next = self.next.load(Relaxed);
                Forked::Child(Self::with(id, descriptors.clone(), strays.clone(), next))
            }
            0 => {
                let mut descriptors = descriptors.clone();
                close_on_exec(&mut descriptors);
                unmap_all(&strays);
                Forked::Child(Self::with(id, descriptors, Vec::new(), CHOSEN))
            }
            pid => Forked::Parent(pid),
        }
    }
    /// Unmaps all memory of the program, and closes the descriptors that exec would close.
    pub(crate) fn exec(&self) {
        close_on_exec(&mut open(&self.descriptors));
        unmap_all(&std::mem::take(&mut *open(&self.strays)));
        self.next.store(CHOSEN, Relaxed);
    }

    /// Returns the lowest free number, for the kernel's descriptor `fd`.
    pub(crate) fn open(&self, fd: i32) -> Fd {
        let mut all = open(&self.descriptors);
        let place = all.iter().position(Option::is_none).unwrap_or(all.len());
        if place == all.len() {
            all.push(None);
        }
        all[place] = Some(fd);
        Fd(place as u32)
    }
    /// Returns the kernel's descriptor.
    pub(crate) fn descriptor(&self, fd: Fd) -> Option<i32> {
        open(&self.descriptors).get(fd.0 as usize).copied().flatten()
    }
    pub(crate) fn forget(&self, fd: Fd) -> Option<i32> {
        open(&self.descriptors).get_mut(fd.0 as usize)?.take()
    }

    /// Whether a range is memory of programs, mapped or not.
    pub(crate) fn may_use(&self, at: u64, bytes: u64) -> bool {
        let Some(end) = at.checked_add(bytes) else { return false };
        if at >= USER_BEGIN && end <= USER_END {
            return true;
        }
        open(&self.strays).iter().any(|&(from, len)| at >= from && end <= from + len)
    }
    pub(crate) fn note_stray(&self, at: u64, bytes: u64) {
        open(&self.strays).push((at, bytes));
    }
    /// Removes a range that is about to be unmapped: the process's own next mapping there is not
    /// the program's.
    pub(crate) fn forget_strays(&self, at: u64, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let end = at.saturating_add(bytes);
        let mut strays = open(&self.strays);
        let left = strays.iter().flat_map(|&(from, len)| {
            let to = from + len;
            [(from, to.min(at)), (from.max(end), to)]
        });
        *strays = left.filter(|(from, to)| from < to).map(|(from, to)| (from, to - from)).collect();
    }
}

/// Closes the descriptors that do not survive an exec.
fn close_on_exec(descriptors: &mut [Option<i32>]) {
    // SAFETY: descriptors that the program has opened.
    let closes = |fd: i32| unsafe { libc::fcntl(fd, libc::F_GETFD) } & libc::FD_CLOEXEC != 0;
    for slot in descriptors {
        if let Some(fd) = slot.take_if(|fd| closes(*fd)) {
            // SAFETY: as above, and no other thread can look it up any more.
            unsafe { libc::close(fd) };
        }
    }
}

/// Unmaps all memory of the program.
fn unmap_all(strays: &[(u64, u64)]) {
    let whole = (USER_BEGIN, USER_END - USER_BEGIN);
    for &(at, bytes) in strays.iter().chain([&whole]) {
        // SAFETY: memory of programs only, of which this process has no reference.
        unsafe { libc::munmap(at as *mut _, bytes as usize) };
    }
}

/// The part of its parent's memory and descriptors that a new process has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Keep {
    Nothing,
    Everything,
}

/// The result of a fork, by process.
pub(crate) enum Forked {
    /// The error, read before another call could change it.
    Failed(Errno),
    Child(Arc<ProcessState>),
    Parent(i32),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stray_that_is_unmapped_in_its_middle_is_the_programs_on_both_sides_only() {
        let own = ProcessState::new(ProcessId(1));
        let at = USER_END + (1 << 20);
        own.note_stray(at, 8 << 12);
        assert!(own.may_use(at, 8 << 12));
        own.forget_strays(at + (1 << 12), 0);
        assert!(own.may_use(at, 8 << 12), "nothing was unmapped");
        own.forget_strays(at + (2 << 12), 3 << 12);
        assert!(own.may_use(at, 2 << 12) && own.may_use(at + (5 << 12), 3 << 12));
        assert!(!own.may_use(at + (2 << 12), 1) && !own.may_use(at + (4 << 12), 8));
        own.forget_strays(0, u64::MAX);
        assert!(!own.may_use(at, 8) && own.may_use(USER_BEGIN, 8));
    }
}
