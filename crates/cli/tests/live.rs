//! Tests that depend on the computer: the live kernel, capabilities, and installed programs. Tests
//! that cannot run are reported (`live-test skipped: ...`).

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

mod fake;

/// Nothing here takes that long, on a computer that does much else too: only what hangs does.
const PATIENCE: Duration = Duration::from_secs(240);

/// Reports a skipped test directly on standard error, because the test harness captures printed
/// output.
fn skipped(what: &str, why: &str) {
    let line = format!("live-test skipped: {what}: {why}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

fn mmscale() -> Command {
    Command::new(env!("CARGO_BIN_EXE_mmscale"))
}

fn said(output: &Output) -> String {
    let both = [output.stdout.clone(), output.stderr.clone()].concat();
    String::from_utf8(both).unwrap()
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let since = Instant::now();
    while !holds() {
        assert!(since.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Creates a folder with this script as a program named `name`. Returns it and a PATH that begins
/// with it.
fn with_program(name: &str, script: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join(name);
    fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", folder.path().display());
    (folder, path)
}

/// Returns the script of a stress-ng that does nothing; `metrics` writes its metrics at the end.
fn stress_ng(metrics: &str) -> String {
    format!(
        "if [ \"$1\" = --version ]; then echo 'stress-ng, version 9.9.9 (none)'; exit 0; fi\n\
         echo \"called: $*\"\n{metrics}"
    )
}

const METRICS: &str = "printf 'metrics:\\n    - stressor: mremap\\n      bogo-ops: 5000\\n      \
    wall-clock-time: 2.0\\n      user-time: 0.5\\n      system-time: 1.5\\n' > metrics.yaml";

fn run_with(path: &str, arguments: &[&str]) -> Output {
    let mut run = mmscale();
    run.args(["live", "stress", "churn", "--for", "1s"]).args(arguments);
    run.env("PATH", path).output().unwrap()
}

#[test]
fn figures_of_stress_ng_are_its_own_and_say_which_it_was() {
    let (_folder, path) = with_program("stress-ng", &stress_ng(METRICS));
    let output = run_with(&path, &["--runs", "2", "--format", "json", "--cpus", "1"]);
    assert!(output.status.success(), "{}", said(&output));
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["schema"], "mmscale/with/1");
    assert_eq!(found["provenance"]["stress_ng"], "stress-ng, version 9.9.9 (none)");
    let command = found["command"].as_str().unwrap();
    let line = "stress-ng --mremap 16 --mremap-bytes 4K --timeout 1s --metrics --yaml metrics.yaml";
    assert_eq!(command, line);
    let figure = |name: &str| {
        let figures = found["figures"].as_array().unwrap();
        figures.iter().find(|figure| figure["name"] == name).unwrap()["values"].clone()
    };
    assert_eq!(figure("bogo_ops_per_s"), serde_json::json!([2500.0, 2500.0]));
    assert_eq!(figure("cpu_ns_per_bogo_op"), serde_json::json!([400_000.0, 400_000.0]));
    let text = run_with(&path, &["--quick", "--workers", "report"]);
    let text = said(&text);
    assert!(text.contains("--mremap 8192 ") || text.contains("needs"), "{text}");
}

#[test]
fn a_stress_ng_that_is_missing_or_fails_is_told_of() {
    let failure = |path: &str| {
        let output = run_with(path, &["--runs", "1"]);
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        assert!(output.stdout.is_empty(), "no figures");
        said(&output)
    };
    let nowhere = failure("/no/such/folder");
    assert!(nowhere.contains("apt-get install"), "{nowhere}");
    for (script, why) in [
        (stress_ng("echo it ran out of luck; exit 3"), "it ran out of luck"),
        (stress_ng("echo nothing was written"), "nothing was written"),
        (stress_ng("echo 'metrics:' > metrics.yaml"), "the stressor mremap is missing"),
        (stress_ng(&METRICS.replace("5000", "many")), "bogo-ops is `many`"),
        ("echo I am something else".to_owned(), "cannot get the version"),
        (stress_ng("kill -KILL $$"), "killed from outside (signal 9)"),
    ] {
        let (_folder, path) = with_program("stress-ng", &script);
        let text = failure(&path);
        assert!(text.contains(why), "{why}: {text}");
    }
}

/// Returns the memory groups that a program has created and not removed.
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

/// Returns whether a process exists and is not a zombie.
fn lives(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().and_then(|rest| rest.trim().chars().next());
    state.is_some_and(|state| state != 'Z' && state != 'X')
}

/// Returns whether a program has a trace instance.
fn has_instance(of: u32) -> bool {
    Path::new(&format!("/sys/kernel/tracing/instances/mmscale_{of}")).exists()
}

/// Returns whether this process, and thus its children by default, ignores a signal: SIGINT is
/// ignored in background jobs of a shell, SIGHUP under nohup. Such a signal has no effect if it
/// arrives before the handler is installed.
fn ignores(signal: Signal) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & 1 << (signal.as_raw() - 1) != 0)
}

/// Kills the run at any time: before it starts, while it is set up, and while it runs.
#[test]
fn whenever_a_run_is_ended_nothing_of_it_is_left() {
    let (noted, path) = with_program(
        "stress-ng",
        &stress_ng("echo $$ >> $NOTED/pids; sh -c 'echo $$ >> $NOTED/pids; sleep 100000'; exit 1"),
    );
    let pids = || fs::read_to_string(noted.path().join("pids")).unwrap_or_default();
    let heard = |signal| if ignores(signal) { Signal::TERM } else { signal };
    let signals = [heard(Signal::INT), heard(Signal::HUP), Signal::TERM, Signal::KILL];
    for (nth, signal) in signals.into_iter().cycle().take(20).enumerate() {
        let temporary = tempfile::tempdir().unwrap();
        let known = pids().lines().count();
        let mut run = mmscale();
        run.args(["live", "stress", "churn", "--for", "1000s"]);
        run.env("PATH", &path).env("TMPDIR", temporary.path()).env("NOTED", noted.path());
        let mut child = run.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        match nth / 4 {
            // When the whole run is active.
            0 => until("it does not begin", || pids().lines().count() >= known + 2),
            // At times before that.
            round => std::thread::sleep(Duration::from_millis(8 << (2 * (round as u32 - 1)))),
        }
        let pid = Pid::from_child(&child);
        kill_process(pid, signal).unwrap();
        let tool = child.id();
        let status = child.wait().unwrap();
        let ended = status.code() == Some(1) || status.signal() == Some(signal.as_raw());
        assert!(ended, "{signal:?}: {status:?}");
        until("a process is left", || !pids().lines().any(lives));
        until("a memory group is left", || groups(tool).is_empty());
        until("a trace instance is left", || !has_instance(tool));
        if signal != Signal::KILL && status.code() == Some(1) {
            assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0, "a folder is left");
        }
    }
}

/// A setting is restored when the tool is killed during a comparison. The setting belongs to a
/// namespace of the test, so that other programs are not affected.
#[test]
fn a_comparison_that_is_killed_puts_its_setting_back() {
    const PATH: &str = "/proc/sys/kernel/domainname";
    // SAFETY: only the calling thread and its children get a separate UTS namespace.
    let own = unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWUTS) };
    if own.is_err() || fs::write(PATH, "before").is_err() {
        skipped("a comparison that is killed", "no setting may be changed here");
        return;
    }
    for signal in [Signal::KILL, Signal::INT] {
        let mut run = mmscale();
        run.args(["live", "ab", "vmstat", "kernel.domainname=one,two", "--arm", "stock"]);
        run.args(["--set", "watch=off", "--seeds", "1000"]);
        let mut child = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let setting = || fs::read_to_string(PATH).unwrap().trim().to_owned();
        until("it is not set", || setting() != "before");
        kill_process(Pid::from_child(&child), signal).unwrap();
        let tool = child.id();
        child.wait().unwrap();
        until("it is not put back", || setting() == "before");
        until("a memory group is left", || groups(tool).is_empty());
    }
}

/// Without its guardian, a comparison ends and restores its setting. A signal meanwhile counts as
/// the first one and does not end the tool early.
#[test]
fn a_comparison_whose_guardian_is_killed_ends_and_restores_its_setting() {
    const PATH: &str = "/proc/sys/kernel/domainname";
    // SAFETY: only the calling thread and its children get a separate UTS namespace.
    let own = unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWUTS) };
    if own.is_err() || fs::write(PATH, "before").is_err() {
        return skipped("a comparison without its guardian", "no setting may be changed here");
    }
    for signalled in [false, true] {
        let mut run = mmscale();
        run.args(["live", "ab", "vmstat", "kernel.domainname=one,two", "--arm", "stock"]);
        run.args(["--set", "watch=off", "--seeds", "1000"]);
        let mut child = run.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let setting = || fs::read_to_string(PATH).unwrap().trim().to_owned();
        until("it is not set", || setting() != "before");
        let is_guardian = |pid: &&str| {
            fs::read_to_string(format!("/proc/{pid}/comm"))
                .is_ok_and(|name| name == "mmscale-guard\n")
        };
        let children = format!("/proc/{0}/task/{0}/children", child.id());
        let find = || {
            let pids = fs::read_to_string(&children).unwrap();
            pids.split_whitespace().find(is_guardian).map(|pid| pid.parse().unwrap())
        };
        // The guardian sets its name shortly after its fork.
        until("there is no guardian", || find().is_some());
        let guardian = find().unwrap();
        kill_process(Pid::from_raw(guardian).unwrap(), Signal::KILL).unwrap();
        if signalled {
            // The result must not depend on whether the tool already knows the guardian.
            std::thread::sleep(Duration::from_millis(2));
            kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        }
        let status = child.wait().unwrap();
        let mut said = String::new();
        std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut said).unwrap();
        assert_eq!(status.code(), Some(1), "{said}");
        assert!(said.contains("kernel.domainname was restored"), "{said}");
        assert_eq!(setting(), "before");
    }
}

/// Copies the binary to a folder where all users may execute it.
fn for_everybody() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.path().join("mmscale");
    fs::copy(env!("CARGO_BIN_EXE_mmscale"), &program).unwrap();
    (folder, program)
}

/// Returns a command of an unprivileged user with at most `processes` processes.
fn as_nobody(program: &Path, processes: u32) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"]);
    command.args(["prlimit", &format!("--nproc={processes}"), "--"]).arg(program);
    command.current_dir("/");
    command
}

#[test]
fn without_rights_rates_are_measured_and_the_rest_is_said_to_be_missing() {
    let (_folder, program) = for_everybody();
    let run =
        |processes, arguments: &[&str]| as_nobody(&program, processes).args(arguments).output();
    let Some(doctor) = run(4096, &["live", "doctor"]).ok().filter(|_| is_root()) else {
        skipped("without rights", "needs root and setpriv to run as another user");
        return;
    };
    assert!(doctor.status.success(), "{}", said(&doctor));
    assert!(said(&doctor).contains("missing  live kernel"), "{}", said(&doctor));
    let live = run(4096, &["live", "watch", "--for", "100ms"]).unwrap();
    assert_eq!(live.status.code(), Some(1));
    assert!(said(&live).contains("mmscale live doctor"), "{}", said(&live));
    let arguments = ["run", "churn", "--on", "live", "--arm", "stock", "--quick", "--seeds", "1"];
    let ran = run(4096, &[&arguments[..], &["--details"]].concat()).unwrap();
    let text = said(&ran);
    assert!(ran.status.success(), "{text}");
    assert!(text.contains("cannot observe waits, batches and calls of the kernel"), "{text}");
    let has_row = |name| text.lines().any(|line| line.starts_with(name));
    assert!(has_row("ops_per_s") && !has_row("lruvec_waits_per_op"), "{text}");
    let words: Vec<&str> = text.split_whitespace().collect();
    let reason = "lruvec_waits_per_op: needs permission to observe the live kernel";
    assert!(words.join(" ").contains(reason), "{text}");
    // Runs that need more processes are refused before anything starts.
    let ran = run(20, &arguments).unwrap();
    assert_eq!(ran.status.code(), Some(1), "{}", said(&ran));
    assert!(said(&ran).contains("ulimit -u (20) leaves room for"), "{}", said(&ran));
}

/// Each call makes the flushes, interrupts, acquisitions of mmap_lock and faults that it makes on
/// the simulator, whatever other programs do meanwhile. Their effects on page caches and ticks are
/// not checked here.
#[test]
fn calls_have_the_same_effects_on_this_kernel_and_on_the_simulator() {
    let mut run = mmscale();
    run.args(["live", "counts", "--for", "10s", "--format", "json"]);
    let child = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let tool = child.id();
    let output = child.wait_with_output().unwrap();
    let text = said(&output);
    let cannot = ["tracefs cannot be read", "has no tracepoints", "must be online", "were lost"];
    if !is_root() || cannot.iter().any(|why| text.contains(why)) {
        assert_eq!(output.status.code(), Some(1), "{text}");
        skipped("counts", text.lines().last().unwrap_or("needs root"));
        return;
    }
    assert!(output.status.success(), "{text}");
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["schema"], "mmscale/counts/1");
    let sections = found["sections"].as_array().unwrap();
    let calls = sections.iter().find(|section| !section["columns"].is_null()).unwrap();
    let rows = calls["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 22, "{text}");
    let differ: Vec<_> = rows.iter().filter(|row| row["verdict"] == "different").collect();
    assert!(differ.is_empty(), "{differ:?}");
    assert!(!has_instance(tool), "an instance is left");
}

/// Runs in a separate mount namespace, in which the kernel's types are hidden.
#[test]
fn without_btf_nothing_is_watched_and_it_is_said_why() {
    let script =
        "mount -t tmpfs none /sys/kernel/btf || exit 77; exec \"$0\" live watch --for 100ms";
    let mut hidden = Command::new("unshare");
    hidden.args(["--mount", "sh", "-c", script, env!("CARGO_BIN_EXE_mmscale")]);
    match hidden.output() {
        Ok(output) if output.status.code() == Some(1) && !said(&output).starts_with("unshare") => {
            let text = said(&output);
            assert!(text.contains("does not describe its types"), "{text}");
            assert!(text.contains("mmscale live doctor"), "{text}");
        }
        other => skipped("without BTF", &format!("no mount namespace here: {other:?}")),
    }
}

#[test]
fn more_processes_than_there_may_be_are_refused() {
    let mut run = mmscale();
    run.args(["run", "churn", "--on", "live", "--arm", "stock", "--quick", "--seeds", "1"]);
    run.args(["--cpus", "4096", "--set", "processes_per_cpu=8192"]);
    let output = run.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let text = said(&output);
    assert!(text.contains("processes and threads") && text.contains("make it smaller"), "{text}");
}

#[test]
fn a_comparison_names_the_program_whose_study_it_is() {
    let asked = |more: &[&str]| {
        let mut run = Command::new(fake::path());
        run.args(["live", "ab", "other", "factor=3,6", "--seeds", "2"]).args(more);
        run.output().unwrap()
    };
    let output = asked(&["--format", "json"]);
    assert!(output.status.success(), "{}", said(&output));
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&found["build"]["name"], &found["program"]["name"]),
        (&"mmscale".into(), &"fake".into())
    );
    assert_eq!(found["program"]["changes"], "ba9876543210");
    let text = said(&asked(&[]));
    let program = "\nprogram: fake 1.2.3, commit 0123456789ab + changes ba9876543210\nmmscale: ";
    assert!(text.contains(program), "{text}");
}

/// A trace as `perf script` prints it.
const TRACE: &str = "\
       usemem  4211 [000] 12.000000100: lock:contention_begin: 0xffff888100000250 (flags=SPIN)
       usemem  4212 [001] 12.000000300: lock:contention_begin: 0xffff888100000250 (flags=SPIN)
       usemem  4211 [000] 12.000000600: lock:contention_end: 0xffff888100000250 (ret=0)
       usemem  4212 [001] 12.000001100: lock:contention_end: 0xffff888100000250 (ret=0)";

/// Explains a file that begins with these bytes, with a program of this name and script.
fn explained(start: &[u8], name: &str, script: Option<&str>) -> Output {
    let (folder, mut path) = with_program(name, script.unwrap_or("exit 1"));
    if script.is_none() {
        path = "/nowhere".to_owned();
    }
    let file = folder.path().join("recording");
    fs::write(&file, start).unwrap();
    mmscale().arg("explain").arg(file).env("PATH", path).output().unwrap()
}

#[test]
fn recordings_are_read_by_the_programs_that_print_them() {
    let recordings: [(&[u8], &str, &str); 3] = [
        (b"PERFILE2\0\0", "perf", "script --ns -i "),
        (b"\x17\x08\x44tracing6\0", "trace-cmd", "report -t -i "),
        (b"\x0a\x02\x08\x01\x0a\x02\x08\x02", "traceconv", "systrace "),
    ];
    for (start, program, options) in recordings {
        let script = format!(
            "case \"$*\" in '{options}'*) ;; *) echo \"wrong: $*\" >&2; exit 7;; esac\ncat <<'.'\n\
             {TRACE}\n."
        );
        let read = explained(start, program, Some(&script));
        // Lines are wrapped.
        let all = said(&read).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(read.status.success(), "{all}");
        assert!(all.contains("2 waits of 1.3 us in all"), "{all}");
        assert!(all.contains(&format!("read by way of `{program} {}", options.trim())), "{all}");

        let failed =
            explained(start, program, Some("echo one >&2; echo it is damaged >&2; exit 3"));
        assert_eq!(failed.status.code(), Some(2), "{}", said(&failed));
        assert!(said(&failed).contains(&format!("`{program}` failed: it is damaged")));

        let silent = explained(start, program, Some("exit 0"));
        assert!(said(&silent).contains("printed nothing"), "{}", said(&silent));

        let absent = explained(start, program, None);
        assert_eq!(absent.status.code(), Some(2), "{}", said(&absent));
        let what = format!("{program} is not installed here; run `{program} {}", options.trim());
        assert!(said(&absent).contains(&what), "{}", said(&absent));
    }
}

#[test]
fn limits_are_those_of_the_live_kernel() {
    let script = mmscale().args(["profile", "snapshot"]).output().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let [program, snapshot] = ["snapshot.sh", "a.snap"].map(|name| folder.path().join(name));
    fs::write(&program, script.stdout).unwrap();
    let taken = Command::new("sh").arg(program).output().unwrap();
    assert!(taken.status.success(), "{}", said(&taken));
    fs::write(&snapshot, taken.stdout).unwrap();
    let listed = mmscale().args(["list", "limits", "--from"]).arg(&snapshot).output().unwrap();
    let all = said(&listed);
    if !listed.status.success() {
        return skipped("limits of the live kernel", &all);
    }
    // Both are computed from the pages of each zone and CPU. Watermarks may be raised by programs.
    let differs = |column: &str| {
        let what = format!(": {column} is ");
        all.lines().any(|line| line.starts_with("differs: ") && line.contains(&what))
    };
    assert!(!differs("batch") && !differs("managed") && !differs("high_max"), "{all}");

    let profile = ["profile", "new", "--base", "x86-2", "--from"];
    let profile = mmscale().args(profile).arg(&snapshot).output().unwrap();
    match cfg!(target_arch = "x86_64") {
        true => assert!(profile.status.success(), "{}", said(&profile)),
        false => skipped("a profile of this computer", "the base is one of x86"),
    }
}

#[test]
fn a_recording_of_this_computer_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("perf.data");
    let mut record = Command::new("perf");
    record.args(["record", "-q", "-a", "-g", "-e", "lock:contention_begin"]);
    record.args(["-e", "lock:contention_end", "-o"]).arg(&file).args(["--", "sleep", "0.5"]);
    match record.output() {
        Ok(output) if output.status.success() => {}
        Ok(output) => return skipped("a recording of perf", &said(&output)),
        Err(why) => return skipped("a recording of perf", &why.to_string()),
    }
    let read = mmscale().arg("explain").arg(&file).output().unwrap();
    let all = said(&read);
    // Without a wait in that time perf prints nothing.
    let is_read = read.status.success() && all.contains("events of contention");
    assert!(is_read || all.contains("printed nothing"), "{all}");
}
