//! `mmscale run`.

use anyhow::Context;
use mmscale_record::{Document, On};
use mmscale_report::{Folder, Notes, json_line, text};
use mmscale_study::{
    CallError, Checks, Length, Origin, Plan, Registry, Request, Settings, execute, plan,
};

use crate::ab::ab;
use crate::args::{Format, Machine, RunArgs};
use crate::failure::Failure;
use crate::interrupt;
use crate::names::stems;
use crate::output::{self, Reader};
use crate::progress;
use crate::unwatched;
use crate::with::with;

/// Runs studies. Each document is written as soon as it is complete.
pub(crate) fn run(registry: Registry, origin: Origin, args: &RunArgs) -> Result<(), Failure> {
    if args.with.is_some() {
        return with(args);
    }
    let request = request(args, origin)?;
    if let Some(question) = &args.ab {
        if request.on.is_some_and(|on| on != On::Linux) {
            let what = "--ab compares on the live kernel: leave --on out, or say --on linux";
            return Err(Failure::Call(anyhow::anyhow!(what)));
        }
        return ab(registry, &request, question, args.format);
    }
    let plans = plan(registry, &request)?;
    let folder = args.output.as_deref().map(Folder::open).transpose()?;
    let interrupt =
        interrupt::on_signals().context("cannot watch for Ctrl-C").map_err(Failure::Run)?;
    if plans.iter().any(|plan| plan.on == On::Linux) {
        unwatched::tell();
    }
    let names = stems(&plans);
    for (place, (plan, name)) in plans.iter().zip(names).enumerate() {
        let sink = progress::watch(plan, place + 1, plans.len());
        let result = execute(plan, &interrupt, &sink);
        drop(sink);
        let document = result.map_err(|error| stopped(error, place, plans.len()))?;
        let shown = text(&document, &notes(plan));
        if let Some(folder) = &folder {
            write_files(folder, &name, &document, &shown)?;
        }
        let separator = if place == 0 { "" } else { "\n" };
        let reader = match args.format {
            Format::Text => output::write(&format!("{separator}{shown}"))?,
            Format::Json => output::write(&json_line(&document))?,
        };
        if reader == Reader::Gone && folder.is_none() {
            return Ok(());
        }
    }
    Ok(())
}

/// A failure, with what is safe already.
fn stopped(error: mmscale_study::RunError, complete: usize, all: usize) -> Failure {
    let error = anyhow::Error::from(error);
    Failure::Run(if all > 1 {
        anyhow::anyhow!("{error} ({complete} of {all} documents are complete)")
    } else {
        error
    })
}

fn write_files(
    folder: &Folder,
    name: &str,
    document: &Document,
    shown: &str,
) -> Result<(), Failure> {
    let json = folder.write(&format!("{name}.json"), &json_line(document))?;
    let text = folder.write(&format!("{name}.txt"), shown)?;
    output::tell(&format!("wrote {} and {}", json.display(), text.display()));
    Ok(())
}

fn request(args: &RunArgs, origin: Origin) -> Result<Request, Failure> {
    let mut settings = Settings::parse(&args.set).map_err(CallError::from)?;
    for (key, value) in [("cpus", &args.cpus), ("hz", &args.hz)] {
        if let Some(value) = value {
            settings.add(key, value).map_err(CallError::from)?;
        }
    }
    Ok(Request {
        studies: args.studies.clone(),
        on: args.on.map(|machine| match machine {
            Machine::Sim => On::Sim,
            Machine::Threads => On::Threads,
            Machine::Linux => On::Linux,
        }),
        arms: args.arms.clone(),
        profile: args.profile.clone(),
        settings,
        seeds: args.seeds,
        first_seed: args.seed,
        length: if args.quick { Length::Quick } else { Length::Full },
        checks: if args.check { Checks::On } else { Checks::Off },
        shape: args.shape.into(),
        origin,
    })
}

fn notes(plan: &Plan) -> Notes<'static> {
    Notes {
        summary: plan.study.summary(),
        order: plan.study.metrics().iter().map(|metric| metric.name).collect(),
        defaults: plan.defaults(),
        remarks: plan.remarks(),
    }
}
