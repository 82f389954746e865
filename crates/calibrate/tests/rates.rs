//! Costs are fitted to rates of one CPU, which the fitted profile then has.

use std::collections::BTreeMap;

use mmscale_calibrate::derive::{Groups, Known};
use mmscale_calibrate::rates::{FitError, FitRequest, Fitted, Group, Rate, fit, text};
use mmscale_calibrate::review::review;
use mmscale_calibrate::{Basis, Op, Profiles};
use mmscale_harness::{Interrupt, Registry};
use mmscale_sim::profile::{ProfileFile, op_key, parse, write};

/// Short programs: one faults, one edits VMAs.
const FAULTS: &str = "\
summary \"faults\";
profile \"x86-26\" cpus 26;
window 4ms after 1ms;
param pages = 64 pages \"memory that is mapped\";
process each per_cpu {
    start;
    loop {
        mem = mmap(pages);
        for i in 0..pages(mem) { write(mem[i]); count; }
        munmap(mem);
    }
}";
const EDITS: &str = "\
summary \"mappings\";
profile \"x86-26\" cpus 26;
window 4ms after 1ms;
param tasks = 4 [1..64] \"processes\";
process each tasks on cores {
    start;
    loop { munmap(mmap(1 MiB)); count; }
}";
/// A program that ends.
const ENDS: &str = "\
summary \"faults of a number of pages\";
profile \"x86-26\" cpus 26;
window 1ms after 0ms;
process one {
    mem = mmap(2048 pages);
    start;
    for i in 0..2048 { write(mem[i]); count; }
}";
const BASE: &str = "x86-26";

fn registry() -> Registry {
    let scripts =
        [("faults.mms", FAULTS), ("edits.mms", EDITS), ("again.mms", EDITS), ("ends.mms", ENDS)];
    scripts.into_iter().fold(Registry::default(), |all, (file, text)| all.with_script(file, text))
}

/// Returns a profile without own CPUs, among profiles with `slow`.
fn known(base: &str, slow: Option<&ProfileFile>) -> Known {
    let profiles = slow.map_or_else(Profiles::default, |slow| {
        Profiles::with(&[("slow", String::leak(write(slow)))])
    });
    Known {
        profiles,
        base: base.to_owned(),
        description: None,
        groups: Groups::default(),
        node_bytes: None,
        lscpu: None,
        capacities: BTreeMap::new(),
        memory: None,
        latencies: None,
        force: false,
    }
}

fn fit_on(known: &Known, rates: &[String]) -> Result<Fitted, FitError> {
    fit_with(known, rates, &[])
}

fn fit_with(known: &Known, rates: &[String], set: &[&str]) -> Result<Fitted, FitError> {
    let set: Vec<String> = set.iter().map(|&item| item.to_owned()).collect();
    let rates: Vec<Rate> = rates.iter().map(|text| Rate::parse(text).unwrap()).collect();
    let (registry, interrupt) = (registry(), Interrupt::default());
    let request = FitRequest { known, rates: &rates, registry: &registry, linux: None, set: &set };
    fit(&request, &interrupt)
}

/// Returns the simulated rates of programs on one CPU of a profile.
fn simulated<'a>(known: &Known, programs: &[&'a str]) -> Vec<(&'a str, f64)> {
    let any: Vec<String> = programs.iter().map(|program| format!("{program}=500k")).collect();
    let fitted = fit_on(known, &any).unwrap();
    programs.iter().copied().zip(fitted.rates.iter().map(|of| of.before_per_s)).collect()
}

fn given(rates: &[(&str, f64)]) -> Vec<String> {
    rates.iter().map(|(program, per_s)| format!("{program}={per_s}")).collect()
}

/// Returns the base with the costs of some operations times `factor`.
fn scaled(factor: f64, is_scaled: impl Fn(&str) -> bool) -> ProfileFile {
    let base = Profiles::default().open(BASE).unwrap();
    let mut file = ProfileFile { base: Some(BASE.to_owned()), ..ProfileFile::default() };
    for op in Op::ALL.into_iter().filter(|&op| is_scaled(&op_key(op))) {
        let mut number = base.op(op).unwrap();
        number.value *= factor;
        number.range = number.range.map(|end| end * factor);
        file.ops.insert(op_key(op), number);
    }
    file
}

fn is_work(key: &str) -> bool {
    !["clear_page_ns", "copy_page_ns"].contains(&key)
}

#[test]
fn the_rates_of_a_profile_change_none_of_its_costs() {
    let known = known(BASE, None);
    for programs in [&["faults"][..], &["edits"], &["faults", "edits"]] {
        let rates = simulated(&known, programs);
        let fitted = fit_on(&known, &given(&rates)).unwrap();
        assert!(fitted.factors.iter().all(|(_, factor)| *factor == 1.0), "{fitted:?}");
        assert!(fitted.derived.file.ops.is_empty(), "{fitted:?}");
        for of in &fitted.rates {
            assert_eq!(of.before_per_s, of.after_per_s);
        }
    }
}

#[test]
fn rates_of_costs_that_are_1_3_times_as_large_give_these_costs() {
    let slow = scaled(1.3, is_work);
    let measured = known("slow", Some(&slow));
    for programs in [&["faults"][..], &["edits"], &["faults", "edits"]] {
        let rates = simulated(&measured, programs);
        let fitted = fit_on(&known(BASE, None), &given(&rates)).unwrap();
        let file = &fitted.derived.file;
        assert_eq!(file.ops.len(), slow.ops.values().filter(|of| of.value > 0.0).count());
        for (key, number) in &file.ops {
            let wanted = slow.ops[key].value;
            assert!((number.value / wanted - 1.0).abs() < 0.01, "{key}: {number:?}, {wanted}");
            assert!(number.source.starts_with("fitted to `") || programs.len() > 1);
        }
        assert!(file.costs.is_empty(), "lines, atomics and locks stay: {file:?}");
        for of in &fitted.rates {
            assert!(of.remainder().abs() < 0.005, "{of:?}");
        }
    }
}

#[test]
fn a_group_that_one_rate_shows_gets_a_factor_of_its_own() {
    let slow = scaled(1.5, |key| key.starts_with("vma_"));
    let rates = simulated(&known("slow", Some(&slow)), &["faults", "edits"]);
    let fitted = fit_on(&known(BASE, None), &given(&rates)).unwrap();
    for of in &fitted.rates {
        assert!(of.remainder().abs() < 0.005, "{of:?}");
        assert!(of.before_per_s > of.rate.per_s, "{of:?}");
    }
    let factor = |of: Group| fitted.factors.iter().find(|(group, _)| *group == of).unwrap().1;
    let vma = factor(Group::Vma);
    assert!(vma > 1.2 && fitted.factors.iter().all(|(_, factor)| *factor <= vma), "{fitted:?}");
    // Neither program forks.
    assert!(fitted.factors.iter().all(|(group, _)| *group != Group::Tasks), "{fitted:?}");
    let source = &fitted.derived.file.ops["pid_edit_ns"].source;
    assert!(source.starts_with("derived from the common factor "), "{source}");
    assert!(source.contains("which do not decide it; 440 in x86-2: derived from "), "{source}");
}

#[test]
fn the_file_is_valid_says_what_it_is_fitted_to_and_is_the_same_each_time() {
    let known = known(BASE, None);
    let rates = ["faults=500k".to_owned()];
    let texts = [(), ()].map(|()| text(&fit_on(&known, &rates).unwrap()));
    assert_eq!(texts[0], texts[1]);
    assert!(texts[0].contains("#   faults=500k: "), "{}", texts[0]);
    let file = parse("fitted.toml", &texts[0]).unwrap();
    let fitted = Profiles::with(&[("fitted", String::leak(write(&file)))]);
    let review = review(&fitted.open("fitted").unwrap());
    assert!(review.wrong.is_empty(), "{:?}", review.wrong);
    assert_eq!(review.count(Basis::Derived, false), review.own());
    let source = &file.ops["vma_edit_ns"].source;
    let base = Profiles::default().open(BASE).unwrap();
    assert!(source.starts_with("fitted to `faults=500k` with factor "), "{source}");
    assert!(source.ends_with(&base.op(Op::VmaEdit).unwrap().source), "{source}");
}

#[test]
fn rates_that_contradict_each_other_leave_remainders_that_the_file_states() {
    let known = known(BASE, None);
    let rates = simulated(&known, &["edits"]);
    // The same program under two names.
    let far = [("edits", rates[0].1 * 0.9), ("again", rates[0].1 * 1.1)];
    let fitted = fit_on(&known, &given(&far)).unwrap();
    let left = fitted.rates.iter().map(|of| of.remainder()).collect::<Vec<_>>();
    assert!(left[0] > 0.08 && left[1] < -0.08, "{fitted:?}");
    assert!(text(&fitted).contains(" here, not reproduced: +"), "{}", text(&fitted));
}

#[test]
fn rates_that_cannot_be_used_are_refused() {
    let known = known(BASE, None);
    let why = |rates: &[&str]| {
        let rates: Vec<String> = rates.iter().map(|&rate| rate.to_owned()).collect();
        fit_on(&known, &rates).unwrap_err()
    };
    assert!(matches!(why(&[]), FitError::NoRates));
    assert!(why(&["fauts=5k"]).to_string().contains("did you mean `faults`?"));
    assert!(matches!(why(&["faults=5k", "faults=7k"]), FitError::Twice { .. }));
    let far = why(&["faults=40M"]);
    assert!(!far.is_call() && matches!(far, FitError::NoFactor { .. }), "{far}");
    assert!(matches!(why(&["edits=1k", "faults=500k"]), FitError::NoFactor { .. }));
    // 2048 faults take more than 1 ms, and less than 10 ms.
    assert!(fit_on(&known, &["ends=500k".to_owned()]).is_ok());
    let rates = ["ends=500k".to_owned()];
    let ended = fit_with(&known, &rates, &["duration_ms=10"]).unwrap_err();
    assert!(!ended.is_call() && matches!(ended, FitError::Ended { .. }), "{ended}");
    // Scripts of the gallery are known, too.
    assert!(why(&["dontned=1k"]).to_string().contains("did you mean `dontneed`?"));
}

#[test]
fn parameters_apply_to_the_programs_that_have_them() {
    let known = known(BASE, None);
    let rates = ["faults=500k".to_owned(), "edits=250k".to_owned()];
    let before = |set: &[&str]| {
        let fitted = fit_with(&known, &rates, set).unwrap();
        (fitted.rates[0].before_per_s, fitted.rates[1].before_per_s, text(&fitted))
    };
    let (usual, few) = (before(&[]), before(&["pages=2"]));
    assert!(few.0 < usual.0 / 1.2, "two pages for each mapping: {few:?}");
    assert_eq!(few.1, usual.1);
    assert!(few.2.contains("# The programs ran with pages=2.\n"), "{}", few.2);
    let why = |set: &[&str]| fit_with(&known, &rates, set).unwrap_err().to_string();
    assert!(why(&["page=2"]).contains("did you mean `pages`?"));
    // A rate is that of one program.
    for several in ["pages=2,4", "tasks=2", "cpus=2"] {
        let why = why(&[several]);
        assert!(
            why.contains("a rate is that of one") || why.contains("no parameter named"),
            "{why}"
        );
    }
}
