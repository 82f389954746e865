//! Programs in C: the form of each statement, statements without one, and whether a compiler
//! accepts all of it.

use mmscale_script::{ProgramSpec, Script};
use std::fs;
use std::process::Command;

/// Returns the program of a script with its defaults, or why there is none.
fn written(text: &str) -> Result<String, String> {
    let script = Script::parse("test.mms", text).unwrap_or_else(|why| panic!("{why}"));
    let params: Vec<i64> = script.params().iter().map(|param| param.default).collect();
    let spec = ProgramSpec {
        name: "test",
        params: &params,
        written_by: "mmscale kernel reproduce ./test.mms",
        simulated_by: &["mmscale run ./test.mms".to_owned()],
        remarks: &[],
    };
    script.reproduce(&spec).map(|made| made.program).map_err(|why| why.to_string())
}

/// Returns the program of a process with this body.
fn body(body: &str) -> String {
    let text = format!("param n = 4 \"rounds\"; process p per_cpu {{ start; {body} count; }}");
    written(&text).unwrap_or_else(|why| panic!("{why}"))
}

/// Checks that a compiler has no complaint. Without one nothing is checked.
fn compiles(program: &str) {
    let folder = tempfile::tempdir().expect("there is a temporary folder");
    let source = folder.path().join("repro.c");
    fs::write(&source, program).expect("it is writable");
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"]);
    match cc.arg(folder.path().join("repro")).arg(&source).output() {
        Err(why) => println!("SKIPPED: programs in C are not compiled: cc: {why}"),
        Ok(made) => {
            let errors = String::from_utf8_lossy(&made.stderr);
            assert!(made.status.success(), "{errors}\n{program}");
        }
    }
}

#[test]
fn statements_become_those_of_c() {
    let cases = [
        (
            "for i in 0..n { cpu_count = cpus * i; sleep(1us * cpu_count); }",
            "for (long i = 0; i < N; i++)",
        ),
        (
            "m = mmap(4 pages); m = mremap(m, 8 KiB); munmap(m);",
            "mremap(m, m_size, 8L << 10, MREMAP_MAYMOVE)",
        ),
        ("m = mmap(4 pages); munmap(m[1..3]);", "munmap(m + PAGE, 2 * PAGE)"),
        ("m = mmap(4 pages); mprotect(m[2], NONE);", "mprotect(m + 2 * PAGE, PAGE, PROT_NONE)"),
        (
            "m = mmap(2 MiB, POPULATE); try madvise(m, COLLAPSE);",
            "madvise(m, 2L << 20, MADV_COLLAPSE);",
        ),
        (
            "m = mmap(4 pages); try madvise(m, FREE); if !ok { read(m); }",
            "ok = !madvise(m, 4 * PAGE, MADV_FREE);",
        ),
        (
            "m = mmap(4 pages); mbind(m, nodes - 1, MOVE);",
            "bind_to(m, 4 * PAGE, nodes() - 1, MPOL_MF_MOVE)",
        ),
        (
            "m = mmap(4 pages); mlock(m[..2], ONFAULT); munlock(m); try msync(m);",
            "msync(m, 4 * PAGE, MS_SYNC)",
        ),
        (
            "f = memfd_create(1 MiB); m = mmap(f[1..3], SHARED); read(m); close(f);",
            "MAP_SHARED, f, PAGE)",
        ),
        ("m = mmap(3 pages); mmap(m[0]);", "MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED"),
        (
            "m = mmap(1 page); while mincore(m) < 1 { write(m); }",
            "while (present_pages(m, PAGE) < 1)",
        ),
        (
            "choose { 1: { sleep(1us); } 1: { sleep(2us); } 1: { sleep(3us); } }",
            "switch (rnd(0, 3)) {",
        ),
        ("choose { 3: { sleep(1us); } 1: { sleep(2us); } }", "if (rnd(0, 4) < 3)"),
        ("loop 5ms { compute(1us); }", "while (!shared->stop && since_start() < end)"),
        ("c = fork { loop { sleep(1ms); } } kill(c); wait(c);", "kill(c, SIGKILL)"),
        (
            "c = fork { } fd = pidfd_open(c); try process_mrelease(fd); close(fd); wait(c);",
            "syscall(SYS_pidfd_open, c, 0)",
        ),
        ("c = fork { } oom_score_adj(c, 500); wait(c);", "oom_score_adj(c, 500)"),
        ("fork { fork { } }", "wait_for_all();"),
        (
            "x = 7; m = mmap(x * 1 page); t = thread { write(m); sleep(1us * x); } join(t);",
            "start_thread(p_thread",
        ),
        ("threads 2 { m = mmap(1 page); write(m); check(m); }", "pthread_t team[2];"),
        (
            "x = rand(9); if x > 3 && (x < 5 || x == 7) { sleep(1us); }",
            "if (x > 3 && (x < 5 || x == 7))",
        ),
        ("linux = 1; EOF = linux + 1; sleep(1us * EOF);", "EOF_ = linux_ + 1;"),
        ("threads 2 on cores { compute(1us); }", "next_in_order(on_cores, id)"),
        ("t = thread near { compute(1us); } join(t);", ".cpu = next_in_order(near,"),
        ("c = fork spread priority 3 { } wait(c);", "next_in_order(spread, children + 1)"),
        ("return;", "return;"),
    ];
    for (script, wanted) in cases {
        let program = body(script);
        assert!(program.contains(wanted), "{script}: no `{wanted}` in\n{program}");
        compiles(&program);
    }
}

#[test]
fn a_file_on_the_disk_is_written_and_dropped_before_the_tasks_start() {
    let text = "param parts = 2 \"parts\";
                file data = parts * 1 MiB on disk;
                process p 2 { m = mmap(data[id * 8..(id + 1) * 8], PRIVATE); start; loop {
                    madvise(m, DONTNEED); posix_fadvise(data[id * 8..(id + 1) * 8], DONTNEED);
                    read(m); count; } }";
    let script = Script::parse("test.mms", text).unwrap_or_else(|why| panic!("{why}"));
    let spec =
        ProgramSpec { name: "test", params: &[2], written_by: "", simulated_by: &[], remarks: &[] };
    let made = script.reproduce(&spec).unwrap_or_else(|why| panic!("{why}"));
    assert!(made.program.contains("data = new_file_on_disk("), "{}", made.program);
    compiles(&made.program);
    let tried = "f = memfd_create(1 MiB); try posix_fadvise(f[2..3], DONTNEED); if !ok { }";
    let call = "ok = !(errno = posix_fadvise(f, 2 * PAGE, PAGE, POSIX_FADV_DONTNEED));";
    assert!(body(tried).contains(call), "{}", body(tried));
}

#[test]
fn a_variable_keeps_its_value_from_round_to_round() {
    let program = body("i = 0; loop { if i == 3 { i = 0; } i += 1; sleep(1us * i); }");
    let declared = program.find("long i").expect("it is declared");
    assert!(declared < program.find("while (!shared->stop)").expect("a loop"), "{program}");
    let program = body("loop { i = rand(3); sleep(1us * i); }");
    let declared = program.find("long i = rnd(0, 3);").expect("it is declared");
    assert!(declared > program.find("while (!shared->stop)").expect("a loop"), "{program}");
}

#[test]
fn parameters_choose_the_processes_that_start() {
    let text = "param t = 0 [0..1] \"threads\";\n\
                program work { start; loop { sleep(1us); count; } }\n\
                process each 1 - t per_cpu { work(); }\n\
                process one t { threads per_cpu { work(); } }";
    let script = Script::parse("test.mms", text).unwrap_or_else(|why| panic!("{why}"));
    let with = |params: &[i64]| {
        let spec = ProgramSpec {
            name: "test",
            params,
            written_by: "",
            simulated_by: &[],
            remarks: &["a remark".to_owned()],
        };
        script.reproduce(&spec).unwrap_or_else(|why| panic!("{why}"))
    };
    let (processes, threads) = (with(&[0]), with(&[1]));
    assert!(!processes.program.contains("pthread"), "{}", processes.program);
    assert!(processes.program.contains("each_task();") && !processes.program.contains("one_task"));
    assert!(threads.program.contains("team[id] = start_thread(work_thread, &arg, sizeof(arg));"));
    assert!(threads.readme.contains("- a remark\n"), "{}", threads.readme);
    compiles(&processes.program);
    compiles(&threads.program);
    assert_eq!(with(&[0]), processes, "the same script, the same program");
}

#[test]
fn what_has_no_form_in_c_is_refused_with_its_line() {
    let cases = [
        ("process p {\nstart; cpu_offline(1); count; }", "test.mms:2:8: cpu_offline would take"),
        ("process p {\nthread { } join(); count; }", "test.mms:2:12: join() of all threads"),
        ("process p {\nbarrier(2); count; }", "test.mms:2:1: barrier() is not written in C"),
        (
            "process p {\nm = mmap(1 page); p = fork { }\nprocess_vm_readv(p, m, m); count; }",
            "test.mms:3:1: process_vm_readv() is not written in C",
        ),
        ("process p {\nexec(); count; }", "test.mms:2:1: exec() is not written in C"),
        ("process p {\ntry fork { } count; }", "`try` before the start of a task"),
        (
            "process p {\nif cpu { start; } count; }",
            "the number of tasks that wait at this `start`",
        ),
        (
            "process p max(cpus / 2, 1) {\nc = fork { } wait(c); count; }",
            "test.mms:2:1: the CPU of this task depends on a number of tasks",
        ),
        ("group pods 2; process p in pods { count; }", "test.mms:1:7: a program in C has no"),
        ("process p rand(3) { count; }", "the number of these processes is not known"),
        (
            "process p { f = memfd_create(1 MiB);\ng = f[1..2]; mmap(g, SHARED); count; }",
            "a part of a file",
        ),
    ];
    for (text, wanted) in cases {
        let why = written(text).expect_err(text);
        assert!(why.contains(wanted), "{text}: {why}");
    }
}

#[test]
fn the_text_of_a_script_cannot_end_its_comment() {
    let text = "/* a */ summary \"b */ ??/ \u{e4}\"; // */\nprocess p { count; } // \\";
    let program = written(text).unwrap_or_else(|why| panic!("{why}"));
    assert!(program.contains(" *   / * a * / summary"), "{program}");
    assert!(program.is_ascii());
    compiles(&program);
}
