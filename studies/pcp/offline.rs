//! Repeatedly takes a range of memory offline and online, concurrently with the workload's
//! programs, as a hypervisor does to shrink a guest (`virtio-mem`).
//!
//! All pageblocks of the range are isolated, then taken offline. Pages are not migrated: if a page
//! of the range is in use, the whole range stays online, as in `alloc_contig_range` with EBUSY. The
//! next attempt uses another random range.

use super::worker::{Worker, wait};
use super::{AllocatorData, Tally};
use mmscale_arch::{Order, Pfn};
use mmscale_frames::zone::IsolateError;
use mmscale_kernel::{Inside, Os};
use mmscale_system::{Errno, System};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::Rng;

/// Time for which a range stays offline. The thread computes meanwhile, because a sleep takes at
/// least a jiffy.
const STAY_NS: u64 = 20_000;
/// Time between the end of an attempt and the next one.
const PAUSE_NS: u64 = 20_000;

/// Size of the ranges.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offline {
    /// Pageblocks of a range.
    pub(super) blocks: u64,
    /// Pageblocks of the machine.
    pub(super) of_blocks: u64,
}

/// Counters of attempts in the window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OfflineTally {
    pub(super) tried: u64,
    pub(super) done: u64,
    /// Total time from the isolation of the first block to that of the last, of successful
    /// attempts.
    pub(super) total_ns: u64,
    pub(super) max_ns: u64,
    /// Used pages in ranges that stayed online.
    pub(super) busy_pages: u64,
}

/// The thread that takes memory offline until the window ends.
pub(super) fn program(os: &Os, plan: Offline, worker: &Worker) {
    let mut tally = OfflineTally::default();
    // The end of the run ends the thread.
    let _ = go(os, plan, worker, &mut tally);
    worker.run.inside(|memory: &mut AllocatorData| memory.offline = tally);
}

fn go(os: &Os, plan: Offline, worker: &Worker, tally: &mut OfflineTally) -> Result<(), Errno> {
    let (inside, at, mut computed) = (os.inside(), worker.at(), Tally::default());
    let mut rng = worker.rng();
    wait(os, at.warm_ns)?;
    while worker.has_time(os) {
        let range = plan.choose(&mut rng);
        let begin_ns = os.clock_ns();
        let busy = take(inside, &range);
        let end_ns = os.clock_ns();
        if at.counts(begin_ns) {
            tally.count(&busy, end_ns - begin_ns);
        }
        if busy == Ok(0) {
            // The range must come back online even if the run ends meanwhile.
            let stayed = computed.compute(os, at, STAY_NS);
            range.iter().for_each(|&block| put(inside.online_pageblock(block)));
            stayed?;
        }
        computed.compute(os, at, PAUSE_NS)?;
    }
    worker.add(&computed);
    Ok(())
}

impl Offline {
    /// Returns the pageblocks of a random range that is aligned to its size.
    fn choose(&self, rng: &mut Xoshiro256PlusPlus) -> Vec<Pfn> {
        let ranges = (self.of_blocks / self.blocks).max(1);
        let first = rng.next_u64() % ranges * self.blocks;
        let pages = Order::PAGEBLOCK.pages() as u64;
        (first..first + self.blocks).map(|block| Pfn::new((block * pages) as usize)).collect()
    }
}

impl OfflineTally {
    fn count(&mut self, busy: &Result<u64, IsolateError>, ns: u64) {
        match *busy {
            Ok(0) => {
                self.tried += 1;
                self.done += 1;
                self.total_ns += ns;
                self.max_ns = self.max_ns.max(ns);
            }
            Ok(pages) => {
                self.tried += 1;
                self.busy_pages += pages;
            }
            // Part of the range is not memory: this does not count as an attempt.
            Err(_) => {}
        }
    }
}

/// Takes a range offline. Returns the number of used pages; if it is not 0, the range stays online.
fn take(inside: &dyn Inside, range: &[Pfn]) -> Result<u64, IsolateError> {
    inside.isolate_pageblocks(range)?;
    let (mut gone, mut stayed, mut busy) = (Vec::new(), Vec::new(), 0);
    for &block in range {
        match inside.offline_pageblock(block) {
            Ok(()) => gone.push(block),
            Err(why) => {
                stayed.push(block);
                // A block whose last page was freed only now prevents success, too.
                busy +=
                    if let IsolateError::Busy(pages) = why { u64::from(pages).max(1) } else { 1 };
            }
        }
    }
    if busy > 0 {
        gone.into_iter().for_each(|block| put(inside.online_pageblock(block)));
        stayed.into_iter().for_each(|block| put(inside.unisolate_pageblock(block)));
    }
    Ok(busy)
}

/// Checks that a block could be brought online, which cannot fail without concurrent isolation.
fn put(result: Result<(), IsolateError>) {
    result.unwrap_or_else(|why| panic!("cannot bring a pageblock online: {why}"));
}
