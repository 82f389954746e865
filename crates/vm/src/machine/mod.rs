//! A virtual machine that is booted once, does a [`Job`], and ends.
//!
//! | module | what it has |
//! |---|---|
//! | `topology` | CPUs, nodes, distances and memory |
//! | `emulator` | QEMU: where it is, its version, whether it emulates |
//! | `carried` | files and pipes that QEMU inherits; nothing is on disk |
//! | `memory` | its memory as files, for what is read there afterwards |
//! | `process` | QEMU as a process that ends with this one |
//! | `console` | the kernel's messages, and panics in them |
//!
//! All that a run starts ends with it: QEMU is killed when this process ends, and its files have
//! no names.

mod carried;
mod console;
mod emulator;
mod memory;
mod process;
mod topology;

pub use emulator::{Accelerator, EMULATOR, accelerator, emulator_version};
pub use topology::Topology;

use crate::frames::{Frame, Up, hello};
use crate::guest::{Job, JobFile, LIBRARIES, archive_of};
use crate::image::Image;
use carried::Carried;
pub(crate) use carried::{Pipe, Plugin, in_memory, path_of};
use console::Console;
pub(crate) use memory::GuestMemory;
use process::Emulator;
use std::fs::File;
use std::io;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};
use thiserror::Error;

/// The kernel's parameters. `nowatchdog` and the setting of RCU keep it silent about CPUs that the
/// emulator does not run for a while; the clock source is the same on all versions; without
/// `nokaslr` addresses would differ from boot to boot.
const PARAMETERS: &str = "console=ttyS0 quiet panic=-1 nokaslr mitigations=off nowatchdog \
                          rcupdate.rcu_cpu_stall_suppress=1 tsc=reliable no_timer_check";

/// The parameter of another attempt. Kernels ignore unknown ones with a dot.
const AGAIN: &str = "mmscale.again=1";

/// The clock of a machine whose time passes with its instructions, 4 ns each, and jumps while all
/// CPUs are idle: windows and time limits of programs do not depend on this computer's load.
const CLOCK: &str = "shift=2,sleep=off";

/// A machine waits for CPUs of this computer as other programs do: it may take this many times as
/// long as the CPU time that it may use.
const PATIENCE: u32 = 6;
/// The time between two looks at the limits.
const LOOK: Duration = Duration::from_millis(100);

/// A machine.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Its CPUs and memory.
    pub topology: Topology,
    /// Parameters of the kernel in addition to those that every machine has.
    pub parameters: String,
    /// Whether time passes with instructions, which takes longer to emulate.
    pub counts_instructions: bool,
    /// How QEMU executes its code.
    pub accelerator: Accelerator,
    /// The most CPU time that QEMU may use.
    pub limit: Duration,
    /// A file for all that the kernel writes to its console, also if the machine fails.
    pub console: Option<Arc<File>>,
}

/// A part of the output of a machine while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// It is up.
    Up(Up),
    /// Its command's standard output.
    Out(Vec<u8>),
    /// Its command's standard error.
    Error(Vec<u8>),
}

impl Output {
    fn of(frame: Frame) -> Option<Self> {
        match frame {
            Frame::Up(up) => Some(Self::Up(up)),
            Frame::Output(bytes) => Some(Self::Out(bytes)),
            Frame::Error(bytes) => Some(Self::Error(bytes)),
            Frame::Symbols(_) | Frame::Exit(_) | Frame::Failed(_) => None,
        }
    }
}

/// A machine that did its job.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Its properties.
    pub up: Up,
    /// The exit code of the command.
    pub code: i32,
    /// The CPU time that QEMU used.
    pub cpu_time: Duration,
    /// Why the file for the console is not whole.
    pub console: Option<Arc<io::Error>>,
}

/// Why a machine did not do its job.
#[derive(Debug, Error)]
pub enum BootError {
    /// QEMU is not there.
    #[error(
        "{EMULATOR} is not installed: on Debian apt-get install qemu-system-x86, on Fedora dnf \
         install qemu-system-x86-core"
    )]
    NoEmulator,
    /// QEMU does not start.
    #[error("{EMULATOR} does not start the machine: {0}")]
    Emulator(String),
    /// The kernel panicked.
    #[error("the kernel panicked: {line}\n{end}")]
    Panic {
        /// The line that says so.
        line: String,
        /// The end of the console.
        end: String,
    },
    /// It ended before its job did.
    #[error("the machine {when}; the end of its console:\n{end}")]
    Early {
        /// When it ended.
        when: &'static str,
        /// The end of the console.
        end: String,
    },
    /// Its command used too much time.
    #[error("the command in the machine did not end: {0}")]
    Slow(String),
    /// It used too much time before its command began.
    #[error("the machine was ended: {why}; the end of its console:\n{end}")]
    Limit {
        /// Which limit, and what to do.
        why: String,
        /// The end of the console.
        end: String,
    },
    /// Its first process could not do its part.
    #[error("in the machine: {0}")]
    Guest(String),
    /// This program was asked to stop.
    #[error("interrupted")]
    Interrupted,
    /// This computer refused something.
    #[error("cannot {what}: {why}")]
    Host {
        /// The step.
        what: &'static str,
        /// The error.
        why: io::Error,
    },
}

pub(crate) fn host(what: &'static str) -> impl Fn(io::Error) -> BootError {
    move |why| BootError::Host { what, why }
}

impl BootError {
    /// Whether another attempt may do better: an emulated machine that did not come up, or whose
    /// kernel died, may show an error of the emulator.
    pub(crate) fn may_be_of_the_emulator(&self) -> bool {
        matches!(self, Self::Panic { .. } | Self::Early { .. })
    }
}

impl Machine {
    /// Boots an image, does the job, and returns when the machine has ended. An emulated machine
    /// that died before its command wrote anything is booted once more, after a call of `again`.
    ///
    /// # Errors
    /// Why the job was not done. A command that failed is no error.
    pub fn run(
        &self,
        image: &Image,
        job: &Job,
        files: &[JobFile],
        is_interrupted: &dyn Fn() -> bool,
        on_output: &mut dyn FnMut(Output),
        again: &dyn Fn(&BootError),
    ) -> Result<Ended, BootError> {
        let mut may_repeat = self.accelerator == Accelerator::Emulation;
        let mut machine = self.clone();
        loop {
            let mut has_written = false;
            let mut seen = |frame: Frame| {
                if let Some(output) = Output::of(frame) {
                    has_written |= !matches!(output, Output::Up(_));
                    on_output(output);
                }
                Ok(())
            };
            match machine.boot(image, job, files, None, is_interrupted, &mut seen) {
                Err(why) if may_repeat && !has_written && why.may_be_of_the_emulator() => {
                    again(&why);
                    may_repeat = false;
                    machine = self.once_more();
                }
                done => return done,
            }
        }
    }

    /// The machine of another attempt. Where time passes with instructions, the same machine would
    /// fail at the same place again: a parameter that no kernel knows moves all that follows its
    /// parsing.
    pub(crate) fn once_more(&self) -> Self {
        let parameters = format!("{} {AGAIN}", self.parameters);
        Self { parameters, ..self.clone() }
    }

    /// Boots an image once. `seen` gets each frame; with an error of it the machine is ended.
    pub(crate) fn boot(
        &self,
        image: &Image,
        job: &Job,
        files: &[JobFile],
        plugin: Option<&Plugin>,
        is_interrupted: &dyn Fn() -> bool,
        seen: &mut dyn FnMut(Frame) -> io::Result<()>,
    ) -> Result<Ended, BootError> {
        let archive = archive_of(job, files).map_err(host("read this program's files"))?;
        let carried = Carried::new(&image.bytes, &archive).map_err(host("make files in memory"))?;
        let command = self.command(&carried, plugin);
        let mut emulator = Emulator::start(command, carried.inherited(plugin))?;
        let (console, port) = carried.ports();
        let copy = self.console.as_ref().map(|file| file.try_clone()).transpose();
        let copy = copy.map_err(host("copy the console"))?;
        let console = Console::read(console, copy).map_err(host("start a thread"))?;
        let frames = frames(port).map_err(host("start a thread"))?;
        let begun = Instant::now();
        let mut told = Told::default();
        loop {
            match frames.recv_timeout(LOOK) {
                Ok(frame) => {
                    told.note(&frame);
                    seen(frame).map_err(host("use what the machine sent"))?;
                    continue;
                }
                // It has ended, or sends no more.
                Err(RecvTimeoutError::Disconnected) if emulator.has_ended() => break,
                Err(RecvTimeoutError::Disconnected) => thread::sleep(LOOK),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if is_interrupted() {
                return Err(BootError::Interrupted);
            }
            if let Some(why) = self.exceeded(emulator.cpu_time(), begun.elapsed()) {
                drop(emulator);
                if told.up.is_some() {
                    return Err(BootError::Slow(why));
                }
                return Err(BootError::Limit { why, end: console.finish().end() });
            }
        }
        let cpu_time = emulator.cpu_time();
        let said = emulator.finish();
        told.outcome(cpu_time, said, console.finish())
    }

    fn exceeded(&self, cpu_time: Duration, wall: Duration) -> Option<String> {
        let limit = self.limit.as_secs();
        if cpu_time > self.limit {
            return Some(format!("it used {limit} s of CPU time; --limit allows more"));
        }
        (wall > self.limit * PATIENCE).then(|| {
            format!("this computer had no time for it within {} s", limit * u64::from(PATIENCE))
        })
    }

    fn command(&self, carried: &Carried, plugin: Option<&Plugin>) -> Command {
        let mut command = Command::new(EMULATOR);
        command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
        let files = plugin.and_then(Plugin::memory_paths);
        command.args(self.topology.options(files.as_deref()));
        command.args(self.accelerator.options());
        if self.counts_instructions {
            command.args(["-icount", CLOCK, "-rtc", "base=2026-01-01,clock=vm"]);
        }
        command.arg("-kernel").arg(carried.kernel_path());
        command.arg("-initrd").arg(carried.archive_path());
        for path in carried.port_paths() {
            command.arg("-serial").arg(format!("file:{path}"));
        }
        if let Some(plugin) = plugin {
            command.arg("-plugin").arg(plugin.option());
        }
        // An unknown parameter of this form is a variable of the first process.
        let parameters =
            format!("{PARAMETERS} LD_LIBRARY_PATH={LIBRARIES} {}", self.parameters.trim());
        command.arg("-append").arg(parameters.trim_end());
        command
    }
}

/// Reads frames in a thread.
fn frames(mut port: File) -> io::Result<mpsc::Receiver<Frame>> {
    let (to, from) = mpsc::channel();
    thread::Builder::new().name("frames".to_owned()).spawn(move || {
        if !hello(&mut port).unwrap_or(false) {
            return;
        }
        while let Ok(Some(frame)) = Frame::read(&mut port) {
            if to.send(frame).is_err() {
                return;
            }
        }
    })?;
    Ok(from)
}

/// The messages of the machine on its job so far.
#[derive(Default)]
struct Told {
    up: Option<Up>,
    code: Option<i32>,
    failed: Option<String>,
}

impl Told {
    fn note(&mut self, frame: &Frame) {
        match frame {
            Frame::Up(up) => self.up = Some(up.clone()),
            Frame::Exit(code) => self.code = Some(*code),
            Frame::Failed(why) => self.failed = Some(why.clone()),
            Frame::Symbols(_) | Frame::Output(_) | Frame::Error(_) => {}
        }
    }

    /// `said` is what QEMU wrote to its standard error.
    fn outcome(
        self,
        cpu_time: Duration,
        said: String,
        console: console::Log,
    ) -> Result<Ended, BootError> {
        if let (Some(up), Some(code)) = (self.up.clone(), self.code) {
            return Ok(Ended { up, code, cpu_time, console: console.copy.map(Arc::new) });
        }
        if let Some(why) = self.failed {
            return Err(BootError::Guest(why));
        }
        if let Some(line) = console.panic() {
            return Err(BootError::Panic { line, end: console.end() });
        }
        if self.up.is_none() && !said.trim().is_empty() {
            return Err(BootError::Emulator(said.trim().to_owned()));
        }
        let when = match self.up {
            None => "ended before its first process ran",
            Some(_) => "ended before its command did",
        };
        Err(BootError::Early { when, end: console.end() })
    }
}
