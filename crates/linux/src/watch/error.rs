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
        "this kernel's verifier refuses the BPF program {program} of mmscale: report it with the \
         output of `mmscale live doctor --format json`; --set watch=off measures without"
    )]
    Rejected {
        /// The program.
        program: String,
        /// The verifier's log.
        log: String,
    },
    /// The programs' sums cannot be read.
    #[error("cannot read the measurements of the kernel: {0}")]
    Read(String),
}

impl WatchError {
    /// Returns the verifier's log, if it has refused a program.
    pub fn verifier_log(&self) -> Option<&str> {
        match self {
            Self::Rejected { log, .. } => Some(log),
            _ => None,
        }
    }
}

pub(super) fn read(why: impl std::fmt::Display) -> WatchError {
    WatchError::Read(why.to_string())
}
