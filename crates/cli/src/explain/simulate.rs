//! The run of the study that a report resembles, with its waits next to the measured ones.

use anyhow::Context;
use mmscale_document::{ArmRecord, Document, MEASURED_SCHEMA, Measurement};
use mmscale_harness::{Length, Origin, Plan, Registry, Request, Shape, execute, fits_host, plan};
use mmscale_measured::Table;
use mmscale_report::compare::{Waits, waits_text};
use mmscale_report::{Notes, brief, robust_brief, wrap};

use super::answer::options;
use super::figure::time;
use super::{Case, Recipe, robot, source};
use crate::args::ExplainArgs;
use crate::failure::Failure;
use crate::interrupt::{self, Grace};
use crate::output;
use crate::progress;
use crate::request::{settings, simulated};
use crate::robust::cache;

/// Seeds of a run: a first look, as with `--quick`.
const SEEDS: u64 = 2;

/// Runs the study and prints its result after the explanation.
pub(super) fn run(
    registry: &Registry,
    origin: Origin,
    args: &ExplainArgs,
    case: &Case<'_>,
    recipe: &Recipe,
) -> Result<(), Failure> {
    let interrupt = interrupt::on_signals(Grace::Computing)
        .context("cannot watch for Ctrl-C")
        .map_err(Failure::Run)?;
    let plans = plan(registry, &request(case, recipe, origin.clone())?)?;
    fits_host(&plans)?;
    let call = progress::Call::new(&plans);
    for (place, plan) in plans.iter().enumerate() {
        let sink = call.watch(place);
        let document = execute(plan, &interrupt, &sink);
        drop(sink);
        let document = document.map_err(|why| Failure::Run(why.into()))?;
        let measured = measurement(case, args, &origin);
        interrupt::whole(|| {
            output::print(&format!(
                "\n{}\n{}{}",
                next_to(case, measured.as_ref(), &document),
                brief(&document, &notes(plan)),
                robust(plan, &options(case, recipe))
            ))
        })?;
    }
    Ok(())
}

/// Chooses a shape with which the study runs at the size of the report. Returns the error if it
/// runs with none.
pub(super) fn fit(
    registry: &Registry,
    case: &Case<'_>,
    recipe: &mut Recipe,
    origin: &Origin,
) -> Option<String> {
    // A program without the study says so elsewhere.
    registry.find(&recipe.study).ok()?;
    let refused = |recipe: &Recipe| {
        let request = request(case, recipe, origin.clone()).ok()?;
        plan(registry, &request).err().map(|why| why.to_string())
    };
    let why = refused(recipe)?;
    recipe.shape = Shape::Fill;
    if refused(recipe).is_some() {
        recipe.shape = Shape::Keep;
        return Some(why);
    }
    None
}

fn request(case: &Case<'_>, recipe: &Recipe, origin: Origin) -> Result<Request, Failure> {
    let cpus = case.cpus.map(|cpus| cpus.to_string());
    Ok(Request {
        arms: recipe.arms.iter().map(|&arm| arm.to_owned()).collect(),
        settings: settings(&recipe.settings, cpus.as_deref(), None)?,
        seeds: Some(SEEDS),
        length: Length::Quick,
        shape: recipe.shape,
        ..simulated(vec![recipe.study.clone()], origin)
    })
}

/// Says whether the conclusions depend on the costs of the machine, if that was analysed.
fn robust(plan: &Plan, options: &str) -> String {
    let Some(kept) = cache(None).analysis(plan) else {
        let what = format!("not analysed yet on this machine; mmscale robust {options}");
        return lines("robust", &what);
    };
    lines("robust", &format!("{} ({})", robust_brief(&kept), kept.build))
}

fn lines(key: &str, text: &str) -> String {
    let lines = wrap(text, &format!("{key:<9} "), "          ");
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn notes(plan: &Plan) -> Notes<'static> {
    Notes {
        summary: plan.study.summary().to_owned(),
        order: plan.study.metrics().iter().map(|metric| metric.name).collect(),
        defaults: plan.defaults(),
        remarks: vec![],
        only: vec![],
        robust: None,
    }
}

/// Returns the waits of the first table with locks, as a document.
fn measurement(case: &Case<'_>, args: &ExplainArgs, origin: &Origin) -> Option<Measurement> {
    let table = case.tables.iter().find(|table| table.tool != "summary")?;
    let mut measured = source::measurement(case.report, table, &args.source, origin.clone());
    measured.schema = MEASURED_SCHEMA.to_owned();
    measured.cpus = case.cpus;
    measured.window_ns = case.window_ns;
    Some(measured)
}

/// Formats the measured waits next to the simulated ones.
fn next_to(case: &Case<'_>, measured: Option<&Measurement>, document: &Document) -> String {
    if let Some(robot) = case.report.robot.as_ref().filter(|_| case.tables.is_empty()) {
        return robot::next_to(robot, document);
    }
    let Some(first) = document.arms.first() else { return String::new() };
    if let Some(measured) = measured {
        let sides = [&Waits::of_measurement(measured), &Waits::of_arm(document, first)];
        return waits_text(["measured", "simulated"], sides);
    }
    let summaries = case.tables.iter().filter(|table| table.tool == "summary");
    summaries.map(|table| kernels(table, document)).collect::<Vec<_>>().join("\n")
}

/// Formats the kernels of a summary, then the arms: number of waits in the functions of the
/// summary's lock, with each figure as a multiple of the first.
fn kernels(table: &Table, document: &Document) -> String {
    let Some(wait) = table.waits.first() else { return String::new() };
    let site = wait.path.last();
    let mut rows: Vec<(String, [f64; 3])> = Vec::new();
    for wait in &table.waits {
        let name = format!("measured, {}", wait.task.as_deref().unwrap_or("unknown"));
        let figures = [wait.contentions, wait.wait_total_ns, wait.wait_max_ns];
        rows.push((name, figures.map(|n| n.unwrap_or(0) as f64)));
    }
    let measured = rows.len();
    for arm in &document.arms {
        rows.push((format!("simulated, {}", arm.arm), of_arm(arm, &wait.class, site)));
    }
    let what = site.map_or(String::new(), |site| format!(" in {site}"));
    let caption = if table.caption.is_empty() { "summary" } else { &table.caption };
    let mut text = format!("{caption}: waits for {}{what}, mean of a run\n", wait.class);
    text.push_str(&format!(
        "{:<24}{:>8}{:>7}{:>11}{:>7}{:>11}\n",
        "", "waits", "", "total", "", "longest"
    ));
    for (at, (name, [waits, total_ns, max_ns])) in rows.iter().enumerate() {
        let base = &rows[if at < measured { 0 } else { measured }].1;
        let ratio =
            |x: f64, of: f64| if of > 0.0 { format!("x{:.2}", x / of) } else { String::new() };
        text.push_str(&format!(
            "{name:<24.24}{waits:>8.0}{:>7}{:>11}{:>7}{:>11}\n",
            ratio(*waits, base[0]),
            time(*total_ns),
            ratio(*total_ns, base[1]),
            time(*max_ns)
        ));
    }
    text
}

/// Returns number, total and maximum of an arm's waits for a class, in one function or in all; the
/// first two are means over seeds.
fn of_arm(arm: &ArmRecord, class: &str, site: Option<&String>) -> [f64; 3] {
    let runs = arm.seeds.len().max(1) as f64;
    let locks = || {
        let of_class = arm.locks.iter().filter(move |lock| lock.class == class);
        of_class.filter(move |lock| site.is_none_or(|site| *site == lock.site))
    };
    let sum = |of: fn(&mmscale_document::LockRecord) -> u64| locks().map(of).sum::<u64>() as f64;
    [
        sum(|lock| lock.contentions) / runs,
        sum(|lock| lock.wait_total_ns) / runs,
        locks().map(|lock| lock.wait_max_ns).max().unwrap_or(0) as f64,
    ]
}
