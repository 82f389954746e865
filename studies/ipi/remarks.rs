//! Remarks of the report: the length of a run, and what its machine can observe.

use super::{Params, Work};
use mmscale_document::On;
use mmscale_harness::TooShort;

/// Number of windows below which the 99th percentile equals the maximum.
const NEEDED_WINDOWS: u64 = 100;

/// Returns the metrics for which a run has too few windows.
pub(super) fn too_short(params: &Params, on: On) -> Vec<TooShort> {
    let has_windows = on != On::Linux && params.workload != Work::Flush;
    let few = has_windows && params.windows < NEEDED_WINDOWS;
    let p99 = few.then(|| TooShort {
        metrics: vec!["preempt_off_max_window_p99_ns"],
        needs: format!(
            "windows={NEEDED_WINDOWS} or more: a 99th percentile of fewer is the largest"
        ),
    });
    p99.into_iter().collect()
}

/// Describes the length of the run and what is observed on its machine.
pub(super) fn remarks(params: &Params, on: On) -> Vec<String> {
    let length = match params.workload {
        Work::Flush => format!(
            "A thread on every CPU writes to a page of its own and lets it go (MADV_DONTNEED) for \
             {} ms; call_mean_ns is the call alone.",
            params.flush_ms
        ),
        Work::Mixed | Work::Reclaim | Work::Spawn => windows_of(params, on),
    };
    vec![length, seen_on(on).to_owned()]
}

/// Describes the length of the run and its disturbances.
fn windows_of(params: &Params, on: On) -> String {
    let Params { windows, window_s, .. } = params;
    let length = format!("{windows} windows of {window_s} s");
    if on != On::Sim {
        return format!(
            "{length}, one after the other. Whatever else this computer does in that time is in \
             the figures."
        );
    }
    if !params.noise {
        return format!("{length}, and nothing disturbs the CPUs.");
    }
    let times = 30.0 / window_s;
    format!(
        "{length}; disturbances come {times:.0} times as often as in the profile, so that each \
         window has as many as one of 30 s. Ordinary sections are not scaled: a longer window has \
         more of them, and a longer longest."
    )
}

/// Describes what is observed on a machine.
fn seen_on(on: On) -> &'static str {
    match on {
        On::Sim => {
            "p50 and p99 are of the CPU that has the largest: of its windows' longest sections, \
             of its watchman's wake-ups. A section is preemption off, interrupts off or an \
             interrupt. Stolen time counts where it falls into one."
        }
        On::Threads => {
            "CPUs are threads of this computer, and interrupts are looked for at certain points: \
             sections without preemption cannot be seen. p50 and p99 of wake-ups are of the CPU \
             that has the largest; calls, waits and interrupts are counted by the memory manager \
             itself."
        }
        On::Linux => {
            "p50 and p99 of wake-ups are of the CPU that has the largest. Sections without \
             preemption cannot be seen without a tracer in each of them; resched_delay, how long a \
             CPU goes on after it is to run another task, stands in for those that a task waited \
             for. Calls are those of the run's processes, from the wish until the function began \
             (delivery) and while it ran."
        }
    }
}
