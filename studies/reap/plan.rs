//! The schedule of a run, from its parameters and its machine.

use super::layout::{Filled, Layout, Mapping, mappings};
use super::{Reap, Via};
use mmscale_document::Target;
use mmscale_harness::Env;
use std::sync::Arc;

/// Time until programs run.
const SETTLE_NS: u64 = 5_000_000;
/// Time between the completion of the victim's memory and the kill, in which batches drain and
/// writes end.
pub(super) const REST_NS: u64 = 25_000_000;
/// Time to create a page, and to write it to swap, by one thread.
const PAGE_NS: u64 = 2_500;
const SWAP_NS: u64 = 30_000;
/// Factor by which that may take longer on a real computer.
const HOST_TIMES: u64 = 4;
/// Memory in addition to the victim's pages, for page tables and watermarks.
const SPARE_1024: u64 = 128;
/// Size of the groups of pages of which some go to swap.
const STRETCH: u64 = 1024;

/// The schedule of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(super) via: Via,
    pub(super) mappings: Arc<[Mapping]>,
    /// Small pages that go to swap, in 1/1024.
    pub(super) swapped_1024: u64,
    pub(super) notice_ns: u64,
    pub(super) helpers: usize,
    /// Earliest time of the kill.
    pub(super) kill_ns: u64,
    /// Minimum time between the completion of the victim's memory and the kill.
    pub(super) rest_ns: u64,
}

impl Plan {
    /// Returns the CPU of the victim's first thread, which ends last.
    pub(super) fn victim_cpu(&self, cpus: usize) -> usize {
        match self.via {
            Via::Mrelease => 0,
            // The OOM reaper runs on the first CPU.
            Via::Oom => 1 % cpus,
        }
    }
    /// Returns the number of pages of the file that the victim maps.
    pub(super) fn file_pages(&self) -> u64 {
        let in_file = self.mappings.iter().filter(|mapping| !mapping.is_anonymous());
        in_file.map(|mapping| mapping.pages).sum()
    }
    /// Returns the number of pages that go to swap.
    pub(super) fn swapped_pages(&self) -> u64 {
        let mappings = self.mappings.iter().filter(|mapping| self.swaps(mapping));
        mappings.flat_map(|mapping| self.swapped_of(mapping)).map(|(_, pages)| pages).sum()
    }
    /// Returns whether some pages of a mapping go to swap.
    pub(super) fn swaps(&self, mapping: &Mapping) -> bool {
        self.swapped_1024 > 0 && mapping.filled == Filled::Whole && mapping.is_anonymous()
    }
    /// Returns the pages that go to swap, which are the first of each group: first page and number.
    pub(super) fn swapped_of(&self, mapping: &Mapping) -> impl Iterator<Item = (u64, u64)> {
        let (end, share_1024) = (mapping.first_page + mapping.pages, self.swapped_1024);
        let firsts = (mapping.first_page..end).step_by(STRETCH as usize);
        firsts.map(move |first| (first, STRETCH.min(end - first) * share_1024 / 1024))
    }
}

/// Returns an error if the machine is too small for the victim or its walkers.
fn refuse(env: &Env<Reap>, mappings: &[Mapping]) -> Result<(), String> {
    let (pages, room) = (env.params.pages, env.pages);
    let tables = match mappings[0].filled {
        Filled::Every(_) => mappings.iter().map(|mapping| mapping.pages / 512).sum(),
        Filled::Whole | Filled::Huge => pages / 512,
    };
    let wants = pages + tables + room * SPARE_1024 / 1024;
    if wants > room {
        return Err(format!(
            "a victim of {pages} pages needs {wants} pages with page tables and spare memory, but \
             the machine has {room}: decrease --set pages"
        ));
    }
    let (walkers, cpus) = (env.params.walkers, env.cpus());
    if walkers > cpus as u64 {
        return Err(format!(
            "{walkers} walkers need as many CPUs, but the machine has {cpus}: decrease --set \
             walkers, or use more CPUs"
        ));
    }
    if env.params.via == Via::Oom && walkers > 2 {
        return Err(format!(
            "cannot use {walkers} walkers with via=oom, which has the exit and a single reaper; \
             allowed: 1 or 2"
        ));
    }
    Ok(())
}

/// Plans a run. The error states what is impossible.
pub(super) fn plan(env: &Env<Reap>) -> Result<Plan, String> {
    let params = &env.params;
    let mappings = mappings(params.layout, params.pages, params.file_1024, env.seed);
    refuse(env, &mappings)?;
    let swapped_1024 = if params.layout == Layout::Huge { 0 } else { params.swapped_1024 };
    let page_ns = PAGE_NS + SWAP_NS * swapped_1024 / 1024;
    // Creating the victim's memory takes longer if all costs are higher, or cores small.
    let times = env.cost_scale().max(1.0) * env.slowest_times();
    let page_ns = (page_ns as f64 * times) as u64;
    // The time is unknown on a real computer, so the victim reports when it is ready. The
    // observation of a live kernel starts at the planned time.
    let making_ns = match env.on() {
        Target::Sim => params.pages * page_ns,
        Target::Live => params.pages * page_ns * HOST_TIMES,
        Target::Threads => 0,
    };
    Ok(Plan {
        via: params.via,
        mappings: mappings.into(),
        swapped_1024,
        notice_ns: (params.notice_ms * 1e6) as u64,
        helpers: params.walkers as usize - 1,
        kill_ns: SETTLE_NS + making_ns + REST_NS,
        rest_ns: REST_NS,
    })
}
