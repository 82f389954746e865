//! Runs of free frames in a word of 64.

use crate::arch::Order;

/// The largest order that fits into a word.
pub(super) const WORD_ORDER: u8 = 6;
/// Frames of a word.
pub(super) const WORD_PAGES: usize = 1 << WORD_ORDER;

/// By order: where a block of that order may start in a word.
const STARTS: [u64; WORD_ORDER as usize + 1] = [
    !0,
    0x5555_5555_5555_5555,
    0x1111_1111_1111_1111,
    0x0101_0101_0101_0101,
    0x0001_0001_0001_0001,
    0x0000_0001_0000_0001,
    1,
];

/// The frames of the block of `order`, at most a word, that starts at `bit`.
#[inline]
pub(super) const fn run(order: Order, bit: u32) -> u64 {
    !0 >> (WORD_PAGES - order.pages()) << bit
}

/// Where all blocks of `order`, at most a word, start that are all in `free`.
#[inline]
pub(super) const fn starts(free: u64, order: Order) -> u64 {
    let mut runs = free;
    let mut step = 0;
    while step < order.get() {
        runs &= runs >> (1 << step);
        step += 1;
    }
    runs & STARTS[order.index()]
}

/// The lowest block of `order`, at most a word, that is all in `free`.
#[inline]
pub(super) const fn lowest(free: u64, order: Order) -> Option<u32> {
    let starts = starts(free, order);
    if starts == 0 { None } else { Some(starts.trailing_zeros()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_block_is_aligned_and_free_and_no_lower_one_is() {
        let mut word = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..20_000 {
            word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).rotate_left(17) ^ word >> 3;
            let free = word | word.rotate_left(1) | word.rotate_left(2);
            for order in Order::all().take(WORD_ORDER as usize + 1) {
                let slow = (0..64u32)
                    .step_by(order.pages())
                    .find(|&bit| free & run(order, bit) == run(order, bit));
                assert_eq!(lowest(free, order), slow, "{free:#x} order {}", order.get());
            }
        }
        assert_eq!(run(Order::ZERO, 63), 1 << 63);
        assert_eq!(lowest(!0, Order::new(WORD_ORDER).unwrap()), Some(0));
        assert_eq!(lowest(0, Order::ZERO), None);
    }
}
