//! The page-frame allocator.
//!
//! It works on its own: a kernel embeds it in its memory manager; a hypervisor or a program without
//! an operating system may use it directly. [`page_alloc`] is the allocator: zones of frames, in
//! the order of a node's list, each with its watermarks. A zone's free memory is in buddy lists
//! ([`zone`]) with a page cache for each CPU ([`pcp`]), or in pageblocks whose free pages are bits
//! ([`blockmap`]). [`frame`] has the record of each frame, [`vmstat`] the counters of each CPU.
//!
//! An embedder implements [`Bare`](mmscale_arch::bare::Bare), six functions:
//!
//! ```
//! use mmscale_arch::bare::{Bare, BareCpu};
//! use mmscale_arch::{CpuId, IrqState, Order};
//! use mmscale_frames::frame::MigrateType;
//! use mmscale_frames::page_alloc::{AllocConfig, FrameAllocator, Gfp, MemoryMap};
//!
//! /// One processor that runs to completion, and no interrupt handler that allocates.
//! struct Board;
//!
//! // SAFETY: there is one CPU, on which one thread runs.
//! unsafe impl Bare for Board {
//!     fn cpu() -> CpuId {
//!         CpuId::new(0)
//!     }
//!     fn cpus() -> usize {
//!         1
//!     }
//!     fn preempt_disable() {}
//!     fn preempt_enable() {}
//!     fn irq_save() -> IrqState {
//!         IrqState(false)
//!     }
//!     fn irq_restore(_: IrqState) {}
//! }
//!
//! let map = MemoryMap::single(1 << 14);
//! let frames = FrameAllocator::<BareCpu<Board>>::new(&map, AllocConfig::default())?;
//! let page = frames.alloc_pages(Order::ZERO, MigrateType::Movable, Gfp::KERNEL)?;
//! frames.free_pages(page, Order::ZERO);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! There are no statics: all state is in one value. Lock order: page cache, zone.

#![no_std]
#![forbid(unsafe_op_in_unsafe_fn)]

extern crate alloc;

pub mod blockmap;
pub mod frame;
pub mod guest;
pub mod page_alloc;
pub mod pcp;
pub mod vmstat;
pub mod zone;

/// The example of the page about this crate.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
