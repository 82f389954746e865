//! No allocator: the cost of the programs themselves.

use super::{Peer, on_threads};
use std::cell::Cell;

/// Frame numbers from a counter on each thread. Frees are ignored.
pub struct Floor {
    mask: u32,
}

thread_local! {
    static NEXT: Cell<u32> = const { Cell::new(0) };
}

impl Peer for Floor {
    const NAME: &'static str = "floor (harness alone)";
    const IS_ALLOCATOR: bool = false;
    fn run(frames: usize, threads: usize, body: impl Fn(&Self, usize) + Send + Sync + 'static) {
        assert!(frames.is_power_of_two());
        on_threads(&Self { mask: frames as u32 - 1 }, threads, body);
    }
    #[inline]
    fn alloc(&self, order: u8) -> Option<u32> {
        NEXT.with(|next| {
            let frame = next.get();
            next.set(frame + (1 << order));
            Some(frame & self.mask & !((1 << order) - 1))
        })
    }
    #[inline]
    fn free(&self, frame: u32, _: u8) {
        std::hint::black_box(frame);
    }
}
