//! Kills `kernel boot`, `kernel instructions` and `lift record` at seeded moments. QEMU must end
//! with the call; no file may be left but the console that was asked for; a document or a recording
//! is whole or not there.
//!
//! 60 calls are killed; `MMSCALE_KILLS` asks for another number, and `MMSCALE_KILL_SEED` selects
//! other moments.

use crate::{IMAGE, is_absent, kernel, lift, skipped, stderr};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const USUAL: u64 = 60;
/// The variable in the environment of a call by which its processes are found.
const MARK: &str = "MMSCALE_KILLED_CALL";
/// Processes that were killed end within this time, also on a busy computer.
const PATIENCE: Duration = Duration::from_secs(60);
/// A third of the kills are within this time of the start of a call, in which it reads the image
/// and makes files.
const EARLY_MS: u64 = 3000;
/// The others are within this time of the start of QEMU: most machines are up by then, and some
/// calls are over.
const LATE_MS: u64 = 15_000;

fn number(variable: &str, default: u64) -> u64 {
    let Ok(text) = std::env::var(variable) else { return default };
    text.parse().unwrap_or_else(|_| panic!("{variable} is {text}: give a number"))
}

/// SplitMix64.
struct Seeded(u64);

impl Seeded {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }
}

/// Returns the names of the living processes with the mark in their environment.
fn processes(mark: &str) -> Vec<String> {
    let mark = format!("{MARK}={mark}");
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let of = |entry: fs::DirEntry| {
        entry.file_name().to_str()?.parse::<i32>().ok()?;
        let environment = fs::read(entry.path().join("environ")).ok()?;
        let has = environment.split(|byte| *byte == 0).any(|word| word == mark.as_bytes());
        has.then(|| fs::read_to_string(entry.path().join("comm")).unwrap_or_default())
    };
    entries.filter_map(of).collect()
}

/// Returns the names in a folder.
fn names(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// The command of a call that is killed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    Boot,
    Instructions,
    Record,
}

/// The name of the recording that a call writes.
const RECORDING: &str = "mmap1.lift";

/// A call that is killed.
struct Killed {
    what: What,
    signal: Signal,
    /// Whether the time is from the start of QEMU, and not from that of the call.
    of_emulator: bool,
    after: Duration,
}

impl Killed {
    fn draw(seeded: &mut Seeded) -> Self {
        let all = [What::Boot, What::Instructions, What::Record];
        let what = all[seeded.below(3) as usize];
        let signal = [Signal::INT, Signal::TERM, Signal::KILL][seeded.below(3) as usize];
        let of_emulator = seeded.below(3) > 0;
        let most = if of_emulator { LATE_MS } else { EARLY_MS };
        Self { what, signal, of_emulator, after: Duration::from_millis(seeded.below(most)) }
    }
    fn command(&self, folder: &Path) -> Command {
        let mut command = match self.what {
            What::Boot => kernel(&["boot"]),
            What::Instructions => kernel(&["instructions", "--format", "json", "mmap1"]),
            What::Record => lift(&["record", "mmap1", "--ops", "4", "-o", RECORDING]),
        };
        command.args(["--kernel", IMAGE, "--cpus", "2"]);
        if self.what == What::Boot {
            command.arg("--console").arg(folder.join("console"));
            command.args(["--", "live", "doctor", "--format", "json"]);
        }
        command
    }
}

impl std::fmt::Display for Killed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { what, signal, of_emulator, after } = self;
        let signal = [(Signal::INT, "SIGINT"), (Signal::TERM, "SIGTERM")]
            .into_iter()
            .find_map(|(one, name)| (one == *signal).then_some(name));
        let since = if *of_emulator { "QEMU's start" } else { "the start" };
        let signal = signal.unwrap_or("SIGKILL");
        write!(f, "{what:?}, {signal} {} ms after {since}", after.as_millis())
    }
}

/// The phase of a call that was killed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Reached {
    Start,
    Emulator,
    End,
}

/// Kills a call. Checks that nothing is left.
fn kill(killed: &Killed, at: u64) -> Reached {
    let folder = tempfile::tempdir().unwrap();
    let temporary = folder.path().join("tmp");
    fs::create_dir(&temporary).unwrap();
    let shared = names(Path::new("/dev/shm"));
    let cache = names(&dirs_of_images());
    let mark = format!("{}-{at}", std::process::id());
    let mut command = killed.command(folder.path());
    command.current_dir(folder.path()).env(MARK, &mark).env("TMPDIR", &temporary);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = child.spawn().unwrap();
    let pid = Pid::from_child(&child);
    let ended = std::thread::spawn(move || child.wait_with_output().unwrap());
    let has_emulator = || processes(&mark).iter().any(|name| name.contains("qemu"));
    while killed.of_emulator && !has_emulator() && !ended.is_finished() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let begun = Instant::now();
    while begun.elapsed() < killed.after && !ended.is_finished() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let reached = match has_emulator() {
        _ if ended.is_finished() => Reached::End,
        true => Reached::Emulator,
        false => Reached::Start,
    };
    if reached != Reached::End {
        // It may have ended in this moment.
        let _ = kill_process(pid, killed.signal);
    }
    let output = ended.join().unwrap();
    let said = stderr(&output);
    let since = Instant::now();
    while !processes(&mark).is_empty() {
        assert!(since.elapsed() < PATIENCE, "{killed}: {:?} live on: {said}", processes(&mark));
        std::thread::sleep(Duration::from_millis(5));
    }
    let allowed = BTreeSet::from(["console", "tmp", RECORDING].map(str::to_owned));
    let left = names(folder.path());
    assert!(left.is_subset(&allowed), "{killed}: {left:?}");
    let is_recorded = left.contains(RECORDING);
    if is_recorded {
        let shown = lift(&["show", RECORDING]).current_dir(folder.path()).output().unwrap();
        assert!(shown.status.success(), "{killed}: half a recording: {}", stderr(&shown));
    }
    assert_eq!(names(&temporary), BTreeSet::new(), "{killed}");
    assert!(names(Path::new("/dev/shm")).is_subset(&shared), "{killed}: /dev/shm");
    assert_eq!(names(&dirs_of_images()), cache, "{killed}: the cache of images");
    // A document is in one piece, or not there; a success has one.
    let lines = output.stdout.split_inclusive(|byte| *byte == b'\n');
    for line in lines {
        let document = serde_json::from_slice::<serde_json::Value>(line);
        assert!(document.is_ok_and(|document| document.is_object()), "{killed}: half a document");
    }
    let has_result = is_recorded || !output.stdout.is_empty();
    assert_eq!(output.status.success(), has_result, "{killed}: {said}");
    assert!(!said.contains("panicked at"), "{killed}: {said}");
    let is_told = output.status.success() || said.contains("interrupted");
    match reached {
        // The emulator may fail, but no call is wrong.
        Reached::End => assert_ne!(output.status.code(), Some(2), "{killed}: {said}"),
        Reached::Emulator => assert!(is_told || killed.signal == Signal::KILL, "{killed}: {said}"),
        Reached::Start => {}
    }
    reached
}

#[test]
#[ignore = "reads an image of a kernel"]
fn a_folder_of_a_killed_compiler_is_removed_by_the_next_call() {
    let folder = tempfile::tempdir().unwrap();
    let temporary = folder.path().join("tmp");
    fs::create_dir(&temporary).unwrap();
    let slow = folder.path().join("cc");
    fs::write(&slow, "#!/bin/sh\nsleep 60 >/dev/null 2>&1\n").unwrap();
    fs::set_permissions(&slow, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let record = |compiler: &Path| {
        let args = ["record", "--in-c", "--kernel", IMAGE, "mmap1", "-o", RECORDING];
        let mut command = lift(&args);
        command.current_dir(folder.path()).env("TMPDIR", &temporary).env("CC", compiler);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command
    };
    let mut child = record(&slow).spawn().unwrap();
    let since = Instant::now();
    while names(&temporary).is_empty() {
        if let Some(status) = child.try_wait().unwrap() {
            let said = stderr(&child.wait_with_output().unwrap());
            assert!(is_absent(&said), "{status}: {said}");
            return skipped("a killed compiler", &said);
        }
        assert!(since.elapsed() < PATIENCE, "no folder for the program");
        std::thread::sleep(Duration::from_millis(5));
    }
    let of_compiler = Pid::from_child(&child);
    kill_process(of_compiler, Signal::KILL).unwrap();
    child.wait().unwrap();
    assert_eq!(names(&temporary).len(), 1, "it is left");
    let output = record(Path::new("false")).output().unwrap();
    let said = stderr(&output);
    assert!(said.contains("cleaned up after a killed run"), "{said}");
    assert!(said.contains("does not compile the program"), "{said}");
    assert_eq!(names(&temporary), BTreeSet::new());
}

/// The folder of fetched images.
fn dirs_of_images() -> std::path::PathBuf {
    let home = std::env::var_os("HOME").unwrap_or_default();
    let cache = std::env::var_os("XDG_CACHE_HOME");
    let cache = cache.map_or_else(|| Path::new(&home).join(".cache"), Into::into);
    cache.join("mmscale/kernels")
}

#[test]
#[ignore = "boots kernels in an emulator, and kills them"]
fn killed_machines_leave_nothing() {
    let mut probe = kernel(&["boot", "--kernel", IMAGE, "--limit", "100ms", "--", "list"]);
    let said = stderr(&probe.output().unwrap());
    if is_absent(&said) {
        return skipped("killed machines", &said);
    }
    let seed = number("MMSCALE_KILL_SEED", 1);
    let mut seeded = Seeded(seed);
    let mut reached = Vec::new();
    for at in 0..number("MMSCALE_KILLS", USUAL) {
        let killed = Killed::draw(&mut seeded);
        reached.push(kill(&killed, at));
        println!("{killed}: reached {:?}", reached[reached.len() - 1]);
    }
    let count = |which| reached.iter().filter(|one| **one == which).count();
    println!(
        "seed {seed}: {} killed before QEMU ran, {} while it ran, {} had ended",
        count(Reached::Start),
        count(Reached::Emulator),
        count(Reached::End)
    );
    assert!(count(Reached::Emulator) > 0, "no machine was killed");
}
