//! Runs of free frames in a word of 64.

use mmscale_arch::Order;

/// The largest order that fits into a word.
pub(crate) const WORD_ORDER: u8 = 6;
/// The order of a whole word.
pub(super) const WHOLE: Order = Order::new(WORD_ORDER).unwrap();
/// Frames of a word.
pub(super) const WORD_PAGES: usize = 1 << WORD_ORDER;

/// A set of frames of one word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Run {
    pub(super) word: u32,
    pub(super) frames: u64,
}

/// The word of a frame of the zone, and its bit.
#[inline]
pub(super) const fn split(frame: u32) -> (u32, u32) {
    (frame / WORD_PAGES as u32, frame % WORD_PAGES as u32)
}

/// The frame of a bit of a word.
#[inline]
pub(super) const fn join(word: u32, bit: u32) -> u32 {
    word * WORD_PAGES as u32 + bit
}

/// By order: the aligned starts of blocks in a word.
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

/// The starts of all aligned blocks of `order`, at most a word, whose frames are all in `free`.
#[inline]
pub(super) const fn starts(free: u64, order: Order) -> u64 {
    if free == !0 {
        return STARTS[order.index()];
    }
    let mut runs = free;
    let mut step = 0;
    while step < order.get() {
        runs &= runs >> (1 << step);
        step += 1;
    }
    runs & STARTS[order.index()]
}

/// The frames of the blocks of `order`, at most a word, that start at `starts`.
#[inline]
pub(super) const fn runs(starts: u64, order: Order) -> u64 {
    if starts == STARTS[order.index()] {
        return !0;
    }
    let mut runs = starts;
    let mut step = 0;
    while step < order.get() {
        runs |= runs << (1 << step);
        step += 1;
    }
    runs
}

/// Those of `starts`, the starts of blocks of `order`, whose buddy is not among them.
#[inline]
const fn isolated_starts(starts: u64, order: Order) -> u64 {
    if order.get() == WORD_ORDER {
        return starts;
    }
    let pairs = starts & starts >> order.pages() & STARTS[order.index() + 1];
    starts & !(pairs | pairs << order.pages())
}

/// The best of `starts`, the starts of blocks of `order`, at most a word: the lowest one whose
/// buddy is not among them, so that larger blocks stay whole; if there is none, the lowest of all.
#[inline]
pub(super) const fn best_of(starts: u64, order: Order) -> Option<u32> {
    if starts == 0 {
        return None;
    }
    let isolated_starts = isolated_starts(starts, order);
    Some(if isolated_starts == 0 { starts } else { isolated_starts }.trailing_zeros())
}

/// The start of the best block of `order`, at most a word, whose frames are all in `free`.
#[inline]
pub(super) const fn best(free: u64, order: Order) -> Option<u32> {
    best_of(starts(free, order), order)
}

/// Result of a search for a block of an order in a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fit {
    /// The word has no such block.
    None,
    /// The word has such blocks only as parts of larger ones.
    Larger,
    /// The word has a block of exactly that order.
    Exact,
}

/// Searches for a block of `order`, at most a word, in a word whose free frames are `free`.
#[inline]
pub(super) const fn fit(free: u64, order: Order) -> Fit {
    let starts = starts(free, order);
    match (starts, isolated_starts(starts, order)) {
        (0, _) => Fit::None,
        (_, 0) => Fit::Larger,
        _ => Fit::Exact,
    }
}

/// The order of the largest block, at most a word, whose frames are all in `free`; 0 if `free` is
/// empty.
#[inline]
pub(super) const fn largest(free: u64) -> u8 {
    // A fixed number of steps: if frames are freed in random order, an early exit is unpredictable.
    let (mut runs, mut order, mut step) = (free, 0, 0);
    while step < WORD_ORDER {
        runs &= runs >> (1 << step) & STARTS[step as usize + 1];
        order += (runs != 0) as u8;
        step += 1;
    }
    order
}

/// The order of the largest free block that may have come about by freeing `frames`, `pages` in
/// number. `free` is the free frames of the word, with them. If `frames` is one aligned block: the
/// order of the block that it became part of. Otherwise: the largest order in the word.
#[inline]
pub(super) fn largest_with(free: u64, frames: u64, pages: u32) -> u8 {
    let first = frames.trailing_zeros();
    let (run, odd) = (frames >> first, pages.wrapping_sub(1));
    let gaps = run & run.wrapping_add(1);
    if gaps | u64::from((pages | first) & odd) != 0 {
        return largest(free);
    }
    // The nearest used frames on either side limit the block: two frames are in one block of an
    // order if their numbers differ in lower bits only. Without a used frame the number is 64 or
    // more.
    let above = first + (!free >> first).trailing_zeros();
    let below = first.wrapping_sub((!free << (WORD_PAGES as u32 - 1 - first)).leading_zeros());
    let (above, below) = (above ^ first, below ^ first);
    (above.min(below) | 1).ilog2() as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    /// All frames side by side, and every other one of them, in words of which other frames are
    /// free, too.
    #[test]
    fn the_largest_block_that_frames_became_part_of() {
        let mut word = 0x9e37_79b9_7f4a_7c15_u64;
        let runs = || (0..64).flat_map(|first| (1..=64 - first).map(move |pages| (first, pages)));
        for (first, pages) in (0..4).flat_map(|_| runs()) {
            word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).rotate_left(17) ^ word >> 3;
            let around = word | word.rotate_left(1) | word.rotate_left(3);
            let (all, halves) = (!0 >> (64 - pages) << first, STARTS[1] << (first & 1));
            for frames in [all, all & halves] {
                for free in [frames, frames | word, frames | around, !0] {
                    let of = |order: &Order, bit: u32| {
                        let block = run(*order, bit);
                        free & block == block && frames & block != 0
                    };
                    let any =
                        |order: &Order| (0..64).step_by(order.pages()).any(|bit| of(order, bit));
                    let orders = Order::all().take(WORD_ORDER as usize + 1);
                    let slow = orders.filter(any).last().map_or(0, Order::get);
                    let count = frames.count_ones();
                    let found = largest_with(free, frames, count);
                    let together = frames == !0 >> (64 - count) << first;
                    let one = count.is_power_of_two() && first % count == 0 && together;
                    let expected = if one { slow } else { largest(free) };
                    assert_eq!(found, expected, "{frames:#x} in {free:#x}");
                }
            }
        }
    }

    #[test]
    fn the_best_block_is_aligned_and_free_and_breaks_up_no_larger_one_unless_all_are() {
        let mut word = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..20_000 {
            word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).rotate_left(17) ^ word >> 3;
            let free = word | word.rotate_left(1) | word.rotate_left(2);
            for order in Order::all().take(WORD_ORDER as usize + 1) {
                let is_free = |order: Order, bit: u32| free & run(order, bit) == run(order, bit);
                let all = || (0..64u32).step_by(order.pages()).filter(|&bit| is_free(order, bit));
                let buddy = |bit: u32| bit ^ order.pages() as u32;
                let exact = all().find(|&bit| buddy(bit) > 63 || !is_free(order, buddy(bit)));
                let slow = exact.or_else(|| all().next());
                let what = || format!("{free:#x} order {}", order.get());
                assert_eq!(best(free, order), slow, "{}", what());
                let expected = match (exact, slow) {
                    (Some(_), _) => Fit::Exact,
                    (_, Some(_)) => Fit::Larger,
                    _ => Fit::None,
                };
                assert_eq!(fit(free, order), expected, "{}", what());
                let fits = order.get() <= largest(free);
                let all = all().fold(0, |frames, bit| frames | run(order, bit));
                assert_eq!(runs(starts(free, order), order), all, "{}", what());
                assert_eq!(fits, slow.is_some() || order == Order::ZERO, "{}", what());
            }
        }
        assert_eq!(run(Order::ZERO, 63), 1 << 63);
        assert_eq!(best(!0, Order::new(WORD_ORDER).unwrap()), Some(0));
        assert_eq!(best(0, Order::ZERO), None);
    }
}
