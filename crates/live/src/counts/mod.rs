//! Compares counts of the running kernel with those of the simulator: one program on both, from one
//! source, and the sizes of refills and drains, the times of ticks, the sizes of LRU batches,
//! flushes, interrupts, acquisitions of mmap_lock and page faults that it causes.
//!
//! | module | what it has |
//! |---|---|
//! | `program` | the program, over any `System` |
//! | `kernel` | facts about the running kernel; its page caches |
//! | `events` | the tracepoints of a trace |
//! | `tracing` | a tracing instance, and the lines of its trace |
//! | `recording` | the program on the kernel: facts and traces, as a document |
//! | `on_kernel` | the counts of a recording |
//! | `reading` | what a trace says of pages and folios |
//! | `armings` | what it says of upkeep ticks |
//! | `effects` | what it says of the effects of calls |
//! | `on_simulator` | the program on the simulator, on a machine like this computer |
//! | `observed` | the counts of one side |
//! | `compare` | the rows, and why sides may differ |

mod armings;
mod compare;
mod effects;
mod events;
mod kernel;
mod observed;
mod on_kernel;
mod on_simulator;
mod program;
mod reading;
mod recording;
mod tracing;

pub use recording::Recording;
pub(crate) use tracing::clear;

use mmscale_harness::Interrupt;
use serde::Serialize;
use thiserror::Error;

/// Why there is no comparison.
#[derive(Debug, Error)]
pub enum CountsError {
    /// The kernel cannot be compared.
    #[error("{0}")]
    Needs(String),
    /// The kernel lacks tracepoints.
    #[error("this kernel has no tracepoints {0}: use one that has them, on x86")]
    Events(String),
    /// The kernel could not be traced.
    #[error("{0}")]
    Trace(String),
    /// Events of a CPU were lost.
    #[error("events of CPU {0} were lost: stop other programs and repeat")]
    Lost(usize),
    /// A document of a recording could not be read.
    #[error("it is no recording of `live counts --record`: {0}")]
    Recording(String),
    /// The program could not run.
    #[error("{0}")]
    Run(String),
    /// The user interrupted the comparison.
    #[error("interrupted before anything was compared")]
    Interrupted,
}

/// The result of the comparison of a row.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Both sides did the same.
    Equal,
    /// They differ, for a known reason.
    Explained(&'static str),
    /// They differ, and no reason is known.
    Different,
}

/// One compared count.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Row {
    /// The name of the count.
    pub what: String,
    /// The kernel's numbers.
    pub kernel: String,
    /// The simulator's numbers.
    pub simulated: String,
    /// The result of the comparison.
    pub verdict: Verdict,
}

/// Counts of one mechanism.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Section {
    /// The mechanism.
    pub title: &'static str,
    /// The columns of the counts, if a row has several.
    pub columns: Option<String>,
    /// Its rows.
    pub rows: Vec<Row>,
}

/// The comparison.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Counts {
    /// Always `mmscale/counts/1`.
    pub schema: &'static str,
    /// The release of the kernel.
    pub release: String,
    /// CPUs of the program's node.
    pub cpus: usize,
    /// The policies of the simulated kernel that are not the default, by the version.
    pub policies: String,
    /// Jiffies a second.
    pub hz: u32,
    /// Pages of the program's zone.
    pub zone_pages: u64,
    /// Pages in the page cache of CPU 0, and its `high`, before the program took pages.
    pub cached_pages: u32,
    /// See `cached_pages`.
    pub high_pages: u32,
    /// The rows, by mechanism.
    pub sections: Vec<Section>,
}

impl Counts {
    /// All rows.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.sections.iter().flat_map(|section| &section.rows)
    }
}

/// Runs the program of a recording on the simulator, and compares both sides.
pub fn counts(recording: &Recording, interrupt: &Interrupt) -> Result<Counts, CountsError> {
    let kernel = kernel::Kernel::of(&recording.facts)?;
    let live = on_kernel::OnKernel::of(recording, &kernel)?;
    let simulated = on_simulator::run(&kernel, &live, recording.busy_ns, interrupt)?;
    Ok(Counts {
        schema: "mmscale/counts/1",
        release: kernel.release.clone(),
        cpus: kernel.cpus,
        policies: mmscale_harness::policies_in(kernel.version),
        hz: kernel.hz.get(),
        zone_pages: live.zone_pages,
        cached_pages: live.looked,
        high_pages: live.start.high,
        sections: compare::sections(&kernel, &live, &simulated),
    })
}
