//! The block for a cover letter, from saved runs.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::anyhow;
use mmscale_calibrate::Basis;
use mmscale_calibrate::review::review;
use mmscale_document::{Document, Robustness, Target};
use mmscale_harness::{Length, Params, Profiles, Registry, Study, costs_of, with_costs};
use mmscale_report::compare::{Saved, read};
use mmscale_report::{About, Calls, Letter, Notes, letter_text, lkp_text};

use crate::args::{LetterForm, ReportArgs};
use crate::failure::Failure;
use crate::output;

use super::calls::SimilarCalls;

/// Writes a letter about the first run of a call.
pub(super) fn letter(registry: &Registry, args: &ReportArgs) -> Result<(), Failure> {
    let (mut runs, mut analyses) = (vec![], vec![]);
    let mut first = 0;
    for (place, path) in args.paths.iter().enumerate() {
        let side = read(path)?;
        runs.extend(side.runs);
        analyses.extend(side.analyses);
        if place == 0 {
            first = runs.len();
        }
    }
    let subject = subject(args, &runs[..first])?;
    let document = with_arms(&subject.document, &args.arms)?;
    if args.form == LetterForm::Lkp {
        return output::print(&lkp(registry, &document)?);
    }
    let others = others(subject, &runs, &document);
    let others = others.iter().map(|other| (other, notes(registry, other))).collect();
    let analyses: Vec<&Robustness> =
        analyses.iter().filter(|found| found.study == document.study).collect();
    let study = study(registry, &document);
    let about = about(study.as_ref(), registry, &document);
    output::print(&letter_text(&Letter { document: &document, others, analyses, about }))
}

/// Formats the first two arms of a document in the layout of the kernel test robot.
fn lkp(registry: &Registry, document: &Document) -> Result<String, Failure> {
    let [before, after] = &document.arms[..] else {
        let names = document.arms.iter().skip(1).map(|arm| arm.arm.as_str());
        let names = names.collect::<Vec<_>>().join(", ");
        let what = format!("this layout has two arms: choose one of {names} with --arm");
        return Err(Failure::Call(anyhow!(what)));
    };
    let order = notes(registry, document).order;
    let of = |name: &&str| before.metrics.get(*name).is_some_and(|metric| metric.headline);
    let headline = order.iter().find(|name| of(name)).copied().unwrap_or("ops_per_s");
    Ok(lkp_text(document, headline, before, after))
}

/// Returns the run that the letter is about: of the first path, the one with the most CPUs.
fn subject<'a>(args: &ReportArgs, runs: &'a [Saved]) -> Result<&'a Saved, Failure> {
    let path = args.paths[0].display();
    let most = runs.iter().map(|run| run.document.cpus).max().ok_or_else(|| {
        let what = "has no document of a run; `mmscale run STUDY -o DIR` writes one";
        Failure::Call(anyhow!("`{path}` {what}"))
    })?;
    let mut studies: Vec<&str> = runs.iter().map(|run| run.document.study.as_str()).collect();
    studies.sort_unstable();
    studies.dedup();
    let largest: Vec<&Saved> = runs.iter().filter(|run| run.document.cpus == most).collect();
    let (what, from) = match (&studies[..], &largest[..]) {
        ([_], [one]) => return Ok(one),
        ([_], some) => (format!("{} runs with {most} CPUs", some.len()), some.to_vec()),
        (some, _) => (format!("runs of {}", some.join(", ")), runs.iter().collect()),
    };
    let example = from[0].path.display();
    Err(Failure::Call(anyhow!(
        "`{path}` has {what}: name the one that the letter is about first, as in `mmscale report \
         --letter {example} {path}`"
    )))
}

/// Returns a document with its first arm and the chosen ones.
fn with_arms(document: &Document, chosen: &[String]) -> Result<Document, Failure> {
    let known = || {
        let names = document.arms.iter().skip(1).map(|arm| arm.arm.as_str());
        names.collect::<Vec<_>>().join(", ")
    };
    let others = document.arms.iter().skip(1);
    for name in chosen {
        if !others.clone().any(|arm| arm.arm == *name) {
            let what = format!("there is no arm `{name}` to write about (known: {})", known());
            return Err(Failure::Call(anyhow!(what)));
        }
    }
    if document.arms.len() < 2 {
        let what = "a letter compares arms, and the run has only one: run it with at least two, as \
                    in --arm stock,lazy";
        return Err(Failure::Call(anyhow!(what)));
    }
    let mut document = document.clone();
    let first = document.arms[0].arm.clone();
    document.arms.retain(|arm| chosen.is_empty() || arm.arm == first || chosen.contains(&arm.arm));
    Ok(document)
}

/// Returns the other runs that compare some of the document's arms with the same first arm, without
/// their other arms.
fn others(subject: &Saved, runs: &[Saved], document: &Document) -> Vec<Document> {
    let arms = |other: &Document| {
        let mut other = other.clone();
        let same_first = other.arms.first().is_some_and(|arm| arm.arm == document.arms[0].arm);
        other.arms.retain(|arm| document.arms.iter().any(|shown| shown.arm == arm.arm));
        (same_first && other.arms.len() > 1).then_some(other)
    };
    let mut found: Vec<Document> = vec![];
    for run in runs.iter().filter(|run| run.document != subject.document) {
        match arms(&run.document) {
            Some(other) if !found.contains(&other) => found.push(other),
            Some(_) => {}
            None => output::tell(&format!(
                "left out: `{}` does not compare these arms",
                run.path.display()
            )),
        }
    }
    found.sort_by_key(|other| (other.study != document.study, other.study.clone(), other.cpus));
    found
}

/// Returns the study of a document. That of a script is made from the text in the document.
fn study(registry: &Registry, document: &Document) -> Option<Study> {
    match &document.script {
        Some(text) => registry.script_of(&document.study, text).ok(),
        None => registry.find(&document.study).ok(),
    }
}

/// Returns the additions of a document's study, if this program has it.
pub(super) fn notes(registry: &Registry, document: &Document) -> Notes<'static> {
    let Some(study) = study(registry, document) else { return Notes::default() };
    Notes {
        summary: study.summary().to_owned(),
        order: study.metrics().iter().map(|metric| metric.name).collect(),
        defaults: Params::defaults(study.params_on(document.on), Length::Full).values().clone(),
        ..Notes::default()
    }
}

fn about<'a>(study: Option<&'a Study>, registry: &Registry, document: &Document) -> About<'a> {
    let arms: BTreeMap<&str, &str> = study
        .map(Study::arms)
        .unwrap_or_default()
        .iter()
        .map(|arm| (&*arm.name, &*arm.help))
        .collect();
    let call = SimilarCalls::of(document);
    let others: Vec<&str> =
        registry.all().map(|study| study.name()).filter(|name| *name != document.study).collect();
    let call = call.as_ref();
    let smaller: Vec<String> =
        [2, 8].into_iter().filter(|n| *n < document.cpus).map(|n| n.to_string()).collect();
    let calls = Calls {
        smaller: call
            .filter(|_| !smaller.is_empty())
            .and_then(|call| call.on_cpus(&smaller.join(","))),
        profile: call.and_then(|call| call.on_profile("PROFILE")),
        workloads: call.and_then(|call| call.of_studies(&others, &document.arms[1].arm)),
        robust: call.and_then(SimilarCalls::robust),
        check: call.map(|call| call.run("--check")),
    };
    About {
        notes: notes(registry, document),
        link: study.and_then(Study::report).map(|report| &*report.link),
        arms,
        sources: sources(registry.profiles(), document, call.and_then(SimilarCalls::profile)),
        calls,
    }
}

/// Formats the kinds of source of the profile's numbers. `None` if the machine is not simulated.
fn sources(profiles: &Profiles, document: &Document, path: Option<&Path>) -> Option<String> {
    let hash = document.profile_hash.as_deref().filter(|_| document.on == Target::Sim)?;
    let merged = profiles.open(path.unwrap_or(document.profile.as_ref())).ok();
    let merged = merged.and_then(|merged| with_costs(&merged, &costs_of(&document.params)).ok());
    let merged = merged.filter(|merged| {
        merged.clone().resolve().is_ok_and(|profile| format!("{:016x}", profile.hash) == hash)
    });
    let Some(merged) = merged else {
        return Some("unknown: the profile is not here, or its numbers have changed".to_owned());
    };
    let review = review(&merged);
    let count = |basis: Basis| review.count(basis, false) + review.count(basis, true);
    let kinds = Basis::ALL.into_iter().filter(|basis| count(*basis) > 0);
    let kinds: Vec<String> =
        kinds.map(|basis| format!("{} {}", count(basis), basis.name())).collect();
    Some(format!("the profile has {} numbers: {}", review.numbers.len(), kinds.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmscale_document::{Counterpart, counterpart};
    use mmscale_harness::{
        Interrupt, Origin, PolicyArm, ProgressSink, Request, RunEvent, Shape, execute, plan,
    };
    use std::sync::Arc;

    use crate::request::{settings, simulated};

    struct Silent;

    impl ProgressSink for Silent {
        fn event(&self, _: RunEvent) {}
    }

    /// Runs a study with two arms.
    fn run_of(study: &str, set: &[String]) -> Document {
        let build = mmscale_document::Build::new("mmscale", "0", "unknown");
        let origin = Origin { build, program: None, command: vec![] };
        let request = Request {
            arms: vec!["stock".to_owned()],
            policies: vec![PolicyArm::parse("other:lru=lazy").expect("a policy")],
            settings: settings(set, Some("32"), None).expect("settings"),
            seeds: Some(2),
            length: Length::Quick,
            shape: Shape::Fill,
            ..simulated(vec![study.to_owned()], origin)
        };
        let plans = plan(mmscale_studies::all(), &request).expect("a plan");
        let sink: Arc<dyn ProgressSink> = Arc::new(Silent);
        execute(&plans[0], &Interrupt::default(), &sink).expect("a run")
    }

    /// `explain` reads the figures of the document in the layout of the robot.
    #[test]
    fn explain_reads_the_layout_of_the_robot_with_the_same_figures() {
        let mut waits = 0;
        for (study, set) in [("churn", vec!["madvise=none".to_owned()]), ("page_fault1", vec![])] {
            let document = run_of(study, &set);
            let text = lkp(mmscale_studies::all(), &document).expect("two arms");
            let report = mmscale_measured::read(text.as_bytes()).expect("a text");
            let robot = report.robot.expect("the layout of a robot");
            assert_eq!(robot.cpus(), Some(document.cpus));
            let [before, after] = &document.arms[..] else { panic!("two arms") };
            for metric in &robot.metrics {
                let name = metric.name.strip_prefix(&format!("{}.", document.study));
                let name = name.expect("the study");
                for (arm, read) in [(before, metric.before), (after, metric.after)] {
                    let mean = arm.metrics[name].mean;
                    let slack = (0.0051 + 0.5 * f64::from(mean.abs() >= 1000.0)).min(mean.abs());
                    assert!((read - mean).abs() <= slack, "{name}: {read} for {mean}\n{text}");
                }
            }
            for (side, arm) in [before, after].into_iter().enumerate() {
                let time = arm.cpu_time.expect("simulated").all_ns as f64;
                let mut own = BTreeMap::<&str, f64>::new();
                for lock in arm.locks.iter().filter(|lock| !lock.sleeps) {
                    *own.entry(&lock.class).or_default() +=
                        100.0 * lock.wait_within_ns() as f64 / time;
                }
                let mut read = BTreeMap::<&str, f64>::new();
                for (class, (before, after)) in crate::explain::locks(&robot) {
                    let Some(row) =
                        mmscale_document::LOCK_CLASSES.iter().find(|row| row.class == class)
                    else {
                        panic!("{class} is no class\n{text}");
                    };
                    let Counterpart::Class(class) = counterpart(row.class) else {
                        panic!("{class}")
                    };
                    *read.entry(class).or_default() += if side == 0 { before } else { after };
                    waits += 1;
                }
                for (class, share) in own {
                    let found = read.get(class).copied().unwrap_or(0.0);
                    // Each line is rounded, and lines below the least share are not there.
                    assert!((found - share).abs() < 0.06, "{class}: {found} for {share}\n{text}");
                }
            }
        }
        assert!(waits > 2, "{waits}");
    }
}
