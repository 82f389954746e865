//! Facts about the running kernel.

use mmscale_frames::pcp::PcpLimits;
use std::fs;

/// The running kernel.
pub(crate) struct Kernel {
    pub(crate) release: String,
    /// Online CPUs, numbered from 0.
    pub(crate) cpus: usize,
    pub(crate) tracefs: String,
    /// Addresses of functions that tracepoints name.
    pub(crate) vmstat_update: u64,
    pub(crate) delayed_work_timer_fn: u64,
    pub(crate) min_free_kb: u64,
    pub(crate) watermark_scale: u32,
    /// Pages of the zones of node 0 below the job's.
    pub(crate) low_pages: u64,
}

pub(crate) fn read(path: &str) -> Result<String, String> {
    fs::read_to_string(path).map_err(|why| format!("reading {path}: {why}"))
}

fn number<T: std::str::FromStr>(path: &str) -> Result<T, String> {
    read(path)?.trim().parse().map_err(|_| format!("{path} holds no number"))
}

impl Kernel {
    /// Looks at the kernel; says in a sentence what is missing.
    pub(crate) fn look() -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("tracepoints belong to root: run this as root".to_owned());
        }
        let places = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
        let found =
            places.into_iter().find(|at| fs::exists(format!("{at}/events")).unwrap_or(false));
        let tracefs = found.ok_or(
            "no tracefs: mount it with `mount -t tracefs nodev /sys/kernel/tracing`, or use a \
             kernel that has it",
        )?;
        let online = read("/sys/devices/system/cpu/online")?;
        let cpus = match online.trim().split_once('-') {
            Some(("0", last)) => last.parse::<usize>().map_or(0, |last| last + 1),
            _ => 0,
        };
        if cpus < 2 {
            return Err(format!("needs CPUs 0 to N online, two at least, not {}", online.trim()));
        }
        if number::<u32>("/proc/sys/vm/percpu_pagelist_high_fraction")? != 0 {
            return Err("vm.percpu_pagelist_high_fraction is set: page caches do not tune \
                        themselves; set it to 0 first"
                .to_owned());
        }
        let symbols = read("/proc/kallsyms")?;
        Ok(Self {
            release: read("/proc/sys/kernel/osrelease")?.trim().to_owned(),
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
    /// Returns whether one hold of the zone lock frees all pages that are due, as before Linux
    /// 6.19.
    pub(crate) fn holds_whole(&self) -> bool {
        let mut parts = self.release.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
        (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) < (6, 19)
    }
}

fn address(symbols: &str, name: &str) -> Result<u64, String> {
    let line = symbols.lines().find(|line| line.split(' ').nth(2) == Some(name));
    let address = line.and_then(|line| u64::from_str_radix(line.split(' ').next()?, 16).ok());
    address.filter(|&at| at != 0).ok_or_else(|| {
        format!("/proc/kallsyms has no address of {name}: set kernel.kptr_restrict to 0")
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

fn zones() -> Result<Vec<Zone>, String> {
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
pub(crate) struct Cache {
    pub(crate) managed: u64,
    pub(crate) start_pfn: u64,
    pub(crate) count: u32,
    pub(crate) high: u32,
    pub(crate) limits: PcpLimits,
}

impl Cache {
    pub(crate) fn look(cpu: usize) -> Result<Self, String> {
        let zones = zones()?;
        let zone = zones.iter().find(|zone| zone.name == "Normal");
        let zone = zone.ok_or("/proc/zoneinfo has no zone Normal on node 0")?;
        let heading = format!("cpu: {cpu}");
        let from = zone.lines.iter().position(|line| line.trim() == heading);
        let from = from.ok_or_else(|| format!("/proc/zoneinfo has no page cache of CPU {cpu}"))?;
        let value = |name: &str, from| {
            zone.value(name, from).ok_or_else(|| format!("/proc/zoneinfo has no `{name}`"))
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
