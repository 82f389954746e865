//! Why an operation on an address space was refused. Names and meanings are those of the manual
//! pages; a refusal leaves the address space as it was unless its function says otherwise.

/// Why a system call on an address space failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpaceError {
    /// EINVAL: an argument makes no sense.
    Inval,
    /// ENOMEM: no memory, no room in the address space, too many VMAs, or pages that are not
    /// mapped.
    NoMemory,
    /// EFAULT: pages that are not mapped, where the call wants them to be.
    Fault,
    /// EAGAIN: pages could not be locked, or a resource is short for the moment.
    Again,
    /// EEXIST: something is mapped already where it was not to be replaced.
    Exists,
    /// EACCES: the mapping does not allow it.
    Access,
    /// EPERM: more memory was to be locked than the process may lock.
    Perm,
    /// EBUSY: a page is in use and cannot be moved.
    Busy,
    /// EIO: some pages are not where they were to be.
    Io,
    /// EINTR: the process was killed meanwhile.
    Interrupted,
}

impl core::fmt::Display for SpaceError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Inval => "invalid argument (EINVAL)",
            Self::NoMemory => "no memory, no room, or nothing mapped there (ENOMEM)",
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

impl From<crate::table::TableError> for SpaceError {
    fn from(_: crate::table::TableError) -> Self {
        Self::NoMemory
    }
}

/// Why a program's access to memory did not come about: the signal that it would get.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultError {
    /// SIGSEGV: nothing is mapped there, or the access is not allowed.
    Segv,
    /// SIGBUS: the page could not be read from the swap device, or a reaper has taken pages out.
    Bus,
    /// There is no memory for the page, and the out-of-memory killer has found nobody.
    Oom,
    /// SIGKILL: the process is to end.
    Killed,
}

impl core::fmt::Display for FaultError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Segv => "nothing mapped there, or not for this (SIGSEGV)",
            Self::Bus => "the page could not be read (SIGBUS)",
            Self::Oom => "no memory for the page",
            Self::Killed => "the process was killed (SIGKILL)",
        })
    }
}

impl core::error::Error for FaultError {}

impl From<FaultError> for SpaceError {
    /// What a system call says that faults pages in for its caller.
    fn from(why: FaultError) -> Self {
        match why {
            FaultError::Segv | FaultError::Bus => Self::Fault,
            FaultError::Oom => Self::NoMemory,
            FaultError::Killed => Self::Interrupted,
        }
    }
}
