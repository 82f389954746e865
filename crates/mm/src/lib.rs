//! The memory manager.
//!
//! The modules follow the life of a frame: the frame allocator (`mmscale_frames`) hands it out, it
//! is *mapped* (`space`, `pgtable`), unmapped, *proved* unreachable (`tlb`), *retired* (`folio`,
//! `memcg`, `lru`) and freed. Meanwhile the periodic work of `vmstat_work` runs. If memory is
//! short, `reclaim` sends folios to `swap`; if that does not help, `oom` chooses a victim.
//!
//! The memory manager uses a machine through one trait, [`Machine`](mmscale_arch::Machine). All of
//! its state is in one value, [`mm::Mm`], which the machine passes to every callback. There are no
//! statics.
//!
//! Lock order: [`mmscale_arch::LockClass`].

#![no_std]
#![forbid(unsafe_op_in_unsafe_fn)]

extern crate alloc;

pub mod folio;
pub mod lru;
pub mod memcg;
pub mod mm;
pub mod oom;
pub mod percpu;
pub mod pgtable;
pub mod policy;
pub mod rcu;
pub mod reclaim;
pub mod smp;
pub mod space;
pub mod stack;
pub mod swap;
pub mod time;
pub mod tlb;
pub mod versions;
pub mod vmap;
pub mod vmstat_work;
pub mod work;
pub mod zsmalloc;
