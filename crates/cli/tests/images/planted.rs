//! Two mistakes in an image, planted by changing its bytes: recordings show them, and replays on a
//! larger machine have the sign and the lock that theory says (`gallery/lift.md`).
//!
//! `MMSCALE_KEEP=FOLDER` keeps images and recordings there.

use crate::{IMAGE, is_absent, lift, mmscale, skipped, stderr};
use mmscale_vm::Image;
use serde_json::Value;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A place in the code, and what it becomes. Both are words:
///
/// - `4c` is a byte, `..` any byte (only before the change);
/// - `90*16` is a byte that often;
/// - `call=NAME` is a call; before the change it gives its target the name, after it calls that;
/// - `=NAME` names the place itself.
struct Place {
    before: &'static str,
    after: &'static str,
}

/// `folios_put_refs` releases the LRU lock, and returns folios to their memory group: in the other
/// order. No instruction is added. Not for `cgroup_disable=memory`, which jumps past the return.
const SCOPE: &[Place] = &[Place {
    before: "48 8b 3c 24 48 85 ff 74 0e 48 8b 74 24 08 48 83 c7 50 call=unlock \
             45 85 ed 74 17 45 88 2e 66 90 4c 89 f7 call=uncharge",
    // test %r13d,%r13d; je; mov %r13b,(%r14); mov %r14,%rdi; call uncharge; mov (%rsp),%rdi;
    // test %rdi,%rdi; je; mov 8(%rsp),%rsi; add $0x50,%rdi; call unlock; nop
    after: "45 85 ed 74 2e 45 88 2e 4c 89 f7 call=uncharge 48 8b 3c 24 48 85 ff 74 10 \
            48 8b 74 24 08 48 83 c7 50 call=unlock 66 90",
}];

/// `__mod_memcg_lruvec_state` reads `lruvec_stats_percpu` of `mem_cgroup_per_node` at 0x490 instead
/// of 0x8. There is a word of `lru_gen_folio.nr_pages` for ZONE_DEVICE, which has no pages, on the
/// line of the one for ZONE_NORMAL. `mem_cgroup_css_alloc` writes it through a call in a hole. The
/// instructions are as many as before.
const WORDS: &[Place] = &[
    Place {
        before: "48 8b 6f c0 48 8d 0c c5 18 00 00 00 89 d3 48 63 d2 48 89 d0 4c 8b 85 38 05 00 00 \
                 49 01 c8 65 49 01 10 48 8b 57 c8 65 48 01 44 0a e8",
        // mov -0x40(%rdi),%rbp; mov %edx,%ebx; movslq %edx,%rdx; mov 0x538(%rbp),%r8;
        // add %rdx,%gs:0x18(%r8,%rax,8); mov 0x450(%rdi),%r8; add %rdx,%gs:(%r8,%rax,8); three nops
        after: "48 8b 6f c0 89 d3 48 63 d2 4c 8b 85 38 05 00 00 65 49 01 54 c0 18 \
                4c 8b 87 50 04 00 00 65 49 01 14 c0 0f 1f 00 0f 1f 40 00 0f 1f 00",
    },
    // The end of that function, which warns of a counter that groups do not have.
    Place {
        before: "c6 05 .. .. .. .. 01 call=warn 0f 0b 5b 5d e9 .. .. .. .. =hole 0f 1f 40 00 90*16",
        // call lruvec_init; mov 8(%r14),%rax; mov %rax,0x490(%r14); ret
        after: "=hole call=init 49 8b 46 08 49 89 86 90 04 00 00 c3",
    },
    Place {
        before: "call=alloc 49 89 46 08 48 85 c0 0f 84 .. .. .. .. 49 8d 7e 40 =made call=init",
        after: "=made call=hole",
    },
];

/// A word of a place.
enum Word<'a> {
    Byte(u8),
    Any,
    Call(&'a str),
    Name(&'a str),
}

/// Bytes of a call.
const CALL: usize = 5;

fn words(text: &str) -> Vec<Word<'_>> {
    let hex = |text| u8::from_str_radix(text, 16).unwrap();
    let of = |word| match word {
        ".." => vec![Word::Any],
        word if word.starts_with("call=") => vec![Word::Call(&word["call=".len()..])],
        word if word.starts_with('=') => vec![Word::Name(&word[1..])],
        word => {
            let (byte, times) = word.split_once('*').unwrap_or((word, "1"));
            (0..times.parse().unwrap()).map(|_| Word::Byte(hex(byte))).collect()
        }
    };
    text.split_whitespace().flat_map(of).collect()
}

/// Returns the names of a place that begins here, if it does.
fn names<'a>(words: &[Word<'a>], code: &[u8], from: usize) -> Option<Vec<(&'a str, usize)>> {
    let (mut at, mut names) = (from, Vec::new());
    for word in words {
        let byte = *code.get(at)?;
        match word {
            Word::Byte(expected) if *expected != byte => return None,
            Word::Byte(_) | Word::Any => at += 1,
            Word::Name(name) => names.push((*name, at)),
            Word::Call(name) => {
                let relative = code.get(at + 1..at + CALL).filter(|_| byte == 0xe8)?;
                at += CALL;
                let relative = i32::from_le_bytes(relative.try_into().unwrap());
                names.push((*name, at.checked_add_signed(relative as isize)?));
            }
        }
    }
    Some(names)
}

/// Returns the changed image: each place is in it once.
fn changed(mut bytes: Vec<u8>, places: &[Place]) -> Vec<u8> {
    let mut known = HashMap::new();
    let mut found = Vec::new();
    for Place { before, after } in places {
        let words = words(before);
        let mut all = (0..bytes.len()).filter_map(|at| Some((at, names(&words, &bytes, at)?)));
        let (at, names) = all.next().unwrap_or_else(|| panic!("not in this image: {before}"));
        assert!(all.next().is_none(), "twice in this image: {before}");
        for (name, at) in names {
            assert_eq!(*known.entry(name).or_insert(at), at, "{name} is at two places");
        }
        found.push((at, *after));
    }
    for (at, after) in found {
        let mut at = at;
        for word in words(after) {
            match word {
                Word::Byte(byte) => {
                    bytes[at] = byte;
                    at += 1;
                }
                Word::Name(name) => at = known[name],
                Word::Call(name) => {
                    bytes[at] = 0xe8;
                    let relative = known[name] as i64 - (at + CALL) as i64;
                    bytes[at + 1..][..4].copy_from_slice(&(relative as i32).to_le_bytes());
                    at += CALL;
                }
                Word::Any => panic!("a byte that is not known"),
            }
        }
    }
    bytes
}

/// Records faults on an image; `None` without QEMU or the package.
fn recorded(image: &str, to: &Path) -> Option<()> {
    let mut command = lift(&["record", "--kernel", image, "page_fault1", "--set", "bytes=2MiB"]);
    command.args(["--cpus", "8", "--ops", "2", "--replace", "-o"]).arg(to);
    let output = command.output().unwrap();
    let said = stderr(&output);
    if is_absent(&said) {
        skipped("planted changes", &said);
        return None;
    }
    assert!(output.status.success(), "{said}");
    Some(())
}

fn document(mut command: std::process::Command) -> Value {
    let output = command.args(["--format", "json"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns what a recording has: instructions of an operation; its acquisitions of the LRU lock;
/// instructions of a hold of it by the release of pages; accesses of the changed function to lines
/// of a node, an operation.
fn shown(path: &Path) -> [f64; 4] {
    let mut command = lift(&["show"]);
    command.arg(path);
    let shown = document(command);
    let number = |of: &Value, key: &str| of[key].as_f64().unwrap();
    let locks = shown["locks"].as_array().unwrap().iter();
    let lru: Vec<&Value> = locks.filter(|lock| lock["class"] == "lruvec").collect();
    let taken = |lock: &&Value| number(lock, "acquisitions_per_op");
    let is_release = |lock: &&&Value| lock["place"][1] == "__page_cache_release";
    let lines = shown["lines"].as_array().unwrap().iter();
    let of_nodes = lines.filter(|line| line["share"] == "node");
    let functions = of_nodes.flat_map(|line| line["functions"].as_array().unwrap());
    let changed = functions.filter(|of| of["function"] == "__mod_memcg_lruvec_state");
    [
        number(&shown, "instructions_per_op"),
        lru.iter().map(taken).sum(),
        lru.iter().filter(is_release).map(|lock| number(lock, "hold_instructions")).sum(),
        changed.map(|function| number(function, "accesses_per_op")).sum(),
    ]
}

/// The largest of some rows by a number.
fn largest<'a>(rows: &'a Value, by: &str, name: &str) -> &'a str {
    let rows = rows.as_array().unwrap().iter();
    let row = rows.max_by(|a, b| a[by].as_f64().unwrap().total_cmp(&b[by].as_f64().unwrap()));
    row.unwrap()[name].as_str().unwrap()
}

#[test]
fn places_are_found_once_and_calls_keep_their_targets() {
    let place = [Place { before: "90 call=f 91 =x 92*2", after: "91 92*2 call=x 90" }];
    let code = [0x90, 0xe8, 4, 0, 0, 0, 0x91, 0x92, 0x92, 0, 0];
    let after = changed([&[0x90][..], &code].concat(), &place);
    assert_eq!(after[..11], [0x90, 0x91, 0x92, 0x92, 0xe8, 0xff, 0xff, 0xff, 0xff, 0x90, 0]);
    let twice = [&code[..], &code[..]].concat();
    assert!(std::panic::catch_unwind(|| changed(twice, &place)).is_err());
    assert!(std::panic::catch_unwind(|| changed(vec![0; 64], &place)).is_err());
}

#[test]
#[ignore = "boots three kernels in an emulator"]
fn a_wider_scope_and_words_on_one_line_are_found_and_cost_what_they_should() {
    let temporary = tempfile::tempdir().unwrap();
    let kept = std::env::var_os("MMSCALE_KEEP").map(PathBuf::from);
    let folder = kept.unwrap_or_else(|| temporary.path().to_owned());
    let file = |name: &str| folder.join(name);
    let [stock, scope, together] = ["stock.lift", "scope.lift", "words.lift"].map(&file);
    if recorded(IMAGE, &stock).is_none() {
        return;
    }
    let image = Image::open(IMAGE, &|_| ()).unwrap();
    for (places, name, to) in [(SCOPE, "scope", &scope), (WORDS, "words", &together)] {
        let image = changed(image.bytes().to_vec(), places);
        fs::write(file(name), image).unwrap();
        recorded(file(name).to_str().unwrap(), to).unwrap();
    }

    let [stock_has, scope_has, words_have] = [&stock, &scope, &together].map(|path| shown(path));
    println!("stock {stock_has:.2?}, scope {scope_has:.2?}, words {words_have:.2?}");
    let same = |a: f64, b: f64, part: f64| (a - b).abs() <= part * a;
    for changed in [scope_has, words_have] {
        assert!(same(stock_has[0], changed[0], 0.003), "instructions");
        // Interrupts of a busy computer drain a batch at times.
        assert!(same(stock_has[1], changed[1], 0.1), "acquisitions");
    }
    // Some 30 to 80 instructions of each of up to 31 folios are in the hold now.
    assert!((800.0..2500.0).contains(&(scope_has[2] - stock_has[2])), "{scope_has:?}");
    assert!(same(stock_has[2], words_have[2], 0.05), "{words_have:?}");
    assert!(stock_has[3] < 0.1 && scope_has[3] < 0.1 && words_have[3] > 1.9, "{words_have:?}");

    let all = [&stock, &scope, &together].map(|path| path.display().to_string()).join(",");
    let mut command = mmscale();
    command.args(["run", &all, "--profile", "x86-512", "--cpus", "128", "--seeds", "3"]);
    let run = document(command);
    let arm = |at: usize| &run["arms"][at];
    let rates: Vec<f64> =
        (0..3).map(|at| arm(at)["metrics"]["ops_per_s"]["mean"].as_f64().unwrap()).collect();
    println!("pages a second: {rates:.0?}");
    for (at, least) in [(1, 0.02), (2, 0.03)] {
        assert!((least..0.15).contains(&(1.0 - rates[at] / rates[0])), "{rates:.0?}");
    }
    for at in 0..3 {
        assert_eq!(largest(&arm(at)["locks"], "wait_total_ns", "class"), "lruvec");
    }
    let line = largest(&arm(2)["lines"], "wait_ns", "line");
    assert_ne!(line, largest(&arm(0)["lines"], "wait_ns", "line"), "the line of both words");
    assert!(line.contains("lru") || line.contains("mem_cgroup"), "{line}");
}
