//! The plugins as QEMU loads them. `cargo xtask objects` compiles them; they are the same for all
//! versions of QEMU's interface for plugins, but for the number of the version that they ask for.

use crate::frames::Frame;
use crate::guest::{Job, JobFile};
use crate::image::Image;
use crate::machine::{
    Accelerator, BootError, EMULATOR, Ended, GuestMemory, Machine, Pipe, Plugin, host, in_memory,
    path_of,
};
use crate::symbols::Table;
use std::fs::File;
use std::io::{self, Write};
use std::process::{Command, Stdio};
use std::thread;

/// A plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It counts instructions.
    Instructions,
    /// It records operations.
    Operations,
}

impl Kind {
    const fn bytes(self) -> &'static [u8] {
        match self {
            Self::Instructions => include_bytes!("../plugin/instructions.so"),
            Self::Operations => include_bytes!("../plugin/operations.so"),
        }
    }
}

/// The bytes in front of the version, and the version that the compiled plugin asks for.
const MARK: &[u8] = b"mmscale plugin version ";
const COMPILED: i32 = 1;
/// Versions that were looked at: 1 is QEMU 7.2, 2 is 9.0, 3 is 9.1.
const NEWEST: i32 = 64;

/// A machine with a plugin that ended.
pub(crate) struct Observed<T> {
    pub(crate) ended: Ended,
    /// The command's standard output, and its standard error.
    pub(crate) output: Vec<u8>,
    pub(crate) error: Vec<u8>,
    /// The symbols of its kernel.
    pub(crate) table: Table,
    /// The plugin's results.
    pub(crate) results: T,
    /// The memory of the machine at its end, for recordings.
    pub(crate) memory: Option<GuestMemory>,
}

/// A machine that is to be booted with a plugin, and its job.
#[derive(Clone, Copy)]
pub(crate) struct Observation<'a> {
    pub(crate) kind: Kind,
    pub(crate) machine: &'a Machine,
    pub(crate) image: &'a Image,
    pub(crate) job: &'a Job,
    pub(crate) files: &'a [JobFile],
    pub(crate) is_interrupted: &'a dyn Fn() -> bool,
    /// Receives the reason for which a machine is booted once more.
    pub(crate) again: &'a dyn Fn(&BootError),
}

impl Observation<'_> {
    /// Boots the image, does the job, which places marks ([`crate::marks`]), and reads what the
    /// plugin writes.
    ///
    /// # Errors
    /// The machine failed, or the plugin.
    pub(crate) fn run<T: Send + 'static>(
        self,
        read: fn(File) -> io::Result<T>,
    ) -> Result<Observed<T>, BootError> {
        // Another processor than an emulated one has no plugin.
        let machine = Machine { accelerator: Accelerator::Emulation, ..self.machine.clone() };
        let job = Job { wants_symbols: true, ..self.job.clone() };
        match self.attempt(&machine, &job, read) {
            Err(why) if why.may_be_of_the_emulator() => {
                (self.again)(&why);
                self.attempt(&machine.once_more(), &job, read)
            }
            done => done,
        }
    }

    fn attempt<T: Send + 'static>(
        self,
        machine: &Machine,
        job: &Job,
        read: fn(File) -> io::Result<T>,
    ) -> Result<Observed<T>, BootError> {
        let library = library(self.kind, interface()?);
        let pipes = host("make a pipe");
        let (symbols, results) = (Pipe::new().map_err(&pipes)?, Pipe::new().map_err(&pipes)?);
        let memory = match self.kind {
            Kind::Operations => Some(GuestMemory::new(&machine.topology)),
            Kind::Instructions => None,
        };
        let memory = memory.transpose().map_err(host("make files for memory"))?;
        let plugin = Plugin::new(&library, symbols.from, results.to, memory)
            .map_err(host("make a file in memory"))?;
        let mut to_plugin = Some(File::from(symbols.to));
        let from_plugin = results.from;
        // The pipe ends with QEMU, and with `plugin`, which is closed below.
        let reader = thread::Builder::new().name("plugin".to_owned());
        let reader = reader.spawn(move || read(from_plugin)).map_err(host("start a thread"))?;
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
        let stops = self.is_interrupted;
        let ended = machine.boot(self.image, job, self.files, Some(&plugin), stops, &mut seen);
        let memory = plugin.into_memory();
        let read = reader.join().map_err(|_| io::Error::other("its reader failed"));
        let results = read.flatten().map_err(host("read the plugin's results"));
        let (ended, results) = (ended?, results?);
        Ok(Observed { ended, output, error, table, results, memory })
    }
}

/// Returns a plugin for a version of the interface.
fn library(kind: Kind, version: i32) -> Vec<u8> {
    let mut library = kind.bytes().to_vec();
    let at = library.windows(MARK.len()).position(|bytes| bytes == MARK);
    let at = at.expect("the mark of the version") + MARK.len().next_multiple_of(4);
    debug_assert_eq!(library[at..at + 4], COMPILED.to_ne_bytes());
    library[at..at + 4].copy_from_slice(&version.to_ne_bytes());
    library
}

/// Asks QEMU for the version of its interface: it refuses the plugin for another one with a message
/// that names it.
///
/// # Errors
/// QEMU is missing, or has no plugins.
fn interface() -> Result<i32, BootError> {
    let mut version = COMPILED;
    for _ in 0..3 {
        let said = said_of(version)?;
        if !said.contains("API version") {
            return match said.contains("plugin: needs symbols") {
                // It was loaded, and refused its arguments.
                true => Ok(version),
                false => Err(BootError::Emulator(format!(
                    "it cannot load plugins, which this command needs: {}",
                    said.trim()
                ))),
            };
        }
        version = offered(&said).ok_or_else(|| BootError::Emulator(said.trim().to_owned()))?;
    }
    Err(BootError::Emulator("it names another version of its plugins each time".to_owned()))
}

/// Returns the version in the message on another one: `.. requires API version 1, but this QEMU
/// supports only a minimum version of 2` or `.. up to version 1`.
fn offered(said: &str) -> Option<i32> {
    let (_, rest) = said.split_once("but this QEMU supports only")?;
    let number = rest.split(|c: char| !c.is_ascii_digit()).find_map(|word| word.parse().ok())?;
    (COMPILED..=NEWEST).contains(&number).then_some(number)
}

/// Returns what QEMU says of the plugin without arguments.
fn said_of(version: i32) -> Result<String, BootError> {
    let why = |why| BootError::Host { what: "ask QEMU for its plugins", why };
    let library = in_memory("plugin", &library(Kind::Instructions, version)).map_err(why)?;
    // QEMU inherits standard input, and opens the plugin by it.
    let path = path_of(&rustix::stdio::stdin());
    let mut command = Command::new(EMULATOR);
    command.args(["-nodefaults", "-machine", "none", "-display", "none", "-S"]);
    command.arg("-plugin").arg(format!("file={path}"));
    command.stdin(Stdio::from(library));
    let output = command.output().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => BootError::NoEmulator,
        _ => why(error),
    })?;
    Ok(String::from_utf8_lossy(&output.stderr).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_differs_in_its_version_only() {
        for kind in [Kind::Instructions, Kind::Operations] {
            let (first, third) = (library(kind, COMPILED), library(kind, 3));
            assert_eq!(first, kind.bytes());
            let differ = first.iter().zip(&third).filter(|(a, b)| a != b).count();
            assert_eq!(differ, 1);
        }
    }

    #[test]
    fn the_version_of_a_message_is_found() {
        let said = |rest: &str| {
            format!("TCG plugin: plugin requires API version 1, but this QEMU supports only {rest}")
        };
        assert_eq!(offered(&said("a minimum version of 2")), Some(2));
        assert_eq!(offered(&said("up to version 1")), Some(1));
        assert_eq!(offered("Could not load plugin"), None);
    }
}
