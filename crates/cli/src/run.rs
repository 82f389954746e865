//! `mmscale run`.

use anyhow::Context;
use mmscale_document::{Document, FailureRecord, Robustness, Target};
use mmscale_harness::{
    CallError, Checks, Interrupt, Length, Origin, Plan, PolicyArm, Registry, Request, RunError,
    execute, fits_host, hold_scale, linux_version, plan,
};
use mmscale_report::{
    CSV_HEAD, Folder, Notes, Written, brief, csv_rows, foot_text, json_line, markdown,
    markdown_page, page, robust_brief, robust_text, sweep_text, text,
};
use serde::Serialize;

use crate::args::{self, Format, Machine, RunArgs, RunFormat};
use crate::failure::Failure;
use crate::file_names::stems;
use crate::interrupt::{self, Grace};
use crate::kernel;
use crate::output::{self, Reader};
use crate::progress;
use crate::robust::MoveCosts;
use crate::settings::settings;

/// Runs studies. Each document is written as soon as it is complete.
pub(crate) fn run(registry: Registry, origin: Origin, args: &RunArgs) -> Result<(), Failure> {
    if args.with.is_some() {
        return kernel::with(args, plain(args, "--with")?);
    }
    let request = request(args, origin)?;
    if let Some(question) = &args.ab {
        return ab(registry, &request, question, plain(args, "--ab")?);
    }
    // Planning reads files and may take a moment, so signals are handled already before it.
    let grace = if args.on == Some(Machine::Linux) { Grace::Live } else { Grace::Computing };
    let interrupt =
        interrupt::on_signals(grace).context("cannot watch for Ctrl-C").map_err(Failure::Run)?;
    let plans = plan(registry, &request)?;
    fits_host(&plans)?;
    let robust = Robust::of(registry, args, &request, &plans)?;
    let names = stems(&plans);
    let folder = destination(args, &names)?;
    clear_kernel(&plans);
    let (mut lost, mut written, mut complete) = (Lost::default(), Vec::new(), Vec::new());
    let mut failed = None;
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
                if is_together(args) && !complete.is_empty() && !args.details {
                    interrupt::whole(|| output::print(&together(&complete, args)))?;
                }
                return Err(stopped(error, place - lost.documents, plans.len()));
            }
        };
        lost.count(&document);
        // A failed analysis loses no document.
        let analysed = robust.as_ref().map(|robust| robust.analyse(place, &interrupt));
        let analysis = analysed.transpose().unwrap_or_else(|why| {
            failed = Some(why);
            None
        });
        let mut notes = notes(plan, &args.only);
        notes.robust = analysis.as_ref().map(robust_brief);
        let reader = interrupt::whole(|| {
            if let Some(folder) = &folder {
                written.extend(store(folder, &name, &document, &notes, analysis.as_ref())?);
            }
            show(args, &document, &notes, analysis.as_ref(), plans.len(), complete.len())
        })?;
        if reader == Reader::Gone && folder.is_none() {
            return lost.failure(&plans);
        }
        complete.push((document, notes));
        if failed.is_some() {
            break;
        }
    }
    if is_together(args) && plans.len() > 1 {
        interrupt::whole(|| output::print(&together(&complete, args)))?;
    }
    let named = output::as_named(&written);
    lost.failure(&plans)?;
    failed.map_or(named, Err)
}

/// Removes what earlier runs left in this kernel, and says what it is, if a run is on it.
fn clear_kernel(plans: &[Plan]) {
    if plans.iter().any(|plan| plan.on == Target::Linux) {
        kernel::clear();
        kernel::tell();
    }
}

/// Returns the folder for the files of a call, which are checked before it starts.
fn destination(args: &RunArgs, names: &[String]) -> Result<Option<Folder>, Failure> {
    let open = |path| Folder::open(path, output::existing(args.replace));
    let Some(folder) = args.output.as_deref().map(open).transpose()? else { return Ok(None) };
    let analyses = names.iter().filter(|_| args.robust).map(|name| robust_name(name));
    let mut files = names.iter().cloned().chain(analyses).flat_map(|name| files_of(&name));
    files.try_for_each(|file| folder.free(&file))?;
    Ok(Some(folder))
}

/// Writes a document and its analysis, with all details.
fn store(
    folder: &Folder,
    name: &str,
    document: &Document,
    notes: &Notes<'_>,
    analysis: Option<&Robustness>,
) -> Result<Vec<Written>, Failure> {
    let all = Notes { only: vec![], ..notes.clone() };
    let mut written: Vec<Written> =
        write_files(folder, name, document, &text(document, &all))?.into();
    if let Some(analysis) = analysis {
        let (name, text) = (robust_name(name), robust_text(analysis));
        written.extend(write_files(folder, &name, analysis, &text)?);
    }
    Ok(written)
}

/// Returns whether several documents are shown together, at the end of a call.
fn is_together(args: &RunArgs) -> bool {
    matches!(args.format, RunFormat::Text | RunFormat::Md)
}

/// Returns the form of the output of an option that has no tables.
fn plain(args: &RunArgs, option: &str) -> Result<Format, Failure> {
    match args.format {
        RunFormat::Text => Ok(Format::Text),
        RunFormat::Json => Ok(Format::Json),
        RunFormat::Md | RunFormat::Csv => {
            let what = format!("{option} has no tables: use --format text or --format json");
            Err(Failure::Call(anyhow::anyhow!(what)))
        }
    }
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

/// Writes a document to stdout in the requested format, as JSON with its analysis. Several are
/// shown together at the end; before that only on request.
fn show(
    args: &RunArgs,
    document: &Document,
    notes: &Notes<'_>,
    analysis: Option<&Robustness>,
    of: usize,
    place: usize,
) -> Result<Reader, Failure> {
    let separator = if place == 0 { "" } else { "\n" };
    match args.format {
        RunFormat::Json => {
            let analysis = analysis.map_or_else(String::new, json_line);
            output::write(&format!("{}{analysis}", json_line(document)))
        }
        RunFormat::Csv => {
            let head = if place == 0 { CSV_HEAD } else { "" };
            output::write(&format!("{head}{}", csv_rows(document, notes)))
        }
        RunFormat::Text if args.details => {
            output::write(&format!("{separator}{}", text(document, notes)))
        }
        RunFormat::Text if of == 1 => output::write(&brief(document, notes)),
        RunFormat::Md if args.details || of == 1 => {
            output::write(&format!("{separator}{}", markdown(document, notes, args.details)))
        }
        RunFormat::Text | RunFormat::Md => Ok(Reader::There),
    }
}

/// Formats several documents: the points of sweeps side by side, or a page with an answer of each.
fn together(complete: &[(Document, Notes<'_>)], args: &RunArgs) -> String {
    let separator = if args.details { "\n" } else { "" };
    if args.format == RunFormat::Md {
        return format!("{separator}{}", markdown_page(complete));
    }
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

/// Returns the name of an analysis next to the document of a run.
fn robust_name(name: &str) -> String {
    format!("{name}-robust")
}

/// Analyses of the conclusions of a call, one for each plan.
struct Robust {
    registry: Registry,
    plans: Vec<Plan>,
    move_costs: MoveCosts,
}

impl Robust {
    /// Plans the analyses that a call asks for: with its settings, and the seeds and length that
    /// `mmscale robust` has by default.
    fn of(
        registry: Registry,
        args: &RunArgs,
        request: &Request,
        plans: &[Plan],
    ) -> Result<Option<Self>, Failure> {
        if !args.robust {
            return Ok(None);
        }
        let wrong = |what: &str| Err(Failure::Call(anyhow::anyhow!("--robust {what}")));
        if plans.iter().any(|plan| plan.on != Target::Sim) {
            return wrong("moves the costs of a simulated machine: use --on sim");
        }
        if plans.iter().any(|plan| plan.arms.len() < 2) {
            return wrong("is about changes between arms: name at least two, as --arm stock,lazy");
        }
        if args.format == RunFormat::Csv {
            return wrong("has no rows of values: use another --format");
        }
        let quick = Request {
            seeds: Some(args::SEEDS),
            length: Length::Quick,
            checks: Checks::Off,
            blame: false,
            ..request.clone()
        };
        let move_costs = MoveCosts::by_default(args.profile.clone());
        Ok(Some(Self { registry, plans: plan(registry, &quick)?, move_costs }))
    }

    fn analyse(&self, place: usize, interrupt: &Interrupt) -> Result<Robustness, Failure> {
        self.move_costs.analyse(self.registry, &self.plans[place], interrupt)
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
    document: &impl Serialize,
    shown: &str,
) -> Result<[Written; 2], Failure> {
    let [json, text] = files_of(name);
    let json = folder.write(&json, json_line(document))?;
    let text = folder.write(&text, shown)?;
    output::tell(&format!("wrote {} and {}", json.path.display(), text.path.display()));
    Ok([json, text])
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
        hold_scale: args.hold.as_deref().map(hold_scale).transpose()?,
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
        robust: None,
    }
}
