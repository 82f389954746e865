//! `mmscale lift show`: what an operation of a recording does.

use anyhow::anyhow;
use mmscale_files::{Limit, Pipe};
use mmscale_lift::{LineSum, LockSum, Recording, Share, Sums, Ticks, WordSum, sums};
use mmscale_report::wrap;
use std::path::Path;

use crate::args::{Format, LiftShowArgs};
use crate::failure::Failure;
use crate::output;

/// The largest recording.
const LIMIT: Limit = Limit::new("a recording", 1 << 30);
/// Characters of the name of a lock or a line, with its place.
const NAME: usize = 47;
/// Accesses an operation below which a line is not shown, and acquisitions of a lock.
const SHOWN: f64 = 0.005;

/// Acquisitions an operation from which on a lock is compared between halves.
const OFTEN: f64 = 0.02;

/// Shows a recording.
pub(super) fn show(args: &LiftShowArgs) -> Result<(), Failure> {
    let recording = read(&args.file)?;
    let sums = sums(&recording);
    output::print(&match args.format {
        Format::Text => text(&recording, &sums, args.rows),
        Format::Json => json(&recording, &sums),
    })
}

/// Reads a recording.
pub(super) fn read(path: &Path) -> Result<Recording, Failure> {
    let wrong = |why: String| Failure::Call(anyhow!("cannot read `{}`: {why}", path.display()));
    let bytes = mmscale_files::bytes(path, LIMIT, Pipe::Refuse);
    let bytes = bytes.map_err(|why| wrong(why.to_string()))?;
    Recording::read(&bytes).map_err(|why| wrong(why.to_string()))
}

fn text(recording: &Recording, sums: &Sums, rows: usize) -> String {
    let mut lines = head(recording);
    lines.extend(operation(recording, sums));
    let text = "which CPUs use the data: own, a CPU alone; few; node, many of a node; all, many of \
                several nodes. A larger machine has it for each CPU, for each group as large as \
                the recording, for each node, once";
    lines.extend(wrap(text, "sharing   ", "          "));
    lines.push(String::new());
    lines.push(row("locks, by class and place", ["an op", "hold", "lines"]));
    let locks: Vec<&LockSum> =
        sums.locks.iter().filter(|lock| lock.acquisitions >= SHOWN).collect();
    lines.extend(locks.iter().take(rows).map(|lock| self::lock(recording, lock)));
    lines.extend(more(locks.len(), rows));
    lines.push(String::new());
    lines.push(row("lines that CPUs share and write", ["an op", "writes", "atomic"]));
    let shared: Vec<&LineSum> = sums.lines.iter().filter(|line| line.accesses >= SHOWN).collect();
    lines.extend(shared.iter().take(rows).flat_map(|line| self::line(recording, line)));
    lines.extend(more(shared.len(), rows));
    lines.join("\n") + "\n"
}

pub(super) fn head(recording: &Recording) -> Vec<String> {
    let origin = &recording.origin;
    let package = origin.package.as_ref().unwrap_or(&origin.image);
    let nodes = recording.nodes();
    let mut kernel = format!(
        "Linux {}, {} CPUs, {nodes} nodes; {}; {package}",
        origin.release,
        recording.cpus.len(),
        origin.settings.join(", ")
    );
    if !origin.parameters.is_empty() {
        kernel += &format!("; {}", origin.parameters);
    }
    let mut lines = wrap(&kernel, "kernel    ", "          ");
    let set: String = origin.set.iter().map(|set| format!(" --set {set}")).collect();
    let form = if origin.in_c { ", as a program in C" } else { "" };
    let script = format!("{}{set}{form}: {}", origin.script, origin.summary);
    lines.extend(wrap(&script, "script    ", "          "));
    lines
}

fn operation(recording: &Recording, sums: &Sums) -> Vec<String> {
    let [least, most] = sums.instructions_range;
    let n = number;
    let mut text = format!(
        "{} instructions ({} to {} in {} rounds of {}), {} locked; lines of one CPU {}, shared and \
         read only {}, written and shared by few {}, by many {}",
        n(sums.instructions),
        n(least),
        n(most),
        sums.rounds,
        n(sums.count as f64 / sums.rounds.max(1) as f64),
        n(sums.locked),
        n(sums.private_lines),
        n(sums.read_only_lines),
        n(sums.few_lines),
        n(sums.many_lines),
    );
    if sums.cleared_bytes + sums.copied_bytes > 0.0 {
        text +=
            &format!("; {} bytes cleared, {} copied", n(sums.cleared_bytes), n(sums.copied_bytes));
    }
    if sums.waits > 0.0 {
        text += &format!("; {} waits for other CPUs", n(sums.waits));
    }
    if sums.calls > 0.0 {
        let (calls, called) = (n(sums.calls), n(sums.receivers));
        let each = n(sums.answer_instructions);
        text += &format!("; {calls} calls of {called} CPUs, {each} instructions on each of them");
    }
    let mut lines = wrap(&text, "an op     ", "          ");
    lines.extend(wrap(&ticks(recording, sums), "ticks     ", "          "));
    let dropped = recording.origin.dropped;
    let rounds = sums.rounds as f64;
    let text = format!(
        "other interrupts: all are {} instructions a round in the emulator; {} rounds that went to \
         other tasks more or less often than most, {} that left a lock held, {} beyond the most \
         that a recording has. Waits are not recorded: no lock was found taken",
        n(recording.origin.interrupt_instructions as f64 / rounds),
        dropped.switched,
        dropped.unbalanced,
        dropped.too_long,
    );
    lines.extend(wrap(&text, "left out  ", "          "));
    lines.extend(wrap(&halves(recording), "repeats   ", "          "));
    lines
}

/// Returns what a tick does, and the RCU callbacks of an operation.
fn ticks(recording: &Recording, sums: &Sums) -> String {
    let Some(ticks) = &recording.ticks else {
        return "not recorded, nor RCU callbacks: the file is of an earlier version".to_owned();
    };
    let n = number;
    let [tick, accesses] = Ticks::means(recording, &ticks.ticks);
    let [callbacks, uses] = Ticks::means(recording, &ticks.callbacks);
    let per_op = ticks.batches * sums.rounds as f64 / sums.count.max(1) as f64;
    format!(
        "{} instructions, {} accesses to shared lines, at each tick of the machine; RCU callbacks: \
         {} instructions an operation, {} accesses",
        n(tick),
        n(accesses),
        n(callbacks * per_op),
        n(uses * per_op),
    )
}

/// Returns how much every second operation differs from the others: the error of the recording.
fn halves(recording: &Recording) -> String {
    let [a, b] = [0, 1].map(|first| sums(&recording.half(first)));
    let percent = |a: f64, b: f64| {
        let larger = a.max(b);
        if larger > 0.0 { (a - b).abs() / larger * 100.0 } else { 0.0 }
    };
    // Locks that CPUs share decide a replay; those that are taken now and then differ by chance.
    let shared = |sums: &Sums| -> (f64, f64) {
        let shared = sums.locks.iter().filter(|lock| lock.share != Share::Private);
        let often = shared.filter(|lock| lock.acquisitions >= OFTEN);
        often.fold((0.0, 0.0), |(taken, held), lock| {
            (taken + lock.acquisitions, held + lock.acquisitions * lock.hold_instructions)
        })
    };
    let ((taken_a, held_a), (taken_b, held_b)) = (shared(&a), shared(&b));
    let mean = |sums: &Sums| sums.instructions;
    format!(
        "every second round differs from the others by {:.1} % in instructions, {:.1} % in \
         acquisitions of locks that CPUs share, {:.1} % in instructions under them",
        percent(mean(&a), mean(&b)),
        percent(taken_a, taken_b),
        percent(held_a, held_b)
    )
}

fn lock(recording: &Recording, lock: &LockSum) -> String {
    let place =
        format!("{} < {}", recording.function_at(lock.site), recording.caller_at(lock.site));
    let mode = if lock.is_shared { " (read)" } else { "" };
    let name = format!("  {:<5} {}{mode}  {place}", share(lock.share), lock.class);
    row(
        &name,
        [number(lock.acquisitions), number(lock.hold_instructions), number(lock.hold_accesses)],
    )
}

/// The row of lines, and the functions that use them.
fn line(recording: &Recording, sum: &LineSum) -> Vec<String> {
    let lines = if sum.lines == 1 { String::new() } else { format!(", {} lines", sum.lines) };
    let name = format!("  {:<5} {}{lines}, {} CPUs", share(sum.share), sum.object, sum.users);
    let mut rows =
        vec![row(&name, [number(sum.accesses), number(sum.writes), number(sum.atomics)])];
    let functions = sum.functions.iter().take(3);
    let functions: Vec<String> = functions
        .map(|(function, accesses)| {
            format!("{} {}", recording.function(*function), number(*accesses))
        })
        .collect();
    rows.extend(wrap(&functions.join(", "), "          ", "          "));
    let words = sum.words.iter().filter(|word| word.accesses >= SHOWN);
    let words: Vec<String> = words
        .map(|word| {
            let WordSum { offset, accesses, writes } = word;
            format!("+{offset}: {} ({})", number(*accesses), number(*writes))
        })
        .collect();
    if words.len() > 1 {
        let text = format!("words (writes) {}", words.join(", "));
        rows.extend(wrap(&text, "          ", "          "));
    }
    rows
}

pub(super) const fn share(share: Share) -> &'static str {
    match share {
        Share::Private => "own",
        Share::Few => "few",
        Share::Node => "node",
        Share::All => "all",
    }
}

fn more(all: usize, rows: usize) -> Option<String> {
    let more = all.saturating_sub(rows);
    (more > 0).then(|| format!("  and {more} more; --rows shows them"))
}

fn row(name: &str, cells: [impl AsRef<str>; 3]) -> String {
    let [first, second, third] = &cells;
    let (first, second, third) = (first.as_ref(), second.as_ref(), third.as_ref());
    let name = match name.chars().count() > NAME {
        true => name.chars().take(NAME - 2).chain("..".chars()).collect(),
        false => format!("{name:<NAME$}"),
    };
    format!("{name} {first:>7} {second:>8} {third:>7}")
}

/// A number with three digits at least.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        value_abs if value_abs >= 99.95 || value.fract() == 0.0 => format!("{value:.0}"),
        value_abs if value_abs >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// One document, on a line.
fn json(recording: &Recording, sums: &Sums) -> String {
    let place = |site| [recording.function_at(site), recording.caller_at(site)];
    let locks = sums.locks.iter().map(|lock| {
        serde_json::json!({
            "class": lock.class,
            "read": lock.is_shared,
            "place": place(lock.site),
            "share": lock.share,
            "acquisitions_per_op": lock.acquisitions,
            "hold_instructions": lock.hold_instructions,
            "hold_accesses": lock.hold_accesses,
        })
    });
    let lines = sums.lines.iter().map(|sum| {
        let functions = sum.functions.iter().map(|(function, accesses)| {
            let function = recording.function(*function);
            serde_json::json!({"function": function, "accesses_per_op": accesses})
        });
        let words = sum.words.iter().map(|word| {
            let WordSum { offset, accesses, writes } = word;
            serde_json::json!({
                "offset": offset, "accesses_per_op": accesses, "writes_per_op": writes
            })
        });
        serde_json::json!({
            "object": sum.object,
            "share": sum.share,
            "lines": sum.lines,
            "users": sum.users,
            "accesses_per_op": sum.accesses,
            "writes_per_op": sum.writes,
            "atomics_per_op": sum.atomics,
            "functions": functions.collect::<Vec<_>>(),
            "words": words.collect::<Vec<_>>(),
        })
    });
    let document = serde_json::json!({
        "schema": "mmscale/lift-sums/1",
        "origin": recording.origin,
        "rounds": sums.rounds,
        "ops": sums.count,
        "instructions_per_op": sums.instructions,
        "locked_per_op": sums.locked,
        "private_lines_per_op": sums.private_lines,
        "read_only_lines_per_op": sums.read_only_lines,
        "few_lines_per_op": sums.few_lines,
        "many_lines_per_op": sums.many_lines,
        "cleared_bytes_per_op": sums.cleared_bytes,
        "copied_bytes_per_op": sums.copied_bytes,
        "waits_per_op": sums.waits,
        "calls_per_op": sums.calls,
        "receivers_per_call": sums.receivers,
        "answer_instructions": sums.answer_instructions,
        "tick_instructions": recording.ticks.as_ref()
            .map(|ticks| Ticks::means(recording, &ticks.ticks)[0]),
        "callback_instructions_per_op": recording.ticks.as_ref().map(|ticks| {
            Ticks::means(recording, &ticks.callbacks)[0] * ticks.batches * sums.rounds as f64
                / sums.count.max(1) as f64
        }),
        "locks": locks.collect::<Vec<_>>(),
        "lines": lines.collect::<Vec<_>>(),
    });
    format!("{document}\n")
}
