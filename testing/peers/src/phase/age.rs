//! Makes a fragmented pool from a fresh one.

use crate::hand::{BlockRecord, Hand};
use crate::{Peer, random::Random};

/// Allocates one thread's `share` of the frames until three quarters of it are in use, at random
/// places: first nearly all, then a random part is freed, then every remaining page is replaced
/// once. Returns the blocks in use. In the free part, blocks of a high order are rare.
pub(super) fn age<P: Peer, L: BlockRecord>(
    hand: &Hand<'_, P, L>,
    random: &mut Random,
    share: usize,
) -> Vec<u32> {
    let mut held: Vec<u32> = (0..share / 16 * 15).map(|_| hand.take(0)).collect();
    random.shuffle(&mut held);
    held.drain(share / 4 * 3..).for_each(|frame| hand.give(frame, 0));
    for _ in 0..held.len() {
        let at = random.below(held.len());
        hand.give(held[at], 0);
        held[at] = hand.take(0);
    }
    held
}
