//! System calls on the machine, threads and processes.

use crate::coverage::{Call, Calls};
use crate::memory;
use crate::os::Serve;
use crate::process::{Parts, Process};
use crate::thread::{self, JoinStep, Start};
use crate::{Kernel, Os};
use alloc::sync::Arc;
use alloc::vec::Vec;
use mmscale_arch::{CpuId, Func, HotplugError, Machine, Span, TaskSpec};
use mmscale_mm::memcg::GroupId;
use mmscale_mm::space::Space;
use mmscale_mm::stack::Stack;
use mmscale_system::{
    Addr, Advice, Backing, Body, CpuPosition, Errno, Exit, Fd, FileAdvice, LockWhat, MapSpec,
    MayMove, Present, Priority, ProcessId, Prot, ThreadId, ThreadSpec,
};

impl<A: Machine> Serve for Kernel<A> {
    fn calls(&self) -> &Calls {
        &self.calls
    }
    fn cpus(&self) -> usize {
        A::cpus_possible()
    }
    fn nodes(&self) -> usize {
        self.nodes
    }
    fn position(&self, cpu: usize) -> CpuPosition {
        let cpu = CpuId::new(cpu);
        let node = A::node_of(cpu).index();
        CpuPosition { core: A::core_of(cpu), cluster: A::cluster_of(cpu), node }
    }
    fn clock_ns(&self) -> u64 {
        A::now_ns()
    }
    fn take_turn(&self) {
        let _ = A::need_resched();
    }
    fn sleep_ns(&self, ns: u64) -> Result<(), Errno> {
        let process = self.enter(Call::Sleep)?;
        self.mm.sleep_ns_unless(ns, || process.is_stopped());
        self.running().map(|_| ())
    }
    fn compute_ns(&self, ns: u64) -> Result<(), Errno> {
        self.running()?;
        A::user(ns);
        self.running().map(|_| ())
    }
    fn cpu_offline(&self, cpu: usize) -> Result<(), Errno> {
        self.calls.add::<A>(Call::Hotplug);
        self.running()?;
        A::cpu_offline(existing_cpu::<A>(cpu)?).map_err(refused)
    }
    fn cpu_online(&self, cpu: usize) -> Result<(), Errno> {
        self.calls.add::<A>(Call::Hotplug);
        self.running()?;
        A::cpu_online(existing_cpu::<A>(cpu)?).map_err(refused)
    }

    fn spawn(&self, spec: ThreadSpec, body: Body<Os>) -> Result<ThreadId, Errno> {
        self.calls.add::<A>(Call::Spawn);
        let own = self.running()?;
        let cpu = existing_cpu::<A>(spec.cpu)?;
        let (stack, ()) = self.with_stack(|| Ok(()))?;
        self.space().thread_starts(self.mm.mm_ref());
        self.alloc_pid();
        let process = self.link_thread(own);
        Ok(self.start(cpu, spec, (process, stack), body))
    }
    fn join(&self, thread: ThreadId) -> Result<(), Errno> {
        let own = self.current.process();
        self.join_unless(thread, || own.is_stopped())
    }
    fn process(&self, spec: ThreadSpec, body: Body<Os>) -> Result<ProcessId, Errno> {
        let parent = self.enter(Call::Process)?;
        let cpu = existing_cpu::<A>(spec.cpu)?;
        let group = spec.group.unwrap_or_else(|| self.group_of(cpu));
        let new_space = |id| {
            self.copy_signals(parent);
            self.new_space(id)
        };
        let (stack, space) = self.with_stack_in(group, parent, new_space)?;
        self.inherit_oom_score_adj(&space);
        let parts = Parts { space, descriptors: parent.files(), group };
        Ok(self.start_process(cpu, spec, (parts, stack), parent, body))
    }
    fn fork(&self, spec: ThreadSpec, body: Body<Os>) -> Result<ProcessId, Errno> {
        let parent = self.enter(Call::Fork)?;
        let cpu = existing_cpu::<A>(spec.cpu)?;
        let group = spec.group.unwrap_or(parent.group);
        let fork = |id| {
            self.copy_signals(parent);
            self.space().fork_into(self.mm.mm_ref(), id).map_err(memory::errno)
        };
        let (stack, space) = self.with_stack_in(group, parent, fork)?;
        self.inherit_oom_score_adj(&space);
        let descriptors = parent.descriptors.lock_irqsave().share();
        let parts = Parts { space, descriptors, group };
        Ok(self.start_process(cpu, spec, (parts, stack), parent, body))
    }
    fn exec(&self) -> Result<(), Errno> {
        let own = self.enter(Call::Exec)?;
        if !own.is_single() {
            return Err(Errno::Inval);
        }
        let _span = Span::<A>::enter(Func::BeginNewExec);
        let next = self.new_space(self.space().group())?;
        next.set_oom_adjustment(self.space().oom_adjustment());
        if own.exec(self.mm.mm_ref(), next) { Err(Errno::Stopped) } else { Ok(()) }
    }
    fn wait(&self, process: ProcessId) -> Result<Exit, Errno> {
        self.calls.add::<A>(Call::Wait);
        Ok(self.wait_for_child(process)?.exit())
    }
    fn kill(&self, process: ProcessId) -> Result<(), Errno> {
        self.enter(Call::Kill)?;
        let victim = self.processes.lock_irqsave().get(process).ok_or(Errno::Srch)?;
        victim.kill();
        Ok(())
    }
    fn pidfd_open(&self, process: ProcessId) -> Result<Fd, Errno> {
        self.sys_pidfd_open(process)
    }
    fn close(&self, fd: Fd) -> Result<(), Errno> {
        self.sys_close(fd)
    }
    fn process_mrelease(&self, process: Fd, flags: u32) -> Result<(), Errno> {
        self.sys_process_mrelease(process, flags)
    }
    fn process_vm_readv(
        &self,
        process: ProcessId,
        from: Addr,
        bytes: u64,
        to: Addr,
    ) -> Result<u64, Errno> {
        self.sys_process_vm_readv(process, from, bytes, to)
    }
    fn set_oom_score_adj(&self, process: ProcessId, thousandths: i32) -> Result<(), Errno> {
        self.sys_set_oom_score_adj(process, thousandths)
    }
    fn own_process(&self) -> ProcessId {
        self.current.process().id
    }
    fn make_group(&self, number: usize) -> Result<(), Errno> {
        self.enter(Call::MakeGroup)?;
        self.mm.create_group(number).map_err(memory::errno_of_group)
    }
    fn remove_group(&self, number: usize) -> Result<(), Errno> {
        self.enter(Call::RemoveGroup)?;
        self.mm.remove_group(number).map_err(memory::errno_of_group)
    }

    fn file(&self, bytes: u64, backing: Backing) -> Result<Fd, Errno> {
        self.sys_file(bytes, backing)
    }
    fn fadvise(&self, fd: Fd, offset: u64, bytes: u64, advice: FileAdvice) -> Result<(), Errno> {
        self.sys_fadvise(fd, offset, bytes, advice)
    }
    fn mmap(&self, spec: MapSpec) -> Result<Addr, Errno> {
        self.sys_mmap(spec)
    }
    fn munmap(&self, at: Addr, bytes: u64) -> Result<(), Errno> {
        self.sys_munmap(at, bytes)
    }
    fn mprotect(&self, at: Addr, bytes: u64, prot: Prot) -> Result<(), Errno> {
        self.sys_mprotect(at, bytes, prot)
    }
    fn mremap(
        &self,
        at: Addr,
        old_bytes: u64,
        new_bytes: u64,
        may_move: MayMove,
    ) -> Result<Addr, Errno> {
        self.sys_mremap(at, old_bytes, new_bytes, may_move)
    }
    fn madvise(&self, at: Addr, bytes: u64, advice: Advice) -> Result<(), Errno> {
        self.sys_madvise(at, bytes, advice)
    }
    fn msync(&self, at: Addr, bytes: u64) -> Result<(), Errno> {
        self.sys_msync(at, bytes)
    }
    fn mlock(&self, at: Addr, bytes: u64, what: LockWhat) -> Result<(), Errno> {
        self.sys_mlock(at, bytes, what)
    }
    fn munlock(&self, at: Addr, bytes: u64) -> Result<(), Errno> {
        self.sys_munlock(at, bytes)
    }
    fn mbind(&self, at: Addr, bytes: u64, node: usize, present: Present) -> Result<(), Errno> {
        self.sys_mbind(at, bytes, node, present)
    }
    fn mincore(&self, at: Addr, bytes: u64) -> Result<Vec<bool>, Errno> {
        self.sys_mincore(at, bytes)
    }
    fn zoneinfo(&self) -> Result<(), Errno> {
        self.enter(Call::Zoneinfo)?;
        self.mm.frames().zoneinfo_show();
        self.running().map(|_| ())
    }
    fn write(&self, page: Addr, word: u64) -> Result<(), Errno> {
        self.user_write(page, word)
    }
    fn read(&self, page: Addr) -> Result<u64, Errno> {
        self.user_read(page)
    }
}

impl<A: Machine> Kernel<A> {
    /// Waits until a thread has returned. Returns early if the caller is woken while `over` is
    /// true.
    pub(crate) fn join_unless(
        &self,
        thread: ThreadId,
        over: impl Fn() -> bool,
    ) -> Result<(), Errno> {
        let me = A::current();
        loop {
            let step = self.threads.wait(thread, me);
            match step {
                JoinStep::Over => return Ok(()),
                JoinStep::Invalid => return Err(Errno::Inval),
                JoinStep::Park if over() => {
                    self.threads.give_up(thread, me);
                    return Err(Errno::Stopped);
                }
                JoinStep::Park => A::park(),
            }
        }
    }
    fn sys_set_oom_score_adj(&self, process: ProcessId, thousandths: i32) -> Result<(), Errno> {
        self.enter(Call::OomScore)?;
        let meant = self.processes.lock_irqsave().get(process).ok_or(Errno::Srch)?;
        if meant.space().set_oom_adjustment(thousandths) { Ok(()) } else { Err(Errno::Inval) }
    }
    /// Gives a new process the adjustment of its parent. Children of the first process begin with 0
    /// instead: the first process has the minimum so that it is never killed.
    fn inherit_oom_score_adj(&self, space: &Space<A>) {
        let parent = self.current.process();
        let first = parent.id == crate::INIT;
        let inherited = if first { 0 } else { self.space().oom_adjustment() };
        space.set_oom_adjustment(inherited);
    }
    /// Allocates the stack of a new task, then calls `rest` for everything else that it needs
    /// (`copy_process`). Returns the stack to the stack cache if that fails.
    fn with_stack<T>(
        &self,
        rest: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<(Option<Stack>, T), Errno> {
        let stack = self.mm.make_stack().map_err(|_| Errno::Nomem)?;
        match rest() {
            Ok(rest) => Ok((stack, rest)),
            Err(why) => {
                stack.into_iter().for_each(|stack| self.mm.stacks().put(stack));
                Err(why)
            }
        }
    }
    /// Allocates the stack of a new process, and calls `rest` with the memory group of a number, in
    /// which the process is then.
    fn with_stack_in<T>(
        &self,
        group: usize,
        parent: &Process<A>,
        rest: impl FnOnce(GroupId) -> Result<T, Errno>,
    ) -> Result<(Option<Stack>, T), Errno> {
        let id = self.enter_group(group, parent)?;
        let made = self.with_stack(|| rest(id));
        made.inspect_err(|_| self.mm.lifetimes().leave(group))
    }
    fn start(
        &self,
        cpu: CpuId,
        spec: ThreadSpec,
        process: (Arc<Process<A>>, Option<Stack>),
        body: Body<Os>,
    ) -> ThreadId {
        let priority = match spec.priority {
            Priority::Fair => mmscale_arch::Priority::Fair,
            Priority::RealTime(level) => mmscale_arch::Priority::RealTime(level),
        };
        let start = Start { process: Some(process), body };
        let thread = self.threads.insert(start);
        A::spawn(TaskSpec { cpu, per_cpu: false, priority, entry: thread::entry_of(thread) });
        thread
    }
    fn start_process(
        &self,
        cpu: CpuId,
        spec: ThreadSpec,
        (parts, stack): (Parts<A>, Option<Stack>),
        parent: &Process<A>,
        body: Body<Os>,
    ) -> ProcessId {
        self.alloc_pid();
        let process = self.link_process(parts, parent);
        let id = process.id;
        // The task that ends the run checks the parent's mark before the child's.
        if self.current.process().is_stopped() {
            process.kill();
        }
        self.start(cpu, spec, (process, stack), body);
        id
    }
}

fn refused(_: HotplugError) -> Errno {
    Errno::Inval
}

fn existing_cpu<A: Machine>(cpu: usize) -> Result<CpuId, Errno> {
    if cpu < A::cpus_possible() { Ok(CpuId::new(cpu)) } else { Err(Errno::Inval) }
}
