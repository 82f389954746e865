//! Reclaim's limbo: pages that were unmapped and wait until no CPU uses them by an old translation,
//! while reclaim continues.
//!
//! A parcel is one [`Batch`] whose flush was started but not awaited, with the pages whose entries
//! it deferred. The pages are clean, in the swap cache, on no list, and pinned by reclaim's
//! reference; none is locked. A fault on such a page maps it again immediately: it is the page that
//! other CPUs may still read by an old translation. The page must not leave the swap cache before
//! they have stopped. Otherwise one thread could write to a new copy while another still reads the
//! old one. Once every CPU has flushed, unloaded the address space or gone idle, the parcel leaves,
//! and its pages are freed unless they were mapped again.
//!
//! A caller that promises that a page is gone and finds no entry of it flushes ([`Tlb::settle`]): a
//! parcel counts as deferred until it leaves.
//!
//! Parcels leave in order of arrival. Lock order: the queue's lock (class Other) is innermost;
//! pages are freed with no lock held.

use super::limbo::Leave;
use super::{Batch, Extent, Forgetting, Tlb};
use crate::smp::Wait;
use alloc::collections::VecDeque;
use core::sync::atomic::Ordering::{Acquire, Release};
use mmscale_arch::sync::SpinLock;
use mmscale_arch::{Atomic, LockClass, Machine, Pfn, planted};

/// Maximum of pages in a parcel: the number that reclaim scans in one step.
pub const PARCEL_PAGES: usize = 32;
/// Maximum of parcels in limbo, on any machine: 4 MiB of pages.
pub const PARCELS: usize = 32;

/// A batch in flight, and its pages.
struct Parcel {
    batch: Batch,
    pages: [Pfn; PARCEL_PAGES],
    len: usize,
    since_ns: u64,
    ticket: u64,
}

/// The queue of parcels, oldest first.
pub(super) struct Parcels<A: Machine> {
    line: SpinLock<A, Line>,
    /// Pages in all parcels, readable without the lock.
    pages: A::AtomicU32,
}

struct Line {
    parcels: VecDeque<Parcel>,
    /// Ticket of the next parcel.
    next: u64,
}

impl<A: Machine> Parcels<A> {
    pub(super) fn new(forgetting: Forgetting) -> Self {
        let room = match forgetting {
            Forgetting::Called => 0,
            Forgetting::Nudged => PARCELS,
        };
        let line = Line { parcels: VecDeque::with_capacity(room), next: 0 };
        Self { line: SpinLock::new(LockClass::Other, line), pages: A::AtomicU32::new(0) }
    }
    pub(super) fn pages(&self) -> usize {
        self.pages.load_uncharged(Acquire) as usize
    }
}

impl<A: Machine> Tlb<A> {
    /// Puts `pages`, whose entries `batch` deferred, into limbo, starts the invalidation and
    /// empties the batch. Returns `false`, and changes nothing, if there is no room or the batch
    /// must be awaited. The caller has a reference to each page and holds no lock.
    pub fn park_batch(&self, batch: &mut Batch, pages: &[Pfn]) -> bool {
        let has_room = || self.parcels.line.lock().parcels.len() < PARCELS;
        if !self.has_limbo() || !batch.may_wait() || pages.len() > PARCEL_PAGES || !has_room() {
            return false;
        }
        let nudged = self.nudge_for_batch(batch);
        let mut line = self.parcels.line.lock();
        if line.parcels.len() >= PARCELS {
            return false;
        }
        let mut parcel = Parcel {
            batch: core::mem::take(batch),
            pages: [Pfn::new(0); PARCEL_PAGES],
            len: pages.len(),
            since_ns: A::now_ns(),
            ticket: line.next,
        };
        parcel.pages[..pages.len()].copy_from_slice(pages);
        line.next += 1;
        line.parcels.push_back(parcel);
        self.parcels.pages.fetch_add(pages.len() as u32, Release);
        drop(line);
        self.smp.tally().flushes.add(1);
        self.note_limbo();
        let interrupted = nudged.iter().flatten().map(|behind| behind.count() as u32).sum();
        super::trace::<A>(Extent::All, interrupted);
        true
    }
    /// Passes the pages of parcels that leave limbo to `release`, which returns how many it freed;
    /// returns the sum. Tasks only; sleeps with [`Leave::All`].
    pub fn leave_parcels(&self, leave: Leave, mut release: impl FnMut(&[Pfn]) -> u32) -> u32 {
        let mut freed = 0;
        while self.forgetting() == Forgetting::Nudged && self.parcels.pages() > 0 {
            let Some((ticket, batch)) = self.oldest_parcel() else { break };
            for (asid, generation) in batch.iter() {
                let behind = self.behind(asid, generation);
                if planted!(ParcelUnproven) {
                    continue;
                }
                if leave == Leave::Passed && behind.count() > 0 {
                    return freed;
                }
                self.wait_for_all(asid, generation, &behind, Wait::Sleep);
            }
            // Another task may have waited for the same parcel and taken it.
            if let Some(parcel) = self.take_parcel(ticket) {
                let age_ns = A::now_ns().saturating_sub(parcel.since_ns);
                self.smp.tally().limbo_age_max_ns.note(age_ns);
                self.settle_batch(&parcel.batch);
                freed += release(&parcel.pages[..parcel.len]);
            }
        }
        freed
    }
    fn oldest_parcel(&self) -> Option<(u64, Batch)> {
        let line = self.parcels.line.lock();
        line.parcels.front().map(|parcel| (parcel.ticket, parcel.batch.clone()))
    }
    fn take_parcel(&self, ticket: u64) -> Option<Parcel> {
        let mut line = self.parcels.line.lock();
        if line.parcels.front().is_none_or(|parcel| parcel.ticket != ticket) {
            return None;
        }
        let parcel = line.parcels.pop_front();
        let pages = parcel.as_ref().map_or(0, |parcel| parcel.len as u32);
        self.parcels.pages.fetch_sub(pages, Release);
        parcel
    }
}
