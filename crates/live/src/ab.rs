//! Comparison of A and B on the live kernel: one kernel setting or one workload parameter with two
//! values, run alternately (A B A B), and the ratio of each pair.
//!
//! The speed of a shared computer varies over time, but both runs of a pair see about the same
//! conditions. The ratios of pairs are therefore much more reliable than the ratio of means.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use mmscale_document::{Build, ParamValue, Target};
use mmscale_linux::{Sysctl, SysctlError, is_sysctl};
use serde::Serialize;
use thiserror::Error;

use mmscale_harness::{
    CallError, Interrupt, Length, ParamError, Plan, Registry, Request, RunError, plan, run_alone,
};
use mmscale_stats::{Scale, paired};

/// Default number of pairs: the ends of the interval are then not those of the extreme pairs.
const PAIRS: u64 = 9;

/// The variable of a comparison and its two values.
#[derive(Clone, Debug)]
pub struct Question {
    /// A setting of the kernel, or a parameter of the study.
    pub key: String,
    /// The two values.
    pub values: [String; 2],
}

/// Why a comparison has no result.
#[derive(Debug, Error)]
pub enum AbError {
    /// The call was wrong.
    #[error(transparent)]
    Call(#[from] CallError),
    /// A run failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The setting cannot be changed.
    #[error(transparent)]
    Sysctl(#[from] SysctlError),
}

/// One metric on both sides.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// The name of the metric.
    pub metric: String,
    /// The unit of the metric.
    pub unit: String,
    /// The values of A, in the order of pairs.
    pub a: Vec<f64>,
    /// The values of B, in the order of pairs.
    pub b: Vec<f64>,
    /// The Hodges-Lehmann estimate of B / A over pairs; `None` if a value is not positive.
    pub ratio: Option<f64>,
    /// The 95 % interval of the ratio; `None` with fewer than six pairs.
    pub ci95: Option<[f64; 2]>,
    /// The p value of the signed-rank test of no change.
    pub p: Option<f64>,
}

/// The result of a comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Answer {
    /// Always `mmscale/ab/2`.
    pub schema: &'static str,
    /// The name of the study.
    pub study: String,
    /// The name of the arm.
    pub arm: String,
    /// The name of the kernel setting or parameter.
    pub key: String,
    /// The two values.
    pub values: [String; 2],
    /// The original value of a kernel setting, which has been restored.
    pub before: Option<String>,
    /// Number of CPUs.
    pub cpus: usize,
    /// The study's parameters, without the compared one.
    pub params: BTreeMap<String, ParamValue>,
    /// Number of pairs.
    pub pairs: usize,
    /// The seed of the first pair; the others are consecutive.
    pub first_seed: u64,
    /// Metrics that both sides have, in the study's order.
    pub metrics: Vec<Compared>,
    /// The build of mmscale.
    pub build: Build,
    /// The build of the program that contains the study, if it is not the `mmscale` binary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<Build>,
    /// The command line, word by word.
    pub command: Vec<String>,
    /// Other conditions of the result, such as the kernel release.
    pub provenance: BTreeMap<String, String>,
}

impl Question {
    /// Parses `KEY=A,B`.
    pub fn parse(text: &str) -> Result<Self, CallError> {
        let wrong = || {
            CallError::Other(format!(
                "cannot read `{text}`: a question is KEY=A,B with a kernel setting such as \
                 vm.percpu_pagelist_high_fraction=0,100000, or a parameter such as watch=off,auto"
            ))
        };
        let (key, values) = text.split_once('=').ok_or_else(wrong)?;
        let (a, b) = values.split_once(',').ok_or_else(wrong)?;
        let [key, a, b] = [key, a, b].map(|word| word.trim().to_owned());
        if key.is_empty() || a.is_empty() || b.is_empty() || b.contains(',') {
            return Err(wrong());
        }
        Ok(Self { key, values: [a, b] })
    }
}

/// Checks a comparison without starting anything.
pub fn prepare(
    registry: &Registry,
    request: &Request,
    question: &Question,
) -> Result<[Plan; 2], CallError> {
    let sysctl = is_sysctl(&question.key);
    if !sysctl && question.key.contains(['.', '/']) {
        let unknown = SysctlError::Unknown(question.key.clone());
        return Err(CallError::Other(unknown.to_string()));
    }
    let side = |value: &String| -> Result<Plan, CallError> {
        let mut request = request.clone();
        request.on = Some(Target::Live);
        if request.length == Length::Full {
            request.seeds.get_or_insert(PAIRS);
        }
        if !sysctl {
            request.settings.add(&question.key, value)?;
        }
        let mut plans = plan(registry, &request).map_err(|why| match why {
            CallError::Param(why @ ParamError::Unknown(_)) => CallError::Other(format!(
                "{why}; `live ab` compares settings of the kernel too, by their names with a \
                 point, as in vm.stat_interval=1,10"
            )),
            why => why,
        })?;
        let one = (plans.len() == 1).then(|| plans.remove(0)).ok_or_else(|| {
            let what = "a question is about one study with one set of parameters: name one \
                        study, and select one of its workloads or layouts by --set";
            CallError::Other(what.to_owned())
        })?;
        Ok(one)
    };
    Ok([side(&question.values[0])?, side(&question.values[1])?])
}

/// The values of both sides by metric.
type MetricPairs = BTreeMap<&'static str, [Vec<f64>; 2]>;

/// Runs the pairs, one per seed, with the first requested arm. A kernel setting is restored in any
/// case; failing to restore it is the error that is returned.
pub fn answer(
    plans: &[Plan; 2],
    question: &Question,
    interrupt: &Interrupt,
    told: impl FnMut(usize),
) -> Result<Answer, AbError> {
    let mut setting = is_sysctl(&question.key).then(|| Sysctl::guard(&question.key)).transpose()?;
    if let Some(setting) = &mut setting {
        let stop = interrupt.flag();
        // Relaxed: pairs with the relaxed loads in the runners, which only test the flag.
        setting.on_lost_guardian(move || stop.store(true, Ordering::Relaxed));
    }
    let found = pairs_of(plans, question, setting.as_ref(), interrupt, told);
    let before = setting.as_ref().map(|setting| setting.before().to_owned());
    setting.map(Sysctl::restore).transpose()?;
    Ok(told_of(plans, question, before, found?))
}

fn pairs_of(
    plans: &[Plan; 2],
    question: &Question,
    setting: Option<&Sysctl>,
    interrupt: &Interrupt,
    mut told: impl FnMut(usize),
) -> Result<MetricPairs, AbError> {
    let (arm, pairs) = (plans[0].arms[0], plans[0].seeds.len());
    let mut found = MetricPairs::new();
    for (pair, &seed) in plans[0].seeds.iter().enumerate() {
        told(pair);
        for (side, plan) in plans.iter().enumerate() {
            if let Some(setting) = setting {
                setting.set(&question.values[side])?;
            }
            let result = run_alone(plan, arm, seed, interrupt)
                .map_err(|why| of_all(why, 2 * pair + side, 2 * pairs))?;
            for (name, value) in result.metrics {
                found.entry(name).or_default()[side].push(value.as_f64());
            }
        }
    }
    Ok(found)
}

fn told_of(
    plans: &[Plan; 2],
    question: &Question,
    before: Option<String>,
    mut found: MetricPairs,
) -> Answer {
    let (arm, pairs) = (plans[0].arms[0], plans[0].seeds.len());
    let study = &plans[0].study;
    let mut params = plans[0].shown_params();
    params.remove(&question.key);
    let metrics = study.metrics().iter().filter_map(|spec| {
        let [a, b] = found.remove(spec.name)?;
        (a.len() == pairs && b.len() == pairs).then(|| compare(spec.name, spec.unit, a, b))
    });
    Answer {
        schema: "mmscale/ab/2",
        study: study.name().to_owned(),
        arm: study.arms()[arm.0].name.to_owned(),
        key: question.key.clone(),
        values: question.values.clone(),
        before,
        cpus: plans[0].cpus,
        params,
        pairs,
        first_seed: plans[0].seeds[0],
        metrics: metrics.collect(),
        build: plans[0].origin.build.clone(),
        program: plans[0].origin.program.clone(),
        command: plans[0].origin.command.clone(),
        provenance: crate::provenance(),
    }
}

/// Converts the interruption of one run into one of all runs.
fn of_all(why: RunError, done: usize, all: usize) -> RunError {
    match why {
        RunError::Interrupted { study, .. } => RunError::Interrupted { study, done, all },
        why => why,
    }
}

/// Compares by ranks, because a single disturbed pair may be off by any factor.
fn compare(metric: &str, unit: &str, a: Vec<f64>, b: Vec<f64>) -> Compared {
    let change = paired(&a.iter().copied().zip(b.iter().copied()).collect::<Vec<_>>());
    let ratio = change.filter(|change| change.scale == Scale::Ratio);
    Compared {
        metric: metric.to_owned(),
        unit: unit.to_owned(),
        a,
        b,
        ratio: ratio.map(|change| change.estimate),
        ci95: ratio.and_then(|change| change.ci95),
        p: change.map(|change| change.p),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_has_a_key_and_two_values() {
        let question = Question::parse("vm.stat_interval=1,10").unwrap();
        assert_eq!(
            (question.key.as_str(), question.values),
            ("vm.stat_interval", ["1", "10"].map(str::to_owned))
        );
        for wrong in ["", "a", "a=1", "a=1,", "a=1,2,3", "=1,2"] {
            assert!(Question::parse(wrong).unwrap_err().to_string().contains("KEY=A,B"), "{wrong}");
        }
    }

    #[test]
    fn an_interruption_tells_of_all_runs() {
        let one = RunError::Interrupted { study: "pcp".to_owned(), done: 0, all: 1 };
        let text = of_all(one, 5, 18).to_string();
        assert!(text.starts_with("interrupted after 5 of 18 runs of `pcp`"), "{text}");
    }

    #[test]
    fn a_slow_pair_does_not_hide_a_ratio() {
        // B is 10 % faster in every pair. The computer is three times slower in the second pair,
        // and another program used it during the last A.
        let a = vec![300.0, 100.0, 300.0, 310.0, 290.0, 305.0, 30.0];
        let mut b: Vec<f64> = a.iter().map(|a| a * 1.1).collect();
        b[6] = 330.0;
        let compared = compare("x", "1/s", a, b);
        assert!((compared.ratio.unwrap() - 1.1).abs() < 1e-9);
        let [low, high] = compared.ci95.unwrap();
        // The interval ends at an average of the slow pair and another: the root of 1.1 x 11.
        assert!((low - 1.1).abs() < 1e-9 && (high - 12.1_f64.sqrt()).abs() < 1e-9, "{low} {high}");
        assert_eq!(compare("x", "1", vec![0.0, 1.0], vec![1.0, 1.0]).ratio, None);
    }

    #[test]
    fn as_many_pairs_as_an_interval_wants_are_the_default() {
        assert!(PAIRS as usize >= mmscale_stats::pairs_needed(mmscale_harness::MAX_HEADLINES));
    }
}
