//! Host memory of coroutine stacks: slabs of several stacks, each with a guard below it.
//!
//! A guard that is a mapping of its own cuts its slab in two, so that each stack takes two of the
//! mappings that the host gives a process (`vm.max_map_count`, 65,530 by default). Linux 6.13 and
//! later mark pages as guards inside of a mapping (MADV_GUARD_INSTALL); then the number of stacks
//! is limited by memory alone. A touch of either kind of guard ends the process with SIGSEGV.

use std::io::{Error, Result};
use std::ptr::NonNull;
use std::sync::LazyLock;

/// Bytes of a stack; only what is used takes up memory.
pub(crate) const STACK_BYTES: usize = 128 * 1024;
/// Stacks in a slab.
pub(crate) const SLAB_STACKS: usize = 32;

/// Bytes of a host page, which is what a guard takes.
pub(crate) static GUARD_BYTES: LazyLock<usize> = LazyLock::new(|| {
    // SAFETY: it reads a constant of the system.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).expect("a page has a size")
});

/// How the guards of a slab are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Guards {
    /// By marks in page tables.
    Marks,
    /// By mappings without access.
    Mappings,
}

/// One mapping, with room for [`SLAB_STACKS`] stacks.
pub(crate) struct Slab {
    at: NonNull<libc::c_void>,
}

/// Distance between two stacks of a slab. The guard comes first: stacks grow downwards.
fn apart_bytes() -> usize {
    *GUARD_BYTES + STACK_BYTES
}

impl Slab {
    /// Maps a slab, with marks for guards where the host has them.
    pub(crate) fn new() -> Result<Self> {
        let marked = Self::with(Guards::Marks);
        marked.or_else(|_| Self::with(Guards::Mappings))
    }
    /// Maps a slab; fails if the host refuses memory, a mapping or that kind of guard.
    pub(crate) fn with(guards: Guards) -> Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let bytes = SLAB_STACKS * apart_bytes();
        // SAFETY: a new mapping, at a place that the host chooses, changes no other memory.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, kind, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        let slab = Self { at: NonNull::new(at).ok_or_else(Error::last_os_error)? };
        small_pages(at, bytes);
        (0..SLAB_STACKS).try_for_each(|nth| slab.guard(nth, guards))?;
        Ok(slab)
    }
    fn guard(&self, nth: usize, guards: Guards) -> Result<()> {
        let (at, bytes) = (self.address(nth), *GUARD_BYTES);
        let done = match guards {
            Guards::Marks => return mark_guard(at, bytes),
            // SAFETY: the page belongs to the slab and has never been used.
            Guards::Mappings => unsafe { libc::mprotect(at, bytes, libc::PROT_NONE) },
        };
        if done == 0 { Ok(()) } else { Err(Error::last_os_error()) }
    }
    fn address(&self, nth: usize) -> *mut libc::c_void {
        self.at.as_ptr().wrapping_byte_add(nth * apart_bytes())
    }
    /// Returns the lowest address of stack `nth` with its guard, and the address after its last
    /// byte.
    pub(crate) fn stack(&self, nth: usize) -> (usize, usize) {
        assert!(nth < SLAB_STACKS, "a slab has {SLAB_STACKS} stacks");
        let low = self.address(nth).addr();
        (low, low + apart_bytes())
    }
}

/// Asks for small pages: a stack uses its last pages only, and a huge page would hold those of
/// sixteen. A host without huge pages refuses, which is fine.
#[cfg(target_os = "linux")]
fn small_pages(at: *mut libc::c_void, bytes: usize) {
    // SAFETY: the mapping is the caller's own, and its contents do not change.
    let _ = unsafe { libc::madvise(at, bytes, libc::MADV_NOHUGEPAGE) };
}

#[cfg(not(target_os = "linux"))]
fn small_pages(_: *mut libc::c_void, _: usize) {}

/// Marks pages that have never been used as a guard.
#[cfg(target_os = "linux")]
fn mark_guard(at: *mut libc::c_void, bytes: usize) -> Result<()> {
    /// MADV_GUARD_INSTALL of `asm-generic/mman-common.h`, which the libc crate does not have yet.
    const GUARD_INSTALL: libc::c_int = 102;
    // SAFETY: the pages are the caller's own and have never been used.
    let done = unsafe { libc::madvise(at, bytes, GUARD_INSTALL) };
    if done == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}

/// Fails: only Linux has such marks.
#[cfg(not(target_os = "linux"))]
fn mark_guard(_: *mut libc::c_void, _: usize) -> Result<()> {
    Err(Error::from(std::io::ErrorKind::Unsupported))
}

impl Drop for Slab {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `with`, and its last user is gone: stacks share the slab.
        unsafe { libc::munmap(self.at.as_ptr(), SLAB_STACKS * apart_bytes()) };
    }
}
