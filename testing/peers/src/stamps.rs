//! Real memory of the frames, and a record of their owners.

use crate::hand::BlockRecord;
use std::fmt::Display;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Words of a page of 4 KiB.
const PAGE_WORDS: usize = 512;

/// Words of a cache line: one in each line is written, so that the whole page is covered.
const LINE_WORDS: usize = 8;

/// Bits of a ticket that hold the block's order.
const ORDER_BITS: u32 = 4;

/// Checks ownership by stamps in memory. At an allocation the owner writes a ticket into every line
/// of every page of the block, and at the free it checks that the ticket is still there. Errors are
/// recorded, not thrown: the other threads continue.
pub struct Stamps {
    /// For each frame the ticket of the block that it is allocated in; 0 if it is free.
    owners: Vec<AtomicU64>,
    /// The pages.
    memory: Box<[AtomicU64]>,
    tickets: AtomicU64,
    wrong: Mutex<Option<String>>,
}

impl Stamps {
    /// Makes a record with all frames free. Its memory costs nothing until it is written.
    pub fn new(frames: usize) -> Self {
        let zeros = Box::into_raw(vec![0u64; frames * PAGE_WORDS].into_boxed_slice());
        // SAFETY: it is a box of words of the same size and alignment, without other references,
        // and any bits are an atomic word.
        let memory = unsafe { Box::from_raw(zeros as *mut [AtomicU64]) };
        Self {
            owners: (0..frames).map(|_| AtomicU64::new(0)).collect(),
            memory,
            tickets: AtomicU64::new(1),
            wrong: Mutex::new(None),
        }
    }
    /// Checks that there was no error and that all frames are free; then clears the errors.
    ///
    /// # Errors
    /// The first error.
    pub fn check_all_free(&self) -> Result<(), String> {
        let out = self.owners.iter().filter(|owner| owner.swap(0, Ordering::Relaxed) != 0).count();
        match self.wrong.lock().expect("no thread panicked").take() {
            Some(wrong) => Err(wrong),
            None if out > 0 => Err(format!("{out} pages were never freed")),
            None => Ok(()),
        }
    }
    fn report(&self, frame: usize, what: impl Display) {
        let mut wrong = self.wrong.lock().expect("no thread panicked");
        wrong.get_or_insert_with(|| format!("frame {frame}: {what}"));
    }
    /// Returns the frames of a block, if the block is valid.
    fn frames(&self, frame: u32, order: u8) -> Option<std::ops::Range<usize>> {
        let range = frame as usize..frame as usize + (1 << order);
        if !frame.is_multiple_of(1 << order) || range.end > self.owners.len() {
            self.report(range.start, format!("no place for a block of order {order}"));
            return None;
        }
        Some(range)
    }
    /// Returns the words of a frame that are written and checked.
    fn page(&self, frame: usize) -> impl Iterator<Item = &AtomicU64> {
        self.memory[frame * PAGE_WORDS..][..PAGE_WORDS].iter().step_by(LINE_WORDS)
    }
}

/// Returns the content of a page: a different word for every page of a block.
fn word(ticket: u64, frame: usize) -> u64 {
    ticket ^ (frame as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl BlockRecord for Stamps {
    fn took(&self, frame: u32, order: u8) {
        let Some(frames) = self.frames(frame, order) else { return };
        let number = self.tickets.fetch_add(1, Ordering::Relaxed);
        let ticket = number << ORDER_BITS | u64::from(order);
        for frame in frames {
            if self.owners[frame].swap(ticket, Ordering::AcqRel) != 0 {
                self.report(frame, "allocated while it was allocated");
            }
            let word = word(ticket, frame);
            self.page(frame).for_each(|place| place.store(word, Ordering::Relaxed));
        }
    }
    fn gives(&self, frame: u32, order: u8) {
        let Some(frames) = self.frames(frame, order) else { return };
        let ticket = self.owners[frames.start].load(Ordering::Acquire);
        if ticket & ((1 << ORDER_BITS) - 1) != u64::from(order) {
            self.report(frames.start, format!("freed as a block of order {order}"));
        }
        for frame in frames {
            let word = word(ticket, frame);
            if self.page(frame).any(|place| place.load(Ordering::Relaxed) != word) {
                self.report(frame, "written by another owner while it was allocated");
            }
            if ticket == 0 || self.owners[frame].swap(0, Ordering::AcqRel) != ticket {
                self.report(frame, "freed by a thread that does not own it");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn honest_blocks_settle() {
        let stamps = Stamps::new(64);
        stamps.took(8, 3);
        stamps.took(1, 0);
        stamps.gives(8, 3);
        stamps.gives(1, 0);
        stamps.took(8, 0);
        stamps.gives(8, 0);
        assert_eq!(stamps.check_all_free(), Ok(()));
    }

    #[test]
    fn every_kind_of_error_is_reported() {
        let told = |fraud: fn(&Stamps)| {
            let stamps = Stamps::new(64);
            fraud(&stamps);
            let told = stamps.check_all_free().expect_err("something is wrong");
            assert_eq!(stamps.check_all_free(), Ok(()), "it is reported once");
            told
        };
        let twice = told(|stamps| {
            stamps.took(8, 2);
            stamps.took(10, 0);
        });
        assert_eq!(twice, "frame 10: allocated while it was allocated");
        let written = told(|stamps| {
            stamps.took(8, 2);
            let last = stamps.page(11).last().expect("a page has lines");
            last.store(0, Ordering::Relaxed);
            stamps.gives(8, 2);
        });
        assert_eq!(written, "frame 11: written by another owner while it was allocated");
        let other = told(|stamps| {
            stamps.took(8, 2);
            stamps.gives(8, 1);
        });
        assert_eq!(other, "frame 8: freed as a block of order 1");
        assert_eq!(told(|stamps| stamps.took(2, 2)), "frame 2: no place for a block of order 2");
        assert_eq!(told(|stamps| stamps.took(64, 0)), "frame 64: no place for a block of order 0");
        assert_eq!(told(|stamps| stamps.took(0, 4)), "16 pages were never freed");
        assert!(told(|stamps| stamps.gives(3, 0)).starts_with("frame 3: "));
    }
}
