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
            Self::NoBlock => f.write_str("no zone has the whole pageblock"),
            Self::NotNow => f.write_str(
                "the pageblock is in the state already, or in one that does not allow it",
            ),
            Self::Busy(pages) => write!(f, "{pages} pages of the pageblock are in use"),
        }
    }
}

impl core::error::Error for IsolateError {}
