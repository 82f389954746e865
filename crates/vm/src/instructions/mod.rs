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

use crate::frames::Frame;
use crate::guest::{Job, JobFile};
use crate::image::Image;
use crate::machine::{Accelerator, BootError, Ended, Machine, Pipe, Plugin, host};
use crate::plugins::{self, Kind};
use crate::symbols::Table;
use counts::Round;
use std::io::{self, Read, Write};
use std::thread;

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
    // Another processor than an emulated one has no plugin.
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
) -> Result<Counted, BootError> {
    let version = plugins::interface()?;
    let pipes = host("make a pipe");
    let (symbols, counts) = (Pipe::new().map_err(&pipes)?, Pipe::new().map_err(&pipes)?);
    let library = plugins::library(Kind::Instructions, version);
    let plugin =
        Plugin::new(&library, symbols.from, counts.to).map_err(host("make a file in memory"))?;
    let mut to_plugin = Some(std::fs::File::from(symbols.to));
    let mut from_plugin = counts.from;
    // The pipe ends with QEMU, and with `plugin`, which is dropped below.
    let reader = thread::Builder::new().name("counts".to_owned()).spawn(move || {
        let mut text = String::new();
        from_plugin.read_to_string(&mut text).map(|_| text)
    });
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
    let text = reader.join().map_err(|_| io::Error::other("its reader failed"));
    let text = text.flatten().map_err(host("read the plugin's counts"));
    let (ended, text) = (ended?, text?);
    let rounds = counts::rounds(&text).map_err(host("read the plugin's counts"))?;
    Ok(Counted { ended, output, error, table, rounds })
}
