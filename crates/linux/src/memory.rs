//! The memory system calls.

use crate::errno::{check, last};
use crate::process::{CHOSEN, USER_BEGIN, USER_END};
use crate::system::Linux;
use mmscale_system::{
    Addr, Advice, Errno, Fd, FileAdvice, LockWhat, MapSpec, MayMove, PAGE_BYTES, Place, Populate,
    Present, ProcessId, Prot, Share,
};
use std::io::Write as _;
use std::os::fd::{AsRawFd as _, IntoRawFd as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::atomic::Ordering::Relaxed;

/// Flags of mbind(2), from its manual page and `linux/mempolicy.h`.
const MPOL_MF_STRICT: i32 = 1;
const MPOL_MF_MOVE: i32 = 2;

/// Written to a new file on a disk.
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// Advice of madvise(2), from `asm-generic/mman-common.h`; the crate libc lacks it for musl.
const MADV_COLLAPSE: i32 = 25;

fn prot_of(prot: Prot) -> i32 {
    match prot {
        Prot::None => libc::PROT_NONE,
        Prot::Read => libc::PROT_READ,
        Prot::ReadExec => libc::PROT_READ | libc::PROT_EXEC,
        Prot::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
    }
}

fn flags_of(spec: &MapSpec) -> i32 {
    let kind = match spec.file {
        None => libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        Some(part) if part.share == Share::Shared => libc::MAP_SHARED,
        Some(_) => libc::MAP_PRIVATE,
    };
    kind | match spec.populate {
        Populate::OnTouch => 0,
        Populate::Now => libc::MAP_POPULATE,
        Populate::Locked => libc::MAP_LOCKED,
    }
}

fn advice_of(advice: Advice) -> i32 {
    match advice {
        Advice::DontNeed => libc::MADV_DONTNEED,
        Advice::Free => libc::MADV_FREE,
        Advice::Cold => libc::MADV_COLD,
        Advice::PageOut => libc::MADV_PAGEOUT,
        Advice::PopulateRead => libc::MADV_POPULATE_READ,
        Advice::PopulateWrite => libc::MADV_POPULATE_WRITE,
        Advice::WillNeed => libc::MADV_WILLNEED,
        Advice::Collapse => MADV_COLLAPSE,
        Advice::HugePage => libc::MADV_HUGEPAGE,
        Advice::NoHugePage => libc::MADV_NOHUGEPAGE,
        Advice::DontFork => libc::MADV_DONTFORK,
        Advice::DoFork => libc::MADV_DOFORK,
        Advice::WipeOnFork => libc::MADV_WIPEONFORK,
        Advice::KeepOnFork => libc::MADV_KEEPONFORK,
        Advice::Normal => libc::MADV_NORMAL,
        Advice::Random => libc::MADV_RANDOM,
        Advice::Sequential => libc::MADV_SEQUENTIAL,
        Advice::Mergeable => libc::MADV_MERGEABLE,
        Advice::Unmergeable => libc::MADV_UNMERGEABLE,
        Advice::DontDump => libc::MADV_DONTDUMP,
        Advice::DoDump => libc::MADV_DODUMP,
    }
}

/// Rounds up to whole pages.
fn rounded(bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(PAGE_BYTES)
}

fn is_page(at: u64) -> bool {
    at.is_multiple_of(PAGE_BYTES)
}

impl Linux {
    /// Checks that `at` is page-aligned, else `Inval`, and that the range is the program's, else
    /// `beyond`.
    fn own_range(&self, at: Addr, bytes: u64, beyond: Errno) -> Result<(), Errno> {
        if !is_page(at.0) {
            return Err(Errno::Inval);
        }
        self.reachable(at.0, bytes, beyond)
    }
    fn reachable(&self, at: u64, bytes: u64, beyond: Errno) -> Result<(), Errno> {
        let bytes = rounded(bytes).ok_or(beyond)?;
        if self.own.may_use(at, bytes) { Ok(()) } else { Err(beyond) }
    }
    /// Returns an address for `bytes` bytes that no other caller gets. It is free unless the
    /// program has mapped there itself.
    fn choose(&self, bytes: u64) -> Result<u64, Errno> {
        let bytes = rounded(bytes).filter(|&bytes| bytes < USER_END - CHOSEN);
        let bytes = bytes.ok_or(Errno::Nomem)?;
        let at = self.own.next.fetch_add(bytes, Relaxed);
        if at + bytes > USER_END {
            self.own.next.store(CHOSEN, Relaxed);
            return Err(Errno::Nomem);
        }
        Ok(at)
    }
    fn map_at(&self, spec: &MapSpec, at: u64, how: i32) -> Result<u64, Errno> {
        let (fd, offset) = match spec.file {
            None => (-1, 0),
            Some(part) => (self.own.descriptor(part.fd).ok_or(Errno::Badf)?, part.offset),
        };
        let offset = i64::try_from(offset).map_err(|_| Errno::Overflow)?;
        // SAFETY: a new mapping, where nothing is mapped or only memory of programs, of which Rust
        // has no references.
        let got = unsafe {
            let flags = flags_of(spec) | how;
            libc::mmap(at as *mut _, spec.bytes as usize, prot_of(spec.prot), flags, fd, offset)
        };
        if got == libc::MAP_FAILED { Err(last()) } else { Ok(got as u64) }
    }
    /// Maps at an address of this system's choice.
    fn map_anywhere(&self, spec: &MapSpec) -> Result<Addr, Errno> {
        const ATTEMPTS: usize = 64;
        if spec.bytes == 0 {
            return Err(Errno::Inval);
        }
        for _ in 0..ATTEMPTS {
            let at = self.choose(spec.bytes)?;
            match self.map_at(spec, at, libc::MAP_FIXED_NOREPLACE) {
                Ok(got) => return Ok(Addr(got)),
                // The program has mapped something there.
                Err(Errno::Exist) => {}
                Err(why) => return Err(why),
            }
        }
        Err(Errno::Nomem)
    }
    fn map_there(&self, spec: &MapSpec, at: u64) -> Result<Addr, Errno> {
        // As with the default of `vm.mmap_min_addr`.
        if is_page(at) && at < USER_BEGIN {
            return Err(Errno::Perm);
        }
        let bytes = rounded(spec.bytes).ok_or(Errno::Nomem)?;
        let got = self.map_at(spec, at, libc::MAP_FIXED_NOREPLACE)?;
        if !self.own.may_use(at, bytes) {
            self.own.note_stray(at, bytes);
        }
        Ok(Addr(got))
    }

    pub(crate) fn sys_mmap(&self, spec: MapSpec) -> Result<Addr, Errno> {
        match spec.place {
            Place::Any => self.map_anywhere(&spec),
            Place::Hint(at) => {
                let at = at.0 & !(PAGE_BYTES - 1);
                if at < USER_BEGIN || !self.own.may_use(at, spec.bytes) {
                    return self.map_anywhere(&spec);
                }
                match self.map_there(&spec, at) {
                    Err(Errno::Exist) => self.map_anywhere(&spec),
                    other => other,
                }
            }
            Place::Free(at) => self.map_there(&spec, at.0),
            Place::Fixed(at) if self.own.may_use(at.0, spec.bytes) => {
                self.map_at(&spec, at.0, libc::MAP_FIXED).map(Addr)
            }
            // The memory there may be this program itself.
            Place::Fixed(at) => match self.map_there(&spec, at.0) {
                Err(Errno::Exist) => Err(Errno::Nomem),
                other => other,
            },
        }
    }
    pub(crate) fn sys_munmap(&self, at: Addr, bytes: u64) -> Result<(), Errno> {
        self.own_range(at, bytes, Errno::Inval)?;
        self.own.forget_strays(at.0, rounded(bytes).unwrap_or(bytes));
        // SAFETY: memory of programs only.
        check(unsafe { libc::munmap(at.0 as *mut _, bytes as usize) })?;
        // The next chosen address follows existing mappings, so that page tables in use are used
        // again.
        if let Some(bytes) = rounded(bytes) {
            let _ = self.own.next.compare_exchange(at.0 + bytes, at.0, Relaxed, Relaxed);
        }
        Ok(())
    }
    pub(crate) fn sys_mprotect(&self, at: Addr, bytes: u64, prot: Prot) -> Result<(), Errno> {
        if is_page(at.0) && bytes == 0 {
            return Ok(());
        }
        self.own_range(at, bytes, Errno::Nomem)?;
        // SAFETY: memory of programs only.
        check(unsafe { libc::mprotect(at.0 as *mut _, bytes as usize, prot_of(prot)) }).map(|_| ())
    }
    fn remap(&self, at: u64, old: u64, new: u64, flags: i32, to: u64) -> Result<Addr, Errno> {
        // SAFETY: both places are memory of programs only.
        let got = unsafe {
            libc::mremap(at as *mut _, old as usize, new as usize, flags, to as *mut libc::c_void)
        };
        if got == libc::MAP_FAILED { Err(last()) } else { Ok(Addr(got as u64)) }
    }
    pub(crate) fn sys_mremap(
        &self,
        at: Addr,
        old: u64,
        new: u64,
        may_move: MayMove,
    ) -> Result<Addr, Errno> {
        self.own_range(at, old, Errno::Fault)?;
        let moving = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        match may_move {
            MayMove::No => self.remap(at.0, old, new, 0, 0),
            MayMove::To(to) => {
                if to.0 < USER_BEGIN && is_page(to.0) {
                    return Err(Errno::Perm);
                }
                if is_page(to.0) {
                    self.reachable(to.0, new, Errno::Nomem)?;
                }
                self.remap(at.0, old, new, moving, to.0)
            }
            // In place if it fits, which the kernel would try first.
            MayMove::Anywhere => match self.remap(at.0, old, new, 0, 0) {
                Err(Errno::Nomem) => self.move_elsewhere(at.0, old, new, moving),
                other => other,
            },
            MayMove::Leave if new != old => Err(Errno::Inval),
            MayMove::Leave => self.move_elsewhere(at.0, old, new, moving | libc::MREMAP_DONTUNMAP),
        }
    }
    /// Moves a mapping to a free place, which an inaccessible mapping reserves meanwhile.
    fn move_elsewhere(&self, at: u64, old: u64, new: u64, flags: i32) -> Result<Addr, Errno> {
        let place = self.map_anywhere(&MapSpec::new(new).prot(Prot::None))?;
        let moved = self.remap(at, old, new, flags, place.0);
        if moved.is_err() {
            let _ = self.sys_munmap(place, new);
        }
        moved
    }
    pub(crate) fn sys_madvise(&self, at: Addr, bytes: u64, advice: Advice) -> Result<(), Errno> {
        self.own_range(at, bytes, Errno::Inval)?;
        // SAFETY: memory of programs only.
        check(unsafe { libc::madvise(at.0 as *mut _, bytes as usize, advice_of(advice)) })
            .map(|_| ())
    }
    pub(crate) fn sys_msync(&self, at: Addr, bytes: u64) -> Result<(), Errno> {
        self.own_range(at, bytes, Errno::Nomem)?;
        // SAFETY: memory of programs only.
        check(unsafe { libc::msync(at.0 as *mut _, bytes as usize, libc::MS_SYNC) }).map(|_| ())
    }
    pub(crate) fn sys_process_vm_readv(
        &self,
        process: ProcessId,
        from: Addr,
        bytes: u64,
        to: Addr,
    ) -> Result<u64, Errno> {
        if !is_page(from.0) || !bytes.is_multiple_of(PAGE_BYTES) {
            return Err(Errno::Inval);
        }
        self.own_range(to, bytes, Errno::Fault)?;
        let part = |at: Addr| libc::iovec { iov_base: at.0 as *mut _, iov_len: bytes as usize };
        let (local, remote) = (part(to), part(from));
        let read = |pid| {
            // SAFETY: it writes to memory of programs only; one part of each side, which are ours.
            let read = unsafe {
                libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0)
            };
            check(read as i64)
        };
        self.run.table.with(process, read).map(|read| read as u64)
    }
    pub(crate) fn sys_mlock(&self, at: Addr, bytes: u64, what: LockWhat) -> Result<(), Errno> {
        self.reachable(at.0 & !(PAGE_BYTES - 1), bytes, Errno::Nomem)?;
        let flags = match what {
            LockWhat::Everything => 0,
            LockWhat::OnFault => libc::MLOCK_ONFAULT,
        };
        // SAFETY: memory of programs only.
        check(unsafe { libc::mlock2(at.0 as *const _, bytes as usize, flags as _) }).map(|_| ())
    }
    pub(crate) fn sys_munlock(&self, at: Addr, bytes: u64) -> Result<(), Errno> {
        self.reachable(at.0 & !(PAGE_BYTES - 1), bytes, Errno::Nomem)?;
        // SAFETY: memory of programs only.
        check(unsafe { libc::munlock(at.0 as *const _, bytes as usize) }).map(|_| ())
    }
    pub(crate) fn sys_mbind(
        &self,
        at: Addr,
        bytes: u64,
        node: usize,
        present: Present,
    ) -> Result<(), Errno> {
        const MASK_BITS: usize = u64::BITS as usize;
        self.own_range(at, bytes, Errno::Inval)?;
        if node >= self.run.nodes || node >= MASK_BITS {
            return Err(Errno::Inval);
        }
        let mask = 1_u64 << node;
        let flags = match present {
            Present::Stay => 0,
            Present::Move => MPOL_MF_MOVE,
            Present::MoveAll => MPOL_MF_MOVE | MPOL_MF_STRICT,
        };
        // SAFETY: memory of programs only. The mask is read during the call; the call expects one
        // bit more than the mask has.
        check(unsafe {
            libc::syscall(
                libc::SYS_mbind,
                at.0,
                bytes,
                libc::c_long::from(libc::MPOL_BIND),
                &raw const mask,
                MASK_BITS + 1,
                flags,
            )
        })
        .map(|_| ())
    }
    pub(crate) fn sys_mincore(&self, at: Addr, bytes: u64) -> Result<Vec<bool>, Errno> {
        self.own_range(at, bytes, Errno::Nomem)?;
        let pages = bytes.div_ceil(PAGE_BYTES) as usize;
        let mut there = vec![0_u8; pages];
        // SAFETY: one byte for each page.
        check(unsafe { libc::mincore(at.0 as *mut _, bytes as usize, there.as_mut_ptr()) })?;
        Ok(there.into_iter().map(|byte| byte & 1 == 1).collect())
    }
    pub(crate) fn sys_file(&self, bytes: u64) -> Result<mmscale_system::Fd, Errno> {
        let bytes = i64::try_from(bytes).map_err(|_| Errno::Overflow)?;
        // SAFETY: a name with a 0 at its end.
        let fd = check(unsafe { libc::memfd_create(c"mmscale".as_ptr(), 0) })?;
        let fd = fd as i32;
        // SAFETY: a descriptor of ours.
        match check(unsafe { libc::ftruncate(fd, bytes) }) {
            Ok(_) => Ok(self.own.open(fd)),
            Err(why) => {
                // SAFETY: as above.
                unsafe { libc::close(fd) };
                Err(why)
            }
        }
    }
    /// A file without a name in `TMPDIR`, or in /var/tmp, whose pages were written and dropped from
    /// memory. `Nodev`: that folder is in memory.
    pub(crate) fn sys_file_on_disk(&self, bytes: u64) -> Result<Fd, Errno> {
        let io = |why: std::io::Error| why.raw_os_error().map_or(Errno::Io, crate::errno::of);
        let folder = std::env::var_os("TMPDIR").unwrap_or_else(|| "/var/tmp".into());
        let mut open = std::fs::OpenOptions::new();
        let mut file = open
            .read(true)
            .write(true)
            .mode(0o600)
            .custom_flags(libc::O_TMPFILE | libc::O_CLOEXEC)
            .open(folder)
            .map_err(io)?;
        let fd = file.as_raw_fd();
        // SAFETY: a plain struct of integers, which the call fills.
        let mut system: libc::statfs = unsafe { core::mem::zeroed() };
        // SAFETY: a descriptor of ours, and a struct of that type.
        check(unsafe { libc::fstatfs(fd, &raw mut system) })?;
        if system.f_type == libc::TMPFS_MAGIC {
            return Err(Errno::Nodev);
        }
        // Pages that were never written would not be read from the disk.
        let mut left = bytes;
        while left > 0 {
            let some = left.min(ZEROS.len() as u64);
            file.write_all(&ZEROS[..some as usize]).map_err(io)?;
            left -= some;
        }
        file.sync_all().map_err(io)?;
        advise(fd, 0, bytes, FileAdvice::DontNeed)?;
        Ok(self.own.open(file.into_raw_fd()))
    }
    pub(crate) fn sys_fadvise(
        &self,
        fd: Fd,
        offset: u64,
        bytes: u64,
        advice: FileAdvice,
    ) -> Result<(), Errno> {
        let fd = self.own.descriptor(fd).ok_or(Errno::Badf)?;
        advise(fd, offset, bytes, advice)
    }
}

fn advise(fd: i32, offset: u64, bytes: u64, advice: FileAdvice) -> Result<(), Errno> {
    let advice = match advice {
        FileAdvice::WillNeed => libc::POSIX_FADV_WILLNEED,
        FileAdvice::DontNeed => libc::POSIX_FADV_DONTNEED,
    };
    // SAFETY: a call without pointers. It returns the error.
    match unsafe { libc::posix_fadvise(fd, offset as i64, bytes as i64, advice) } {
        0 => Ok(()),
        why => Err(crate::errno::of(why)),
    }
}
