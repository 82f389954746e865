//! Errors of operations on address spaces. Names and meanings are those of the manual pages. A
//! failed operation leaves the address space unchanged unless its documentation says otherwise.

/// Why a system call on an address space failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpaceError {
    /// EINVAL: an argument is invalid.
    Inval,
    /// ENOMEM: no memory, no free range, too many VMAs, or pages that are not mapped.
    NoMemory,
    /// EFAULT: pages are not mapped that the call needs.
    Fault,
    /// EAGAIN: pages could not be locked, or a resource is temporarily short.
    Again,
    /// EEXIST: the range is mapped already and must not be replaced.
    Exists,
    /// EACCES: the mapping does not allow it.
    Access,
    /// EPERM: the process may not lock memory, or may not map this page.
    Perm,
    /// EBUSY: a page is in use and cannot be moved.
    Busy,
    /// EIO: some pages could not be moved.
    Io,
    /// EINTR: the process was killed meanwhile.
    Interrupted,
}

impl core::fmt::Display for SpaceError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Inval => "invalid argument (EINVAL)",
            Self::NoMemory => "no memory, no free range, or nothing mapped there (ENOMEM)",
            Self::Fault => "nothing mapped there (EFAULT)",
            Self::Again => "pages could not be locked (EAGAIN)",
            Self::Exists => "something is mapped there already (EEXIST)",
            Self::Access => "the mapping does not allow it (EACCES)",
            Self::Perm => "not permitted (EPERM)",
            Self::Busy => "a page is in use (EBUSY)",
            Self::Io => "some pages could not be moved (EIO)",
            Self::Interrupted => "interrupted: the process was killed (EINTR)",
        })
    }
}

impl core::error::Error for SpaceError {}

impl From<super::NoMemory> for SpaceError {
    fn from(_: super::NoMemory) -> Self {
        Self::NoMemory
    }
}

impl From<crate::pgtable::TableError> for SpaceError {
    fn from(_: crate::pgtable::TableError) -> Self {
        Self::NoMemory
    }
}

/// Why a program's access to memory failed: the signal that it gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultError {
    /// SIGSEGV: nothing is mapped, or the access is not allowed.
    Segv,
    /// SIGBUS: the page could not be read from the swap device, or a reaper has started.
    Bus,
    /// No memory for the page, and the OOM killer found no victim.
    Oom,
    /// SIGKILL: the process is to exit.
    Killed,
}

impl core::fmt::Display for FaultError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Segv => "nothing is mapped there, or the access is not allowed (SIGSEGV)",
            Self::Bus => "the page could not be read (SIGBUS)",
            Self::Oom => "no memory for the page",
            Self::Killed => "the process was killed (SIGKILL)",
        })
    }
}

impl core::error::Error for FaultError {}

impl From<FaultError> for SpaceError {
    /// The result of a system call that faults pages in for its caller.
    fn from(why: FaultError) -> Self {
        match why {
            FaultError::Segv | FaultError::Bus => Self::Fault,
            FaultError::Oom => Self::NoMemory,
            FaultError::Killed => Self::Interrupted,
        }
    }
}
