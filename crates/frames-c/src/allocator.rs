//! The calls of the program in C.

use crate::host::Machine;
use crate::status::Status;
use mmscale_arch::{Cpu, Order, Pfn};
use mmscale_frames::page_alloc::{FrameAllocator, Gfp};

/// An allocator of frames.
pub struct Allocator(pub(crate) FrameAllocator<Machine>);

impl Allocator {
    fn take(&self, order: u8, kind: u32, gfp: Gfp) -> u64 {
        let (Some(order), Some(kind)) = (Order::new(order), crate::memory::kind(kind)) else {
            return NO_FRAME;
        };
        let found = self.0.alloc_pages(order, kind, gfp);
        found.map_or(NO_FRAME, |pfn| pfn.index() as u64)
    }
}

/// The result of `mms_alloc` if there is no memory.
pub const NO_FRAME: u64 = u64::MAX;

/// The largest frame number, plus 1.
const FRAMES: u64 = u32::MAX as u64;

fn pfn(frame: u64) -> Result<Pfn, Status> {
    if frame < FRAMES { Ok(Pfn::new(frame as usize)) } else { Err(Status::NoFrame) }
}

fn order(order: u8) -> Result<Order, Status> {
    Order::new(order).ok_or(Status::BadArgument)
}

fn status(result: Result<(), Status>) -> Status {
    result.err().unwrap_or(Status::Ok)
}

/// Allocates 2^`order` frames for `kind` (one of `mms_kind`), aligned to their number; returns the
/// first, or `MMS_NO_FRAME` if there is no memory, no such order or kind. Where memory is short it
/// drains the caches of all CPUs and waits for them, so it is not for interrupts, nor for code with
/// interrupts off or a lock held.
#[unsafe(no_mangle)]
pub extern "C" fn mms_alloc(frames: &Allocator, order: u8, kind: u32) -> u64 {
    frames.take(order, kind, Gfp::KERNEL)
}

/// As `mms_alloc`, for interrupts and under locks: it waits for no CPU, but with `stock` for the
/// lock of the zone. It may use half of the pages below the watermark.
#[unsafe(no_mangle)]
pub extern "C" fn mms_alloc_atomic(frames: &Allocator, order: u8, kind: u32) -> u64 {
    frames.take(order, kind, Gfp::ATOMIC)
}

/// As `mms_alloc`, for code that frees memory: it may use all pages.
#[unsafe(no_mangle)]
pub extern "C" fn mms_alloc_last(frames: &Allocator, order: u8, kind: u32) -> u64 {
    frames.take(order, kind, Gfp::KERNEL | Gfp::MEMALLOC)
}

/// Frees a block of 2^`order` frames. With records a wrong call changes nothing and says why.
/// Without them not every one is found: the frames may be handed out twice, and a later free may
/// panic.
#[unsafe(no_mangle)]
pub extern "C" fn mms_free(frames: &Allocator, frame: u64, order: u8) -> Status {
    let free = || Ok(frames.0.try_free_pages(pfn(frame)?, self::order(order)?)?);
    status(free())
}

/// Splits an allocated block of 2^`order` frames into blocks of 2^`into`, which are freed singly.
/// With records it panics if there is no such block; without them it changes nothing.
#[unsafe(no_mangle)]
pub extern "C" fn mms_split(frames: &Allocator, frame: u64, order: u8, into: u8) -> Status {
    let split = || {
        let (block, from, to) = (pfn(frame)?, self::order(order)?, self::order(into)?);
        if to > from {
            return Err(Status::BadArgument);
        }
        frames.0.split_page(block, from, to);
        Ok(())
    };
    status(split())
}

/// Allocates the block of 2^`order` frames that begins with `frame`.
#[unsafe(no_mangle)]
pub extern "C" fn mms_alloc_at(frames: &Allocator, frame: u64, order: u8) -> Status {
    let take = || Ok(frames.0.alloc_at(pfn(frame)?, self::order(order)?)?);
    status(take())
}

/// Allocates `pages` frames that begin with `start`: all or none. They are freed singly, or with
/// `mms_free_range`.
#[unsafe(no_mangle)]
pub extern "C" fn mms_alloc_range(frames: &Allocator, start: u64, pages: u64) -> Status {
    let take = || {
        let end = start.checked_add(pages).filter(|&end| end <= FRAMES);
        end.ok_or(Status::NoFrame)?;
        Ok(frames.0.alloc_contig_range(pfn(start)?, pages as usize)?)
    };
    status(take())
}

/// Frees frames of `mms_alloc_range`; stops at the first that cannot be freed.
#[unsafe(no_mangle)]
pub extern "C" fn mms_free_range(frames: &Allocator, start: u64, pages: u64) -> Status {
    let free = |at| mms_free(frames, at, 0);
    let end = start.saturating_add(pages);
    (start..end).map(free).find(|&done| done != Status::Ok).unwrap_or(Status::Ok)
}

/// The number of free frames, those in CPUs' caches included; exact while no CPU allocates or
/// frees.
#[unsafe(no_mangle)]
pub extern "C" fn mms_count_free(frames: &Allocator) -> u64 {
    frames.0.count_free().total()
}

/// Drains the calling CPU's cache; returns the number of frames. A CPU does so before it is idle
/// for long, where CPUs cannot interrupt one another.
#[unsafe(no_mangle)]
pub extern "C" fn mms_drain(frames: &Allocator) -> u32 {
    frames.0.drain_pages(Machine::cpu())
}

/// Handles the interrupt of `mms_request_drain`, with interrupts off.
#[unsafe(no_mangle)]
pub extern "C" fn mms_drain_interrupt(frames: &Allocator) {
    frames.0.drain_ipi();
}
