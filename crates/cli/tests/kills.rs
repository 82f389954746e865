//! Kills parts of runs on the live kernel: the tool, its warden, its guardian, the first process
//! and others, one to three of them together, at seeded times. All processes must end by
//! themselves. Settings, memory groups and folders must be restored or removed by the next run or
//! `mmscale live doctor`; if the tool, or its warden and its guardian, survive, without those.
//!
//! By default 12 runs are killed; `MMSCALE_DEPTH=17` kills 204, and `MMSCALE_KILL_SEED` selects
//! others.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Timeout that is reached only by a hang, even on a busy computer.
const PATIENCE: Duration = Duration::from_secs(120);
const USUAL: u64 = 12;
const SETTING: &str = "/proc/sys/kernel/domainname";
const KEY: &str = "kernel.domainname";
const BEFORE: &str = "kills-before";
const MARK: &str = "MMSCALE_KILLED_RUN";

/// Reports a skipped test directly on standard error, because the test harness captures printed
/// output.
fn skipped(what: &str, why: &str) {
    let line = format!("live-test skipped: {what}: {why}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

fn number(variable: &str, default: u64) -> u64 {
    let Ok(text) = std::env::var(variable) else { return default };
    text.parse().unwrap_or_else(|_| panic!("{variable} is {text}: give a number"))
}

/// SplitMix64.
struct Seeded(u64);

impl Seeded {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

/// A process of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Process {
    pid: i32,
    parent: i32,
    name: String,
}

/// Returns the living processes that were started with the mark in their environment. Forked and
/// executed programs inherit it.
fn processes(mark: &str) -> Vec<Process> {
    let mark = format!("{MARK}={mark}");
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let marked = |pid: &i32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|word| word == mark.as_bytes())
    };
    let process = |pid: i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (head, rest) = stat.rsplit_once(')')?;
        let mut fields = rest.split_whitespace();
        let (state, parent) = (fields.next()?, fields.next()?.parse().ok()?);
        let name = head.split_once('(')?.1.to_owned();
        (!["Z", "X"].contains(&state)).then_some(Process { pid, parent, name })
    };
    pids.filter(marked).filter_map(process).collect()
}

fn until(what: &dyn Fn() -> String, mut holds: impl FnMut() -> bool) {
    let since = Instant::now();
    while !holds() {
        assert!(since.elapsed() < PATIENCE, "{}", what());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the memory groups of a tool.
fn groups(of: u32) -> Vec<PathBuf> {
    fn look(folder: &Path, name: &str, found: &mut Vec<PathBuf>) {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            if entry.file_name().to_string_lossy().starts_with(name) {
                found.push(entry.path());
            }
            look(&entry.path(), name, found);
        }
    }
    let mut found = Vec::new();
    look(Path::new("/sys/fs/cgroup"), &format!("mmscale-{of}-"), &mut found);
    found
}

/// Returns the files that store an old value of this test's setting.
fn remembered() -> Vec<PathBuf> {
    let link = fs::read_link("/proc/thread-self/ns/uts").unwrap();
    let digits: String = link.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    let entries = fs::read_dir("/run/mmscale").into_iter().flatten().flatten();
    let ours = |path: &PathBuf| path.to_string_lossy().ends_with(&format!("{KEY}@uts{digits}"));
    entries.map(|entry| entry.path()).filter(ours).collect()
}

/// Programs and folders that all runs of the test use.
struct Setup {
    temporary: tempfile::TempDir,
    _program: tempfile::TempDir,
    path: String,
}

impl Setup {
    fn new() -> Self {
        let program = tempfile::tempdir().unwrap();
        let file = program.path().join("stress-ng");
        let script = "#!/bin/sh\n\
            if [ \"$1\" = --version ]; then echo 'stress-ng, version 9.9.9 (none)'; exit 0; fi\n\
            sh -c 'while :; do :; done' & sh -c 'sleep 100000'; exit 1\n";
        fs::write(&file, script).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}", program.path().display());
        Self { temporary: tempfile::tempdir().unwrap(), _program: program, path }
    }
    fn mmscale(&self, mark: &str, arguments: &str) -> Command {
        let mut run = Command::new(env!("CARGO_BIN_EXE_mmscale"));
        run.args(arguments.split(' ')).env(MARK, mark).env("PATH", &self.path);
        run.env("TMPDIR", self.temporary.path()).stdin(Stdio::null());
        run.stdout(Stdio::null()).stderr(Stdio::piped());
        run
    }
    fn folders(&self) -> Vec<PathBuf> {
        fs::read_dir(self.temporary.path()).unwrap().map(|entry| entry.unwrap().path()).collect()
    }
}

const RUNS: [&str; 5] = [
    "run churn --on live --arm stock --seeds 1 --cpus 2 --set duration_ms=60000",
    "run vmstat --on live --arm stock --seeds 1 --cpus 2 --set duration_s=60",
    "run ipi --on live --arm stock --seeds 1 --cpus 2 --set window_s=20",
    "live stress churn --for 1000s --runs 1 --cpus 2",
    "live ab vmstat kernel.domainname=one,two --arm stock --set watch=off --seeds 1000",
];

/// A short run, which cleans up at its beginning.
const NEXT: &str = "run vmstat --on live --arm stock --quick --seeds 1 --set watch=off \
    --set duration_s=0.2";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Victim {
    Tool,
    Warden,
    Guardian,
    First,
    Member,
}

impl Victim {
    /// Returns the victim's process, if it exists already.
    fn find(self, tool: i32, all: &[Process], seeded: &mut Seeded) -> Option<i32> {
        let child = |name: &str| {
            let is = |process: &&Process| process.parent == tool && process.name == name;
            all.iter().find(is).map(|process| process.pid)
        };
        let warden = child("mmscale-warden");
        let below: Vec<i32> = all
            .iter()
            .filter(|process| process.pid != tool && process.parent != tool)
            .map(|process| process.pid)
            .collect();
        match self {
            Self::Tool => Some(tool),
            Self::Warden => warden,
            Self::Guardian => child("mmscale-guard"),
            Self::First => {
                let first = |process: &&Process| Some(process.parent) == warden;
                all.iter().filter(first).map(|process| process.pid).min()
            }
            Self::Member => (!below.is_empty()).then(|| seeded.one_of(&below)),
        }
    }
}

/// Returns whether this process, and thus its children by default, ignores a signal.
fn ignores(signal: Signal) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & 1 << (signal.as_raw() - 1) != 0)
}

fn signal(pid: i32, signal: Signal) {
    // The process may have ended by itself.
    let _ = kill_process(Pid::from_raw(pid).unwrap(), signal);
}

/// Counts of kills and of what their runs left behind.
#[derive(Default)]
struct Count {
    kills: u64,
    /// Runs with one, two and three victims.
    runs: [u64; 3],
    /// Runs that left a setting, a group or a folder for the next run or `doctor`.
    left: u64,
}

/// Executes and kills one run. `nth` is its number; the seed determines the rest.
fn kill_one(place: &Setup, nth: u64, seeded: &mut Seeded, count: &mut Count) {
    let (run, doctor) = (seeded.one_of(&RUNS), seeded.below(2) == 0);
    let mark = format!("{}-{nth}", std::process::id());
    let mut child = place.mmscale(&mark, run).spawn().unwrap();
    let tool = child.id() as i32;
    // In 3 of 4 cases the whole run is active, otherwise it has only just started.
    if seeded.below(4) > 0 {
        let member =
            || processes(&mark).iter().any(|process| process.pid != tool && process.parent != tool);
        until(&|| format!("{run} does not begin"), || {
            member() || child.try_wait().unwrap().is_some()
        });
    }
    std::thread::sleep(Duration::from_millis(seeded.below(300)));
    let victims = choose(seeded);
    let all = processes(&mark);
    let mut story = format!("kill {nth}: {run}:");
    let mut killed = Vec::new();
    for victim in victims {
        let Some(pid) = victim.find(tool, &all, seeded) else { continue };
        write!(story, " {victim:?}").unwrap();
        signal(pid, Signal::KILL);
        killed.push(victim);
    }
    count.kills += killed.len() as u64;
    if !killed.is_empty() {
        count.runs[killed.len() - 1] += 1;
    }
    end_tool(&mut child, &killed, seeded, &mut story);
    until(&|| format!("{story}: {:?} are left", processes(&mark)), || processes(&mark).is_empty());
    check_leftovers(place, tool as u32, &killed, doctor, &story, count);
}

fn choose(seeded: &mut Seeded) -> Vec<Victim> {
    let all = [Victim::Tool, Victim::Warden, Victim::Guardian, Victim::First, Victim::Member];
    let many = 1 + seeded.below(3) as usize;
    let mut chosen = Vec::new();
    while chosen.len() < many {
        let victim = seeded.one_of(&all);
        // Several member processes may be killed together; every other victim only once.
        if victim == Victim::Member || !chosen.contains(&victim) {
            chosen.push(victim);
        }
    }
    chosen
}

/// Asks a surviving tool to end, sometimes with its warden stopped before, and checks that it does.
fn end_tool(child: &mut Child, killed: &[Victim], seeded: &mut Seeded, story: &mut String) {
    let tool = child.id() as i32;
    if !killed.contains(&Victim::Tool) {
        let mark = format!("/proc/{tool}/task/{tool}/children");
        let children = fs::read_to_string(mark).unwrap_or_default();
        if seeded.below(4) == 0 {
            story.push_str(" (its children stopped)");
            let pids = children.split_whitespace().filter_map(|pid| pid.parse().ok());
            pids.for_each(|pid| signal(pid, Signal::STOP));
        }
        // Only one signal: a second one would end the tool before it has cleaned up.
        let ask = seeded.one_of(&[Signal::TERM, Signal::INT, Signal::HUP]);
        let ask = if ignores(ask) { Signal::TERM } else { ask };
        write!(story, " then {ask:?}").unwrap();
        signal(tool, ask);
    }
    until(&|| format!("{story}: the tool does not end"), || child.try_wait().unwrap().is_some());
}

/// Checks settings, groups and folders before and after the next run or `doctor`.
fn check_leftovers(
    place: &Setup,
    tool: u32,
    killed: &[Victim],
    doctor: bool,
    story: &str,
    count: &mut Count,
) {
    let setting = || fs::read_to_string(SETTING).unwrap().trim().to_owned();
    let left = || {
        let mut left: Vec<String> =
            groups(tool).into_iter().map(|path| path.display().to_string()).collect();
        if setting() != BEFORE {
            left.push(setting());
        }
        left
    };
    let dead = |cleaner: Victim| killed.contains(&cleaner);
    // The tool, or else the warden and the guardian, must clean up without help.
    if !dead(Victim::Tool) || (!dead(Victim::Warden) && !dead(Victim::Guardian)) {
        until(&|| format!("{story}: {:?} is left", left()), || left().is_empty());
    }
    // A tool that was killed before it had a guardian has stored a value, but changed nothing.
    let files = || [remembered(), place.folders()].concat();
    count.left += u64::from(!left().is_empty() || !files().is_empty());
    let next = if doctor { "live doctor" } else { NEXT };
    let said = place.mmscale("next", next).output().unwrap().stderr;
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(left().is_empty(), "{story}: {:?} is left after {next}: {said}", left());
    assert!(files().is_empty(), "{story}: {:?} is left after {next}: {said}", files());
}

#[test]
fn nothing_is_left_of_runs_that_are_killed() {
    // SAFETY: only the calling thread and its children get a separate UTS namespace.
    let own = unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWUTS) };
    if own.is_err() || fs::write(SETTING, BEFORE).is_err() {
        return skipped("runs that are killed", "no setting may be changed here");
    }
    let place = Setup::new();
    let (seed, runs) = (number("MMSCALE_KILL_SEED", 1), USUAL * number("MMSCALE_DEPTH", 1));
    let mut count = Count::default();
    for nth in 0..runs {
        kill_one(&place, nth, &mut Seeded(seed << 32 | nth), &mut count);
    }
    let [one, two, three] = count.runs;
    let line = format!(
        "{runs} runs, {} processes killed: one in {one} runs, two together in {two}, three in \
         {three}; {} runs left something for the next run or doctor\n",
        count.kills, count.left
    );
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    assert!(one > 0 && two + three > 0, "{line}");
}
