//! Swap: where anonymous memory goes when its frames are wanted elsewhere.

mod entry;

pub use entry::SwapEntry;
