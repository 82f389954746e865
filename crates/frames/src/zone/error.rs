//! Errors of operations on pageblocks.

/// Error of isolating a pageblock, taking it offline or bringing it online.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IsolateError {
    /// No zone has the whole pageblock.
    NoBlock,
    /// The pageblock is not in the required state: it is isolated or offline already, or not yet.
    NotNow,
    /// This number of its pages is in use.
    Busy(u32),
}

impl core::fmt::Display for IsolateError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NoBlock => f.write_str("no zone has the whole pageblock: take another one"),
            Self::NotNow => f.write_str("the pageblock is isolated or offline already, or not yet"),
            Self::Busy(pages) => write!(f, "{pages} pages of the pageblock are in use: free them"),
        }
    }
}

impl core::error::Error for IsolateError {}
