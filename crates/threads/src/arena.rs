//! The memory of the frames: one anonymous mapping, which the host fills as it is touched, in huge
//! pages where it can, as a kernel maps its own memory.

use mmscale_arch::{Order, Pfn};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes in a frame.
pub(crate) const PAGE_BYTES: usize = 4096;

/// Memory of the frames `0..pages`.
pub(crate) struct Arena {
    base: *mut u8,
    pages: usize,
}

// SAFETY: only the methods access the mapping, and they access what a frame's owner may.
unsafe impl Send for Arena {}
// SAFETY: as above; stamps are atomic, and only the owner of a block clears it.
unsafe impl Sync for Arena {}

impl Arena {
    pub(crate) fn new(pages: usize) -> Result<Self, rustix::io::Errno> {
        let (access, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: a new mapping, placed by the host, overlaps nothing.
        let base = unsafe {
            mmap_anonymous(core::ptr::null_mut(), pages.max(1) * PAGE_BYTES, access, flags)?
        };
        // SAFETY: the mapping is ours. A refusal means small pages, and changes nothing else.
        #[cfg(target_os = "linux")]
        let _ = unsafe {
            use rustix::mm::{Advice, madvise};
            madvise(base, pages.max(1) * PAGE_BYTES, Advice::LinuxHugepage)
        };
        Ok(Self { base: base.cast(), pages })
    }

    /// Clears a block. The caller owns it.
    pub(crate) fn clear(&self, pfn: Pfn, order: Order) {
        let start = self.frame(pfn, order.pages());
        // SAFETY: the block is in the arena, and its owner is its only user.
        unsafe { core::ptr::write_bytes(start, 0, order.pages() * PAGE_BYTES) };
    }

    /// Copies a frame. The caller owns `to`; other CPUs may read `from`.
    pub(crate) fn copy(&self, from: Pfn, to: Pfn) {
        assert!(from != to, "a frame is copied to itself");
        let (from, to) = (self.frame(from, 1), self.frame(to, 1));
        // SAFETY: two frames of the arena, which do not overlap; the caller owns the second one.
        unsafe { core::ptr::copy_nonoverlapping(from, to, PAGE_BYTES) };
    }

    /// Copies a frame word by word, because other CPUs may be writing to both.
    pub(crate) fn copy_words(&self, from: Pfn, to: Pfn) {
        for at in 0..PAGE_BYTES / 8 {
            self.word(to, at).store(self.word(from, at).load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Returns the first eight bytes of a frame.
    pub(crate) fn stamp(&self, pfn: Pfn) -> u64 {
        self.first_word(pfn).load(Ordering::Relaxed)
    }

    /// Sets the first eight bytes of a frame.
    pub(crate) fn set_stamp(&self, pfn: Pfn, stamp: u64) {
        self.first_word(pfn).store(stamp, Ordering::Relaxed);
    }

    /// Whether all bytes of a frame are 0.
    pub(crate) fn is_zero(&self, pfn: Pfn) -> bool {
        (0..PAGE_BYTES / 8).all(|at| self.word(pfn, at).load(Ordering::Relaxed) == 0)
    }

    /// Reads the bytes of a frame word by word, because another CPU may be writing to it.
    pub(crate) fn read(&self, pfn: Pfn, into: &mut [u8; PAGE_BYTES]) {
        for (at, bytes) in into.chunks_exact_mut(8).enumerate() {
            bytes.copy_from_slice(&self.word(pfn, at).load(Ordering::Relaxed).to_ne_bytes());
        }
    }

    /// Fills a frame.
    pub(crate) fn fill(&self, pfn: Pfn, from: &[u8; PAGE_BYTES]) {
        for (at, bytes) in from.chunks_exact(8).enumerate() {
            let mut word = [0; 8];
            word.copy_from_slice(bytes);
            self.word(pfn, at).store(u64::from_ne_bytes(word), Ordering::Relaxed);
        }
    }

    /// Returns one of the 512 words of a frame.
    pub(crate) fn word(&self, pfn: Pfn, index: usize) -> &AtomicU64 {
        assert!(index < PAGE_BYTES / 8, "a frame has no word {index}");
        let start = self.frame(pfn, 1);
        // SAFETY: an aligned word of the frame, in memory that lives as long as `self`.
        unsafe { AtomicU64::from_ptr(start.cast::<u64>().add(index)) }
    }

    fn first_word(&self, pfn: Pfn) -> &AtomicU64 {
        self.word(pfn, 0)
    }

    fn frame(&self, pfn: Pfn, pages: usize) -> *mut u8 {
        assert!(pfn.index() + pages <= self.pages, "{pfn:?} lies outside the machine's memory");
        self.base.wrapping_add(pfn.index() * PAGE_BYTES)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing refers to it any more.
        let unmapped = unsafe { munmap(self.base.cast(), self.pages.max(1) * PAGE_BYTES) };
        debug_assert!(unmapped.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_stay_until_their_block_is_cleared() {
        let arena = Arena::new(8).unwrap();
        let at = |pfn| arena.stamp(Pfn::new(pfn));
        (0..8).for_each(|pfn| arena.set_stamp(Pfn::new(pfn), 7 + pfn as u64));
        arena.clear(Pfn::new(4), Order::new(1).unwrap());
        assert_eq!((at(3), at(4), at(5), at(6)), (10, 0, 0, 13));
    }

    #[test]
    #[should_panic(expected = "outside the machine's memory")]
    fn a_frame_that_does_not_exist_is_refused() {
        Arena::new(8).unwrap().clear(Pfn::new(6), Order::new(2).unwrap());
    }
}
