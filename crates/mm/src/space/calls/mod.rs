//! The system calls on memory, and the copy of an address space by fork.

mod advise;
mod bind;
mod collapse;
mod fork;
mod mlock;
mod mmap;
mod protect;
mod query;
mod remap;
mod sync;

pub use advise::Advice;
pub use bind::Present;
pub use mlock::LockWhat;
pub use mmap::{MAP_MIN, MapRequest, Place};
pub use remap::{MayMove, RemapRequest};
