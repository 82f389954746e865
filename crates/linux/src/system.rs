//! [`System`] by system calls: the calls for the machine, processes and threads.

use crate::compute::compute;
use crate::end::{PANICKED, await_end};
use crate::errno::check;
use crate::process::{Forked, Keep, ProcessState, RunState, Thread};
use crate::user;
use mmscale_system::{
    Addr, Advice, Backing, Body, CpuPosition, CpuTime, Errno, Exit, Fd, FileAdvice, LockWhat,
    MapSpec, MayMove, Present, Priority, ProcessId, Prot, System, ThreadId, ThreadSpec,
};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};

/// Bytes of a thread's stack: bodies are shallow.
const STACK_BYTES: usize = 256 << 10;

/// The live kernel, from the view of a process of a run.
#[derive(Clone)]
pub struct Linux {
    pub(crate) run: Arc<RunState>,
    pub(crate) own: Arc<ProcessState>,
}

impl std::fmt::Debug for Linux {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Linux(process {})", self.own.id.0)
    }
}

/// Reads a clock of the kernel, in ns.
pub(crate) fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the place is ours; these clocks always exist.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Returns the resource usage of `who` in getrusage(2).
fn usage(who: i32) -> libc::rusage {
    // SAFETY: a zeroed rusage is valid, and the place is ours.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(who, &raw mut usage);
        usage
    }
}

/// Returns the page faults of `who` in getrusage(2).
pub(crate) fn faults(who: i32) -> u64 {
    let usage = usage(who);
    usage.ru_minflt as u64 + usage.ru_majflt as u64
}

/// Returns how often the calling thread has slept: its voluntary switches to other tasks.
pub fn sleeps_of_thread() -> u64 {
    usage(libc::RUSAGE_THREAD).ru_nvcsw as u64
}

/// Returns the CPU time of `who` in getrusage(2).
pub(crate) fn cpu_time(who: i32) -> CpuTime {
    let usage = usage(who);
    let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000;
    CpuTime { user_ns: ns(usage.ru_utime), system_ns: ns(usage.ru_stime) }
}

/// Returns the HZ of this kernel, if it is one that kernels are built with. The coarse clock
/// advances once a tick.
pub fn tick_hz() -> Option<u32> {
    let mut tick = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the place is ours.
    unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &raw mut tick) };
    let is = |hz: &u32| (1_000_000_000 / i64::from(*hz)).abs_diff(tick.tv_nsec) <= 1;
    [100, 250, 300, 1000].into_iter().find(is)
}

/// Returns the release of this kernel, as `6.18.5-arch1`; `None` if /proc does not have it.
pub fn kernel_release() -> Option<String> {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").ok()
}

fn timespec(ns: u64) -> libc::timespec {
    libc::timespec { tv_sec: (ns / 1_000_000_000) as _, tv_nsec: (ns % 1_000_000_000) as _ }
}

/// Binds the calling thread to a CPU and sets its priority.
fn bind_with_priority(cpu: usize, priority: Priority) -> Result<(), Errno> {
    // The priority is set first: a task on that CPU may be one that it has to preempt.
    if let Priority::RealTime(level) = priority {
        // The kernel's `struct sched_param`. The function of musl only returns ENOSYS.
        let param: i32 = i32::from(level).clamp(1, 99);
        let call = libc::SYS_sched_setscheduler;
        // SAFETY: the parameters are ours.
        let done = unsafe { libc::syscall(call, 0, libc::SCHED_FIFO, &raw const param) };
        check(done)?;
    }
    bind(cpu)
}

thread_local! {
    /// The CPU that this thread is bound to, plus 1; 0 for none. A fork inherits both.
    static BOUND: Cell<usize> = const { Cell::new(0) };
}

/// Binds the calling thread to a CPU, by the kernel's number. Makes no call if it is bound to that
/// CPU already, as children of a fork usually are.
pub(crate) fn bind(cpu: usize) -> Result<(), Errno> {
    if BOUND.get() == cpu + 1 {
        return Ok(());
    }
    // SAFETY: a set of CPUs of ours, which is empty.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    if cpu < libc::CPU_SETSIZE as usize {
        // SAFETY: within the set.
        unsafe { libc::CPU_SET(cpu, &mut set) };
        // SAFETY: the set is ours.
        check(unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) })?;
        BOUND.set(cpu + 1);
    }
    Ok(())
}

impl Linux {
    fn running(&self) -> Result<(), Errno> {
        if self.run.table.is_over() { Err(Errno::Stopped) } else { Ok(()) }
    }
    fn real_cpu(&self, spec: ThreadSpec) -> Result<usize, Errno> {
        self.run.cpus.get(spec.cpu).copied().ok_or(Errno::Inval)
    }
    /// Runs a body. A panic in it ends the process and is reported.
    fn run_body(&self, body: Body<Self>) {
        if catch_unwind(AssertUnwindSafe(|| body(self))).is_err() {
            exit(PANICKED);
        }
    }
    /// Runs a new process, from its fork to its end.
    pub(crate) fn live(&self, cpu: usize, spec: ThreadSpec, body: Body<Self>) -> ! {
        if bind_with_priority(cpu, spec.priority).is_err() {
            self.run.table.report("a thread could not get the CPU or the priority that it wants");
            exit(PANICKED);
        }
        self.run_body(body);
        if self.own.returned() {
            exit(0);
        }
        // Other threads continue, and the last of them ends the process.
        //
        // SAFETY: ends this thread only; no other thread uses its stack.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
        unreachable!("the thread has ended")
    }
    fn start(&self, spec: ThreadSpec, keep: Keep, body: Body<Self>) -> Result<ProcessId, Errno> {
        self.running()?;
        // All processes of a run are in one memory group, which the run makes.
        if spec.group.is_some_and(|group| group > 0) {
            return Err(Errno::Inval);
        }
        let cpu = self.real_cpu(spec)?;
        let id = self.run.table.take(self.own.id)?;
        match self.own.fork(id, keep) {
            Forked::Failed(why) => {
                self.run.table.discard(id);
                Err(if why == Errno::Again { Errno::Nomem } else { why })
            }
            Forked::Parent(pid) => {
                self.run.table.begun(id, pid);
                Ok(id)
            }
            Forked::Child(own) => {
                // SAFETY: reads a number.
                self.run.table.begun(id, unsafe { libc::getpid() });
                Self { run: Arc::clone(&self.run), own }.live(cpu, spec, body)
            }
        }
    }
}

/// Ends the process immediately: what Rust would clean up belongs to its parent.
fn exit(code: i32) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(code) }
}

impl System for Linux {
    fn cpus(&self) -> usize {
        self.run.cpus.len()
    }
    fn nodes(&self) -> usize {
        self.run.nodes
    }
    fn position(&self, cpu: usize) -> CpuPosition {
        self.run.positions[cpu]
    }
    fn clock_ns(&self) -> u64 {
        clock_ns(libc::CLOCK_MONOTONIC) - self.run.table.begin_ns()
    }
    fn cpu_time(&self) -> Option<CpuTime> {
        Some(cpu_time(libc::RUSAGE_SELF))
    }
    fn faults(&self) -> Option<u64> {
        Some(faults(libc::RUSAGE_THREAD))
    }
    fn sleep_ns(&self, ns: u64) -> Result<(), Errno> {
        self.running()?;
        let until = timespec(clock_ns(libc::CLOCK_MONOTONIC).saturating_add(ns));
        let clock = libc::CLOCK_MONOTONIC;
        // SAFETY: the time is ours.
        while unsafe {
            libc::clock_nanosleep(
                clock,
                libc::TIMER_ABSTIME,
                &raw const until,
                std::ptr::null_mut(),
            )
        } == libc::EINTR
        {}
        self.running()
    }
    fn compute_ns(&self, ns: u64) -> Result<(), Errno> {
        compute(ns, self.run.turns_1024);
        Ok(())
    }
    fn cpu_offline(&self, _: usize) -> Result<(), Errno> {
        // Other programs run on this computer too.
        Err(Errno::Perm)
    }
    fn cpu_online(&self, _: usize) -> Result<(), Errno> {
        Err(Errno::Perm)
    }

    fn spawn(&self, spec: ThreadSpec, body: Body<Self>) -> Result<ThreadId, Errno> {
        self.running()?;
        let cpu = self.real_cpu(spec)?;
        let id = ThreadId(self.run.table.next_thread());
        self.own.running.fetch_add(1, std::sync::atomic::Ordering::AcqRel);
        let system = self.clone();
        let (tell, placed) = mpsc::channel();
        let life = move || {
            let place = bind_with_priority(cpu, spec.priority);
            let may = place.is_ok();
            let _ = tell.send(place);
            if may {
                system.run_body(body);
            }
            if system.own.returned() {
                exit(0);
            }
        };
        // Held until the thread is noted: it may end, and be joined, before this returns.
        let mut threads = self.own.threads();
        match std::thread::Builder::new().stack_size(STACK_BYTES).spawn(life) {
            Ok(handle) => {
                threads.insert(id, Thread::Running(handle));
                drop(threads);
                placed.recv().unwrap_or(Err(Errno::Again)).map(|()| id)
            }
            Err(_) => {
                self.own.returned();
                Err(Errno::Nomem)
            }
        }
    }
    fn join(&self, thread: ThreadId) -> Result<(), Errno> {
        let found = match self.own.threads().get_mut(&thread) {
            Some(slot @ Thread::Running(_)) => std::mem::replace(slot, Thread::Claimed),
            _ => return Err(Errno::Inval),
        };
        if let Thread::Running(handle) = found {
            // It ends the process if it panics.
            let _ = handle.join();
        }
        Ok(())
    }
    fn process(&self, spec: ThreadSpec, body: Body<Self>) -> Result<ProcessId, Errno> {
        self.start(spec, Keep::Nothing, body)
    }
    fn fork(&self, spec: ThreadSpec, body: Body<Self>) -> Result<ProcessId, Errno> {
        self.start(spec, Keep::Everything, body)
    }
    /// Unmaps all memory of the program. The address space stays: it has this interpreter in it.
    fn exec(&self) -> Result<(), Errno> {
        self.running()?;
        // Pairs with the sub in `returned`.
        if self.own.running.load(std::sync::atomic::Ordering::Acquire) != 1 {
            return Err(Errno::Inval);
        }
        self.own.exec();
        Ok(())
    }
    fn wait(&self, process: ProcessId) -> Result<Exit, Errno> {
        let pid = self.run.table.claim(process, self.own.id)?;
        await_end(pid);
        let reaped = self.run.table.reap(pid).ok_or(Errno::Child)?;
        if let Some(complaint) = reaped.complaint() {
            self.run.table.report(&complaint);
        }
        Ok(reaped.exit)
    }
    fn kill(&self, process: ProcessId) -> Result<(), Errno> {
        self.run.table.will_be_killed(process);
        // SAFETY: a process of this run, which is not reaped under the table's lock.
        let kill = |pid| check(unsafe { libc::kill(pid, libc::SIGKILL) }).map(|_| ());
        self.run.table.with(process, kill)
    }
    fn pidfd_open(&self, process: ProcessId) -> Result<Fd, Errno> {
        let open = |pid: i32| {
            // SAFETY: only numbers.
            check(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })
        };
        self.run.table.with(process, open).map(|fd| self.own.open(fd as i32))
    }
    fn close(&self, fd: Fd) -> Result<(), Errno> {
        let real = self.own.forget(fd).ok_or(Errno::Badf)?;
        // SAFETY: a descriptor that the program has opened, and that no thread can look up any
        // more.
        check(unsafe { libc::close(real) }).map(|_| ())
    }
    fn process_mrelease(&self, process: Fd, flags: u32) -> Result<(), Errno> {
        let fd = self.own.descriptor(process).unwrap_or(-1);
        let begun_ns = clock_ns(libc::CLOCK_MONOTONIC);
        // SAFETY: only numbers.
        check(unsafe { libc::syscall(libc::SYS_process_mrelease, fd, flags) })?;
        self.run.table.released(clock_ns(libc::CLOCK_MONOTONIC) - begun_ns);
        Ok(())
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
        if !(-1000..=1000).contains(&thousandths) {
            return Err(Errno::Inval);
        }
        self.run.table.with(process, |pid| {
            std::fs::write(format!("/proc/{pid}/oom_score_adj"), thousandths.to_string())
                .map_err(|why| why.raw_os_error().map_or(Errno::Io, crate::errno::of))
        })
    }
    fn own_process(&self) -> ProcessId {
        self.own.id
    }
    /// All processes are in one group of the kernel, which has number 0.
    fn make_group(&self, _: usize) -> Result<(), Errno> {
        Err(Errno::Noent)
    }
    fn remove_group(&self, _: usize) -> Result<(), Errno> {
        Err(Errno::Noent)
    }

    fn file(&self, bytes: u64, backing: Backing) -> Result<Fd, Errno> {
        match backing {
            Backing::Memory => self.sys_file(bytes),
            Backing::Disk => self.sys_file_on_disk(bytes),
        }
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
        self.running()?;
        std::fs::read("/proc/zoneinfo").map(|_| ()).map_err(|_| Errno::Perm)
    }
    fn write(&self, page: Addr, word: u64) -> Result<(), Errno> {
        if !page.0.is_multiple_of(8) {
            return Err(Errno::Inval);
        }
        self.reachable_word(page)?;
        // SAFETY: the word is in the program's memory.
        unsafe { user::store(page.0, word) }
    }
    fn read(&self, page: Addr) -> Result<u64, Errno> {
        if !page.0.is_multiple_of(8) {
            return Err(Errno::Inval);
        }
        self.reachable_word(page)?;
        // SAFETY: the word is in the program's memory.
        unsafe { user::load(page.0) }
    }
}

impl Linux {
    /// Refuses an access outside programs' memory, which would be one to this program itself.
    fn reachable_word(&self, at: Addr) -> Result<(), Errno> {
        if self.own.may_use(at.0, 8) { Ok(()) } else { Err(Errno::Segv) }
    }
}
