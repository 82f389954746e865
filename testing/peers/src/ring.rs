//! A ring between one producer and one consumer.

use std::sync::atomic::{AtomicU32, Ordering};

const SLOTS: usize = 1024;
const EMPTY: u32 = u32::MAX;

/// Frame numbers on their way from one thread to another. Each slot shows whether it is full, so
/// that the two threads share no counters, only the lines with the frames. The `Release` store of
/// each side pairs with the `Acquire` load of the other.
pub struct Ring {
    slots: Box<[AtomicU32]>,
}

impl Default for Ring {
    fn default() -> Self {
        Self { slots: (0..SLOTS).map(|_| AtomicU32::new(EMPTY)).collect() }
    }
}

impl Ring {
    /// Adds the `count`th frame; waits while the ring is full.
    #[inline]
    pub fn push(&self, count: usize, frame: u32) {
        let slot = &self.slots[count % SLOTS];
        wait_until(|| slot.load(Ordering::Acquire) == EMPTY);
        slot.store(frame, Ordering::Release);
    }
    /// Removes the `count`th frame; waits while the ring is empty.
    #[inline]
    pub fn pop(&self, count: usize) -> u32 {
        let slot = &self.slots[count % SLOTS];
        let mut frame = EMPTY;
        wait_until(|| {
            frame = slot.load(Ordering::Acquire);
            frame != EMPTY
        });
        slot.store(EMPTY, Ordering::Release);
        frame
    }
}

/// Spins, then yields: the other thread may need this very CPU.
#[inline]
pub fn wait_until(mut condition: impl FnMut() -> bool) {
    let mut turns = 0u32;
    while !condition() {
        turns += 1;
        if turns.is_multiple_of(256) {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_arrive_in_order() {
        let ring = Ring::default();
        std::thread::scope(|scope| {
            scope.spawn(|| (0..5 * SLOTS).for_each(|count| ring.push(count, count as u32)));
            (0..5 * SLOTS).for_each(|count| assert_eq!(ring.pop(count), count as u32));
        });
    }
}
