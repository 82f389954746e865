//! Descriptors: what a process has opened, by small numbers of its own.

use crate::Kernel;
use crate::memory;
use crate::process::Process;
use alloc::sync::Arc;
use alloc::vec::Vec;
use mmscale_mm::arch::{Arch, Func, Op, Span};
use mmscale_mm::space::{Backing, File};
use mmscale_system::{Errno, Fd, FilePart, PAGE_BYTES, ProcessId};

/// Something that is open.
pub(crate) enum Open<A: Arch> {
    /// A process.
    Process(Arc<Process<A>>),
    /// A file; the descriptor is one of its users.
    File(Arc<File<A>>),
}

impl<A: Arch> Clone for Open<A> {
    fn clone(&self) -> Self {
        match self {
            Self::Process(process) => Self::Process(Arc::clone(process)),
            Self::File(file) => Self::File(Arc::clone(file)),
        }
    }
}

impl<A: Arch> Open<A> {
    /// The same once more, under another number.
    fn share(&self) -> Self {
        if let Self::File(file) = self {
            file.get();
        }
        self.clone()
    }
    fn close(self, on: Backing<'_, A>) {
        match self {
            Self::Process(_) => {}
            Self::File(file) => file.put(on),
        }
    }
}

/// The descriptors of a process. They are closed with [`Descriptors::close`].
pub(crate) struct Descriptors<A: Arch> {
    slots: Vec<Option<Open<A>>>,
}

impl<A: Arch> Descriptors<A> {
    /// Nothing is open.
    pub(crate) const fn new() -> Self {
        Self { slots: Vec::new() }
    }
    /// The same for a fork.
    pub(crate) fn share(&self) -> Self {
        Self { slots: self.slots.iter().map(|open| open.as_ref().map(Open::share)).collect() }
    }
    /// Closes all.
    pub(crate) fn close(self, on: Backing<'_, A>) {
        self.slots.into_iter().flatten().for_each(|open| open.close(on));
    }
    /// Gives `open` the lowest free number.
    fn insert(&mut self, open: Open<A>) -> Fd {
        let free = self.slots.iter().position(Option::is_none);
        let at = free.unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[at] = Some(open);
        Fd(at as u32)
    }
    fn get(&self, fd: Fd) -> Option<&Open<A>> {
        self.slots.get(fd.0 as usize)?.as_ref()
    }
    fn remove(&mut self, fd: Fd) -> Option<Open<A>> {
        self.slots.get_mut(fd.0 as usize)?.take()
    }
}

impl<A: Arch> Kernel<A> {
    pub(crate) fn sys_pidfd_open(&self, process: ProcessId) -> Result<Fd, Errno> {
        let own = self.running()?;
        A::work(Op::Syscall, 1);
        let meant = self.processes.lock_irqsave().get(process).ok_or(Errno::Srch)?;
        Ok(own.descriptors.lock_irqsave().insert(Open::Process(meant)))
    }
    pub(crate) fn sys_close(&self, fd: Fd) -> Result<(), Errno> {
        let own = self.running()?;
        A::work(Op::Syscall, 1);
        let closed = own.descriptors.lock_irqsave().remove(fd);
        closed.ok_or(Errno::Badf)?.close(self.mm.backing());
        Ok(())
    }
    pub(crate) fn sys_file(&self, bytes: u64) -> Result<Fd, Errno> {
        let own = self.running()?;
        A::work(Op::Syscall, 1);
        let pages = bytes.div_ceil(PAGE_BYTES);
        if pages > u64::from(u32::MAX) {
            return Err(Errno::Overflow);
        }
        let file = File::new(self.mm.backing(), pages);
        Ok(own.descriptors.lock_irqsave().insert(Open::File(file)))
    }
    /// The file, and the page of it, that a part begins with; the file has one user more.
    pub(crate) fn file_part(
        &self,
        part: FilePart,
        bytes: u64,
    ) -> Result<(Arc<File<A>>, u64), Errno> {
        if !part.offset.is_multiple_of(PAGE_BYTES) {
            return Err(Errno::Inval);
        }
        part.offset.checked_add(bytes).ok_or(Errno::Overflow)?;
        let own = self.current.process();
        match own.descriptors.lock_irqsave().get(part.fd) {
            None => Err(Errno::Badf),
            Some(Open::Process(_)) => Err(Errno::Nodev),
            Some(Open::File(file)) => {
                file.get();
                Ok((Arc::clone(file), part.offset / PAGE_BYTES))
            }
        }
    }
    /// The checks come in the order in which Linux makes them.
    pub(crate) fn sys_process_mrelease(&self, process: Fd, flags: u32) -> Result<(), Errno> {
        let own = self.running()?;
        A::work(Op::Syscall, 1);
        let _span = Span::<A>::enter(Func::ProcessMrelease);
        if flags != 0 {
            return Err(Errno::Inval);
        }
        let found = own.descriptors.lock_irqsave().get(process).cloned();
        let Some(Open::Process(victim)) = found else { return Err(Errno::Badf) };
        if !victim.has_memory() {
            return Err(Errno::Srch);
        }
        if !victim.is_stopped() {
            // Nothing is left of an address space that was reaped already, dying or not.
            return if victim.space.is_skipped() { Ok(()) } else { Err(Errno::Inval) };
        }
        let over = || own.is_stopped();
        memory::reaped(victim.space.reap_unless(self.mm.backing(), over))
    }
}
