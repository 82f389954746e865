//! What can go wrong with a zone's pageblocks.

/// Why a pageblock was not isolated, or taken offline, or brought back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IsolateError {
    /// No zone has the whole pageblock.
    NoBlock,
    /// It is not in the state that was asked for: isolated or offline already, or not yet.
    NotNow,
    /// That many of its pages are in use.
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
