//! How runs end: in every case all of their processes and groups are gone. Each test counts the
//! processes and memory groups of its own session's runs first.

mod skip;

use mmscale_linux::{
    Config, Failure, Foreign, Linux, Shared, Sysctl, SysctlError, clear, run, run_command,
};
use mmscale_system::{Errno, Exit, MapSpec, PAGE_BYTES, System, ThreadSpec};
use skip::skipped;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// No test takes that long, even on a busy computer: only a hang does.
const PATIENCE: Duration = Duration::from_secs(240);
const LIMIT_NS: u64 = 300_000_000_000;

fn config() -> Config {
    Config { cpus: 2, memory_bytes: 256 << 20, processes: 16, limit_ns: LIMIT_NS, interrupt: None }
}

/// Whether a process exists and is not only waiting to be reaped.
fn lives(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().and_then(|rest| rest.trim().chars().next());
    state.is_some_and(|state| state != 'Z' && state != 'X')
}

/// Returns memory groups that a process has made and not removed.
fn groups(of: i32) -> Vec<PathBuf> {
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mut found = Vec::new();
    for line in own.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let root = if controllers.is_empty() { "".to_owned() } else { format!("/{controllers}") };
        let place = format!("/sys/fs/cgroup{root}{path}");
        let name = format!("mmscale-{of}-");
        let entries = std::fs::read_dir(place).into_iter().flatten().flatten();
        found.extend(entries.map(|entry| entry.path()).filter(|path| {
            path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(&name))
        }));
    }
    found
}

const PIDS: usize = 16;
type Pids = Shared<([i32; PIDS], usize)>;

fn note(pids: &Pids) {
    let own = std::process::id() as i32;
    pids.change(|(all, count)| {
        all[*count] = own;
        *count += 1;
    });
}

/// Starts a tree of processes that never end, with threads, and memory that is mapped and unmapped.
fn endless(pids: &Pids) -> impl FnOnce(&Linux) + Send + 'static {
    let pids = pids.clone();
    move |system| {
        note(&pids);
        for cpu in 0..4 {
            let pids = pids.clone();
            let body = move |system: &Linux| {
                note(&pids);
                let inner = pids.clone();
                let orphan = move |system: &Linux| {
                    note(&inner);
                    let _ = system.sleep_ns(1 << 50);
                };
                system.process(ThreadSpec::on(0), Box::new(orphan)).unwrap();
                let busy = |system: &Linux| {
                    while let Ok(at) = system.mmap(MapSpec::populated(PAGE_BYTES)) {
                        system.munmap(at, PAGE_BYTES).unwrap();
                        let _ = system.sleep_ns(1_000_000);
                    }
                };
                system.spawn(ThreadSpec::on(1), Box::new(busy)).unwrap();
                let _ = system.sleep_ns(1 << 50);
            };
            system.process(ThreadSpec::on(cpu % 2), Box::new(body)).unwrap();
        }
        let _ = system.sleep_ns(1 << 50);
    }
}

/// Checks that all noted processes have ended.
fn all_gone(pids: &Pids) {
    let (all, count) = pids.get();
    let left: Vec<i32> = all[..count].iter().copied().filter(|pid| lives(*pid)).collect();
    assert!(left.is_empty(), "{left:?} are left");
}

/// Waits until all nine processes have begun.
fn begun(pids: &Pids) {
    let since = Instant::now();
    while pids.get().1 < 9 {
        assert!(since.elapsed() < PATIENCE, "they do not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn an_interrupt_ends_all_processes_and_removes_the_group() {
    let (pids, stop) = (Pids::new(([0; PIDS], 0)), Arc::new(AtomicBool::new(false)));
    let config = Config { interrupt: Some(Arc::clone(&stop)), ..config() };
    let program = endless(&pids);
    let running = std::thread::spawn(move || run(&config, Box::new(program)));
    begun(&pids);
    stop.store(true, Ordering::Relaxed);
    let ended = running.join().unwrap();
    assert!(matches!(ended, Err(Failure::Interrupted)), "{ended:?}");
    all_gone(&pids);
}

#[test]
fn time_is_up_at_some_point() {
    let pids = Pids::new(([0; PIDS], 0));
    let config = Config { limit_ns: 2_000_000_000, ..config() };
    let ended = run(&config, Box::new(endless(&pids)));
    assert!(matches!(ended, Err(Failure::Limit(_))), "{ended:?}");
    all_gone(&pids);
}

#[test]
fn a_first_process_that_is_killed_from_outside_takes_all_others_with_it() {
    let pids = Pids::new(([0; PIDS], 0));
    let (seen, program) = (pids.clone(), endless(&pids));
    let killer = std::thread::spawn(move || {
        begun(&seen);
        // SAFETY: a process of this test's run.
        unsafe { libc::kill(seen.get().0[0], libc::SIGKILL) };
    });
    let ended = run(&config(), Box::new(program));
    killer.join().unwrap();
    assert!(matches!(ended, Err(Failure::Killed(libc::SIGKILL))), "{ended:?}");
    all_gone(&pids);
}

/// The rates of the other workers would not be those of the run.
#[test]
fn a_worker_that_is_killed_from_outside_fails_the_run() {
    let worker = Shared::new(0);
    let (seen, told) = (worker.clone(), worker);
    let killer = std::thread::spawn(move || {
        let since = Instant::now();
        while seen.get() == 0 {
            assert!(since.elapsed() < PATIENCE, "it does not begin");
            std::thread::sleep(Duration::from_millis(5));
        }
        // SAFETY: a process of this test's run.
        unsafe { libc::kill(seen.get(), libc::SIGKILL) };
    });
    let program = move |system: &Linux| {
        let body = move |system: &Linux| {
            told.change(|pid| *pid = std::process::id() as i32);
            let _ = system.sleep_ns(1 << 50);
        };
        let child = system.process(ThreadSpec::on(0), Box::new(body)).unwrap();
        assert_eq!(system.wait(child), Ok(Exit::Killed));
    };
    let ended = run(&config(), Box::new(program));
    killer.join().unwrap();
    let why = ended.expect_err("one of its processes is missing").to_string();
    assert!(why.contains("from outside"), "{why}");
}

#[test]
fn a_warden_that_is_killed_from_outside_leaves_no_process() {
    let pids = Pids::new(([0; PIDS], 0));
    let (seen, program) = (pids.clone(), endless(&pids));
    let killer = std::thread::spawn(move || {
        begun(&seen);
        // SAFETY: numbers only: the session of the run is its warden's.
        unsafe { libc::kill(libc::getsid(seen.get().0[0]), libc::SIGKILL) };
    });
    let ended = run(&config(), Box::new(program));
    killer.join().unwrap();
    assert!(matches!(ended, Err(Failure::WardenKilled(libc::SIGKILL))), "{ended:?}");
    all_gone(&pids);
}

/// Returns a setting that the calling thread and its children have for themselves, so that it
/// neither disturbs other programs nor is disturbed: the domain name of a UTS namespace. `None`
/// where that is not allowed.
fn own_setting() -> Option<&'static str> {
    const KEY: &str = "kernel.domainname";
    // SAFETY: only the calling thread gets names of its own.
    let own = unsafe { libc::unshare(libc::CLONE_NEWUTS) } == 0;
    let may = || Sysctl::guard(KEY).and_then(|setting| setting.set(setting.before())).is_ok();
    let key = (own && may()).then_some(KEY);
    if key.is_none() {
        skipped("a setting that goes back", "none may be set here");
    }
    key
}

/// A tool that is killed closes its pipe. A fork of this test plays the tool.
#[test]
fn a_tool_that_is_killed_leaves_no_process_and_no_setting() {
    let pids = Pids::new(([0; PIDS], 0));
    let key = own_setting();
    let path = "/proc/sys/kernel/domainname";
    let before = std::fs::read_to_string(path).unwrap();
    // SAFETY: the child acts as a tool and is killed meanwhile.
    let tool = unsafe { libc::fork() };
    if tool == 0 {
        let setting = key.map(|key| Sysctl::guard(key).unwrap());
        if let Some(setting) = &setting {
            setting.set("changed").unwrap();
        }
        let _ = run(&config(), Box::new(endless(&pids)));
        // SAFETY: ends the child.
        unsafe { libc::_exit(0) };
    }
    begun(&pids);
    if key.is_some() {
        assert_eq!(std::fs::read_to_string(path).unwrap().trim(), "changed");
    }
    // SAFETY: our own child.
    unsafe {
        libc::kill(tool, libc::SIGKILL);
        libc::waitpid(tool, std::ptr::null_mut(), 0);
    }
    let since = Instant::now();
    let gone = || {
        let (all, count) = pids.get();
        !all[..count].iter().any(|pid| lives(*pid))
            && std::fs::read_to_string(path).unwrap() == before
            && groups(tool).is_empty()
    };
    while !gone() {
        assert!(since.elapsed() < PATIENCE, "something is left");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Neither of them can end the others or remove the group: the kernel and a later run do.
#[test]
fn a_tool_and_a_warden_that_are_killed_together_leave_no_process() {
    for stopped in [false, true] {
        let pids = Pids::new(([0; PIDS], 0));
        // SAFETY: the child acts as a tool and is killed meanwhile.
        let tool = unsafe { libc::fork() };
        if tool == 0 {
            let _ = run(&config(), Box::new(endless(&pids)));
            // SAFETY: ends the child.
            unsafe { libc::_exit(0) };
        }
        begun(&pids);
        // SAFETY: our own child, and the warden of its run.
        unsafe {
            let warden = libc::getsid(pids.get().0[0]);
            if stopped {
                libc::kill(warden, libc::SIGSTOP);
            }
            libc::kill(tool, libc::SIGKILL);
            if !stopped {
                libc::kill(warden, libc::SIGKILL);
            }
            libc::waitpid(tool, std::ptr::null_mut(), 0);
        }
        let since = Instant::now();
        let (all, count) = pids.get();
        while all[..count].iter().any(|pid| lives(*pid)) {
            assert!(since.elapsed() < PATIENCE, "processes are left, stopped: {stopped}");
            std::thread::sleep(Duration::from_millis(10));
        }
        let known = groups(tool);
        let found = clear();
        assert!(groups(tool).is_empty(), "{found:?}");
        let told = |group: &PathBuf| {
            found.done.iter().any(|line| line.ends_with(&*group.to_string_lossy()))
        };
        assert!(stopped || known.iter().all(told), "{known:?}: {found:?}");
    }
}

#[test]
fn a_stopped_warden_cannot_hold_the_tool() {
    let (pids, stop) = (Pids::new(([0; PIDS], 0)), Arc::new(AtomicBool::new(false)));
    let config = Config { interrupt: Some(Arc::clone(&stop)), ..config() };
    let program = endless(&pids);
    let running = std::thread::spawn(move || run(&config, Box::new(program)));
    begun(&pids);
    // SAFETY: numbers only: the session of the run is its warden's.
    let warden = unsafe { libc::getsid(pids.get().0[0]) };
    stop.store(true, Ordering::Relaxed);
    // It is stopped repeatedly, so that it never ends the run.
    while !running.is_finished() {
        // SAFETY: only numbers, of a process that the tool has not reaped yet, or of none.
        unsafe { libc::kill(warden, libc::SIGSTOP) };
        std::thread::sleep(Duration::from_millis(1));
    }
    let ended = running.join().unwrap();
    assert!(matches!(ended, Err(Failure::Interrupted)), "{ended:?}");
    all_gone(&pids);
}

/// Returns the guardian that the calling thread has started.
fn guardian() -> i32 {
    let children = std::fs::read_to_string("/proc/thread-self/children").unwrap();
    let name = |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let since = Instant::now();
    let mut pids = children.split_whitespace().map(|pid| pid.parse::<i32>().unwrap()).cycle();
    loop {
        let pid = pids.next().expect("it is there");
        if name(&pid).trim() == "mmscale-guard" {
            return pid;
        }
        assert!(since.elapsed() < PATIENCE, "no guardian");
    }
}

#[test]
fn a_setting_has_one_run_that_changes_it_and_a_guardian_that_lives() {
    let Some(key) = own_setting() else { return };
    let path = "/proc/sys/kernel/domainname";
    let before = std::fs::read_to_string(path).unwrap();
    let mut setting = Sysctl::guard(key).unwrap();
    let lost = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&lost);
    setting.on_lost_guardian(move || told.store(true, Ordering::Release));
    setting.set("changed").unwrap();
    // SAFETY: the child acts as a second tool.
    let second = unsafe { libc::fork() };
    if second == 0 {
        let used = matches!(Sysctl::guard(key), Err(SysctlError::Used { .. }));
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(!used)) };
    }
    let mut status = 0;
    // SAFETY: our own child, and a place for its status.
    unsafe { libc::waitpid(second, &raw mut status, 0) };
    assert_eq!(status, 0, "two runs may not change one setting");
    assert!(!lost.load(Ordering::Acquire));
    // SAFETY: a child of this thread.
    unsafe { libc::kill(guardian(), libc::SIGKILL) };
    let since = Instant::now();
    // Pairs with the `Release` store of the callback.
    while !lost.load(Ordering::Acquire) {
        assert!(since.elapsed() < PATIENCE, "a dead guardian is not reported");
        std::thread::sleep(Duration::from_millis(1));
    }
    let ended = setting.restore();
    assert!(matches!(ended, Err(SysctlError::GuardianKilled(_))), "{ended:?}");
    assert_eq!(std::fs::read_to_string(path).unwrap(), before);
}

#[test]
fn a_setting_whose_tool_and_guardian_are_killed_is_restored_later() {
    let Some(key) = own_setting() else { return };
    let path = "/proc/sys/kernel/domainname";
    for next_run in [false, true] {
        let before = std::fs::read_to_string(path).unwrap();
        let told = Shared::new(0);
        // SAFETY: the child acts as a tool and is killed meanwhile.
        let tool = unsafe { libc::fork() };
        if tool == 0 {
            let setting = Sysctl::guard(key).unwrap();
            setting.set("changed").unwrap();
            told.change(|pid| *pid = guardian());
            loop {
                std::thread::sleep(PATIENCE);
            }
        }
        let since = Instant::now();
        while told.get() == 0 {
            assert!(since.elapsed() < PATIENCE, "it is not set");
            std::thread::sleep(Duration::from_millis(1));
        }
        // SAFETY: our own child, and its guardian.
        unsafe {
            libc::kill(told.get(), libc::SIGKILL);
            libc::kill(tool, libc::SIGKILL);
            libc::waitpid(tool, std::ptr::null_mut(), 0);
        }
        assert_eq!(std::fs::read_to_string(path).unwrap().trim(), "changed");
        if next_run {
            Sysctl::guard(key).unwrap().restore().unwrap();
        } else {
            let found = clear();
            assert!(found.done.contains(&format!("restored {key}={}", before.trim())), "{found:?}");
        }
        assert_eq!(std::fs::read_to_string(path).unwrap(), before);
    }
}

/// Changes settings of the whole computer, and so runs only with `MMSCALE_DEPTH` set.
#[test]
fn settings_that_the_kernel_changes_together_are_restored_together() {
    let keys = ["vm.dirty_bytes", "vm.dirty_ratio", "vm.overcommit_kbytes", "vm.overcommit_ratio"];
    let read = |key: &str| std::fs::read_to_string(format!("/proc/sys/{}", key.replace('.', "/")));
    let Ok(before) = keys.iter().map(|key| read(key)).collect::<Result<Vec<_>, _>>() else {
        return skipped("settings that are coupled", "they cannot be read here");
    };
    // SAFETY: asks for a number.
    if std::env::var_os("MMSCALE_DEPTH").is_none() || unsafe { libc::geteuid() } != 0 {
        let why =
            "it changes vm.dirty_bytes of this computer for a moment; as root, set MMSCALE_DEPTH";
        return skipped("settings that are coupled", why);
    }
    let clashes = |key: &str, other: &str, value: &str| {
        let setting = Sysctl::guard(key).unwrap();
        assert!(matches!(Sysctl::guard(other), Err(SysctlError::Used { .. })), "{other}");
        setting.set(value).unwrap();
        setting.restore().unwrap();
    };
    clashes("vm.dirty_bytes", "vm.dirty_ratio", "3000000000");
    clashes("vm.dirty_ratio", "vm.dirty_bytes", "33");
    clashes("vm.overcommit_kbytes", "vm.overcommit_ratio", "4000000");
    let after: Vec<String> = keys.iter().map(|key| read(key).unwrap()).collect();
    assert_eq!(after, before);
}

#[test]
fn more_memory_than_there_is_is_refused_before_anything_starts() {
    let config = Config { memory_bytes: 1 << 60, ..config() };
    let refused = run(&config, Box::new(|_: &Linux| {}));
    assert!(matches!(refused, Err(Failure::Limits(_))), "{refused:?}");
    assert!(refused.unwrap_err().to_string().contains("make it smaller"));
}

#[test]
fn more_processes_than_there_may_be_are_refused_before_anything_starts() {
    let config = Config { processes: 1 << 40, ..config() };
    let refused = run(&config, Box::new(|_: &Linux| {}));
    assert!(matches!(refused, Err(Failure::Limits(_))), "{refused:?}");
    let why = refused.unwrap_err().to_string();
    assert!(why.contains("raise that limit"), "{why}");
}

/// At the limit of its group the kernel kills a process of the run, and the run reports that.
#[test]
fn a_run_that_takes_more_than_its_plan_is_stopped_alone() {
    let ended = Shared::new(None::<bool>);
    let told = ended.clone();
    let program = move |system: &Linux| {
        let greedy = |system: &Linux| {
            let _ = system.set_oom_score_adj(system.own_process(), 1000);
            let _ = system.mmap(MapSpec::populated(512 << 20));
        };
        let child = system.process(ThreadSpec::on(0), Box::new(greedy)).unwrap();
        let killed = system.wait(child) == Ok(Exit::Killed);
        told.change(|ended| *ended = Some(killed));
    };
    let config = Config { memory_bytes: 128 << 20, ..config() };
    match run(&config, Box::new(program)) {
        Ok(outcome) if outcome.limited_by == mmscale_linux::LimitedBy::Plan => {
            skipped("the limit of a memory group", "none may be made here");
        }
        // The kernel may choose the parent: then the run reports that it was killed.
        other => assert!(other.is_err() || ended.get() == Some(true), "{other:?}"),
    }
}

#[test]
fn a_thousand_processes_run_and_end() {
    let count = Shared::new(0_u64);
    let told = count.clone();
    let refused = Shared::new(false);
    let no_room = refused.clone();
    let program = move |system: &Linux| {
        let child = |nth: usize| {
            let told = told.clone();
            let body = move |_: &Linux| told.change(|count| *count += 1);
            system.process(ThreadSpec::on(nth % 2), Box::new(body))
        };
        let all: Result<Vec<_>, Errno> = (0..1000).map(child).collect();
        // Fewer processes are refused where their number is limited.
        let Ok(all) = all else { return no_room.change(|refused| *refused = true) };
        for process in all {
            assert_eq!(system.wait(process), Ok(Exit::Returned));
        }
    };
    let config = Config { memory_bytes: 1 << 30, processes: 1000, ..config() };
    let ended = run(&config, Box::new(program));
    if refused.get() || matches!(ended, Err(Failure::Limits(_))) {
        skipped("a thousand processes", "so many may not be started here");
        return;
    }
    ended.expect("all of them end");
    assert_eq!(count.get(), 1000);
}

/// A script as the foreign program of a run.
fn script(text: &str) -> (tempfile::TempDir, Foreign) {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("script");
    std::fs::write(&program, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let foreign = Foreign { program, args: Vec::new(), folder: folder.path().to_owned() };
    (folder, foreign)
}

#[test]
fn the_output_of_a_foreign_program_is_returned() {
    let (_folder, foreign) =
        script("echo one; echo two >&2; grep Cpus_allowed_list /proc/self/status");
    let (_, said) = run_command(&config(), &foreign, |_| {}).expect("it runs");
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[..2], ["one", "two"], "both streams, in their order");
    // The run's first process is on one CPU, and the program on all CPUs of the run.
    let several = |list: &str| list.rsplit(":").next().unwrap_or("").contains([',', '-']);
    let own = std::fs::read_to_string("/proc/self/status").unwrap();
    let own = own.lines().find(|line| line.starts_with("Cpus_allowed_list")).unwrap();
    assert_eq!(several(lines[2].trim()), several(own), "{said}");
    let (_folder, foreign) = script("echo it is broken; exit 3");
    let why = run_command(&config(), &foreign, |_| {}).unwrap_err().to_string();
    assert!(why.contains("code 3") && why.contains("it is broken"), "{why}");
    let nothing = Foreign { program: "/no/such/program".into(), ..foreign };
    let why = run_command(&config(), &nothing, |_| {}).unwrap_err().to_string();
    assert!(why.contains("/no/such/program") && why.contains("No such file"), "{why}");
}

/// All processes that it has started end with it, those in a session of their own too, in every
/// kind of end.
#[test]
fn no_process_of_a_foreign_program_is_left() {
    for killed in [false, true] {
        let (folder, foreign) = script(
            "sh -c 'echo $$ > one; exec sleep 100000' &\n\
             setsid sh -c 'echo $$ > two; exec sleep 100000' &\n\
             echo $$ > three; sleep 100000; sleep 100000",
        );
        let stop = Arc::new(AtomicBool::new(false));
        let config = Config { interrupt: Some(Arc::clone(&stop)), ..config() };
        let running = std::thread::spawn(move || run_command(&config, &foreign, |_| {}));
        let since = Instant::now();
        let pid = |name: &str| {
            let text = std::fs::read_to_string(folder.path().join(name)).ok()?;
            text.trim().parse::<i32>().ok()
        };
        let pids = loop {
            let all: Vec<i32> = ["one", "two", "three"].into_iter().filter_map(pid).collect();
            if all.len() == 3 {
                break all;
            }
            assert!(since.elapsed() < PATIENCE, "they do not begin");
            std::thread::sleep(Duration::from_millis(5));
        };
        if killed {
            // SAFETY: a process of this test's run, by its number.
            unsafe { libc::kill(pids[2], libc::SIGKILL) };
        } else {
            stop.store(true, Ordering::Relaxed);
        }
        let ended = running.join().unwrap();
        match killed {
            true => assert!(matches!(ended, Err(Failure::Killed(_))), "{ended:?}"),
            false => assert!(matches!(ended, Err(Failure::Interrupted)), "{ended:?}"),
        }
        let left: Vec<i32> = pids.into_iter().filter(|pid| lives(*pid)).collect();
        assert!(left.is_empty(), "{left:?} are left");
    }
}

#[test]
fn nothing_stays_of_a_run_that_has_ended() {
    run(&config(), Box::new(|_: &Linux| {})).expect("it does nothing");
    let mine = |path: &PathBuf| std::fs::read_to_string(path.join("cgroup.procs")).is_ok();
    // Other tests of this program run at the same time and have groups of their own, with processes
    // in them.
    let empty = |path: &PathBuf| {
        mine(path) && std::fs::read_to_string(path.join("cgroup.procs")).is_ok_and(|p| p.is_empty())
    };
    let (own, since) = (std::process::id() as i32, Instant::now());
    while groups(own).iter().any(empty) {
        assert!(since.elapsed() < PATIENCE, "{:?} are left", groups(own));
        std::thread::sleep(Duration::from_millis(20));
    }
}
