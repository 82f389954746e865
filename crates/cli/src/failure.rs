//! Failures of commands.

use std::fmt;
use std::process::ExitCode;

use mmscale_files::FolderError;
use mmscale_harness::{CallError, CallOrRun};

/// A failure with its exit code.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The call was wrong; nothing was started or written.
    Call(anyhow::Error),
    /// The run or a check failed.
    Run(anyhow::Error),
    /// A report has nothing that is known, which was said.
    Nothing,
    /// A command in a virtual machine ended with this exit code, and has said why.
    Command(i32),
}

impl Failure {
    /// Returns the exit code of the process.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Run(_) => ExitCode::from(1),
            Self::Command(code) => ExitCode::from(u8::try_from(*code).unwrap_or(1)),
            Self::Nothing => ExitCode::from(3),
            Self::Call(_) => ExitCode::from(2),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(error) | Self::Run(error) => write!(f, "{error}"),
            Self::Command(code) => write!(f, "the command ended with exit code {code}"),
            Self::Nothing => write!(f, "nothing in the file is known"),
        }
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        Self::Call(error.into())
    }
}

impl From<CallOrRun> for Failure {
    fn from(why: CallOrRun) -> Self {
        match why {
            CallOrRun::Call(why) => why.into(),
            CallOrRun::Run(why) => Self::Run(why.into()),
        }
    }
}

impl From<FolderError> for Failure {
    fn from(error: FolderError) -> Self {
        match error {
            FolderError::NotADirectory { .. }
            | FolderError::Link { .. }
            | FolderError::Exists { .. }
            | FolderError::IsADirectory { .. } => Self::Call(error.into()),
            FolderError::Io { .. } | FolderError::Lock { .. } => Self::Run(error.into()),
        }
    }
}
