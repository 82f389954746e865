//! Traces of known answers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use rand_core::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::line::{What, event};
use super::*;

fn read(text: &str) -> Contention {
    let mut stream = Stream::default();
    text.lines().for_each(|line| stream.line(line));
    stream.finish().expect("it has events")
}

#[test]
fn both_forms_of_a_line_are_read() {
    type Seen<'a> = (&'a str, u32, Option<u32>, u64, u64, String);
    fn begin(line: &str) -> Seen<'_> {
        let event = event(line).unwrap_or_else(|| panic!("{line}"));
        let What::Begin { lock, kind } = event.what else { panic!("{line}: {event:?}") };
        (event.comm, event.tid, event.cpu, event.ns, lock, kind.word())
    }
    let lines = [
        "       lto cgu.1 29269 [000] 47679.240161: lock:contention_begin: 0xffff888627d2ba80 \
         (flags=SPIN)",
        "lto cgu.1  2000/29269 [000] 47679.240161000:     1 lock:contention_begin: \
         0xffff888627d2ba80 (flags=SPIN)",
        "      lto cgu.1-29269   [000] dns2. 47683.240161: contention_begin: 00000000ae311234 \
         (flags=SPIN|READ)",
        "     lto cgu.1-29269  (   2000) [000] d..1. 47683.240161: contention_begin:     \
         lock_addr=0xae311234 flags=0x3",
    ];
    for (line, lock, kind) in [
        (lines[0], 0xffff_8886_27d2_ba80, "spinlock"),
        (lines[1], 0xffff_8886_27d2_ba80, "spinlock"),
        (lines[2], 0xae31_1234, "rwlock:R"),
        (lines[3], 0xae31_1234, "rwlock:R"),
    ] {
        let (comm, tid, cpu, ns, address, word) = begin(line);
        assert_eq!((comm, tid, cpu, address, &*word), ("lto cgu.1", 29269, Some(0), lock, kind));
        assert_eq!(ns % 1_000_000_000, 240_161_000, "{line}");
    }
    let (comm, tid, ..) = begin(
        "kworker/u8:3-ev 7 [001] 1.000000002: lock:contention_begin: 0x12 (flags=MUTEX|SPIN)",
    );
    assert_eq!((comm, tid), ("kworker/u8:3-ev", 7));
    for no_event in [
        "contention_begin: 0x12",
        "x 7 [001] now: lock:contention_begin: 0x12 (flags=SPIN)",
        "the event lock:contention_begin: is new",
        "x 7 [001] 1.5: lock:contention_begin: somewhere (flags=SPIN)",
    ] {
        assert_eq!(event(no_event), None, "{no_event}");
    }
}

#[test]
fn nested_and_repeated_waits_are_one_wait_each() {
    let seen = read(
        "a 1 [000] 1.000001: lock:contention_begin: 0x10 (flags=MUTEX|SPIN)\n\
         a 1 [000] 1.000003: lock:contention_begin: 0x10 (flags=MUTEX)\n\
         a 1 [000] 1.000004: lock:contention_begin: 0x20 (flags=SPIN)\n\
         a 1 [000] 1.000006: lock:contention_end: 0x20 (ret=0)\n\
         a 1 [000] 1.000009: lock:contention_end: 0x10 (ret=0)\n\
         b 2 [001] 1.000010: lock:contention_end: 0x30 (ret=0)\n\
         swapper 0 [001] 1.000011: lock:contention_begin: 0x30 (flags=SPIN)\n\
         swapper 0 [002] 1.000012: lock:contention_begin: 0x30 (flags=SPIN)\n\
         swapper 0 [001] 1.000013: lock:contention_end: 0x30 (ret=0)\n",
    );
    let of = |lock: u64| seen.locks.iter().find(|of| of.0 == lock).unwrap().clone();
    assert_eq!((of(0x10).1.as_str(), of(0x10).2.total_ns, of(0x10).2.waits), ("mutex", 8000, 1));
    assert_eq!((of(0x20).2.total_ns, of(0x30).2.total_ns, of(0x30).2.most), (2000, 2000, 2));
    let notes = seen.table.notes.join("; ");
    assert!(notes.contains("1 waits began before the trace"), "{notes}");
    assert!(notes.contains("1 waits have no end in the trace"), "{notes}");
    assert!(notes.contains("no call paths"), "{notes}");
    assert_eq!(seen.herd.unwrap().most, 2);
    assert_eq!(seen.together, [("swapper".to_owned(), "swapper".to_owned(), 1)]);
}

#[test]
fn a_release_names_the_holder_and_zone_events_have_waits() {
    let seen = read(
        "a-1 [000] d..1. 1.000001: contention_begin: 0x10 (flags=SPIN)\n\
         kswapd0-9 [001] d..1. 1.000003: contended_release: 0x10\n\
         kswapd1-9 [001] d..1. 1.000003: contended_release: 0x99\n\
         a-1 [000] d..1. 1.000004: contention_end: 0x10 (ret=0)\n\
         b-2 [000] d..1. 1.000005: mm_zone_locked: node=0 zone=Normal count=63 wait_ns=0 \
         caller=rmqueue_bulk+0x12\n\
         b-2 [000] d..1. 1.000006: mm_zone_locked: node=0 zone=Normal count=63 wait_ns=1500 \
         caller=free_pcppages_bulk+0x12\n",
    );
    assert_eq!(seen.released, [("kswapd*".to_owned(), 1)]);
    let (free, spread) = seen.zone.unwrap();
    assert_eq!((free, spread.waits, spread.total_ns, spread.max_ns), (1, 1, 1500, 1500));
}

#[test]
fn a_wait_below_zero_is_not_counted() {
    let seen = read(
        "b-2 [000] d..1. 1.000005: mm_zone_locked: node=0 zone=Normal count=63 \
         wait_ns=18446744073709551611 caller=rmqueue_bulk+0x12\n\
         b-2 [000] d..1. 1.000006: mm_zone_locked: node=0 zone=Normal count=63 wait_ns=1500 \
         caller=rmqueue_bulk+0x12\n",
    );
    let (_, spread) = seen.zone.unwrap();
    assert_eq!((spread.waits, spread.total_ns), (1, 1500));
    let noted = seen.table.notes.iter().any(|note| note.starts_with("1 waits are times below"));
    assert!(noted, "{:?}", seen.table.notes);
}

#[test]
fn a_mail_may_quote_a_trace() {
    let seen = read(
        "> usemem 1 [000] 1.000001: lock:contention_begin: 0x10 (flags=SPIN)\n\
         > \tffffffff81234567 rmqueue_bulk+0x1c ([kernel.kallsyms])\n\
         > \t00007fff81234567 main+0x1c (/usr/bin/usemem)\n\
         >\n\
         > usemem 2 [001] 1.000002: lock:contention_begin: 0x10 (flags=SPIN)\n\
         > usemem 1 [000] 1.000005: lock:contention_end: 0x10 (ret=0)\n\
         > usemem 2 [001] 1.000006: lock:contention_end: 0x10 (ret=0)\n",
    );
    assert_eq!(seen.together, [("usemem".to_owned(), "usemem".to_owned(), 1)]);
    let paths: Vec<_> = seen.table.waits.iter().map(|wait| wait.path.join(" ")).collect();
    assert_eq!(paths, ["", "rmqueue_bulk"]);
}

#[test]
fn lost_events_are_said() {
    let seen = read(
        "CPU:1 [LOST 123 EVENTS]\n\
         a-1 [000] d..1. 1.000001: contention_begin: 0x10 (flags=SPIN)\n\
         a-1 [000] d..1. 1.000000: contention_end: 0x10 (ret=0)\n",
    );
    assert!(seen.table.notes[0].starts_with("123 events were lost"), "{:?}", seen.table.notes);
    assert!(seen.table.notes[1].starts_with("1 events are earlier"), "{:?}", seen.table.notes);
}

/// Functions that take locks: class, flags, and the stack below the tracepoint, innermost first.
const TAKERS: [(&str, &str, &[&str]); 3] = [
    ("zone", "SPIN", &["__traceiter_contention_begin", "_raw_spin_lock", "rmqueue_bulk"]),
    ("lruvec", "SPIN", &["native_queued_spin_lock_slowpath", "folio_lruvec_lock_irqsave"]),
    ("mmap_lock", "WRITE", &["rwsem_down_write_slowpath", "down_write_killable", "vm_mmap_pgoff"]),
];
const COMMS: [(&str, &str); 5] = [
    ("java", "java"),
    ("lto cgu.03", "lto cgu.*"),
    ("kworker/u8:3", "kworker/u*:*"),
    ("usemem-17", "usemem-*"),
    ("a", "a"),
];

/// A wait that was generated.
struct Wait {
    task: usize,
    lock: u64,
    taker: usize,
    from_ns: u64,
    until_ns: u64,
}

/// The truth about a generated trace.
#[derive(Default)]
struct Truth {
    text: String,
    waits: Vec<Wait>,
    together: BTreeMap<(String, String), u64>,
    most: usize,
    /// The waited time by the class of the number that wait together.
    shares: BTreeMap<usize, u64>,
}

fn generated(random: &mut Xoshiro256PlusPlus, of_perf: bool) -> Truth {
    let mut below = |n: u64| random.next_u64() % n;
    let (tasks, locks, steps) = (1 + below(24) as usize, 1 + below(4), 2 + below(200));
    let comms: Vec<_> = (0..tasks).map(|_| COMMS[below(5) as usize]).collect();
    let takers: Vec<usize> = (0..locks).map(|_| below(3) as usize).collect();
    let (mut truth, mut ns) = (Truth::default(), 1_000_000_000 + below(1 << 40) / 1000 * 1000);
    let mut waiting: BTreeMap<usize, (u64, u64)> = BTreeMap::new();
    let queue = |truth: &mut Truth, waiting: &BTreeMap<usize, (u64, u64)>, dt: u64| {
        let mut sizes = BTreeMap::<u64, usize>::new();
        waiting.values().for_each(|(lock, _)| *sizes.entry(*lock).or_default() += 1);
        for size in sizes.into_values() {
            truth.most = truth.most.max(size);
            *truth.shares.entry(1 << size.ilog2()).or_default() += dt * size as u64;
        }
    };
    let mut step = 0;
    while step < steps || !waiting.is_empty() {
        let dt = if of_perf { 1 + below(90_000) } else { 1000 * (1 + below(90)) };
        let mut task = below(tasks as u64) as usize;
        if step >= steps {
            task = *waiting.keys().next().expect("one waits");
        }
        let begins = !waiting.contains_key(&task);
        queue(&mut truth, &waiting, dt);
        ns += dt;
        let (comm, group) = comms[task];
        let (lock, from_ns) = waiting.remove(&task).unwrap_or((below(locks), ns));
        let (_, flags, stack) = TAKERS[takers[lock as usize]];
        let (event, args) = match begins {
            true => ("contention_begin", format!("flags={flags}")),
            false => ("contention_end", "ret=0".to_owned()),
        };
        let (tid, cpu) = (100 + task, task % 7);
        let (s, part) = (ns / 1_000_000_000, ns % 1_000_000_000);
        let address = 0xffff_8881_0000_0000 + lock * 64;
        if of_perf {
            let _ = writeln!(
                truth.text,
                "{comm:>16} {tid:5} [{cpu:03}] {s}.{part:09}: lock:{event}: 0x{address:x} ({args})"
            );
            for function in stack.iter().filter(|_| begins) {
                let _ = writeln!(truth.text, "\tffffffff81234567 {function}+0x1c ([kernel])");
            }
            truth.text.push('\n');
        } else {
            let part = part / 1000;
            let _ = writeln!(
                truth.text,
                "{comm:>16}-{tid:<7} [{cpu:03}] d..2. {s}.{part:06}: {event}: {address:x} ({args})"
            );
        }
        if begins {
            let with: BTreeSet<&str> = waiting
                .iter()
                .filter(|(_, of)| of.0 == lock)
                .map(|(task, _)| comms[*task].1)
                .collect();
            for other in with {
                let (a, b) = if group < other { (group, other) } else { (other, group) };
                *truth.together.entry((a.to_owned(), b.to_owned())).or_default() += 1;
            }
            waiting.insert(task, (lock, ns));
        } else {
            let taker = takers[lock as usize];
            truth.waits.push(Wait { task, lock, taker, from_ns, until_ns: ns });
        }
        step += 1;
    }
    truth
}

#[test]
fn generated_traces_have_the_known_answers() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(48);
    for case in 0..1000 {
        let of_perf = case % 2 == 0;
        let truth = generated(&mut random, of_perf);
        let seen = read(&truth.text);
        let all: u64 = truth.waits.iter().map(|wait| wait.until_ns - wait.from_ns).sum();
        assert_eq!(seen.table.wait_total_ns(), all, "case {case}");
        assert_eq!(seen.events, 2 * truth.waits.len() as u64);
        let mut classes = BTreeMap::<&str, Vec<u64>>::new();
        for wait in &truth.waits {
            let class = match (of_perf, TAKERS[wait.taker].0) {
                (true, class) => class,
                (false, "mmap_lock") => "rwsem",
                (false, _) => "unknown",
            };
            classes.entry(class).or_default().push(wait.until_ns - wait.from_ns);
        }
        assert_eq!(seen.spreads.len(), classes.len(), "case {case}: {:?}", seen.spreads);
        for spread in &seen.spreads {
            let lengths = classes.get_mut(spread.class.as_str()).expect("the class is known");
            lengths.sort_unstable();
            assert_eq!(spread.waits as usize, lengths.len(), "case {case}");
            assert_eq!(spread.total_ns, lengths.iter().sum::<u64>());
            assert_eq!(Some(&spread.max_ns), lengths.last());
            for (part, seen) in [0.5, 0.9, 0.99].into_iter().zip(spread.quantiles_ns) {
                let rank = (part * lengths.len() as f64).ceil() as usize;
                let exact = lengths[rank.max(1) - 1] as f64;
                assert!((seen as f64 / exact - 1.0).abs() <= 1.0 / 64.0, "case {case}: {part}");
            }
        }
        let together: BTreeMap<(String, String), u64> =
            seen.together.into_iter().map(|(a, b, count)| ((a, b), count)).collect();
        assert_eq!(together, truth.together, "case {case}");
        let mut locks = BTreeMap::<u64, u64>::new();
        for wait in &truth.waits {
            let address = 0xffff_8881_0000_0000 + wait.lock * 64;
            *locks.entry(address).or_default() += wait.until_ns - wait.from_ns;
        }
        let of_locks: BTreeMap<u64, u64> =
            seen.locks.iter().map(|(lock, _, sum)| (*lock, sum.total_ns)).collect();
        assert_eq!(of_locks, locks, "case {case}");
        let herd = seen.herd.expect("tasks wait");
        assert_eq!(herd.most, truth.most, "case {case}");
        for (size, share) in &herd.shares {
            let exact = truth.shares[size] as f64 / all as f64;
            assert!((share - exact).abs() < 1e-9, "case {case}: {size}: {share} {exact}");
        }
        assert_eq!(herd.shares.len(), truth.shares.len(), "case {case}");
        let first = truth.waits.iter().map(|wait| wait.from_ns).min().unwrap();
        let last = truth.waits.iter().map(|wait| wait.until_ns).max().unwrap();
        let stretch = |at: usize| herd.stretch_ns.min(last - first - at as u64 * herd.stretch_ns);
        let area = herd.in_time.iter().enumerate().map(|(at, mean)| mean * stretch(at) as f64);
        let area: f64 = area.sum();
        assert!((area / all as f64 - 1.0).abs() < 1e-6, "case {case}: {area} of {all}");
        assert!(truth.waits.iter().all(|wait| wait.task < 24));
    }
}

#[test]
fn memory_does_not_grow_with_the_trace() {
    let mut stream = Stream::default();
    for at in 0..200_000_u64 {
        let (task, lock) = (at % 50_000, at.wrapping_mul(0x9e37_79b9) % 100_000);
        let line = |event: &str, ns: u64| {
            format!("t{task}x{lock} {task} [000] 9.{ns:09}: lock:{event}: 0x{lock:x} (flags=SPIN)")
        };
        stream.line(&line("contention_begin", 2 * at));
        stream.line(&format!("\tffffffff81234567 f{at}+0x1c ([kernel])"));
        stream.line("");
        if at % 3 > 0 {
            stream.line(&line("contention_end", 2 * at + 1));
        }
    }
    assert!(stream.open_waits <= MAX_OPEN && stream.queues.len() <= MAX_OPEN);
    assert!(stream.locks.len() <= MAX_LOCKS && stream.sums.len() <= 2 * MAX_PATHS);
    let seen = stream.finish().unwrap();
    let notes = seen.table.notes.join("; ");
    assert!(notes.contains("beyond the limit"), "{notes}");
}
