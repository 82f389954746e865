//! Requirements of observing the live kernel: types, tracepoints, capabilities.

use super::system::System;
use super::{Finding, State};

/// Bits of the effective capabilities, from capabilities(7).
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

pub(super) fn examine(system: &System) -> Vec<Finding> {
    vec![btf(system), tracefs(system), rights(system)]
}

fn btf(system: &System) -> Finding {
    if system.exists("/sys/kernel/btf/vmlinux") {
        return Finding::good("BTF", "the kernel describes its types".to_owned());
    }
    Finding {
        what: "BTF",
        state: State::Missing,
        seen: "there is no /sys/kernel/btf/vmlinux".to_owned(),
        means: "BPF programs cannot find the kernel's fields: lock waits of the live kernel \
                cannot be attributed",
        remedy: "use a kernel with CONFIG_DEBUG_INFO_BTF=y, as distributions build it",
    }
}

fn tracefs(system: &System) -> Finding {
    let roots = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
    let open = roots.iter().find(|root| system.readable(&format!("{root}/available_events")));
    let Some(root) = open else {
        return Finding {
            what: "tracefs",
            state: State::Limited,
            seen: "/sys/kernel/tracing cannot be read".to_owned(),
            means: "runs and `live` do without: BPF programs find tracepoints by themselves. \
                    Other tools, and the example live_counts, want it",
            remedy: "run as root, or: mount -t tracefs nodev /sys/kernel/tracing",
        };
    };
    if system.exists(&format!("{root}/events/lock/contention_begin")) {
        return Finding::good("tracefs", format!("{root}, with lock:contention_begin"));
    }
    Finding {
        what: "tracefs",
        state: State::Limited,
        seen: format!("{root}, without lock:contention_begin"),
        means: "who waits for locks in the live kernel cannot be seen",
        remedy: "use Linux 5.19 or later",
    }
}

fn rights(system: &System) -> Finding {
    let capabilities = system
        .field("/proc/self/status", "CapEff")
        .and_then(|text| u64::from_str_radix(&text, 16).ok())
        .unwrap_or(0);
    let has = |bit: u32| capabilities >> bit & 1 == 1;
    if has(CAP_SYS_ADMIN) || (has(CAP_BPF) && has(CAP_PERFMON)) {
        let seen = "the capabilities for BPF and performance events are there";
        return Finding::good("BPF rights", seen.to_owned());
    }
    Finding {
        what: "BPF rights",
        state: State::Missing,
        seen: "neither CAP_SYS_ADMIN nor CAP_BPF with CAP_PERFMON".to_owned(),
        means: "BPF programs cannot be loaded: only /proc and resource usage can be measured on \
                the live kernel",
        remedy: "run as root, or give the binary cap_bpf,cap_perfmon with setcap",
    }
}
