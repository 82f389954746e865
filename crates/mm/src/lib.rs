//! The memory manager.
//!
//! The modules follow the life of a frame: the frame allocator (`mmscale_frames`) hands it out, it
//! is *mapped* (`space`, `table`), unmapped, *proved* unreachable (`tlb`), *retired* (`folio`,
//! `group`, `lru`), returned, and all the while the machine *ages* (`upkeep`). Where memory
//! runs short, `reclaim` sends folios to `swap`; where it ends, `oom` chooses a victim.
//!
//! Everything the memory manager asks of a machine goes through one trait,
//! [`Machine`](mmscale_arch::Machine); everything it keeps hangs off one value that the machine
//! hands back to every callback. There are no statics.
//!
//! Lock order: [`arch::LockClass`].

#![no_std]
#![forbid(unsafe_op_in_unsafe_fn)]

extern crate alloc;

pub mod folio;
pub mod group;
pub mod lru;
pub mod mm;
pub mod oom;
pub mod policy;
pub mod rcu;
pub mod reclaim;
pub mod smp;
pub mod space;
pub mod stack;
pub mod swap;
pub mod table;
pub mod time;
pub mod tlb;
pub mod upkeep;
pub mod vmap;
pub mod work;
