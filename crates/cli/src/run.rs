//! `mmscale run`.

use anyhow::Context;
use mmscale_document::{Document, FailureRecord, Target};
use mmscale_harness::{
    CallError, Checks, Length, Origin, Plan, PolicyArm, Registry, Request, RunError, Settings,
    execute, fits_host, linux_version, plan,
};
use mmscale_report::{Folder, Notes, Written, brief, foot_text, json_line, page, sweep_text, text};

use crate::args::{Format, Machine, RunArgs};
use crate::failure::Failure;
use crate::file_names::stems;
use crate::interrupt::{self, Grace};
use crate::kernel;
use crate::output::{self, Reader};
use crate::progress;

/// Runs studies. Each document is written as soon as it is complete.
pub(crate) fn run(registry: Registry, origin: Origin, args: &RunArgs) -> Result<(), Failure> {
    if args.with.is_some() {
        return kernel::with(args);
    }
    let request = request(args, origin)?;
    if let Some(question) = &args.ab {
        return ab(registry, &request, question, args.format);
    }
    // Planning reads files and may take a moment, so signals are handled already before it.
    let grace = if args.on == Some(Machine::Linux) { Grace::Live } else { Grace::Computing };
    let interrupt =
        interrupt::on_signals(grace).context("cannot watch for Ctrl-C").map_err(Failure::Run)?;
    let plans = plan(registry, &request)?;
    fits_host(&plans)?;
    let existing = output::existing(args.replace);
    let open = |path| Folder::open(path, existing);
    let folder = args.output.as_deref().map(open).transpose()?;
    let names = stems(&plans);
    if let Some(folder) = &folder {
        let mut files = names.iter().flat_map(|name| files_of(name));
        files.try_for_each(|file| folder.free(&file))?;
    }
    if plans.iter().any(|plan| plan.on == Target::Linux) {
        kernel::clear();
        kernel::tell();
    }
    let (mut lost, mut written) = (Lost::default(), Vec::new());
    let mut complete: Vec<(Document, Notes<'static>)> = Vec::new();
    for (place, (plan, name)) in plans.iter().zip(names).enumerate() {
        let sink = progress::watch(plan, place + 1, plans.len());
        let result = execute(plan, &interrupt, &sink);
        drop(sink);
        let document = match result {
            Ok(document) => document,
            Err(error @ RunError::Failed { .. }) if plans.len() > 1 => {
                output::tell(&format!("error: {error}"));
                lost.documents += 1;
                continue;
            }
            Err(error) => {
                // An interrupt loses no document that is complete.
                if args.format == Format::Text && !complete.is_empty() && !args.details {
                    interrupt::whole(|| output::print(&together(&complete, args)))?;
                }
                return Err(stopped(error, place - lost.documents, plans.len()));
            }
        };
        lost.count(&document);
        let notes = notes(plan, &args.only);
        let reader = interrupt::whole(|| {
            if let Some(folder) = &folder {
                let all = Notes { only: vec![], ..notes.clone() };
                written.extend(write_files(folder, &name, &document, &text(&document, &all))?);
            }
            show(args, &document, &notes, plans.len(), place)
        })?;
        if reader == Reader::Gone && folder.is_none() {
            return lost.failure(&plans);
        }
        complete.push((document, notes));
    }
    if args.format == Format::Text && plans.len() > 1 {
        interrupt::whole(|| output::print(&together(&complete, args)))?;
    }
    let named = output::as_named(&written);
    lost.failure(&plans)?;
    named
}

/// Compares two values on the live kernel.
fn ab(
    registry: Registry,
    request: &Request,
    question: &str,
    format: Format,
) -> Result<(), Failure> {
    if request.on.is_some_and(|on| on != Target::Linux) {
        let what = "--ab compares on the live kernel: leave --on out, or use --on linux";
        return Err(Failure::Call(anyhow::anyhow!(what)));
    }
    if !request.policies.is_empty() {
        let what = "--ab compares on the live kernel, to which --policy cannot be applied: \
                    leave --policy out";
        return Err(Failure::Call(anyhow::anyhow!(what)));
    }
    kernel::ab(registry, request, question, format)
}

/// Writes a document to stdout in the requested format. Several documents are shown together at the
/// end; before that only on request.
fn show(
    args: &RunArgs,
    document: &Document,
    notes: &Notes<'_>,
    of: usize,
    place: usize,
) -> Result<Reader, Failure> {
    let separator = if place == 0 { "" } else { "\n" };
    match args.format {
        Format::Json => output::write(&json_line(document)),
        Format::Text if args.details => {
            output::write(&format!("{separator}{}", text(document, notes)))
        }
        Format::Text if of == 1 => output::write(&brief(document, notes)),
        Format::Text => Ok(Reader::There),
    }
}

/// Formats several documents: the points of sweeps side by side, or a page with an answer of each.
fn together(complete: &[(Document, Notes<'_>)], args: &RunArgs) -> String {
    let separator = if args.details { "\n" } else { "" };
    let mut studies: Vec<&str> =
        complete.iter().map(|(document, _)| document.study.as_str()).collect();
    studies.dedup();
    let shown = if studies.len() > 1 {
        page(complete)
    } else {
        let documents: Vec<Document> =
            complete.iter().map(|(document, _)| document.clone()).collect();
        format!("{}{}", sweep_text(&documents), foot_text(complete))
    };
    format!("{separator}{shown}")
}

/// Runs and documents without a result, if other runs succeeded.
#[derive(Default)]
struct Lost {
    documents: usize,
    runs: usize,
}

impl Lost {
    /// Counts and reports the failed runs of a document.
    fn count(&mut self, document: &Document) {
        self.runs += document.failures.len();
        for FailureRecord { arm, seed, why } in &document.failures {
            let Document { study, on, .. } = document;
            output::tell(&format!(
                "error: study `{study}`, arm `{arm}`, seed {seed} on {on}: {why}"
            ));
        }
    }
    fn failure(self, plans: &[Plan]) -> Result<(), Failure> {
        let Self { documents, runs } = self;
        let all: usize = plans.iter().map(Plan::runs).sum();
        let mut what = Vec::new();
        if documents > 0 {
            what.push(format!("{documents} of {} documents have no result", plans.len()));
        }
        if runs > 0 {
            what.push(format!("{runs} of {all} runs failed and are left out of their documents"));
        }
        if what.is_empty() { Ok(()) } else { Err(Failure::Run(anyhow::anyhow!(what.join("; ")))) }
    }
}

/// Returns the file names of a document.
fn files_of(name: &str) -> [String; 2] {
    [format!("{name}.json"), format!("{name}.txt")]
}

/// Converts a failure, with the number of documents that are already complete.
fn stopped(error: RunError, complete: usize, all: usize) -> Failure {
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
) -> Result<[Written; 2], Failure> {
    let [json, text] = files_of(name);
    let json = folder.write(&json, &json_line(document))?;
    let text = folder.write(&text, shown)?;
    output::tell(&format!("wrote {} and {}", json.path.display(), text.path.display()));
    Ok([json, text])
}

/// Returns the settings of a call: those of `--set`, with CPUs and HZ.
pub(crate) fn settings(
    set: &[String],
    cpus: Option<&str>,
    hz: Option<&str>,
) -> Result<Settings, Failure> {
    let mut settings = Settings::parse(set).map_err(CallError::from)?;
    for (key, value) in [("cpus", cpus), ("hz", hz)] {
        if let Some(value) = value {
            settings.add(key, value).map_err(CallError::from)?;
        }
    }
    Ok(settings)
}

fn request(args: &RunArgs, origin: Origin) -> Result<Request, Failure> {
    let settings = settings(&args.set, args.cpus.as_deref(), args.hz.as_deref())?;
    let policies = args.policies.iter().map(|text| PolicyArm::parse(text));
    Ok(Request {
        studies: args.studies.clone(),
        on: args.on.map(|machine| match machine {
            Machine::Sim => Target::Sim,
            Machine::Threads => Target::Threads,
            Machine::Linux => Target::Linux,
        }),
        arms: args.arms.clone(),
        policies: policies.collect::<Result<_, _>>().map_err(CallError::from)?,
        linux: args.linux.as_deref().map(linux_version).transpose().map_err(CallError::from)?,
        profile: args.profile.clone(),
        settings,
        seeds: args.seeds,
        first_seed: args.seed,
        length: if args.quick { Length::Quick } else { Length::Full },
        checks: if args.check { Checks::On } else { Checks::Off },
        blame: args.blame,
        hold_scale: None,
        shape: args.shape.into(),
        origin,
    })
}

fn notes(plan: &Plan, only: &[String]) -> Notes<'static> {
    Notes {
        summary: plan.study.summary(),
        order: plan.study.metrics().iter().map(|metric| metric.name).collect(),
        defaults: plan.defaults(),
        remarks: plan.remarks(),
        only: only.to_vec(),
    }
}
