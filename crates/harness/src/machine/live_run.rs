//! Requests to and results from the live kernel, in types that do not depend on Linux.

use crate::param::ParamSpec;
use crate::study::SeedResult;
#[cfg(feature = "live")]
use mmscale_document::Watch;
use mmscale_document::{LockRow, Side, Wait, Watched};
use mmscale_system::CpuTime;
use std::collections::btree_map::Entry;

/// The result of a run on the live kernel.
#[derive(Debug)]
pub struct LiveRun {
    /// Duration of the run, in ns.
    pub wall_ns: u64,
    /// Whether a memory group limited the run; otherwise only its plan did.
    pub grouped: bool,
    /// CPU time of all processes of the run, from fork to exit.
    pub cpu: CpuTime,
    /// Page faults of all processes of the run.
    pub faults: u64,
    /// Calls of process_mrelease that reaped memory.
    pub releases: Releases,
    /// Observations of the kernel; `None` without permission.
    pub seen: Option<Watched>,
    /// Observed lock waits as rows of a document.
    pub locks: Vec<LockRow>,
}

impl LiveRun {
    /// Adds host metrics: the cost of the run, whether a memory group limited it (1) or only its
    /// plan did (0), and whether the kernel was observed.
    pub fn add_host_metrics(&self, result: &mut SeedResult) {
        let limited = f64::from(u8::from(self.grouped));
        result.host_metrics.insert("memory_group".to_owned(), limited);
        result.host_metrics.insert("wall_s".to_owned(), self.wall_ns as f64 / 1e9);
        let watched = f64::from(u8::from(self.seen.is_some()));
        result.host_metrics.insert("watched".to_owned(), watched);
        let Some(seen) = &self.seen else { return };
        let (others, _, _) = seen.sum(|wait| wait.side == Side::Other);
        result.host_metrics.insert("waits_of_others".to_owned(), others as f64);
        result.locks.clone_from(&self.locks);
        for wait in &seen.waits {
            let name = format!("{}_wait_ns", wait.class);
            match result.histograms.entry(name) {
                Entry::Vacant(place) => _ = place.insert(wait.histogram()),
                Entry::Occupied(mut place) => place.get_mut().merge(&wait.histogram()),
            }
        }
        for call in seen.calls.iter().take(CALLS_SHOWN) {
            let name = format!("ipi_delivery_{}_ns", call.function);
            match result.histograms.entry(name) {
                Entry::Vacant(place) => _ = place.insert(call.delivery.histogram()),
                Entry::Occupied(mut place) => place.get_mut().merge(&call.delivery.histogram()),
            }
        }
    }
    /// Returns the waits that `meant` selects. `None` if the kernel was not observed.
    pub fn waits(&self, meant: impl Fn(&Wait) -> bool) -> Option<Waits> {
        let (count, total_ns, max_ns) =
            self.seen.as_ref()?.sum(|wait| wait.side != Side::Other && meant(wait));
        Some(Waits { count, total_ns, max_ns })
    }
}

/// Calls of process_mrelease that reaped memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Releases {
    /// Number of calls.
    pub count: u64,
    /// The longest call, in ns.
    pub max_ns: u64,
}

/// Statistics of lock waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// Number of waits.
    pub count: u64,
    /// Total wait, in ns.
    pub total_ns: u64,
    /// The longest wait, in ns.
    pub max_ns: u64,
}

impl Waits {
    /// Returns the mean wait, in ns; 0 without waits.
    pub fn mean_ns(self) -> f64 {
        self.total_ns as f64 / self.count.max(1) as f64
    }
}

/// Number of cross-CPU functions whose times are shown.
const CALLS_SHOWN: usize = 4;

/// Maximum requirements of a run on a real computer.
#[derive(Clone, Copy, Debug)]
pub struct Needs {
    /// Processes that exist at the same time.
    pub processes: u64,
    /// Pages that these processes use in total.
    pub pages: u64,
}

/// Observation requests and requirements of a run on the live kernel.
#[derive(Clone, Debug)]
#[cfg(feature = "live")]
pub(crate) struct LiveRequest {
    /// Kinds of events to observe.
    pub(crate) watches: &'static [Watch],
    /// Start and end of the observation, in ns of the run's clock.
    pub(crate) window_ns: (u64, u64),
    pub(crate) needs: Needs,
    /// Whether to observe the holders of locks.
    pub(crate) blame: bool,
}

/// Values of the parameter `watch`.
const WATCH: &[&str] = &["auto", "off", "locks", "holders", "all"];

/// Returns the parameter that all studies have on the live kernel.
pub(crate) fn watch_param() -> ParamSpec {
    let help = "observation of the kernel by BPF: auto (all events, if permitted), off, locks \
                (lock waits), holders (lock waits and zone lock holders), all (every event, or \
                fail) (live)";
    ParamSpec::choice("watch", "auto", WATCH, help)
}
