//! A program that uses more memory than there is, in random order, and checks the content of each
//! page. For any machine.

use super::paged::{Entry, Paged};
use mmscale_arch::Machine;

struct Choices(u64);

impl Choices {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % bound
    }
}

/// Touches the page until the device can read it; returns the number of failures.
fn touch<A: Machine>(paged: &Paged<A>, page: usize, stamp: Option<u64>, holds: u64) -> u64 {
    for failed in 0..1_000 {
        if let Ok(found) = paged.touch(page, stamp) {
            assert_eq!(found, stamp.unwrap_or(holds), "page {page}");
            return failed;
        }
    }
    panic!("page {page} does not come back")
}

/// Runs `steps` steps on `pages` pages that start at `first` and have no other user. `pages` and
/// `first` are even. Returns the number of failed reads.
pub(crate) fn storm<A: Machine>(
    paged: &Paged<A>,
    first: usize,
    pages: usize,
    steps: usize,
    seed: u64,
) -> u64 {
    let mut choices = Choices(seed);
    let (mut holds, mut failed) = (vec![0; pages], 0);
    // Whether pages 2n and 2n + 1 share a folio.
    let mut shared = vec![false; pages / 2];
    for step in 0..pages + steps {
        // First all of them, then more often the first half.
        let at = match step {
            step if step < pages => step,
            _ => choices.below(pages as u64) as usize >> choices.below(2),
        };
        let page = first + at;
        match choices.below(16) {
            0 => _ = paged.page_out(page),
            1 => {
                paged.unmap_page(page);
                (holds[at], shared[at / 2]) = (0, false);
            }
            2 if !shared[at / 2] => {
                paged.unmap_page(page ^ 1);
                paged.share(page);
                // A page that was never touched cannot be shared.
                holds[at ^ 1] = holds[at];
                shared[at / 2] = paged.entry(page) != Entry::None;
            }
            3..8 => {
                let stamp = choices.below(5) * (1 + choices.below(1 << 40));
                failed += touch(paged, page, Some(stamp), stamp);
                holds[at] = stamp;
                if shared[at / 2] {
                    holds[at ^ 1] = stamp;
                }
            }
            _ => failed += touch(paged, page, None, holds[at]),
        }
        if choices.below(8) == 0 {
            A::user(choices.below(3_000));
        }
    }
    for (at, &stamp) in holds.iter().enumerate() {
        failed += touch(paged, first + at, None, stamp);
    }
    failed
}
