//! [`System`] over the memory manager, once, for every machine that implements [`Arch`].
//!
//! A machine boots a [`Kernel`] and calls it back; the kernel forwards interrupts, timers and
//! hotplug to the memory manager, and runs programs as threads. It knows no workload.

#![no_std]
#![forbid(unsafe_op_in_unsafe_fn)]

extern crate alloc;

mod callbacks;
mod program;
mod thread;

use alloc::boxed::Box;
use core::sync::atomic::Ordering;
use mmscale_mm::arch::{Arch, Atomic, CpuId, LockClass, Priority, TaskEntry, TaskSpec};
use mmscale_mm::mm::{Mm, MmConfig, MmError};
use mmscale_mm::sync::SpinLock;
use mmscale_system::{Body, Errno, System, ThreadId};
use thread::ThreadTable;

/// How thoroughly a system looks at itself at the end of its run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// It just ends.
    Quick,
    /// All page caches are emptied; every frame must be home, and every structure must add up.
    Verified,
}

/// A running system: the memory manager and the threads of its programs.
pub struct Kernel<A: Arch> {
    mm: Mm<A>,
    threads: SpinLock<A, ThreadTable<A>>,
    /// 1 from the moment the first program returned: every call of the others says so.
    stopping: A::AtomicU32,
    ending: Ending,
}

impl<A: Arch> Kernel<A> {
    /// A system that runs `program` as its first thread, on CPU 0. When `program` returns, the
    /// other threads are told to return at their next call, are waited for, and the memory
    /// manager's own tasks end: the machine then has nothing left to run.
    pub fn boot(config: &MmConfig, ending: Ending, program: Body<Self>) -> Result<Self, MmError> {
        let kernel = Self {
            mm: Mm::new(config)?,
            threads: SpinLock::new(LockClass::Other, ThreadTable::new()),
            stopping: A::AtomicU32::new(0),
            ending,
        };
        let first = kernel.threads.lock_irqsave().insert(Box::new(|system: &Self| {
            system.mm.start();
            program(system);
            system.end();
        }));
        A::spawn(TaskSpec {
            cpu: CpuId::new(0),
            per_cpu: false,
            priority: Priority::Fair,
            entry: thread::entry_of(first),
        });
        Ok(kernel)
    }

    /// The memory manager, to look at.
    pub fn mm(&self) -> &Mm<A> {
        &self.mm
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed) != 0
    }

    /// Ends the run from its first thread.
    fn end(&self) {
        self.stopping.store(1, Ordering::Release);
        let count = self.threads.lock_irqsave().len();
        for other in 1..count {
            let _ = self.join(ThreadId(other as u32));
        }
        self.mm.shutdown();
        if self.ending == Ending::Verified {
            self.verify();
        }
    }

    /// All frames home? Panics if not: the machine then reports where and when.
    fn verify(&self) {
        self.mm.quiesce();
        match self.mm.verify() {
            Ok(audit) => assert!(audit.held == 0, "frames lost at exit: {audit:?}"),
            Err(violation) => panic!("the memory manager does not add up: {violation:?}"),
        }
    }

    /// The body of the thread that `entry` names.
    fn run_thread(&self, entry: TaskEntry) {
        let thread = thread::of_entry(entry);
        let body = self.threads.lock_irqsave().take_body(thread);
        if let Some(body) = body {
            body(self);
        }
        let waiter = self.threads.lock_irqsave().finish(thread);
        if let Some(task) = waiter {
            A::unpark(task);
        }
    }

    fn running(&self) -> Result<(), Errno> {
        if self.is_stopping() { Err(Errno::Stopped) } else { Ok(()) }
    }
}
