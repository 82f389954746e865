//! The upper waist: what a program can ask of an operating system.
//!
//! One workload source is written against [`System`] and runs on every machine: simulated, real
//! threads, the live kernel. Until address spaces exist, memory is asked for by the page.

#![no_std]

extern crate alloc;

use alloc::boxed::Box;

/// Why a call did not do what was asked. Names and meanings are those of the manual pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Errno {
    /// Out of memory.
    Nomem,
    /// An argument makes no sense.
    Inval,
    /// The run is over: the program returns now. Every call says so from then on.
    Stopped,
}

impl core::fmt::Display for Errno {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Nomem => "out of memory (ENOMEM)",
            Self::Inval => "invalid argument (EINVAL)",
            Self::Stopped => "the run is over",
        })
    }
}

impl core::error::Error for Errno {}

/// A block of pages that a program holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pages {
    /// The machine's own name for the first page.
    pub first: u64,
    /// The block is 2^order pages.
    pub order: u8,
}

/// A thread that was started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ThreadId(pub u32);

/// How a thread is scheduled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Priority {
    /// Shares its CPU in time slices.
    Fair,
    /// Runs until it blocks; a larger number goes first.
    RealTime(u8),
}

/// Where and how a new thread runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ThreadSpec {
    /// The CPU it starts on, below [`System::cpus`].
    pub cpu: usize,
    /// How it is scheduled.
    pub priority: Priority,
}

/// What a thread runs.
pub type Body<S> = Box<dyn FnOnce(&S) + Send>;

/// An operating system, as its programs see it. Each call may take a scheduling turn.
pub trait System: Sized + 'static {
    /// How many CPUs there are.
    fn cpus(&self) -> usize;
    /// Monotonic time in ns.
    fn clock_ns(&self) -> u64;
    /// Sleeps for at least `ns`.
    fn sleep_ns(&self, ns: u64) -> Result<(), Errno>;
    /// Computes for `ns` of CPU time without asking for anything.
    fn compute_ns(&self, ns: u64) -> Result<(), Errno>;
    /// Starts a thread. `Inval` if the CPU does not exist.
    fn spawn(&self, spec: ThreadSpec, body: Body<Self>) -> Result<ThreadId, Errno>;
    /// Waits until a thread has returned.
    fn join(&self, thread: ThreadId) -> Result<(), Errno>;
    /// Allocates 2^order pages. `Nomem` if there are none, `Inval` for an order above 10.
    fn alloc_pages(&self, order: u8) -> Result<Pages, Errno>;
    /// Gives pages back. Works to the very end of a run, so that nothing is lost.
    fn free_pages(&self, pages: Pages);
    /// Writes to every page of a block for the first time: they are cleared, then stamped.
    fn touch_pages(&self, pages: Pages, stamp: u64) -> Result<(), Errno>;
    /// Reads the stamp of a block back.
    fn read_stamp(&self, pages: Pages) -> Result<u64, Errno>;
    /// Takes a CPU offline. `Inval` for the last one.
    fn cpu_offline(&self, cpu: usize) -> Result<(), Errno>;
    /// Takes a CPU online again.
    fn cpu_online(&self, cpu: usize) -> Result<(), Errno>;
}
