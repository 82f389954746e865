//! `mmscale robust`.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use mmscale_document::Robustness;
use mmscale_harness::{
    Cache, CallError, Interrupt, Merged, MetricSpec, Origin, Plan, Profiles, Registry, RobustError,
    RobustRequest, RunError, fits_host, plan, robust as analyse, with_costs,
};
use mmscale_report::robust_text;

use crate::analysis::Results;
use crate::args::{AnalysisArgs, CacheArgs, MACHINES, RobustArgs};
use crate::failure::Failure;
use crate::file_names::stems;
use crate::interrupt::{self, Grace};
use crate::output;
use crate::progress::Analysis;

/// Analyses what the conclusions of studies depend on.
pub(crate) fn robust(
    registry: &Registry,
    origin: Origin,
    args: &RobustArgs,
) -> Result<(), Failure> {
    let RobustArgs { machine, arms, analysis, .. } = args;
    let AnalysisArgs { format, documents, .. } = analysis;
    let request = machine.request(
        args.studies.clone(),
        arms.arms.clone(),
        &arms.changes,
        analysis.size(),
        origin,
    )?;
    let interrupt = interrupt::on_signals(Grace::Computing)
        .context("cannot watch for Ctrl-C")
        .map_err(Failure::Run)?;
    let plans = plan(registry, &request)?;
    fits_host(&plans)?;
    let names: Vec<String> =
        stems(&plans).into_iter().map(|name| format!("{name}-robust")).collect();
    let (folder, names) = documents.open(names)?;
    let move_costs = MoveCosts {
        profile: args.machine.profile.clone(),
        machines: usize::from(args.machines),
        cache: args.cache.open(),
    };
    let mut results = Results::new(folder, *format);
    for (plan, name) in plans.iter().zip(&names) {
        let result = move_costs.analyse(registry, plan, &interrupt)?;
        results.add(name, &result, &robust_text(&result))?;
    }
    results.end()
}

/// How the costs of machines are moved.
pub(crate) struct MoveCosts {
    /// The profile that the call names; that of the study if it names none.
    profile: Option<PathBuf>,
    /// Number of machines to draw.
    machines: usize,
    cache: Cache,
}

impl MoveCosts {
    /// Returns what `mmscale run --robust` does: the defaults of `mmscale robust`.
    pub(crate) fn by_default(profile: Option<PathBuf>) -> Self {
        Self { profile, machines: usize::from(MACHINES), cache: cache(None) }
    }

    /// Runs an analysis, and shows its progress.
    pub(crate) fn analyse(
        &self,
        registry: &Registry,
        plan: &Plan,
        interrupt: &Interrupt,
    ) -> Result<Robustness, Failure> {
        output::tell(&format!("{}: moving the costs of {}", plan.study.name(), plan.profile_name));
        let progress = Analysis::begin(plan.study.name().to_owned());
        let told = |finished: usize, all: usize| progress.show(finished, all);
        let profile = profile_of(registry.profiles(), plan, self.profile.as_deref())?;
        let request = RobustRequest {
            plan,
            profile: &profile,
            metrics: headlines(plan.study.metrics()),
            machines: self.machines,
            cache: self.cache.clone(),
        };
        let result = analyse(&request, interrupt, &told);
        drop(progress);
        let result = result.map_err(failure)?;
        request.cache.keep_analysis(plan, &result);
        tell_unused(&request.cache);
        Ok(result)
    }
}

/// Returns the headlines of a study, or its first metric if it has none.
pub(crate) fn headlines(metrics: &[MetricSpec]) -> Vec<&'static str> {
    let tested = metrics.iter().filter(|metric| metric.headline).map(|metric| metric.name);
    let tested: Vec<&str> = tested.collect();
    let first = metrics.iter().map(|metric| metric.name).take(1);
    if tested.is_empty() { first.collect() } else { tested }
}

/// Returns the plan's profile with its costs, and with the ranges of all numbers.
fn profile_of(profiles: &Profiles, plan: &Plan, named: Option<&Path>) -> Result<Merged, Failure> {
    let default = &plan.study.defaults().profile;
    let path = named.unwrap_or(default.as_ref());
    let merged = profiles.open(path).and_then(|merged| with_costs(&merged, &plan.costs));
    merged.map_err(|why| Failure::from(CallError::from(why)))
}

impl CacheArgs {
    /// Returns the cache of a call.
    pub(crate) fn open(&self) -> Cache {
        if self.no_cache { Cache::none() } else { cache(self.cache.clone()) }
    }
}

/// Returns the cache in the chosen folder, or in the usual one. Without a home there is none.
pub(crate) fn cache(chosen: Option<PathBuf>) -> Cache {
    let home = || Some(PathBuf::from(env::var_os("HOME")?).join(".cache"));
    let usual = || {
        let own = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home)?;
        Some(own.join("mmscale"))
    };
    chosen.or_else(usual).map_or(Cache::none(), Cache::at)
}

/// Reports kept files that were damaged or of other runs.
pub(crate) fn tell_unused(cache: &Cache) {
    if let [first, rest @ ..] = &cache.unused()[..] {
        let more =
            if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
        output::tell(&format!("note: not used from the cache{more}: {first}"));
    }
}

fn failure(why: RobustError) -> Failure {
    match why {
        RobustError::Call(what) => Failure::Call(anyhow!(what)),
        RobustError::Profile(why) => Failure::from(CallError::from(why)),
        RobustError::Run(RunError::Interrupted { .. }) => {
            Failure::Run(anyhow!("interrupted; finished runs are in the cache"))
        }
        RobustError::Run(why) => Failure::Run(why.into()),
    }
}
