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
        return Finding::good("BTF", "the kernel provides type information".to_owned());
    }
    Finding {
        what: "BTF",
        state: State::Missing,
        seen: "there is no /sys/kernel/btf/vmlinux".to_owned(),
        means: "BPF programs cannot access fields of kernel structures: lock waits of the live \
                kernel cannot be attributed",
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
            means: "runs and `live watch` do not need it, because BPF programs attach to \
                    tracepoints directly; `live counts` and other tools need it",
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
        means: "lock waits of the live kernel cannot be observed",
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
        let seen = "the capabilities for BPF and performance events are present";
        return Finding::good("BPF rights", seen.to_owned());
    }
    Finding {
        what: "BPF rights",
        state: State::Missing,
        seen: "neither CAP_SYS_ADMIN nor CAP_BPF with CAP_PERFMON".to_owned(),
        means: "BPF programs cannot be loaded: the live kernel can be measured by /proc and \
                resource usage only",
        remedy: "run as root, or give the binary cap_bpf,cap_perfmon with setcap",
    }
}
