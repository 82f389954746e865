//! Frames straight from the allocator, as a substitute for mapped memory: the workload without
//! faults, page tables and LRU lists.

use super::Tally;
use super::purger::Source;
use mmscale_arch::{Order, Pfn};
use mmscale_frames::frame::MigrateType;
use mmscale_kernel::Os;
use mmscale_system::Errno;
use std::sync::Mutex;

/// Frames by chunk. A chunk is passed between threads and used by one at a time, so the host's lock
/// is never contended.
struct Frames {
    chunks: Vec<Mutex<Vec<Pfn>>>,
}

/// Creates a source of frames.
pub(super) fn frames(_: &Os, chunks: u64, chunk_pages: u64) -> Result<Box<dyn Source<Os>>, Errno> {
    let chunk = |_| Mutex::new(Vec::with_capacity(chunk_pages as usize));
    Ok(Box::new(Frames { chunks: (0..chunks).map(chunk).collect() }))
}

impl Frames {
    /// Takes the frames of a chunk. The host's lock is not held while the machine runs.
    fn take(&self, chunk: u64) -> Vec<Pfn> {
        std::mem::take(&mut *self.chunks[chunk as usize].lock().expect("no panic while it is held"))
    }
    fn put(&self, chunk: u64, frames: Vec<Pfn>) {
        *self.chunks[chunk as usize].lock().expect("no panic while it is held") = frames;
    }
}

impl Source<Os> for Frames {
    fn touch(&self, os: &Os, chunk: u64, _: u64, tally: &mut Tally) -> Result<(), Errno> {
        let inside = os.inside();
        match inside.alloc_pages(Order::ZERO, MigrateType::Movable) {
            Ok(pfn) => {
                inside.clear_block(pfn, Order::ZERO);
                let mut own = self.take(chunk);
                own.push(pfn);
                self.put(chunk, own);
            }
            Err(_) => tally.failures += 1,
        }
        Ok(())
    }
    fn give_back(&self, os: &Os, chunk: u64) -> Result<(), Errno> {
        let mut own = self.take(chunk);
        own.drain(..).for_each(|pfn| os.inside().free_pages(pfn, Order::ZERO));
        self.put(chunk, own);
        Ok(())
    }
}
