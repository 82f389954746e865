//! Operations that the first page of the crate allows in interrupts, in an interrupt.

use crate::frames::parts::{PAGES, boot, configs};
use mmscale_arch::{Order, Pfn};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::{FrameAllocator, Gfp};
use mmscale_stepped::{self as stepped, Stepped};
use std::cell::RefCell;

/// The operations that the table of the first page allows in interrupts.
fn all_allowed(frames: &FrameAllocator<Stepped>, held: &RefCell<Vec<Pfn>>) {
    let order = Order::new(4).unwrap();
    let gfp = Gfp::ATOMIC;
    for _ in 0..40 {
        let block = frames.alloc_pages(order, MigrateType::Unmovable, gfp).unwrap();
        frames.split_page(block, order, Order::ZERO);
        let exact = frames.alloc_pages_exact(5, MigrateType::Movable, gfp).unwrap();
        assert!(frames.frame_use(block).is_some() && frames.pageblock(exact).is_some());
        frames.free_pages_exact(exact, 5);
        assert_eq!(frames.try_free_pages(block, Order::ZERO), Ok(()));
        frames.free_contig_range(block.offset(1), 14);
        held.borrow_mut().push(block.offset(15));
    }
}

#[test]
fn operations_that_wait_for_nothing_are_done_in_interrupts() {
    for config in configs() {
        let (frames, held) = (boot(config), RefCell::default());
        all_allowed(&frames, &held);
        stepped::interrupt(|| all_allowed(&frames, &held));
        assert_eq!(frames.verify().unwrap().held, 80);
        held.take().into_iter().for_each(|page| frames.free_pages(page, Order::ZERO));
        frames.drain_all();
        assert_eq!(frames.verify().unwrap().free, PAGES.into());
        stepped::assert_quiet();
    }
}
