//! The upper waist: what a program can ask of an operating system.
//!
//! One workload source is written against [`System`] and runs on every machine: simulated, real
//! threads, the live kernel. What the calls do and which errors they give is what the manual pages
//! say; a conformance suite asks the same of every machine.

#![no_std]

extern crate alloc;

mod errno;
mod memory;
mod plain;
mod process;

pub use errno::Errno;
pub use memory::{
    Addr, Advice, FilePart, HUGE_BYTES, LockWhat, MapSpec, MayMove, PAGE_BYTES, Place, Populate,
    Present, Prot, Share,
};
pub use plain::Plain;
pub use process::{CpuTime, Exit, Fd, Priority, ProcessId, ThreadId, ThreadSpec};

use alloc::boxed::Box;
use alloc::vec::Vec;

/// What a thread runs.
pub type Body<S> = Box<dyn FnOnce(&S) + Send>;

/// An operating system, as its programs see it. Each call may take a scheduling turn. After the
/// caller's process was killed, and after the first thread of the run has returned, every call says
/// [`Errno::Stopped`].
///
/// Addresses of ranges must begin a page, and lengths are rounded up to pages, but where it says
/// otherwise: [`Errno::Inval`] if not.
pub trait System: Sized + 'static {
    // -- The machine.

    /// How many CPUs there are.
    fn cpus(&self) -> usize;
    /// How many memory nodes there are.
    fn nodes(&self) -> usize;
    /// Monotonic time in ns.
    fn clock_ns(&self) -> u64;
    /// The CPU time that the calling process has used until now; `None` where the machine keeps its
    /// own books of that.
    fn cpu_time(&self) -> Option<CpuTime> {
        None
    }
    /// Sleeps for at least `ns`, or until the caller's process is killed.
    fn sleep_ns(&self, ns: u64) -> Result<(), Errno>;
    /// Computes for `ns` of CPU time without asking for anything.
    fn compute_ns(&self, ns: u64) -> Result<(), Errno>;
    /// Takes a CPU offline. `Inval` for the last one.
    fn cpu_offline(&self, cpu: usize) -> Result<(), Errno>;
    /// Takes a CPU online again.
    fn cpu_online(&self, cpu: usize) -> Result<(), Errno>;

    // -- Threads and processes.

    /// Starts a thread of the calling process. `Inval` if the CPU does not exist; `Nomem` if there
    /// is no memory for its stack.
    fn spawn(&self, spec: ThreadSpec, body: Body<Self>) -> Result<ThreadId, Errno>;
    /// Waits until a thread has returned. `Inval` if there is no such thread, or somebody waits for
    /// it already; [`Errno::Stopped`] if the caller's process is killed meanwhile.
    fn join(&self, thread: ThreadId) -> Result<(), Errno>;
    /// Starts a process with nothing mapped. `Nomem` if there is no memory for it.
    fn process(&self, spec: ThreadSpec, body: Body<Self>) -> Result<ProcessId, Errno>;
    /// Starts a process with a copy of the caller's memory. `Nomem` if there is no memory for it.
    fn fork(&self, spec: ThreadSpec, body: Body<Self>) -> Result<ProcessId, Errno>;
    /// Waits until all threads of a process that the caller has started have returned, and all that
    /// it had is given back. `Child` if there is no such process, somebody has waited for it
    /// already, or it is the caller's own. [`Errno::Stopped`] if the caller's process is killed
    /// meanwhile; who was told to stop may still ask for a process that has ended.
    fn wait(&self, process: ProcessId) -> Result<Exit, Errno>;
    /// Ends a process: its threads are told to return. `Srch` if there is no such process, or
    /// somebody has waited for its end.
    fn kill(&self, process: ProcessId) -> Result<(), Errno>;
    /// Opens a descriptor of a process, whosever child it is, that goes on to mean this one
    /// (`pidfd_open`). `Srch` if there is no such process, or somebody has waited for its end.
    fn pidfd_open(&self, process: ProcessId) -> Result<Fd, Errno>;
    /// Closes a descriptor of the caller's process. `Badf` if it has no such one.
    fn close(&self, fd: Fd) -> Result<(), Errno>;
    /// Takes the pages of a dying process out of its memory, on the caller's CPU and beside its own
    /// exit (`process_mrelease`). `Badf`: `process` is no descriptor of a process. `Srch`: the
    /// process has no memory any more, as its last thread has returned. `Inval`: it is not dying,
    /// or `flags` is not 0. `Again`: some pages could not be taken out now. `Intr`: the caller was
    /// killed while it waited.
    fn process_mrelease(&self, process: Fd, flags: u32) -> Result<(), Errno>;
    /// Sets by how many thousandths of all memory a process is more (or less) likely to be killed
    /// when there is none: -1000, never, to 1000 (`/proc/PID/oom_score_adj`). Processes that it
    /// starts inherit it. `Inval`: not in that range. `Srch`: there is no such process, or somebody
    /// has waited for its end.
    fn set_oom_score_adj(&self, process: ProcessId, thousandths: i32) -> Result<(), Errno>;
    /// The calling process.
    fn own_process(&self) -> ProcessId;

    // -- Memory of the calling process.

    /// Makes a file of `bytes` bytes in memory, all zeros, and opens it (`memfd_create`). It is
    /// there until it is closed everywhere, and no process that has mapped it is left. `Overflow`:
    /// it would be larger than the machine can say.
    fn file(&self, bytes: u64) -> Result<Fd, Errno>;
    /// Maps memory. `Badf`, `Nodev`: it is no descriptor, or not of a file. `Overflow`: the part
    /// would end beyond all numbers. A part may reach beyond the end of its file: an access there
    /// is [`Errno::Bus`]. `Inval`: no bytes, or an offset that is none of a page. `Nomem`: no room,
    /// no memory, too many mappings. `Exist`: something is where nothing was to be. `Again`: more
    /// would be locked than may be.
    fn mmap(&self, spec: MapSpec) -> Result<Addr, Errno>;
    /// Unmaps a range, whatever is in it. `Inval`: no bytes. `Nomem`: it would cut a mapping in
    /// two, and there is no memory for that or too many mappings.
    fn munmap(&self, at: Addr, bytes: u64) -> Result<(), Errno>;
    /// Changes what may be done with a range. `Nomem`: not all of it is mapped, or as for
    /// [`System::munmap`].
    fn mprotect(&self, at: Addr, bytes: u64, prot: Prot) -> Result<(), Errno>;
    /// Resizes or moves a mapping. `Inval`: nothing is left, ranges overlap, or
    /// [`MayMove::Leave`] with another size. `Fault`: the old range is not all in one mapping.
    /// `Again`: more would be locked than may be. `Nomem`: it cannot grow where it is and may not
    /// move, no memory, too many mappings.
    fn mremap(
        &self,
        at: Addr,
        old_bytes: u64,
        new_bytes: u64,
        may_move: MayMove,
    ) -> Result<Addr, Errno>;
    /// Gives advice. `Nomem`: not all of the range is mapped; what is, was advised. `Inval`: it is
    /// not for such memory, as what lets pages go is not for locked ones. No bytes are no error.
    fn madvise(&self, at: Addr, bytes: u64, advice: Advice) -> Result<(), Errno>;
    /// Locks a range in memory; its ends are moved outwards to pages. `Nomem`: not all of it is
    /// mapped, or more would be locked than may be. `Again`: there is no memory for all of it.
    /// `Perm`: the process may lock nothing.
    fn mlock(&self, at: Addr, bytes: u64, what: LockWhat) -> Result<(), Errno>;
    /// Lets a range go. Its ends are moved outwards to pages. `Nomem`: not all of it is mapped.
    fn munlock(&self, at: Addr, bytes: u64) -> Result<(), Errno>;
    /// New pages of a range come from `node`, and those that are there may be moved. `Inval`: there
    /// is no such node. `Fault`: not all of it is mapped. `Io`: with [`Present::MoveAll`], a page
    /// could not be moved.
    fn mbind(&self, at: Addr, bytes: u64, node: usize, present: Present) -> Result<(), Errno>;
    /// Which pages of a range are in memory. `Nomem`: not all of it is mapped.
    fn mincore(&self, at: Addr, bytes: u64) -> Result<Vec<bool>, Errno>;
    /// Writes a word to the beginning of a page. An access to a page that is there is no call: only
    /// one that faults notices that its process is to end. `Segv`, `Bus`; `Nomem` where there is no
    /// memory and nobody to kill for it.
    fn write(&self, page: Addr, word: u64) -> Result<(), Errno>;
    /// Reads the word back: 0 where nobody has written.
    fn read(&self, page: Addr) -> Result<u64, Errno>;
}
