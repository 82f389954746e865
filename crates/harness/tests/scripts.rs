//! Scripts as studies: every script of the repository runs, on each machine, and scripts that do
//! the same have the same results.

use mmscale_document::{Document, Target};
use mmscale_harness::{
    Checks, Interrupt, Length, PolicyArm, ProgressSink, Registry, Request, RunEvent, Settings,
    execute, plan,
};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

struct Silent;

impl ProgressSink for Silent {
    fn event(&self, _: RunEvent) {}
}

fn request(script: &Path, settings: &[&str]) -> Request {
    Request {
        arms: vec!["stock".to_owned()],
        settings: Settings::parse(settings).expect("they are fine"),
        seeds: Some(1),
        length: Length::Quick,
        checks: Checks::On,
        ..Request::of([script.display().to_string()])
    }
}

fn run(request: &Request) -> Result<Document, String> {
    let plans = plan(&Registry::default(), request).map_err(|why| why.to_string())?;
    let sink: Arc<dyn ProgressSink> = Arc::new(Silent);
    execute(&plans[0], &Interrupt::default(), &sink).map_err(|why| why.to_string())
}

/// Runs on a real machine. Other programs may use its CPUs for the whole window, so that a few
/// attempts are made.
fn run_live(request: &Request) -> Document {
    let attempts = (0..8).map(|_| run(request));
    let mut failed = Vec::new();
    for attempt in attempts {
        match attempt {
            Ok(document) => return document,
            Err(why) => failed.push(why),
        }
    }
    panic!("{failed:?}")
}

fn metric(document: &Document, name: &str) -> f64 {
    document.arms[0].metrics.get(name).unwrap_or_else(|| panic!("no {name}")).mean
}

fn shipped() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts");
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).expect("it exists").flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "mms"));
    paths.sort();
    paths
}

/// Writes a script to a file of this test.
fn written(name: &str, text: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.mms"));
    fs::write(&path, text).expect("it can be written");
    path
}

#[test]
fn every_script_runs_on_the_simulator_and_its_arms_are_known() {
    for path in shipped() {
        let mut settings = vec!["cpus=4", "duration_ms=0.5", "warm_ms=0.2"];
        let text = fs::read_to_string(&path).expect("it is there");
        if text.contains("128 MiB") || text.contains("8 MiB") {
            settings.push("bytes=256k");
        }
        let document = run(&request(&path, &settings)).unwrap_or_else(|why| panic!("{why}"));
        assert!(metric(&document, "ops_per_s") > 0.0, "{path:?}");
        assert_eq!(metric(&document, "starved_programs"), 0.0, "{path:?}");
        assert_eq!(document.script.as_deref(), Some(text.as_str()));
        println!(
            "{}: {:.3e} ops/s, {:.1} ns CPU, {:.2} calls, {:.2} accesses, {:.2} faults, \
             host {:.0} ns",
            document.study,
            metric(&document, "ops_per_s"),
            metric(&document, "cpu_ns_per_op"),
            metric(&document, "calls_per_op"),
            metric(&document, "accesses_per_op"),
            metric(&document, "faults_per_op"),
            document.arms[0].host_metrics["host_ns_per_op"],
        );
    }
}

const STORM: &str = "param pages = 4 pages \"memory\"; process p per_cpu {
    m = mmap(pages); start;
    loop { write(m); madvise(m, DONTNEED); @ count; } }";

/// Interpreting a script takes no virtual time: the same calls give the same results.
#[test]
fn interpreting_takes_no_virtual_time() {
    let plain = written("plain", &STORM.replace('@', ""));
    let busy = "x = 1; for i in 0..50 { x = x * 3 % 1000 + i; if x > 500 { x -= 1; } }";
    let busy = written("busy", &STORM.replace('@', busy));
    let [plain, busy] = [plain, busy].map(|path| {
        let document = run(&request(&path, &["cpus=4", "duration_ms=1"])).expect("it runs");
        let names = ["ops_per_s", "cpu_ns_per_op", "lock_wait_share", "faults_per_op"];
        (names.map(|name| metric(&document, name)), document.arms[0].locks.clone())
    });
    assert_eq!(plain, busy);
}

/// A window that begins in the middle of a round sees what that part does, and no more. The slowest
/// program counts, and of its loops the outermost.
#[test]
fn rounds_tell_whether_the_window_covers_a_whole_loop() {
    let rounds = |name: &str, loops: &str| {
        let fast = "process fast { start; loop { sleep(100us); count; } }";
        let text = format!("process slow {{ start; {loops} }} {fast}");
        let path = written(name, &text);
        let document = run(&request(&path, &["cpus=4", "duration_ms=7", "warm_ms=1"]))?;
        Ok::<_, String>(document.arms[0].metrics["rounds_min"].mean)
    };
    let rounds =
        |name: &str, loops: &str| rounds(name, loops).unwrap_or_else(|why| panic!("{why}"));
    assert!((3.0..=4.0).contains(&rounds("slow", "loop { sleep(2ms); }")));
    let inner = "loop { loop { sleep(100us); if now > 4ms { break; } } sleep(50ms); }";
    assert_eq!(rounds("inner", inner), 0.0, "its one round is long, though it has a short loop");
    let ends = rounds("ends", "loop 3 { sleep(2ms); }");
    assert!(ends > 60.0, "that loop has an end of its own: {ends}");
}

/// The sum from which `vma_copy_ns` is derived: 310 ns for a VMA in fork and exit together.
#[test]
fn a_fork_with_many_vmas_takes_the_published_time() {
    let text = "param vmas = 2 \"VMAs\"; process one {
        mem = mmap(vmas * 1 page);
        for i in 0..vmas / 2 { mprotect(mem[2 * i], READ); }
        start; loop { child = fork { } wait(child); count; } }";
    let path = written("vmas", text);
    let fork_ns = |vmas: u64| {
        let vmas = format!("vmas={vmas}");
        let of = request(&path, &[&vmas, "cpus=2", "duration_ms=50", "prepare_ms=100"]);
        let document = run(&Request { profile: Some("x86-2".into()), ..of }).expect("it runs");
        1e9 / metric(&document, "ops_per_s")
    };
    let each_ns = (fork_ns(6402) - fork_ns(2)) / 6400.0;
    assert!((each_ns / 310.0 - 1.0).abs() < 0.05, "{each_ns}");
}

/// A fingerprint is one of the script and its results: comments and blanks are neither.
#[test]
fn the_script_is_part_of_the_fingerprint() {
    let print = |name: &str, text: &str| {
        let request = request(&written(name, text), &["cpus=4", "duration_ms=0.5"]);
        let document = run(&request).expect("it runs");
        (document.fingerprint, document.study_file_hash)
    };
    let text = STORM.replace('@', "");
    let first = print("first", &text);
    assert_eq!(print("second", &format!("// A comment.\n{}", text.replace("; ", ";  "))), first);
    assert_ne!(print("third", &STORM.replace('@', "x = 1;")), first);
}

#[test]
fn an_error_of_a_script_fails_the_run_with_its_line() {
    let wrong = written("wrong", "process p {\n m = mmap(2 pages);\n write(m[2]); count; }");
    let why = run(&request(&wrong, &["cpus=1"])).expect_err("it is wrong");
    assert!(why.contains("line 3: page 2 is not within 2 pages"), "{why}");
    let wrong = written("syntax", "process p {\n lop { } }");
    let why = run(&request(&wrong, &[])).expect_err("it is wrong");
    assert!(why.contains("syntax.mms:2:6: expected") && why.contains("`loop`"), "{why}");
    let idle = written("idle", "process p { start; threads per_cpu { if id > 0 { count; } } }");
    let why = run(&request(&idle, &["cpus=1"])).expect_err("nothing counts");
    assert!(why.contains("no program of the script `idle` reached `count` with 1 CPUs"), "{why}");
    let why = run(&request(Path::new("absent.mms"), &[])).expect_err("there is no file");
    assert!(why.starts_with("absent.mms: "), "{why}");
    let taken = written("taken", "param hz = 1 \"\"; process p { count; }");
    let why = run(&request(&taken, &[])).expect_err("the name is taken");
    assert!(why.ends_with("every script has a parameter `hz`; rename yours"), "{why}");
    let arm = written("arm", "arm a lru=lzay; process p { count; }");
    let why = run(&request(&arm, &[])).expect_err("there is no such policy");
    assert!(why.contains("arm a: there is no policy named `lzay`; did you mean `lazy`?"), "{why}");
}

/// `swap` gives the machine an area, `on disk` puts a file on its device, `time` records durations,
/// and a fork waits for a read from the device only if the fault keeps its lock.
#[test]
fn a_fork_waits_for_reads_from_the_device_only_if_faults_keep_their_locks() {
    for name in ["fault-io.mms", "fault-io-files.mms"] {
        let questions = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/questions");
        let mut request = request(&questions.join(name), &["cpus=4", "readers=3", "pages=32"]);
        request.arms = ["stock", "vma", "hold"].map(ToOwned::to_owned).to_vec();
        let document = run(&request).expect("it runs");
        let [faults, fork_ns, longest_ns] = ["faults_per_op", "time_p50_ns", "time_max_ns"]
            .map(|name| document.arms.iter().map(|arm| arm.metrics[name].mean).collect::<Vec<_>>());
        assert!(faults[0] > 1.7 && faults[1] > 1.7 && faults[2] < 1.3, "{name}: {faults:?}");
        assert!(fork_ns[2] > 1.5 * fork_ns[0].max(fork_ns[1]), "{name}: {fork_ns:?}");
        assert!(longest_ns.iter().zip(&fork_ns).all(|(longest, half)| longest >= half), "{name}");
    }
}

/// A charge above the limit of a group kills the process of that group that has most pages; the
/// others do not notice. Memory that can go to swap kills no process.
#[test]
fn a_group_at_its_limit_kills_its_largest_process() {
    let text = "SWAP group web 2 limit 1 MiB;
        process hog in web[0] {
            small = mmap(4 pages); write(small);
            start;
            loop {
                child = fork { m = mmap(2 MiB); write(m); count 1000; }
                wait(child);
                check(small);
                count;
            }
        }
        process other in web[1] on 1 {
            m = mmap(800 KiB); write(m); start; loop { check(m); compute(9us); }
        }";
    let ops = |swap: &str| {
        let script = written("oom", &text.replace("SWAP", swap));
        let mut request = request(&script, &["cpus=4", "duration_ms=20"]);
        request.arms = vec!["stock".to_owned()];
        let document = run(&request).expect("it runs");
        assert_eq!(metric(&document, "starved_programs"), 0.0, "{swap}");
        // Operations of the window.
        metric(&document, "ops_per_s") * 0.02
    };
    // A child that is killed counts nothing.
    let killed = ops("");
    assert!((1.0..1000.0).contains(&killed), "{killed}");
    assert!(ops("swap 16 MiB compressed;") >= 1000.0);
}

/// Every round waits for its slowest task, at the same time in both schedules.
#[test]
fn tasks_wait_for_the_slowest_at_a_barrier() {
    let text = "param tasks = 4 \"\"; param slow = 20us \"\";
        process worker 4 {
            start;
            loop {
                time { if id == 3 { compute(slow); } else { compute(2us); } barrier(tasks); }
                count;
            }
        }";
    let script = written("barrier", text);
    let run_with = |setting: &str| {
        let settings = ["cpus=4", "duration_ms=2", "warm_ms=0.1", "sched=both", setting];
        let mut request = request(&script, &settings);
        request.arms = vec!["stock".to_owned()];
        run(&request)
    };
    for (setting, slowest_us) in [("slow=20us", 20.0), ("slow=60us", 60.0)] {
        let document = run_with(setting).expect("it runs");
        let [p50_ns, max_ns] = ["time_p50_ns", "time_max_ns"].map(|name| metric(&document, name));
        // A look is 0.5 us.
        let round_us = slowest_us..=slowest_us + 2.0;
        assert!(round_us.contains(&(p50_ns / 1e3)), "{setting}: {p50_ns}");
        assert!(max_ns < 1.2 * p50_ns, "{setting}: {max_ns}");
        let rounds_per_s = metric(&document, "ops_per_s") / 4.0;
        assert!((rounds_per_s * p50_ns / 1e9 - 1.0).abs() < 0.1, "{setting}: {rounds_per_s}");
    }
    // With more tasks than there are, none goes on.
    let error = run_with("tasks=5").expect_err("all wait").to_string();
    assert!(error.contains("reached `count`"), "{error}");
    assert!(run_with("tasks=0").expect_err("no task").to_string().contains("barrier"));
}

/// Groups come and go while others run: pages that stay are charged to a removed group, and all
/// charges, lists and statistics add up at the end of the run, which checks them.
#[test]
fn memory_groups_come_and_go_while_others_run() {
    let text = "param churn = 1 \"\"; param busy = 0 \"\";
        group pods 4 depth 2; file layer = 64 pages;
        process runtime 4 in pods {
            if busy { rmdir(pods[id]); }
            start;
            loop {
                app = process in pods[(id + 1) % 4] {
                    m = mmap(8 pages); write(m);
                    f = mmap(layer[rand(64)], SHARED); read(f);
                    child = fork { write(m); }
                    wait(child);
                }
                wait(app);
                count;
            }
        }
        process manager { start; loop { if churn { mkdir(late); rmdir(late); } sleep(20us); } }
        group late depth 2;";
    let text = text.replace("start; loop { if churn", "rmdir(late); start; loop { if churn");
    let script = written("groups", &text);
    let run_with = |setting: &str| {
        let mut request = request(&script, &["cpus=4", "duration_ms=2", setting]);
        request.arms = vec!["stock".to_owned()];
        run(&request)
    };
    let holds = |document: &mmscale_document::Document| {
        let locks = document.arms[0].locks.iter();
        locks.filter(|row| row.class == "cgroup_mutex").map(|row| row.acquisitions).sum::<u64>()
    };
    let [churned, still] = ["churn=1", "churn=0"].map(|how| run_with(how).expect("it runs"));
    // A process that starts in another group than its parent's takes the lock, too.
    let started = metric(&still, "ops_per_s") * 0.002;
    assert!(holds(&still) as f64 >= 0.9 * started, "{} of {started}", holds(&still));
    assert!(holds(&churned) > holds(&still) + 30, "{} {}", holds(&churned), holds(&still));
    let error = run_with("busy=1").expect_err("a process is in it").to_string();
    assert!(error.contains("rmdir") && error.contains("EBUSY"), "{error}");
}

#[test]
fn policies_and_parameters_apply_to_scripts() {
    let script = written("policies", &STORM.replace('@', ""));
    let mut request = request(&script, &["cpus=4", "duration_ms=0.5", "pages=8"]);
    request.policies = vec![PolicyArm::parse("lru=lazy").expect("it is one")];
    let document = run(&request).expect("it runs");
    let arms: Vec<&str> = document.arms.iter().map(|arm| arm.arm.as_str()).collect();
    assert_eq!(arms, ["stock", "lru=lazy"]);
    assert_eq!(metric(&document, "accesses_per_op"), 8.0);
    assert_eq!(metric(&document, "calls_per_op"), 1.0);
    assert!(document.not_simulated.iter().any(|gap| gap.name == "large folios"));
}

#[test]
fn scripts_run_on_threads() {
    let script = written("threads", &STORM.replace('@', ""));
    let mut request = request(&script, &["cpus=1", "duration_ms=20"]);
    (request.on, request.checks) = (Some(Target::Threads), Checks::Off);
    let document = run_live(&request);
    assert!(metric(&document, "ops_per_s") > 0.0);
    // The interpreter takes real time there, which is measured.
    assert!(metric(&document, "script_ns_per_op") > 0.0);
}

#[cfg(feature = "live")]
#[test]
fn scripts_run_on_the_live_kernel_with_a_fault_for_each_page() {
    let script = written("live", &STORM.replace('@', ""));
    let mut request = request(&script, &["cpus=1", "duration_ms=100"]);
    (request.on, request.checks) = (Some(Target::Live), Checks::Off);
    request.settings.add("watch", "off").expect("it is new");
    let document = run_live(&request);
    assert_eq!(
        (metric(&document, "calls_per_op"), metric(&document, "accesses_per_op")),
        (1.0, 4.0)
    );
    let faults = metric(&document, "faults_per_op");
    assert!((4.0..5.0).contains(&faults), "{faults}");
}

#[test]
fn a_loop_over_present_pages_takes_time_also_with_huge_pages() {
    let begin = "profile \"x86-512\" cpus 4; window 1ms after 100us; process a per_cpu {";
    for body in [
        "m = mmap(8 pages, POPULATE); start; loop { write(m); count; }",
        "m = mmap(4 MiB); madvise(m, HUGEPAGE); write(m); start; loop { write(m); count; }",
    ] {
        let script = written("present", &format!("{begin} {body} }}"));
        let document = run(&request(&script, &[])).expect("it ends");
        let ns = metric(&document, "cpu_ns_per_op") / metric(&document, "accesses_per_op");
        assert!((1.0..4.0).contains(&ns), "{body}: {ns} ns an access");
    }
}

#[test]
fn huge_pages_are_refused_where_pages_have_64_kib() {
    let ask = |call: &str| {
        let text = format!(
            "profile \"arm64-480g-64k-72\" cpus 4; window 1ms after 100us; process a {{
             m = mmap(16 pages); {call} start; loop {{ read(m); count; }} }}"
        );
        run(&request(&written("huge", &text), &[])).map(|_| ())
    };
    let why = ask("madvise(m, HUGEPAGE);").expect_err("there are none");
    assert!(why.contains("line 2 of the script asks for huge pages"), "{why}");
    assert_eq!(ask("try madvise(m, COLLAPSE);"), Ok(()));
    assert_eq!(ask("madvise(m, NOHUGEPAGE);"), Ok(()));
}

/// Tasks wait for CPUs next to idle ones only where the script puts them there, and the document
/// says so.
#[test]
fn tasks_share_cpus_next_to_idle_ones_only_on_request() {
    let begin = "profile \"x86-512\" cpus 16; window 2ms after 500us;";
    let stranded = |name: &str, text: &str| {
        let script = written(name, &format!("{begin} {text}"));
        let document = run(&request(&script, &[])).expect("it ends");
        let time = document.arms[0].cpu_time.expect("a simulated machine has it");
        time.stranded_ns as f64 / time.all_ns as f64
    };
    let work = "{ loop { compute(20us); count; } }";
    let near = format!("process p {{ start; for i in 0..8 {{ fork {work} }} wait(); }}");
    assert_eq!(stranded("near", &near), 0.0);
    let teams = format!("process p 4 {{ start; threads 3 {work} }}");
    assert_eq!(stranded("teams", &teams), 0.0);
    // Eight tasks on one CPU: seven wait next to fifteen idle CPUs.
    let on_one = format!("process p {{ start; for i in 0..8 {{ fork on 0 {work} }} wait(); }}");
    let share = stranded("on-one", &on_one);
    assert!((0.40..0.45).contains(&share), "{share}");
}

#[test]
fn the_share_of_waits_has_no_waits_asleep() {
    let text = "profile \"x86-512\" cpus 8; window 8ms after 1ms;
        process p { threads 8 { start;
            loop { n = mmap(32 pages); write(n); munmap(n); count; } } }";
    let document = run(&request(&written("asleep", text), &[])).expect("it ends");
    assert!(metric(&document, "lock_wait_share") < 1.0);
    assert!(metric(&document, "lock_sleep_ns_per_op") > 1000.0, "they wait for mmap_lock");
}
