//! `mmscale run`.

mod results;

use anyhow::Context;
use mmscale_document::{Robustness, Target};
use mmscale_harness::{
    Checks, Interrupt, Length, Origin, Plan, Registry, Request, execute_each, fits_host,
    hold_scale, plan,
};

use crate::args::{RunArgs, RunFormat, SEEDS, SeedCount, Size};
use crate::destination::files_of;
use crate::failure::Failure;
use crate::file_names::stems;
use crate::interrupt::{self, Grace};
use crate::live;
use crate::progress;
use crate::robust::MoveCosts;
use results::{Results, robust_name};

/// Runs studies. Each document is written as soon as it is complete.
pub(crate) fn run(registry: &Registry, origin: Origin, args: &RunArgs) -> Result<(), Failure> {
    let request = request(args, origin)?;
    // Planning reads files and may take a moment, so signals are handled already before it.
    let grace = if args.on == Some(Target::Live) { Grace::Live } else { Grace::Computing };
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
    let (folder, names) = args.documents.open(stems(&plans))?;
    if let Some(folder) = folder.as_ref().filter(|_| args.robust) {
        let mut files = names.iter().flat_map(|name| files_of(&robust_name(name)));
        files.try_for_each(|file| folder.free(&file))?;
    }
    if plans.iter().any(|plan| plan.on == Target::Live) {
        live::prepare();
    }
    let call = progress::Call::new(&plans);
    let watch = |place: usize| call.watch(place);
    let mut results = Results::new(args, &plans, names, folder);
    let ended = execute_each(&plans, &interrupt, &watch, |place, result| {
        let analyse = || robust.as_ref().map(|robust| robust.analyse(place, &interrupt));
        results.take(place, result, analyse)
    });
    ended.break_value().unwrap_or_else(|| results.end())
}

/// Plans the runs of a call, and starts none: an error of the call is found.
pub(crate) fn plans_of(
    registry: &Registry,
    origin: Origin,
    args: &RunArgs,
) -> Result<Vec<Plan>, Failure> {
    Ok(plan(registry, &request(args, origin)?)?)
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
        if args.format == RunFormat::Csv {
            return wrong("has no rows of values: use another --format");
        }
        let quick = Request {
            seeds: Some(SEEDS),
            look: false,
            length: Length::Quick,
            checks: Checks::Off,
            blame: false,
            ..request.clone()
        };
        let move_costs = MoveCosts::by_default(args.machine.profile.clone());
        Ok(Some(Self { registry, plans: plan(registry, &quick)?, move_costs }))
    }

    fn analyse(&self, place: usize, interrupt: &Interrupt) -> Result<Robustness, Failure> {
        self.move_costs.analyse(self.registry, &self.plans[place], interrupt)
    }
}

fn request(args: &RunArgs, origin: Origin) -> Result<Request, Failure> {
    let RunArgs { machine, arms, .. } = args;
    let size = Size {
        seeds: args.seeds.and_then(SeedCount::stated),
        first: args.first.seed,
        length: if args.quick { Length::Quick } else { Length::Full },
    };
    let request =
        machine.request(args.studies.clone(), arms.arms.clone(), &arms.changes, size, origin)?;

    Ok(Request {
        on: args.on,
        checks: if args.check { Checks::On } else { Checks::Off },
        blame: args.blame,
        look: args.seeds == Some(SeedCount::Auto),
        hold_scale: args.hold.as_deref().map(hold_scale).transpose()?,
        ..request
    })
}
