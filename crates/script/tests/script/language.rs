//! Scripts run on a system that records its calls.

use crate::fake::Fake;
use mmscale_script::{Report, Script, Sink, SwapDevice, Times, Unit};
use std::sync::{Arc, Mutex};

const TIMES: Times = Times { begin_ns: 100_000, from_ns: 200_000, until_ns: 1_000_000 };

/// Runs a script. Returns its calls and the sum of its reports.
fn run(text: &str, params: &[i64], seed: u64) -> (Vec<String>, Report) {
    let script = Script::parse("test.mms", text).unwrap_or_else(|why| panic!("{why}"));
    let sum = Arc::new(Mutex::new(Report::default()));
    let total = Arc::clone(&sum);
    let sink: Sink = Arc::new(move |report| *total.lock().expect("no panic") += report);
    let system = Fake::recording();
    script.run(params, seed, TIMES, sink, &system);
    let report = *sum.lock().expect("no panic");
    (system.calls.take(), report)
}

/// Runs the body of one process, which counts once.
fn calls(body: &str) -> Vec<String> {
    let (mut calls, report) = run(&format!("process p {{ {body} count; }}"), &[], 1);
    assert_eq!(report.fault.map(|fault| fault.to_string()), None, "{body}");
    // The start of the process, its common start, and the wait for its end.
    assert_eq!((calls.remove(0), calls.pop()), ("process cpu 0".into(), Some("wait".into())));
    assert_eq!(calls.remove(0), "sleep");
    calls
}

/// Returns the error with which a process ends.
fn fault(body: &str) -> String {
    let (_, report) = run(&format!("process p {{\n{body} count; }}"), &[], 1);
    report.fault.map_or("none".to_owned(), |fault| fault.to_string())
}

#[test]
fn each_call_reaches_the_system_with_its_arguments() {
    let cases = [
        ("mmap(8 KiB);", "mmap 8192 ReadWrite OnTouch None"),
        ("mmap(3 pages, POPULATE, PROT_READ);", "mmap 12288 Read Now None"),
        ("mmap(1 page, MAP_LOCKED, NONE);", "mmap 4096 None Locked None"),
        ("mprotect(m, READ);", "mprotect 32768 Read"),
        ("mprotect(m, EXEC);", "mprotect 32768 ReadExec"),
        ("mremap(m, 4 KiB);", "mremap 32768 4096 true"),
        ("mremap(m, 64 KiB, NOMOVE);", "mremap 32768 65536 false"),
        ("madvise(m, MADV_DONTNEED);", "madvise 32768 DontNeed"),
        ("madvise(m[1], FREE);", "madvise 4096 Free"),
        ("madvise(m[2..4], COLD);", "madvise 8192 Cold"),
        ("madvise(m[4 KiB..], PAGEOUT);", "madvise 28672 PageOut"),
        ("mlock(m, ONFAULT);", "mlock 32768 OnFault"),
        ("munlock(m[..1]);", "munlock 4096"),
        ("msync(m[1..3]);", "msync 8192"),
        ("mbind(m, 1, MOVE_ALL);", "mbind 32768 1 MoveAll"),
        ("x = mincore(m);", "mincore 32768"),
        ("munmap(m);", "munmap 32768"),
        ("exec();", "exec"),
        ("cpu_offline(1);", "cpu_offline 1"),
        ("cpu_online(cpus - 1);", "cpu_online 3"),
        (
            "f = memfd_create(1 MiB); mmap(f[4 KiB..12 KiB], SHARED);",
            "mmap 8192 ReadWrite OnTouch Some((4096, Shared))",
        ),
        (
            "f = memfd_create(1 MiB); mmap(m[0], f[..1], PRIVATE);",
            "mmap 4096 ReadWrite OnTouch Some((0, Private))",
        ),
        ("f = memfd_create(1 MiB); close(f);", "close"),
        (
            "f = memfd_create(1 MiB); posix_fadvise(f[2..], DONTNEED);",
            "posix_fadvise 8192 1040384 DontNeed",
        ),
        (
            "f = memfd_create(1 MiB); posix_fadvise(f, POSIX_FADV_WILLNEED);",
            "posix_fadvise 0 1048576 WillNeed",
        ),
        ("p = fork on 2 { } oom_score_adj(p, -500);", "oom_score_adj -500"),
        ("p = process on 3 priority 5 { } wait(p);", "wait"),
        ("t = thread on 1 { } join(t);", "join"),
        ("p = fork { } fd = pidfd_open(p); try process_mrelease(fd);", "process_mrelease"),
        ("p = fork { } try kill(p);", "kill"),
        ("p = fork { } n = mmap(2 pages); process_vm_readv(p, m, n);", "process_vm_readv 8192"),
    ];
    for (body, wanted) in cases {
        let made = calls(&format!("m = mmap(8 pages); {body}"));
        assert_eq!(made.last().map(String::as_str), Some(wanted), "{body}: {made:?}");
    }
}

#[test]
fn files_of_the_script_are_in_memory_or_on_the_disk() {
    let text = "param n = 2 \"n\"; file f = 1 MiB; file g = n * 1 MiB on disk;
                process p { m = mmap(g[..4], PRIVATE); count; }";
    let (calls, report) = run(text, &[3], 1);
    assert_eq!(report.fault.map(|fault| fault.to_string()), None);
    assert_eq!(calls[..2], ["memfd_create 1048576", "file on disk 3145728"]);
    assert!(calls.contains(&"mmap 16384 ReadWrite OnTouch Some((0, Private))".to_owned()));
}

#[test]
fn values_are_computed_as_in_c() {
    let cases = [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3 - 10 / 4 % 2", 9),
        ("2 - 3 - 4 + 6", 1),
        ("1 + (2 < 3) + (2 == 3) + (1 != 2) + !0 + (1 && 0) + (1 || 0)", 5),
        ("-3 + min(7, 9) + max(1, 0)", 5),
        ("8 KiB / 1 KiB + 2 pages / 1 page", 10),
        ("1.5ms / 1us / 100", 15),
        ("cpus + nodes + cpu", 6),
        ("pages(mmap(12 KiB)) + size(mmap(1 page)) / 4096 B", 4),
    ];
    for (value, wanted) in cases {
        let made = calls(&format!("x = {value}; loop x {{ cpu_online(1); }}"));
        let rounds = made.iter().filter(|call| *call == "cpu_online 1").count();
        assert_eq!(rounds, wanted, "{value}");
    }
}

#[test]
fn loops_and_branches_do_what_they_say() {
    let on = |body: &str| -> Vec<String> {
        let calls = calls(body).into_iter();
        calls.filter_map(|call| call.strip_prefix("cpu_online ").map(str::to_owned)).collect()
    };
    assert_eq!(on("for i in 1..4 { cpu_online(i); }"), ["1", "2", "3"]);
    assert_eq!(on("for i in 3..3 { cpu_online(i); }"), [""; 0]);
    assert_eq!(on("i = 0; while i < 2 { i += 1; cpu_online(i); }"), ["1", "2"]);
    assert_eq!(on("i = 5; loop { i -= 1; if i == 1 { break; } cpu_online(i); }"), ["4", "3", "2"]);
    assert_eq!(on("for i in 0..4 { if i % 2 == 1 { continue; } cpu_online(i); }"), ["0", "2"]);
    assert_eq!(
        on("for i in 0..3 { if i == 0 { cpu_online(7); } else if i == 1 { cpu_online(8); } \
            else { cpu_online(9); } }"),
        ["7", "8", "9"]
    );
    assert_eq!(on("threads 3 { cpu_online(id); }"), ["0", "1", "2"]);
    assert_eq!(on("fork { cpu_online(1); return; cpu_online(2); } wait();"), ["1"]);
    assert_eq!(on("x = 1; fork { x = 2; } cpu_online(x);"), ["1"], "a task has its own copy");
}

#[test]
fn phases_end_by_time_and_loops_with_the_run() {
    let body = "start; loop 100us { cpu_online(1); } loop { cpu_online(2); count; } cpu_online(3);";
    let (calls, report) = run(&format!("process p {{ {body} }}"), &[], 1);
    let number = |wanted: &str| calls.iter().filter(|call| *call == wanted).count() as u64;
    // Each call takes 1 us; the phases begin at 100 us, and the run ends at 1 ms.
    assert_eq!([number("cpu_online 1"), number("cpu_online 3")], [100, 1]);
    let second = number("cpu_online 2");
    assert!((790..=800).contains(&second), "{second}");
    assert_eq!((report.ops_ever, report.late), (second, 0));
    // Operations that end at 200 us or later are in the window.
    assert!((report.ops..=report.ops + 2).contains(&second), "{report:?}");
    // The first operation behind a phase has its calls, too.
    assert_eq!(report.calls, report.ops + 100, "one call an operation");
}

#[test]
fn choices_follow_their_weights_and_the_seed() {
    let text = "process p { for i in 0..4000 { \
                choose { 3: { cpu_online(1); } 1: { cpu_online(2); } \
                0: { cpu_online(3); } } sleep(0ns); } count; }";
    let (first, _) = run(text, &[], 7);
    let number = |calls: &[String], wanted: &str| calls.iter().filter(|c| *c == wanted).count();
    let [a, b, c] =
        ["cpu_online 1", "cpu_online 2", "cpu_online 3"].map(|wanted| number(&first, wanted));
    assert!(a > 2 * b && a < 4 * b && c == 0, "{a} {b} {c}");
    assert_eq!(run(text, &[], 7).0, first, "the same seed");
    assert_ne!(run(text, &[], 8).0, first, "another seed");
}

#[test]
fn groups_start_on_their_cpus_and_programs_are_used_by_name() {
    let text = "param n = 2 \"number\"; program work { count; } \
                process a n per_cpu { work(); } process b 2 on cpus - 1 - id { work(); }";
    let (calls, report) = run(text, &[2], 1);
    let started: Vec<&String> = calls.iter().filter(|call| call.starts_with("process")).collect();
    let cpus: Vec<&str> = started.iter().map(|call| &call["process cpu ".len()..]).collect();
    assert_eq!(cpus, ["0", "1", "2", "3", "0", "1", "2", "3", "3", "2"]);
    assert_eq!(report.ops_ever, 10);
    // Files of the script are inherited, so processes are forked.
    let (calls, _) = run("file f = 1 MiB; process a { mmap(f, SHARED); count; }", &[], 1);
    assert!(calls.contains(&"fork cpu 0".to_owned()), "{calls:?}");
}

#[test]
fn pages_that_another_program_wrote_are_damage_only_where_the_script_says_so() {
    let damaged = |body: &str| run(&format!("process p {{ {body} count; }}"), &[], 1).1.damaged;
    assert_eq!(damaged("m = mmap(4 pages); read(m); write(m); read(m); check(m);"), 0);
    assert_eq!(damaged("m = mmap(4 pages); write(m[1..]); check(m);"), 1, "never written");
    assert_eq!(damaged("m = mmap(4 pages); write(m); madvise(m, DONTNEED); read(m);"), 0);
    // Memory is one for all tasks of this system, as after a fork that copies nothing.
    assert_eq!(damaged("m = mmap(4 pages); write(m); fork { write(m[2]); } check(m);"), 1);
    assert_eq!(damaged("m = mmap(4 pages); write(m); fork { write(m[2]); } read(m);"), 0);
    // A page at the place of another one.
    assert_eq!(damaged("m = mmap(4 pages); n = mmap(m[1]); write(n); read(m);"), 0);
    // A copy has the words of its origin, and memory that another process wrote has others.
    let copied = "m = mmap(4 pages); write(m); n = mmap(8 pages); p = fork { }
                  copy = process_vm_readv(p, m[1..], n);";
    assert_eq!(damaged(&format!("{copied} read(copy);")), 0);
    assert_eq!(damaged(&format!("{copied} read(n);")), 3, "it is not its own content");
}

#[test]
fn an_error_ends_its_program_and_names_the_line() {
    let unset = "a variable has no value yet; memory has none after exec()";
    let stuck = "4 million operations of the script and no time passes; a loop needs a call, an \
                 access, `compute` or `sleep`";
    let cases = [
        ("m = mmap(4 pages); write(m[4]);", "page 4 is not within 4 pages; pages count from 0"),
        (
            "m = mmap(8 pages); write(m[..9]);",
            "the part from 0 pages to 9 pages is not within 8 pages",
        ),
        (
            "m = mmap(4 pages); write(m[3..100 B]);",
            "the part from 3 pages to 100 bytes (0.02 pages) is not within 4 pages",
        ),
        ("x = 1 / (cpu - cpu);", "division by 0"),
        ("x = 9_000_000_000_000_000_000 * 9;", "a number does not fit in 64 bits"),
        ("sleep(1us - 2us);", "-1000 is negative; a size, time, count or number must not be"),
        ("choose { 0: { } }", "the weights of `choose` must be 0 or more, with a sum above 0"),
        ("x = rand(0);", "there is no number from 0 below 0; rand(a, b) needs a below b"),
        ("fork on 4 { }", "there is no CPU 4; the 4 CPUs are numbered from 0"),
        ("fork priority 100 { }", "priority 100 does not exist; priorities are 1 to 99"),
        ("if cpu == 9 { m = mmap(1 page); } write(m);", unset),
        ("m = mmap(1 page); exec(); write(m);", unset),
        ("while 1 { }", stuck),
        ("loop { }", stuck),
        ("loop { for i in 0..1000 { x = i; } }", stuck),
        ("for i in 0..9_000_000_000 { x = i; }", stuck),
        (
            "mmap(0 pages);",
            "mmap(0): invalid argument (EINVAL); put `try` before a call that may fail",
        ),
        (
            "m = mmap(9 pages); munmap(m[1 page / 2 .. 3 pages + 1 B]);",
            "munmap(10241 bytes (2.50 pages), from byte 2048 of a page on): invalid argument \
             (EINVAL); put `try` before a call that may fail",
        ),
        (
            "for i in 0..2000 { f = memfd_create(1 GiB); }",
            "more than 1024 files that were not closed; use close(f)",
        ),
        (
            "m = mmap(4 pages); write(m); fork { check(m[2..]); }",
            "check found in page 0 of 2 what the parent wrote; `check` is for pages that this \
             process wrote, and `read` for those that it inherited",
        ),
        (
            "p = fork { } kill(p);",
            "kill(): no such process (ESRCH); put `try` before a call that may fail",
        ),
    ];
    for (body, wanted) in cases {
        assert_eq!(fault(body), format!("line 2: {wanted}"), "{body}");
    }
    let (_, report) = run("process p { mmap(1 GiB * 4096 * 64); count; }", &[], 1);
    assert_eq!((report.starved, report.fault), (1, None), "lack of memory is no error");
    let failed = "process p { p = fork { } try kill(p); if !ok { count; } }";
    let (_, report) = run(failed, &[], 1);
    assert_eq!((report.failed_calls, report.ops_ever), (1, 1));
}

#[test]
fn what_takes_too_long_is_cut_some_time_after_the_run() {
    let (calls, report) = run("process p { sleep(600s); cpu_online(1); count; }", &[], 1);
    assert!(calls.contains(&"cpu_online 1".to_owned()));
    assert_eq!((report.ops, report.fault), (0, None));
    let (calls, _) = run("process p { while 1 { cpu_online(1); } count; }", &[], 1);
    assert!((1000..4000).contains(&calls.len()), "{}", calls.len());
}

#[test]
fn what_a_script_declares_is_told() {
    let text = "summary \"a question\"; profile \"x86-26\" cpus 8; window 2ms after 1ms live 3s;
        param pages = 4 pages [1 page..8 pages] \"their number\";
        param think = 20us \"a time\";
        arm both lru=lazy, vma-locks=faults;
        process p per_cpu { mmap(pages); sleep(think); count; }";
    let script = Script::parse("dir/name.mms", text).expect("it is fine");
    assert_eq!((script.name(), script.summary().as_str()), ("name", "a question"));
    assert_eq!((script.profile(), script.cpus()), (Some("x86-26"), Some(8)));
    let window = script.window();
    assert_eq!(
        [window.length_ns, window.after_ns, window.live_ns],
        [2_000_000, 1_000_000, 3_000_000_000]
    );
    let param = &script.params()[0];
    assert_eq!((param.unit, param.default, param.range), (Unit::Pages, 16384, [4096, 32768]));
    assert_eq!(script.params()[1].default, 20_000);
    assert_eq!(script.arms()[0].choices[1], ("vma-locks".to_owned(), "faults".to_owned()));
    assert!(script.is_per_cpu(&[16384, 0]));
}

#[test]
fn needs_are_those_of_all_tasks() {
    let needs = |text: &str, params: &[i64]| {
        let script = Script::parse("test.mms", text).expect("it is fine");
        let needs = script.needs(params, 8);
        (needs.processes, needs.tasks, needs.pages, needs.prepared_pages)
    };
    let text = "param size = 64 KiB \"\"; process p 2 per_cpu { m = mmap(size); start; \
                fork { mmap(1 page); count; } }";
    assert_eq!(needs(text, &[65536]), (32, 32, 16 * (16 + 17), 16 * 16));
    let text = "process p { threads per_cpu { mmap(4 pages); start; count; } }";
    assert_eq!(needs(text, &[]), (1, 9, 32, 32));
    let text = "process p { for i in 0..10 { mmap(1 page); } start; count; }";
    assert_eq!(needs(text, &[]), (1, 1, 10, 10));
    // More than any machine has is no overflow.
    let text = "process p { threads 4 { q = process { for i in 0..9223372036854775807 { \
                threads cpu per_cpu { c = fork { mmap(1 page); } } } } } count; }";
    assert_eq!(needs(text, &[]).1, u64::MAX);
}

/// Returns the CPUs of tasks in the order of their start.
fn cpus_of(text: &str) -> Vec<String> {
    let calls = run(text, &[], 1).0.into_iter();
    let cpu = |call: String| call.split_once(" cpu ").map(|(_, cpu)| cpu.to_owned());
    calls.filter_map(cpu).collect()
}

#[test]
fn tasks_without_on_go_to_different_cpus_near_the_one_that_starts_them() {
    // The first CPU is that of the process itself; the system has 4.
    let process = |body: &str| cpus_of(&format!("process p {{ {body} count; }}"));
    assert_eq!(process("threads 3 { }"), ["0", "0", "1", "2"]);
    assert_eq!(process("thread { } threads 3 { }"), ["0", "1", "0", "2", "3"]);
    assert_eq!(process("for i in 0..3 { fork { } }"), ["0", "1", "2", "3"]);
    assert_eq!(process("for i in 0..3 { c = fork { } wait(c); }"), ["0", "1", "1", "1"]);
    assert_eq!(process("a = fork { } b = fork { } wait(a); fork { }"), ["0", "1", "2", "1"]);
    assert_eq!(process("loop 2 { threads 2 { } }"), ["0", "0", "1", "0", "1"]);
    assert_eq!(process("fork on 3 { } fork { }"), ["0", "3", "1"]);
    assert_eq!(process("fork on cores { } fork on cores { }"), ["0", "2", "1"]);
    assert_eq!(process("fork on nodes { } fork spread { }"), ["0", "1", "1"]);
    assert_eq!(
        process("threads 4 spread { } fork near priority 2 { }"),
        ["0", "0", "2", "1", "3", "1"]
    );
    assert_eq!(
        cpus_of("process a 3 on cores { } process b 2 on nodes { count; }"),
        ["0", "2", "1", "3", "0"]
    );
    assert_eq!(cpus_of("process a { count; } process b 2 { }"), ["0", "1", "2"]);
    assert_eq!(cpus_of("process a 2 { threads 2 { count; } }"), ["0", "0", "2", "1", "1", "3"]);
}

#[test]
fn where_each_cpu_has_a_process_children_stay_and_threads_spread() {
    let all = ["0", "0", "0", "1", "1", "1", "2", "2", "2", "3", "3", "3"];
    assert_eq!(cpus_of("process p per_cpu { fork { } process { } count; }"), all);
    let spread = ["0", "0", "1", "1", "1", "2", "2", "2", "3", "3", "3", "0"];
    assert_eq!(cpus_of("process p per_cpu { threads 2 { count; } }"), spread);
    let teams = "process p { threads per_cpu { c = fork { } wait(c); count; } }";
    assert_eq!(cpus_of(teams), ["0", "0", "0", "1", "1", "2", "2", "3", "3"]);
}

/// Compressed pages have the sizes of the program's memory, or all have one.
#[test]
fn compressed_pages_may_have_one_size() {
    let rest = "param part = 30 \"\"; process one { time { sleep(1ms); } count; }";
    let of = |item: &str, part: i64| {
        let script = Script::parse("swap.mms", &format!("{item} {rest}")).unwrap();
        script.compressed_percent(&[part], 1)
    };
    assert_eq!(of("swap 4 MiB compressed;", 30), None);
    assert_eq!(of("swap 4 MiB compressed to part;", 30), Some(30));
    assert_eq!(of("swap 4 MiB compressed to part;", 0), None);
    assert_eq!(of("swap 4 MiB compressed to 2 * 20;", 0), Some(40));
    assert_eq!(of("swap 4 MiB compressed to part;", -1), Some(u64::MAX));
}

/// The swap area is there before any program, and its size may depend on parameters and CPUs.
#[test]
fn a_script_has_a_swap_area_of_a_constant_size() {
    let rest = "param pages = 64 pages \"memory\"; process p { time { sleep(1ms); } count; }";
    let script = |item: &str| Script::parse("swap.mms", &format!("{item} {rest}"));
    let of = |item: &str| {
        let script = script(item).expect("it is one");
        (script.swap_device(), script.needs(&[1 << 20], 4).swap_pages)
    };
    assert_eq!(of("swap 4 MiB;"), (Some(SwapDevice::Block), 1024));
    assert_eq!(of("swap 2 * pages * cpus compressed;"), (Some(SwapDevice::Compressed), 2048));
    assert_eq!(of(""), (None, 0));
    for (item, why) in [
        ("swap 4 MiB; swap 4 MiB;", "a second time"),
        ("swap 4 MiB compressed to 4 KiB;", "a number"),
        ("swap 4 MiB compressed into 3;", "`to`"),
        ("swap 4 MiB block to 30;", "have no size"),
        ("swap 20ms;", "a size"),
        ("swap rand(4) * 4 KiB * size(pages);", ""),
        ("swap 4 MiB zram;", "compressed"),
    ] {
        let error = script(item).expect_err(item).to_string();
        assert!(error.contains(why), "{item}: {error}");
    }
    let open = Script::parse("time.mms", "process p { time count; }").expect_err("no block");
    assert!(open.to_string().contains('{'), "{open}");
}

#[test]
fn memory_groups_are_created_and_removed_by_number() {
    let text = "param n = 2 \"\"; group pods n; group late;
                process p { rmdir(pods[5]); mkdir(pods[id + 5]); try rmdir(late); count; }";
    let made = |n: i64| {
        let (calls, report) = run(text, &[n], 1);
        assert_eq!(report.fault.map(|fault| fault.to_string()), None);
        calls.into_iter().filter(|call| call.contains("_group ")).collect::<Vec<_>>()
    };
    assert_eq!(made(2), ["remove_group 2", "make_group 2", "remove_group 3"]);
    // A number of groups of 0: all processes are in the root.
    assert_eq!(made(0), ["remove_group 1"]);
    assert!(Script::parse("test.mms", text).unwrap().changes_memory_groups());
    let plain = Script::parse("test.mms", "group pods 2; process p in pods { count; }").unwrap();
    assert!(!plain.changes_memory_groups());
    for (body, why) in [
        ("mkdir(pod);", "did you mean `pods`?"),
        ("rmdir(1);", "use rmdir(GROUP)"),
        ("rmdir(pods[1 page]);", "number"),
        ("rmdir();", "use rmdir(GROUP)"),
    ] {
        let text = format!("group pods 2; process p {{ {body} count; }}");
        let error = Script::parse("test.mms", &text).expect_err(body).to_string();
        assert!(error.contains(why), "{body}: {error}");
    }
}

#[test]
fn processes_are_in_memory_groups_in_turn_and_their_children_with_them() {
    let text = |n: &str| {
        format!(
            "param n = {n} \"\"; group pods n depth 2 limit 1 MiB; group late;
             process a 3 in pods {{ fork {{ }} count; }}
             process b {{ process in late {{ thread {{ }} }} fork in pods[n + 1] {{ }} count; }}"
        )
    };
    let (calls, _) = run(&text("2"), &[2], 1);
    let tasks: Vec<&str> =
        calls.iter().filter(|call| call.contains(" cpu ")).map(String::as_str).collect();
    let group =
        |call: &str| call.split_once(" group ").map_or(0, |(_, group)| group.parse().unwrap());
    // Three processes with a child each; `b`, its process with a thread, its fork.
    assert_eq!(
        tasks.iter().map(|call| group(call)).collect::<Vec<_>>(),
        [1, 1, 2, 2, 1, 1, 0, 3, 3, 2]
    );
    let script = Script::parse("test.mms", &text("2")).unwrap();
    let [pods, late] = script.memory_groups(&[2], 4)[..] else { panic!("two kinds") };
    assert_eq!((pods.count, pods.depth, pods.limit_pages), (2, 2, Some(256)));
    assert_eq!((late.count, late.depth, late.limit_pages), (1, 1, None));
    // Without any the processes are in the root.
    let (calls, report) = run(&text("2"), &[0], 1);
    assert!(
        calls.iter().filter(|call| call.contains("group")).all(|call| call.ends_with("group 1"))
    );
    assert_eq!(report.faults, 0);
}
