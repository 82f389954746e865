//! A run of a foreign program: under the same limits, watched in the same way, and ended with all
//! processes that it has started.

use crate::run::{Begun, Config, Failure, Outcome, run_foreign};
use crate::system::Linux;
use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A program with its arguments.
#[derive(Clone, Debug)]
pub struct Foreign {
    /// Its file.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// The folder in which it runs: it may leave files there.
    pub folder: PathBuf,
}

/// The exit code of a process that could not become the program.
const NOT_THERE: i32 = 127;

/// Returns the file of a program in `PATH`.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| is_program(file))
}

fn is_program(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(file).is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

/// Runs a program on all CPUs of `config`; returns its output and the outcome.
pub fn run_command(
    config: &Config,
    foreign: &Foreign,
    begun: impl FnOnce(Begun),
) -> Result<(Outcome, String), Failure> {
    let mut said = memory_file()
        .map_err(|why| Failure::Setup { what: "make a file for what the program says", why })?;
    let (foreign, to) = (foreign.clone(), said.try_clone());
    let program = move |system: &Linux| {
        let Ok(to) = to else { return };
        let why = become_program(system, &foreign, to);
        system.run.table.report(&format!("cannot run {}: {why}", foreign.program.display()));
        // SAFETY: ends the process.
        unsafe { libc::_exit(NOT_THERE) }
    };
    let ended = run_foreign(config, begun, Box::new(program));
    let mut text = Vec::new();
    let read = said.seek(SeekFrom::Start(0)).and_then(|_| said.read_to_end(&mut text));
    let text = String::from_utf8_lossy(&text).into_owned();
    match (ended, read) {
        (Ok(outcome), Ok(_)) => Ok((outcome, text)),
        (Ok(_), Err(why)) => Err(Failure::Setup { what: "read what the program said", why }),
        (Err(Failure::Program(why)), _) => {
            let last: Vec<&str> = text.trim().lines().rev().take(4).collect();
            let last: Vec<&str> = last.into_iter().rev().collect();
            let said = if last.is_empty() { "nothing".to_owned() } else { last.join("; ") };
            Err(Failure::Program(format!("{why}; it said: {said}")))
        }
        (Err(why), _) => Err(why),
    }
}

/// Makes a file without a name.
fn memory_file() -> std::io::Result<fs::File> {
    use std::os::fd::FromRawFd;
    // SAFETY: a name with a 0 at its end; the new descriptor is ours alone.
    unsafe {
        match libc::memfd_create(c"mmscale-said".as_ptr(), libc::MFD_CLOEXEC) {
            -1 => Err(std::io::Error::last_os_error()),
            fd => Ok(fs::File::from_raw_fd(fd)),
        }
    }
}

/// Becomes the program; returns the error if that fails.
fn become_program(system: &Linux, foreign: &Foreign, to: fs::File) -> std::io::Error {
    // SAFETY: a set of CPUs of ours; the default actions of signals, which programs expect.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        for &cpu in &system.run.cpus {
            libc::CPU_SET(cpu, &mut set);
        }
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
        let taken = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGPIPE];
        for signal in taken.into_iter().chain([libc::SIGSEGV, libc::SIGBUS]) {
            libc::signal(signal, libc::SIG_DFL);
        }
        // Both streams go to one file, in the order of writing.
        libc::fcntl(to.as_raw_fd(), libc::F_SETFL, libc::O_APPEND);
    }
    let Ok(also) = to.try_clone() else { return std::io::Error::last_os_error() };
    Command::new(&foreign.program)
        .args(&foreign.args)
        .current_dir(&foreign.folder)
        .stdin(Stdio::null())
        .stdout(to)
        .stderr(also)
        .exec()
}
