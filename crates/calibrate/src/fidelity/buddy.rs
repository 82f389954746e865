//! The three benchmarks of the LLFree paper's kernel module, for all orders: `bulk` allocates all
//! blocks and frees them in order, `rand` frees a random share of the blocks of all CPUs, `repeat`
//! allocates a block and frees it again and again. All call the page allocator directly.

use std::sync::{Arc, Mutex};

use mmscale_arch::{Order, Pfn};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::PageCheck;
use mmscale_harness::machine::{self, MachineSpec};
use mmscale_harness::{Interrupt, RunContext, StudyError};
use mmscale_kernel::Os;
use mmscale_sim::profile::Profile;
use mmscale_system::{System, ThreadSpec};

use super::bulk::wait_until;
use super::{SEED, as_of_6_0, with_caches_for};

/// Length of a phase. All CPUs begin a phase at a multiple of it.
const SLOT_NS: u64 = 400_000_000;
/// Blocks of a CPU if memory allows it.
const BLOCKS: usize = 16_384;
/// Share of the memory that all CPUs have, in percent.
const MEMORY_PERCENT: usize = 80;

/// The operations that are timed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// The allocations of `bulk`.
    BulkAlloc,
    /// The frees of `bulk`.
    BulkFree,
    /// The frees of `rand`.
    RandFree,
    /// Pairs of an allocation and a free.
    Repeat,
}

impl Phase {
    /// Returns the phase with this name.
    pub(crate) fn of(name: &str) -> Option<Self> {
        match name {
            "bulk alloc" => Some(Self::BulkAlloc),
            "bulk free" => Some(Self::BulkFree),
            "rand free" => Some(Self::RandFree),
            "repeat" => Some(Self::Repeat),
            _ => None,
        }
    }
}

#[derive(Clone, Copy)]
struct Buddy {
    phase: Phase,
    order: Order,
    cpus: usize,
    blocks: usize,
}

/// The sum over CPUs, in ns, and phases that were longer than their slot.
#[derive(Default)]
struct Times {
    total_ns: u64,
    overruns: u64,
}

/// Returns ns per operation of one CPU, as a mean over all CPUs that work, of a Linux 6.0 that
/// checks pages as `check` says.
pub(crate) fn ns_per_op(
    profile: &Profile,
    phase: Phase,
    order: Order,
    cpus: usize,
    check: PageCheck,
    interrupt: &Interrupt,
) -> Result<f64, StudyError> {
    let pages = profile.node_pages as usize * profile.topology.nodes;
    let room = pages * MEMORY_PERCENT / 100 / profile.topology.cpus / order.pages();
    let blocks = BLOCKS.min(room);
    let ctx = RunContext::on_simulator(with_caches_for(profile, blocks * order.pages()), interrupt);
    let mut spec = MachineSpec::new(&ctx, SEED);
    as_of_6_0(&mut spec.mm);
    spec.mm.alloc.check = check;
    let got = Arc::new(Mutex::new(Times::default()));
    let (buddy, own) = (Buddy { phase, order, cpus, blocks }, Arc::clone(&got));
    machine::run(spec, &mut machine::silent, Box::new(move |os: &Os| all(os, buddy, &own)))?;
    let got = got.lock().expect("the run is over");
    if got.overruns > 0 {
        let what = format!("{} phases were longer than {} ms", got.overruns, SLOT_NS / 1_000_000);
        return Err(StudyError::Machine(what));
    }
    Ok(got.total_ns as f64 / (cpus * blocks) as f64)
}

/// Runs a worker on each CPU.
fn all(os: &Os, buddy: Buddy, got: &Arc<Mutex<Times>>) {
    let pool = Arc::new(Mutex::new(vec![Vec::new(); buddy.cpus]));
    let start_ns = (os.clock_ns() / SLOT_NS + 1) * SLOT_NS;
    let threads: Vec<_> = (0..buddy.cpus)
        .map(|cpu| {
            let (got, pool) = (Arc::clone(got), Arc::clone(&pool));
            let spec = ThreadSpec::on(cpu);
            let body = Box::new(move |os: &Os| {
                let mine = worker(os, buddy, cpu, start_ns, &pool);
                let mut got = got.lock().expect("no worker panics while it adds");
                got.total_ns += mine.total_ns;
                got.overruns += mine.overruns;
            });
            os.spawn(spec, body).expect("the CPU exists and the run goes on")
        })
        .collect();
    threads.into_iter().for_each(|thread| os.join(thread).expect("one waiter a thread"));
}

/// The first round warms the caches; the second is measured.
fn worker(os: &Os, buddy: Buddy, cpu: usize, start_ns: u64, pool: &Mutex<Vec<Vec<Pfn>>>) -> Times {
    let inside = os.inside();
    let Buddy { phase, order, blocks, .. } = buddy;
    let alloc = || {
        let pfn = inside.alloc_pages(order, MigrateType::Movable);
        pfn.expect("the machine has memory for all workers")
    };
    let mut times = Times::default();
    for round in 0..2 {
        let at_ns = start_ns + 3 * round * SLOT_NS;
        let mut timed = |is_timed: bool, body: &mut dyn FnMut()| {
            let begin_ns = os.clock_ns();
            body();
            if is_timed && round == 1 {
                times.total_ns += os.clock_ns() - begin_ns;
            }
        };
        let mut late = u64::from(!wait_until(os, at_ns));
        let mut held = Vec::with_capacity(blocks);
        if phase == Phase::Repeat {
            timed(true, &mut || (0..blocks).for_each(|_| inside.free_pages(alloc(), order)));
        } else {
            timed(phase == Phase::BulkAlloc, &mut || held.extend((0..blocks).map(|_| alloc())));
        }
        pool.lock().expect("no worker panics while it has it")[cpu] = held;
        late += u64::from(!wait_until(os, at_ns + SLOT_NS));
        if cpu == 0 && phase == Phase::RandFree {
            shuffle(&mut pool.lock().expect("as above"), round + 1);
        }
        late += u64::from(!wait_until(os, at_ns + 2 * SLOT_NS));
        let held = std::mem::take(&mut pool.lock().expect("as above")[cpu]);
        timed(matches!(phase, Phase::BulkFree | Phase::RandFree), &mut || {
            held.iter().for_each(|&pfn| inside.free_pages(pfn, order));
        });
        times.overruns += late;
    }
    times
}

/// Exchanges the blocks of all CPUs at random; each keeps its number of blocks.
fn shuffle(pool: &mut [Vec<Pfn>], seed: u64) {
    let mut all: Vec<Pfn> = pool.iter().flatten().copied().collect();
    let mut state = seed;
    for last in (1..all.len()).rev() {
        // splitmix64 (Steele, Lea, Flood, 2014).
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^= word >> 31;
        all.swap(last, (word % (last as u64 + 1)) as usize);
    }
    let mut all = all.into_iter();
    pool.iter_mut()
        .for_each(|held| held.iter_mut().for_each(|pfn| *pfn = all.next().expect("as many")));
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmscale_sim::profile;

    /// A block of order 9 has 512 pages of 5.1 ns, at the clock of the profile.
    #[test]
    fn checks_in_the_hold_are_waited_for_by_all_and_others_by_one() {
        let profile = profile::load("x86-26").expect("it is built in");
        let ns = |cpus, check| {
            let order = Order::new(9).expect("it is an order");
            let interrupt = Interrupt::default();
            ns_per_op(&profile, Phase::BulkAlloc, order, cpus, check, &interrupt).expect("it runs")
        };
        let [one, four] = [1, 4].map(|cpus| {
            let never = ns(cpus, PageCheck::Never);
            [PageCheck::Refill, PageCheck::Alloc].map(|check| ns(cpus, check) - never)
        });
        let is_near = |got: f64, ns: f64| (got / ns - 1.0).abs() < 0.15;
        assert!(one.iter().all(|&ns| is_near(ns, 512.0 * 5.1)), "{one:?}");
        assert!(four[0] > 3.0 * one[0] && four[1] < 1.5 * one[1], "{four:?} {one:?}");
    }
}
