//! Instructions of a kernel, by function and by hold of a lock, while a program runs round after
//! round. An emulator counts them, so they are the same on every computer, and at every time: no
//! time is measured, and cache misses, waits and speculation do not show.
//!
//! | module | what it has |
//! |---|---|
//! | `counts` | the lines of the plugin (`plugin/instructions.c`) for each round |
//! | `summary` | medians over rounds |

mod counts;
mod summary;

pub use summary::{Function, Hold, Spread, Summary};

use crate::guest::{Job, JobFile};
use crate::image::Image;
use crate::machine::{BootError, Ended, Machine};
use crate::plugins::{Kind, Observation, Observed};
use crate::symbols::Table;
use counts::Round;
use std::io::Read;

/// The counts of a machine's plugin.
#[derive(Clone, Debug)]
pub struct Counted {
    /// How the machine ended.
    pub ended: Ended,
    /// The command's standard output.
    pub output: Vec<u8>,
    /// Its standard error.
    pub error: Vec<u8>,
    /// The functions of its kernel.
    table: Table,
    rounds: Vec<Round>,
}

impl Counted {
    /// The number of rounds.
    pub fn rounds(&self) -> usize {
        self.rounds.len()
    }
    /// Returns medians over some rounds, in which the program counted so many operations each.
    pub fn summary(&self, rounds: std::ops::Range<usize>, ops: &[u64]) -> Summary {
        summary::summary(&self.table, &self.rounds[rounds], ops)
    }
    /// Whether the kernel has this function.
    pub fn has_function(&self, name: &str) -> bool {
        self.table.has(name)
    }
}

/// Boots an image with the plugin, and does a job that places marks ([`crate::marks`]).
///
/// # Errors
/// The machine failed, or the plugin.
pub fn count(
    machine: &Machine,
    image: &Image,
    job: &Job,
    files: &[JobFile],
    is_interrupted: &dyn Fn() -> bool,
    again: &dyn Fn(&BootError),
) -> Result<Counted, BootError> {
    let kind = Kind::Instructions;
    let observation = Observation { kind, machine, image, job, files, is_interrupted, again };
    let Observed { ended, output, error, table, results, .. } = observation.run(|mut from| {
        let mut text = String::new();
        from.read_to_string(&mut text)?;
        counts::rounds(&text)
    })?;
    Ok(Counted { ended, output, error, table, rounds: results })
}
