//! Recordings as studies: the recorded operations of a kernel image are replayed on all CPUs of a
//! simulated machine. Several recordings of one script are arms.

use super::sources::SCRIPT_MACHINE;
use crate::machine::{self, HostCost, bare_machine_params, set_bare_machine};
use crate::param::{Kind, ParamSpec, Params, Unit};
use crate::study::{
    Arm, ArmId, ArmSpec, Defaults, ErasedWorkload, MetricSpec, RunContext, SeedResult, Study,
    StudyError, StudyInfo,
};
use crate::workload::both;
use mmscale_document::{
    Better, BlameRows, CallRow, CriticalPath, Fingerprint, HALVES_METRIC, LockRow, Target,
};
use mmscale_lift::{Dropped, Recording};
use mmscale_replay::{LONG, Played, Replay, Window};
use mmscale_sim::profile::{Profile, Shape};
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::time::Instant;

/// The end of the name of a recording.
pub use mmscale_lift::SUFFIX as RECORDING_SUFFIX;

/// The start of a run, before its window.
const START: &str = "all CPUs begin at the same time, each with another one of its recorded \
                     operations, and warm_ms later the window opens; nothing before it counts";

/// The longest window, in ms.
const MAX_MS: f64 = 60_000.0;

/// The time of an instruction for the default length of a window, in ms.
const ROUND_INSTRUCTION_MS: f64 = 0.5e-6;

/// The parameter with which the halves of a recording are replayed.
const HALVES: &str = "halves";

/// The arm of a single recording, so that documents of several kernels can be compared. Those of
/// one call are arms with the names of their files.
const ARM: &str = "recorded";

/// The file of a recording: the path as the call has it, and the bytes.
pub(super) type RecordingFile<'a> = (&'a str, Vec<u8>);

/// Returns the study of recordings, an arm each. The error says what to do; it is that of the file
/// with this number.
pub(super) fn study_of(files: &[RecordingFile<'_>]) -> Result<Study, (usize, String)> {
    let mut recordings: Vec<Recording> = Vec::new();
    let (mut arms, mut replays) = (Vec::new(), Vec::new());
    let mut hash = Fingerprint::new();
    for (at, (path, bytes)) in files.iter().enumerate() {
        let wrong = |why: String| (at, why);
        let recording = Recording::read(bytes).map_err(|why| wrong(why.to_string()))?;
        let replay = Replay::new(&recording)
            .map_err(|why| wrong(format!("it cannot be replayed: {why}")))?;
        if recording.operations().all(|operation| operation.count == 0) {
            let what = "its script counts no operation: record a script whose loop has a `count`";
            return Err(wrong(what.to_owned()));
        }
        if let Some(first) = recordings.first().filter(|first| !is_comparable(first, &recording)) {
            return Err(wrong(format!(
                "it is of the script `{}`{} and the first recording of `{}`{}: operations of two \
                 programs cannot be compared",
                recording.origin.script,
                set_of(&recording),
                first.origin.script,
                set_of(first)
            )));
        }
        let name = if files.len() == 1 { ARM.to_owned() } else { stem(path) };
        if arms.iter().any(|arm: &ArmSpec| arm.name == name) {
            let what =
                format!("another recording has the name `{name}` too: rename one of the files");
            return Err(wrong(what));
        }
        arms.push(arm_of(&name, &recording));
        replays.push((replay, recording.origin.dropped));
        add_bytes(&mut hash, bytes);
        recordings.push(recording);
    }
    let first = &recordings[0].origin;
    let (profile, cpus) = SCRIPT_MACHINE;
    let defaults =
        Defaults { machines: &[Target::Sim], profile: profile.to_owned(), cpus, hz: 1000 };
    let kernel = match &recordings[..] {
        [one] => format!("on {} CPUs of Linux {}{}", one.cpus.len(), first.release, fit_of(one)),
        all => format!("on {} kernels", all.len()),
    };
    let summary = format!(
        "the kernel's part of the script `{}`, recorded {kernel} and replayed: {}",
        first.script, first.summary
    );
    // The longest rounds decide.
    let longest = recordings.iter().max_by_key(|recording| round_instructions(recording) as u64);
    let mut params = own_params(longest.unwrap_or(&recordings[0]));
    params.extend(bare_machine_params());
    let names: Vec<String> = files.iter().map(|(path, _)| file_name(path)).collect();
    let info = StudyInfo {
        start: Some(START.to_owned()),
        metrics: METRICS.iter().map(|metric| metric.spec).chain([HALVES_DIFFER]).collect(),
        file_hash: Some(hash.to_hex()),
        ..StudyInfo::new(&names.join("+"), summary.trim_end_matches([':', ' ']), defaults, params)
    };
    let script = first.script.clone();
    Ok(Study::new(info, arms, Recorded { replays, script }))
}

/// Whether operations of two recordings are those of one program.
fn is_comparable(one: &Recording, other: &Recording) -> bool {
    let program = |of: &Recording| (of.origin.text.clone(), of.origin.set.clone());
    program(one) == program(other)
}

/// Says whether a recording is fitted, and its error.
fn fit_of(recording: &Recording) -> String {
    let Some(growth) = &recording.growth else { return String::new() };
    let sizes: Vec<String> = growth.sizes.iter().map(u32::to_string).collect();
    let error = growth.error.map_or_else(
        || "error unknown".to_owned(),
        |error| format!("error {:.1} % of instructions", error * 100.0),
    );
    format!(" (lengths fitted over {} CPUs, {error})", sizes.join(", "))
}

fn set_of(recording: &Recording) -> String {
    recording.origin.set.iter().map(|set| format!(" --set {set}")).collect()
}

fn file_name(path: &str) -> String {
    Path::new(path).file_name().unwrap_or(path.as_ref()).to_string_lossy().into_owned()
}

fn stem(path: &str) -> String {
    file_name(path).trim_end_matches(RECORDING_SUFFIX).to_owned()
}

fn arm_of(name: &str, recording: &Recording) -> ArmSpec {
    let origin = &recording.origin;
    let version = origin.package.as_deref().unwrap_or(&origin.version);
    let help = format!("Linux {} {version} {}", origin.release, origin.parameters);
    ArmSpec::new(name, help.trim_end())
}

fn add_bytes(hash: &mut Fingerprint, bytes: &[u8]) {
    bytes.chunks(8).for_each(|word| {
        let mut padded = [0; 8];
        padded[..word.len()].copy_from_slice(word);
        hash.add(u64::from_le_bytes(padded));
    });
    hash.add(bytes.len() as u64);
}

/// The length of a window with rounds of many operations, as a part of that with others. The start
/// is as long: queues become as long as they stay.
const LONG_PART: f64 = 0.5;

/// Returns the mean number of instructions of a round.
fn round_instructions(recording: &Recording) -> f64 {
    let rounds = recording.operations().count().max(1) as f64;
    let instructions: u64 = recording.operations().map(|of| of.instructions).sum();
    instructions as f64 / rounds
}

/// Returns the parameters of every recording. By default a window has some rounds.
fn own_params(recording: &Recording) -> Vec<ParamSpec> {
    let round_ms = round_instructions(recording) * ROUND_INSTRUCTION_MS;
    // CPUs begin within long rounds, so few of these show all parts.
    let rounds = recording.operations().count().max(1) as u64;
    let is_long = recording.operations().map(|of| of.count).sum::<u64>() / rounds >= LONG;
    let part = if is_long { LONG_PART } else { 1.0 };
    let least = |ms: f64, times: f64| ms.max((times * round_ms).ceil()).min(MAX_MS);
    let real = |name: &'static str, default, least, help: &'static str| {
        let kind = Kind::Real { unit: Unit::Ms, default, range: [least, MAX_MS] };
        ParamSpec::new(name, kind, help)
    };
    vec![
        real(
            "duration_ms",
            [least(4.0, 20.0 * part), least(1.0, 5.0 * part)],
            0.1,
            "length of the window in which operations are counted",
        ),
        real(
            "warm_ms",
            [least(1.0, 3.0), least(0.5, 2.0)],
            0.0,
            "time from the start of the CPUs to the window",
        ),
        ParamSpec::new(
            HALVES,
            Kind::Count { unit: Unit::One, default: [1, 0], range: [0, 1] },
            "1: every second round is replayed alone too, and so are the others",
        ),
    ]
}

/// Recordings as a workload, in the order of the arms.
struct Recorded {
    replays: Vec<(Replay, Dropped)>,
    /// The script, whose operations are replayed.
    script: String,
}

/// A metric of every recording.
struct Metric {
    spec: MetricSpec,
    /// Computes it; the second run is that on one CPU. `None`: there was none.
    measure: fn(&Played, Option<&Played>) -> Option<f64>,
}

const fn metric(
    name: &'static str,
    unit: &'static str,
    help: &'static str,
    measure: fn(&Played, Option<&Played>) -> Option<f64>,
) -> Metric {
    Metric { spec: MetricSpec::new(name, unit, help), measure }
}

const fn lower(
    name: &'static str,
    unit: &'static str,
    help: &'static str,
    measure: fn(&Played, Option<&Played>) -> Option<f64>,
) -> Metric {
    let spec = MetricSpec { better: Some(Better::Lower), ..MetricSpec::new(name, unit, help) };
    Metric { spec, measure }
}

impl Metric {
    const fn headline(mut self) -> Self {
        self.spec.headline = true;
        self
    }
}

/// The figures of every recording.
const METRICS: &[Metric] = &[
    Metric {
        spec: MetricSpec {
            better: Some(Better::Higher),
            ..MetricSpec::new("ops_per_s", "1/s", "operations of all CPUs per second")
        },
        measure: |played, _| Some(played.ops * 1e9 / window_ns(played)),
    }
    .headline(),
    lower("cpu_ns_per_op", "ns", "non-idle CPU time per operation", |played, _| {
        Some(cpu_ns_per_op(played))
    })
    .headline(),
    lower("cpu_ns_per_op_alone", "ns", "cpu_ns_per_op of a second run on one CPU", |_, alone| {
        alone.map(cpu_ns_per_op)
    }),
    lower("amplification", "1", "cpu_ns_per_op / cpu_ns_per_op_alone", |played, alone| {
        alone.map(|alone| cpu_ns_per_op(played) / cpu_ns_per_op(alone))
    }),
    metric(
        "idle_share",
        "1",
        "share of the CPU time of all CPUs in which they were idle",
        |played, _| Some(1.0 - played.cpu_time.busy_ns as f64 / played.cpu_time.all_ns as f64),
    ),
    lower(
        "lock_wait_share",
        "1",
        "share of the CPU time of all CPUs spent waiting for spin locks",
        |played, _| {
            let spun = played.locks.iter().filter(|row| !row.sleeps).map(LockRow::wait_within_ns);
            Some(spun.sum::<u64>() as f64 / played.cpu_time.all_ns as f64)
        },
    ),
    lower(
        "lock_sleep_ns_per_op",
        "ns",
        "time that tasks wait for sleeping locks, mostly without a CPU, per operation",
        |played, _| {
            let slept = played.locks.iter().filter(|row| row.sleeps).map(|row| row.wait_total_ns);
            Some(slept.sum::<u64>() as f64 / played.ops)
        },
    ),
    lower(
        "line_wait_share",
        "1",
        "share of the CPU time of all CPUs spent waiting for cache lines of other CPUs",
        |played, _| Some(played.cpu_time.lines_ns as f64 / played.cpu_time.all_ns as f64),
    ),
    metric("calls_per_op", "1", "calls of other CPUs by interrupts, per operation", |played, _| {
        Some(played.called.calls as f64 / played.ops)
    }),
    metric("called_cpus_per_op", "1", "CPUs that calls reach, per operation", |played, _| {
        Some(played.called.receivers as f64 / played.ops)
    }),
    lower(
        "call_wait_share",
        "1",
        "share of the CPU time of all CPUs spent waiting for called CPUs",
        |played, _| Some(played.called.wait_ps as f64 / 1e3 / played.cpu_time.all_ns as f64),
    ),
    lower(
        "called_share",
        "1",
        "share of the CPU time of all CPUs spent in interrupts of calls",
        |played, _| Some(played.called.answer_ps as f64 / 1e3 / played.cpu_time.all_ns as f64),
    ),
    lower(
        "tick_share",
        "1",
        "share of the CPU time of all CPUs spent in interrupts of timers, RCU callbacks included",
        |played, _| Some(played.ticks.ps as f64 / 1e3 / played.cpu_time.all_ns as f64),
    ),
    metric("rounds", "1", "recorded operations that ended in the window", |played, _| {
        Some(played.rounds as f64)
    }),
];

/// The recording's own error.
const HALVES_DIFFER: MetricSpec = MetricSpec {
    better: Some(Better::Lower),
    ..MetricSpec::new(
        HALVES_METRIC,
        "1",
        "difference of ops_per_s between replays of every second round and of the others, as a \
         share",
    )
};

fn window_ns(played: &Played) -> f64 {
    (played.window.until_ns - played.window.from_ns) as f64
}

fn cpu_ns_per_op(played: &Played) -> f64 {
    played.cpu_time.busy_ns as f64 / played.ops
}

impl ErasedWorkload for Recorded {
    fn run(
        &self,
        ctx: &RunContext,
        arm: ArmId,
        _: &Arm,
        seed: u64,
    ) -> Result<SeedResult, StudyError> {
        let (replay, _) = &self.replays[arm.0];
        let measured = |ctx: &RunContext| measured(replay, &self.script, ctx, seed);
        if ctx.params.choice("sched") == "both" { both(ctx, measured) } else { measured(ctx) }
    }
    fn refuse(&self, ctx: &RunContext) -> Result<(), String> {
        let profile = profile_of(ctx).map_err(|why| why.to_string())?;
        if profile.costs.instruction_ps == 0 || profile.costs.hold_instruction_ps == 0 {
            return Err("an instruction of the profile takes no time, so a replay would not end: \
                        increase instruction_ns and hold_instruction_ns"
                .to_owned());
        }
        let classes: BTreeSet<&str> =
            self.replays.iter().flat_map(|(replay, _)| replay.spin_classes()).collect();
        if let Some(scale) = ctx.hold_scale
            && !classes.contains(&scale.class.name())
        {
            let classes: Vec<&str> = classes.into_iter().collect();
            return Err(format!(
                "the recording has no spin lock `{}` whose holds could be scaled; it has {}",
                scale.class.name(),
                classes.join(", ")
            ));
        }
        Ok(())
    }
    fn remarks(&self, _: &Params, _: Target) -> Vec<String> {
        let left_out = |dropped: &Dropped| dropped.switched + dropped.unbalanced + dropped.too_long;
        let dropped: u64 = self.replays.iter().map(|(_, dropped)| left_out(dropped)).sum();
        let dropped = if dropped == 0 {
            String::new()
        } else {
            format!(" {dropped} operations that were recorded are not part of the recording.")
        };
        let has_ticks = self.replays.iter().all(|(replay, _)| replay.has_ticks());
        let interrupts = if has_ticks {
            "Of interrupts, calls of CPUs, ticks and RCU callbacks are replayed, without their \
             locks."
        } else {
            "Interrupts other than calls of CPUs, and RCU callbacks, are not replayed: a recording \
             of an earlier version has none."
        };
        vec![format!("{interrupts}{dropped}")]
    }
    fn tasks(&self, _: &Params, cpus: usize) -> u64 {
        cpus as u64
    }
    fn replays(&self) -> bool {
        true
    }
}

fn profile_of(ctx: &RunContext) -> Result<&Profile, StudyError> {
    let missing = || StudyError::Machine("a replay needs a simulated machine".to_owned());
    ctx.profile.as_deref().ok_or_else(missing)
}

/// Runs a seed, a second time on one CPU, and both halves of the recording, and computes all
/// figures.
fn measured(
    replay: &Replay,
    script: &str,
    ctx: &RunContext,
    seed: u64,
) -> Result<SeedResult, StudyError> {
    let profile = profile_of(ctx)?;
    let (has_halves, has_blame) = (ctx.params.count(HALVES) == 1, ctx.blame);
    // The runs on all CPUs, each with its share of the work, then that on one.
    let runs = if has_halves { 3 } else { 1 };
    let each = ctx.cpus as f64 / (runs * ctx.cpus + 1) as f64;
    let share = |run: usize| each * run as f64..each * (run + 1) as f64;
    let (played, mut cost) = once(replay, ctx, profile, seed, share(0))?;
    // Of the other runs only figures are used.
    let ctx = &RunContext { blame: false, ..ctx.clone() };
    let mut halves = None;
    if has_halves {
        let mut half = |first: usize| {
            let of = once(&replay.half(first), ctx, profile, seed, share(first + 1))?;
            cost.add(&of.1);
            Ok::<Played, StudyError>(of.0)
        };
        halves = Some([half(0)?, half(1)?]);
    }
    let mut alone = None;
    if ctx.cpus > 1 {
        let one = profile.with_cpus(1, Shape::Keep);
        let mut one = one.map_err(|why| StudyError::Machine(why.to_string()))?;
        one.hz = ctx.hz;
        let ctx = RunContext { cpus: 1, ..ctx.clone() };
        let (second, more) = once(replay, &ctx, &one, seed, each * runs as f64..1.0)?;
        cost.add(&more);
        alone = Some(second);
    }
    let mut result = SeedResult {
        window_ns: Some(window_ns(&played) as u64),
        fingerprint: played.outcome.fingerprint,
        cpu_time: Some(played.cpu_time),
        ..SeedResult::default()
    };
    for metric in METRICS {
        let name = metric.spec.name;
        match (metric.measure)(&played, alone.as_ref()) {
            Some(value) => {
                metric.spec.check(value.into())?;
                result.metric(name, value);
            }
            None => _ = result.missing.insert(name, "a machine of several CPUs"),
        }
    }
    if let Some([a, b]) = halves {
        result.metric(HALVES_METRIC, 2.0 * (a.ops - b.ops).abs() / (a.ops + b.ops));
        for half in [a, b] {
            result.fingerprint = result.fingerprint.rotate_left(1) ^ half.outcome.fingerprint;
        }
    }
    if let Some(second) = alone {
        result.fingerprint = result.fingerprint.rotate_left(1) ^ second.outcome.fingerprint;
    }
    result.host_metrics.insert("host_ns_per_event".to_owned(), cost.ns_per_event());
    if has_blame {
        (result.blame, result.critical_paths) = blamed(&played, script);
    }
    Ok(SeedResult { locks: played.locks, lines: played.lines, calls: played.calls, ..result })
}

/// Returns the work of holders while others waited, and the time of an operation of the script.
/// Many functions that take a lock do only that, so a waiter is named with its caller.
fn blamed(played: &Played, script: &str) -> (BlameRows, Vec<CriticalPath>) {
    let of_operation = |path: &[String]| -> Vec<String> {
        let place: Vec<&str> = path.iter().rev().map(String::as_str).collect();
        vec![String::new(), script.to_owned(), place.join(" < ")]
    };
    let mut blame = played.blame.clone();
    blame.shares.iter_mut().for_each(|row| row.waiter = of_operation(&row.waiter));
    let mut locks = played.locks.clone();
    locks.iter_mut().for_each(|row| row.path = of_operation(&row.path));
    let mut work = played.work.clone();
    work.iter_mut().for_each(|row| row.path = of_operation(&row.path));
    // All of them are parts of the operations that were counted.
    let path = vec![String::new(), script.to_owned()];
    let entered = played.ops.round() as u64;
    work.push(CallRow { path, entered, self_ns: 0, lines_ns: 0 });
    let critical = CriticalPath::of(&work, &locks, &blame.shares);
    (blame, critical)
}

/// Runs a machine with the CPUs of `ctx`.
fn once(
    replay: &Replay,
    ctx: &RunContext,
    profile: &Profile,
    seed: u64,
    share: Range<f64>,
) -> Result<(Played, HostCost), StudyError> {
    let ns = |name| (ctx.params.real(name) * 1e6) as u64;
    let from_ns = ns("warm_ms");
    let window = Window { from_ns, until_ns: from_ns + ns("duration_ms") };
    let mut config = machine::sim_config(ctx, profile, seed);
    set_bare_machine(&ctx.params, &mut config);
    config.progress = Some(machine::listener(ctx, window.until_ns, share));
    config.hold_scale = ctx.hold_scale;
    config.trail = ctx.trails.next();
    config.timeline = ctx.timelines.next();
    let begin = Instant::now();
    let mut played = replay.play(config, window);
    let host_ns = begin.elapsed().as_nanos() as u64;
    ctx.trails.keep(std::mem::take(&mut played.outcome.trail));
    ctx.timelines.keep(std::mem::take(&mut played.outcome.timeline));
    machine::failed(&played.outcome)?;
    if played.ops == 0.0 {
        return Err(StudyError::Machine(format!(
            "no operation was counted in the window of {} ms on {} CPUs: increase --set \
                 duration_ms",
            ctx.params.real("duration_ms"),
            ctx.cpus
        )));
    }
    let cost = HostCost { host_ns, events: played.outcome.events };
    Ok((played, cost))
}
