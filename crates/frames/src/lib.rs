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
#![cfg_attr(feature = "alloc", doc = "```")]
#![cfg_attr(not(feature = "alloc"), doc = "```ignore")]
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
//!
//! # Features
//! `alloc`, on by default: `FrameAllocator::new`, which takes the memory of the allocator's tables
//! from the heap; `MemoryMap`; the checks `verify` and the statistics `census`. Without it
//! (`default-features = false`) neither this crate nor `mmscale_arch` refers to `alloc`, so they
//! link into a kernel that has no `#[global_allocator]`. All else is the same, and begins with
//! [`FrameAllocator::new_in`](page_alloc::FrameAllocator::new_in).
//!
//! # Operations that may wait
//!
//! L: policies with lists; B: `blockmap`; -: it waits for nothing.
//!
//! | operation | L waits for | B waits for | in interrupts |
//! |---|---|---|---|
//! | `alloc_pages`, `_exact`, without `DRAIN` | the zone's lock | - | yes |
//! | `alloc_pages` with `DRAIN` (`Gfp::KERNEL`) | page caches too | CPUs, if memory is short | no |
//! | `free_pages`, `_exact`, `free_contig_range` | the zone's lock | - | yes |
//! | `split_page` | - | - | yes |
//! | `try_free_pages`, `frame_use`, `pageblock` | the zone's lock | - | yes |
//! | `count_free` | page caches | - | no |
//! | `alloc_contig_range`, `alloc_at` | locks, drains | CPUs in its pageblocks, drains | no |
//! | `drain_pages`, `drain_all` | locks | the answers of CPUs | no |
//! | `isolate_pageblock` and the like | locks, drains | CPUs in the pageblock, drains | no |
//!
//! The zone's lock is held with interrupts off, so an interrupt never finds its own CPU holding it.
//! An interrupt that comes while its CPU uses its cache does without the cache. No operation is for
//! non-maskable interrupts: these come while the zone's lock is held, and in the middle of a change
//! of a per-CPU counter, which would be lost.
//!
//! # Steps
//! With `blockmap` an allocation from the CPU's cache, and a free into it, are a fixed number of
//! steps. A refill or a drain of half a stack changes at most 16 pageblocks; a compare-exchange is
//! repeated only after another CPU has changed the same head. An allocation that finds no memory
//! reads the heads of all pageblocks of the zone before it fails. With lists a refill, a free and a
//! drain are at most `batch << batch_scale_max` pages for each hold of the zone's lock.
//!
//! # Memory in the caches of idle CPUs
//! An allocation may fail while pages are free in another CPU's cache, if CPUs cannot interrupt one
//! another. [`Bare`](mmscale_arch::bare::Bare) has two ways out (`request_drain`, `SHARED_CACHES`),
//! [`AllocConfig::cached_pages`](page_alloc::AllocConfig::cached_pages) a third. The last pages
//! below the min watermark are for requests with [`MEMALLOC`](page_alloc::Gfp::MEMALLOC) alone.

#![no_std]
#![forbid(unsafe_op_in_unsafe_fn)]
#![cfg_attr(
    not(any(feature = "alloc", test)),
    expect(dead_code, reason = "the parts of `verify` and `census` that need no heap themselves")
)]

#[cfg(any(feature = "alloc", test))]
extern crate alloc;

pub mod blockmap;
pub mod frame;
pub mod guest;
#[cfg(any(feature = "alloc", test))]
mod heap;
pub mod page_alloc;
pub mod pcp;
mod place;
pub mod vmstat;
pub mod zone;

/// The example of the page about this crate.
#[cfg(all(doctest, feature = "alloc"))]
#[doc = include_str!("../README.md")]
struct Readme;
