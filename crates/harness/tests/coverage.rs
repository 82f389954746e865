//! The calls that a script can make, and the table of locks that are not simulated.
//!
//! Strategy: a script for each call makes it again and again. Invariant: its document names the
//! gaps of this kind of call, or the table says that the kind has none. A call that the language
//! gets needs a row here.

use mmscale_document::{Document, GapRecord};
use mmscale_harness::coverage::{COMPLETE, Call, GAPS};
use mmscale_harness::{
    Checks, Interrupt, Length, ProgressSink, Registry, Request, RunEvent, Settings, execute, plan,
};
use mmscale_script::call_names;
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// A call of the language or a statement that starts a task, the kind of call, and the body of a
/// loop. A body without a call has no kind.
const ROWS: &[(&str, Option<Call>, &str)] = &[
    ("mmap", Some(Call::Mmap), "m = mmap(1 page); munmap(m);"),
    ("mmap of a file", Some(Call::MmapFile), "m = mmap(shared, SHARED); write(m[0]); munmap(m);"),
    ("munmap", Some(Call::Munmap), "m = mmap(1 page); munmap(m);"),
    ("mprotect", Some(Call::Mprotect), "mprotect(kept, READ); mprotect(kept, WRITE);"),
    ("mremap", Some(Call::Mremap), "kept = mremap(kept, 8 pages);"),
    ("madvise", Some(Call::Madvise), "madvise(kept, DONTNEED); write(kept);"),
    ("mlock", Some(Call::Mlock), "mlock(kept); munlock(kept);"),
    ("munlock", Some(Call::Mlock), "mlock(kept); munlock(kept);"),
    ("msync", Some(Call::Msync), "msync(kept); compute(1us);"),
    ("mbind", Some(Call::Mbind), "mbind(kept, 0);"),
    ("mincore", Some(Call::Mincore), "n = mincore(kept); compute(1us);"),
    ("write", Some(Call::Access), "write(kept); compute(1us);"),
    ("read", Some(Call::Access), "read(kept); compute(1us);"),
    ("check", Some(Call::Access), "write(kept); check(kept); compute(1us);"),
    ("sleep", Some(Call::Sleep), "sleep(5us);"),
    ("compute", None, "compute(5us);"),
    ("cpu_offline", Some(Call::Hotplug), "cpu_offline(3); cpu_online(3);"),
    ("cpu_online", Some(Call::Hotplug), "cpu_offline(3); cpu_online(3);"),
    ("memfd_create", Some(Call::File), "f = memfd_create(1 page); close(f);"),
    ("posix_fadvise", Some(Call::Fadvise), "posix_fadvise(shared, DONTNEED); compute(1us);"),
    ("close", Some(Call::Close), "f = memfd_create(1 page); close(f);"),
    ("wait", Some(Call::Wait), "p = process { compute(1us); } wait(p);"),
    ("join", Some(Call::Spawn), "t = thread { compute(1us); } join(t);"),
    ("kill", Some(Call::Kill), "p = process { sleep(1ms); } kill(p); wait(p);"),
    ("pidfd_open", Some(Call::Pidfd), "p = process { } fd = pidfd_open(p); close(fd); wait(p);"),
    (
        "process_mrelease",
        Some(Call::Mrelease),
        "p = process { sleep(1ms); } fd = pidfd_open(p); kill(p); try process_mrelease(fd);
         close(fd); wait(p);",
    ),
    (
        "process_vm_readv",
        Some(Call::VmReadv),
        "copy = mmap(4 pages); p = process { sleep(50us); } try process_vm_readv(p, kept, copy);
         wait(p); munmap(copy);",
    ),
    (
        "oom_score_adj",
        Some(Call::OomScore),
        "p = process { sleep(20us); } oom_score_adj(p, 500); wait(p);",
    ),
    ("barrier", None, "barrier(1); compute(1us);"),
    ("mkdir", Some(Call::MakeGroup), "rmdir(pod); mkdir(pod);"),
    ("rmdir", Some(Call::RemoveGroup), "rmdir(pod); mkdir(pod);"),
    ("rand", None, "compute(rand(1us, 2us));"),
    ("size", None, "n = size(kept); compute(1us);"),
    ("pages", None, "n = pages(kept); compute(1us);"),
    ("min", None, "compute(min(1us, 2us));"),
    ("max", None, "compute(max(1us, 2us));"),
    ("exec", Some(Call::Exec), "p = fork { exec(); } wait(p);"),
    ("fork", Some(Call::Fork), "p = fork { write(kept[0]); } wait(p);"),
    ("process", Some(Call::Process), "p = process { compute(1us); } wait(p);"),
    ("thread", Some(Call::Spawn), "t = thread { compute(1us); } join(t);"),
    ("the end of a task", Some(Call::Exit), "p = fork { } wait(p);"),
];

struct Silent;

impl ProgressSink for Silent {
    fn event(&self, _: RunEvent) {}
}

/// Runs a script whose only program repeats `body`.
fn run(name: &str, body: &str) -> Document {
    let text = format!(
        "file shared = 8 pages;
         group pod;
         process one {{ kept = mmap(4 pages, POPULATE); start; loop {{ {body} count; }} }}"
    );
    let file = format!("coverage-{}.mms", name.replace(' ', "-"));
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(file);
    fs::write(&path, text).expect("it can be written");
    let settings = ["cpus=4", "duration_ms=0.5", "warm_ms=0"];
    let request = Request {
        arms: vec!["stock".to_owned()],
        settings: Settings::parse(settings.as_slice()).expect("they are fine"),
        seeds: Some(1),
        length: Length::Quick,
        checks: Checks::On,
        ..Request::of([path.display().to_string()])
    };
    let plans = plan(&Registry::default(), &request).unwrap_or_else(|why| panic!("{name}: {why}"));
    let sink: Arc<dyn ProgressSink> = Arc::new(Silent);
    execute(&plans[0], &Interrupt::default(), &sink).unwrap_or_else(|why| panic!("{name}: {why}"))
}

#[test]
fn each_call_of_a_script_has_an_entry() {
    for name in call_names() {
        assert!(ROWS.iter().any(|row| row.0 == name), "`{name}` has no row here");
    }
    for kind in Call::ALL.into_iter().filter(|kind| *kind != Call::Zoneinfo) {
        assert!(ROWS.iter().any(|row| row.1 == Some(kind)), "{kind:?} has no row here");
    }
}

#[test]
fn a_document_names_the_gaps_of_each_call() {
    for (name, kind, body) in ROWS {
        let document = run(name, body);
        let Some(kind) = kind else { continue };
        let named =
            |gap: &str| document.not_simulated.iter().any(|row: &GapRecord| row.name == gap);
        let mut gaps = GAPS.iter().filter(|gap| gap.once.is_none() && gap.calls.contains(kind));
        let all = gaps.by_ref().inspect(|gap| assert!(named(gap.name), "{name}: {}", gap.name));
        let complete = COMPLETE.iter().any(|row| row.0 == *kind);
        assert!(all.count() > 0 || complete, "{name}");
    }
}
