//! `mmscale settle`: where which arm is best.
//!
//! Runs are those of sweeps, one for each point, arm and seed, and kept in the same way. The next
//! points depend on the results so far, so a call repeats the steps of an earlier one from what
//! its folder has, and continues where it ends.

mod answer;
mod costs;
mod knobs;

use anyhow::{Context, anyhow};
use mmscale_document::{Better, Document};
use mmscale_files::{Existing, Folder};
use mmscale_harness::{
    Interrupt, MetricSpec, Origin, Profiles, Question, Registry, Study, Tried, UnknownName,
};
use mmscale_report::{json_line, settlement_page, settlement_svg, settlement_text};
use serde_json::Value;

use crate::args::{Format, SettleArgs, ShapeArg};
use crate::failure::Failure;
use crate::interrupt::{self, Grace};
use crate::output;
use crate::robust::headlines;
use crate::sweep::{Spec, Store, Task, all, call, plan_of, tasks};
use knobs::Knobs;

/// A point that was run: its runs, and what they gave.
struct Point {
    tried: Tried,
    tasks: Vec<Task>,
}

/// All of a call.
struct Settle<'a> {
    registry: &'a Registry,
    origin: Origin,
    args: &'a SettleArgs,
    knobs: Knobs,
    question: Question,
    metric: &'static str,
    better: Better,
    /// The settings that all points have.
    fixed: Spec,
    interrupt: Interrupt,
}

/// Runs points near the boundary between arms, and shows the map.
pub(crate) fn settle(
    registry: &Registry,
    origin: Origin,
    args: &SettleArgs,
) -> Result<(), Failure> {
    let study = registry.find(&args.study).map_err(|why| Failure::Call(why.into()))?;
    let mut fixed = fixed(&study, args)?;
    let profile = profile(registry.profiles(), &study, args)?;
    let params = study.params_on(mmscale_document::Target::Sim);
    let knobs = Knobs::read(&args.knobs, params, &profile, &fixed)?;
    if knobs.move_cpus() && args.machine.shape == ShapeArg::Keep {
        // Nodes and caches cannot be kept with every number of CPUs.
        fixed.shape = Some("fill".to_owned());
    }
    let metric = metric(&study, args)?;
    let better = metric.better.ok_or_else(|| {
        let what = "neither direction of this metric is better; choose another one";
        call(format!("--metric {}: {what}", metric.name))
    })?;
    // The corner of the map is checked as any point, and has the arms of all.
    let corner = knobs.at(&fixed, &vec![0.0; knobs.all.len()]);
    let first = tasks(registry, &corner, &origin)?;
    let arms = first.iter().filter(|task| task.seed == first[0].seed).count();
    if arms < 2 {
        return Err(call(
            "a map compares arms: name at least two, as in --arm stock,lazy, or add one with \
             --policy"
                .to_owned(),
        ));
    }
    if !(args.matters >= 0.0 && args.matters < 100.0) {
        let what = format!("--matters {}: a difference in percent is 0 to 100", args.matters);
        return Err(call(what));
    }
    let matters = (args.matters / 100.0).ln_1p();
    let question = Question { knobs: knobs.all.clone(), arms, matters };
    let each = first.len();
    let (points, least) = (args.runs as usize / each, question.first_points());
    if points < least {
        return Err(call(format!(
            "{} runs are {points} points of {arms} arms and {} seeds; a map of {} knobs needs at \
             least {least}: use --runs {} and more",
            args.runs,
            args.seeds,
            knobs.all.len(),
            least * each
        )));
    }
    let interrupt = interrupt::on_signals(Grace::Computing)
        .context("cannot watch for Ctrl-C")
        .map_err(Failure::Run)?;
    let metric = metric.name;
    let settle =
        Settle { registry, origin, args, knobs, question, metric, better, fixed, interrupt };
    settle.run(points)
}

impl Settle<'_> {
    fn run(&self, points: usize) -> Result<(), Failure> {
        let store = Store::open(&self.args.output)?;
        let (mut all_points, mut lost): (Vec<Point>, Vec<String>) = (vec![], vec![]);
        loop {
            let tried: Vec<Tried> = all_points.iter().map(|point| point.tried.clone()).collect();
            let mut next = self.question.next(&tried);
            next.truncate(points - tried.len());
            if next.is_empty() {
                break;
            }
            let batch: Vec<(Vec<f64>, Vec<Task>)> = next
                .into_iter()
                .map(|at| Ok((at.clone(), self.tasks(&at)?)))
                .collect::<Result<_, Failure>>()?;
            let (left, others) = left(&batch, &store);
            if self.args.plan && !left.is_empty() {
                return output::print(&plan_of(&self.origin, left.into_iter()));
            }
            if self.args.collect && !left.is_empty() {
                break;
            }
            for why in others {
                output::tell(&why);
            }
            if !left.is_empty() {
                let done = all_points.len();
                output::tell(&format!("{done} of {points} points; {} runs", left.len()));
                let of_batch: Vec<Task> =
                    batch.iter().flat_map(|(_, tasks)| tasks.clone()).collect();
                lost.extend(all(&of_batch, left, self.args.jobs, &store, &self.interrupt)?);
            }
            for (at, tasks) in batch {
                let gains = self.gains(&tasks, &store);
                all_points.push(Point { tried: Tried { at, gains }, tasks });
            }
        }
        if self.args.plan {
            return output::print(&plan_of(&self.origin, std::iter::empty()));
        }
        if let [first, ..] = &lost[..] {
            let what = "their points are left out";
            output::tell(&format!("note: {} runs failed, and {what}: {first}", lost.len()));
        }
        self.show(&all_points)
    }

    fn tasks(&self, at: &[f64]) -> Result<Vec<Task>, Failure> {
        tasks(self.registry, &self.knobs.at(&self.fixed, at), &self.origin)
    }

    /// Returns for each arm the logarithm of the metric on average over seeds, negative if lower
    /// values are better. `None` if a run has no value above 0.
    fn gains(&self, tasks: &[Task], store: &Store) -> Option<Vec<f64>> {
        let values = tasks.iter().map(|task| {
            let document = store.finished(task)?;
            self.log_of(value(&document, self.metric)?)
        });
        let values: Vec<f64> = values.collect::<Option<_>>()?;
        Some(self.means(&values))
    }

    /// Returns the mean of each arm, of values of all its seeds after those of the arm before.
    fn means(&self, values: &[f64]) -> Vec<f64> {
        let seeds = values.len() / self.question.arms;
        values.chunks(seeds).map(|own| own.iter().sum::<f64>() / seeds as f64).collect()
    }

    fn log_of(&self, value: f64) -> Option<f64> {
        (value > 0.0).then(|| value.ln() * self.sign())
    }

    fn sign(&self) -> f64 {
        if self.better == Better::Higher { 1.0 } else { -1.0 }
    }

    /// Writes and prints the map.
    fn show(&self, points: &[Point]) -> Result<(), Failure> {
        let tried: Vec<Tried> = points.iter().map(|point| point.tried.clone()).collect();
        let settled = self.question.settled(&tried).ok_or_else(|| {
            let known = tried.iter().filter(|point| point.gains.is_some()).count();
            Failure::Run(anyhow!(
                "{known} of {} points have a value of `{}` above 0 in all arms and seeds, too few \
                 for a map",
                tried.len(),
                self.metric
            ))
        })?;
        let robust = self.args.robust.then(|| self.on_other_machines(&settled)).transpose()?;
        let answer = self.answer(&settled, points, robust);
        let (text, json) = (settlement_text(&answer), json_line(&answer));
        if !self.args.collect {
            let folder = Folder::open(&self.args.output, Existing::Replace)?;
            interrupt::whole(|| -> Result<(), Failure> {
                folder.write("settle.json", &json)?;
                folder.write("settle.txt", mmscale_document::plain(&text).as_bytes())?;
                folder.write("settle.svg", settlement_svg(&answer))?;
                let page = folder.write("settle.html", settlement_page(&answer))?;
                output::tell(&format!("wrote {}", page.path.display()));
                Ok(())
            })?;
        }
        output::print(match self.args.format {
            Format::Text => &text,
            Format::Json => &json,
        })
    }
}

/// Returns the runs of a batch that are not finished, and notes on files that are not theirs.
fn left<'a>(batch: &'a [(Vec<f64>, Vec<Task>)], store: &Store) -> (Vec<&'a Task>, Vec<String>) {
    let (mut left, mut notes) = (vec![], vec![]);
    for task in batch.iter().flat_map(|(_, tasks)| tasks) {
        match store.find(task) {
            crate::sweep::Found::Finished(_) => {}
            crate::sweep::Found::Nothing => left.push(task),
            crate::sweep::Found::Other(why) => {
                notes.push(crate::sweep::again(&why));
                left.push(task);
            }
        }
    }
    (left, notes)
}

fn value(document: &Document, metric: &str) -> Option<f64> {
    Some(document.arms.first()?.metrics.get(metric)?.mean)
}

/// Returns the metric of a call, or the first headline.
fn metric(study: &Study, args: &SettleArgs) -> Result<MetricSpec, Failure> {
    let all = study.metrics();
    let first = headlines(all).first().copied();
    let name = args.metric.as_deref().or(first);
    let name = name.ok_or_else(|| call(format!("`{}` has no metric", study.name())))?;
    let found = all.iter().find(|metric| metric.name == name).cloned();
    found.ok_or_else(|| {
        let known: Vec<&str> = all.iter().map(|metric| metric.name).collect();
        Failure::Call(UnknownName::new("metric", name, known).into())
    })
}

fn profile(
    profiles: &Profiles,
    study: &Study,
    args: &SettleArgs,
) -> Result<mmscale_harness::Merged, Failure> {
    let default = study.defaults().profile.as_ref();
    let path = args.machine.profile.as_deref().unwrap_or(default);
    let found = profiles.open(path);
    found.map_err(|why| Failure::from(mmscale_harness::CallError::from(why)))
}

/// Returns the spec of what all points have.
fn fixed(study: &Study, args: &SettleArgs) -> Result<Spec, Failure> {
    let one = |option: &str, text: &str| -> Result<(String, Value), Failure> {
        let wrong = |what: &str| call(format!("{option} {text}: {what}"));
        let pair = text.split_once('=').ok_or_else(|| wrong("a key and its value are needed"))?;
        if pair.1.contains(',') {
            return Err(wrong("a map has one value of it; to move it, use --knob NAME=LOW..HIGH"));
        }
        Ok((pair.0.to_owned(), Value::from(pair.1)))
    };
    let machine = &args.machine;
    let changes = &args.arms.changes;
    let set = changes.set.iter().map(|text| one("--set", text));
    let cost = machine.costs.iter().map(|text| one("--cost", text));
    let single = |option: &str, text: &Option<String>| -> Result<Option<Value>, Failure> {
        let Some(text) = text else { return Ok(None) };
        Ok(Some(one(option, &format!("{option}={text}"))?.1))
    };
    let mut arms = args.arms.arms.clone();
    if arms.is_empty() && !changes.policies.is_empty() {
        // As in a run, policies are compared with the first arm.
        arms.extend(study.arms().first().map(|arm| arm.name.to_string()));
    }
    let list = |texts: &[String]| (!texts.is_empty()).then(|| Value::from(texts.to_vec()));
    let shape = clap::ValueEnum::to_possible_value(&machine.shape);
    Ok(Spec {
        study: Some(args.study.clone().into()),
        profile: machine.profile.as_ref().map(|path| Value::from(path.to_string_lossy())),
        cpus: single("--cpus", &machine.cpus)?,
        hz: single("--hz", &machine.hz)?,
        shape: shape.map(|shape| shape.get_name().to_owned()),
        arm: list(&arms),
        policy: list(&changes.policies),
        cost: cost.collect::<Result<_, _>>()?,
        linux: changes.linux.clone(),
        set: set.collect::<Result<_, _>>()?,
        seeds: Some(args.seeds),
        seed: Some(args.first.seed),
        quick: !args.full,
        check: false,
    })
}
