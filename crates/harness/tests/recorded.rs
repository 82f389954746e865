//! Recordings as studies: a file is run, refused or found to be damaged like any other study.

use mmscale_document::{Better, Document, Doing, HALVES_METRIC, Target};
use mmscale_harness::{
    Cache, CallError, Checks, Interrupt, Length, PolicyArm, ProgressSink, Registry, Request,
    RobustRequest, RunEvent, Settings, execute, plan, robust,
};
use mmscale_lift::{
    Dropped, Event, FunctionId, Line, LineId, Lock, LockKind, Operation, Origin, Recording, Share,
    Site, SiteId, What,
};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const FUNCTIONS: [&str; 4] = ["__do_sys_munmap", "folio_batch_move_lru", "lru_add", "get_file_rcu"];

fn event(after: u32, what: What, target: u32, site: u32) -> Event {
    Event { after, what, offset: 0, target, site: SiteId(site) }
}

/// Returns a recording of four CPUs on two nodes: an operation of some 5 us takes its own
/// semaphore, the lock of the node's lists twice, and counts in a line of all CPUs.
fn recording() -> Recording {
    let mut events = vec![event(1000, What::Acquire, 1, 0), event(4000, What::Atomic, 1, 2)];
    for _ in 0..2 {
        events.extend([
            event(2000, What::Acquire, 0, 0),
            event(60, What::Write, 0, 1),
            event(60, What::Read, 2, 1),
            event(200, What::Release, 0, 0),
        ]);
    }
    events.push(event(1000, What::Release, 1, 0));
    let operation =
        Operation { count: 2, instructions: 16_000, locked: 7, events, ..Operation::default() };
    let line = |object: &str, share| Line {
        address: 64,
        object: object.to_owned(),
        share,
        users: 4,
        writers: 4,
    };
    let lock = |class: &str, kind, share, line| Lock {
        address: 80,
        kind,
        class: class.to_owned(),
        share,
        line,
    };
    let site = |function| Site { function: FunctionId(function), caller: FunctionId(0) };
    Recording {
        origin: Origin {
            image: "linux-image.deb".to_owned(),
            release: "6.12.0".to_owned(),
            version: "#1 SMP".to_owned(),
            script: "churn".to_owned(),
            summary: "maps and unmaps".to_owned(),
            node_of_cpu: vec![0, 0, 1, 1],
            dropped: Dropped { switched: 3, ..Dropped::default() },
            ..Origin::default()
        },
        functions: FUNCTIONS.map(str::to_owned).into(),
        sites: (1..4).map(site).collect(),
        lines: vec![
            line("lruvec lists", Share::Node),
            line("struct file", Share::All),
            line("lruvec", Share::Node),
        ],
        locks: vec![
            lock("lruvec", LockKind::Spin, Share::Node, Some(LineId(2))),
            lock("mmap_lock", LockKind::Rwsem, Share::Private, None),
        ],
        cpus: vec![vec![operation; 4]; 4],
        ..Recording::default()
    }
}

/// Writes a file of this test.
fn written(name: &str, recording: &Recording) -> PathBuf {
    let mut bytes = Vec::new();
    recording.write(&mut bytes).expect("memory takes all");
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, bytes).expect("it can be written");
    path
}

fn request(path: &Path, settings: &[&str]) -> Request {
    Request {
        settings: Settings::parse(settings).expect("they are fine"),
        seeds: Some(2),
        length: Length::Quick,
        checks: Checks::On,
        ..Request::of([path.display().to_string()])
    }
}

fn refused(request: &Request) -> String {
    let plans: Result<_, CallError> = plan(&Registry::default(), request);
    plans.expect_err("it is refused").to_string()
}

fn run(request: &Request) -> Document {
    struct Silent;
    impl ProgressSink for Silent {
        fn event(&self, _: RunEvent) {}
    }
    let plans = plan(&Registry::default(), request).unwrap_or_else(|why| panic!("{why}"));
    let sink: Arc<dyn ProgressSink> = Arc::new(Silent);
    execute(&plans[0], &Interrupt::default(), &sink).unwrap_or_else(|why| panic!("{why}"))
}

fn metric(document: &Document, name: &str) -> f64 {
    document.arms[0].metrics.get(name).unwrap_or_else(|| panic!("no {name}")).mean
}

/// Returns the time of an instruction on a machine with one CPU, next to that at the clock of its
/// profile's costs.
fn clock() -> f64 {
    let machine = mmscale_harness::Profiles::default().load("x86-512").expect("it is built in");
    machine.clock.reference_mhz / machine.clock.one_core_mhz
}

#[test]
fn a_recording_runs_like_any_study() {
    let path = written("like-any.lift", &recording());
    let document = run(&request(&path, &["cpus=64"]));
    assert_eq!((document.study.as_str(), document.on), ("like-any.lift", Target::Sim));
    assert!(document.is_recording());
    let arm = &document.arms[0];
    assert_eq!((arm.arm.as_str(), &arm.seeds[..]), ("recorded", &[1, 2][..]));
    for name in ["ops_per_s", "cpu_ns_per_op"] {
        assert!(arm.metrics[name].headline, "{name}");
    }
    assert_eq!(arm.metrics["ops_per_s"].better, Some(Better::Higher));
    // 5.5 us of instructions for 2 operations, at the clock of one core.
    let alone = metric(&document, "cpu_ns_per_op_alone");
    let instructions_ns = clock() * (15_360.0 * 0.35 + 640.0 * 0.2) / 2.0;
    let times = alone / instructions_ns;
    assert!((1.0..1.05).contains(&times), "{alone} of {instructions_ns}");
    let times = metric(&document, "cpu_ns_per_op") / alone;
    assert!(times > 1.2 && (metric(&document, "amplification") - times).abs() < 0.02 * times);
    assert!(metric(&document, "lock_wait_share") > 0.05);
    assert!(metric(&document, "line_wait_share") > 0.001);
    assert_eq!(metric(&document, "idle_share"), 0.0);
    assert_eq!(metric(&document, "lock_sleep_ns_per_op"), 0.0);
    let lru = arm.locks.iter().find(|lock| lock.class == "lruvec").expect("it is taken");
    assert_eq!((lru.site.as_str(), lru.sleeps), ("folio_batch_move_lru", false));
    let names: Vec<&str> = arm.lines.iter().map(|line| line.line.as_str()).collect();
    assert!(names.contains(&"struct file") && names.contains(&"lruvec lists"), "{names:?}");
    assert!(!arm.calls.is_empty() && arm.policies.is_empty());
    assert!(document.not_simulated.is_empty() && document.left_out.is_empty());
    assert_eq!(document.window_ns, Some(1_000_000));
}

/// Returns the same operations with the LRU lock held for so many instructions more.
fn longer_holds(more: u32) -> Recording {
    let mut recording = recording();
    for operation in recording.cpus.iter_mut().flatten() {
        let releases = operation.events.iter_mut().filter(|event| event.what == What::Release);
        releases.filter(|event| event.target == 0).for_each(|event| event.after += more);
        operation.instructions += 2 * u64::from(more);
    }
    recording
}

#[test]
fn two_recordings_are_compared_as_arms() {
    let before = written("before.lift", &recording());
    let after = written("after.lift", &longer_holds(600));
    let both = PathBuf::from(format!("{},{}", before.display(), after.display()));
    let document = run(&request(&both, &["cpus=64"]));
    assert!(document.is_recording());
    let names: Vec<&str> = document.arms.iter().map(|arm| arm.arm.as_str()).collect();
    assert_eq!(
        (document.study.as_str(), &names[..]),
        ("before.lift+after.lift", &["before", "after"][..])
    );
    let rate = |arm: usize| document.arms[arm].metrics["ops_per_s"].mean;
    assert!(rate(1) < rate(0) * 0.9, "{} and {}", rate(0), rate(1));
    // The first arm is that of the recording alone.
    let alone = run(&request(&before, &["cpus=64"]));
    assert_eq!(metric(&alone, "ops_per_s"), rate(0));
}

#[test]
fn recordings_that_cannot_be_compared_are_refused() {
    let before = written("one.lift", &recording());
    let mut other = recording();
    other.origin.text = "process other { loop { count; } }".to_owned();
    other.origin.script = "other".to_owned();
    let other = written("two.lift", &other);
    let both = |paths: [&Path; 2]| {
        let paths = paths.map(|path| path.display().to_string()).join(",");
        refused(&request(Path::new(&paths), &[]))
    };
    let why = both([&before, &other]);
    assert!(why.contains("two.lift: it is of the script `other`"), "{why}");
    let why = both([&before, &before]);
    assert!(why.contains("has the name `one` too"), "{why}");
    let missing = before.with_file_name("none.lift");
    assert!(both([&before, &missing]).contains("none.lift"));
}

#[test]
fn both_schedules_and_both_calls_give_one_fingerprint() {
    let path = written("both.lift", &recording());
    let once = run(&request(&path, &["cpus=8", "sched=lazy"]));
    let both = run(&request(&path, &["cpus=8", "sched=both"]));
    assert_eq!(once.fingerprint, both.fingerprint);
    let other = run(&Request { first_seed: 9, ..request(&path, &["cpus=8"]) });
    assert_ne!(once.fingerprint, other.fingerprint);
}

#[test]
fn one_cpu_has_nothing_to_compare_with() {
    let path = written("one.lift", &recording());
    let document = run(&request(&path, &["cpus=1"]));
    assert!(!document.arms[0].metrics.contains_key("amplification"));
    assert_eq!(document.left_out["amplification"], "a machine of several CPUs");
}

#[test]
fn costs_of_instructions_are_costs() {
    let path = written("costs.lift", &recording());
    let with = |items: &[&str]| {
        let costs = mmscale_harness::Costs::parse(items).expect("they are costs");
        let document = run(&Request { costs, ..request(&path, &["cpus=1"]) });
        metric(&document, "cpu_ns_per_op")
    };
    let (usual, slow) = (with(&[]), with(&["instruction_ns=0.5"]));
    // All but 640 of 16,000 instructions are outside of spin locks; 2 operations.
    let more = clock() * 0.15 * 15_360.0 / 2.0;
    assert!((slow - usual - more).abs() < 0.03 * more, "{usual} and {slow}");
    assert!(usual - with(&["hold_instruction_ns=0.1"]) > clock() * 20.0);
}

#[test]
fn holds_of_a_class_are_scaled() {
    let path = written("holds.lift", &recording());
    let hold_ns = |text: &str| {
        let scale = mmscale_harness::hold_scale(text).expect("it is a spin lock");
        let document = run(&Request { hold_scale: Some(scale), ..request(&path, &["cpus=1"]) });
        let lock = document.arms[0].locks.iter().find(|lock| lock.class == "lruvec");
        lock.map(|lock| lock.hold_total_ns as f64 / lock.acquisitions as f64).expect("it is held")
    };
    let (short, long) = (hold_ns("lruvec=1"), hold_ns("lruvec=4"));
    assert!((3.8..4.1).contains(&(long / short)), "{short} and {long}");
}

#[test]
fn rounds_that_take_long_have_a_long_window() {
    let mut slow = recording();
    slow.cpus.iter_mut().flatten().for_each(|operation| operation.instructions = 2_000_000);
    let path = written("slow.lift", &slow);
    let study = Registry::default().find(&path.display().to_string()).expect("it is one");
    let of = mmscale_harness::Params::defaults(study.params(), Length::Full);
    assert_eq!((of.real("duration_ms"), of.real("warm_ms")), (20.0, 3.0));
    let document = run(&request(&path, &["cpus=1", "duration_ms=1.1", "warm_ms=0.3"]));
    // 2 operations in a round of about 0.5 ms: a part of a round counts.
    let round_ms = clock() * 0.7;
    let ops = metric(&document, "ops_per_s") / 1e3;
    assert!((ops * round_ms / 2.0 - 1.0).abs() < 0.05, "{ops}");
}

#[test]
fn a_replay_refuses_other_machines_and_policies() {
    let path = written("refused.lift", &recording());
    let of = || request(&path, &["cpus=4"]);
    for on in [Target::Live, Target::Threads] {
        let why = refused(&Request { on: Some(on), ..of() });
        let built = on != Target::Live || cfg!(feature = "live");
        assert!(!built || why.contains("replays on the simulator only"), "{why}");
    }
    let policy = PolicyArm::parse("tick=phased").expect("it is a policy");
    let why = refused(&Request { policies: vec![policy], ..of() });
    assert!(why.contains("has no policies to choose from"), "{why}");
    let scale = mmscale_harness::hold_scale("zone=0.5").expect("it is a spin lock");
    let why = refused(&Request { hold_scale: Some(scale), ..of() });
    assert!(why.contains("no spin lock `zone`") && why.contains("it has lruvec"), "{why}");
    let why = refused(&request(&path, &["bytes=1"]));
    assert!(why.contains("bytes"), "{why}");
}

#[test]
fn halves_of_a_recording_show_its_own_error() {
    let differ = |name: &str, recording: &Recording| {
        let document = run(&request(&written(name, recording), &["cpus=4", "halves=1"]));
        let plain = run(&request(&written(name, recording), &["cpus=4"]));
        assert!(!plain.arms[0].metrics.contains_key(HALVES_METRIC), "a quick run has none");
        assert_eq!(metric(&document, "ops_per_s"), metric(&plain, "ops_per_s"));
        metric(&document, HALVES_METRIC)
    };
    assert_eq!(differ("even.lift", &recording()), 0.0, "all rounds are equal");
    let mut odd = recording();
    for operations in &mut odd.cpus {
        for operation in operations.iter_mut().skip(1).step_by(2) {
            operation.instructions += 16_000;
            operation.events[1].after += 16_000;
        }
    }
    let error = differ("odd.lift", &odd);
    assert!((0.3..1.0).contains(&error), "one half takes nearly twice as long: {error}");
}

#[test]
fn blame_names_waiters_and_holders_of_the_kernel() {
    let path = written("blamed.lift", &recording());
    let request = request(&path, &["cpus=64"]);
    let plain = run(&request);
    assert!(plain.arms[0].blame.is_empty() && plain.arms[0].critical_paths.is_empty());
    let document = run(&Request { blame: true, ..request });
    assert_eq!(document.fingerprint, plain.fingerprint);
    let arm = &document.arms[0];
    let waiter = "folio_batch_move_lru < __do_sys_munmap";
    assert!(arm.blame.iter().all(|row| row.waiter == waiter && row.class == "lruvec"));
    let works = |function: &str| {
        let holder = ["__do_sys_munmap", function];
        arm.blame.iter().any(|row| row.doing == Doing::Work && row.holder == holder)
    };
    assert!(works("folio_batch_move_lru") && works("lru_add"), "{:?}", arm.blame);
    let locks: BTreeSet<&str> = arm.named_locks.iter().map(|row| row.lock.as_str()).collect();
    assert_eq!(locks, BTreeSet::from(["lruvec of node 0", "lruvec of node 1"]));
    let shares: u64 = arm.blame.iter().map(|row| row.wait_total_ns).sum();
    let waits: u64 = arm.locks.iter().map(|row| row.wait_total_ns).sum();
    assert!(shares.abs_diff(waits) * 1000 < waits, "{shares} and {waits}");
    let [operation] = &arm.critical_paths[..] else { panic!("{:?}", arm.critical_paths) };
    assert_eq!(operation.function, "churn");
    let own = operation.parts.iter().find(|(part, _)| part.lock.is_none()).expect("it works");
    assert_eq!(own.0.function, waiter, "6400 instructions of 16,000");
    // All time of CPUs is in it, and with that that of an operation.
    let op_ns = operation.total_ns as f64 / operation.calls as f64;
    let cpu_ns = metric(&document, "cpu_ns_per_op");
    assert!((op_ns / cpu_ns - 1.0).abs() < 0.01, "{op_ns} and {cpu_ns}");
    assert!((operation.waiting() - metric(&document, "lock_wait_share")).abs() < 0.02);
}

#[test]
fn a_recording_alone_has_levels_over_costs() {
    let call = request(&written("levels.lift", &recording()), &["cpus=4"]);
    let plans = plan(&Registry::default(), &call).unwrap_or_else(|why| panic!("{why}"));
    let profile = mmscale_harness::Profiles::default().open("x86-512");
    let request = RobustRequest {
        plan: &plans[0],
        profile: &profile.expect("it is built in"),
        metrics: vec!["ops_per_s"],
        machines: 3,
        cache: Cache::none(),
    };
    let found = robust(&request, &Interrupt::default(), &|_, _| {});
    let found = found.unwrap_or_else(|why| panic!("{why}"));
    let [level] = &found.levels[..] else { panic!("{:?}", found.levels) };
    assert_eq!((found.claims.len(), level.drawn.len()), (0, 3));
    assert_eq!(level.mean, metric(&run(&call), "ops_per_s"));
    let moved = level.moved.iter().find(|number| number.name == "instruction_ns");
    let [low, high] = moved.expect("most of the time is instructions").percent;
    assert!(low > 5.0 && high < -5.0, "{low} {high}");
    let machines: u32 = found.drawn_limits.iter().map(|limit| limit.machines).sum();
    assert_eq!(machines, 3, "{:?}", found.drawn_limits);
}

#[test]
fn a_file_that_is_no_recording_is_refused_with_what_to_do() {
    let find = |path: &Path| {
        let found = Registry::default().find(&path.display().to_string());
        found.expect_err("it is refused").to_string()
    };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let text = folder.join("text.lift");
    fs::write(&text, "hello").expect("it can be written");
    assert!(find(&text).contains("it is no recording of a kernel"), "{}", find(&text));
    let absent = folder.join("absent.lift");
    assert!(find(&absent).contains("absent.lift: "), "{}", find(&absent));
    let mut wrong = recording();
    wrong.cpus[2][1].events.pop();
    let why = find(&written("wrong.lift", &wrong));
    assert!(why.contains("cannot be replayed: operation 1 of CPU 2 does not release"), "{why}");
    let mut none = recording();
    none.cpus.iter_mut().flatten().for_each(|operation| operation.count = 0);
    let why = find(&written("none.lift", &none));
    assert!(why.contains("counts no operation"), "{why}");
}

#[test]
fn a_study_says_what_was_recorded() {
    let path = written("says.lift", &recording());
    let study = Registry::default().find(&path.display().to_string()).expect("it is one");
    assert!(study.replays() && study.script().is_none());
    assert!(study.summary().contains("script `churn`, recorded on 4 CPUs of Linux 6.12.0"));
    assert!(study.summary().ends_with(": maps and unmaps"), "{}", study.summary());
    assert_eq!(study.arms()[0].help, "Linux 6.12.0 #1 SMP");
    let params: Vec<&str> = study.params().iter().map(|spec| &*spec.name).collect();
    assert_eq!(params, ["duration_ms", "warm_ms", "halves", "cost_scale", "sched"]);
    let of = mmscale_harness::Params::defaults(study.params(), Length::Full);
    let remarks = study.remarks(&of, Target::Sim).join(" ");
    assert!(remarks.contains("an earlier version has none. 3 operations"));
    let mut other = recording();
    other.cpus[0][0].instructions += 1;
    let other = written("says.lift", &other);
    let changed = Registry::default().find(&other.display().to_string()).expect("it is one");
    assert_ne!(study.file_hash(), changed.file_hash());
}
