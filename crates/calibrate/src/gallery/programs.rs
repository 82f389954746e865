//! Items whose programs are below `System`: they call the page allocator or a lock directly.

use std::collections::BTreeMap;

use mmscale_arch::Order;
use mmscale_arch::sync::RwsemPolicy;
use mmscale_frames::page_alloc::PageCheck;
use mmscale_harness::{Interrupt, StudyError};
use mmscale_sim::profile::Profile;

use crate::fidelity::{self, Phase};

/// The metric of each program.
const METRIC: &str = "ops_per_s";

/// Runs one arm of a program at a point.
pub(super) fn run(
    name: &str,
    arm: &str,
    x: Option<u64>,
    profile: &Profile,
    interrupt: &Interrupt,
) -> Result<BTreeMap<String, f64>, StudyError> {
    let value = match name {
        "one-cpu" => fidelity::one_step(profile, arm, interrupt)?,
        "buddy" => buddy(arm, x, profile, interrupt)?,
        "rwsem" => rwsem(arm, x, profile, interrupt)?,
        "spin" => spin(x, profile, interrupt)?,
        _ => None,
    };
    let what =
        || StudyError::Machine(format!("there is no program `{name}` with `{arm}` at {x:?}"));
    value.map(|value| BTreeMap::from([(METRIC.to_owned(), value)])).ok_or_else(what)
}

/// A PAUSE of Cascade Lake, in ns: what 80 of them add to an operation of two threads in the
/// published table (1665 and 355 thousand operations a second with 20 and 100 of them).
const PAUSE_NS: f64 = (1e6 / 355.0 - 1e6 / 1665.0) / 80.0;

/// Runs the microbenchmark of the semaphore. The arm is the number of PAUSE instructions, and
/// whether readers spin; x is the number of threads.
fn rwsem(
    arm: &str,
    x: Option<u64>,
    profile: &Profile,
    interrupt: &Interrupt,
) -> Result<Option<f64>, StudyError> {
    let (load, policy) = match arm.strip_suffix(", readers spin") {
        Some(load) => (load, RwsemPolicy::ReadersSpin),
        None => (arm, RwsemPolicy::FirstWakes),
    };
    let pauses = load.strip_prefix("load ").and_then(|text| text.parse::<u32>().ok());
    let cpus = x.and_then(|x| usize::try_from(x).ok());
    let (Some(pauses), Some(cpus)) = (pauses, cpus) else { return Ok(None) };
    let held_ns = (f64::from(pauses) * PAUSE_NS).round() as u64;
    fidelity::ops_per_s(profile, policy, cpus, held_ns, interrupt).map(Some)
}

/// The time of a thread between two turns of the lock, in ns: two system calls.
const OUTSIDE_NS: u64 = 300;

/// Runs the microbenchmark of a spin lock; x is the number of threads.
fn spin(
    x: Option<u64>,
    profile: &Profile,
    interrupt: &Interrupt,
) -> Result<Option<f64>, StudyError> {
    let Some(cpus) = x.and_then(|x| usize::try_from(x).ok()) else { return Ok(None) };
    fidelity::turns_per_s(profile, cpus, OUTSIDE_NS, interrupt).map(Some)
}

/// CPUs of the machine on which orders are compared.
const CPUS_OF_ORDERS: usize = 8;

/// Runs a benchmark of the page allocator. The arm is its phase, and the order unless that is the
/// point: then x is the order, else the number of CPUs. After a comma the arm may say where pages
/// are checked.
fn buddy(
    arm: &str,
    x: Option<u64>,
    profile: &Profile,
    interrupt: &Interrupt,
) -> Result<Option<f64>, StudyError> {
    let (arm, check) = match arm.split_once(", ") {
        None => (arm, PageCheck::Refill),
        Some((arm, "checked in the hold")) => (arm, PageCheck::Refill),
        Some((arm, "checked outside")) => (arm, PageCheck::Alloc),
        Some((arm, "not checked")) => (arm, PageCheck::Never),
        Some(_) => return Ok(None),
    };
    let (name, order) = match arm.rsplit_once(' ') {
        Some((name, order)) if order.parse::<u8>().is_ok() => (name, order.parse().ok()),
        _ => (arm, None),
    };
    let x = x.and_then(|x| usize::try_from(x).ok());
    let (order, cpus) = match order {
        Some(order) => (Some(order), x),
        None => (x.and_then(|x| u8::try_from(x).ok()), Some(CPUS_OF_ORDERS)),
    };
    let order = order.and_then(Order::new);
    let (Some(phase), Some(order), Some(cpus)) = (Phase::of(name), order, cpus) else {
        return Ok(None);
    };
    fidelity::ns_per_op(profile, phase, order, cpus, check, interrupt).map(Some)
}
