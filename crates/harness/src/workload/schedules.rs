//! Runs a seed under both schedules of the simulator and compares them (`sched=both`).
//!
//! The results must be equal to the last bit. If they are not, the trails of events identify the
//! first block of events that differs. Both runs are then repeated to show the events of this
//! block.

use mmscale_arch::CpuId;
use mmscale_document::ParamValue;
use mmscale_sim::{Trail, TrailEvent};

use crate::study::{RunContext, SeedResult, StudyError, TrailRequest, Trails};

/// The result under one schedule.
struct ScheduleResult {
    result: Result<SeedResult, StudyError>,
    trails: Vec<Trail>,
}

/// Runs `run` under the lazy and the naive schedule and returns their common result.
///
/// # Errors
/// [`StudyError::Check`] with the first event that differs, if results or events differ. The error
/// of the run, if both failed in the same way.
pub(crate) fn both(
    ctx: &RunContext,
    run: impl Fn(&RunContext) -> Result<SeedResult, StudyError>,
) -> Result<SeedResult, StudyError> {
    let under = |sched: &str, asked: TrailRequest| {
        let trails = Trails::new(asked);
        let mut ctx = RunContext { trails: trails.clone(), ..ctx.clone() };
        ctx.params.set("sched", ParamValue::Choice(sched.to_owned()));
        let result = run(&ctx);
        let trails = trails.take();
        ScheduleResult { result, trails }
    };
    let [lazy, naive] = ["lazy", "naive"].map(|sched| under(sched, TrailRequest::Blocks));
    for ran in [&lazy, &naive] {
        if let Err(StudyError::Interrupted) = ran.result {
            return Err(StudyError::Interrupted);
        }
    }
    let place = first_difference(&lazy.trails, &naive.trails);
    if place.is_none() && are_equal(&lazy.result, &naive.result) {
        return lazy.result;
    }
    let mut findings = vec!["the lazy and the naive schedule give different results".to_owned()];
    findings.extend([("lazy", &lazy.result), ("naive", &naive.result)].map(summary));
    if let Some((machine, block)) = place {
        let asked = TrailRequest::Block { machine, block };
        let events = ["lazy", "naive"].map(|sched| {
            let mut trails = under(sched, asked).trails;
            if machine < trails.len() { trails.swap_remove(machine).events } else { vec![] }
        });
        findings.push(format!("machine {machine} of the run, first events that differ:"));
        findings.extend(parting(&events));
    }
    Err(StudyError::Check(findings))
}

fn summary((sched, result): (&str, &Result<SeedResult, StudyError>)) -> String {
    match result {
        Ok(result) => format!("{sched}: fingerprint {:016x}", result.fingerprint),
        Err(error) => format!("{sched}: {error}"),
    }
}

/// Returns whether two results are equal, except for their cost on the host.
fn are_equal(a: &Result<SeedResult, StudyError>, b: &Result<SeedResult, StudyError>) -> bool {
    match (a, b) {
        (Ok(a), Ok(b)) => {
            let host_metrics = a.host_metrics.clone();
            *a == SeedResult { host_metrics, ..b.clone() }
        }
        (Err(a), Err(b)) => a.to_string() == b.to_string(),
        _ => false,
    }
}

/// Returns the first machine and block in which the trails differ.
fn first_difference(a: &[Trail], b: &[Trail]) -> Option<(usize, u64)> {
    let blocks = |trail: Option<&Trail>| trail.map_or(vec![], |trail| trail.blocks.clone());
    (0..a.len().max(b.len())).find_map(|machine| {
        let (a, b) = (blocks(a.get(machine)), blocks(b.get(machine)));
        let differs = |&block: &usize| a.get(block) != b.get(block);
        let block = (0..a.len().max(b.len())).find(differs)?;
        Some((machine, block as u64))
    })
}

/// Describes where two orders of events diverge: the last common events, the first different events
/// of each schedule, and the events of their CPUs before and after.
fn parting([lazy, naive]: &[Vec<TrailEvent>; 2]) -> Vec<String> {
    let key = |event: &TrailEvent| (event.cpu, event.time_ps);
    let same = lazy.iter().zip(naive).take_while(|(a, b)| key(a) == key(b)).count();
    let mut lines: Vec<String> = last_of(&lazy[..same], |_| true, "both: ");
    for (sched, events) in [("lazy: ", lazy), ("naive:", naive)] {
        lines.extend(events[same..].iter().take(3).map(|event| format!("{sched} {event}")));
    }
    let at = |events: &[TrailEvent]| events.get(same).map(|event| event.cpu);
    let mut cpus: Vec<CpuId> = [at(lazy), at(naive)].into_iter().flatten().collect();
    cpus.dedup();
    for cpu in cpus {
        let own = |event: &TrailEvent| event.cpu == cpu;
        lines.push(format!("events of {cpu} before and after:"));
        lines.extend(last_of(&lazy[..same], own, "both: "));
        for (sched, events) in [("lazy: ", lazy), ("naive:", naive)] {
            let next = events[same..].iter().filter(|event| own(event)).take(3);
            lines.extend(next.map(|event| format!("{sched} {event}")));
        }
    }
    lines
}

/// Returns the last three events that `wanted` selects, in their order.
fn last_of(
    events: &[TrailEvent],
    wanted: impl Fn(&TrailEvent) -> bool,
    whose: &str,
) -> Vec<String> {
    let last = events.iter().rev().filter(|event| wanted(event)).take(3);
    let mut lines: Vec<String> = last.map(|event| format!("{whose} {event}")).collect();
    lines.reverse();
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trail(blocks: &[u64]) -> Trail {
        Trail { blocks: blocks.to_vec(), events: vec![] }
    }

    #[test]
    fn the_first_block_that_differs_is_found_in_its_machine() {
        let a = [trail(&[1, 2]), trail(&[3, 4])];
        assert_eq!(first_difference(&a, &a), None);
        assert_eq!(first_difference(&a, &[trail(&[1, 2]), trail(&[3, 5])]), Some((1, 1)));
        assert_eq!(first_difference(&a, &[trail(&[1, 2]), trail(&[3])]), Some((1, 1)));
        assert_eq!(first_difference(&a, &a[..1]), Some((1, 0)));
    }

    #[test]
    fn the_events_around_the_parting_are_shown() {
        let event = |number, time_ps| TrailEvent {
            number,
            cpu: CpuId::new(1),
            time_ps,
            path: vec!["root".into()],
        };
        let lazy = vec![event(1, 10), event(2, 20), event(3, 2_000_007)];
        let naive = vec![event(1, 10), event(2, 20)];
        let lines = parting(&[lazy, naive]);
        assert_eq!(lines.len(), 2 + 1 + 1 + 2 + 1, "{lines:?}");
        assert_eq!(lines[2], "lazy:  event 3: cpu1 at 2.000007 us in root");
        assert_eq!(lines[3], "events of cpu1 before and after:");
        assert_eq!(lines[4], "both:  event 1: cpu1 at 0.000010 us in root");
    }
}
