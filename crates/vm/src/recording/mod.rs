//! Recordings of a kernel's operations, while programs on all CPUs take turns ([`crate::marks`]).
//!
//! | module | what it has |
//! |---|---|
//! | `records` | a record of the plugin (`plugin/operations.c`) |
//! | `raw` | the records as operations |
//! | `packed` | records in little memory |
//! | `usage` | which CPUs use each line and each lock |
//! | `reduce` | from records to operations |
//! | `answers` | calls of other CPUs, and what these do then |
//! | `ticks` | interrupts of timers, and RCU callbacks in them |
//! | `objects` | names of data |
//! | `layout`, `btf` | what is at an address: caches of objects, nodes, CPUs; the kernel's types |

mod answers;
mod btf;
mod layout;
mod objects;
mod packed;
mod raw;
mod records;
mod reduce;
mod ticks;
mod usage;

pub use layout::STACK;
use reduce::Counts;
pub use reduce::{PAGE_TABLE, Taken};

use crate::guest::{Job, JobFile};
use crate::image::Image;
use crate::machine::{BootError, Ended, GuestMemory, Machine};
use crate::plugins::{Kind, Observation, Observed};
use crate::symbols::Table;
use mmscale_lift::{Origin, Recording};
use raw::RawOperation;

/// The raw records of a machine.
#[derive(Debug)]
pub struct Recorded {
    /// How the machine ended.
    pub ended: Ended,
    /// The command's standard output.
    pub output: Vec<u8>,
    /// Its standard error.
    pub error: Vec<u8>,
    table: Table,
    operations: Vec<RawOperation>,
    /// The memory of the machine at its end.
    memory: Option<GuestMemory>,
}

impl Recorded {
    /// The number of operations, in the order in which they were done.
    pub fn operations(&self) -> usize {
        self.operations.len()
    }
    /// Whether the kernel has this function.
    pub fn has_function(&self, name: &str) -> bool {
        self.table.has(name)
    }
    /// Returns the recording. `ops` are the counts of each operation, `sleeps` is the number of
    /// those in which their program slept, and `class_of` names a lock by where it is taken.
    ///
    /// # Errors
    /// Why nothing is left of it.
    pub fn recording(
        &self,
        origin: Origin,
        ops: &[u64],
        sleeps: u64,
        class_of: &dyn Fn(&Taken<'_>) -> String,
    ) -> Result<Recording, String> {
        let memory = self.memory.as_ref();
        let counts = Counts { ops, sleeps };
        reduce::recording(&self.table, memory, &self.operations, origin, counts, class_of)
    }
}

/// Boots an image with the plugin, and does a job that places marks.
///
/// # Errors
/// The machine failed, or the plugin.
pub fn record(
    machine: &Machine,
    image: &Image,
    job: &Job,
    files: &[JobFile],
    is_interrupted: &dyn Fn() -> bool,
    again: &dyn Fn(&BootError),
) -> Result<Recorded, BootError> {
    let kind = Kind::Operations;
    let observation = Observation { kind, machine, image, job, files, is_interrupted, again };
    let Observed { ended, output, error, table, results, memory } =
        observation.run(raw::operations)?;
    Ok(Recorded { ended, output, error, table, operations: results, memory })
}
