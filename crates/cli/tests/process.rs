//! Tests of external influences on a run: signals, full disks, closed pipes, invalid directories.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Output, Stdio};

mod fake;

/// The command line with the fake study.
fn mmscale() -> Command {
    Command::new(fake::path())
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Runs a line of shell with the program's path in `$FAKE` and a directory in `$DIR`.
fn shell(line: &str, folder: &Path) -> Output {
    let program = fake::path();
    Command::new("bash")
        .args(["-c", line])
        .env("FAKE", program)
        .env("DIR", folder)
        .output()
        .unwrap()
}

#[test]
fn ctrl_c_ends_cleanly_and_says_what_was_done() {
    // Runs take a tenth of a second each, one after another; the signal is sent after the first.
    let args = ["--on", "threads", "--set", "pause_s=100ms", "--seeds", "100", "--arm", "stock"];
    interrupt_after(&args, "1 of 100 runs done", " of 100 runs");
}

/// Runs the study `fake`, interrupts it after it has said `when`, and checks that it ends with an
/// error that names the `runs`, and leaves nothing.
fn interrupt_after(args: &[&str], when: &str, runs: &str) {
    let folder = tempfile::tempdir().unwrap();
    let mut child = mmscale()
        .args(["run", "fake"])
        .args(args)
        .arg("-o")
        .arg(folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains(when) {
        line.clear();
        assert_ne!(stderr.read_line(&mut line).unwrap(), 0, "it ended by itself: {when}");
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{rest}");
    assert!(rest.contains("error: interrupted after "), "{rest}");
    assert!(rest.contains(&format!("{runs} of `fake`; no result was written")), "{rest}");
    assert!(output.stdout.is_empty());
    assert!(names(folder.path()).is_empty());
}

/// Before the first look and after it: neither writes a part of a document.
#[test]
fn ctrl_c_before_and_after_a_first_look_leaves_nothing() {
    // Whole numbers of this size are too coarse for the first look to settle.
    let args = ["--set", "pause_s=300ms", "--set", "factor=2", "--seeds", "auto"];
    for all in ["of 9 runs", "of 21 runs"] {
        interrupt_after(&args, &format!("{all} done"), &format!(" {all}"));
    }
}

#[test]
fn an_interrupted_analysis_loses_no_document() {
    let folder = tempfile::tempdir().unwrap();
    // The document has two runs; the analysis would take minutes.
    let mut child = mmscale()
        .args(["run", "fake", "--robust", "--set", "pause_s=0.5", "--seeds", "1"])
        .args(["--arm", "stock,posted", "-o"])
        .arg(folder.path())
        .env("XDG_CACHE_HOME", folder.path().join("cache"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("moving the costs of") {
        line.clear();
        assert_ne!(stderr.read_line(&mut line).unwrap(), 0, "it ended by itself");
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{rest}");
    assert!(rest.contains("error: interrupted; finished runs are in the cache"), "{rest}");
    let names: Vec<String> = names(folder.path());
    let documents = names.iter().filter(|name| name.ends_with(".json"));
    assert_eq!(documents.count(), 1, "{names:?}");
    assert!(String::from_utf8(output.stdout).unwrap().contains("headlines"), "{rest}");
}

#[test]
fn results_come_as_text_and_json() {
    let folder = tempfile::tempdir().unwrap();
    let below = folder.path().join("made/for/it");
    let mut run = mmscale();
    run.args(["run", "all", "--cpus", "8,16", "--seeds", "1", "--details", "-o"]).arg(&below);
    let output = run.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let stems = ["fake-arm64-72-cpus16", "fake-arm64-72-cpus8", "other-arm64-72-cpus16"];
    let names = names(&below);
    assert_eq!(names.len(), 8);
    for stem in stems {
        assert!(names.contains(&format!("{stem}.json")), "{names:?}");
        assert!(names.contains(&format!("{stem}.txt")), "{names:?}");
    }
    let text = fs::read_to_string(below.join("fake-arm64-72-cpus8.txt")).unwrap();
    assert!(String::from_utf8(output.stdout).unwrap().contains(&text));
    let json = fs::read_to_string(below.join("fake-arm64-72-cpus8.json")).unwrap();
    let document: mmscale_document::Document = serde_json::from_str(&json).unwrap();
    assert_eq!((document.study.as_str(), document.cpus), ("fake", 8));
}

/// A name has what is not the default, so that calls at several sizes fit into one folder.
#[test]
fn calls_that_differ_have_files_of_their_own_in_one_folder() {
    let folder = tempfile::tempdir().unwrap();
    for more in ["--cpus 24", "--cpus 96", "--set factor=2", "--hz 250", ""] {
        let output = shell(&format!("$FAKE run fake --quick {more} -o $DIR"), folder.path());
        assert!(output.status.success(), "{more}: {}", stderr(&output));
    }
    let json: Vec<String> =
        names(folder.path()).into_iter().filter(|name| name.ends_with(".json")).collect();
    let expected = ["", "-cpus24", "-cpus96", "-factor-2", "-hz250"];
    let mut expected = expected.map(|what| format!("fake-arm64-72{what}.json"));
    expected.sort_unstable();
    assert_eq!(json, expected);
}

/// `-o` is a file if it ends in the file's suffix, else a folder, with every command.
#[test]
fn an_output_is_a_file_by_its_suffix_and_else_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let run = |line: &str| shell(line, folder.path());
    let done = run("$FAKE run fake --quick -o $DIR/one.json");
    assert!(done.status.success(), "{}", stderr(&done));
    assert_eq!(names(folder.path()), ["one.json", "one.txt"]);
    let two = run("$FAKE run fake --quick --cpus 8,16 -o $DIR/two.json");
    assert_eq!(two.status.code(), Some(2));
    let why = "cannot write 2 documents to the file";
    assert!(stderr(&two).contains(why), "{}", stderr(&two));
    let page = run("$FAKE report $DIR/one.json -o $DIR/pages");
    assert!(page.status.success(), "{}", stderr(&page));
    assert_eq!(names(&folder.path().join("pages")), ["report.html"]);
    let profile = run("$FAKE profile new --base x86-512 --cpus 32 -o $DIR/pages");
    assert!(profile.status.success(), "{}", stderr(&profile));
    assert_eq!(names(&folder.path().join("pages")), ["machine.toml", "report.html"]);
}

#[test]
fn a_run_never_overwrites_another_run() {
    let folder = tempfile::tempdir().unwrap();
    let run = |more: &str| shell(&format!("$FAKE run fake --quick {more} -o $DIR"), folder.path());
    assert!(run("--seed 1").status.success());
    let json = folder.path().join("fake-arm64-72.json");
    let first = fs::read_to_string(&json).unwrap();
    let again = run("--seed 2");
    assert_eq!(again.status.code(), Some(2), "{}", stderr(&again));
    assert!(again.stdout.is_empty(), "nothing was started");
    for word in ["fake-arm64-72.json", "the file exists", "--replace"] {
        assert!(stderr(&again).contains(word), "{word}: {}", stderr(&again));
    }
    assert_eq!(fs::read_to_string(&json).unwrap(), first);
    let replaced = run("--seed 2 --replace");
    assert!(replaced.status.success(), "{}", stderr(&replaced));
    assert_ne!(fs::read_to_string(&json).unwrap(), first);
    // One of the two files suffices for the refusal.
    fs::remove_file(json).unwrap();
    assert_eq!(run("--seed 2").status.code(), Some(2));
}

#[test]
fn a_file_that_appears_during_a_run_is_kept_and_so_is_the_result() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = mmscale()
        .args(["run", "fake", "--on", "threads", "--set", "pause_s=100ms", "--seeds", "20"])
        .args(["--arm", "stock", "-o"])
        .arg(folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("1 of 20 runs done") {
        line.clear();
        assert_ne!(stderr.read_line(&mut line).unwrap(), 0, "it ended by itself");
    }
    let theirs = folder.path().join("fake-host-pause_s-0.1.json");
    fs::write(&theirs, "theirs").unwrap();
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{rest}");
    assert!(rest.contains("fake-host-pause_s-0.1.2.json` in place of"), "{rest}");
    assert_eq!(fs::read_to_string(theirs).unwrap(), "theirs");
    let ours = fs::read_to_string(folder.path().join("fake-host-pause_s-0.1.2.json")).unwrap();
    let document: mmscale_document::Document = serde_json::from_str(&ours).unwrap();
    assert_eq!(document.study, "fake");
}

/// A link in place of the file, as the owner of the folder may plant it: its target must not be
/// changed, nor, without `--replace`, the link itself.
#[test]
fn a_profile_never_overwrites_what_a_link_leads_to() {
    let folder = tempfile::tempdir().unwrap();
    let (secret, link) = (folder.path().join("secret"), folder.path().join("own.toml"));
    fs::write(&secret, "precious").unwrap();
    std::os::unix::fs::symlink(&secret, &link).unwrap();
    let output = shell("$FAKE profile calibrate --quick -o $DIR/own.toml", folder.path());
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("--replace"), "{}", stderr(&output));
    let output = shell("$FAKE profile calibrate --quick --replace -o $DIR/own.toml", folder.path());
    assert_eq!(fs::read_to_string(&secret).unwrap(), "precious");
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(fs::symlink_metadata(&link).unwrap().is_file());
    assert_eq!(names(folder.path()), ["own.toml", "secret"]);
}

#[test]
fn a_full_disk_is_an_error_and_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    // No file may grow, as on a full disk; the corresponding signal is ignored.
    let line = "trap '' XFSZ; ulimit -f 0; exec $FAKE run fake --quick -o $DIR";
    let output = shell(line, folder.path());
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("error: cannot write `"), "{}", stderr(&output));
    assert!(names(folder.path()).is_empty());
    let output = shell("$FAKE run fake --quick >/dev/full", folder.path());
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("error: cannot write to standard output"));
}

#[test]
fn a_place_where_nothing_can_be_made_is_found_before_the_run() {
    let output = mmscale().args(["run", "fake", "-o", "/proc/mmscale/results"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).starts_with("error: cannot write `/proc/mmscale/results`"));
    assert!(output.stdout.is_empty());
}

#[test]
fn a_closed_pipe_is_no_failure() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in ["run fake --quick --format json", "list", "live doctor", ""] {
        let line = format!("set -o pipefail; (sleep 0.2; $FAKE {arguments}) | true");
        let output = shell(&line, folder.path());
        assert!(output.status.success(), "{arguments}: {}", stderr(&output));
    }
}

#[test]
fn nobody_who_reads_stderr_is_no_failure() {
    let folder = tempfile::tempdir().unwrap();
    let line = "exec 3>&1; (sleep 0.2; $FAKE run fake --quick -o $DIR; echo \"exit code $?\" >&3) \
                2>&1 >/dev/null | true";
    let output = shell(line, folder.path());
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "exit code 0\n");
    assert_eq!(names(folder.path()), ["fake-arm64-72.json", "fake-arm64-72.txt"]);
}

/// Returns whether this process, and thus its children by default, ignores a signal.
fn ignores(signal: rustix::process::Signal) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal.as_raw() - 1) & 1 == 1
}

#[test]
fn the_first_signal_ends_a_run_that_does_not_look() {
    use rustix::process::{Pid, Signal, kill_process};
    let folder = tempfile::tempdir().unwrap();
    // A program that was started by `nohup` continues at SIGHUP, and so do the children of tests.
    let hangs_up = (!ignores(Signal::HUP)).then_some(Signal::HUP);
    for signal in [Signal::INT, Signal::TERM].into_iter().chain(hangs_up) {
        let begin = std::time::Instant::now();
        // Two documents: the second runs for a minute and ignores the interrupt.
        let mut child = mmscale()
            .args(["run", "fake", "--set", "pause_s=0,60", "--seeds", "1", "--arm", "stock"])
            .args(["--details", "--replace", "-o"])
            .arg(folder.path())
            .env("FAKE_IS_DEAF", "1")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.starts_with("[2/2]") {
            line.clear();
            assert_ne!(stderr.read_line(&mut line).unwrap(), 0, "it ended by itself");
        }
        kill_process(Pid::from_child(&child), signal).unwrap();
        let mut rest = String::new();
        stderr.read_to_string(&mut rest).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{signal:?}: {rest}");
        assert!(rest.contains("error: interrupted"), "{rest}");
        assert!(begin.elapsed().as_secs() < 30, "it went on to its own end");
        // The first document is complete, in both places.
        let first = fs::read_to_string(folder.path().join("fake-arm64-72-pause_s-0.txt")).unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), first);
    }
    assert_eq!(names(folder.path()).len(), 2, "{:?}", names(folder.path()));
}

#[test]
fn a_hangup_that_is_ignored_stays_so() {
    let folder = tempfile::tempdir().unwrap();
    let line = "trap '' HUP; $FAKE run fake --seeds 1 --arm stock --set pause_s=2 & \
                sleep 0.5; kill -HUP $!; wait $!";
    let output = shell(line, folder.path());
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
fn a_document_that_fails_takes_no_other_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = mmscale();
    run.args(["run", "fake", "--seeds", "1", "--set", "factor=1,66,2", "-o"]).arg(folder.path());
    let output = run.output().unwrap();
    let told = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("error: study `fake`, arm `stock`, seed 1 on sim: 66 is not"), "{told}");
    assert!(told.ends_with("error: 1 of 3 documents have no result\n"), "{told}");
    let stems = ["fake-arm64-72-factor-1", "fake-arm64-72-factor-2"];
    let files = stems.map(|stem| [format!("{stem}.json"), format!("{stem}.txt")]).concat();
    assert_eq!(names(folder.path()), files);
}

#[test]
fn a_seed_that_fails_takes_no_other_with_it() {
    let mut run = mmscale();
    run.args(["run", "fake", "--check", "--seed", "12", "--seeds", "3", "--format", "json"]);
    let output = run.output().unwrap();
    let told = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("arm `phased`, seed 13 on sim: a checker found errors"), "{told}");
    let last = "error: 3 of 9 runs failed and are left out of their documents\n";
    assert!(told.ends_with(last), "{told}");
    let document: mmscale_document::Document = serde_json::from_slice(&output.stdout).unwrap();
    assert!(document.arms.iter().all(|arm| arm.seeds == [12, 14]), "{document:?}");
    assert_eq!(document.failures.len(), 3);
}

#[test]
fn help_that_cannot_be_written_is_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in ["--help", "run --help", "--version", "help run"] {
        let output = shell(&format!("$FAKE {arguments} >/dev/full"), folder.path());
        assert_eq!(output.status.code(), Some(1), "{arguments}: {}", stderr(&output));
        assert!(stderr(&output).contains("cannot write to standard output"), "{arguments}");
        let output = shell(&format!("$FAKE {arguments}"), folder.path());
        assert!(output.status.success() && output.stdout.len() > 10, "{arguments}");
    }
}

#[test]
fn a_profile_is_a_regular_file_of_some_size() {
    let folder = tempfile::tempdir().unwrap();
    let line = "mkfifo $DIR/pipe.toml; mkdir $DIR/folder.toml; \
                head -c 2000000 /dev/zero | tr '\\0' '#' >$DIR/large.toml; \
                for file in /dev/zero $DIR/pipe.toml $DIR/folder.toml $DIR/large.toml; do \
                $FAKE run fake --profile $file; echo \"exit code $?\"; done";
    let output = shell(line, folder.path());
    assert_eq!(String::from_utf8(output.stdout.clone()).unwrap(), "exit code 2\n".repeat(4));
    let told = stderr(&output);
    assert_eq!(told.matches(", not a regular file;").count(), 3, "{told}");
    let large = "it has more than 1 MiB, the limit for a profile;";
    assert_eq!(told.matches(large).count(), 1, "{told}");
}

#[test]
fn a_profile_may_have_any_name_that_a_file_may_have() {
    let folder = tempfile::tempdir().unwrap();
    let machine = concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines/x86-2.toml");
    let line = format!(
        "file=$DIR/$'\\xff'.toml; cp {machine} $file; \
         $FAKE run fake --quick --profile $file -o $DIR/$'\\xfe'"
    );
    let output = shell(&line, folder.path());
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
fn help_keeps_within_the_columns_that_there_are() {
    let folder = tempfile::tempdir().unwrap();
    for columns in [60, 72, 100] {
        let line = format!("COLUMNS={columns} $FAKE run --help");
        let output = shell(&line, folder.path());
        let help = String::from_utf8(output.stdout).unwrap();
        let longest = help.lines().map(|line| line.chars().count()).max();
        assert!(longest.is_some_and(|longest| longest <= columns), "{columns}: {help}");
    }
}

/// Controls of terminals, as a file may have them: sequences of both kinds, titles, the direction
/// of text, a backspace and a carriage return.
const HOSTILE: &str = "\u{1b}[31m\u{1b}]0;t\u{7}\u{9b}2J\u{202e}\u{2066}\u{8}\r";

/// Puts controls of terminals into each line of a file, in a place that depends on the line.
fn hostile(text: &str) -> String {
    let line = |(nth, line): (usize, &str)| {
        let places: Vec<usize> = line.char_indices().map(|(at, _)| at).collect();
        let at = places.get(nth * 7 % places.len().max(1)).copied().unwrap_or(0);
        let without_end = HOSTILE.trim_end_matches('\r');
        format!("{}{without_end}{}\r\n", &line[..at], &line[at..])
    };
    text.lines().enumerate().map(line).collect()
}

#[test]
fn no_text_of_a_file_is_a_command_for_a_terminal() {
    let inputs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cmd");
    let folder = tempfile::tempdir().unwrap();
    let control = |text: &str| text.chars().any(mmscale_document::is_control);
    let mut documents = 0;
    for name in ["explain.in", "claim.in"] {
        for entry in fs::read_dir(inputs.join(name)).unwrap() {
            let path = entry.unwrap().path();
            let file = folder.path().join(path.file_name().unwrap());
            let text = fs::read_to_string(&path).unwrap_or_default();
            fs::write(&file, hostile(&text)).unwrap();
            let item = file.with_extension("toml");
            let saved = file.with_extension("saved.json");
            let calls: [&[&str]; 3] = [&["explain"], &["claim", "-o"], &["explain", "--save"]];
            for (call, to) in calls.iter().zip([None, Some(&item), Some(&saved)]) {
                let mut command = mmscale();
                command.args(*call);
                if let Some(to) = to {
                    command.arg(to);
                }
                let output = command.arg(&file).output().unwrap();
                let shown = String::from_utf8(output.stdout).unwrap();
                let told = String::from_utf8(output.stderr).unwrap();
                assert!(!control(&shown) && !control(&told), "{path:?} {call:?}\n{shown}\n{told}");
                let written = to.and_then(|to| fs::read_to_string(to).ok());
                if let Some(written) = written {
                    documents += 1;
                    assert!(!control(&written), "{path:?} {call:?}\n{written:?}");
                }
            }
        }
    }
    assert!(documents > 3, "{documents}");
}
