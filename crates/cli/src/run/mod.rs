//! `mmscale run`.

mod results;

use anyhow::Context;
use mmscale_document::{Robustness, Target};
use mmscale_harness::{
    CallError, Checks, Interrupt, Length, Origin, Plan, PolicyArm, Registry, Request, execute_each,
    fits_host, hold_scale, linux_version, plan,
};

use crate::args::{self, Format, Machine, RunArgs, RunFormat};
use crate::destination::{files_of, for_documents};
use crate::failure::Failure;
use crate::file_names::stems;
use crate::interrupt::{self, Grace};
use crate::kernel;
use crate::output;
use crate::progress;
use crate::robust::MoveCosts;
use crate::settings::settings;
use results::{Results, robust_name};

/// Runs studies. Each document is written as soon as it is complete.
pub(crate) fn run(registry: &Registry, origin: Origin, args: &RunArgs) -> Result<(), Failure> {
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
    if !args.only.is_empty() && plans.len() > 1 && results::is_together(args) && !args.details {
        let what = "--only chooses lines of a single run, and this call shows several side by \
                    side: add --details, or use --format csv";
        return Err(Failure::Call(anyhow::anyhow!(what)));
    }
    let robust = Robust::of(registry, args, &request, &plans)?;
    let existing = output::existing(args.replace);
    let (folder, names) = for_documents(args.output.as_deref(), stems(&plans), existing)?;
    if let Some(folder) = folder.as_ref().filter(|_| args.robust) {
        let mut files = names.iter().flat_map(|name| files_of(&robust_name(name)));
        files.try_for_each(|file| folder.free(&file))?;
    }
    clear_kernel(&plans);
    let call = progress::Call::new(&plans);
    let watch = |place: usize| call.watch(place);
    let mut results = Results::new(args, &plans, names, folder);
    let ended = execute_each(&plans, &interrupt, &watch, |place, result| {
        let analyse = || robust.as_ref().map(|robust| robust.analyse(place, &interrupt));
        results.take(place, result, analyse)
    });
    ended.break_value().unwrap_or_else(|| results.end())
}

/// Removes what earlier runs left in this kernel, and says what it is, if a run is on it.
fn clear_kernel(plans: &[Plan]) {
    if plans.iter().any(|plan| plan.on == Target::Linux) {
        kernel::clear();
        kernel::tell();
    }
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
    registry: &Registry,
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

/// Analyses of the conclusions of a call, one for each plan.
struct Robust<'a> {
    registry: &'a Registry,
    plans: Vec<Plan>,
    move_costs: MoveCosts,
}

impl<'a> Robust<'a> {
    /// Plans the analyses that a call asks for: with its settings, and the seeds and length that
    /// `mmscale robust` has by default.
    fn of(
        registry: &'a Registry,
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
        costs: args.costs.parsed()?,
        hold_scale: args.hold.as_deref().map(hold_scale).transpose()?,
        shape: args.shape.into(),
        origin,
    })
}
