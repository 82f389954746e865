//! A kernel without the type of its machine.
//!
//! Code that is generic over machines is compiled in each crate that calls it, with all that it
//! reaches of the memory manager. So programs get an [`Os`] instead, whose calls go through a table
//! of functions. The crate that boots the kernel has the table, and all that it reaches.

use crate::coverage::Calls;
use crate::{Inside, Kernel};
use alloc::vec::Vec;
use core::any::Any;
use core::ptr::NonNull;
use mmscale_arch::Machine;
use mmscale_mm::mm::Mm;
use mmscale_system::{
    Addr, Advice, Backing, Body, CpuPosition, Errno, Exit, Fd, FileAdvice, LockWhat, MapSpec,
    MayMove, Present, ProcessId, Prot, System, ThreadId, ThreadSpec,
};

/// A running system as its programs see it, on any machine.
pub struct Os(NonNull<dyn Serve>);

/// Runs a program on the system of `kernel`.
pub(crate) fn run(kernel: &(dyn Serve + 'static), program: Body<Os>) {
    program(&Os(NonNull::from(kernel)));
}

impl Os {
    fn kernel(&self) -> &dyn Serve {
        // SAFETY: only `run` makes one. It lives there, while the kernel is borrowed, and can be
        // neither moved nor copied by a program.
        unsafe { self.0.as_ref() }
    }
    /// Returns what programs of studies look at and change inside the memory manager.
    pub fn inside(&self) -> &dyn Inside {
        self.kernel()
    }
    /// Returns the memory manager, for tests: what they call of it is compiled with them.
    ///
    /// # Panics
    /// If the machine is not `A`.
    pub fn mm<A: Machine>(&self) -> &Mm<A> {
        let kernel: &dyn Any = self.kernel();
        &kernel.downcast_ref::<Kernel<A>>().expect("the system runs on this machine").mm
    }
    /// Returns the kinds of calls that programs made.
    pub fn calls(&self) -> &Calls {
        self.kernel().calls()
    }
}

/// Declares the calls of [`System`] once: as those of a kernel on a machine, and of an [`Os`].
macro_rules! served {
    ($(fn $call:ident($($argument:ident: $of:ty),*) -> $answer:ty;)*) => {
        /// The calls of programs to a kernel.
        pub(crate) trait Serve: Inside + Any {
            fn calls(&self) -> &Calls;
            $(fn $call(&self, $($argument: $of),*) -> $answer;)*
        }

        impl System for Os {
            $(fn $call(&self, $($argument: $of),*) -> $answer {
                self.kernel().$call($($argument),*)
            })*
        }
    };
}

served! {
    fn cpus() -> usize;
    fn nodes() -> usize;
    fn position(cpu: usize) -> CpuPosition;
    fn clock_ns() -> u64;
    fn take_turn() -> ();
    fn sleep_ns(ns: u64) -> Result<(), Errno>;
    fn compute_ns(ns: u64) -> Result<(), Errno>;
    fn cpu_offline(cpu: usize) -> Result<(), Errno>;
    fn cpu_online(cpu: usize) -> Result<(), Errno>;

    fn spawn(spec: ThreadSpec, body: Body<Os>) -> Result<ThreadId, Errno>;
    fn join(thread: ThreadId) -> Result<(), Errno>;
    fn process(spec: ThreadSpec, body: Body<Os>) -> Result<ProcessId, Errno>;
    fn fork(spec: ThreadSpec, body: Body<Os>) -> Result<ProcessId, Errno>;
    fn exec() -> Result<(), Errno>;
    fn wait(process: ProcessId) -> Result<Exit, Errno>;
    fn kill(process: ProcessId) -> Result<(), Errno>;
    fn pidfd_open(process: ProcessId) -> Result<Fd, Errno>;
    fn close(fd: Fd) -> Result<(), Errno>;
    fn process_mrelease(process: Fd, flags: u32) -> Result<(), Errno>;
    fn process_vm_readv(of: ProcessId, from: Addr, bytes: u64, to: Addr) -> Result<u64, Errno>;
    fn set_oom_score_adj(process: ProcessId, thousandths: i32) -> Result<(), Errno>;
    fn own_process() -> ProcessId;
    fn make_group(number: usize) -> Result<(), Errno>;
    fn remove_group(number: usize) -> Result<(), Errno>;

    fn file(bytes: u64, backing: Backing) -> Result<Fd, Errno>;
    fn fadvise(fd: Fd, offset: u64, bytes: u64, advice: FileAdvice) -> Result<(), Errno>;
    fn mmap(spec: MapSpec) -> Result<Addr, Errno>;
    fn munmap(at: Addr, bytes: u64) -> Result<(), Errno>;
    fn mprotect(at: Addr, bytes: u64, prot: Prot) -> Result<(), Errno>;
    fn mremap(at: Addr, old_bytes: u64, new_bytes: u64, to: MayMove) -> Result<Addr, Errno>;
    fn madvise(at: Addr, bytes: u64, advice: Advice) -> Result<(), Errno>;
    fn msync(at: Addr, bytes: u64) -> Result<(), Errno>;
    fn mlock(at: Addr, bytes: u64, what: LockWhat) -> Result<(), Errno>;
    fn munlock(at: Addr, bytes: u64) -> Result<(), Errno>;
    fn mbind(at: Addr, bytes: u64, node: usize, present: Present) -> Result<(), Errno>;
    fn mincore(at: Addr, bytes: u64) -> Result<Vec<bool>, Errno>;
    fn zoneinfo() -> Result<(), Errno>;
    fn write(page: Addr, word: u64) -> Result<(), Errno>;
    fn read(page: Addr) -> Result<u64, Errno>;
}
