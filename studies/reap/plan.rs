//! What a run does and when, from its parameters and its machine.

use super::layout::{Filled, Layout, Mapping, mappings};
use super::{Reap, Via};
use mmscale_document::On;
use mmscale_harness::Env;
use std::sync::Arc;

/// Until programs run.
const SETTLE_NS: u64 = 5_000_000;
/// From there being all of the victim's memory to the signal: batches drain, writes end.
pub(super) const REST_NS: u64 = 25_000_000;
/// Making a page, and sending it to swap, without help.
const PAGE_NS: u64 = 2_500;
const SWAP_NS: u64 = 30_000;
/// How much longer that may take on a real computer.
const HOST_TIMES: u64 = 4;
/// More memory than the victim wants: for page tables, and for watermarks.
const SPARE_1024: u64 = 128;
/// Pages that are looked at together when some of them go to swap.
const STRETCH: u64 = 1024;

/// What a run does and when.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(super) via: Via,
    pub(super) mappings: Arc<[Mapping]>,
    /// Of each 1024 pages of small ones, so many go to swap.
    pub(super) swapped_1024: u64,
    pub(super) notice_ns: u64,
    pub(super) helpers: usize,
    /// The victim is not killed before.
    pub(super) kill_ns: u64,
    /// How long after its memory is there it may be killed.
    pub(super) rest_ns: u64,
}

impl Plan {
    /// The CPU of the victim's first thread, which is the last to end.
    pub(super) fn victim_cpu(&self, cpus: usize) -> usize {
        match self.via {
            Via::Mrelease => 0,
            // The reaper of the out-of-memory killer lives on the first.
            Via::Oom => 1 % cpus,
        }
    }
    /// Pages of the file that it maps.
    pub(super) fn file_pages(&self) -> u64 {
        let in_file = self.mappings.iter().filter(|mapping| !mapping.is_anonymous());
        in_file.map(|mapping| mapping.pages).sum()
    }
    /// Pages that go to swap.
    pub(super) fn swapped_pages(&self) -> u64 {
        let mappings = self.mappings.iter().filter(|mapping| self.swaps(mapping));
        mappings.flat_map(|mapping| self.swapped_of(mapping)).map(|(_, pages)| pages).sum()
    }
    /// Whether some pages of a mapping go to swap.
    pub(super) fn swaps(&self, mapping: &Mapping) -> bool {
        self.swapped_1024 > 0 && mapping.filled == Filled::Whole && mapping.is_anonymous()
    }
    /// The first pages of every stretch: from which page, and how many.
    pub(super) fn swapped_of(&self, mapping: &Mapping) -> impl Iterator<Item = (u64, u64)> {
        let (end, share_1024) = (mapping.first_page + mapping.pages, self.swapped_1024);
        let firsts = (mapping.first_page..end).step_by(STRETCH as usize);
        firsts.map(move |first| (first, STRETCH.min(end - first) * share_1024 / 1024))
    }
}

/// Why the machine cannot take the victim or its walkers, if so.
fn refuse(env: &Env<Reap>, mappings: &[Mapping]) -> Result<(), String> {
    let (pages, room) = (env.params.pages, env.pages);
    let tables = match mappings[0].filled {
        Filled::Every(_) => mappings.iter().map(|mapping| mapping.pages / 512).sum(),
        Filled::Whole | Filled::Huge => pages / 512,
    };
    let wants = pages + tables + room * SPARE_1024 / 1024;
    if wants > room {
        return Err(format!(
            "a victim of {pages} pages with its page tables and some room takes {wants}, and the \
             machine has {room}: make it smaller (--set pages)"
        ));
    }
    let (walkers, cpus) = (env.params.walkers, env.cpus());
    if walkers > cpus as u64 {
        return Err(format!(
            "{walkers} walkers want as many CPUs, and the machine has {cpus}: take fewer (--set \
             walkers), or more CPUs"
        ));
    }
    if env.params.via == Via::Oom && walkers > 2 {
        return Err(format!(
            "{walkers} walkers with via=oom: there is the exit, and one reaper for all address \
             spaces; take 1 or 2"
        ));
    }
    Ok(())
}

/// The plan of a run. The error says what does not fit.
pub(super) fn plan(env: &Env<Reap>) -> Result<Plan, String> {
    let params = &env.params;
    let mappings = mappings(params.layout, params.pages, params.file_1024, env.seed);
    refuse(env, &mappings)?;
    let swapped_1024 = if params.layout == Layout::Huge { 0 } else { params.swapped_1024 };
    let page_ns = PAGE_NS + SWAP_NS * swapped_1024 / 1024;
    // Where everything costs more, making the victim's memory takes longer.
    let page_ns = (page_ns as f64 * env.cost_scale().max(1.0)) as u64;
    // How long that takes on a real computer is not known. The victim says when it is ready; what
    // is watched in a live kernel is watched from the planned time.
    let making_ns = match env.on() {
        On::Sim => params.pages * page_ns,
        On::Linux => params.pages * page_ns * HOST_TIMES,
        On::Threads => 0,
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
