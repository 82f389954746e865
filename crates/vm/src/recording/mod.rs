//! Recordings of a kernel's operations, while programs on all CPUs take turns ([`crate::marks`]).
//!
//! | module | what it has |
//! |---|---|
//! | `raw` | the records of the plugin (`plugin/operations.c`) |
//! | `usage` | which CPUs use each line and each lock |
//! | `reduce` | from records to operations |
//! | `objects` | names of data |

mod objects;
mod raw;
mod reduce;
mod usage;

pub use reduce::Taken;

use crate::frames::Frame;
use crate::guest::{Job, JobFile};
use crate::image::Image;
use crate::machine::{Accelerator, BootError, Ended, Machine, Pipe, Plugin, host};
use crate::plugins::{self, Kind};
use crate::symbols::Table;
use mmscale_lift::{Origin, Recording};
use raw::RawOperation;
use std::io::{self, Write};
use std::thread;

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
    /// Returns the recording. `ops` are the counts of each operation, and `class_of` names a lock
    /// by where it is taken.
    ///
    /// # Errors
    /// Why nothing is left of it.
    pub fn recording(
        &self,
        origin: Origin,
        ops: &[u64],
        class_of: &dyn Fn(&Taken<'_>) -> String,
    ) -> Result<Recording, String> {
        reduce::recording(&self.table, &self.operations, origin, ops, class_of)
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
    let machine = Machine { accelerator: Accelerator::Emulation, ..machine.clone() };
    let job = Job { wants_symbols: true, ..job.clone() };
    match attempt(&machine, image, &job, files, is_interrupted) {
        Err(why) if why.may_be_of_the_emulator() => {
            again(&why);
            attempt(&machine.once_more(), image, &job, files, is_interrupted)
        }
        done => done,
    }
}

fn attempt(
    machine: &Machine,
    image: &Image,
    job: &Job,
    files: &[JobFile],
    is_interrupted: &dyn Fn() -> bool,
) -> Result<Recorded, BootError> {
    let version = plugins::interface()?;
    let pipes = host("make a pipe");
    let (symbols, records) = (Pipe::new().map_err(&pipes)?, Pipe::new().map_err(&pipes)?);
    let library = plugins::library(Kind::Operations, version);
    let plugin =
        Plugin::new(&library, symbols.from, records.to).map_err(host("make a file in memory"))?;
    let mut to_plugin = Some(std::fs::File::from(symbols.to));
    let from_plugin = records.from;
    // The pipe ends with QEMU, and with `plugin`, which is dropped below.
    let reader = thread::Builder::new().name("records".to_owned());
    let reader = reader.spawn(move || raw::operations(from_plugin));
    let reader = reader.map_err(host("start a thread"))?;
    let mut table = Table::default();
    let (mut output, mut error) = (Vec::new(), Vec::new());
    let mut seen = |frame: Frame| -> io::Result<()> {
        match frame {
            Frame::Symbols(deflated) => {
                table = Table::inflate(&deflated)?;
                // The plugin waits for it. It ends the machine if it gets none.
                if let Some(mut to) = to_plugin.take() {
                    to.write_all(&table.for_plugin())?;
                }
            }
            Frame::Output(bytes) => output.extend(bytes),
            Frame::Error(bytes) => error.extend(bytes),
            Frame::Up(_) | Frame::Exit(_) | Frame::Failed(_) => {}
        }
        Ok(())
    };
    let ended = machine.boot(image, job, files, Some(&plugin), is_interrupted, &mut seen);
    drop(plugin);
    let read = reader.join().map_err(|_| io::Error::other("its reader failed"));
    let operations = read.flatten().map_err(host("read the plugin's records"));
    let (ended, operations) = (ended?, operations?);
    Ok(Recorded { ended, output, error, table, operations })
}
