//! All processes of a run, in memory that they share. A number is never used twice; the kernel's
//! own process numbers are, so nobody is signalled but under the lock that his parent reaps him
//! under.

use crate::shared::{Region, SharedLock, Zeroed};
use mmscale_system::{CpuTime, Errno, Exit, ProcessId};
use std::cell::UnsafeCell;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64};

/// Processes of one run, one after the other included.
const SLOTS: usize = 1 << 20;
/// Bytes of the text that says what went wrong first.
const TEXT_BYTES: usize = 2048;

/// A process.
struct Slot {
    /// 0 until it has begun.
    pid: AtomicI32,
    parent: AtomicU32,
    /// Somebody waits for it, or has.
    claimed: AtomicBool,
    /// Nobody finds it any more.
    gone: AtomicBool,
    /// Somebody of the run has killed it.
    killed: AtomicBool,
    lock: SharedLock,
}

/// The shared state of a run.
pub(crate) struct Table {
    used: AtomicU32,
    threads: AtomicU32,
    begin_ns: AtomicU64,
    user_ns: AtomicU64,
    system_ns: AtomicU64,
    /// Calls of process_mrelease that helped: how many, their sum and the longest in ns.
    releases: AtomicU64,
    release_ns: AtomicU64,
    release_max_ns: AtomicU64,
    /// A memory group limits the run.
    grouped: AtomicBool,
    /// No process and no thread starts any more.
    over: AtomicBool,
    told: AtomicBool,
    text_len: AtomicU32,
    text: UnsafeCell<[u8; TEXT_BYTES]>,
    slots: [Slot; SLOTS],
}

// SAFETY: numbers, flags, and locks that are free.
unsafe impl Zeroed for Table {}
// SAFETY: the text is written once, by whoever set `told`, and read when `text_len` says so.
unsafe impl Sync for Table {}

/// How long calls took, from outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CallTimes {
    /// How many.
    pub count: u64,
    /// The sum, in ns.
    pub total_ns: u64,
    /// The longest, in ns.
    pub max_ns: u64,
}

/// How a process was reaped.
pub(crate) struct Reaped {
    /// As [`System::wait`](mmscale_system::System::wait) says it.
    pub(crate) exit: Exit,
    /// It ended by a signal that nobody of the run has sent, before the run was over.
    pub(crate) crash: Option<i32>,
}

impl Table {
    pub(crate) fn new() -> std::io::Result<Region<Self>> {
        Region::zeroed()
    }
    /// A number for a child of `parent`. `Nomem`: there are none left, or the run is over.
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
    /// The process has the kernel's number `pid`.
    pub(crate) fn begun(&self, process: ProcessId, pid: i32) {
        self.slots[process.0 as usize].pid.store(pid, Release);
    }
    /// It could not be made.
    pub(crate) fn never_was(&self, process: ProcessId) {
        self.slots[process.0 as usize].gone.store(true, Release);
    }
    fn known(&self) -> &[Slot] {
        &self.slots[..(self.used.load(Acquire) as usize).min(SLOTS)]
    }
    /// Does something with a process that is there, dead or alive: nobody reaps it meanwhile.
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
    /// The run itself kills a process.
    pub(crate) fn will_be_killed(&self, process: ProcessId) {
        if let Some(slot) = self.known().get(process.0 as usize) {
            slot.killed.store(true, Release);
        }
    }
    /// The child `process` of `parent`, for the first who waits for it.
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
        let expected = |slot: &Slot| slot.killed.load(Acquire) || self.is_over();
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
    /// Kernel numbers of processes that nobody has waited for.
    pub(crate) fn live(&self) -> impl Iterator<Item = i32> {
        let there = |slot: &&Slot| !slot.gone.load(Acquire) && slot.pid.load(Acquire) > 0;
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
    /// What all processes have used together, when they have ended.
    pub(crate) fn set_cpu(&self, cpu: CpuTime) {
        self.user_ns.store(cpu.user_ns, Release);
        self.system_ns.store(cpu.system_ns, Release);
    }
    pub(crate) fn cpu(&self) -> CpuTime {
        let (user_ns, system_ns) = (self.user_ns.load(Acquire), self.system_ns.load(Acquire));
        CpuTime { user_ns, system_ns }
    }
    /// A memory group limits the run from now on.
    pub(crate) fn set_grouped(&self) {
        self.grouped.store(true, Release);
    }
    /// Whether one does.
    pub(crate) fn is_grouped(&self) -> bool {
        self.grouped.load(Acquire)
    }
    /// A call of process_mrelease has helped.
    pub(crate) fn released(&self, ns: u64) {
        self.releases.fetch_add(1, Relaxed);
        self.release_ns.fetch_add(ns, Relaxed);
        self.release_max_ns.fetch_max(ns, Relaxed);
    }
    /// All such calls.
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

    /// Notes what went wrong, if it is the first.
    pub(crate) fn tell(&self, text: &str) {
        if self.told.swap(true, AcqRel) {
            return;
        }
        let bytes = text.as_bytes();
        let len = bytes.len().min(TEXT_BYTES);
        // SAFETY: only the first to tell is here, and nobody reads before the length is there.
        unsafe { (&mut *self.text.get())[..len].copy_from_slice(&bytes[..len]) };
        self.text_len.store(len as u32, Release);
    }
    /// What went wrong first.
    pub(crate) fn told(&self) -> Option<String> {
        // Pairs with the `Release` in `tell`.
        let len = self.text_len.load(Acquire) as usize;
        if len == 0 {
            return None;
        }
        // SAFETY: once the length is there the text is not written again. Before that no reference
        // is made: `tell` may be writing.
        let text = unsafe { &*self.text.get() };
        Some(String::from_utf8_lossy(&text[..len]).into_owned())
    }
}

/// Whether a kill is `expected` depends on who killed; other signals never are.
fn reaped_as(status: i32, expected: bool) -> Reaped {
    if !libc::WIFSIGNALED(status) {
        return Reaped { exit: Exit::Returned, crash: None };
    }
    let signal = libc::WTERMSIG(status);
    let crash = (signal != libc::SIGKILL || !expected).then_some(signal);
    Reaped { exit: Exit::Killed, crash }
}

impl Reaped {
    /// What there is to tell of an end that nobody of the run wanted.
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
