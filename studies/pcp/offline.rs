//! A range of memory goes offline and comes back, again and again, next to the workload's programs:
//! what a hypervisor asks of a guest that is to have less memory (`virtio-mem`).
//!
//! All pageblocks of the range are isolated, and then taken offline. Pages are not migrated: if one
//! page of the range is in use the whole range stays, as `alloc_contig_range` leaves it with EBUSY.
//! The next range is another one, chosen at random.

use super::worker::{Worker, wait};
use super::{Memory, Tally};
use mmscale_arch::{Machine, Order, Pfn};
use mmscale_frames::page_alloc::FrameAllocator;
use mmscale_frames::zone::IsolateError;
use mmscale_kernel::Kernel;
use mmscale_system::{Errno, System};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::Rng;

/// How long a range is offline. The thread computes meanwhile: a sleep is as long as a jiffy.
const STAY_NS: u64 = 20_000;
/// From the end of one attempt to the next one.
const PAUSE_NS: u64 = 20_000;

/// What is taken offline.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offline {
    /// Pageblocks of a range.
    pub(super) blocks: u64,
    /// Pageblocks of the machine.
    pub(super) of_blocks: u64,
}

/// What came of it in the window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OfflineTally {
    pub(super) tried: u64,
    pub(super) done: u64,
    /// From the first block's isolation to the last one's end, for ranges that went offline.
    pub(super) total_ns: u64,
    pub(super) max_ns: u64,
    /// Pages in use in ranges that stayed.
    pub(super) busy_pages: u64,
}

/// The thread that does so until the window ends.
pub(super) fn program<A: Machine>(system: &Kernel<A>, plan: Offline, worker: &Worker) {
    let mut tally = OfflineTally::default();
    // It ends with the run, whatever that brings.
    let _ = go(system, plan, worker, &mut tally);
    worker.run.inside(|memory: &mut Memory| memory.offline = tally);
}

fn go<A: Machine>(
    system: &Kernel<A>,
    plan: Offline,
    worker: &Worker,
    tally: &mut OfflineTally,
) -> Result<(), Errno> {
    let (frames, at, mut computed) = (system.mm().frames(), worker.at(), Tally::default());
    let mut rng = worker.rng();
    wait(system, at.warm_ns)?;
    while worker.has_time(system) {
        let range = plan.choose(&mut rng);
        let begin_ns = system.clock_ns();
        let busy = take(frames, &range);
        let end_ns = system.clock_ns();
        if at.counts(begin_ns) {
            tally.count(&busy, end_ns - begin_ns);
        }
        if busy == Ok(0) {
            // Even if the run ends meanwhile the range has to come back.
            let stayed = computed.compute(system, at, STAY_NS);
            range.iter().for_each(|&block| put(frames.online_pageblock(block)));
            stayed?;
        }
        computed.compute(system, at, PAUSE_NS)?;
    }
    worker.add(&computed);
    Ok(())
}

impl Offline {
    /// The pageblocks of a range that begins at a multiple of its size.
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
            // Not all of the range is memory: it was no attempt.
            Err(_) => {}
        }
    }
}

/// Takes a range offline. Returns its pages that are in use; unless it is 0 the range is as it was.
fn take<A: Machine>(frames: &FrameAllocator<A>, range: &[Pfn]) -> Result<u64, IsolateError> {
    frames.isolate_pageblocks(range)?;
    let (mut gone, mut stayed, mut busy) = (Vec::new(), Vec::new(), 0);
    for &block in range {
        match frames.offline_pageblock(block) {
            Ok(()) => gone.push(block),
            Err(why) => {
                stayed.push(block);
                // A block of which the last page was freed just now is in the way, too.
                busy +=
                    if let IsolateError::Busy(pages) = why { u64::from(pages).max(1) } else { 1 };
            }
        }
    }
    if busy > 0 {
        gone.into_iter().for_each(|block| put(frames.online_pageblock(block)));
        stayed.into_iter().for_each(|block| put(frames.unisolate_pageblock(block)));
    }
    Ok(busy)
}

/// A block comes back: no other task isolates any.
fn put(result: Result<(), IsolateError>) {
    result.unwrap_or_else(|why| panic!("a pageblock does not come back: {why}"));
}
