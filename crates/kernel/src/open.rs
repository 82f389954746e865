//! System calls on descriptors (files and other processes), and process_mrelease.

use crate::Kernel;
use crate::coverage::Call;
use crate::descriptor::Open;
use crate::memory;
use alloc::sync::Arc;
use mmscale_arch::{Func, Machine, Span};
use mmscale_mm::space::{self, File};
use mmscale_system::{Backing, Errno, Fd, FileAdvice, FilePart, PAGE_BYTES, ProcessId, Share};

impl<A: Machine> Kernel<A> {
    pub(crate) fn sys_pidfd_open(&self, process: ProcessId) -> Result<Fd, Errno> {
        let own = self.enter(Call::Pidfd)?;
        let meant = self.processes.lock_irqsave().get(process).ok_or(Errno::Srch)?;
        Ok(own.descriptors.lock_irqsave().insert(Open::Process(meant)))
    }
    pub(crate) fn sys_close(&self, fd: Fd) -> Result<(), Errno> {
        let own = self.enter(Call::Close)?;
        let closed = own.descriptors.lock_irqsave().remove(fd);
        closed.ok_or(Errno::Badf)?.close(self.mm.mm_ref());
        Ok(())
    }
    pub(crate) fn sys_file(&self, bytes: u64, backing: Backing) -> Result<Fd, Errno> {
        let own = self.enter(Call::File)?;
        let pages = bytes.div_ceil(PAGE_BYTES);
        if pages > u64::from(u32::MAX) {
            return Err(Errno::Overflow);
        }
        let file = match backing {
            Backing::Memory => File::new(self.mm.mm_ref(), pages),
            Backing::Disk => File::on_disk(self.mm.mm_ref(), pages).ok_or(Errno::Nodev)?,
        };
        Ok(own.open_file(file))
    }
    pub(crate) fn sys_fadvise(
        &self,
        fd: Fd,
        offset: u64,
        bytes: u64,
        advice: FileAdvice,
    ) -> Result<(), Errno> {
        self.enter(Call::Fadvise)?;
        let part = FilePart { fd, offset, share: Share::Shared };
        let (file, first) = self.file_part(part, bytes)?;
        let advice = match advice {
            FileAdvice::WillNeed => space::FileAdvice::WillNeed,
            FileAdvice::DontNeed => space::FileAdvice::DontNeed,
        };
        let on = self.mm.mm_ref();
        file.advise(on, first..first + bytes.div_ceil(PAGE_BYTES), advice, self.space().group());
        file.put(on);
        Ok(())
    }
    /// Returns the file and the page in it at which `part` begins. Adds a user reference to the
    /// file.
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
    /// The order of the checks is that of Linux.
    pub(crate) fn sys_process_mrelease(&self, process: Fd, flags: u32) -> Result<(), Errno> {
        let own = self.enter(Call::Mrelease)?;
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
            // An address space that was already reaped has nothing left, whether or not the process
            // is dying.
            return if victim.space().is_skipped() { Ok(()) } else { Err(Errno::Inval) };
        }
        let over = || own.is_stopped();
        memory::reaped(victim.space().reap_unless(self.mm.mm_ref(), over))
    }
}
