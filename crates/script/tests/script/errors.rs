//! Errors name the line, the column, and the nearest name.

use mmscale_script::Script;

/// Returns the error in a text: its place and message.
fn error(text: &str) -> String {
    let why = Script::parse("bad.mms", text).expect_err(text);
    format!("{}:{}: {}", why.line, why.column, why.what)
}

/// Returns the error with its place as the text that begins there.
fn error_at(text: &str) -> (String, String) {
    let why = Script::parse("bad.mms", text).expect_err(text);
    let line = text.lines().nth(why.line - 1).unwrap_or("");
    (line.chars().skip(why.column - 1).collect(), why.what)
}

/// Returns the error in the body of a process that begins on line 2.
fn in_body(body: &str) -> String {
    error(&format!("process p {{ count;\n{body}\n}}"))
}

#[test]
fn a_misspelt_word_leads_to_the_nearest_one() {
    let cases = [
        ("lop { }", "2:5: expected", "did you mean `loop` for `lop`?"),
        ("loop { cont; }", "2:12: expected", "did you mean `count` for `cont`?"),
        ("munmmap(1);", "2:1: there is no call named `munmmap`", "; did you mean `munmap`?"),
        ("m = mmap(1 page); write(n);", "2:25: there is no value named `n`", "known: cpu, "),
        (
            "m = mmap(1 page); madvise(m, DONTNED);",
            "2:30: there is no flag named `DONTNED`",
            "did you mean `DONTNEED`?",
        ),
        ("sleep(10 msec);", "2:10: expected", "found `msec`"),
        ("m = mmap(1 page, POPULAT);", "2:18: there is no flag", "did you mean `POPULATE`?"),
    ];
    for (body, begin, part) in cases {
        let why = in_body(body);
        assert!(why.starts_with(begin) && why.contains(part), "{body}: {why}");
    }
}

/// Checks errors: the text, what it begins with at the place of the error, and the message.
fn check(cases: &[(&str, &str, &str)], before: &str, after: &str) {
    for (text, place, wanted) in cases {
        let (at, what) = error_at(&format!("{before}{text}{after}"));
        assert!(at.starts_with(place), "{text}: at `{at}`");
        assert_eq!(what, *wanted, "{text}");
    }
}

#[test]
fn values_of_the_wrong_kind_are_refused() {
    let cases = [
        (
            "sleep(64 KiB);",
            "64 KiB)",
            "expected a time (as 20us), found a size (as 64 KiB or 8 \
                                       pages)",
        ),
        (
            "mmap(10);",
            "mmap",
            "the arguments do not fit; use mmap(SIZE, FLAGS..), mmap(FILE, \
                               SHARED or PRIVATE, ..), mmap(MEMORY, [FILE], ..)",
        ),
        (
            "x = 1 KiB + 2;",
            "1 KiB",
            "this operator does not apply to a size (as 64 KiB or 8 \
                                     pages) and a number",
        ),
        ("x = 1; x = 2us;", "x = 2us", "`x` is a number, and cannot become a time (as 20us)"),
        (
            "m = mmap(1 page); m += 1;",
            "m +=",
            "`m` is memory (from mmap), and the other side is a \
                                               number",
        ),
        ("x = write(mmap(1 page));", "write", "`write` has no value"),
        (
            "m = mmap(1 page); x = m[1 page];",
            "1 page];",
            "expected a number, found a size (as 64 \
                                                          KiB or 8 pages)",
        ),
        ("x = 5; x = x[1];", "x[1]", "[..] selects pages of memory or a file, not a number"),
        (
            "mmap(memfd_create(1 page));",
            "mmap",
            "a mapping of a file is SHARED or PRIVATE; add one",
        ),
        (
            "mmap(1 page, SHARED);",
            "mmap",
            "shared memory needs a file; use \
                                           mmap(memfd_create(SIZE), SHARED)",
        ),
        (
            "m = mmap(1 page); p = process { write(m); }",
            "m);",
            "`m` belongs to another process; a process that is not forked has files, but no \
             memory and no descriptors of processes at its start",
        ),
        ("break;", "break", "there is no loop around this statement"),
        ("cpus = 1;", "cpus", "`cpus` is a value that each program has; use another name"),
        ("threads 2 { id = 1; }", "id", "`id` cannot be changed"),
    ];
    check(&cases, "process p { count;\n", "\n}");
}

#[test]
fn items_that_do_not_fit_are_refused() {
    let cases = [
        ("", "", "the script has no process; add `process NAME per_cpu { .. }`"),
        (
            "process p { }",
            "p {",
            "the script counts nothing; add `count;` behind the operation \
                                  that counts",
        ),
        ("process p { count; } process p { }", "p { }", "a second process `p`"),
        (
            "param a = 1 \"\"; param a = 2 \"\"; process p { count; }",
            "a = 2",
            "a second `a`; use \
                                                                          another name",
        ),
        ("param a = 9 [1..8] \"\"; process p { count; }", "9", "the default is outside its range"),
        (
            "param a = 9 KiB [1us..8 MiB] \"\"; process p { count; }",
            "1us",
            "the range has another \
                                                                    kind of unit than the default",
        ),
        (
            "window 5; process p { count; }",
            "5;",
            "a time of at most 600s is needed here, such as \
                                                  20ms",
        ),
        ("profile \"x\" cpus 0; process p { count; }", "0;", "the number of CPUs is 1 to 4096"),
        (
            "program a { b(); } program b { a(); } process p { a(); count; }",
            "a(); }",
            "the program \
                                                                            `a` uses itself",
        ),
        (
            "program a { } process p { count; }",
            "a {",
            "the program `a` is not used; use it as in \
                                                       `a();`",
        ),
        (
            "arm stock lru=lazy; process p { count; }",
            "stock",
            "a second arm `stock`; stock is \
                                                               Linux",
        ),
        (
            "summary \"a\"; summary \"b\";",
            "summary \"b\"",
            "this item is here a second time; write \
                                                         it once",
        ),
    ];
    check(&cases, "", "");
}

#[test]
fn memory_groups_that_do_not_fit_are_refused() {
    let cases = [
        ("group a; group a;", "a; process", "a second memory group `a`"),
        (
            "group a rand(2);",
            "rand(2);",
            "the number, depth and limit of memory groups may have numbers, parameters and \
             `cpus` only",
        ),
        ("group a limit 5;", "5;", "expected a size (as 64 KiB or 8 pages), found a number"),
        (
            "group a depth 1 page;",
            "1 page",
            "expected a number, found a size (as 64 KiB or 8 pages)",
        ),
        ("process q in a { count; }", "a {", "there is no memory group named `a` (none exists)"),
        (
            "group pods; process q in pod { }",
            "pod {",
            "there is no memory group named `pod`; did you mean `pods`? (known: pods)",
        ),
        (
            "group a; process q { thread in a { } }",
            "a { }",
            "a thread is in the memory group of its process; remove `in`",
        ),
        (
            "group a; process q in a in a { }",
            "in a {",
            "this attribute is here a second time; write it once",
        ),
    ];
    check(&cases, "", " process p { count; }");
}

#[test]
fn the_message_shows_the_line_and_marks_the_column() {
    let why = Script::parse("a/bad.mms", "// ä\n\tprocess ä { }").expect_err("it is wrong");
    let shown = why.to_string();
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[0].starts_with("a/bad.mms:2:10: expected a name, found `ä`"), "{shown}");
    assert_eq!(lines[1..], ["2 | \tprocess ä { }", "  | \t        ^"]);
}

#[test]
fn numbers_that_do_not_fit_are_refused() {
    let too_large = "this number is too large, or not a whole number of its smallest unit";
    for number in ["9223372036854775808", "9000000000 GiB", "1.5 B", "0.0000001us"] {
        assert_eq!(in_body(&format!("x = {number};")), format!("2:5: {too_large}"), "{number}");
    }
}

/// Deep and long texts are refused before anything calls itself for each of their parts.
#[test]
fn what_is_too_large_is_refused() {
    let body = |text: String| in_body(&text);
    let deep = |open: &str, close: &str| open.repeat(10_000) + "1" + &close.repeat(10_000);
    assert!(body(format!("x = {};", deep("(", ")"))).contains("nested more than"));
    assert!(body(deep("loop { ", "}")).contains("nested more than"));
    assert!(body(format!("x = {}1;", "-".repeat(9))).contains("more than 4 prefixes"));
    assert!(body(format!("x = 1{};", " + 1".repeat(9_999))).contains("more than 32 operands"));
    assert!(body(format!("x = m{};", "[0]".repeat(99))).contains("more than 4 prefixes or [..]"));
    assert!(error(&" ".repeat(1 << 19)).contains("bytes; at most"));
    let doubling: String = (0..30)
        .map(|n| format!("program p{n} {{ p{0}(); p{0}(); }} ", n + 1))
        .chain(["program p30 { count; } process p { p0(); }".to_owned()])
        .collect();
    assert!(error(&doubling).contains("more than 65536 operations"));
    let without_operations = doubling.replace("count; }", "} process q { count; }");
    assert!(error(&without_operations).contains("more than 65536 operations"));
    let chain: String = (0..8000).map(|n| format!("program p{n} {{ p{0}(); }} ", n + 1)).collect();
    let chain = chain + "program p8000 { count; } process p { p0(); }";
    assert!(error(&chain).contains("nested more than 64 deep"));
}

#[test]
fn a_missing_semicolon_is_reported_where_it_is_missing() {
    for text in ["count", "x = 1", "munmap(mmap(1 page))", "start", "break"] {
        let body = format!("loop {{\n    {text}\n    }}");
        assert_eq!(in_body(&body), format!("3:{}: a `;` is missing here", 5 + text.len()));
    }
    assert_eq!(error("param a = 1 \"\"\nprocess p { }"), "1:15: a `;` is missing here");
}

#[test]
fn a_misspelt_per_cpu_leads_to_the_right_word() {
    let why = error("process p per_cpus { count; }");
    assert_eq!(why, "1:11: there is no `per_cpus`; did you mean `per_cpu`?");
    assert!(in_body("threads percpu { }").ends_with("did you mean `per_cpu`?"));
}

/// Statements with a block, which is `{}` here.
const AROUND: &[&str] = &[
    "loop {}",
    "loop 3 {}",
    "loop 1ms {}",
    "for i in 0..3 {}",
    "while 1 {}",
    "if 1 {}",
    "if 1 { } else if 1 {}",
    "if 1 { } else {}",
    "choose { 1: {} 2: { } }",
    "fork {}",
    "thread {}",
    "process {}",
    "child = fork {}",
    "worker = thread on 1 {}",
    "other = process priority 5 {}",
    "try fork {}",
    "threads 2 {}",
    "threads per_cpu on cpu {}",
    "threads 2 near {}",
    "c = fork on cores priority 5 {}",
];

/// Wrong statements, in which `!` marks the place of the error, and part of their errors.
const WRONG: &[(&str, &str)] = &[
    ("!munmmap(1);", "did you mean `munmap`?"),
    ("write(!unset);", "there is no value named `unset`"),
    ("sleep(!64 KiB);", "expected a time"),
    ("try sleep(!64 KiB);", "expected a time"),
    ("!cpus = 1;", "use another name"),
    ("if !1us { }", "expected a number"),
    ("loop !1 page { }", "expected a number of rounds or a time"),
    ("for i in 0..!1us { }", "expected a number"),
    ("choose { !1us: { } }", "expected a number"),
    ("fork on !1us { }", "expected a number"),
    ("threads !1us { }", "expected a number"),
    ("threads 2 near !spread { }", "a second time"),
    ("fork on !core { }", "there is no value named `core`"),
    ("x = fork { } !x += 1;", "the other side is a number"),
    ("count !1us;", "expected a number"),
    ("lop !{ }", "did you mean `loop` for `lop`?"),
    ("loop { continue; } fork { !break; }", "there is no loop around this statement"),
    ("process { loop { } } threads 2 { !continue; }", "there is no loop around this statement"),
];

/// An error is reported at its place in each construct, and in each pair of one in another.
#[test]
fn an_error_within_any_construct_is_reported_at_its_place() {
    for outer in AROUND {
        for inner in AROUND {
            let around = outer.replace("{}", &format!("{{ {inner} }}"));
            for (statement, part) in WRONG {
                let begin = "process p { count; try munmap(mmap(1 page)); loop { ";
                let text = begin.to_owned() + &around.replace("{}", &format!("{{ {statement} }}"));
                let text = text + " } }";
                let place = text.find('!').expect("each statement marks its error");
                let text = text.replacen('!', "", 1);
                let why = Script::parse("bad.mms", &text).expect_err(&text);
                assert!(why.what.contains(part), "{text}: {why}");
                assert_eq!(why.column, place + 1, "{text}: {why}");
            }
        }
    }
}

/// Every construct compiles with a correct statement in it, so that the errors above are those of
/// the wrong ones.
#[test]
fn every_construct_compiles_within_every_other() {
    for outer in AROUND {
        for inner in AROUND {
            let around = outer.replace("{}", &format!("{{ {inner} }}"));
            let text =
                format!("process p {{ {} }}", around.replace("{}", "{ loop { count; break; } }"));
            Script::parse("good.mms", &text).unwrap_or_else(|why| panic!("{why}"));
        }
    }
}
