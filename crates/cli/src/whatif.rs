//! `mmscale whatif`.

use std::sync::Arc;

use anyhow::Context;
use mmscale_document::Target;
use mmscale_harness::{
    ArmId, CallError, CallOrRun, Checks, Length, Origin, Plan, PolicyArm, ProgressSink, Registry,
    Request, Scalable, WhatIfRequest, fits_host, linux_version, plan, whatif as analyse,
};
use mmscale_report::{Folder, json_line, whatif_text};

use crate::args::{Format, WhatIfArgs};
use crate::failure::Failure;
use crate::file_names::stems;
use crate::interrupt::{self, Grace};
use crate::output;
use crate::progress;
use crate::robust::headlines;
use crate::settings::settings;

/// Scales one thing after another and shows what each would gain.
pub(crate) fn whatif(registry: Registry, origin: Origin, args: &WhatIfArgs) -> Result<(), Failure> {
    let parts = args.of.iter().map(|name| Scalable::parse(name));
    let parts = parts.collect::<Result<Vec<_>, _>>()?;
    let request = request(args, origin)?;
    let interrupt = interrupt::on_signals(Grace::Computing)
        .context("cannot watch for Ctrl-C")
        .map_err(Failure::Run)?;
    let mut plans = plan(registry, &request)?;
    plans.iter_mut().for_each(|plan| plan.arms = vec![subject(&plan.arms, args)]);
    fits_host(&plans)?;
    let open = |path| Folder::open(path, output::existing(args.replace));
    let folder = args.output.as_deref().map(open).transpose()?;
    let names: Vec<String> =
        stems(&plans).into_iter().map(|name| format!("{name}-whatif")).collect();
    if let Some(folder) = &folder {
        let mut files =
            names.iter().flat_map(|name| ["json", "txt"].map(|end| format!("{name}.{end}")));
        files.try_for_each(|file| folder.free(&file))?;
    }
    let watch = |plan: &Plan, title: &str| -> Arc<dyn ProgressSink> {
        output::tell(title);
        progress::watch(plan, 1, 1)
    };
    let mut written = Vec::new();
    for (place, (plan, name)) in plans.iter().zip(&names).enumerate() {
        let metrics = headlines(plan.study.metrics());
        let request = WhatIfRequest { plan, metrics, parts: parts.clone() };
        let result = analyse(&request, &interrupt, &watch).map_err(|why| match why {
            CallOrRun::Call(why) => Failure::from(why),
            CallOrRun::Run(why) => Failure::Run(why.into()),
        })?;
        let shown = whatif_text(&result);
        let separator = if place == 0 { "" } else { "\n" };
        interrupt::whole(|| {
            if let Some(folder) = &folder {
                written.push(folder.write(&format!("{name}.json"), json_line(&result))?);
                written.push(folder.write(&format!("{name}.txt"), &shown)?);
            }
            match args.format {
                Format::Text => output::print(&format!("{separator}{shown}")),
                Format::Json => output::print(&json_line(&result)),
            }
        })?;
    }
    output::as_named(&written)
}

/// Returns the arm to analyse: that of --policy, which follows the study's first one, or the first.
fn subject(arms: &[ArmId], args: &WhatIfArgs) -> ArmId {
    arms[if args.policies.is_empty() { 0 } else { arms.len() - 1 }]
}

fn request(args: &WhatIfArgs, origin: Origin) -> Result<Request, Failure> {
    let settings = settings(&args.set, args.cpus.as_deref(), None)?;
    let policies = args.policies.iter().map(|text| PolicyArm::parse(text));
    Ok(Request {
        studies: args.studies.clone(),
        on: Some(Target::Sim),
        arms: args.arm.iter().cloned().collect(),
        policies: policies.collect::<Result<_, _>>().map_err(CallError::from)?,
        linux: args.linux.as_deref().map(linux_version).transpose().map_err(CallError::from)?,
        profile: args.profile.clone(),
        settings,
        seeds: Some(args.seeds),
        first_seed: args.seed,
        length: if args.full { Length::Full } else { Length::Quick },
        checks: Checks::Off,
        blame: false,
        hold_scale: None,
        shape: args.shape.into(),
        origin,
    })
}
