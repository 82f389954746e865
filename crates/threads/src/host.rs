//! The host computer: the CPUs that this process may use, and pinning to them.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// How CPUs wait for each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Waiting {
    /// Each has a CPU of the host to itself: they spin, and locks are granted in order of arrival.
    Spin,
    /// They share the host's CPUs: they yield after a short spin, and a lock goes to any CPU that
    /// runs, because the next in order may not be running.
    Yield,
}

/// The CPUs of the computer that this process may use, by the system's numbers.
pub(crate) struct HostCpus(Vec<usize>);

impl HostCpus {
    /// Asks the system. If that fails, the list is empty and no thread is pinned.
    pub(crate) fn allowed() -> Self {
        Self(system::allowed())
    }

    /// Runs `work` on a thread that may use only some CPUs, by the system's numbers, and so may all
    /// that it starts. `None`: the system did not allow it.
    pub(crate) fn only<T: Send>(cpus: &[usize], work: impl FnOnce() -> T + Send) -> Option<T> {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| system::restrict(cpus).then(work));
            thread.join().unwrap_or_else(|payload| std::panic::resume_unwind(payload))
        })
    }

    /// Returns their number; at least 1.
    pub(crate) fn count(&self) -> usize {
        self.0.len().max(1)
    }

    /// Pins the calling thread to the host CPU of the machine's CPU `index`: one each, starting
    /// over when there are no more. Returns whether that succeeded, which it does on Linux only.
    pub(crate) fn pin(&self, index: usize) -> bool {
        !self.0.is_empty() && system::pin(self.0[index % self.0.len()])
    }
}

/// Asks the system to end sleeps on time rather than in batches. If it refuses, sleeps end late.
pub(crate) fn punctual_sleeps() {
    system::punctual_sleeps();
}

#[cfg(target_os = "linux")]
mod system {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity, set_current_timer_slack};

    pub(super) fn allowed() -> Vec<usize> {
        let Ok(set) = sched_getaffinity(None) else { return Vec::new() };
        (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
    }
    pub(super) fn pin(cpu: usize) -> bool {
        restrict(&[cpu])
    }
    pub(super) fn restrict(cpus: &[usize]) -> bool {
        let mut set = CpuSet::new();
        cpus.iter().for_each(|&cpu| set.set(cpu));
        sched_setaffinity(None, &set).is_ok()
    }
    pub(super) fn punctual_sleeps() {
        let _ = set_current_timer_slack(core::num::NonZeroU64::new(1));
    }
}

/// Other systems place threads by themselves.
#[cfg(not(target_os = "linux"))]
mod system {
    pub(super) fn allowed() -> Vec<usize> {
        (0..std::thread::available_parallelism().map_or(1, usize::from)).collect()
    }
    pub(super) fn pin(_: usize) -> bool {
        false
    }
    pub(super) fn restrict(_: &[usize]) -> bool {
        false
    }
    pub(super) fn punctual_sleeps() {}
}

/// Locks a mutex of the machine. No code panics under these mutexes, so poison is ignored.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
