//! Locks and mechanisms of Linux in the calls that a run made, without a counterpart in this memory
//! manager.
//!
//! Each kind of call has a row in [`GAPS`], or one in [`COMPLETE`] with the locks on its path, all
//! of which are simulated. Calls that no program of a study or script can make, such as those of
//! sockets, have none.
//!
//! A result is silent about a lock that is not simulated. [`GAPS`] is the only list of such locks
//! and mechanisms, and a run knows which of its calls reach them. A gap that is closed loses its
//! row here.

mod gaps;

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicU64};
pub use gaps::{COMPLETE, GAPS};
use mmscale_arch::Machine;

/// A kind of call, as far as [`GAPS`] distinguishes them. Names are those of the system calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the names are those of system calls")]
pub enum Call {
    Sleep,
    Hotplug,
    /// A new thread.
    Spawn,
    /// A new process that shares nothing with its parent.
    Process,
    Fork,
    Exec,
    /// The end of a thread, and of its process with the last.
    Exit,
    Wait,
    Kill,
    Pidfd,
    Close,
    Mrelease,
    VmReadv,
    OomScore,
    /// mkdir of a cgroup.
    MakeGroup,
    /// rmdir of a cgroup.
    RemoveGroup,
    File,
    /// posix_fadvise.
    Fadvise,
    /// mmap of anonymous memory.
    Mmap,
    /// mmap of a file.
    MmapFile,
    Munmap,
    Mprotect,
    Mremap,
    Madvise,
    Msync,
    Mlock,
    Mbind,
    Mincore,
    /// A read of /proc/zoneinfo.
    Zoneinfo,
    /// An access by a program, which may fault.
    Access,
}

impl Call {
    /// All kinds.
    pub const ALL: [Self; 30] = [
        Self::Sleep,
        Self::Hotplug,
        Self::Spawn,
        Self::Process,
        Self::Fork,
        Self::Exec,
        Self::Exit,
        Self::Wait,
        Self::Kill,
        Self::Pidfd,
        Self::Close,
        Self::Mrelease,
        Self::VmReadv,
        Self::OomScore,
        Self::MakeGroup,
        Self::RemoveGroup,
        Self::File,
        Self::Fadvise,
        Self::Mmap,
        Self::MmapFile,
        Self::Munmap,
        Self::Mprotect,
        Self::Mremap,
        Self::Madvise,
        Self::Msync,
        Self::Mlock,
        Self::Mbind,
        Self::Mincore,
        Self::Zoneinfo,
        Self::Access,
    ];

    const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// The kinds of calls that a run made.
#[derive(Debug)]
pub struct Calls {
    /// Relaxed, as all that follow: no bit depends on another, and readers join the threads that
    /// set them.
    ever: AtomicU32,
    measured: AtomicU32,
    /// The measured time, in ns of the machine's clock. Set before programs start.
    from_ns: AtomicU64,
    until_ns: AtomicU64,
}

impl Calls {
    /// Returns a record of calls at any time.
    pub(crate) const fn new() -> Self {
        Self {
            ever: AtomicU32::new(0),
            measured: AtomicU32::new(0),
            from_ns: AtomicU64::new(0),
            until_ns: AtomicU64::new(u64::MAX),
        }
    }
    /// Sets the measured time.
    pub fn measure(&self, from_ns: u64, until_ns: u64) {
        self.from_ns.store(from_ns, Relaxed);
        self.until_ns.store(until_ns, Relaxed);
    }
    /// Records a call. The line is written once for each kind, so that real CPUs do not exchange
    /// it.
    pub(crate) fn add<A: Machine>(&self, call: Call) {
        if self.measured.load(Relaxed) & call.bit() != 0 {
            return;
        }
        if self.ever.load(Relaxed) & call.bit() == 0 {
            self.ever.fetch_or(call.bit(), Relaxed);
        }
        let now_ns = A::now_ns();
        if self.from_ns.load(Relaxed) <= now_ns && now_ns < self.until_ns.load(Relaxed) {
            self.measured.fetch_or(call.bit(), Relaxed);
        }
    }
    /// Returns the kinds of calls so far.
    pub fn made(&self) -> CallSet {
        CallSet { ever: self.ever.load(Relaxed), measured: self.measured.load(Relaxed) }
    }
}

/// A set of kinds of calls: those of the measured time, and all.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CallSet {
    ever: u32,
    measured: u32,
}

impl CallSet {
    /// Returns the calls of both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self { ever: self.ever | other.ever, measured: self.measured | other.measured }
    }
    /// Returns the rows of [`GAPS`] that these calls reach, in the order of the table.
    pub fn gaps(self) -> impl Iterator<Item = &'static Gap> {
        GAPS.iter().filter(move |gap| {
            let reached = gap.calls.iter().any(|call| self.measured & call.bit() != 0);
            let ever = |call: Call| self.ever & call.bit() != 0;
            reached && gap.once.is_none_or(ever) && !gap.unless.is_some_and(ever)
        })
    }
}

/// Which CPUs meet at a lock or mechanism that is not simulated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// All CPUs of the machine.
    Machine,
    /// All CPUs that run processes of one family, or that use one file or group.
    Shared,
    /// Only CPUs of one process.
    Process,
    /// No lock: work that has a cost or changes what other locks see.
    Work,
}

impl Scope {
    /// Returns who meets there, in a word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Machine => "machine",
            Self::Shared => "users",
            Self::Process => "process",
            Self::Work => "work",
        }
    }
}

/// A lock or mechanism of Linux that is not simulated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gap {
    /// The name in Linux.
    pub name: &'static str,
    /// Which CPUs meet there.
    pub scope: Scope,
    /// Its use in Linux, in a few words.
    pub what: &'static str,
    /// Where Linux does it: the file, as of 6.18.
    pub file: &'static str,
    /// The calls that reach it.
    pub calls: &'static [Call],
    /// A call without which, at any time of the run, they do not.
    pub once: Option<Call>,
    /// A call with which, at any time of the run, they do not: the run does this itself.
    pub unless: Option<Call>,
}

#[cfg(test)]
mod tests {
    use super::Call::{Access, Exit, File, Fork, Mmap, Munmap};
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn each_call_has_a_gap_or_is_complete() {
        for (at, call) in Call::ALL.into_iter().enumerate() {
            assert_eq!(call as usize, at, "{call:?} has its place");
            let gap = GAPS.iter().any(|gap| gap.once.is_none() && gap.calls.contains(&call));
            let complete = COMPLETE.iter().filter(|row| row.0 == call).count();
            assert_eq!(usize::from(gap) + complete, 1, "{call:?}");
        }
        // A kind that is added later is in ALL, too.
        assert_eq!(Call::ALL.len(), Access as usize + 1);
    }

    fn names(ever: &[Call], measured: &[Call]) -> Vec<&'static str> {
        let bits = |calls: &[Call]| calls.iter().fold(0, |bits, call| bits | call.bit());
        let made = CallSet { ever: bits(ever) | bits(measured), measured: bits(measured) };
        made.gaps().map(|gap| gap.name).collect()
    }

    #[test]
    fn only_gaps_of_calls_that_were_measured_are_listed() {
        assert_eq!(names(&[], &[]), [""; 0]);
        assert_eq!(names(&[Fork], &[Call::Mincore, Call::Mlock]), [""; 0]);
        assert!(names(&[], &[Fork]).contains(&"css_set_lock"));
        assert!(!names(&[Fork], &[Mmap, Munmap, Access]).contains(&"css_set_lock"));
    }

    #[test]
    fn a_lock_of_files_is_a_gap_of_runs_with_files() {
        let gap = "i_pages of dirty pages";
        assert!(!names(&[], &[Access, Exit]).contains(&gap));
        assert!(names(&[File], &[Access, Exit]).contains(&gap));
        assert!(!names(&[File], &[Mmap]).contains(&gap));
    }

    #[test]
    fn a_run_with_exec_maps_its_libraries_itself() {
        assert!(names(&[], &[Fork]).contains(&"i_mmap_rwsem of libraries"));
        let made = names(&[], &[Fork, Call::Exec]);
        assert!(!made.contains(&"i_mmap_rwsem of libraries") && made.contains(&"exec"));
    }

    #[test]
    fn each_gap_has_one_row_and_says_where() {
        for (at, gap) in GAPS.iter().enumerate() {
            assert!(!gap.calls.is_empty() && gap.file.ends_with(".c"), "{}", gap.name);
            assert!(GAPS[..at].iter().all(|other| other.name != gap.name), "{} twice", gap.name);
        }
    }
}
