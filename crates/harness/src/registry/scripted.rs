//! Scripts as studies: a workload whose programs are those of a script, and the figures that each
//! script gets.

use crate::machine::{Needs, allocator_params, machine_params};
use crate::param::{Kind, Length, ParamError, ParamSet, ParamSpec, Params, Settings, Unit, sweep};
use crate::study::{SeedResult, Source, Study, StudyError};
use crate::workload::{
    Board, Env, Measured, Metric, Missing, Part, Phases, Run, Samples, Seen, Times as Durations,
    Verdict, Window, Workload, higher, lower, metric, ready_ns, value,
};
use mmscale_document::{ParamValue, ROUNDS_METRIC, Target};
use mmscale_kernel::Os;
use mmscale_mm::memcg::{GroupId, GroupsConfig};
use mmscale_mm::mm::MmConfig;
use mmscale_mm::oom::{Drains, OomPolicy};
use mmscale_mm::swap::SwapDevice;
use mmscale_script::{
    MemoryGroups, Receive, Report, Script, ScriptNeeds, ScriptParam, Sink, Times,
};
use mmscale_system::{PAGE_BYTES, System};
use std::sync::Arc;

/// The workload of any script.
#[derive(Clone, Debug)]
pub(super) struct Scripted;

/// The parameters of a script, and those that every script has.
#[derive(Clone, Debug)]
pub(super) struct ScriptParams {
    script: Arc<Script>,
    /// The values of the script's own parameters, in bytes, ns, or without a unit.
    values: Vec<i64>,
    duration_ms: f64,
    warm_ms: f64,
    prepare_ms: f64,
}

/// The longest window, in ms.
const MAX_MS: f64 = 600_000.0;
/// Time that a page of the preparations takes at most, when all CPUs prepare at the same time.
const PREPARE_NS: u64 = 3_000;
/// Identities of memory groups of a script that creates and removes groups, for each of these, at
/// least; and the statistics of groups on CPUs for which a run has memory in any case.
const IDENTITIES_PER_GROUP: usize = 8;
const GROUP_STATISTICS: usize = 1 << 18;
/// Share of the default window of a quick run.
const QUICK: f64 = 0.25;

impl ParamSet for ScriptParams {
    const NOT_LIVE: &'static [&'static str] = &[];

    fn specs() -> Vec<ParamSpec> {
        vec![
            ParamSpec::real(
                "duration_ms",
                Unit::Ms,
                20.0,
                [0.1, MAX_MS],
                "length of the window in which operations are counted",
            ),
            ParamSpec::real(
                "warm_ms",
                Unit::Ms,
                5.0,
                [0.0, MAX_MS],
                "time from the common start of the programs to the window",
            ),
            ParamSpec::real(
                "prepare_ms",
                Unit::Ms,
                0.0,
                [0.0, MAX_MS],
                "time for what programs do before their common start, in addition to an estimate",
            ),
        ]
    }
    fn read(params: &Params) -> Self {
        let script = Arc::clone(params.script());
        Self {
            values: values(&script, params),
            script,
            duration_ms: params.real("duration_ms"),
            warm_ms: params.real("warm_ms"),
            prepare_ms: params.real("prepare_ms"),
        }
    }
}

/// Returns the values of a script's own parameters, in bytes, ns, or without a unit.
fn values(script: &Script, params: &Params) -> Vec<i64> {
    let value = |param: &ScriptParam| {
        let unit = if param.unit == mmscale_script::Unit::Pages { PAGE_BYTES } else { 1 };
        match params.values().get(&param.name) {
            Some(&ParamValue::Count(count)) => (count * unit) as i64,
            other => panic!("parameter {} is not a count but {other:?}", param.name),
        }
    };
    script.params().iter().map(value).collect()
}

/// Returns the values of the parameters that the script of a study has itself, for each combination
/// of the given values.
pub fn script_values(study: &Study, settings: &Settings) -> Result<Vec<Vec<i64>>, ParamError> {
    let Some(script) = study.script() else { return Ok(vec![]) };
    let is_own = |spec: &&ParamSpec| script.params().iter().any(|own| own.name == spec.name);
    let own: Vec<ParamSpec> = study.params().iter().filter(is_own).cloned().collect();
    let all = sweep(&own, settings, Length::Full)?;
    Ok(all.iter().map(|params| values(script, params)).collect())
}

impl ScriptParams {
    fn needs(&self, cpus: usize) -> ScriptNeeds {
        self.script.needs(&self.values, cpus)
    }
    fn compressed_percent(&self, cpus: usize) -> Option<u64> {
        self.script.compressed_percent(&self.values, cpus)
    }
    fn memory_groups(&self, cpus: usize) -> Vec<MemoryGroups> {
        self.script.memory_groups(&self.values, cpus)
    }
    /// Refuses to ask for huge pages on a machine without them.
    fn check_huge_pages(&self, env: &Env<Scripted>) -> Result<(), String> {
        match (env.page_bytes().filter(|&bytes| bytes > PAGE_BYTES), self.script.huge_page_line()) {
            (Some(bytes), Some(line)) => Err(format!(
                "line {line} of the script asks for huge pages: next to pages of {} KiB they would \
                 have 512 MiB, and are not simulated. Remove the call, put `try` before it (it \
                 then has no effect), or choose a machine with pages of 4 KiB",
                bytes >> 10
            )),
            _ => Ok(()),
        }
    }
    /// Returns the number of removed groups that may still have pages, for `count` groups and the
    /// root.
    fn spare_groups(&self, count: usize, cpus: usize) -> usize {
        if count == 1 || !self.script.changes_memory_groups() {
            return 0;
        }
        let identities = (IDENTITIES_PER_GROUP * count).max(GROUP_STATISTICS / cpus);
        identities.min(GroupId::MAX) - count
    }
    /// Returns the memory groups of a machine, the root included; an error for numbers that it
    /// cannot have.
    fn groups_config(&self, env: &Env<Scripted>) -> Result<GroupsConfig, String> {
        let all = self.memory_groups(env.cpus());
        let mut used = all.iter().filter(|of| of.count > 0);
        let Some(first) = used.next() else { return Ok(GroupsConfig::ROOT) };
        if env.on() == Target::Live {
            return Err("the script has memory groups, and a run on the live kernel is in one \
                        group: give their number as 0, or run it on the simulator or on threads"
                .to_owned());
        }
        if let Some(other) = used.find(|other| other.depth != first.depth) {
            return Err(format!(
                "memory groups {} and {} levels below the root: all groups of a script have one \
                 depth",
                first.depth, other.depth
            ));
        }
        let count = all.iter().fold(1_u64, |sum, of| sum.saturating_add(of.count));
        let to_usize = |number| usize::try_from(number).unwrap_or(usize::MAX);
        let config = GroupsConfig { count: to_usize(count), depth: to_usize(first.depth) };
        if config.is_valid() {
            return Ok(config);
        }
        Err(format!(
            "{} memory groups {} levels below the root: at most {} are possible, 1 to {} levels \
             deep",
            count - 1,
            first.depth,
            GroupId::MAX - 1,
            GroupsConfig::MAX_DEPTH
        ))
    }
}

/// Returns the parameters of a script on simulated machines and threads, and on the live kernel.
pub(super) fn specs_of(script: &Script) -> Result<[Vec<ParamSpec>; 2], String> {
    let mut specs = ScriptParams::specs();
    let common = machine_params().into_iter().chain(allocator_params());
    let mut taken: Vec<_> = specs.iter().cloned().chain(common).map(|spec| spec.name).collect();
    taken.extend(["cpus", "hz", "watch"].map(Into::into));

    for param in script.params() {
        if taken.iter().any(|name| *name == param.name) {
            return Err(format!("every script has a parameter `{}`; rename yours", param.name));
        }
        taken.push(param.name.clone().into());
        specs.push(spec_of(param));
    }

    let window = script.window();
    set_default(&mut specs, "duration_ms", ms(window.length_ns));
    set_default(&mut specs, "warm_ms", ms(window.after_ns));
    let mut on_live = specs.clone();
    set_default(&mut on_live, "duration_ms", ms(window.live_ns));
    // Tasks of a real computer start within a tick of each other.
    set_default(&mut on_live, "warm_ms", ms(window.after_ns).max(20.0));
    Ok([specs, on_live])
}

/// Returns the declaration of a script's own parameter.
fn spec_of(param: &ScriptParam) -> ParamSpec {
    let (unit, per) = match param.unit {
        mmscale_script::Unit::One => (Unit::One, 1),
        mmscale_script::Unit::Pages => (Unit::Pages, PAGE_BYTES as i64),
        mmscale_script::Unit::Bytes => (Unit::Bytes, 1),
        mmscale_script::Unit::Time => (Unit::Ns, 1),
    };
    let [default, least, most] =
        [param.default, param.range[0], param.range[1]].map(|number| (number / per).max(0) as u64);
    let kind = Kind::Count { unit, default: [default; 2], range: [least, most] };
    ParamSpec::new(param.name.clone(), kind, param.help.clone())
}

/// Sets the default of a parameter for full runs, and a share of it for quick ones.
fn set_default(specs: &mut [ParamSpec], name: &str, full: f64) {
    let spec = specs.iter_mut().find(|spec| spec.name == name);
    if let Some(Kind::Real { default, .. }) = spec.map(|spec| &mut spec.kind) {
        *default = [full, full * QUICK];
    }
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

fn ops(seen: &Seen<'_, Scripted>) -> f64 {
    seen.tally.ops as f64
}
/// Returns the CPU time per operation. On the live kernel this is that of all processes of the run,
/// per operation at any time.
fn cpu_ns_per_op(seen: &Seen<'_, Scripted>) -> Result<f64, Missing> {
    match seen.live() {
        Ok(live) => Ok((live.cpu.user_ns + live.cpu.system_ns) as f64 / seen.tally.ops_ever as f64),
        Err(_) => Ok(seen.busy_ns()? / ops(seen)),
    }
}
/// Returns the same of the run on one CPU.
fn alone_ns(seen: &Seen<'_, Scripted>) -> Result<f64, Missing> {
    let alone_ns = cpu_ns_per_op(seen.second.ok_or(Missing::Nothing)?)?;
    if alone_ns.is_finite() && alone_ns > 0.0 { Ok(alone_ns) } else { Err(Missing::Nothing) }
}
/// Returns the page faults per operation. The simulator counts them in the window, threads in the
/// whole run, and the live kernel from the common start on.
fn faults_per_op(seen: &Seen<'_, Scripted>) -> Result<f64, Missing> {
    if let Ok(live) = seen.live() {
        let faults = live.faults.saturating_sub(seen.tally.prepared_faults);
        return Ok(faults as f64 / seen.tally.ops_ever as f64);
    }
    let is_fault = |path: &[String]| path.last().is_some_and(|last| last == "handle_mm_fault");
    let rows = seen.calls()?.iter().filter(|row| is_fault(&row.path));
    let faults = rows.map(|row| row.entered).sum::<u64>() as f64;
    let ever = if seen.on() == Target::Sim { seen.tally.ops } else { seen.tally.ops_ever };
    Ok(faults / ever as f64)
}
/// Returns the part of what locks count that belongs to operations of the window. On threads they
/// count during the whole run.
fn in_window(seen: &Seen<'_, Scripted>) -> f64 {
    match seen.on() {
        Target::Threads => ops(seen) / seen.tally.ops_ever as f64,
        Target::Sim | Target::Live => 1.0,
    }
}
/// Returns the time of the interpreter per operation, in ns. None on simulated machines.
fn script_ns_per_op(seen: &Seen<'_, Scripted>) -> Result<f64, Missing> {
    if seen.on() == Target::Sim {
        return Err(Missing::Source("a real machine: scripts take no virtual time"));
    }
    Ok(seen.tally.steps as f64 * seen.tally.step_ps as f64 / 1e3 / ops(seen))
}

/// The index of durations of parts in `time` in [`Run::samples`].
const TIMED: usize = 0;

/// Receives the reports of programs.
struct Received {
    board: Board<Report>,
    times: Samples,
}

impl Receive for Received {
    fn report(&self, report: Report) {
        self.board.change(|sum| *sum += report);
    }
    fn times(&self, cpu: usize, times_ns: &[u64]) {
        if !times_ns.is_empty() {
            self.times.add(cpu, times_ns.iter().copied());
        }
    }
    fn arrive(&self) -> u64 {
        self.board.change(|sum| {
            sum.arrivals += 1;
            sum.arrivals
        })
    }
    fn arrivals(&self) -> u64 {
        self.board.change(|sum| sum.arrivals)
    }
}

/// Returns the durations of parts in `time` on all CPUs. [`Missing`] if there is none.
fn timed(seen: &Seen<'_, Scripted>) -> Result<Durations, Missing> {
    let all = Durations::sum(seen.samples(TIMED));
    if all.count() > 0 { Ok(all) } else { Err(Missing::Nothing) }
}

/// The figures of every script.
const METRICS: &[Metric<Scripted>] = &[
    higher("ops_per_s", "1/s", "operations counted per second of all programs", |seen| {
        value(seen.per_s(ops(seen)))
    }),
    lower(
        "cpu_ns_per_op",
        "ns",
        "non-idle CPU time per operation (live: CPU time of the whole run per operation)",
        |seen| value(cpu_ns_per_op(seen)?),
    ),
    lower(
        "cpu_ns_per_op_alone",
        "ns",
        "cpu_ns_per_op of a second run on one CPU; only if all processes are per_cpu",
        |seen| value(alone_ns(seen)?),
    ),
    lower("amplification", "1", "cpu_ns_per_op / cpu_ns_per_op_alone", |seen| {
        value(cpu_ns_per_op(seen)? / alone_ns(seen)?)
    }),
    metric(
        "idle_share",
        "1",
        "share of the CPU time of all CPUs in which they were idle",
        |seen| value(1.0 - seen.busy_ns()? / seen.cpu_time_ns()),
    ),
    lower(
        "lock_wait_share",
        "1",
        "share of the CPU time of all CPUs spent waiting for spin locks",
        |seen| value(seen.locks()?.spun_ns(None) * in_window(seen) / seen.cpu_time_ns()),
    ),
    lower(
        "lock_sleep_ns_per_op",
        "ns",
        "time that tasks wait for sleeping locks, mostly without a CPU, per operation",
        |seen| {
            let rows = seen.locks()?.all().iter().filter(|row| row.sleeps);
            let slept_ns = rows.map(|row| row.wait_total_ns).sum::<u64>() as f64;
            value(slept_ns * in_window(seen) / ops(seen))
        },
    ),
    lower("time_p50_ns", "ns", "median duration of the parts in `time`", |seen| {
        value(timed(seen)?.percentile_ns(50))
    }),
    lower("time_p99_ns", "ns", "99th percentile of the duration of the parts in `time`", |seen| {
        value(timed(seen)?.percentile_ns(99))
    }),
    lower("time_max_ns", "ns", "longest duration of a part in `time`", |seen| {
        value(timed(seen)?.max_ns())
    }),
    metric("calls_per_op", "1", "system calls of the script per operation", |seen| {
        value(seen.tally.calls as f64 / ops(seen))
    }),
    metric("accesses_per_op", "1", "accesses of the script to pages per operation", |seen| {
        value(seen.tally.accesses as f64 / ops(seen))
    }),
    metric(
        "faults_per_op",
        "1",
        "page faults per operation (live: of all processes, after the common start)",
        |seen| value(faults_per_op(seen)?),
    ),
    metric(
        ROUNDS_METRIC,
        "1",
        "fewest rounds of its outermost `loop` that a program began in the window, of programs in \
         such a loop all the time; below 3 the figures depend on the part of a round that the \
         window covers",
        |seen| match seen.tally.looping {
            0 => Err(Missing::Nothing),
            _ => value(seen.tally.rounds_min),
        },
    ),
    lower("failed_calls", "1", "calls that failed where the script allows it (`try`)", |seen| {
        value(seen.tally.failed_calls)
    }),
    lower("starved_programs", "1", "programs that ended for lack of memory", |seen| {
        value(seen.tally.starved)
    }),
    metric(
        "script_ns_per_op",
        "ns",
        "CPU time of the interpreter per operation, a part of cpu_ns_per_op: operations of the \
         compiled script times the measured time of one",
        |seen| value(script_ns_per_op(seen)?),
    ),
    metric("script_share", "1", "script_ns_per_op / cpu_ns_per_op", script_share),
];

fn script_share(seen: &Seen<'_, Scripted>) -> Measured {
    value(script_ns_per_op(seen)? / cpu_ns_per_op(seen)?)
}

/// The metrics that are tested.
pub(super) const HEADLINES: [&str; 2] = ["ops_per_s", "cpu_ns_per_op"];

impl Workload for Scripted {
    /// Not used: a script is its own file.
    const FILE: Source = Source::compiled("script", "");
    const METRICS: &'static [Metric<Self>] = METRICS;
    type Params = ScriptParams;
    type Plan = Window;
    type Tally = Report;
    type Inside = ();
    type Meter = ();

    fn plan(env: &Env<Self>) -> Result<Window, String> {
        let ScriptParams { duration_ms, warm_ms, prepare_ms, .. } = env.params;
        env.params.groups_config(env)?;
        env.params.check_huge_pages(env)?;
        if let Some(percent) = env.params.compressed_percent(env.cpus()).filter(|all| *all > 100) {
            return Err(format!(
                "pages compressed to {percent} percent: 1 to 100 are possible, or 0 for different \
                 sizes"
            ));
        }
        let needs = env.params.needs(env.cpus());
        let prepare_ns = needs.prepared_pages.saturating_mul(PREPARE_NS);
        let begin_ns = ready_ns(env, needs.tasks)
            .saturating_add(prepare_ns)
            .saturating_add((prepare_ms * 1e6) as u64);
        if begin_ns > (MAX_MS * 1e6) as u64 {
            return Err(format!(
                "{} tasks with {} pages would take {} s to prepare; use fewer of them",
                needs.tasks,
                needs.prepared_pages,
                begin_ns / 1_000_000_000
            ));
        }
        Ok(Window::new(begin_ns, (warm_ms * 1e6) as u64, duration_ms))
    }
    fn phases(window: &Window) -> Phases {
        window.phases()
    }
    fn set_up(env: &Env<Self>, _: &Window, mm: &mut MmConfig) {
        // The plan was made, so the groups are possible.
        let groups = env.params.groups_config(env).unwrap_or(GroupsConfig::ROOT);
        (mm.groups, mm.group_depth) = (groups.count, groups.depth);
        mm.spare_groups = env.params.spare_groups(groups.count, env.cpus());
        let groups = env.params.memory_groups(env.cpus());
        if groups.iter().any(|of| of.count > 0 && of.limit_pages.is_some()) {
            (mm.oom.policy, mm.oom.drains) = (OomPolicy::KillInGroup, Drains::None);
        }
        let Some(device) = env.params.script.swap_device() else { return };
        mm.swap.device = match device {
            mmscale_script::SwapDevice::Block => SwapDevice::Block,
            mmscale_script::SwapDevice::Compressed => SwapDevice::Compressed,
        };
        let percent = env.params.compressed_percent(env.cpus());
        mm.swap.compressed_percent = percent.and_then(|percent| u8::try_from(percent).ok());
        let pages = env.params.needs(env.cpus()).swap_pages;
        mm.swap.pages = u32::try_from(pages).unwrap_or(u32::MAX);
    }
    fn needs(env: &Env<Self>, _: &Window) -> Needs {
        let ScriptNeeds { tasks, pages, .. } = env.params.needs(env.cpus());
        Needs { processes: tasks, pages }
    }
    fn second(env: &Env<Self>) -> Result<Option<Env<Self>>, StudyError> {
        let alone = env.cpus() > 1 && env.params.script.is_per_cpu(&env.params.values);
        alone.then(|| env.second_on_one_cpu()).transpose()
    }
    fn damaged_pages(report: &Report) -> u64 {
        report.damaged
    }
    fn verdict(seen: &Seen<'_, Self>) -> Verdict {
        let Report { ops, late, late_max_ns, fault, faults, .. } = seen.tally;
        let first = seen.env.part == Part::First;
        let name = seen.env.params.script.name();
        match (fault, seen.on()) {
            (Some(fault), _) => Verdict::Useless(format!(
                "{faults} programs of the script `{name}` ended with an error, the first in {fault}"
            )),
            (None, Target::Sim) if late > 0 => Verdict::Useless(format!(
                "{late} programs were not ready at the common start, by up to {:.3} ms: add \
                 --set prepare_ms={:.0}",
                late_max_ns as f64 / 1e6,
                (late_max_ns as f64 / 1e6 * 1.5).ceil() + seen.env.params.prepare_ms
            )),
            (None, _) if seen.tally.ops_ever == 0 && first => Verdict::Useless(format!(
                "no program of the script `{name}` reached `count` with {} CPUs after the common \
                 start: give each number of CPUs a program that counts, or increase --set \
                 duration_ms",
                seen.env.cpus()
            )),
            (None, _) if ops == 0 && first => Verdict::Useless(format!(
                "no operation was counted in the window of {:.1} ms: increase --set duration_ms",
                seen.window_ns() as f64 / 1e6
            )),
            (None, _) if late > 0 => Verdict::Poor,
            (None, _) => Verdict::Good,
        }
    }
    fn remarks(_: &ScriptParams, on: Target) -> Vec<String> {
        if on == Target::Sim {
            return vec![];
        }
        vec![
            "The programs are interpreted: script_ns_per_op is the CPU time that this takes, and a \
             part of cpu_ns_per_op."
                .to_owned(),
        ]
    }
    fn tasks(params: &ScriptParams, cpus: usize) -> u64 {
        // Children that have ended and were not waited for keep their stacks for a moment.
        2 * params.needs(cpus).tasks + cpus as u64
    }
    fn details(seen: &Seen<'_, Self>, result: &mut SeedResult) {
        if let Ok(calls) = seen.calls() {
            result.calls = calls.to_vec();
        }
        if let Ok(timed) = timed(seen) {
            result.histograms.insert("time".to_owned(), timed.histogram());
        }
        if let Ok(host_ns) = seen.host_ns() {
            let ops = seen.tally.ops_ever.max(1) as f64;
            result.host_metrics.insert("host_ns_per_op".to_owned(), host_ns / ops);
        }
        if seen.on() != Target::Sim {
            result.host_metrics.insert("late_programs".to_owned(), seen.tally.late as f64);
            result.host_metrics.insert("ops_ever".to_owned(), seen.tally.ops_ever as f64);
        }
    }
    fn run_inside(run: &Run<Self>, os: &Os) {
        let limits = run.params.memory_groups(os.cpus()).into_iter();
        let limits = limits.flat_map(|of| (0..of.count).map(move |_| of.limit_pages));
        for (nth, limit) in limits.enumerate().filter(|(_, limit)| limit.is_some()) {
            os.inside().set_group_limit(GroupId::new(1 + nth), limit);
        }
        Self::run(run, os);
    }
    fn run<S: System>(run: &Run<Self>, system: &S) {
        let Window { begin_ns, from_ns, until_ns } = run.plan;
        let times = Times { begin_ns, from_ns, until_ns };
        let received = Received { board: run.tally.clone(), times: run.samples[TIMED].clone() };
        let sink: Sink = Arc::new(received);
        run.params.script.run(&run.params.values, run.seed, times, sink, system);
    }
}
