//! Errors of watching the kernel.

use thiserror::Error;

/// Why the kernel cannot be watched.
#[derive(Debug, Error)]
pub enum WatchError {
    /// The kernel does not describe its types.
    #[error("the kernel does not describe its types (no /sys/kernel/btf/vmlinux): {0}")]
    Btf(String),
    /// The kernel refuses the programs.
    #[error("the kernel refuses BPF programs ({0}): run as root, or with CAP_BPF and CAP_PERFMON")]
    Refused(String),
    /// The kernel's verifier does not accept a program: a bug of mmscale, or a kernel that differs
    /// too much.
    #[error(
        "this kernel's verifier does not accept a BPF program of mmscale ({0}): please report it \
         with the kernel's version; --set watch=off measures without"
    )]
    Rejected(String),
    /// The programs' sums cannot be read.
    #[error("cannot read the measurements of the kernel: {0}")]
    Read(String),
}

pub(super) fn read(why: impl std::fmt::Display) -> WatchError {
    WatchError::Read(why.to_string())
}
