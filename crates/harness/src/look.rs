//! What a run on the live kernel is asked for, and what it left: nothing here is bound to Linux.

use crate::param::ParamSpec;
use crate::study::SeedResult;
#[cfg(feature = "live")]
use mmscale_document::Watch;
use mmscale_document::{LockRow, Side, Wait, Watched};
use mmscale_system::CpuTime;
use std::collections::btree_map::Entry;

/// What a run left.
#[derive(Debug)]
pub struct LiveRun {
    /// How long it took, in ns.
    pub wall_ns: u64,
    /// Whether a memory group kept it in bounds, or its plan alone.
    pub grouped: bool,
    /// CPU time of all processes of the run, from their forks to their ends.
    pub cpu: CpuTime,
    /// Calls of process_mrelease that helped.
    pub releases: Releases,
    /// What the kernel told meanwhile; nothing where it may not be asked.
    pub seen: Option<Watched>,
    /// Its waits as rows of a record.
    pub locks: Vec<LockRow>,
}

impl LiveRun {
    /// What the run cost, and whether a memory group kept it in bounds (1) or its plan alone (0),
    /// and whether the kernel was watched.
    pub fn tell_host(&self, result: &mut SeedResult) {
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
    /// Waits and their sum and longest; `None` where the kernel may not be asked.
    pub fn waits(&self, meant: impl Fn(&Wait) -> bool) -> Option<Waits> {
        let (count, total_ns, max_ns) =
            self.seen.as_ref()?.sum(|wait| wait.side != Side::Other && meant(wait));
        Some(Waits { count, total_ns, max_ns })
    }
}

/// Calls of process_mrelease that helped.
#[derive(Clone, Copy, Debug, Default)]
pub struct Releases {
    /// How many.
    pub count: u64,
    /// The longest, in ns.
    pub max_ns: u64,
}

/// Waits for some locks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// How many.
    pub count: u64,
    /// Their sum in ns.
    pub total_ns: u64,
    /// The longest in ns.
    pub max_ns: u64,
}

impl Waits {
    /// The mean in ns; 0 of none.
    pub fn mean_ns(self) -> f64 {
        self.total_ns as f64 / self.count.max(1) as f64
    }
}

/// Functions called on other CPUs whose times are shown.
const CALLS_SHOWN: usize = 4;

/// What a run needs of a real computer at most.
#[derive(Clone, Copy, Debug)]
pub struct Needs {
    /// Processes that there are at the same time.
    pub processes: u64,
    /// Pages that they have among them.
    pub pages: u64,
}

/// What is asked of the live kernel, and what a run needs there.
#[derive(Clone, Debug)]
#[cfg(feature = "live")]
pub(crate) struct Look {
    /// What is looked at.
    pub(crate) watches: &'static [Watch],
    /// When, in ns of the run's clock.
    pub(crate) window_ns: (u64, u64),
    pub(crate) needs: Needs,
}

/// How the kernel is watched.
const WATCH: &[&str] = &["auto", "off", "locks", "holders", "all"];

/// The parameter of all studies on the live kernel.
pub(crate) fn watch_param() -> ParamSpec {
    let help = "what the kernel is asked meanwhile: all that it may, nothing, waits for locks, who \
                holds them too, or all of it and every event (linux)";
    ParamSpec::choice("watch", "auto", WATCH, help)
}
