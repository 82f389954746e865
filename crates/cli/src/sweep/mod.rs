//! `mmscale sweep`: many runs that are kept one by one.

mod spec;
mod store;
mod tasks;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::{Context, anyhow};
use mmscale_document::Document;
use mmscale_harness::{Interrupt, Origin, ProgressSink, Registry, RunError, execute, gathered};
use mmscale_report::{CSV_HEAD, Existing, Folder, Notes, brief, csv_rows, json_line, sweep_text};
use serde_json::json;

use crate::args::{Format, SweepArgs};
use crate::failure::Failure;
use crate::interrupt::{self, Grace};
use crate::output;
use crate::progress::Many;
use spec::{Spec, call};
use store::Store;
use tasks::{Task, tasks};

/// The name and version of the list of runs.
const SCHEMA: &str = "mmscale/sweep/1";

/// Executes the runs of a spec that are not finished, or lists them, or shows their results.
pub(crate) fn sweep(registry: Registry, origin: Origin, args: &SweepArgs) -> Result<(), Failure> {
    let spec = Spec::read(&args.spec)?;
    let tasks = tasks(registry, &spec, &origin)?;
    if args.plan {
        let list: Vec<_> = tasks.iter().map(Task::json).collect();
        let plan = json!({"schema": SCHEMA, "build": origin.build, "runs": list});
        return output::print(&format!("{plan}\n"));
    }
    let folder = args.output.as_deref().expect("clap requires it");
    let store = Store::open(folder)?;
    let interrupt = interrupt::on_signals(Grace::Computing)
        .context("cannot watch for Ctrl-C")
        .map_err(Failure::Run)?;
    if let Some(key) = &args.one {
        return one(&tasks, key, &store, &interrupt);
    }
    let lost = if args.collect { vec![] } else { all(&tasks, args, &store, &interrupt)? };
    let documents = finished(&tasks, &store)?;
    if !args.collect {
        write_csv(folder, &tasks, &documents)?;
    }
    show(args.format, gathered(documents.into_values().collect()))?;
    match lost.len() {
        0 => Ok(()),
        n => Err(Failure::Run(anyhow!("{n} of {} runs failed: {}", tasks.len(), lost[0]))),
    }
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
    let progress = Many::new([1.0]);
    let executed = store.once(key, || run(task, interrupt, &progress.of_run(0)))?;
    output::print(&format!("{}\n", json!({"key": key, "executed": executed})))
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

/// Executes all runs that are not finished, several at a time, and returns why some failed.
fn all(
    tasks: &[Task],
    args: &SweepArgs,
    store: &Store,
    interrupt: &Interrupt,
) -> Result<Vec<String>, Failure> {
    let left: Vec<&Task> = tasks.iter().filter(|task| !store.has(&task.key)).collect();
    let kept = tasks.len() - left.len();
    output::tell(&format!("{} runs, {kept} of them finished before", tasks.len()));
    let progress = Many::new(left.iter().map(|task| task.plan.cpus as f64));
    let (queue, lost) = (Mutex::new(left.into_iter().enumerate()), Mutex::new(vec![]));
    let worker = || {
        while !interrupt.is_set() {
            // A poisoned lock still protects a consistent queue, because each change is one step.
            let next = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((place, task)) = next else { break };
            let sink = progress.of_run(place);
            if let Err(why) = store.once(&task.key, || run(task, interrupt, &sink)) {
                lost.lock().unwrap_or_else(PoisonError::into_inner).push(why.to_string());
            }
            progress.ended(place);
        }
    };
    let here = thread::available_parallelism().map_or(1, usize::from);
    let jobs = args.jobs.map_or(here, usize::from).min(tasks.len().max(1));
    thread::scope(|scope| {
        (1..jobs).for_each(|_| _ = scope.spawn(worker));
        worker();
    });
    progress.end();
    if interrupt.is_set() {
        let finished = tasks.iter().filter(|task| store.has(&task.key)).count();
        return Err(Failure::Run(anyhow!(
            "interrupted: {finished} of {} runs are finished; the same call continues",
            tasks.len()
        )));
    }
    Ok(lost.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Returns the documents of finished runs by their place in the sweep.
fn finished(tasks: &[Task], store: &Store) -> Result<BTreeMap<usize, Document>, Failure> {
    let mut documents = BTreeMap::new();
    for (place, task) in tasks.iter().enumerate() {
        if let Some(document) = store.read(&task.key)? {
            documents.insert(place, document);
        }
    }
    Ok(documents)
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
