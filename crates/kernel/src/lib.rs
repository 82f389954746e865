//! [`System`](mmscale_system::System) over the memory manager, once, for every machine that
//! implements [`Machine`].
//!
//! A machine boots a [`Kernel`] and calls it back; the kernel forwards interrupts, timers and
//! hotplug to the memory manager, and runs programs as threads of processes. It knows no workload.
//! Programs see an [`Os`]: a kernel without the type of its machine.
//!
//! | file | content |
//! |---|---|
//! | `os` | the kernel as its programs see it |
//! | `inside` | what studies look at and change inside the memory manager |
//! | `callbacks` | callbacks of the machine |
//! | `coverage` | what Linux does in these calls that is not simulated |
//! | `process`, `thread` | the tables of processes and threads |
//! | `tasks` | the locks that tasks share at their start and end |
//! | `descriptor` | the descriptor tables of processes |
//! | `open` | the calls that open and close descriptors, and process_mrelease |
//! | `program` | the system calls that are not about memory |
//! | `memory` | the system calls about memory |

#![no_std]
#![forbid(unsafe_op_in_unsafe_fn)]

extern crate alloc;

mod callbacks;
pub mod coverage;
mod descriptor;
mod inside;
mod memory;
mod open;
mod os;
mod process;
mod program;
mod tasks;
mod thread;

pub use inside::Inside;
pub use os::Os;

use alloc::sync::Arc;
use coverage::{Call, Calls};
use descriptor::Descriptors;
use mmscale_arch::sync::SpinLock;
use mmscale_arch::{CpuId, LockClass, Machine, Op, Priority, TaskEntry, TaskSpec};
use mmscale_mm::memcg::GroupId;
use mmscale_mm::mm::{Mm, MmConfig, MmError};
use mmscale_mm::oom::ADJ_MIN;
use mmscale_mm::space::Space;
use mmscale_system::{Body, Errno, ProcessId, ThreadId};
use process::{Current, Parts, Process, ProcessTable};
use thread::{Start, ThreadTable};

/// The process of the first thread.
const INIT: ProcessId = ProcessId(0);
/// Attempts to allocate memory for the first process: a run may inject failures.
const INIT_ATTEMPTS: usize = 100;

/// How thoroughly the memory manager is checked at the end of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FinalCheck {
    /// No check.
    Skip,
    /// All page caches are drained, every frame must be free, and every structure must be
    /// consistent.
    Run,
}

/// A running system: the memory manager, and the processes and threads of its programs.
pub struct Kernel<A: Machine> {
    mm: Mm<A>,
    threads: ThreadTable<A>,
    /// The list of processes (`tasklist_lock`).
    processes: SpinLock<A, ProcessTable<A>>,
    /// Held while the numbers of tasks change (`pidmap_lock`).
    pids: SpinLock<A, ()>,
    current: Current<A>,
    calls: Calls,
    nodes: usize,
    groups: usize,
    final_check: FinalCheck,
}

impl<A: Machine> Kernel<A> {
    /// Boots a system that runs `program` as its first thread, on CPU 0, in its first process. When
    /// `program` returns, all threads are stopped at their next call and waited for. Then the
    /// memory manager's own tasks end, and the machine has nothing left to run.
    pub fn boot(
        config: &MmConfig,
        final_check: FinalCheck,
        program: Body<Os>,
    ) -> Result<Self, MmError> {
        let kernel = Self {
            mm: Mm::new(config)?,
            threads: ThreadTable::new(),
            processes: SpinLock::new(LockClass::Tasklist, ProcessTable::new()),
            pids: SpinLock::new(LockClass::Pidmap, ()),
            current: Current::new(),
            calls: Calls::new(),
            nodes: config.map.node_count(),
            groups: config.groups,
            final_check,
        };
        let first = kernel.threads.insert(Start { process: None, body: program });
        A::spawn(TaskSpec {
            cpu: CpuId::new(0),
            per_cpu: false,
            priority: Priority::Fair,
            entry: thread::entry_of(first),
        });
        Ok(kernel)
    }

    /// Runs the whole system from its first thread. Ends before `program` starts if there is no
    /// memory for the memory manager or for the first process, for example because all allocations
    /// are made to fail.
    fn init(&self, program: Body<Os>) {
        if self.mm.start().is_err() {
            return;
        }
        let space = (0..INIT_ATTEMPTS).find_map(|_| self.new_space(GroupId::ROOT).ok());
        let Some(space) = space else { return self.mm.shutdown() };
        let parts = Parts { space, descriptors: Descriptors::new(), group: 0 };
        let process = self.processes.lock_irqsave().insert(parts, INIT);
        // As with init in Unix, the OOM killer never chooses the first process.
        process.space().set_oom_adjustment(ADJ_MIN);
        self.current.run(self.mm.mm_ref(), &process, || {
            os::run(self, program);
            self.stop();
        });
        if process.end_thread(self.mm.mm_ref()) {
            process.end();
        }
        self.mm.shutdown();
        if self.final_check == FinalCheck::Run {
            self.verify();
        }
    }
    fn new_space(&self, group: GroupId) -> Result<Arc<Space<A>>, Errno> {
        Space::new(self.mm.mm_ref(), group).map_err(memory::errno)
    }
    /// Counts a process that starts in the memory group of a number, and returns the group.
    /// `Inval`: there is no such number. `Noent`: its group was removed.
    fn enter_group(&self, number: usize, parent: &Process<A>) -> Result<GroupId, Errno> {
        if number >= self.groups {
            return Err(Errno::Inval);
        }
        if number == parent.group {
            self.mm.lifetimes().inherit(number);
            return Ok(self.space().group());
        }
        self.mm.lifetimes().enter(number).map_err(memory::errno_of_group)
    }
    /// Returns the number of the memory group of a process that is started on `cpu`, if its parent
    /// does not choose it. (A fork stays in its parent's group.) This is the root if there are no
    /// other groups, otherwise group `1 + cpu % others`. With one more group than CPUs, the
    /// processes of each CPU have their own group and LRU lists.
    fn group_of(&self, cpu: CpuId) -> usize {
        match self.groups - 1 {
            0 => GroupId::ROOT.index(),
            others => 1 + cpu.index() % others,
        }
    }

    /// Stops all programs. Called on the first thread; returns when all other threads and processes
    /// have ended. Repeats the request, because a thread that is being stopped may still start
    /// other threads.
    fn stop(&self) {
        self.each_process(0, |process| process.kill());
        let mut at = 1;
        while at < self.threads.len() {
            let _ = self.join_unless(ThreadId(at as u32), || false);
            at += 1;
        }
        self.each_process(1, |process| process.wait());
    }
    /// Calls `visit` for every process with number `at` or higher, including processes that start
    /// meanwhile.
    fn each_process(&self, mut at: u32, mut visit: impl FnMut(&Process<A>)) {
        while at < self.processes.lock_irqsave().len() {
            let next = self.processes.lock_irqsave().get(ProcessId(at));
            if let Some(process) = next {
                visit(&process);
            }
            at += 1;
        }
    }

    /// Checks that all frames are free and all structures are consistent. Panics if not: the
    /// machine then reports where and when.
    fn verify(&self) {
        self.mm.settle();
        let backing = self.mm.mm_ref();
        let spaces = match backing.verify() {
            Ok(audit) => audit,
            Err(defect) => panic!("the address spaces do not add up: {defect}"),
        };
        if let Err(violation) = backing.swap.verify(backing.memory, spaces.swapped.into_iter()) {
            panic!("swap does not add up: {violation}");
        }
        if let Err(violation) = self.mm.memory().verify() {
            panic!("the LRU lists do not add up: {violation}");
        }
        self.mm.quiesce();
        match self.mm.verify() {
            Ok(audit) => assert!(audit.held == 0, "frames lost at exit: {audit:?}"),
            Err(violation) => panic!("the memory manager does not add up: {violation:?}"),
        }
    }

    /// Runs the body of the thread that `entry` names.
    fn run_thread(&self, entry: TaskEntry) {
        let thread = thread::of_entry(entry);
        let start = self.threads.take_start(thread);
        match start {
            Some(Start { process: Some((process, stack)), body }) => {
                self.mm.run_on_stack(stack, || {
                    self.current.run(self.mm.mm_ref(), &process, || os::run(self, body));
                    self.calls.add::<A>(Call::Exit);
                    let last = process.end_thread(self.mm.mm_ref());
                    if last {
                        self.mm.lifetimes().leave(process.group);
                    }
                    self.exit_notify(&process, last);
                });
            }
            Some(Start { process: None, body }) => self.init(body),
            None => {}
        }
        let waiter = self.threads.finish(thread);
        if let Some(task) = waiter {
            A::unpark(task);
        }
    }

    /// Enters a system call. Returns the calling process; fails if it is being stopped.
    fn enter(&self, call: Call) -> Result<&Process<A>, Errno> {
        self.calls.add::<A>(call);
        let process = self.running()?;
        A::work(Op::Syscall, 1);
        Ok(process)
    }
    /// Returns the calling process. Fails if it is being stopped.
    fn running(&self) -> Result<&Process<A>, Errno> {
        if self.space().is_killed() { Err(Errno::Stopped) } else { Ok(self.current.process()) }
    }
    /// Returns the address space of the calling process.
    fn space(&self) -> &Space<A> {
        self.mm.mm_ref().spaces.current().expect("the calling task is a program's thread")
    }
}
