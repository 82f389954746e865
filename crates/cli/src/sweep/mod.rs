//! `mmscale sweep`: many runs that are kept one by one.

mod spec;
mod store;
mod tasks;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::{Context, anyhow};
use mmscale_document::Document;
use mmscale_files::{Existing, Folder};
use mmscale_harness::{Interrupt, Origin, ProgressSink, Registry, RunError, execute, gathered};
use mmscale_report::{CSV_HEAD, Notes, brief, csv_rows, json_line, sweep_text};
use serde_json::json;

use crate::args::{Format, SweepArgs};
use crate::estimate::Due;
use crate::failure::Failure;
use crate::interrupt::{self, Grace};
use crate::output;
use crate::progress::Many;
pub(crate) use spec::{Spec, call};
pub(crate) use store::{Found, Store};
pub(crate) use tasks::{Task, tasks};

/// The name and version of the list of runs.
const SCHEMA: &str = "mmscale/sweep/1";

/// Executes the runs of a spec that are not finished, or lists them, or shows their results.
pub(crate) fn sweep(registry: &Registry, origin: Origin, args: &SweepArgs) -> Result<(), Failure> {
    let spec = Spec::read(&args.spec)?;
    let tasks = tasks(registry, &spec, &origin)?;
    if args.plan {
        return output::print(&plan_of(&origin, tasks.iter()));
    }
    let folder = args.output.as_deref().expect("clap requires it");
    let store = Store::open(folder)?;
    let interrupt = interrupt::on_signals(Grace::Computing)
        .context("cannot watch for Ctrl-C")
        .map_err(Failure::Run)?;
    if let Some(key) = &args.one {
        return one(&tasks, key, &store, &interrupt);
    }
    let (kept, others) = kept(&tasks, &store);
    for (task, why) in &others {
        output::tell(&again(why));
        store.may_replace(task)?;
    }
    let lost = if args.collect {
        if let [(_, first), ..] = &others[..] {
            return Err(Failure::Run(anyhow!(
                "{} of the kept files are not the documents of their runs: {first}; the same call \
                 without --collect executes these runs again",
                others.len()
            )));
        }
        vec![]
    } else {
        let left: Vec<&Task> = tasks.iter().filter(|task| !kept.contains(&task.key)).collect();
        let kept = tasks.len() - left.len();
        output::tell(&format!("{} runs, {kept} of them finished before", tasks.len()));
        all(&tasks, left, args.jobs, &store, &interrupt)?
    };
    let documents = finished(&tasks, &store);
    if !args.collect {
        write_csv(folder, &tasks, &documents)?;
    }
    show(args.format, gathered(documents.into_values().collect()))?;
    match lost.len() {
        0 => Ok(()),
        n => Err(Failure::Run(anyhow!("{n} of {} runs failed: {}", tasks.len(), lost[0]))),
    }
}

/// Returns a list of runs as a line of JSON, for programs that have them executed.
pub(crate) fn plan_of<'a>(origin: &Origin, tasks: impl Iterator<Item = &'a Task>) -> String {
    let list: Vec<_> = tasks.map(Task::json).collect();
    format!("{}\n", json!({"schema": SCHEMA, "build": origin.build, "runs": list}))
}

/// Executes the only run of a spec.
fn one(tasks: &[Task], key: &str, store: &Store, interrupt: &Interrupt) -> Result<(), Failure> {
    let [task] = tasks else {
        return Err(call(format!("--one executes a sweep of one run; this has {}", tasks.len())));
    };
    if task.key != key {
        return Err(call(format!(
            "the run has the key {}, not {key}: this program, a profile or a script differs from \
             that of the plan",
            task.key
        )));
    }
    if let Found::Other(why) = store.find(task) {
        output::tell(&again(&why));
    }
    let progress = Many::new(due(&[task]), 1);
    let executed = store.once(task, || run(task, interrupt, &progress.of_run(0)))?;
    output::print(&format!("{}\n", json!({"key": key, "executed": executed})))
}

/// Returns the keys of finished runs, and the runs whose file is not their document, with the
/// reason.
fn kept<'a>(tasks: &'a [Task], store: &Store) -> (BTreeSet<&'a String>, Vec<(&'a Task, String)>) {
    let (mut kept, mut others) = (BTreeSet::new(), vec![]);
    for task in tasks {
        match store.find(task) {
            Found::Nothing => {}
            Found::Finished(_) => _ = kept.insert(&task.key),
            Found::Other(why) => others.push((task, why)),
        }
    }
    (kept, others)
}

pub(crate) fn again(why: &str) -> String {
    format!("note: not the document of its run, {why}")
}

fn run(
    task: &Task,
    interrupt: &Interrupt,
    sink: &Arc<dyn ProgressSink>,
) -> Result<Document, Failure> {
    let plan = task.plan.single(task.arm, task.seed);
    execute(&plan, interrupt, sink).map_err(|why| match why {
        RunError::Interrupted { .. } => Failure::Run(anyhow!(
            "interrupted; finished runs are kept, and the same call continues"
        )),
        why => Failure::Run(why.into()),
    })
}

/// Returns the runs of tasks, which workers take in this order, for an estimate of their time.
fn due(tasks: &[&Task]) -> Vec<Due> {
    let (mut kinds, mut studies) = (BTreeMap::new(), BTreeMap::new());
    let run = |(batch, task): (usize, &&Task)| {
        let (next, weight) = (kinds.len(), task.plan.cpus as f64);
        let kind = *kinds.entry((Arc::as_ptr(&task.plan), task.arm)).or_insert(next);
        let next = studies.len();
        let study = *studies.entry(task.plan.study.name().to_owned()).or_insert(next);
        Due { kind, study, batch, weight, if_needed: false }
    };
    tasks.iter().enumerate().map(run).collect()
}

/// Executes all runs that are not finished, several at a time, and returns why some failed.
pub(crate) fn all(
    tasks: &[Task],
    left: Vec<&Task>,
    jobs: Option<u16>,
    store: &Store,
    interrupt: &Interrupt,
) -> Result<Vec<String>, Failure> {
    let here = thread::available_parallelism().map_or(1, usize::from);
    let jobs = jobs.map_or(here, usize::from).min(tasks.len().max(1));
    let progress = Many::new(due(&left), jobs);
    let (queue, lost) = (Mutex::new(left.into_iter().enumerate()), Mutex::new(vec![]));
    let worker = || {
        while !interrupt.is_set() {
            // A poisoned lock still protects a consistent queue, because each change is one step.
            let next = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((place, task)) = next else { break };
            let sink = progress.of_run(place);
            if let Err(why) = store.once(task, || run(task, interrupt, &sink)) {
                lost.lock().unwrap_or_else(PoisonError::into_inner).push(why.to_string());
            }
            progress.ended(place);
        }
    };
    thread::scope(|scope| {
        (1..jobs).for_each(|_| _ = scope.spawn(worker));
        worker();
    });
    progress.end();
    if interrupt.is_set() {
        let finished = tasks.iter().filter(|task| store.finished(task).is_some()).count();
        return Err(Failure::Run(anyhow!(
            "interrupted: {finished} of {} runs are finished; the same call continues",
            tasks.len()
        )));
    }
    Ok(lost.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Returns the documents of finished runs by their place in the sweep.
fn finished(tasks: &[Task], store: &Store) -> BTreeMap<usize, Document> {
    let all = tasks.iter().enumerate();
    all.filter_map(|(place, task)| Some((place, store.finished(task)?))).collect()
}

/// Writes the values of all runs to `results.csv`.
fn write_csv(
    folder: &Path,
    tasks: &[Task],
    documents: &BTreeMap<usize, Document>,
) -> Result<(), Failure> {
    let mut text = CSV_HEAD.to_owned();
    for (place, document) in documents {
        let defaults = tasks[*place].plan.defaults();
        text.push_str(&csv_rows(document, &Notes { defaults, ..Notes::default() }));
    }
    let written = Folder::open(folder, Existing::Replace)?.write("results.csv", text)?;
    output::tell(&format!("wrote {}", written.path.display()));
    Ok(())
}

fn show(format: Format, points: Vec<Document>) -> Result<(), Failure> {
    match format {
        Format::Json => output::print(&points.iter().map(json_line).collect::<String>()),
        Format::Text => output::print(&match &points[..] {
            [] => "no run is finished\n".to_owned(),
            [point] => brief(point, &Notes::default()),
            points => sweep_text(points),
        }),
    }
}
