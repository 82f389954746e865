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
            means: "threads are throttled when the quota of a period is used up, even inside \
                    critical sections: waits measured by --on threads are wrong",
            remedy: "run outside the container, or without a CPU limit on it",
        };
    }
    if allowed < 2 {
        return Finding {
            what: "CPUs",
            state: State::Limited,
            seen,
            means: "threads cannot run in parallel: --on threads shows no contention",
            remedy: "use --on sim, or a computer with at least two CPUs",
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
            seen: format!("sched_setaffinity failed: {error}"),
            means: "threads of --on threads migrate between CPUs: more noise, and two may share a \
                    CPU",
            remedy: "allow sched_setaffinity in the sandbox of this process",
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
            means: "runs cannot check in advance whether their memory is available",
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
        seen: match mmscale_live::is_emulated() {
            true => "this machine is emulated: only counts mean something".to_owned(),
            false => "this is a virtual machine".to_owned(),
        },
        means: "the host can deschedule its CPUs at any time: maxima and tails of --on threads are \
                partly caused by the host",
        remedy: "compare arms of the same run only, use medians, or use a physical machine",
    })
}
