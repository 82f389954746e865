//! The upper waist: what a program can request from an operating system.
//!
//! A workload is written once against [`System`] and runs on every machine: simulated, real
//! threads, the live kernel. Semantics and errors of the calls are those of the manual pages. One
//! conformance suite checks them on every machine.

#![no_std]

extern crate alloc;

mod errno;
mod memory;
mod plain;
mod process;

pub use errno::Errno;
pub use memory::{
    Addr, Advice, Backing, FileAdvice, FilePart, HUGE_BYTES, LockWhat, MapSpec, MayMove,
    PAGE_BYTES, Place, Populate, Present, Prot, Share,
};
pub use plain::Plain;
pub use process::{CpuPosition, CpuTime, Exit, Fd, Priority, ProcessId, ThreadId, ThreadSpec};

use alloc::boxed::Box;
use alloc::vec::Vec;

/// The body of a thread.
pub type Body<S> = Box<dyn FnOnce(&S) + Send>;

/// An operating system, as its programs see it. Each call may take a scheduling turn. All calls
/// fail with [`Errno::Stopped`] after the caller's process was killed, and after the first thread
/// of the run has returned.
///
/// Unless stated otherwise, the address of a range must be page-aligned ([`Errno::Inval`] if not),
/// and its length is rounded up to pages.
pub trait System: Sized + 'static {
    // -- The machine.

    /// Returns the number of CPUs.
    fn cpus(&self) -> usize;
    /// Returns the number of memory nodes.
    fn nodes(&self) -> usize;
    /// Returns where a CPU below [`Self::cpus`] is.
    fn position(&self, cpu: usize) -> CpuPosition;
    /// Returns monotonic time in ns.
    fn clock_ns(&self) -> u64;
    /// Returns the CPU time used by the calling process. `None` if the machine accounts CPU time
    /// itself.
    fn cpu_time(&self) -> Option<CpuTime> {
        None
    }
    /// Returns the page faults of the calling thread so far. `None` if the machine counts faults
    /// itself, or not at all.
    fn faults(&self) -> Option<u64> {
        None
    }
    /// Waits until all that other programs did before now has happened, so that the caller's next
    /// access to memory outside the system is in order: CPUs of a simulated machine run ahead of
    /// each other on the host. It takes no time. On real CPUs there is nothing to wait for.
    fn take_turn(&self) {}
    /// Sleeps for at least `ns`, or until the caller's process is killed.
    fn sleep_ns(&self, ns: u64) -> Result<(), Errno>;
    /// Computes for `ns` of CPU time without a system call.
    fn compute_ns(&self, ns: u64) -> Result<(), Errno>;
    /// Takes a CPU offline. `Inval` for the last online CPU.
    fn cpu_offline(&self, cpu: usize) -> Result<(), Errno>;
    /// Brings a CPU back online.
    fn cpu_online(&self, cpu: usize) -> Result<(), Errno>;

    // -- Threads and processes.

    /// Starts a thread of the calling process. `Inval`: the CPU does not exist. `Nomem`: no memory
    /// for the stack.
    fn spawn(&self, spec: ThreadSpec, body: Body<Self>) -> Result<ThreadId, Errno>;
    /// Waits until a thread has returned. `Inval`: there is no such thread, or another thread
    /// already waits for it. [`Errno::Stopped`]: the caller's process was killed meanwhile.
    fn join(&self, thread: ThreadId) -> Result<(), Errno>;
    /// Starts a process with an empty address space and the caller's files. `Nomem`: no memory for
    /// the process. `Inval`: the CPU or the memory group does not exist.
    fn process(&self, spec: ThreadSpec, body: Body<Self>) -> Result<ProcessId, Errno>;
    /// Starts a process with a copy of the caller's memory. Fails as [`System::process`] does.
    fn fork(&self, spec: ThreadSpec, body: Body<Self>) -> Result<ProcessId, Errno>;
    /// Replaces the memory of the calling process by an empty address space, as `execve` does
    /// before it maps the program. Its files stay open, descriptors of processes are closed, and
    /// its children stay. `Inval`: the process
    /// has other threads that have not returned. `Nomem`: no memory for the address space; nothing
    /// was changed.
    fn exec(&self) -> Result<(), Errno>;
    /// Waits until all threads of a child process have returned and its resources are freed.
    /// `Child`: there is no such child, its end was already waited for, or it is the calling
    /// process. [`Errno::Stopped`]: the caller's process was killed meanwhile. A stopped caller may
    /// still wait for a process that has already ended.
    fn wait(&self, process: ProcessId) -> Result<Exit, Errno>;
    /// Kills a process: its threads return at their next call. `Srch`: there is no such process, or
    /// its end was already waited for.
    fn kill(&self, process: ProcessId) -> Result<(), Errno>;
    /// Opens a descriptor that refers to a process (`pidfd_open`), whether or not it is a child.
    /// The descriptor keeps referring to this process. `Srch`: there is no such process, or its end
    /// was already waited for.
    fn pidfd_open(&self, process: ProcessId) -> Result<Fd, Errno>;
    /// Closes a descriptor of the caller's process. `Badf`: it has no such descriptor.
    fn close(&self, fd: Fd) -> Result<(), Errno>;
    /// Reaps the memory of a dying process on the caller's CPU, concurrently with its own exit
    /// (`process_mrelease`).
    /// - `Badf`: `process` is not a descriptor of a process.
    /// - `Srch`: the process has no memory, because its last thread has returned.
    /// - `Inval`: the process is not dying, or `flags` is not 0.
    /// - `Again`: some pages could not be reaped now.
    /// - `Intr`: the caller was killed while it waited.
    fn process_mrelease(&self, process: Fd, flags: u32) -> Result<(), Errno>;
    /// Copies `bytes` of the memory of a process at `from` to the caller's memory at `to`, whole
    /// pages (`process_vm_readv`). Returns the number of bytes that were copied: fewer if a page of
    /// either side has no mapping or may not be accessed.
    /// - `Srch`: there is no such process, or its last thread has returned.
    /// - `Fault`: not even the first page was copied.
    /// - `Inval`: an address or the size is no multiple of a page.
    /// - `Perm`: the machine does not allow it.
    fn process_vm_readv(
        &self,
        process: ProcessId,
        from: Addr,
        bytes: u64,
        to: Addr,
    ) -> Result<u64, Errno>;
    /// Sets how much more (or less) likely the OOM killer chooses a process, in thousandths of all
    /// memory: from -1000 (never) to 1000 (`/proc/PID/oom_score_adj`). Children inherit the value.
    /// `Inval`: the value is out of range. `Srch`: there is no such process, or its end was already
    /// waited for.
    fn set_oom_score_adj(&self, process: ProcessId, thousandths: i32) -> Result<(), Errno>;
    /// Returns the calling process.
    fn own_process(&self) -> ProcessId;
    /// Creates the memory group of a number whose group was removed (`mkdir` of a cgroup). The new
    /// group has the limit of the removed one. `Exist`: the number has a group. `Noent`: there is
    /// no such number. `Nomem`: too many removed groups still have pages.
    fn make_group(&self, number: usize) -> Result<(), Errno>;
    /// Removes the memory group of a number (`rmdir` of a cgroup). Pages that are charged to it
    /// stay charged to it. `Busy`: a process is in it. `Noent`: it does not exist, or it is the
    /// root.
    fn remove_group(&self, number: usize) -> Result<(), Errno>;

    // -- Memory of the calling process.

    /// Creates a file of `bytes` zero bytes and opens it. No page of a file on a disk is in memory
    /// yet. The file has no name: it exists until all its descriptors are closed and no process
    /// maps it. `Overflow`: the machine cannot represent the size. `Nodev`: it has no disk, or no
    /// room there.
    fn file(&self, bytes: u64, backing: Backing) -> Result<Fd, Errno>;
    /// Gives advice about a part of a file, which begins at a page and may reach beyond the end of
    /// the file (`posix_fadvise`). Has no effect on a file in memory. `Badf`, `Nodev`: not a
    /// descriptor, or not one of a file.
    fn fadvise(&self, fd: Fd, offset: u64, bytes: u64, advice: FileAdvice) -> Result<(), Errno>;
    /// Maps memory. A part of a file may reach beyond the end of the file; an access there fails
    /// with [`Errno::Bus`].
    /// - `Badf`, `Nodev`: not a descriptor, or not one of a file.
    /// - `Overflow`: the end of the part is not representable.
    /// - `Inval`: the length is 0, or the offset is not page-aligned.
    /// - `Nomem`: no address range, no memory, or too many mappings.
    /// - `Exist`: the range of [`Place::Free`] is already mapped.
    /// - `Again`: the limit of locked memory would be exceeded.
    fn mmap(&self, spec: MapSpec) -> Result<Addr, Errno>;
    /// Unmaps a range, which may be partly unmapped. `Inval`: the length is 0. `Nomem`: a mapping
    /// would have to be split, and there is no memory or there are too many mappings.
    fn munmap(&self, at: Addr, bytes: u64) -> Result<(), Errno>;
    /// Changes the protection of a range. `Nomem`: the range is not fully mapped, or as for
    /// [`System::munmap`].
    fn mprotect(&self, at: Addr, bytes: u64, prot: Prot) -> Result<(), Errno>;
    /// Resizes or moves a mapping.
    /// - `Inval`: the new length is 0, the ranges overlap, or [`MayMove::Leave`] with another size.
    /// - `Fault`: the old range is not within one mapping.
    /// - `Again`: the limit of locked memory would be exceeded.
    /// - `Nomem`: the mapping cannot grow in place and may not move, no memory, or too many
    ///   mappings.
    fn mremap(
        &self,
        at: Addr,
        old_bytes: u64,
        new_bytes: u64,
        may_move: MayMove,
    ) -> Result<Addr, Errno>;
    /// Gives advice on a range. An empty range is not an error. `Nomem`: the range is not fully
    /// mapped; the advice was applied to the mapped part. `Inval`: the advice does not apply to
    /// such memory, such as advice that drops pages to locked pages.
    fn madvise(&self, at: Addr, bytes: u64, advice: Advice) -> Result<(), Errno>;
    /// Writes a range of shared mappings back to their files, and waits (`msync` with `MS_SYNC`).
    /// `Nomem`: the range is not fully mapped; the mapped part was written.
    fn msync(&self, at: Addr, bytes: u64) -> Result<(), Errno>;
    /// Locks a range in memory. The range is extended to whole pages. `Nomem`: the range is not
    /// fully mapped, or the limit of locked memory would be exceeded. `Again`: there is not enough
    /// memory. `Perm`: the process may not lock memory.
    fn mlock(&self, at: Addr, bytes: u64, what: LockWhat) -> Result<(), Errno>;
    /// Unlocks a range. The range is extended to whole pages. `Nomem`: the range is not fully
    /// mapped.
    fn munlock(&self, at: Addr, bytes: u64) -> Result<(), Errno>;
    /// Binds new pages of a range to `node`; `present` decides about existing pages. `Inval`: there
    /// is no such node. `Fault`: the range is not fully mapped. `Io`: with [`Present::MoveAll`], a
    /// page could not be moved.
    fn mbind(&self, at: Addr, bytes: u64, node: usize, present: Present) -> Result<(), Errno>;
    /// Returns which pages of a range are in memory. `Nomem`: the range is not fully mapped.
    fn mincore(&self, at: Addr, bytes: u64) -> Result<Vec<bool>, Errno>;
    /// Reads `/proc/zoneinfo`, as monitors do, and drops the text. `Perm`: the machine does not
    /// allow it.
    fn zoneinfo(&self) -> Result<(), Errno>;
    /// Writes a word to the beginning of a page. An access to a present page is not a call: only an
    /// access that faults returns [`Errno::Stopped`]. `Segv`, `Bus`: see [`Errno`]. `Nomem`: there
    /// is no memory, and the OOM killer found no victim.
    fn write(&self, page: Addr, word: u64) -> Result<(), Errno>;
    /// Reads the word at the beginning of a page; 0 if it was never written.
    fn read(&self, page: Addr) -> Result<u64, Errno>;
}
