//! Costs of the frame allocator's pieces for one CPU. The same program runs on this computer, where
//! it is timed, and on a simulated CPU, where it shows how often each operation is charged.

use super::CalibrateError;
use mmscale_arch::{Callbacks, CpuId, Ipi, Machine, Order, Pfn, Priority, Probe};
use mmscale_arch::{TaskEntry, TaskSpec};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::{AllocConfig, FrameAllocator, Gfp, MemoryMap};
use mmscale_sim::profile::Profile;
use mmscale_sim::{Sim, SimConfig};
use mmscale_threads::calibrate::on_each_cpu;
use mmscale_threads::{Threads, ThreadsConfig};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

/// The pieces that are measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Piece {
    /// Allocation of a page that the CPU's cache contains.
    CachedAlloc,
    /// Free of a page into a cache with room.
    CachedFree,
    /// Allocation of many pages, with refills of the cache from the zone.
    BulkAlloc,
    /// Free of many pages, with drains of the cache into the zone.
    BulkFree,
}

impl Piece {
    pub(super) const ALL: [Self; 4] =
        [Self::CachedAlloc, Self::CachedFree, Self::BulkAlloc, Self::BulkFree];
}

/// Duration in ns per page, for each [`Piece`].
pub(super) type Figures = [f64; Piece::ALL.len()];

/// Number of repetitions of the pieces.
#[derive(Clone, Copy, Debug)]
pub(super) struct Repeats {
    /// Bursts of [`BURST`] pages.
    pub(super) bursts: usize,
    /// Rounds of [`BULK`] pages.
    pub(super) bulks: usize,
}

/// Pages per burst: fewer than a batch, so that a cache serves the burst after one refill.
const BURST: usize = 32;
/// Pages per round of bulk operations.
const BULK: usize = 16 * 1024;
/// Pages between two clock reads of bulk operations, a multiple of many batches. This is about 0.4
/// ms, so that most stretches are not disturbed by other activity of the computer.
const STRETCH: usize = BULK / 4;
/// Pages of the machine, of which the program uses 64 MiB.
const MEMORY_PAGES: u32 = mmscale_threads::MEMORY_PAGES as u32;
/// Share of the memory that the page cache holds: a quarter of [`BULK`], so that most pages of a
/// round go through the zone.
const HIGH_FRACTION: u32 = 128;
const _: () = assert!(MEMORY_PAGES / HIGH_FRACTION == BULK as u32 / 4);

/// Runs the program on every CPU of this computer concurrently, each with a separate allocator.
/// Returns the mean over CPUs, less the clock reads.
pub(super) fn real(repeats: Repeats, clock_ns: f64) -> Result<Figures, CalibrateError> {
    let of_cpus = on_each_cpu(|| real_on_one(repeats, clock_ns));
    let of_cpus: Vec<Figures> = of_cpus.into_iter().collect::<Result<_, _>>()?;
    let mean = |piece| of_cpus.iter().map(|of| of[piece]).sum::<f64>() / of_cpus.len() as f64;
    Ok(core::array::from_fn(mean))
}

fn real_on_one(repeats: Repeats, clock_ns: f64) -> Result<Figures, CalibrateError> {
    let config = ThreadsConfig {
        cpus: 1,
        hz: 1000,
        seed: 0,
        memory_pages: MEMORY_PAGES.into(),
        limit_ns: 60_000_000_000,
        interrupt: None,
    };
    let found = Arc::default();
    let outcome =
        mmscale_threads::run(&config, deaf, || Arc::new(boot::<Threads>(repeats, &found)));
    if let Some(failure) = outcome.failure {
        return Err(CalibrateError::Threads(failure));
    }
    let mut figures = take(&found);
    figures[Piece::CachedAlloc as usize] -= clock_ns / BURST as f64;
    figures[Piece::CachedFree as usize] -= clock_ns / BURST as f64;
    Ok(figures)
}

/// Runs the program on a simulated CPU.
pub(super) fn simulated(profile: &Profile) -> Result<Figures, CalibrateError> {
    // One of each after the warm-up suffices: all repetitions take equal virtual time.
    let repeats = Repeats { bursts: 4, bulks: 2 };
    let mut config = SimConfig::new(profile.clone(), 1);
    config.checks = mmscale_sim::Checks::Off;
    let found = Arc::default();
    let outcome = mmscale_sim::run(config, deaf, || Rc::new(boot::<Sim>(repeats, &found)));
    match outcome.failure {
        Some(failure) => Err(CalibrateError::Sim(failure.to_string())),
        None => Ok(take(&found)),
    }
}

type SharedFigures = Arc<Mutex<Option<Figures>>>;

fn take(found: &SharedFigures) -> Figures {
    let figures = found.lock().unwrap_or_else(PoisonError::into_inner).take();
    figures.expect("the program ran to its end")
}

fn boot<A: Machine>(repeats: Repeats, found: &SharedFigures) -> Pieces<A> {
    let map = MemoryMap::single(MEMORY_PAGES);
    let config = AllocConfig { high_fraction: Some(HIGH_FRACTION), ..AllocConfig::default() };
    let frames = FrameAllocator::new(&map, config);
    let frames = frames.unwrap_or_else(|why| panic!("a plain memory map is refused: {why}"));
    let (cpu, priority, entry) = (CpuId::new(0), Priority::Fair, TaskEntry(0));
    A::spawn(TaskSpec { cpu, per_cpu: false, priority, entry });
    Pieces { frames, repeats, found: Arc::clone(found) }
}

/// The frame allocator without timers, deferred work or other tasks.
struct Pieces<A: Machine> {
    frames: FrameAllocator<A>,
    repeats: Repeats,
    found: SharedFigures,
}

impl<A: Machine> Pieces<A> {
    fn measure(&self) -> Figures {
        let mut held = Vec::with_capacity(BULK);
        // The first rounds split fresh blocks, and the cache grows to its limit.
        self.turns(&mut held, BULK, STRETCH, 3);
        let bulks = self.turns(&mut held, BULK, STRETCH, self.repeats.bulks);
        self.turns(&mut held, BURST, BURST, 1);
        let bursts = self.turns(&mut held, BURST, BURST, self.repeats.bursts);
        [bursts.0, bursts.1, bulks.0, bulks.1]
    }

    /// Allocates `pages` pages and frees them in the same order, `count` times. Returns ns per page
    /// for allocation and free: medians over stretches of `stretch` pages.
    fn turns(&self, held: &mut Vec<Pfn>, pages: usize, stretch: usize, count: usize) -> (f64, f64) {
        let (mut alloc_ns, mut free_ns) = (Vec::new(), Vec::new());
        for _ in 0..count {
            for _ in 0..pages / stretch {
                let start_ns = A::now_ns();
                (0..stretch).for_each(|_| held.push(self.alloc()));
                alloc_ns.push(A::now_ns() - start_ns);
            }
            for pages in held.chunks(stretch) {
                let start_ns = A::now_ns();
                pages.iter().for_each(|&pfn| self.frames.free_pages(pfn, Order::ZERO));
                free_ns.push(A::now_ns() - start_ns);
            }
            held.clear();
        }
        let median_ns = |mut times: Vec<u64>| {
            times.sort_unstable();
            times[times.len() / 2] as f64 / stretch as f64
        };
        (median_ns(alloc_ns), median_ns(free_ns))
    }

    #[inline]
    fn alloc(&self) -> Pfn {
        let pfn = self.frames.alloc_pages(Order::ZERO, MigrateType::Movable, Gfp::KERNEL);
        pfn.unwrap_or_else(|error| panic!("most of the memory is free: {error:?}"))
    }
}

impl<A: Machine> Callbacks for Pieces<A> {
    fn ipi(&self, _: Ipi) {}
    fn timer(&self) {}
    fn idle_enter(&self) {}
    fn idle_exit(&self) {}
    fn context_switch(&self) {}
    fn task(&self, _: TaskEntry) {
        let figures = self.measure();
        *self.found.lock().unwrap_or_else(PoisonError::into_inner) = Some(figures);
    }
    fn cpu_dying(&self) -> bool {
        true
    }
    fn cpu_down_prepare(&self, _: CpuId) {}
    fn cpu_dead(&self, _: CpuId) {}
    fn cpu_online(&self, _: CpuId) {}
}

fn deaf(_: CpuId) -> Box<dyn Probe> {
    Box::new(())
}
