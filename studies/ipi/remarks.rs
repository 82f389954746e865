//! Remarks of the report: the length of a run, and what its machine can observe.

use super::{Params, Work};
use mmscale_document::Target;
use mmscale_harness::TooShort;

/// Number of windows below which the 99th percentile equals the maximum.
const NEEDED_WINDOWS: u64 = 100;

/// Returns the metrics for which a run has too few windows.
pub(super) fn too_short(params: &Params, on: Target) -> Vec<TooShort> {
    let has_windows = on != Target::Live && params.workload != Work::Flush;
    let few = has_windows && params.windows < NEEDED_WINDOWS;
    let p99 = few.then(|| TooShort {
        metrics: vec!["preempt_off_max_window_p99_ns"],
        needs: format!("windows={NEEDED_WINDOWS} or more, as p99 of fewer windows is the maximum"),
    });
    p99.into_iter().collect()
}

/// Describes the length of the run and what is observed on its machine.
pub(super) fn remarks(params: &Params, on: Target) -> Vec<String> {
    let length = match params.workload {
        Work::Flush => format!(
            "A thread on every CPU repeatedly writes to a page and discards it (MADV_DONTNEED) for \
             {} ms; call_mean_ns is the duration of madvise alone.",
            params.flush_ms
        ),
        Work::Mixed | Work::Reclaim | Work::Spawn => windows_of(params, on),
    };
    vec![length, seen_on(on).to_owned()]
}

/// Describes the length of the run and its disturbances.
fn windows_of(params: &Params, on: Target) -> String {
    let Params { windows, window_s, .. } = params;
    let length = format!("{windows} windows of {window_s} s");
    if on != Target::Sim {
        return format!(
            "{length}, consecutive. Other activity of this computer affects the results."
        );
    }
    if !params.noise {
        return format!("{length}, without disturbances of the CPUs.");
    }
    let times = 30.0 / window_s;
    format!(
        "{length}; disturbances occur {times:.0} times as often as in the profile, so that each \
         window has as many as one of 30 s. Ordinary sections are not scaled: a longer window has \
         more of them, and a longer maximum."
    )
}

/// Describes what is observed on a machine.
fn seen_on(on: Target) -> &'static str {
    match on {
        Target::Sim => {
            "p50 and p99 are those of the worst CPU: of the longest section of each window, and of \
             its monitor's wake-ups. A section is a time with preemption off or interrupts off, or \
             in an interrupt. Stolen time counts if it falls into one."
        }
        Target::Threads => {
            "CPUs are threads of this computer, which poll for interrupts: sections with \
             preemption off cannot be observed. p50 and p99 of wake-ups are those of the worst \
             CPU. Calls, waits and interrupts are counted by the memory manager."
        }
        Target::Live => {
            "p50 and p99 of wake-ups are those of the worst CPU. Sections with preemption off \
             cannot be observed without a tracer in each section; resched_delay, the time from a \
             reschedule request until the next task runs, replaces those in which a task was \
             waiting. Calls are those of the run's processes: delivery is from the request until \
             the function starts, run is the function."
        }
    }
}
