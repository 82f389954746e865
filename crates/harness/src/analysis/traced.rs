//! Runs again after the fact: a seed whose worst wait is found, and then the same seed with the
//! timeline around that wait.

use mmscale_arch::LockClass;
use mmscale_document::{Interval, Target, Timeline};
use mmscale_sim::TimelineOf;

use super::whatif::{CallOrRun, spin_class};
use crate::plan::{CallError, Plan};
use crate::runner::{RunError, run_recorded};
use crate::study::{ArmId, Interrupt, Timelines};

/// Returns the spin locks of a name: of the class itself, or of a metric of it, such as
/// `zone_lock_wait_max_ns`.
///
/// # Errors
/// A name of no class, or of a class for which tasks sleep.
pub fn lock_class(name: &str) -> Result<LockClass, CallError> {
    let of = |class: &&LockClass| {
        let rest = name.strip_prefix(class.name());
        rest.is_some_and(|rest| {
            rest.is_empty() || rest.starts_with("_lock") || rest.starts_with("_wait")
        })
    };
    let named = LockClass::ALL.iter().filter(of).max_by_key(|class| class.name().len());
    spin_class(named.map_or(name, |class| class.name()))
}

/// A traced run.
#[derive(Clone, Debug)]
pub struct Traced {
    /// The timeline around the worst wait.
    pub timeline: Timeline,
    /// The window of the record.
    pub window: Interval,
    /// The fingerprints of the run that found the wait and of the run that recorded it. They are
    /// equal.
    pub fingerprints: [u64; 2],
}

/// Runs one arm and seed of a plan to find the worst wait for a lock of `class`, and again to
/// record the timeline up to `around_ps` before and after it.
pub fn trace(
    plan: &Plan,
    (arm, seed): (ArmId, u64),
    class: LockClass,
    around_ps: u64,
    interrupt: &Interrupt,
) -> Result<Traced, CallOrRun> {
    let refuse = |what: String| Err(CallError::Other(what).into());
    if plan.on != Target::Sim {
        return refuse("only a simulated machine can run again and be traced; use --on sim".into());
    }
    let run = |of: TimelineOf| -> Result<(Timeline, u64), RunError> {
        let timelines = Timelines::new(of);
        let result = run_recorded(plan, arm, seed, &timelines, interrupt)?;
        Ok((timelines.take(), result.fingerprint))
    };
    let (found, first) = run(TimelineOf::Worst(class))?;
    let Some(worst) = found.worst else {
        let what = format!(
            "no CPU waited for a lock of class {} in the measured time; `mmscale run {} --details` \
             lists the locks for which CPUs wait",
            class.name(),
            plan.study.name()
        );
        return refuse(what);
    };
    let window = Interval {
        from_ps: worst.at.from_ps.saturating_sub(around_ps),
        to_ps: worst.at.to_ps.saturating_add(around_ps),
    };
    let (mut timeline, second) = run(TimelineOf::Window(window))?;
    // Numbers of locks are those of the second record.
    let same = |wait: &&mmscale_document::WaitSpan| wait.cpu == worst.cpu && wait.at == worst.at;
    timeline.worst = timeline.waits.iter().find(same).cloned();
    Ok(Traced { timeline, window, fingerprints: [first, second] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_names_its_lock() {
        let class = |name| lock_class(name).map(LockClass::name).ok();
        assert_eq!(class("zone"), Some("zone"));
        assert_eq!(class("zone_lock_wait_max_ns"), Some("zone"));
        assert_eq!(class("zone_lock_wait"), Some("zone"));
        assert_eq!(class("zones"), None);
        assert_eq!(class("ops_per_s"), None);
        assert_eq!(class("mmap_lock_wait_max_ns"), None, "tasks sleep for it");
    }
}
