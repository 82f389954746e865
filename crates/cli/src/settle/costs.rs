//! Places near the boundary, on machines whose costs are drawn from their ranges.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::anyhow;
use mmscale_document::{CostPlace, SettledCosts};
use mmscale_harness::{
    Best, Cache, CallError, Plan, RunError, Settled, figures, on_drawn_machines, with_costs,
};

use super::{Settle, profile};
use crate::failure::Failure;
use crate::output;
use crate::progress::Analysis;

/// Number of places, and their distance from the boundary in ranges of the knobs.
const PLACES: usize = 6;
const AWAY: f64 = 0.1;

/// The logarithm of the metric of a run; `None` if it has none above 0.
type Ran = Result<Option<f64>, RunError>;

impl Settle<'_> {
    /// Runs places near the boundary on machines with other costs; those that are knobs stay.
    pub(super) fn on_other_machines(&self, settled: &Settled) -> Result<SettledCosts, Failure> {
        let cache = Cache::at(self.args.output.join("costs"));
        let machines = usize::from(self.args.machines);
        let places = settled.along(PLACES, AWAY);
        output::tell(&format!("{} places near the boundary, {machines} machines", places.len()));
        let study =
            self.registry.find(&self.args.study).map_err(|why| Failure::Call(why.into()))?;
        let merged = profile(self.registry.profiles(), &study, self.args)?;
        let mut plans: Vec<Plan> = vec![];
        for at in &places {
            let tasks = self.tasks(at)?;
            let plan = &tasks[0].plan;
            let of_profile = |why| Failure::from(CallError::from(why));
            let mut own = with_costs(&merged, &plan.costs).map_err(of_profile)?;
            for name in self.knobs.costs() {
                if let Some(number) = own.file.cost_mut(name) {
                    number.range = [number.value; 2];
                }
            }
            plans.push((**plan).clone());
            plans.extend(on_drawn_machines(plan, &own, machines).map_err(of_profile)?);
        }
        let bests = self.bests(&plans, &cache)?;
        crate::robust::tell_unused(&cache);
        let place = |(at, bests): (&Vec<f64>, &[Option<Best>])| {
            let same = bests[1..].iter().filter(|best| best.is_some() && **best == bests[0]);
            CostPlace {
                at: self.knobs.values(at),
                best: bests[0].map_or(vec![], |best| self.arms_of(&plans[0], best)),
                same: same.count() as u32,
            }
        };
        let each = places.iter().zip(bests.chunks(machines + 1));
        let places = each.map(place).collect();
        Ok(SettledCosts { machines: machines as u32, away: AWAY, places })
    }

    fn arms_of(&self, plan: &Plan, best: Best) -> Vec<String> {
        let arms = plan.arms.iter().enumerate().filter(|(at, _)| best.has(*at));
        arms.map(|(_, arm)| plan.study.arms()[arm.0].name.to_string()).collect()
    }

    /// Returns the best arms of each plan; `None` where a run has no value above 0.
    fn bests(&self, plans: &[Plan], cache: &Cache) -> Result<Vec<Option<Best>>, Failure> {
        let jobs: Vec<_> = plans
            .iter()
            .enumerate()
            .flat_map(|(at, plan)| {
                let seeds = move |arm| plan.seeds.iter().map(move |seed| (at, arm, *seed));
                plan.arms.iter().flat_map(move |arm| seeds(*arm))
            })
            .collect();
        let found: Mutex<Vec<Option<Ran>>> = Mutex::new(jobs.iter().map(|_| None).collect());
        let (next, finished) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let progress = Analysis::begin(self.args.study.clone());
        let worker = || {
            // Relaxed: each number is taken once, and the scope publishes the results.
            loop {
                let job = next.fetch_add(1, Ordering::Relaxed);
                let Some(&(at, arm, seed)) = jobs.get(job) else { break };
                let of_run = figures(&plans[at], arm, seed, cache, &self.interrupt);
                let value = of_run.map(|all| self.log_of(*all.get(self.metric)?));
                found.lock().unwrap_or_else(PoisonError::into_inner)[job] = Some(value);
                progress.show(finished.fetch_add(1, Ordering::Relaxed) + 1, jobs.len());
            }
        };
        let here = thread::available_parallelism().map_or(1, NonZero::get);
        thread::scope(|scope| {
            (1..here).for_each(|_| _ = scope.spawn(worker));
            worker();
        });
        let mut values = vec![];
        for run in found.into_inner().unwrap_or_else(PoisonError::into_inner) {
            match run.expect("all jobs were taken") {
                Ok(value) => values.push(value),
                Err(RunError::Interrupted { .. }) => {
                    return Err(Failure::Run(anyhow!("interrupted; the same call continues")));
                }
                // A machine on which a run fails is one without a result.
                Err(_) => values.push(None),
            }
        }
        let each = values.len() / plans.len().max(1);
        let best = |own: &[Option<f64>]| {
            let own: Vec<f64> = own.iter().copied().collect::<Option<_>>()?;
            Some(self.question.best(&self.means(&own)))
        };
        Ok(values.chunks(each.max(1)).map(best).collect())
    }
}
