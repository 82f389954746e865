//! A run on the live kernel: its processes, and how they all end.
//!
//! ```text
//! tool                         waits for the warden; closing its pipe asks for the end
//!   warden                     own session, process group and memory group; adopts orphans
//!     first process            runs the program
//!       processes of the run
//! ```
//!
//! The warden ends all processes of the run in three cases: the first process has ended, time is
//! up, or the pipe from the tool is closed. The tool closes the pipe when it is interrupted, and
//! the kernel does when the tool is killed. If the warden itself ends, the kernel kills its process
//! group, which has all processes of the run ([`GroupEnd`]), even if the tool has ended too. The
//! tool, or else a later run, removes the memory group with all processes that are still in it.

use crate::apart;
use crate::compute;
use crate::end::{GroupEnd, PANICKED, ended_child};
use crate::limits::{self, LimitedBy, Limits};
use crate::process::{ProcessState, RunState};
use crate::system::{self, Linux, clock_ns};
use crate::table::{CallTimes, Table};
use crate::task_limits::TooMuch;
use crate::user;
use mmscale_system::{Body, CpuTime, ProcessId, ThreadSpec};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use thiserror::Error;

/// The configuration of a run.
#[derive(Clone, Debug)]
pub struct Config {
    /// CPUs that programs see. If there are more than the computer has, several of them are one.
    pub cpus: usize,
    /// The limit of memory of all processes together, in bytes.
    pub memory_bytes: u64,
    /// The most processes and threads at any time.
    pub processes: u64,
    /// The longest time that it may take, in ns.
    pub limit_ns: u64,
    /// A flag that ends the run early.
    pub interrupt: Option<Arc<AtomicBool>>,
}

/// The outcome of a run.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Its duration, in ns.
    pub wall_ns: u64,
    /// The zero of its clock, in ns of `CLOCK_MONOTONIC`.
    pub begin_ns: u64,
    /// CPU time of all its processes, from their forks to their ends.
    pub cpu: CpuTime,
    /// Page faults of all its processes.
    pub faults: u64,
    /// Its successful calls of process_mrelease.
    pub releases: CallTimes,
    /// How its memory was limited.
    pub limited_by: LimitedBy,
}

/// Why a run has no result.
#[derive(Debug, Error)]
pub enum Failure {
    /// The tool was asked to stop.
    #[error("it was interrupted")]
    Interrupted,
    /// It took too long.
    #[error("it did not end within {} s and was ended", .0.as_secs())]
    Limit(Duration),
    /// A program failed.
    #[error("{0}")]
    Program(String),
    /// A process outside the run ended processes of the run.
    #[error("its first process was killed from outside (signal {0})")]
    Killed(i32),
    /// The warden was killed.
    #[error("the process that watches over it was killed from outside (signal {0})")]
    WardenKilled(i32),
    /// It could not start.
    #[error("cannot {what}: {why}")]
    Setup {
        /// The failed step.
        what: &'static str,
        /// The error.
        why: std::io::Error,
    },
    /// It does not fit into this computer.
    #[error(transparent)]
    Limits(#[from] TooMuch),
}

/// Exit codes of processes of a run.
const TIME_UP: i32 = 102;
const CANCELLED: i32 = 103;
const KILLED: i32 = 104;

/// The interval at which waiting processes check for the end.
const LOOK: Duration = Duration::from_millis(20);

fn setup(what: &'static str) -> impl Fn(std::io::Error) -> Failure {
    move |why| Failure::Setup { what, why }
}

/// Runs `program` as the first thread of the first process of a run; returns when all of its
/// processes have ended.
pub fn run(config: &Config, program: Body<Linux>) -> Result<Outcome, Failure> {
    run_watched(config, |_| {}, program)
}

/// The start of a run.
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    /// The zero of its clock, in ns of `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// The session of all of its processes.
    pub session: i32,
}

/// Like [`run`]; calls `begun` as soon as the first process runs.
pub fn run_watched(
    config: &Config,
    begun: impl FnOnce(Begun),
    program: Body<Linux>,
) -> Result<Outcome, Failure> {
    run_of(Origin::Own, config, begun, program)
}

/// Like [`run_watched`], for a program that becomes a foreign one, which starts processes by
/// itself.
pub(crate) fn run_foreign(
    config: &Config,
    begun: impl FnOnce(Begun),
    program: Body<Linux>,
) -> Result<Outcome, Failure> {
    run_of(Origin::Foreign, config, begun, program)
}

/// The origin of a run's processes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// The run's own calls: all of them are in the table.
    Own,
    /// A foreign program: they are not in the table, and are searched for.
    Foreign,
}

fn run_of(
    origin: Origin,
    config: &Config,
    begun: impl FnOnce(Begun),
    program: Body<Linux>,
) -> Result<Outcome, Failure> {
    apart::check_layout().map_err(setup("keep the memory of programs apart"))?;
    apart::keep_ended_children();
    let limits = Limits::set_up(config.memory_bytes, config.processes)?;
    let table = Table::new().map_err(setup("share memory between processes"))?;
    let cpus = limits::cpus(config.cpus).map_err(setup("ask which CPUs may be used"))?;
    let state = Arc::new(RunState {
        table,
        positions: cpus.iter().map(|&cpu| limits::position(cpu)).collect(),
        cpus,
        nodes: limits::nodes(),
        turns_1024: compute::turns_in_1024_ns(),
    });
    let mut ends = [0; 2];
    // SAFETY: the place for two descriptors is ours.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(setup("make a pipe")(std::io::Error::last_os_error()));
    }
    let [watched, held] = ends;
    apart::return_free_memory();
    let started = Instant::now();
    // SAFETY: the child uses memory and the C library's allocator, which survives forks.
    let warden = unsafe { libc::fork() };
    let why = std::io::Error::last_os_error();
    if warden == 0 {
        close(held);
        warden_life(config, &state, &limits, watched, origin, program);
    }
    close(watched);
    if warden < 0 {
        close(held);
        return Err(setup("start a process")(why));
    }
    let (status, forced) = attend(config, &state.table, warden, held, begun);
    let wall_ns = started.elapsed().as_nanos() as u64;
    if libc::WIFSIGNALED(status) {
        state.table.end();
        limits.kill_all();
        sweep(&state.table, warden, origin);
    }
    let limited_by = if state.table.is_grouped() { LimitedBy::Group } else { LimitedBy::Plan };
    drop(limits);
    forced.map_or(Ok(()), Err)?;
    judge(config, &state.table, status)?;
    let cpu = state.table.cpu();
    let releases = state.table.releases();
    let (begin_ns, faults) = (state.table.begin_ns(), state.table.faults());
    Ok(Outcome { wall_ns, begin_ns, cpu, faults, releases, limited_by })
}

fn close(fd: i32) {
    // SAFETY: a descriptor of ours that is not used any more.
    unsafe { libc::close(fd) };
}

/// How long the warden may take to end a run, after the tool has asked for it or time is up. Then
/// the tool kills the warden, and the kernel the other processes.
const WARDEN_MAY_TAKE: Duration = Duration::from_secs(5);

/// Waits for the warden and asks it to end the run when that is due. Returns its status, and why
/// the tool killed it, if it did.
fn attend(
    config: &Config,
    table: &Table,
    warden: i32,
    held: i32,
    begun: impl FnOnce(Begun),
) -> (i32, Option<Failure>) {
    let mut held = Some(held);
    let mut begun = Some(begun);
    let limit = Duration::from_nanos(config.limit_ns);
    let (started, mut asked, mut forced) = (Instant::now(), None::<Instant>, None);
    loop {
        let mut status = 0;
        // SAFETY: the status is ours.
        let ended = unsafe { libc::waitpid(warden, &raw mut status, libc::WNOHANG) };
        if ended != 0 {
            if let Some(held) = held {
                close(held);
            }
            return (status, forced.filter(|_| libc::WIFSIGNALED(status)));
        }
        let stop = config.interrupt.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed));
        if let Some(held) = held.take_if(|_| stop) {
            close(held);
            asked = Some(Instant::now());
            // SAFETY: only numbers, of our child. It may have been stopped.
            unsafe { libc::kill(warden, libc::SIGCONT) };
        }
        let late = match asked {
            Some(asked) => (asked.elapsed() > WARDEN_MAY_TAKE).then_some(Failure::Interrupted),
            None => (started.elapsed() > limit.saturating_add(WARDEN_MAY_TAKE))
                .then_some(Failure::Limit(limit)),
        };
        if late.is_some() {
            kill(warden);
            forced = late;
        }
        let at_ns = table.begin_ns();
        if at_ns > 0
            && let Some(begun) = begun.take()
        {
            begun(Begun { at_ns, session: warden });
        }
        std::thread::sleep(Duration::from_millis(if begun.is_some() { 1 } else { 5 }));
    }
}

fn judge(config: &Config, table: &Table, status: i32) -> Result<(), Failure> {
    if libc::WIFSIGNALED(status) {
        return Err(Failure::WardenKilled(libc::WTERMSIG(status)));
    }
    match libc::WEXITSTATUS(status) {
        CANCELLED => return Err(Failure::Interrupted),
        TIME_UP => return Err(Failure::Limit(Duration::from_nanos(config.limit_ns))),
        _ => {}
    }
    match (libc::WEXITSTATUS(status), table.first_error()) {
        (_, Some(text)) => Err(Failure::Program(text)),
        (0, None) => Ok(()),
        (KILLED, None) => Err(Failure::Killed(libc::SIGKILL)),
        (code, None) => Err(Failure::Program(format!("it ended with code {code}"))),
    }
}

fn warden_life(
    config: &Config,
    state: &Arc<RunState>,
    limits: &Limits,
    watched: i32,
    origin: Origin,
    program: Body<Linux>,
) -> ! {
    // Held until the end of the warden: the lock shows that it lives.
    let entered = enter(state, limits);
    let code = match &entered {
        Ok(resources) => guard(config, state, watched, resources, program),
        Err(why) => {
            state.table.report(&format!("cannot set up a run's processes: {why}"));
            PANICKED
        }
    };
    end_all(&state.table, origin);
    state.table.set_cpu(system::cpu_time(libc::RUSAGE_CHILDREN));
    state.table.set_faults(system::faults(libc::RUSAGE_CHILDREN));
    limits.leave();
    // SAFETY: ends the warden.
    unsafe { libc::_exit(code) }
}

/// Resources of the warden, which the first process closes.
struct WardenResources {
    group_end: GroupEnd,
    lock: Option<File>,
}

/// Sets up the session, the limits and the signals of the warden and all processes of the run.
fn enter(state: &Arc<RunState>, limits: &Limits) -> std::io::Result<WardenResources> {
    // SAFETY: calls without memory of ours. If the tool ends while the warden is stopped, the
    // warden has to continue.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGCONT);
        libc::setsid();
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1);
        libc::prctl(libc::PR_SET_NAME, c"mmscale-warden".as_ptr());
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGPIPE] {
            libc::signal(signal, libc::SIG_IGN);
        }
    }
    user::catch_faults()?;
    let group_end = GroupEnd::new()?;
    let lock = limits.enter()?;
    if lock.is_some() {
        state.table.set_grouped();
    }
    let state = Arc::clone(state);
    std::panic::set_hook(Box::new(move |panic| {
        let text = panic.payload().downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.payload().downcast_ref::<&str>().copied());
        let place = panic.location().map_or(String::new(), |at| format!(" ({at})"));
        state.table.report(&format!("a program panicked: {}{place}", text.unwrap_or("no message")));
    }));
    Ok(WardenResources { group_end, lock })
}

/// Starts the first process; waits for its end, or for a reason to end it.
fn guard(
    config: &Config,
    state: &Arc<RunState>,
    watched: i32,
    resources: &WardenResources,
    program: Body<Linux>,
) -> i32 {
    let table = &state.table;
    // The first process is its own parent, so that no process of the run can wait for it.
    let Ok(id) = table.take(ProcessId(0)) else { return PANICKED };
    let deadline = Instant::now() + Duration::from_nanos(config.limit_ns);
    // SAFETY: reads a number.
    let warden = unsafe { libc::getpid() };
    // SAFETY: the warden has one thread.
    let first = unsafe { libc::fork() };
    if first == 0 {
        close(watched);
        // SAFETY: calls without memory of ours. The warden is the thread that has forked, and lives
        // as long as its process. If it ended before the call, this process has another parent.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            if libc::getppid() != warden {
                libc::_exit(CANCELLED);
            }
        }
        resources.group_end.follow();
        if let Some(lock) = &resources.lock {
            close(lock.as_raw_fd());
        }
        // SAFETY: reads a number.
        table.begun(id, unsafe { libc::getpid() });
        limits::give_up_rights();
        table.begin(clock_ns(libc::CLOCK_MONOTONIC));
        let linux = Linux { run: Arc::clone(state), own: ProcessState::new(id) };
        let cpu = state.cpus[0];
        linux.live(cpu, ThreadSpec::on(0), program);
    }
    if first < 0 {
        return PANICKED;
    }
    table.begun(id, first);
    loop {
        let mut poll = libc::pollfd { fd: watched, events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor to poll.
        let seen = unsafe { libc::poll(&raw mut poll, 1, LOOK.as_millis() as i32) };
        if seen > 0 {
            return CANCELLED;
        }
        if let Some(code) = reap_orphans(table, first) {
            return code;
        }
        if Instant::now() > deadline {
            return TIME_UP;
        }
    }
}

/// Reaps ended children; returns the first process's code if it has ended.
fn reap_orphans(table: &Table, first: i32) -> Option<i32> {
    while let Some(pid) = ended_child() {
        if pid != first {
            if let Some(complaint) = table.reap(pid).and_then(|reaped| reaped.complaint()) {
                table.report(&complaint);
            }
            continue;
        }
        let mut status = 0;
        // SAFETY: the status is ours, and the child has ended.
        unsafe { libc::waitpid(first, &raw mut status, 0) };
        return Some(if libc::WIFSIGNALED(status) { KILLED } else { libc::WEXITSTATUS(status) });
    }
    None
}

/// Ends all processes of the run, from the warden: all of them become its children.
fn end_all(table: &Table, origin: Origin) {
    table.end();
    loop {
        // SAFETY: reads a number.
        let warden = unsafe { libc::getpid() };
        kill_session(table, warden);
        if origin == Origin::Foreign {
            strangers(warden).into_iter().for_each(kill);
        }
        loop {
            match ended_child() {
                Some(pid) => _ = table.reap(pid),
                None if has_children() => break,
                None => return,
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn kill(pid: i32) {
    // SAFETY: only numbers.
    unsafe { libc::kill(pid, libc::SIGKILL) };
}

/// Returns the processes in the warden's session and its children, of any origin.
fn strangers(warden: i32) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // After the name: the state, the parent, the group, the session.
        let rest = stat.rsplit(')').next().unwrap_or_default();
        let mut numbers = rest.split_whitespace().map(|word| word.parse::<i32>().ok());
        let (parent, session) = (numbers.nth(1).flatten(), numbers.nth(1).flatten());
        *pid != warden && (parent == Some(warden) || session == Some(warden))
    })
    .collect()
}

fn has_children() -> bool {
    // SAFETY: nothing is written.
    let asked = unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) };
    asked != -1
}

/// Kills the processes of the table that are in the warden's session, which has only processes of
/// this run.
fn kill_session(table: &Table, session: i32) {
    // SAFETY: reads a number. A process that reuses the number is in another session.
    let ours = |pid: &i32| unsafe { libc::getsid(*pid) } == session;
    table.live().filter(ours).for_each(kill);
}

/// Ends the rest of a run whose warden was killed, from the tool.
fn sweep(table: &Table, warden: i32, origin: Origin) {
    const PATIENCE: Duration = Duration::from_secs(10);
    table.end();
    let begun = Instant::now();
    loop {
        // SAFETY: only numbers.
        let ours = |pid: &i32| unsafe { libc::getsid(*pid) } == warden;
        let mut left: Vec<i32> = table.live().filter(ours).collect();
        if origin == Origin::Foreign {
            left.extend(strangers(warden));
        }
        if left.is_empty() || begun.elapsed() > PATIENCE {
            return;
        }
        left.into_iter().for_each(kill);
        std::thread::sleep(Duration::from_millis(2));
    }
}
