//! The properties of a computer that are needed to judge figures from it.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

/// Settings that affect memory management.
const SETTINGS: [&str; 9] = [
    "/proc/sys/vm/percpu_pagelist_high_fraction",
    "/proc/sys/vm/stat_interval",
    "/proc/sys/vm/swappiness",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/vm/min_free_kbytes",
    "/proc/sys/kernel/numa_balancing",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/kernel/mm/transparent_hugepage/defrag",
    "/sys/kernel/mm/lru_gen/enabled",
];

/// Options of the kernel's configuration that change what is measured.
const OPTIONS: [&str; 16] = [
    "CONFIG_PREEMPT_NONE",
    "CONFIG_PREEMPT_VOLUNTARY",
    "CONFIG_PREEMPT",
    "CONFIG_PREEMPT_RT",
    "CONFIG_PREEMPT_DYNAMIC",
    "CONFIG_HZ",
    "CONFIG_NO_HZ_FULL",
    "CONFIG_LRU_GEN",
    "CONFIG_PER_VMA_LOCK",
    "CONFIG_MEMCG",
    "CONFIG_NUMA",
    "CONFIG_KASAN",
    "CONFIG_DEBUG_VM",
    "CONFIG_PROVE_LOCKING",
    "CONFIG_INIT_ON_ALLOC_DEFAULT_ON",
    "CONFIG_PARAVIRT_SPINLOCKS",
];

/// Returns the names and values of all that this computer reports.
pub fn provenance() -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            all.insert(name.to_owned(), value);
        }
    };
    let read = |path: &str| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    add("kernel", read("/proc/sys/kernel/osrelease"));
    add("build", read("/proc/sys/kernel/version"));
    for path in SETTINGS {
        let name = path.trim_start_matches("/proc/sys/").trim_start_matches("/sys/kernel/mm/");
        add(&name.replace('/', "."), read(path));
    }
    add("options", configuration().map(|text| options(&text)));
    let cpuinfo = read("/proc/cpuinfo").unwrap_or_default();
    add("cpu", field(&cpuinfo, "model name"));
    let guest = field(&cpuinfo, "flags").map(|flags| flags.split(' ').any(|f| f == "hypervisor"));
    add("virtual_machine", guest.map(|guest| if guest { "yes" } else { "no" }.to_owned()));
    add("page_caches", read("/proc/zoneinfo").and_then(|text| page_caches(&text)));
    all
}

fn field(text: &str, key: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim().to_owned())
    })
}

/// Returns the kernel's configuration, where it is available as text.
fn configuration() -> Option<String> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    let packed = || {
        let output = Command::new("gzip").args(["-dc", "/proc/config.gz"]).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    fs::read_to_string(format!("/boot/config-{}", release.trim())).ok().or_else(packed)
}

fn options(text: &str) -> String {
    let set = |option: &str| {
        text.lines().find_map(|line| {
            let value = line.strip_prefix(option)?.strip_prefix('=')?;
            Some(format!("{}={value}", option.trim_start_matches("CONFIG_")))
        })
    };
    OPTIONS.iter().filter_map(|option| set(option)).collect::<Vec<_>>().join(" ")
}

/// Returns `high` and `batch` of the first CPU's page cache in the largest zone.
fn page_caches(zoneinfo: &str) -> Option<String> {
    let mut best: Option<(u64, String)> = None;
    let (mut zone, mut managed, mut high) = (String::new(), 0, None);
    for line in zoneinfo.lines() {
        let mut words = line.split_whitespace();
        match (words.next(), words.next()) {
            (Some("Node"), _) => {
                zone = line.rsplit(' ').next().unwrap_or_default().to_owned();
                high = None;
            }
            (Some("managed"), Some(pages)) => managed = pages.parse().unwrap_or(0),
            (Some("high:"), Some(pages)) => high = high.or(pages.parse::<u64>().ok()),
            (Some("batch:"), Some(pages)) if best.as_ref().is_none_or(|(n, _)| managed > *n) => {
                let high = high?;
                best = Some((managed, format!("zone {zone}: high {high}, batch {pages}")));
            }
            _ => {}
        }
    }
    best.map(|(_, text)| text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_zone_tells_its_page_caches() {
        let zone = |name: &str, managed: u64, high: u64, batch: u64| {
            format!(
                "Node 0, zone {name:>8}\n        managed  {managed}\n    cpu: 0\n        \
                 high:  {high}\n        batch: {batch}\n"
            )
        };
        let text = zone("DMA", 3840, 0, 1) + &zone("Normal", 9000, 1344, 63);
        assert_eq!(page_caches(&text).as_deref(), Some("zone Normal: high 1344, batch 63"));
        assert_eq!(page_caches(""), None);
    }

    #[test]
    fn options_that_are_set_are_listed() {
        let text = "CONFIG_HZ_250=y\nCONFIG_HZ=250\n# CONFIG_KASAN is not set\nCONFIG_NUMA=y\n";
        assert_eq!(options(text), "HZ=250 NUMA=y");
    }
}
