//! System calls about memory: converts bytes and manual-page semantics to pages and `mm::space`.

use crate::Kernel;
use crate::coverage::Call;
use crate::process::Process;
use alloc::vec::Vec;
use mmscale_arch::{Machine, NodeId, PAGE_SIZE, VirtAddr, VmaRange, Vpn};
use mmscale_mm::memcg::LifetimeError;
use mmscale_mm::pgtable::MemAccess;
use mmscale_mm::space::{self, FaultError, MapRequest, Reaped, RemapRequest, SpaceError};
use mmscale_system::{
    Addr, Advice, Errno, LockWhat, MapSpec, MayMove, Place, Populate, Present, ProcessId, Prot,
    Share,
};

/// Returns the error number that the manual page gives for this failure.
pub(crate) fn errno(why: SpaceError) -> Errno {
    match why {
        SpaceError::Inval => Errno::Inval,
        SpaceError::NoMemory => Errno::Nomem,
        SpaceError::Fault => Errno::Fault,
        SpaceError::Again => Errno::Again,
        SpaceError::Exists => Errno::Exist,
        SpaceError::Access => Errno::Acces,
        SpaceError::Perm => Errno::Perm,
        SpaceError::Busy => Errno::Busy,
        SpaceError::Io => Errno::Io,
        SpaceError::Interrupted => Errno::Intr,
    }
}

/// Returns the error number of a failure to create, remove or enter a memory group.
pub(crate) fn errno_of_group(why: LifetimeError) -> Errno {
    match why {
        LifetimeError::Exists => Errno::Exist,
        LifetimeError::Missing => Errno::Noent,
        LifetimeError::Busy => Errno::Busy,
        LifetimeError::Full => Errno::Nomem,
    }
}

/// Converts the result of a reap into the result of process_mrelease.
pub(crate) fn reaped(result: Reaped) -> Result<(), Errno> {
    match result {
        Reaped::Done | Reaped::Skipped => Ok(()),
        Reaped::Busy | Reaped::Partly => Err(Errno::Again),
        Reaped::Interrupted => Err(Errno::Intr),
    }
}

/// Returns the signal for a failed access. SIGKILL takes precedence over every other signal.
fn signal<A: Machine>(process: &Process<A>, why: FaultError) -> Errno {
    match why {
        _ if process.is_stopped() => Errno::Stopped,
        FaultError::Segv => Errno::Segv,
        FaultError::Bus => Errno::Bus,
        FaultError::Oom => Errno::Nomem,
        FaultError::Killed => Errno::Stopped,
    }
}

/// Returns the page that begins at `at`. Fails if `at` is not aligned to a page.
fn page(at: Addr) -> Result<Vpn, Errno> {
    Vpn::starting_at(VirtAddr::new(at.0)).ok_or(Errno::Inval)
}

/// Returns the page that begins at `at`, for an access by a program. Fails with `Segv` if the page
/// is outside the user address space.
fn accessed(at: Addr) -> Result<Vpn, Errno> {
    let page = page(at)?;
    if page < Vpn::USER_END { Ok(page) } else { Err(Errno::Segv) }
}

/// Returns the number of pages that `bytes` need.
fn pages(bytes: u64) -> u64 {
    bytes.div_ceil(PAGE_SIZE)
}

/// Returns the page range of `bytes` at `at`, with the error `beyond` if its end is outside the
/// address space.
fn range(at: Addr, bytes: u64, beyond: Errno) -> Result<VmaRange, Errno> {
    let start = page(at)?;
    if bytes == 0 {
        return Err(Errno::Inval);
    }
    VmaRange::with_pages(start, pages(bytes)).ok_or(beyond)
}

/// Returns the smallest page range that contains `bytes` at `at`. `None`: it has no bytes.
fn around(at: Addr, bytes: u64) -> Result<Option<VmaRange>, Errno> {
    if bytes == 0 {
        return Ok(None);
    }
    let start = Vpn::containing(VirtAddr::new(at.0));
    let end = at.0.checked_add(bytes).ok_or(Errno::Inval)?;
    let end = Vpn::new(end.div_ceil(PAGE_SIZE));
    VmaRange::new(start, end).map(Some).ok_or(Errno::Nomem)
}

fn prot_of(prot: Prot) -> space::Prot {
    match prot {
        Prot::None => space::Prot::NONE,
        Prot::Read => space::Prot::READ,
        Prot::ReadExec => space::Prot::RX,
        Prot::ReadWrite => space::Prot::RW,
    }
}

fn advice_of(advice: Advice) -> space::Advice {
    match advice {
        Advice::DontNeed => space::Advice::DontNeed,
        Advice::Free => space::Advice::Free,
        Advice::Cold => space::Advice::Cold,
        Advice::PageOut => space::Advice::PageOut,
        Advice::PopulateRead => space::Advice::PopulateRead,
        Advice::PopulateWrite => space::Advice::PopulateWrite,
        Advice::WillNeed => space::Advice::WillNeed,
        Advice::Collapse => space::Advice::Collapse,
        Advice::HugePage => space::Advice::HugePage,
        Advice::NoHugePage => space::Advice::NoHugePage,
        Advice::DontFork => space::Advice::DontFork,
        Advice::DoFork => space::Advice::DoFork,
        Advice::WipeOnFork => space::Advice::WipeOnFork,
        Advice::KeepOnFork => space::Advice::KeepOnFork,
        Advice::Normal => space::Advice::Normal,
        Advice::Random => space::Advice::Random,
        Advice::Sequential => space::Advice::Sequential,
        Advice::Mergeable => space::Advice::Mergeable,
        Advice::Unmergeable => space::Advice::Unmergeable,
        Advice::DontDump => space::Advice::DontDump,
        Advice::DoDump => space::Advice::DoDump,
    }
}

fn addr(page: Vpn) -> Addr {
    Addr(page.addr().get())
}

impl<A: Machine> Kernel<A> {
    pub(crate) fn sys_mmap(&self, spec: MapSpec) -> Result<Addr, Errno> {
        self.enter(if spec.file.is_some() { Call::MmapFile } else { Call::Mmap })?;
        let place = match spec.place {
            Place::Any => space::Place::Any,
            // A hint is rounded down.
            Place::Hint(at) => space::Place::Hint(Vpn::containing(VirtAddr::new(at.0))),
            Place::Fixed(at) => space::Place::Fixed(page(at)?),
            Place::Free(at) => space::Place::Free(page(at)?),
        };
        let request = MapRequest::new(pages(spec.bytes)).at(place).prot(prot_of(spec.prot));
        let mut request = match spec.populate {
            Populate::OnTouch => request,
            Populate::Now => request.populated(),
            Populate::Locked => request.locked(),
        };
        if let Some(part) = spec.file {
            let (found, index) = self.file_part(part, spec.bytes)?;
            request = request.of_file(found.id(), index);
            if part.share == Share::Shared {
                request = request.shared();
            }
            let held = self.space().hold_file(&found);
            // The address space now holds a user reference of its own.
            found.put(self.mm.mm_ref());
            held.map_err(errno)?;
        }
        self.space().mmap(self.mm.mm_ref(), request).map(addr).map_err(errno)
    }
    pub(crate) fn sys_munmap(&self, at: Addr, bytes: u64) -> Result<(), Errno> {
        self.enter(Call::Munmap)?;
        let range = range(at, bytes, Errno::Inval)?;
        self.space().munmap(self.mm.mm_ref(), range).map_err(errno)
    }
    pub(crate) fn sys_mprotect(&self, at: Addr, bytes: u64, prot: Prot) -> Result<(), Errno> {
        self.enter(Call::Mprotect)?;
        page(at)?;
        if bytes == 0 {
            return Ok(());
        }
        let range = range(at, bytes, Errno::Nomem)?;
        self.space().mprotect(self.mm.mm_ref(), range, prot_of(prot)).map_err(errno)
    }
    pub(crate) fn sys_mremap(
        &self,
        at: Addr,
        old_bytes: u64,
        new_bytes: u64,
        may_move: MayMove,
    ) -> Result<Addr, Errno> {
        self.enter(Call::Mremap)?;
        let may_move = match may_move {
            MayMove::No => space::MayMove::No,
            MayMove::Anywhere => space::MayMove::Anywhere,
            MayMove::To(at) => space::MayMove::To(page(at)?),
            MayMove::Leave => space::MayMove::Leave,
        };
        let request = RemapRequest {
            from: page(at)?,
            old_pages: pages(old_bytes),
            new_pages: pages(new_bytes),
            may_move,
        };
        self.space().mremap(self.mm.mm_ref(), request).map(addr).map_err(errno)
    }
    pub(crate) fn sys_madvise(&self, at: Addr, bytes: u64, advice: Advice) -> Result<(), Errno> {
        self.enter(Call::Madvise)?;
        page(at)?;
        if bytes == 0 {
            return Ok(());
        }
        let range = range(at, bytes, Errno::Inval)?;
        self.space().madvise(self.mm.mm_ref(), range, advice_of(advice)).map_err(errno)
    }
    pub(crate) fn sys_msync(&self, at: Addr, bytes: u64) -> Result<(), Errno> {
        self.enter(Call::Msync)?;
        page(at)?;
        if bytes == 0 {
            return Ok(());
        }
        let range = range(at, bytes, Errno::Nomem)?;
        self.space().msync(self.mm.mm_ref(), range).map_err(errno)
    }
    pub(crate) fn sys_mlock(&self, at: Addr, bytes: u64, what: LockWhat) -> Result<(), Errno> {
        self.enter(Call::Mlock)?;
        let what = match what {
            LockWhat::Everything => space::LockWhat::Everything,
            LockWhat::OnFault => space::LockWhat::OnFault,
        };
        match around(at, bytes)? {
            Some(range) => self.space().mlock(self.mm.mm_ref(), range, what).map_err(errno),
            None => Ok(()),
        }
    }
    pub(crate) fn sys_munlock(&self, at: Addr, bytes: u64) -> Result<(), Errno> {
        self.enter(Call::Mlock)?;
        match around(at, bytes)? {
            Some(range) => self.space().munlock(self.mm.mm_ref(), range).map_err(errno),
            None => Ok(()),
        }
    }
    pub(crate) fn sys_mbind(
        &self,
        at: Addr,
        bytes: u64,
        node: usize,
        present: Present,
    ) -> Result<(), Errno> {
        self.enter(Call::Mbind)?;
        page(at)?;
        if node >= self.nodes {
            return Err(Errno::Inval);
        }
        if bytes == 0 {
            return Ok(());
        }
        let range = range(at, bytes, Errno::Inval)?;
        let what = match present {
            Present::Stay => space::Present::Stay,
            Present::Move | Present::MoveAll => space::Present::Move,
        };
        let bound = self.space().mbind(self.mm.mm_ref(), range, NodeId::new(node), what);
        match (bound.map_err(errno)?, present) {
            (left, Present::MoveAll) if left > 0 => Err(Errno::Io),
            _ => Ok(()),
        }
    }
    pub(crate) fn sys_mincore(&self, at: Addr, bytes: u64) -> Result<Vec<bool>, Errno> {
        self.enter(Call::Mincore)?;
        page(at)?;
        let mut there = Vec::new();
        if bytes == 0 {
            return Ok(there);
        }
        let range = range(at, bytes, Errno::Nomem)?;
        let see = |is| there.push(is);
        self.space().mincore(self.mm.mm_ref(), range, see).map_err(errno)?;
        Ok(there)
    }
    /// Reads another process's memory, as a user of its address space (`process_vm_rw`).
    pub(crate) fn sys_process_vm_readv(
        &self,
        process: ProcessId,
        from: Addr,
        bytes: u64,
        to: Addr,
    ) -> Result<u64, Errno> {
        let own = self.enter(Call::VmReadv)?;
        page(from)?;
        let to = page(to)?;
        if !bytes.is_multiple_of(PAGE_SIZE) {
            return Err(Errno::Inval);
        }
        if bytes == 0 {
            return Ok(0);
        }
        let range = range(from, bytes, Errno::Fault)?;
        let meant = self.processes.lock_irqsave().get(process).ok_or(Errno::Srch)?;
        let (on, lifetimes) = (self.mm.mm_ref(), self.mm.lifetimes());
        // Keeps the group: a page that a fault of this call makes is charged to it, even if the
        // process has left meanwhile.
        lifetimes.inherit(meant.group);
        let copied = meant.get_space().ok_or(Errno::Srch).and_then(|space| {
            let copied = self.space().read_from(on, &space, range, to).map_err(errno);
            space.put(on);
            copied
        });
        lifetimes.leave(meant.group);
        if own.is_stopped() { Err(Errno::Stopped) } else { copied.map(|pages| pages * PAGE_SIZE) }
    }
    pub(crate) fn user_write(&self, at: Addr, word: u64) -> Result<(), Errno> {
        let process = self.current.process();
        self.calls.add::<A>(Call::Access);
        let at = accessed(at)?;
        let write = |pfn| A::write_stamp(pfn, word);
        let done = self.space().access(self.mm.mm_ref(), at, MemAccess::Write, write);
        done.map_err(|why| signal(process, why))
    }
    pub(crate) fn user_read(&self, at: Addr) -> Result<u64, Errno> {
        let process = self.current.process();
        self.calls.add::<A>(Call::Access);
        let at = accessed(at)?;
        let done = self.space().access(self.mm.mm_ref(), at, MemAccess::Read, A::read_stamp);
        done.map_err(|why| signal(process, why))
    }
}
