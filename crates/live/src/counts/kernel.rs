//! Facts about the running kernel.

use super::CountsError;
use mmscale_frames::pcp::PcpLimits;
use mmscale_harness::versions::{Version, running};
use mmscale_mm::time::Hz;
use std::fs;

/// Where tracefs is mounted.
pub(super) const ROOTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// The running kernel.
pub(super) struct Kernel {
    pub(super) release: String,
    /// The version; of a kernel that tells none, the newest that is known.
    pub(super) version: Version,
    pub(super) hz: Hz,
    /// Whether it runs under a hypervisor, which may deschedule a CPU.
    pub(super) is_guest: bool,
    /// Online CPUs, numbered from 0.
    pub(super) cpus: usize,
    pub(super) tracefs: String,
    /// Addresses of functions that tracepoints name.
    pub(super) vmstat_update: u64,
    pub(super) delayed_work_timer_fn: u64,
    pub(super) min_free_kb: u64,
    pub(super) watermark_scale: u32,
    /// Pages of the zones of node 0 below the job's.
    pub(super) low_pages: u64,
}

pub(super) fn read(path: &str) -> Result<String, CountsError> {
    // tidy: opened: a file of the kernel
    fs::read_to_string(path).map_err(|why| needs(format!("reading {path}: {why}")))
}

fn number<T: std::str::FromStr>(path: &str) -> Result<T, CountsError> {
    read(path)?.trim().parse().map_err(|_| needs(format!("{path} holds no number")))
}

/// Whether the CPUs have the flag `hypervisor`.
fn is_guest(cpuinfo: &str) -> bool {
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags"));
    flags.is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor"))
}

fn needs(what: impl Into<String>) -> CountsError {
    CountsError::Needs(what.into())
}

impl Kernel {
    /// Looks at the kernel; says in a sentence what is missing.
    pub(super) fn look() -> Result<Self, CountsError> {
        // tidy: opened: a file of the kernel
        let open = |at: &&str| fs::read_dir(format!("{at}/events")).is_ok();
        let tracefs = ROOTS.into_iter().find(open).ok_or_else(|| {
            needs(
                "tracefs cannot be read: run this as root, and mount it with `mount -t tracefs \
                 nodev /sys/kernel/tracing`",
            )
        })?;
        let online = read("/sys/devices/system/cpu/online")?;
        let cpus = match online.trim().split_once('-') {
            Some(("0", last)) => last.parse::<usize>().map_or(0, |last| last + 1),
            _ => 0,
        };
        // The simulated machine has one node, and the limits of page caches depend on its CPUs.
        let nodes = read("/sys/devices/system/node/online").unwrap_or_else(|_| "0".to_owned());
        if nodes.trim() != "0" {
            let what = format!(
                "this computer has several memory nodes ({}), and one is compared: boot it with \
                 numa=off, or use a guest with one node",
                nodes.trim()
            );
            return Err(needs(what));
        }
        if cpus < 2 {
            let what = format!("CPUs 0 to N must be online, two at least, not {}", online.trim());
            return Err(needs(what));
        }
        if number::<u32>("/proc/sys/vm/percpu_pagelist_high_fraction")? != 0 {
            return Err(needs(
                "vm.percpu_pagelist_high_fraction is set, so page caches do not tune themselves: \
                 set it to 0 first",
            ));
        }
        let symbols = read("/proc/kallsyms")?;
        let hz = mmscale_linux::tick_hz().and_then(Hz::new);
        Ok(Self {
            version: running(),
            release: read("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            is_guest: is_guest(&read("/proc/cpuinfo")?),
            hz: hz.ok_or_else(|| needs("the tick of this kernel has no usual rate"))?,
            cpus,
            tracefs: tracefs.to_owned(),
            vmstat_update: address(&symbols, "vmstat_update")?,
            delayed_work_timer_fn: address(&symbols, "delayed_work_timer_fn")?,
            min_free_kb: number("/proc/sys/vm/min_free_kbytes")?,
            watermark_scale: number("/proc/sys/vm/watermark_scale_factor")?,
            low_pages: zones()?
                .iter()
                .filter(|zone| zone.name != "Normal")
                .map(Zone::managed)
                .sum(),
        })
    }
}

fn address(symbols: &str, name: &str) -> Result<u64, CountsError> {
    let line = symbols.lines().find(|line| line.split(' ').nth(2) == Some(name));
    let address = line.and_then(|line| u64::from_str_radix(line.split(' ').next()?, 16).ok());
    address.filter(|&at| at != 0).ok_or_else(|| {
        needs(format!("/proc/kallsyms has no address of {name}: set kernel.kptr_restrict to 0"))
    })
}

/// A zone of node 0 in /proc/zoneinfo, as its lines.
struct Zone {
    name: String,
    lines: Vec<String>,
}

impl Zone {
    /// Returns the number behind the first line, starting at line `from`, that begins with `name`.
    fn value(&self, name: &str, from: usize) -> Option<u64> {
        let words = self.lines.iter().skip(from).map(|line| line.trim());
        let mut values = words.filter_map(|line| line.strip_prefix(name));
        values.find_map(|rest| rest.trim_start_matches(':').trim().parse().ok())
    }
    fn managed(&self) -> u64 {
        self.value("managed ", 0).unwrap_or(0)
    }
}

fn zones() -> Result<Vec<Zone>, CountsError> {
    let mut zones: Vec<Zone> = Vec::new();
    for line in read("/proc/zoneinfo")?.lines() {
        if let Some((node, zone)) = line.strip_prefix("Node ").and_then(|l| l.split_once(',')) {
            if node != "0" {
                break;
            }
            let name = zone.trim().trim_start_matches("zone").trim().to_owned();
            zones.push(Zone { name, lines: Vec::new() });
        } else if let Some(zone) = zones.last_mut() {
            zone.lines.push(line.to_owned());
        }
    }
    Ok(zones)
}

/// A CPU's page cache of zone Normal of node 0.
pub(super) struct Cache {
    pub(super) managed: u64,
    pub(super) start_pfn: u64,
    pub(super) count: u32,
    pub(super) high: u32,
    pub(super) limits: PcpLimits,
}

impl Cache {
    pub(super) fn look(cpu: usize) -> Result<Self, CountsError> {
        let zones = zones()?;
        let zone = zones.iter().find(|zone| zone.name == "Normal");
        let zone = zone.ok_or_else(|| needs("/proc/zoneinfo has no zone Normal on node 0"))?;
        let heading = format!("cpu: {cpu}");
        let from = zone.lines.iter().position(|line| line.trim() == heading);
        let from =
            from.ok_or_else(|| needs(format!("/proc/zoneinfo has no page cache of CPU {cpu}")))?;
        let value = |name: &str, from| {
            let found = zone.value(name, from);
            found.ok_or_else(|| needs(format!("/proc/zoneinfo has no `{name}`")))
        };
        let of_cpu = |name: &str| value(name, from).map(|value| value as u32);
        let limits = PcpLimits {
            batch: of_cpu("batch:")?,
            high_min: of_cpu("high_min:")?,
            high_max: of_cpu("high_max:")?,
            scale_max: mmscale_frames::pcp::BATCH_SCALE_MAX,
        };
        Ok(Self {
            managed: zone.managed(),
            start_pfn: value("start_pfn:", 0)?,
            count: of_cpu("count:")?,
            high: of_cpu("high:")?,
            limits,
        })
    }
}
