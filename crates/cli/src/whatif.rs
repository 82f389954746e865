//! `mmscale whatif`.

use std::slice;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use mmscale_harness::{
    Origin, Plan, ProgressSink, Registry, Scalable, Step, WhatIfRequest, fits_host, plan,
    whatif as analyse,
};
use mmscale_report::whatif_text;

use crate::analysis::Results;
use crate::args::{AnalysisArgs, WhatIfArgs};
use crate::estimate::time_left;
use crate::failure::Failure;
use crate::file_names::stems;
use crate::interrupt::{self, Grace};
use crate::output;
use crate::progress;
use crate::robust::headlines;

/// Scales one thing after another and shows what each would gain.
pub(crate) fn whatif(
    registry: &Registry,
    origin: Origin,
    args: &WhatIfArgs,
) -> Result<(), Failure> {
    let parts = args.of.iter().map(|name| Scalable::parse(name));
    let parts = parts.collect::<Result<Vec<_>, _>>()?;
    let AnalysisArgs { format, documents, .. } = &args.analysis;
    let request = args.of_arm.request(args.studies.clone(), args.analysis.size(), origin)?;
    let interrupt = interrupt::on_signals(Grace::Computing)
        .context("cannot watch for Ctrl-C")
        .map_err(Failure::Run)?;
    let mut plans = plan(registry, &request)?;
    plans.iter_mut().for_each(|plan| plan.arms = vec![args.of_arm.of(&plan.arms)]);
    fits_host(&plans)?;
    let names: Vec<String> =
        stems(&plans).into_iter().map(|name| format!("{name}-whatif")).collect();
    let (folder, names) = documents.open(names)?;
    let mut results = Results::new(folder, *format);
    for (plan, name) in plans.iter().zip(&names) {
        let began = Instant::now();
        let watch = |plan: &Plan, title: &str, Step { at, of }: Step| -> Arc<dyn ProgressSink> {
            let left = of.map_or(String::new(), |of| time_left(began.elapsed(), at - 1, of));
            output::tell(&format!("{title}{left}"));
            progress::Call::new(slice::from_ref(plan)).watch(0)
        };
        let metrics = headlines(plan.study.metrics());
        let request = WhatIfRequest { plan, metrics, parts: parts.clone() };
        let result = analyse(&request, &interrupt, &watch)?;
        results.add(name, &result, &whatif_text(&result))?;
    }
    results.end()
}
