//! All processes of a run, in memory that they share. Our number of a process is never used twice,
//! but the kernel's number is. So a process is signalled only under the lock under which its parent
//! reaps it.

use crate::shared::{Region, SharedLock, Zeroed};
use mmscale_system::{CpuTime, Errno, Exit, ProcessId};
use std::cell::UnsafeCell;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64};

/// The most processes of one run, ended ones included.
const SLOTS: usize = 1 << 20;
/// Bytes of the message about the first error.
const TEXT_BYTES: usize = 2048;

/// A process.
struct ProcessSlot {
    /// 0 until it has begun.
    pid: AtomicI32,
    parent: AtomicU32,
    /// A process waits for it, or has waited.
    claimed: AtomicBool,
    /// No look-up finds it any more.
    gone: AtomicBool,
    /// A process of the run has killed it.
    killed: AtomicBool,
    lock: SharedLock,
}

/// The shared state of a run. `Release` stores and `AcqRel` swaps pair with the `Acquire` loads of
/// the same field: a process that sees the value sees all writes before it.
pub(crate) struct Table {
    used: AtomicU32,
    threads: AtomicU32,
    begin_ns: AtomicU64,
    user_ns: AtomicU64,
    system_ns: AtomicU64,
    /// Page faults of all processes, after they have ended.
    faults: AtomicU64,
    /// Successful calls of process_mrelease: their number, their sum and the longest, in ns.
    /// Relaxed: statistics only.
    releases: AtomicU64,
    release_ns: AtomicU64,
    release_max_ns: AtomicU64,
    /// Whether a memory group limits the run.
    grouped: AtomicBool,
    /// Whether the run has ended: no process and no thread starts any more.
    over: AtomicBool,
    reported: AtomicBool,
    text_len: AtomicU32,
    text: UnsafeCell<[u8; TEXT_BYTES]>,
    slots: [ProcessSlot; SLOTS],
}

// SAFETY: numbers, flags, and locks that are free.
unsafe impl Zeroed for Table {}
// SAFETY: the text is written once, by the process that set `told`, and read after `text_len` is
// set.
unsafe impl Sync for Table {}

/// Durations of calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CallTimes {
    /// Their number.
    pub count: u64,
    /// Their sum, in ns.
    pub total_ns: u64,
    /// The longest, in ns.
    pub max_ns: u64,
}

/// The end of a process that was reaped.
pub(crate) struct Reaped {
    /// As for [`System::wait`](mmscale_system::System::wait).
    pub(crate) exit: Exit,
    /// The signal that ended it, if no process of the run sent it and the run had not ended.
    pub(crate) crash: Option<i32>,
}

impl Table {
    pub(crate) fn new() -> std::io::Result<Region<Self>> {
        Region::zeroed()
    }
    /// Returns a number for a child of `parent`. `Nomem` if none is left, `Stopped` if the run has
    /// ended.
    pub(crate) fn take(&self, parent: ProcessId) -> Result<ProcessId, Errno> {
        if self.is_over() {
            return Err(Errno::Stopped);
        }
        let number = self.used.fetch_add(1, Relaxed);
        let Some(slot) = self.slots.get(number as usize) else {
            self.used.store(SLOTS as u32, Relaxed);
            return Err(Errno::Nomem);
        };
        slot.parent.store(parent.0, Relaxed);
        Ok(ProcessId(number))
    }
    /// Stores the kernel's number `pid` of the process.
    pub(crate) fn begun(&self, process: ProcessId, pid: i32) {
        self.slots[process.0 as usize].pid.store(pid, Release);
    }
    /// Notes that the process could not be made.
    pub(crate) fn discard(&self, process: ProcessId) {
        self.slots[process.0 as usize].gone.store(true, Release);
    }
    fn known(&self) -> &[ProcessSlot] {
        &self.slots[..(self.used.load(Acquire) as usize).min(SLOTS)]
    }
    /// Calls `f` for a process that exists, dead or alive. It is not reaped meanwhile.
    pub(crate) fn with<R>(
        &self,
        process: ProcessId,
        work: impl FnOnce(i32) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let slot = self.known().get(process.0 as usize).ok_or(Errno::Srch)?;
        slot.lock.with(|| {
            let pid = slot.pid.load(Acquire);
            if pid <= 0 || slot.gone.load(Acquire) { Err(Errno::Srch) } else { work(pid) }
        })
    }
    /// Notes that the run itself kills a process.
    pub(crate) fn will_be_killed(&self, process: ProcessId) {
        if let Some(slot) = self.known().get(process.0 as usize) {
            slot.killed.store(true, Release);
        }
    }
    /// Claims the child `process` of `parent` for the first caller that waits for it.
    pub(crate) fn claim(&self, process: ProcessId, parent: ProcessId) -> Result<i32, Errno> {
        let slot = self.known().get(process.0 as usize).ok_or(Errno::Child)?;
        let own = slot.parent.load(Relaxed) == parent.0 && process != parent;
        if !own || slot.gone.load(Acquire) || slot.claimed.swap(true, AcqRel) {
            return Err(Errno::Child);
        }
        Ok(slot.pid.load(Acquire))
    }
    /// Reaps a child of the calling process that has ended.
    pub(crate) fn reap(&self, pid: i32) -> Option<Reaped> {
        let slot = self
            .known()
            .iter()
            .find(|slot| slot.pid.load(Acquire) == pid && !slot.gone.load(Acquire));
        let expected = |slot: &ProcessSlot| slot.killed.load(Acquire) || self.is_over();
        let reap = || {
            let expected = slot.is_none_or(expected);
            let mut status = 0;
            // SAFETY: the status is ours.
            let reaped = unsafe { libc::waitpid(pid, &raw mut status, 0) };
            (reaped == pid).then(|| reaped_as(status, expected))
        };
        match slot {
            Some(slot) => slot.lock.with(|| {
                slot.gone.store(true, Release);
                reap()
            }),
            None => reap(),
        }
    }
    /// Returns the kernel's numbers of processes that were not waited for.
    pub(crate) fn live(&self) -> impl Iterator<Item = i32> {
        let there = |slot: &&ProcessSlot| !slot.gone.load(Acquire) && slot.pid.load(Acquire) > 0;
        self.known().iter().filter(there).map(|slot| slot.pid.load(Acquire))
    }

    pub(crate) fn next_thread(&self) -> u32 {
        self.threads.fetch_add(1, Relaxed)
    }
    pub(crate) fn begin(&self, now_ns: u64) {
        self.begin_ns.store(now_ns, Release);
    }
    pub(crate) fn begin_ns(&self) -> u64 {
        self.begin_ns.load(Acquire)
    }
    /// Stores the CPU time of all processes, after they have ended.
    pub(crate) fn set_cpu(&self, cpu: CpuTime) {
        self.user_ns.store(cpu.user_ns, Release);
        self.system_ns.store(cpu.system_ns, Release);
    }
    /// Stores the page faults of all processes, after they have ended.
    pub(crate) fn set_faults(&self, faults: u64) {
        self.faults.store(faults, Release);
    }
    pub(crate) fn faults(&self) -> u64 {
        self.faults.load(Acquire)
    }
    pub(crate) fn cpu(&self) -> CpuTime {
        let (user_ns, system_ns) = (self.user_ns.load(Acquire), self.system_ns.load(Acquire));
        CpuTime { user_ns, system_ns }
    }
    /// Notes that a memory group limits the run.
    pub(crate) fn set_grouped(&self) {
        self.grouped.store(true, Release);
    }
    /// Whether a memory group limits the run.
    pub(crate) fn is_grouped(&self) -> bool {
        self.grouped.load(Acquire)
    }
    /// Counts a successful call of process_mrelease.
    pub(crate) fn released(&self, ns: u64) {
        self.releases.fetch_add(1, Relaxed);
        self.release_ns.fetch_add(ns, Relaxed);
        self.release_max_ns.fetch_max(ns, Relaxed);
    }
    /// Returns the statistics of these calls.
    pub(crate) fn releases(&self) -> CallTimes {
        CallTimes {
            count: self.releases.load(Relaxed),
            total_ns: self.release_ns.load(Relaxed),
            max_ns: self.release_max_ns.load(Relaxed),
        }
    }
    pub(crate) fn end(&self) {
        self.over.store(true, Release);
    }
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Acquire)
    }

    /// Stores the message about an error, if it is the first.
    pub(crate) fn report(&self, text: &str) {
        if self.reported.swap(true, AcqRel) {
            return;
        }
        let bytes = text.as_bytes();
        let len = bytes.len().min(TEXT_BYTES);
        // SAFETY: only the first caller is here, and no process reads before the length is set.
        unsafe { (&mut *self.text.get())[..len].copy_from_slice(&bytes[..len]) };
        self.text_len.store(len as u32, Release);
    }
    /// Returns the message about the first error.
    pub(crate) fn first_error(&self) -> Option<String> {
        // Pairs with the `Release` in `report`.
        let len = self.text_len.load(Acquire) as usize;
        if len == 0 {
            return None;
        }
        // SAFETY: after the length is set the text is not written again. Before that no reference
        // is made: `report` may be writing.
        let text = unsafe { &*self.text.get() };
        Some(String::from_utf8_lossy(&text[..len]).into_owned())
    }
}

/// Converts a wait status. A kill is `expected` if a process of the run sent it; other signals
/// never are.
fn reaped_as(status: i32, expected: bool) -> Reaped {
    if !libc::WIFSIGNALED(status) {
        return Reaped { exit: Exit::Returned, crash: None };
    }
    let signal = libc::WTERMSIG(status);
    let crash = (signal != libc::SIGKILL || !expected).then_some(signal);
    Reaped { exit: Exit::Killed, crash }
}

impl Reaped {
    /// Returns the message for an end that no process of the run caused.
    pub(crate) fn complaint(&self) -> Option<String> {
        let by = match self.crash? {
            libc::SIGKILL => {
                "from outside, or by the kernel for want of memory (signal 9)".to_owned()
            }
            signal => format!("by signal {signal}"),
        };
        Some(format!("a process of the run was ended {by}"))
    }
}
