//! A system for tests of the language: tasks run to their end when they are started, each call
//! takes a microsecond, and memory is a map.

use mmscale_system::{
    Addr, Advice, Backing, Body, CpuPosition, Errno, Exit, Fd, FileAdvice, LockWhat, MapSpec,
    MayMove, Place, Present, ProcessId, Prot, System, ThreadId, ThreadSpec,
};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// The system; it records the calls that were made.
#[derive(Default)]
pub(crate) struct Fake {
    clock_ns: Cell<u64>,
    next: Cell<u64>,
    process: Cell<u32>,
    depth: Cell<u32>,
    words: RefCell<BTreeMap<u64, u64>>,
    /// Calls with their arguments.
    pub(crate) calls: RefCell<Vec<String>>,
    /// Whether calls are recorded.
    records: bool,
}

/// Maximum depth of tasks in each other, as each is a call.
const MAX_DEPTH: u32 = 64;

impl Fake {
    /// Returns a system that records its calls.
    pub(crate) fn recording() -> Self {
        Self { records: true, ..Self::default() }
    }
    fn did(&self, call: impl FnOnce() -> String) {
        self.clock_ns.set(self.clock_ns.get() + 1000);
        if self.records {
            self.calls.borrow_mut().push(call());
        }
    }
    fn task(&self, what: &str, spec: ThreadSpec, body: Body<Self>) -> Result<u32, Errno> {
        let group = match spec.group {
            Some(group) if group > 0 => format!(" group {group}"),
            _ => String::new(),
        };
        self.did(|| format!("{what} cpu {}{group}", spec.cpu));
        if self.depth.get() > MAX_DEPTH {
            return Err(Errno::Nomem);
        }
        self.depth.set(self.depth.get() + 1);
        let before = self.process.get();
        let id = self.next.get() as u32 + 1;
        self.next.set(u64::from(id));
        if what != "spawn" {
            self.process.set(id);
        }
        body(self);
        self.process.set(before);
        self.depth.set(self.depth.get() - 1);
        Ok(id)
    }
    fn plain(&self, call: impl FnOnce() -> String) -> Result<(), Errno> {
        self.did(call);
        Ok(())
    }
}

impl System for Fake {
    fn cpus(&self) -> usize {
        4
    }
    fn nodes(&self) -> usize {
        2
    }
    /// CPUs 0 and 1, 2 and 3 share a core; each core is a node.
    fn position(&self, cpu: usize) -> CpuPosition {
        CpuPosition { core: cpu / 2, cluster: cpu / 2, node: cpu / 2 }
    }
    fn clock_ns(&self) -> u64 {
        self.clock_ns.get()
    }
    fn zoneinfo(&self) -> Result<(), Errno> {
        self.plain(|| "zoneinfo".to_owned())
    }
    fn sleep_ns(&self, ns: u64) -> Result<(), Errno> {
        self.clock_ns.set(self.clock_ns.get() + ns);
        self.plain(|| "sleep".to_owned())
    }
    fn compute_ns(&self, ns: u64) -> Result<(), Errno> {
        self.clock_ns.set(self.clock_ns.get() + ns);
        Ok(())
    }
    fn cpu_offline(&self, cpu: usize) -> Result<(), Errno> {
        self.plain(|| format!("cpu_offline {cpu}"))
    }
    fn cpu_online(&self, cpu: usize) -> Result<(), Errno> {
        self.plain(|| format!("cpu_online {cpu}"))
    }
    fn spawn(&self, spec: ThreadSpec, body: Body<Self>) -> Result<ThreadId, Errno> {
        self.task("spawn", spec, body).map(ThreadId)
    }
    fn join(&self, _: ThreadId) -> Result<(), Errno> {
        self.plain(|| "join".to_owned())
    }
    fn process(&self, spec: ThreadSpec, body: Body<Self>) -> Result<ProcessId, Errno> {
        self.task("process", spec, body).map(ProcessId)
    }
    fn fork(&self, spec: ThreadSpec, body: Body<Self>) -> Result<ProcessId, Errno> {
        self.task("fork", spec, body).map(ProcessId)
    }
    fn exec(&self) -> Result<(), Errno> {
        self.words.borrow_mut().clear();
        self.plain(|| "exec".to_owned())
    }
    fn make_group(&self, number: usize) -> Result<(), Errno> {
        self.plain(|| format!("make_group {number}"))
    }
    fn remove_group(&self, number: usize) -> Result<(), Errno> {
        self.plain(|| format!("remove_group {number}"))
    }
    fn wait(&self, _: ProcessId) -> Result<Exit, Errno> {
        self.did(|| "wait".to_owned());
        Ok(Exit::Returned)
    }
    fn kill(&self, _: ProcessId) -> Result<(), Errno> {
        self.did(|| "kill".to_owned());
        Err(Errno::Srch)
    }
    fn pidfd_open(&self, _: ProcessId) -> Result<Fd, Errno> {
        self.did(|| "pidfd_open".to_owned());
        Ok(Fd(3))
    }
    fn close(&self, _: Fd) -> Result<(), Errno> {
        self.plain(|| "close".to_owned())
    }
    fn process_mrelease(&self, _: Fd, _: u32) -> Result<(), Errno> {
        self.did(|| "process_mrelease".to_owned());
        Err(Errno::Srch)
    }
    fn process_vm_readv(
        &self,
        _: ProcessId,
        from: Addr,
        bytes: u64,
        to: Addr,
    ) -> Result<u64, Errno> {
        self.did(|| format!("process_vm_readv {bytes}"));
        for page in 0..bytes >> 12 {
            let word = self.words.borrow().get(&from.page(page).0).copied().unwrap_or(0);
            self.words.borrow_mut().insert(to.page(page).0, word);
        }
        Ok(bytes)
    }
    fn set_oom_score_adj(&self, _: ProcessId, score: i32) -> Result<(), Errno> {
        self.plain(|| format!("oom_score_adj {score}"))
    }
    fn own_process(&self) -> ProcessId {
        ProcessId(self.process.get())
    }
    fn file(&self, bytes: u64, backing: Backing) -> Result<Fd, Errno> {
        self.did(|| match backing {
            Backing::Memory => format!("memfd_create {bytes}"),
            Backing::Disk => format!("file on disk {bytes}"),
        });
        Ok(Fd(4))
    }
    fn fadvise(&self, _: Fd, offset: u64, bytes: u64, advice: FileAdvice) -> Result<(), Errno> {
        self.plain(|| format!("posix_fadvise {offset} {bytes} {advice:?}"))
    }
    fn mmap(&self, spec: MapSpec) -> Result<Addr, Errno> {
        let MapSpec { bytes, prot, populate, file, .. } = spec;
        let share = file.map(|file| (file.offset, file.share));
        self.did(|| format!("mmap {bytes} {prot:?} {populate:?} {share:?}"));
        if bytes == 0 {
            return Err(Errno::Inval);
        }
        if let Place::Fixed(at) | Place::Free(at) = spec.place {
            return Ok(at);
        }
        let at = self.next.get().next_multiple_of(1 << 12) + (1 << 12);
        self.next.set(at.checked_add(bytes).filter(|end| *end < 1 << 47).ok_or(Errno::Nomem)?);
        Ok(Addr(at))
    }
    fn munmap(&self, at: Addr, bytes: u64) -> Result<(), Errno> {
        let end = at.0.saturating_add(bytes);
        self.words.borrow_mut().retain(|page, _| !(at.0..end).contains(page));
        self.plain(|| format!("munmap {bytes}"))?;
        if at.0.is_multiple_of(4096) { Ok(()) } else { Err(Errno::Inval) }
    }
    fn mprotect(&self, _: Addr, bytes: u64, prot: Prot) -> Result<(), Errno> {
        self.plain(|| format!("mprotect {bytes} {prot:?}"))
    }
    fn mremap(&self, at: Addr, old: u64, new: u64, how: MayMove) -> Result<Addr, Errno> {
        self.did(|| format!("mremap {old} {new} {}", matches!(how, MayMove::Anywhere)));
        Ok(at)
    }
    fn madvise(&self, at: Addr, bytes: u64, advice: Advice) -> Result<(), Errno> {
        let end = at.0.saturating_add(bytes);
        if advice == Advice::DontNeed {
            self.words.borrow_mut().retain(|page, _| !(at.0..end).contains(page));
        }
        self.plain(|| format!("madvise {bytes} {advice:?}"))
    }
    fn msync(&self, _: Addr, bytes: u64) -> Result<(), Errno> {
        self.plain(|| format!("msync {bytes}"))
    }
    fn mlock(&self, _: Addr, bytes: u64, what: LockWhat) -> Result<(), Errno> {
        self.plain(|| format!("mlock {bytes} {what:?}"))
    }
    fn munlock(&self, _: Addr, bytes: u64) -> Result<(), Errno> {
        self.plain(|| format!("munlock {bytes}"))
    }
    fn mbind(&self, _: Addr, bytes: u64, node: usize, how: Present) -> Result<(), Errno> {
        self.plain(|| format!("mbind {bytes} {node} {how:?}"))
    }
    fn mincore(&self, _: Addr, bytes: u64) -> Result<Vec<bool>, Errno> {
        self.did(|| format!("mincore {bytes}"));
        Ok(vec![true; (bytes >> 12).min(1 << 16) as usize])
    }
    fn write(&self, page: Addr, word: u64) -> Result<(), Errno> {
        self.clock_ns.set(self.clock_ns.get() + 100);
        self.words.borrow_mut().insert(page.0, word);
        Ok(())
    }
    fn read(&self, page: Addr) -> Result<u64, Errno> {
        self.clock_ns.set(self.clock_ns.get() + 100);
        Ok(self.words.borrow().get(&page.0).copied().unwrap_or(0))
    }
}
