//! What a run leaves behind.

mod lock;

pub use lock::LockRow;
