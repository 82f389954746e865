//! Pages that reclaim has taken out of address spaces, and that wait for the CPUs to forget them
//! while reclaim goes on.
//!
//! A parcel is a batch that nobody waits for, and the pages of which entries were put off with it.
//! They are clean, in the swap cache, on no list, and reclaim's reference keeps them. Nobody has
//! their locks: so whoever faults on such a page has it back at once, the same page that other CPUs
//! may still read by an old translation. It must not leave the swap cache before they have stopped:
//! else one thread would write to a new copy while another reads the old. When all CPUs have caught
//! up, gone elsewhere or gone idle, the parcel leaves, and pages that nobody has called back go.
//!
//! Whoever promises that a page is gone and finds no entry of it flushes meanwhile
//! ([`Tlb::settle`]): what a parcel waits for counts as put off.
//!
//! Parcels leave in the order in which they came. Lock order: the line's lock (class Other) is
//! innermost; pages are freed with nothing held.

use super::limbo::Leave;
use super::{Batch, Extent, Forgetting, Tlb};
use crate::smp::{Count, Max, Wait};
use alloc::collections::VecDeque;
use core::sync::atomic::Ordering::{Acquire, Release};
use mmscale_arch::sync::SpinLock;
use mmscale_arch::{Atomic, LockClass, Machine, Pfn, planted};

/// Pages of a parcel: what reclaim looks at in one go.
pub const PARCEL_PAGES: usize = 32;
/// Parcels that limbo has room for, on any machine: 4 MiB of pages.
pub const PARCELS: usize = 32;

/// One that waits.
struct Parcel {
    batch: Batch,
    pages: [Pfn; PARCEL_PAGES],
    len: usize,
    since_ns: u64,
    ticket: u64,
}

/// The line of parcels, oldest first.
pub(super) struct Parcels<A: Machine> {
    line: SpinLock<A, Line>,
    /// Pages in all of them, for who only wants to know.
    pages: A::AtomicU32,
}

struct Line {
    parcels: VecDeque<Parcel>,
    /// The ticket of the next.
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
    /// Puts the pages of which entries were put off with `batch` into limbo, and begins the
    /// invalidation; the batch is empty then. `false`: there is no room, or the batch has to be
    /// waited for; nothing was changed. The caller has a reference to each page and nobody's lock.
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
        self.smp.tally().add::<A>(Count::Flushes, 1);
        self.note_limbo();
        let interrupted = nudged.iter().flatten().map(|behind| behind.count() as u32).sum();
        super::trace::<A>(Extent::All, interrupted);
        true
    }
    /// Hands the pages of parcels that leave limbo to `release`, which returns how many it has
    /// freed; the sum of that. Tasks only; with [`Leave::All`] it sleeps.
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
            // Somebody else may have waited for the same.
            if let Some(parcel) = self.take_parcel(ticket) {
                let age_ns = A::now_ns().saturating_sub(parcel.since_ns);
                self.smp.tally().max::<A>(Max::LimboAge, age_ns);
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
