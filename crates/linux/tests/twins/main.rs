//! Scripts against their twins: C programs that make the same calls for the same operations.
//!
//! Strategy: the kernel counts the system calls and page faults of a script on the live kernel and
//! of its twin, each for a short and for a long run. The difference belongs to the operations
//! between, so that starting and ending cancel out. Invariants: a script makes as many calls per
//! operation as its twin and as it counts itself, and takes as many faults in its memory.
//!
//! The program in C that `mmscale kernel reproduce` writes from a script is counted in the same
//! way.
//!
//! `MMSCALE_UPDATE=1 cargo test -p mmscale-linux --test twins` writes the table of
//! scripts/README.md from what was counted.

mod count;
mod programs;
mod reproduced;
#[path = "../skip/mod.rs"]
mod skip;
mod table;

use count::Counts;
use mmscale_script::{SUFFIX, Script};
use programs::Done;
use std::fs;
use std::path::{Path, PathBuf};

/// Windows of the two runs of a script, in ns.
const WINDOWS_NS: [u64; 2] = [50_000_000, 200_000_000];
/// Runs until a script agrees with its twin: a fault may repeat on a busy computer.
const ATTEMPTS: usize = 3;

/// Stressors of stress-ng that do what a script does.
const STRESSORS: &[(&str, &str)] = &[
    ("stress-fork", "--fork 1"),
    ("stress-mremap", "--mremap 1 --mremap-bytes 64K"),
    ("stress-vm", "--vm 1 --vm-bytes 1M"),
];

/// Calls per operation that a script does not count: a process that is not forked drops the memory
/// of its parent with munmap, because there is no exec.
const NOT_COUNTED: &[(&str, f64)] = &[("shell-storm", 1.0)];

/// Counts per operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PerOp {
    pub(crate) calls: f64,
    pub(crate) all_calls: f64,
    pub(crate) faults: f64,
    pub(crate) all_faults: f64,
    /// Calls as the script counts them.
    pub(crate) counted: f64,
    /// The operations that were compared.
    pub(crate) ops: u64,
}

impl PerOp {
    /// Counts of the operations by which a long run differs from a short one.
    fn between(short: Done, long: Done) -> Result<Self, String> {
        let ops = long.ops.saturating_sub(short.ops);
        if ops == 0 {
            return Err(format!("{} operations in the long run, not more", long.ops));
        }
        let per = |of: fn(&Counts) -> u64| {
            (of(&long.counts) as f64 - of(&short.counts) as f64) / ops as f64
        };
        Ok(Self {
            calls: per(|counts| counts.calls),
            all_calls: per(|counts| counts.all_calls),
            faults: per(|counts| counts.faults),
            all_faults: per(|counts| counts.all_faults),
            counted: long.counted,
            ops,
        })
    }
}

/// A script and its twin, compared.
#[derive(Debug)]
pub(crate) struct Compared {
    pub(crate) name: String,
    pub(crate) script: PerOp,
    pub(crate) twin: PerOp,
    pub(crate) stressor: Option<PerOp>,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts")
}

fn scripts() -> Vec<Script> {
    let files = fs::read_dir(folder()).expect("the folder exists").flatten();
    let mut paths: Vec<PathBuf> = files.map(|file| file.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == &SUFFIX[1..]));
    paths.sort();
    let read = |path: &PathBuf| {
        let text = fs::read_to_string(path).expect("it is readable");
        Script::parse(&path.display().to_string(), &text).unwrap_or_else(|why| panic!("{why}"))
    };
    paths.iter().map(read).collect()
}

/// Counts a script and its twin, which does as many operations.
fn compare(script: &Script, folder: &Path) -> Result<Compared, String> {
    let name = script.name().to_owned();
    let [short, long] = WINDOWS_NS.map(|window_ns| programs::script(script, window_ns));
    let (short, long) = (short?, long?);
    let source = self::folder().join(format!("twins/{name}.c"));
    let program = programs::compile(&source, folder)?;
    let twin = |ops: u64| programs::twin(&program, ops);
    let twin = PerOp::between(twin(short.ops)?, twin(long.ops)?)?;
    Ok(Compared { name, script: PerOp::between(short, long)?, twin, stressor: None })
}

/// Returns the share by which calls per operation may differ, of those that were compared.
fn tolerance(script: &Script, ops: u64) -> f64 {
    let ops = ops as f64;
    // One operation is incomplete at the end. Lots that a script draws differ from their mean.
    let lots = if script.text().contains("choose") { 0.05 + 1.0 / ops.sqrt() } else { 0.002 };
    lots + 1.0 / ops
}

/// Whether two counts per operation are as different as they may not be.
fn is_far(a: f64, b: f64, share: f64) -> bool {
    (a - b).abs() > 0.02 + share * b.abs()
}

/// Counts the calls per operation of a script, and of the program in C that is written from it, in
/// windows that are `times` as long as the shortest.
fn compare_reproduced(script: &Script, folder: &Path, times: u64) -> Result<[PerOp; 2], String> {
    let windows_ns = WINDOWS_NS.map(|window_ns| window_ns * times);
    let [short, long] = windows_ns.map(|window_ns| programs::script(script, window_ns));
    let program = reproduced::compile(script, folder)?;
    let [first, second] = windows_ns.map(|window_ns| reproduced::run(&program, window_ns));
    Ok([PerOp::between(short?, long?)?, PerOp::between(first?, second?)?])
}

/// Returns how a script differs from the program in C that is written from it.
fn unlike(script: &Script, folder: &Path, times: u64) -> Option<String> {
    let name = script.name();
    match compare_reproduced(script, folder, times) {
        Err(why) => Some(format!("{name}: {why}")),
        Ok([own, program]) => {
            println!("{name}: {:.3} calls per operation, {:.3} in C", own.calls, program.calls);
            let share = tolerance(script, own.ops.min(program.ops));
            is_far(own.calls, program.calls, share).then(|| {
                format!(
                    "{name}: calls per operation: {:.3}, and {:.3} in C",
                    own.calls, program.calls
                )
            })
        }
    }
}

#[test]
fn a_program_in_c_makes_the_calls_of_its_script() {
    let _kept = match counter() {
        Ok(counter) => counter,
        Err(why) => return skip::skipped("scripts against their programs in C", &why),
    };
    let made = tempfile::tempdir().expect("there is a temporary folder");
    let differs = |script: &Script| {
        let mut why = None;
        // On a busy computer few operations fit into a short window.
        for times in [1, 2, 4, 8] {
            why = unlike(script, made.path(), times);
            if why.is_none() {
                break;
            }
        }
        why
    };
    let wrong: Vec<String> = scripts().iter().filter_map(differs).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns how a script differs from its twin.
fn difference(script: &Script, of: &Compared) -> Option<String> {
    let share = tolerance(script, of.script.ops);
    let differ = |what: &str, a: f64, b: f64| {
        is_far(a, b, share)
            .then(|| format!("{}: {what} per operation: {a:.3}, and {b:.3}", of.name))
    };
    let added = NOT_COUNTED.iter().find(|(name, _)| *name == of.name).map_or(0.0, |row| row.1);
    differ("calls of the script and the twin", of.script.calls, of.twin.calls)
        .or_else(|| {
            let counted = of.script.counted + added;
            differ("calls of the script, as counted and by itself", of.script.calls, counted)
        })
        .or_else(|| {
            differ(
                "faults in the memory of the script and the twin",
                of.script.faults,
                of.twin.faults,
            )
        })
}

/// Returns a counter, or why nothing can be counted here. As long as one counter of an event
/// exists, the kernel makes and removes others quickly.
fn counter() -> Result<count::Counter, String> {
    let cc = std::process::Command::new("cc").arg("--version").output();
    cc.map_err(|why| format!("cc: {why}"))?;
    count::Counter::of(0).map_err(|why| format!("counting in the kernel: {why}"))
}

#[test]
fn a_script_makes_the_calls_and_faults_of_its_twin() {
    let _kept = match counter() {
        Ok(counter) => counter,
        Err(why) => return skip::skipped("scripts against their twins", &why),
    };
    let made = tempfile::tempdir().expect("there is a temporary folder");
    let (mut rows, mut wrong) = (Vec::new(), Vec::new());
    for script in scripts() {
        let mut last = None;
        for _ in 0..ATTEMPTS {
            let compared = compare(&script, made.path());
            let differs = match &compared {
                Ok(compared) => difference(&script, compared),
                Err(why) => Some(format!("{}: {why}", script.name())),
            };
            last = Some((compared, differs.clone()));
            if differs.is_none() {
                break;
            }
        }
        let (compared, differs) = last.expect("there is an attempt");
        wrong.extend(differs);
        rows.extend(compared.ok());
    }
    if std::env::var_os("MMSCALE_UPDATE").is_some() {
        for row in &mut rows {
            row.stressor = stressor(&row.name);
        }
        table::write(&folder().join("README.md"), &rows);
    }
    rows.iter().for_each(|row| println!("{row:.3?}"));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Counts the stressor of a script, if there is one and stress-ng is installed.
fn stressor(name: &str) -> Option<PerOp> {
    let args = STRESSORS.iter().find(|(script, _)| *script == name)?.1;
    let run = |ops| programs::stressor(args, ops).ok();
    PerOp::between(run(500)?, run(2500)?).ok()
}

/// A twin that makes one call more is found.
#[test]
fn a_call_too_many_is_found() {
    let per_op = |calls: f64| PerOp {
        calls,
        all_calls: calls,
        faults: 1.0,
        all_faults: 1.0,
        counted: 2.0,
        ops: 1000,
    };
    let compared = |calls| Compared {
        name: "malloc1".to_owned(),
        script: per_op(2.0),
        twin: per_op(calls),
        stressor: None,
    };
    let script =
        scripts().into_iter().find(|script| script.name() == "malloc1").expect("it is one");
    assert_eq!(difference(&script, &compared(2.01)), None);
    let why = difference(&script, &compared(3.0)).expect("they differ");
    assert!(
        why.contains("malloc1: calls of the script and the twin per operation: 2.000"),
        "{why}"
    );
}
