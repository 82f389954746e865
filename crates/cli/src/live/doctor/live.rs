//! Tests whether the live kernel can be observed and how idle this computer is, by trying both.

use std::time::{Duration, Instant};

use mmscale_live::holders::{Releases, releases};
use mmscale_live::observe::{ObserveError, Unseen};
use mmscale_live::{Leftovers, clear_leftovers};

use super::system::System;
use super::{Finding, State};

/// Duration of the search for gaps.
const LOOK: Duration = Duration::from_millis(200);
/// Minimum length of a gap in which this program did not run, in ns.
const GAP_NS: u128 = 50_000;

/// Examines the kernel. `watchable` is the result of an attempt to load the BPF programs.
pub(super) fn examine(system: &System, watchable: &Result<Unseen, ObserveError>) -> Vec<Finding> {
    let mut findings = vec![watching(watchable)];
    if let Ok(unseen) = watchable {
        findings.extend(events(&unseen.events));
        findings.extend(releases().ok().map(|found| holders(&found)));
    }
    findings.extend([leftovers(clear_leftovers()), gaps()]);
    findings.extend(neighbours(system));
    findings
}

fn watching(watchable: &Result<Unseen, ObserveError>) -> Finding {
    const WHAT: &str = "live kernel";
    match watchable {
        Ok(unseen) if unseen.functions.is_empty() => {
            let seen = "lock waits and holders, LRU batches, calls between CPUs and exits can be \
                        observed";
            let seen = if unseen.events.is_empty() { seen } else { "observation works" };
            Finding::good(WHAT, seen.to_owned())
        }
        Ok(unseen) => Finding {
            what: WHAT,
            state: State::Limited,
            seen: format!(
                "observation works, but these functions are hidden: {}",
                unseen.functions.join(", ")
            ),
            means: "waits below these functions are attributed to their callers, or to `other`",
            remedy: "use a kernel that lists them in /proc/kallsyms, or read the call paths",
        },
        Err(why) => Finding {
            what: WHAT,
            state: State::Missing,
            seen: why.to_string(),
            means: "--on live measures rates and CPU time only, and `mmscale live watch` does not \
                    work",
            remedy: match why.verifier_log() {
                Some(_) => {
                    "report it with the output of `mmscale live doctor --format json`, which has \
                     the verifier's log"
                }
                None => {
                    "run as root, or give the binary cap_bpf,cap_perfmon with setcap; in a \
                     container the host must grant both"
                }
            },
        },
    }
}

/// Reports events that this kernel does not show, by what is measured with them.
fn events(unseen: &[String]) -> Vec<Finding> {
    let (calls, others): (Vec<&str>, Vec<&str>) =
        unseen.iter().map(String::as_str).partition(|event| event.starts_with("csd_"));
    let (resched, others): (Vec<&str>, Vec<&str>) =
        others.into_iter().partition(|event| *event == "need_resched");
    let limited = |what, events: Vec<&str>, means, remedy| {
        let seen = format!("no events: {}", events.join(", "));
        (!events.is_empty()).then_some(Finding { what, state: State::Limited, seen, means, remedy })
    };
    let findings = [
        limited(
            "calls",
            calls,
            "calls of functions on other CPUs and their times are not seen: runs leave these \
             metrics out",
            "use Linux 6.4 or later, which has these tracepoints",
        ),
        limited(
            "reschedule",
            resched,
            "the time from a request to reschedule to the next task (`resched_delay`) is not \
             seen; all else is",
            "use a kernel with the tracepoint sched_set_need_resched_tp whose RCU readers are not \
             preempted (no rcu_read_unlock_special in /proc/kallsyms): on others a BPF program \
             on it would panic the kernel",
        ),
        limited(
            "tracepoints",
            others,
            "what these events count or time is left out",
            "use a kernel that has them in /sys/kernel/tracing/available_events",
        ),
    ];
    findings.into_iter().flatten().collect()
}

/// Reports whether holders of contended locks are seen, from a lock that was contended for it.
fn holders(found: &Releases) -> Finding {
    const WHAT: &str = "holders";
    match found {
        Releases::Seen(holder) => {
            let (class, path) = (holder.class, holder.name());
            let seen = format!(
                "lock:contended_release: yes; the test's {class} was held by {path}; waits: {}",
                holder.waits
            );
            Finding::good(WHAT, seen)
        }
        Releases::NoneSeen => Finding {
            what: WHAT,
            state: State::Limited,
            seen: "lock:contended_release: yes, but no wait of the test ended with one".to_owned(),
            means: "holders of contended locks may be seen or not",
            remedy: "repeat on an idle computer with two CPUs or more",
        },
        Releases::NotReported => Finding {
            what: WHAT,
            state: State::Limited,
            seen: "lock:contended_release: no".to_owned(),
            means: "holders of contended locks and the lengths of their holds are not seen; \
                    holders of zone locks can be inferred by --set watch=holders",
            remedy: "use a kernel with this tracepoint in /sys/kernel/tracing/events/lock",
        },
    }
}

/// Reports remains of killed runs. Those that could be removed are already gone.
fn leftovers(found: Leftovers) -> Finding {
    const WHAT: &str = "leftovers";
    let Leftovers { done, failed } = found;
    if failed.is_empty() {
        let nothing = "killed runs have left no setting, group or folder behind".to_owned();
        return Finding::good(WHAT, if done.is_empty() { nothing } else { done.join("; ") });
    }
    Finding {
        what: WHAT,
        state: State::Limited,
        seen: [failed, done].concat().join("; "),
        means: "a killed run has changed this computer: a setting was not restored, or its \
                processes or files still exist",
        remedy: "restore the setting or remove the listed items by hand, then repeat `mmscale \
                 doctor`",
    }
}

/// Reads the clock as often as possible and reports gaps.
fn gaps() -> Finding {
    let (begun, mut last) = (Instant::now(), Instant::now());
    let (mut count, mut longest) = (0_u32, 0_u128);
    while begun.elapsed() < LOOK {
        let now = Instant::now();
        let gap = now.duration_since(last).as_nanos();
        if gap > GAP_NS {
            count += 1;
            longest = longest.max(gap);
        }
        last = now;
    }
    let seen = format!(
        "{count} gaps of more than 50 us in {} ms, the longest {} us",
        LOOK.as_millis(),
        longest / 1000
    );
    if longest < 1_000_000 {
        return Finding::good("quiet", seen);
    }
    Finding {
        what: "quiet",
        state: State::Limited,
        seen,
        means: "other programs or the hypervisor take the CPU for milliseconds: the longest waits \
                on real machines are partly caused by them",
        remedy: "stop other programs, use medians, and compare pairs with `mmscale live ab`",
    }
}

/// Reports runnable tasks and time stolen by the hypervisor.
fn neighbours(system: &System) -> Option<Finding> {
    let load: f64 = system.read("/proc/loadavg")?.split(' ').next()?.parse().ok()?;
    let stat = system.read("/proc/stat")?;
    let cpu: Vec<u64> =
        stat.lines().next()?.split_whitespace().skip(1).filter_map(|n| n.parse().ok()).collect();
    let stolen = *cpu.get(7)? as f64 / cpu.iter().sum::<u64>().max(1) as f64;
    let cpus = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    let seen = format!("load {load}, {:.2} % of time stolen since boot", stolen * 100.0);
    if load < cpus / 4.0 && stolen < 0.01 {
        return Some(Finding::good("neighbours", seen));
    }
    Some(Finding {
        what: "neighbours",
        state: State::Limited,
        seen,
        means: "runs on real machines share their CPUs with other programs",
        remedy: "stop other programs, or compare with `mmscale live ab`, so that both sides are \
                 affected alike",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unseen(events: &[&str], functions: &[&str]) -> Unseen {
        let all = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Unseen { events: all(events), functions: all(functions) }
    }

    #[test]
    fn an_event_that_is_not_seen_is_no_hidden_function() {
        let without = unseen(&["csd_queue_cpu", "csd_function_exit", "need_resched"], &[]);
        let rows = events(&without.events);
        let whats: Vec<_> = rows.iter().map(|row| row.what).collect();
        assert_eq!(whats, ["calls", "reschedule"]);
        assert_eq!(rows[0].seen, "no events: csd_queue_cpu, csd_function_exit");
        assert!(rows[0].remedy.contains("6.4") && rows[1].remedy.contains("RCU readers"));
        assert_eq!(watching(&Ok(without)).state, State::Good);
        assert!(events(&[]).is_empty());
        assert_eq!(events(&unseen(&["mark_victim"], &[]).events)[0].what, "tracepoints");
        let hidden = watching(&Ok(unseen(&[], &["zap_pte_range"])));
        assert_eq!(hidden.state, State::Limited);
        assert!(hidden.seen.ends_with("hidden: zap_pte_range"), "{}", hidden.seen);
    }
}
