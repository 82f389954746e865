//! CPUs, whether threads can be pinned to them, and memory.

use super::system::System;
use super::{Finding, State};

pub(super) fn examine(system: &System) -> Vec<Finding> {
    let mut findings = vec![cpus(system), pinning(), memory(system)];
    findings.extend(guest(system));
    findings
}

fn cpus(system: &System) -> Finding {
    let allowed = std::thread::available_parallelism().map_or(1, usize::from);
    let online = system.read("/sys/devices/system/cpu/online");
    let mut seen = format!("{allowed} to use");
    if let Some(online) = online {
        seen.push_str(&format!(", online: {online}"));
    }
    if let Some(quota) = quota(system) {
        seen.push_str(&format!(", quota: {quota}"));
        return Finding {
            what: "CPUs",
            state: State::Limited,
            seen,
            means: "threads are stopped when the quota of a period is used up, in the middle of \
                    critical sections too: waits on --on threads are wrong",
            remedy: "run outside the container, or without a CPU limit on it",
        };
    }
    if allowed < 2 {
        return Finding {
            what: "CPUs",
            state: State::Limited,
            seen,
            means: "threads only take turns: --on threads shows no contention",
            remedy: "use --on sim, or a computer with two CPUs or more",
        };
    }
    Finding::good("CPUs", seen)
}

/// Returns the CPU quota of this process's control group (version 2). `None` without a quota.
fn quota(system: &System) -> Option<String> {
    let limit = system.read("/sys/fs/cgroup/cpu.max")?;
    (!limit.starts_with("max")).then_some(limit)
}

/// Tests pinning on a separate thread, to the CPUs that it may use anyway, so that nothing changes.
fn pinning() -> Finding {
    let tried = std::thread::spawn(|| {
        let mask = rustix::thread::sched_getaffinity(None)?;
        rustix::thread::sched_setaffinity(None, &mask)
    });
    match tried.join().expect("the thread does not panic") {
        Ok(()) => Finding::good("pinning", "threads can be pinned to CPUs".to_owned()),
        Err(error) => Finding {
            what: "pinning",
            state: State::Limited,
            seen: format!("the system refuses: {error}"),
            means: "threads wander between CPUs on --on threads: more noise, and two may share one",
            remedy: "allow sched_setaffinity in the sandbox that this runs in",
        },
    }
}

fn memory(system: &System) -> Finding {
    let kib = |key| -> Option<u64> {
        system.field("/proc/meminfo", key)?.split_whitespace().next()?.parse().ok()
    };
    let limit: Option<u64> =
        system.read("/sys/fs/cgroup/memory.max").and_then(|text| text.parse().ok());
    let Some(available) = kib("MemAvailable") else {
        return Finding {
            what: "memory",
            state: State::Limited,
            seen: "/proc/meminfo cannot be read".to_owned(),
            means: "a run cannot know beforehand whether its memory is there",
            remedy: "mount /proc",
        };
    };
    let usable = limit.map_or(available, |bytes| available.min(bytes / 1024));
    let seen = format!("{} MiB available", usable / 1024);
    // The arena of --on threads and several simulated machines of some thousand CPUs fit in 1 GiB.
    if usable >= 1 << 20 {
        return Finding::good("memory", seen);
    }
    Finding {
        what: "memory",
        state: State::Limited,
        seen,
        means: "runs with many CPUs or --on threads may not fit",
        remedy: "free memory, or run with fewer --cpus",
    }
}

/// Reports a virtual machine, if it can be detected.
fn guest(system: &System) -> Option<Finding> {
    let flags = system.field("/proc/cpuinfo", "flags")?;
    flags.split_whitespace().any(|flag| flag == "hypervisor").then(|| Finding {
        what: "hypervisor",
        state: State::Limited,
        seen: "this is a virtual machine".to_owned(),
        means: "its CPUs are taken away at times that nobody here sees: maxima and tails on \
                --on threads are partly the host's",
        remedy: "compare arms of one run only, look at medians, or use a computer of your own",
    })
}
