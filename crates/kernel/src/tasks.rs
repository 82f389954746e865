//! The locks of Linux that all tasks share at their start, at their end, and in wait.
//!
//! The sections follow Linux 6.18 (`kernel/fork.c`, `exit.c`, `pid.c`, `signal.c`):
//!
//! | step | sections, in order |
//! |---|---|
//! | a new process | `siglock` of the parent: copying the handlers |
//! | a new task | `pidmap_lock` twice: taking a number, then publishing it |
//! | | `tasklist_lock`, and in it `siglock` of the parent: linking |
//! | the end of a process | `tasklist_lock`, and in it `siglock` of the parent: waking it |
//! | the end of another thread | `tasklist_lock`; then what a released process takes |
//! | wait | `tasklist_lock` for each look, before and after sleeping |
//! | exec of a process with one thread | none of these (`de_thread`, `unshare_sighand`) |
//! | a released process | `tasklist_lock`, and in it its `siglock`: unlinking; `pidmap_lock` |
//!
//! `tasklist_lock` is a reader-writer lock in Linux; here a look of wait excludes others, too.
//! Interrupts stay on under `pidmap_lock`, as in Linux since 6.15.
//! The costs of the sections are [`Op::PidEdit`], [`Op::TaskLink`] and [`Op::SignalEdit`].

use crate::Kernel;
use crate::process::{Parts, Process};
use alloc::sync::Arc;
use mmscale_arch::{Func, Machine, Op, Span};
use mmscale_system::{Errno, ProcessId};

impl<A: Machine> Kernel<A> {
    /// Copies the signal handlers of `parent` for a new process.
    pub(crate) fn copy_signals(&self, parent: &Process<A>) {
        let _span = Span::<A>::enter(Func::CopySighand);
        let _signals = parent.signals.lock_irqsave();
        A::work(Op::SignalEdit, 1);
    }
    /// Takes the number of a new task, and publishes it.
    pub(crate) fn alloc_pid(&self) {
        let _span = Span::<A>::enter(Func::AllocPid);
        for _ in 0..2 {
            let _numbers = self.pids.lock();
            A::work(Op::PidEdit, 1);
        }
    }
    fn free_pid(&self) {
        let _span = Span::<A>::enter(Func::FreePid);
        let _numbers = self.pids.lock();
        A::work(Op::PidEdit, 1);
    }
    /// Adds a process to the list, as a child of `parent`.
    pub(crate) fn link_process(&self, parts: Parts<A>, parent: &Process<A>) -> Arc<Process<A>> {
        let _span = Span::<A>::enter(Func::CopyProcess);
        let mut tasks = self.processes.lock_irqsave();
        let _signals = parent.signals.lock();
        A::work(Op::TaskLink, 1);
        tasks.insert(parts, parent.id)
    }
    /// Adds a thread to the process `own`, which is the caller's.
    pub(crate) fn link_thread(&self, own: &Process<A>) -> Arc<Process<A>> {
        let _span = Span::<A>::enter(Func::CopyProcess);
        let tasks = self.processes.lock_irqsave();
        let _signals = own.signals.lock();
        A::work(Op::TaskLink, 1);
        let process = tasks.get(own.id).expect("a running process is in the list");
        process.add_thread();
        process
    }
    /// Reports the end of a thread of `process`, the last one or another.
    pub(crate) fn exit_notify(&self, process: &Process<A>, last: bool) {
        {
            let _span = Span::<A>::enter(Func::ExitNotify);
            let tasks = self.processes.lock_irqsave();
            A::work(Op::TaskLink, 1);
            if last {
                let parent = tasks.parent_of(process.id);
                let _signals = parent.as_ref().map(|parent| parent.signals.lock());
                A::work(Op::SignalEdit, 1);
                process.end();
            }
        }
        if !last {
            self.release_task(process, |_| ());
        }
    }
    /// Unlinks a task of `process` from the lists, calls `forget`, and frees the task's number.
    fn release_task<R>(
        &self,
        process: &Process<A>,
        forget: impl FnOnce(&mut crate::process::ProcessTable<A>) -> R,
    ) -> R {
        let forgotten = {
            let _span = Span::<A>::enter(Func::ReleaseTask);
            let mut tasks = self.processes.lock_irqsave();
            let _signals = process.signals.lock();
            A::work(Op::TaskLink, 1);
            forget(&mut tasks)
        };
        self.free_pid();
        forgotten
    }
    /// Waits for the end of the child `id` of the calling process, and releases it.
    pub(crate) fn wait_for_child(&self, id: ProcessId) -> Result<Arc<Process<A>>, Errno> {
        let own = self.current.process();
        let child = {
            let _span = Span::<A>::enter(Func::DoWait);
            self.processes.lock_irqsave().claim(id, own.id).ok_or(Errno::Child)?
        };
        if !child.has_ended() {
            if !child.wait_for(own) {
                return Err(Errno::Stopped);
            }
            let _span = Span::<A>::enter(Func::DoWait);
            drop(self.processes.lock_irqsave());
        }
        // Dropped outside the lock: this may be the last reference to the process.
        let forgotten = self.release_task(&child, |tasks| tasks.forget(id));
        drop(forgotten);
        Ok(child)
    }
}
