//! The command line, as a library: which studies there are is the caller's choice, so that tests
//! have their own.
//!
//! Results go to stdout, everything else to stderr. The exit code is 0 where all went well, 1 where
//! a run or a check failed, 2 where the call was wrong; a reader that closes stdout early is no
//! failure.

mod ab;
mod args;
mod calibrate;
mod doctor;
mod failure;
mod fidelity;
mod interrupt;
mod list;
mod live;
mod names;
mod output;
mod progress;
mod run;
mod unwatched;
mod with;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use mmscale_study::Registry;

use args::{Args, Command};
use failure::Failure;

/// Reads the command line and does what it says.
pub fn main(registry: Registry) -> ExitCode {
    // Clap exits by itself: with 2 where the call is wrong, with 0 after `--help`.
    let args = Args::parse();
    match dispatch(registry, args.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::tell(&format!("error: {failure}"));
            failure.exit_code()
        }
    }
}

fn dispatch(registry: Registry, command: Option<Command>) -> Result<(), Failure> {
    match command {
        None => output::print(&Args::command().render_help().to_string()),
        Some(Command::Run(args)) => run::run(registry, &args),
        Some(Command::List(args)) => list::list(registry, args.format),
        Some(Command::Fidelity(args)) => fidelity::fidelity(&args),
        Some(Command::Live(args)) => live::live(&args),
        Some(Command::Doctor(args)) => doctor::doctor(args.format),
        Some(Command::Calibrate(args)) => calibrate::calibrate(&args),
    }
}
