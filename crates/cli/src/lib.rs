//! The command line as a library. The caller chooses the studies, so that tests and other programs
//! can have their own.
//!
//! Results go to stdout, everything else to stderr. The exit code is 0 on success, 1 if a run or a
//! check failed, 2 if the call was wrong. A reader that closes stdout early is not a failure.

mod ablate;
mod analysis;
mod args;
mod claim;
mod compare;
mod destination;
mod estimate;
mod explain;
mod failure;
mod file_names;
mod interrupt;
mod kernel;
mod lift;
mod list;
mod live;
mod machine_files;
mod memory;
mod output;
mod policies;
mod profile;
mod progress;
mod report;
mod request;
mod robust;
mod run;
mod settle;
mod sweep;
mod trace;
mod whatif;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};
pub use mmscale_document::Build;
use mmscale_harness::{Origin, Registry, UnknownName};

use args::{Args, Command};
use failure::Failure;
pub use memory::Memory;

/// Parses the command line and executes it.
pub fn main(studies: impl Into<Registry>) -> ExitCode {
    start(studies.into(), None)
}

/// Parses and executes the command line of a program with its own studies. Its build is recorded in
/// each document in addition to that of mmscale. The build comes from the program's build script,
/// which calls `mmscale_identity::emit`.
pub fn main_of(studies: impl Into<Registry>, program: Build) -> ExitCode {
    start(studies.into(), Some(program))
}

/// Executes these words in place of those of the process, in the process: for tests that make many
/// calls. The first word is the name of the program.
pub fn call(studies: impl Into<Registry>, words: &[String]) -> ExitCode {
    executed(studies.into(), None, words.iter().map(OsString::from).collect())
}

fn start(registry: Registry, program: Option<Build>) -> ExitCode {
    #[cfg(feature = "live")]
    if mmscale_vm::guest::is_guest() {
        return mmscale_vm::guest::main();
    }
    memory::end_with_a_sentence();
    output::prepare();
    executed(registry, program, std::env::args_os().collect())
}

fn executed(registry: Registry, program: Option<Build>, words: Vec<OsString>) -> ExitCode {
    let done = match Args::try_parse_from(&words) {
        Ok(args) => dispatch(&registry, origin(program, &words), args.command),
        Err(wrong) if wrong.kind() == ErrorKind::InvalidSubcommand => Err(unknown_command(&wrong)),
        // A wrong call: clap exits with 2.
        Err(wrong) if wrong.use_stderr() => {
            let text = wrong.render().to_string();
            if output::message(&text) == text {
                wrong.exit();
            }
            output::tell(text.trim_end());
            return ExitCode::from(2);
        }
        // `--help` or `--version`: clap would exit with 0 even if the output could not be written.
        Err(answer) => output::print_help(&shown(&answer)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::tell(&format!("error: {failure}"));
            failure.exit_code()
        }
    }
}

/// Returns the error for a command that does not exist, in the words of other unknown names.
fn unknown_command(wrong: &clap::Error) -> Failure {
    let given = match wrong.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(given)) => given.clone(),
        _ => String::new(),
    };
    let command = Args::command();
    // Of the commands with commands below them, the one that the call names.
    let words: Vec<String> = std::env::args().skip(1).collect();
    let above = words.first().and_then(|word| command.find_subcommand(word)).unwrap_or(&command);
    let is_below = |outer: &&clap::Command| outer.find_subcommand(&given).is_some();
    if let Some(outer) = command.get_subcommands().find(is_below).map(clap::Command::get_name) {
        let program = command.get_bin_name().unwrap_or(command.get_name());
        return Failure::Call(anyhow::anyhow!(
            "there is no command named `{given}`; it is below `{outer}`: {program} {outer} {given}"
        ));
    }
    let names: Vec<&str> = above.get_subcommands().map(clap::Command::get_name).collect();
    Failure::Call(UnknownName::new("command", &given, names).into())
}

/// Returns the answer of clap, with colours if it goes to a terminal.
fn shown(answer: &clap::Error) -> String {
    let text = answer.render();
    if std::io::stdout().is_terminal() { text.ansi().to_string() } else { text.to_string() }
}

/// Returns the origin of runs: builds and command line. The program is named without its folder.
fn origin(program: Option<Build>, words: &[OsString]) -> Origin {
    let mut command: Vec<String> =
        words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    if let Some(name) = command.first_mut() {
        let file = Path::new(&*name).file_name().map(|file| file.to_string_lossy().into_owned());
        *name = file.unwrap_or_default();
    }
    let build = Build::new("mmscale", env!("CARGO_PKG_VERSION"), env!("MMSCALE_SOURCES"));
    Origin { build, program, command }
}

fn dispatch(registry: &Registry, origin: Origin, command: Option<Command>) -> Result<(), Failure> {
    match command {
        None => output::print(&Args::command().render_help().to_string()),
        Some(Command::Run(args)) => run::run(registry, origin, &args),
        Some(Command::Sweep(args)) => sweep::sweep(registry, origin, &args),
        Some(Command::Robust(args)) => robust::robust(registry, origin, &args),
        Some(Command::Whatif(args)) => whatif::whatif(registry, origin, &args),
        Some(Command::Ablate(args)) => ablate::ablate(registry, origin, &args),
        Some(Command::Settle(args)) => settle::settle(registry, origin, &args),
        Some(Command::Trace(args)) => trace::trace(registry, origin, &args),
        Some(Command::Compare(args)) => compare::compare(&args),
        Some(Command::Report(args)) => report::report(registry, &args),
        Some(Command::Explain(args)) => explain::explain(registry, origin, &args),
        Some(Command::Claim(args)) => claim::claim(registry, &args),
        Some(Command::List(args)) => list::list(registry, &args),
        Some(Command::Kernel(command)) => kernel::kernel(registry, &command),
        Some(Command::Lift(command)) => lift::lift(registry, origin, &command),
        Some(Command::Live(command)) => live::live(registry, origin, &command),
        Some(Command::Profile(command)) => profile::profile(registry, origin, &command),
    }
}
