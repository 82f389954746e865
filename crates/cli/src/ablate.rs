//! `mmscale ablate`.

use anyhow::Context;
use mmscale_harness::{CallOrRun, Origin, Registry, ablation, execute, fits_host, plan, subsets};
use mmscale_report::ablation_text;

use crate::analysis::Results;
use crate::args::{AblateArgs, AnalysisArgs, ChangeArgs};
use crate::failure::Failure;
use crate::file_names::stems;
use crate::interrupt::{self, Grace};
use crate::progress;
use crate::robust::headlines;

/// Runs all subsets of some policies, and shows what each contributes.
pub(crate) fn ablate(
    registry: &Registry,
    origin: Origin,
    args: &AblateArgs,
) -> Result<(), Failure> {
    let AnalysisArgs { format, documents, .. } = &args.analysis;
    let changes = ChangeArgs {
        policies: subsets(&args.of)?,
        linux: args.linux.clone(),
        set: args.set.clone(),
    };
    // Without --arm, --policy adds to the first arm of the study.
    let arms = args.arm.iter().cloned().collect();
    let size = args.analysis.size();
    let request = args.machine.request(args.studies.clone(), arms, &changes, size, origin)?;
    let interrupt = interrupt::on_signals(Grace::Computing)
        .context("cannot watch for Ctrl-C")
        .map_err(Failure::Run)?;
    let plans = plan(registry, &request)?;
    fits_host(&plans)?;
    let names: Vec<String> =
        stems(&plans).into_iter().map(|name| format!("{name}-ablate")).collect();
    let (folder, names) = documents.open(names)?;
    let watch = progress::Call::new(&plans);
    let mut results = Results::new(folder, *format);
    for (place, (plan, name)) in plans.iter().zip(&names).enumerate() {
        let document = execute(plan, &interrupt, &watch.watch(place)).map_err(CallOrRun::from)?;
        let mut metrics = headlines(plan.study.metrics());
        // A script that measures durations is about them; a run without durations has no such
        // value.
        metrics.push("time_p50_ns");
        let result = ablation(plan, &document, &args.of, &metrics);
        results.add(name, &result, &ablation_text(&result))?;
    }
    results.end()
}
