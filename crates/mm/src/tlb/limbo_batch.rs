//! Reclaim's limbo: pages that were unmapped and wait until no CPU uses them by an old translation,
//! while reclaim continues.
//!
//! A [`LimboBatch`] is one [`UnmapBatch`] whose flush was started but not awaited, with the pages
//! whose entries it deferred. The pages are clean, in the swap cache, on no list, and pinned by
//! reclaim's reference; none is locked. A fault on such a page maps it again immediately: it is the
//! page that other CPUs may still read by an old translation. The page must not leave the swap
//! cache before they have stopped. Otherwise one thread could write to a new copy while another
//! still reads the old one. Once every CPU has flushed, unloaded the address space or gone idle,
//! the batch leaves, and its pages are freed unless they were mapped again.
//!
//! A caller that promises that a page is gone and finds no entry of it flushes
//! ([`Tlb::flush_batched_pending`]): a batch counts as deferred until it leaves.
//!
//! Batches leave in order of arrival. Lock order: the queue's lock (class Other) is innermost;
//! pages are freed with no lock held.

use super::limbo::Leave;
use super::{Extent, FlushBy, Tlb, UnmapBatch};
use crate::smp::Wait;
use alloc::collections::VecDeque;
use core::sync::atomic::Ordering::{Acquire, Release};
use mmscale_arch::sync::SpinLock;
use mmscale_arch::{Atomic, LockClass, Machine, Pfn};

/// Maximum of pages in a batch: the number that reclaim scans in one step.
pub const LIMBO_BATCH_PAGES: usize = 32;
/// Maximum of batches in limbo, on any machine: 4 MiB of pages.
pub const LIMBO_BATCHES: usize = 32;

/// A batch whose flush is in progress, and its pages.
struct LimboBatch {
    batch: UnmapBatch,
    pages: [Pfn; LIMBO_BATCH_PAGES],
    len: usize,
    since_ns: u64,
    ticket: u64,
}

/// The queue of batches, oldest first.
pub(super) struct LimboBatches<A: Machine> {
    line: SpinLock<A, BatchQueue>,
    /// Pages in all batches, readable without the lock.
    pages: A::AtomicU32,
}

struct BatchQueue {
    batches: VecDeque<LimboBatch>,
    /// Ticket of the next batch.
    next: u64,
}

impl<A: Machine> LimboBatches<A> {
    pub(super) fn new(flush_by: FlushBy) -> Self {
        let room = match flush_by {
            FlushBy::Call => 0,
            FlushBy::Generation => LIMBO_BATCHES,
        };
        let line = BatchQueue { batches: VecDeque::with_capacity(room), next: 0 };
        Self { line: SpinLock::new(LockClass::Other, line), pages: A::AtomicU32::new(0) }
    }
    pub(super) fn pages(&self) -> usize {
        // A hint. Pairs with the changes in `park_batch` and `take_batch`; batches are read under
        // the lock.
        self.pages.load_uncharged(Acquire) as usize
    }
}

impl<A: Machine> Tlb<A> {
    /// Puts `pages`, whose entries `batch` deferred, into limbo, starts the invalidation and
    /// empties the batch. Returns `false`, and changes nothing, if there is no room or the batch
    /// must be awaited. The caller has a reference to each page and holds no lock.
    pub fn park_batch(&self, batch: &mut UnmapBatch, pages: &[Pfn]) -> bool {
        let has_room = || self.limbo_batches.line.lock().batches.len() < LIMBO_BATCHES;
        if !self.has_limbo() || !batch.may_wait() || pages.len() > LIMBO_BATCH_PAGES || !has_room()
        {
            return false;
        }
        let reached = self.send_flush_ipis_for(batch);
        let mut line = self.limbo_batches.line.lock();
        if line.batches.len() >= LIMBO_BATCHES {
            return false;
        }
        let mut entry = LimboBatch {
            batch: core::mem::take(batch),
            pages: [Pfn::new(0); LIMBO_BATCH_PAGES],
            len: pages.len(),
            since_ns: A::now_ns(),
            ticket: line.next,
        };
        entry.pages[..pages.len()].copy_from_slice(pages);
        line.next += 1;
        line.batches.push_back(entry);
        // Pairs with the load in `LimboBatches::pages`.
        self.limbo_batches.pages.fetch_add(pages.len() as u32, Release);
        drop(line);
        self.smp.tally().flushes.add(1);
        self.note_limbo();
        let interrupted = reached.iter().flatten().map(|behind| behind.count() as u32).sum();
        super::trace::<A>(Extent::All, interrupted);
        true
    }
    /// Passes the pages of batches that leave limbo to `release`, which returns how many it freed;
    /// returns the sum. Tasks only; sleeps with [`Leave::All`].
    pub fn leave_limbo_batches(&self, leave: Leave, mut release: impl FnMut(&[Pfn]) -> u32) -> u32 {
        let mut freed = 0;
        while self.flush_by() == FlushBy::Generation && self.limbo_batches.pages() > 0 {
            let Some((ticket, batch)) = self.oldest_batch() else { break };
            for (asid, generation) in batch.iter() {
                let behind = self.behind(asid, generation);
                if leave == Leave::Passed && behind.count() > 0 {
                    return freed;
                }
                self.wait_for_all(asid, generation, &behind, Wait::Sleep);
            }
            // Another task may have waited for the same batch and taken it.
            if let Some(entry) = self.take_batch(ticket) {
                let age_ns = A::now_ns().saturating_sub(entry.since_ns);
                self.smp.tally().limbo_age_max_ns.note(age_ns);
                self.complete_batch(&entry.batch);
                freed += release(&entry.pages[..entry.len]);
            }
        }
        freed
    }
    fn oldest_batch(&self) -> Option<(u64, UnmapBatch)> {
        let line = self.limbo_batches.line.lock();
        line.batches.front().map(|entry| (entry.ticket, entry.batch.clone()))
    }
    fn take_batch(&self, ticket: u64) -> Option<LimboBatch> {
        let mut line = self.limbo_batches.line.lock();
        if line.batches.front().is_none_or(|entry| entry.ticket != ticket) {
            return None;
        }
        let entry = line.batches.pop_front();
        let pages = entry.as_ref().map_or(0, |entry| entry.len as u32);
        // Pairs with the load in `LimboBatches::pages`.
        self.limbo_batches.pages.fetch_sub(pages, Release);
        entry
    }
}
