//! Items whose programs are below `System`: they call the page allocator or a lock directly.

use std::collections::BTreeMap;

use mmscale_arch::Order;
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
        _ => None,
    };
    let what =
        || StudyError::Machine(format!("there is no program `{name}` with `{arm}` at {x:?}"));
    value.map(|value| BTreeMap::from([(METRIC.to_owned(), value)])).ok_or_else(what)
}

/// CPUs of the machine on which orders are compared.
const CPUS_OF_ORDERS: usize = 8;

/// Runs a benchmark of the page allocator. The arm is its phase, and the order unless that is the
/// point: then x is the order, else the number of CPUs.
fn buddy(
    arm: &str,
    x: Option<u64>,
    profile: &Profile,
    interrupt: &Interrupt,
) -> Result<Option<f64>, StudyError> {
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
    fidelity::ns_per_op(profile, phase, order, cpus, interrupt).map(Some)
}
