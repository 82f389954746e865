//! Accuracy of the simulator's predictions, compared with published measurements and with this
//! computer's own threads.
//!
//! Two comparisons use one program ([`bulk`]). The published rows are those of the LLFree paper's
//! benchmark for Linux 6.0 on a Xeon Gold 5320. The profile `x86-26` was fitted to the rows of one
//! core, published hold times of zone->lock, and the rows of 8 cores (see `machines/x86-26.toml`);
//! the other rows are predictions. The profile of this computer comes from `mmscale profile
//! calibrate`, which measures single CPUs and transfers between two CPUs, never this program.
//! The third comparison is of single pages on one CPU ([`pages`]), from which some costs are
//! derived.

mod alone;
mod buddy;
mod bulk;
mod pages;
mod rwsem;
mod spin;

use crate::{CalibrateError, Speed};
use mmscale_document::{LockRecord, LockRow, Target};
use mmscale_harness::machine::{self, MachineSpec};

pub(crate) use buddy::{Phase, ns_per_op};
use bulk::{Bulk, NsPerPage};
use mmscale_frames::page_alloc::{BulkHold, HighPolicy, PageCheck};
use mmscale_harness::{Interrupt, RunContext, StudyError};
use mmscale_kernel::Os;
use mmscale_mm::mm::MmConfig;
use mmscale_sim::profile::Profile;
pub use pages::{ONE_CPU, Step, measured_on, one_cpu, one_step};
pub(crate) use rwsem::ops_per_s;
pub(crate) use spin::turns_per_s;
use std::sync::{Arc, Mutex};

/// Linux 6.0, order 0, bulk: cores, ns per page allocated, ns per page freed. Source: the LLFree
/// paper's published raw results, Xeon Gold 5320, 26 cores, bare metal.
pub const LINUX_6_0_BULK: [(usize, f64, f64); 6] = [
    (1, 94.0, 90.0),
    (2, 105.0, 96.0),
    (4, 150.0, 173.0),
    (8, 298.0, 354.0),
    (16, 599.0, 731.0),
    (26, 984.0, 1241.0),
];

/// Hold time of zone->lock for a batch of 63 order-0 pages under load on an Ice Lake server: mean
/// ns for an allocation and a free. Source: kernel mailing list, Huang Ying.
pub const ICE_LAKE_HOLD_NS: (f64, f64) = (2020.0, 2210.0);

/// The seed of the simulated runs.
pub const SEED: u64 = 1;

/// Hold time of zone->lock in the program on a number of CPUs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hold {
    /// Number of concurrently running CPUs.
    pub cpus: usize,
    /// Mean hold time in refills of page caches, in ns.
    pub alloc_ns: f64,
    /// Mean hold time in drains of page caches, in ns.
    pub free_ns: f64,
}

/// One row of a comparison, in ns per page.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ComparisonRow {
    /// Number of concurrently running CPUs.
    pub cpus: usize,
    /// Allocation: real, simulated.
    pub alloc: Pair,
    /// Free: real, simulated.
    pub free: Pair,
}

/// A measured value and its prediction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    /// The measured value.
    pub real: f64,
    /// The simulated value.
    pub simulated: f64,
}

impl Pair {
    /// Returns the error of the prediction, in percent of the measured value.
    pub fn error_percent(self) -> f64 {
        (self.simulated / self.real - 1.0) * 100.0
    }
}

/// Pages of a thread here.
const PUBLISHED_PAGES: usize = 16_384;
/// Pages of a thread in llfree-bench: `allocs` of its meta.json.
const LLFREE_PAGES: usize = 1_290_555;

/// Returns the profile for a run of `pages` pages a thread in place of [`LLFREE_PAGES`]: caches
/// that are smaller by the same factor keep as large a part of the records.
fn with_caches_for(profile: &Profile, pages: usize) -> Profile {
    let mut profile = profile.clone();
    let kib = &mut profile.costs.cluster_cache_kib;
    *kib = (*kib as usize * pages).div_ceil(LLFREE_PAGES).max(1) as u32;
    profile
}

/// Returns the CPUs of this computer that the process may use.
pub fn host_cpus() -> usize {
    mmscale_threads::host_cpus()
}

/// Predicts the published rows with `profile`. Also returns the hold times of zone->lock in these
/// runs.
pub fn published(
    profile: &Profile,
    interrupt: &Interrupt,
) -> Result<(Vec<ComparisonRow>, Vec<Hold>), StudyError> {
    let (mut rows, mut holds) = (Vec::new(), Vec::new());
    let profile = &with_caches_for(profile, PUBLISHED_PAGES);
    for (cpus, alloc, free) in LINUX_6_0_BULK {
        let bulk = Bulk { cpus, pages_per_cpu: PUBLISHED_PAGES, rounds: 2, slot_ns: 100_000_000 };
        let (got, locks) = simulated(profile, bulk, interrupt)?;
        rows.push(ComparisonRow {
            cpus,
            alloc: Pair { real: alloc, simulated: got.alloc },
            free: Pair { real: free, simulated: got.free },
        });
        // The first round touches memory that was never allocated, so it is excluded here, too.
        let (_, warm_up) = simulated(profile, Bulk { rounds: 0, ..bulk }, interrupt)?;
        let mean_ns = |function| mean_hold_ns(&locks, &warm_up, function);
        let (alloc_ns, free_ns) = (mean_ns("rmqueue_bulk"), mean_ns("free_pcppages_bulk"));
        holds.push(Hold { cpus, alloc_ns, free_ns });
    }
    Ok((rows, holds))
}

/// Compares this computer's threads with a simulation of it, on 1 to all of its CPUs. Both sides
/// report the median stretch of the program.
///
/// Computers change their speed within seconds. Therefore the pieces from which the profile was
/// made are measured again, on single CPUs, right before and after each of `repeats` runs, and the
/// measured value is scaled to the speed of the profile. The median over runs is returned.
pub fn this_computer(
    profile: &Profile,
    repeats: usize,
    interrupt: &Interrupt,
) -> Result<Vec<ComparisonRow>, StudyError> {
    let speed = Speed::of(profile).map_err(refused)?;
    let mut rows = Vec::new();
    for cpus in 1..=host_cpus() {
        let bulk = Bulk { cpus, pages_per_cpu: 16_384, rounds: 8, slot_ns: 40_000_000 };
        let (simulated, _) = simulated(profile, bulk, interrupt)?;
        let (mut alloc, mut free) = (Vec::new(), Vec::new());
        for _ in 0..repeats {
            let before = speed.slowness().map_err(refused)?;
            let (real, _) =
                undisturbed(&RunContext::new(Target::Threads, host_cpus(), interrupt), bulk)?;
            let slowness = (before + speed.slowness().map_err(refused)?) / 2.0;
            alloc.push(real.median_alloc / slowness);
            free.push(real.median_free / slowness);
        }
        rows.push(ComparisonRow {
            cpus,
            alloc: Pair { real: median(alloc), simulated: simulated.median_alloc },
            free: Pair { real: median(free), simulated: simulated.median_free },
        });
    }
    Ok(rows)
}

/// Repeats the measurement if a phase was longer than its slot because other programs used the CPU.
fn undisturbed(ctx: &RunContext, bulk: Bulk) -> Result<(NsPerPage, Vec<LockRow>), StudyError> {
    const TRIES: usize = 20;
    let tries = (1..TRIES)
        .map(|_| measure(ctx, bulk))
        .find(|run| !matches!(run, Err(StudyError::Machine(_))));
    tries.unwrap_or_else(|| measure(ctx, bulk))
}

fn refused(why: CalibrateError) -> StudyError {
    StudyError::Machine(why.to_string())
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn simulated(
    profile: &Profile,
    bulk: Bulk,
    interrupt: &Interrupt,
) -> Result<(NsPerPage, Vec<LockRow>), StudyError> {
    measure(&RunContext::on_simulator(profile.clone(), interrupt), bulk)
}

fn measure(ctx: &RunContext, bulk: Bulk) -> Result<(NsPerPage, Vec<LockRow>), StudyError> {
    let got = Arc::new(Mutex::new(NsPerPage::default()));
    let mut spec = MachineSpec::new(ctx, SEED);
    as_of_6_0(&mut spec.mm);
    let own = Arc::clone(&got);
    let program = Box::new(move |os: &Os| {
        *own.lock().expect("only this program uses it") = bulk::run(os, bulk);
    });
    let run = machine::run(spec, &mut machine::silent, program)?;
    let got = *got.lock().expect("the run is over");
    if got.overruns > 0 {
        return Err(StudyError::Machine(format!(
            "{} phases of the bulk program were longer than {} ms: the computer is too busy; stop \
             other programs and repeat",
            got.overruns,
            bulk.slot_ns / 1_000_000
        )));
    }
    Ok((got, run.locks))
}

/// Linux 6.0 did not tune its page caches: refills were of one batch, drains doubled, and `high`
/// was the low watermark divided by the number of CPUs, which is 1/672 of a machine with 64 GiB. A
/// refill checked its pages.
fn as_of_6_0(mm: &mut MmConfig) {
    mm.alloc.high = HighPolicy::Watermark;
    mm.alloc.hold = BulkHold::Whole;
    mm.alloc.check = PageCheck::Refill;
    mm.alloc.high_fraction = Some(672);
}

/// Returns the mean hold time of zone->lock in `function` in a run after its warm-up, in ns.
fn mean_hold_ns(run: &[LockRow], warm_up: &[LockRow], function: &str) -> f64 {
    let sum = |rows: &[LockRow]| {
        let rows = LockRecord::aggregate(rows).into_iter();
        rows.filter(|row| row.class == "zone" && row.site == function)
            .fold((0, 0), |sum, row| (sum.0 + row.hold_total_ns, sum.1 + row.acquisitions))
    };
    let (all, before) = (sum(run), sum(warm_up));
    (all.0 - before.0) as f64 / (all.1 - before.1).max(1) as f64
}
