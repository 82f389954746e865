//! The end of an address space, and the tasks that help it.

mod claims;
mod exit;
mod reap;
mod users;
mod victim;

pub use claims::{ClaimEnd, Claims};
pub use reap::{ReapLock, Reaped};
