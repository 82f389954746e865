//! `mmscale explain`: the known problem that a report or a mail resembles, the share of its waits
//! that is simulated, and the command that reproduces it.

mod answer;
mod benchmark;
mod contention;
mod figure;
mod input;
mod logs;
mod rates;
mod robot;
mod seen;
mod simulate;
mod source;
mod start;

use mmscale_document::Problem;
use mmscale_harness::{Origin, Registry, Shape};
use mmscale_measured::{Basis, Report, Robot, Table, resemble};
use mmscale_report::wrap;
#[cfg(test)]
pub(crate) use robot::locks;

use crate::args::ExplainArgs;
use crate::failure::Failure;
use crate::output;

/// A report with the choices of the call.
pub(crate) struct Case<'a> {
    report: &'a Report,
    /// The tables that count: the chosen one, or all.
    tables: Vec<&'a Table>,
    /// Number of CPUs, if it is known.
    cpus: Option<u32>,
    /// Duration of the measurement, in ns, if it is known.
    window_ns: Option<u64>,
}

/// The way in which a study reproduces a problem.
pub(crate) struct Recipe {
    study: String,
    /// The arms: the one with Linux's policies, then those that may help.
    arms: &'static [&'static str],
    /// Settings of parameters, as `--set` takes them.
    settings: Vec<String>,
    /// How the CPUs are grouped.
    shape: Shape,
}

/// Explains a report.
pub(crate) fn explain(
    registry: &Registry,
    origin: Origin,
    args: &ExplainArgs,
) -> Result<(), Failure> {
    if let Some(after) = &args.later {
        source::check_seconds(&args.source)?;
        return rates::explain(&args.source.file, after, args.source.seconds);
    }
    if let Some(path) = &args.save {
        return source::save(origin, args, path);
    }
    let report = source::open(&args.source)?;
    let case = case(&report, args)?;
    let found = resemble(&report, &case.tables);
    let script = report.robot.as_ref().and_then(|robot| robot::script(robot, registry));
    let study = || found.best().map(|best| recipe(best.problem, &report));
    let mut recipe = script.or_else(study);
    let mut refused = None;
    if let Some(recipe) = &mut recipe {
        refused = simulate::fit(registry, &case, recipe, &origin);
    }
    let mut lines = answer::lines(registry, &case, &found, recipe.as_ref());
    let is_nothing = found.basis == Basis::None
        && case.tables.iter().all(|table| table.waits.is_empty())
        && report.robot.is_none()
        && report.orders.is_empty()
        && report.flat.is_empty();
    if is_nothing && report.prose.classes.is_empty() {
        lines.extend(seen::lines(&report));
        output::print(&joined(&lines))?;
        return Err(Failure::Nothing);
    }
    if let Some(why) = refused {
        let what = format!("the study cannot be run at this size: {why}");
        lines.extend(wrap(&what, "size      ", "          "));
    }
    match (&recipe, args.run) {
        (Some(recipe), true) => {
            output::print(&joined(&lines))?;
            simulate::run(registry, origin, args, &case, recipe)
        }
        (None, true) => {
            lines.push(String::new());
            let what = "no study has this problem, so none was run";
            lines.extend(wrap(what, "", ""));
            output::print(&joined(&lines))
        }
        (recipe, false) => {
            if let Some(recipe) = recipe {
                let command = format!("mmscale robust {}", answer::options(&case, recipe));
                lines.extend(wrap(&command, "robust    ", "          "));
            }
            output::print(&joined(&lines))
        }
    }
}

fn joined(lines: &[String]) -> String {
    lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

fn case<'a>(report: &'a Report, args: &ExplainArgs) -> Result<Case<'a>, Failure> {
    let tables: Vec<&Table> = match args.source.table {
        None => report.tables.iter().collect(),
        Some(n) => vec![report.tables.get(n as usize - 1).ok_or_else(|| {
            let (all, plural) =
                (report.tables.len(), if report.tables.len() == 1 { "" } else { "s" });
            Failure::Call(anyhow::anyhow!("there is no table {n}: {all} table{plural} found"))
        })?],
    };
    let mut sizes = report.sizes.cpus.keys();
    let only = sizes.next().copied().filter(|_| sizes.next().is_none());
    let of_robot = report.robot.as_ref().and_then(Robot::cpus);
    let of_table = tables.iter().find_map(|table| table.cpus);
    let given_ns = args.source.seconds.map(|s| (s * 1e9).round() as u64);
    let window_ns = tables.iter().find_map(|table| table.window_ns);
    Ok(Case {
        report,
        cpus: args.source.cpus.or(of_table).or(of_robot).or(only),
        window_ns: given_ns.or(window_ns).or(report.prose.window_ns),
        tables,
    })
}

/// Returns the study of a problem, with the settings that fit the report.
fn recipe(problem: Problem, report: &Report) -> Recipe {
    let (arms, settings): (&[&str], Vec<String>) = match problem {
        Problem::Vmstat => (&["stock", "posted", "phased"], vec![]),
        Problem::Churn => (&["stock", "lazy"], vec![]),
        Problem::Pcp => (&["stock", "posted", "blockmap"], vec![workloads(report)]),
        Problem::Reap => (&["stock", "posted", "claims"], vec![]),
        Problem::Ipi => (&["stock", "posted", "requests"], vec![]),
    };
    Recipe { study: problem.study().to_owned(), arms, settings, shape: Shape::Keep }
}

/// Returns the workloads of the study of page caches that a report names or has on its paths.
fn workloads(report: &Report) -> String {
    const WORDS: [(&str, &[&str]); 3] = [
        ("purger", &["jemalloc", "tcmalloc", "purger", "purged", "madvise_free", "do_madvise"]),
        ("exit", &["exits", "exit_mmap", "do_exit"]),
        ("build", &["builds", "compile", "copy_process"]),
    ];
    let on_path = |word: &str| {
        let waits = report.tables.iter().flat_map(|table| &table.waits);
        let paths = waits.map(|wait| &wait.path).chain(report.stacks.iter().map(|s| &s.path));
        paths.into_iter().flatten().any(|step| step == word)
    };
    let named = |word: &&&str| report.prose.names_function(word) || on_path(word);
    let found = WORDS.iter().filter(|(_, words)| words.iter().any(|word| named(&word)));
    let found: Vec<&str> = found.map(|(workload, _)| *workload).collect();
    let found = if found.is_empty() { "purger,exit".to_owned() } else { found.join(",") };
    format!("workload={found}")
}
