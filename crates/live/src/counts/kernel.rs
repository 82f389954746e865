//! Facts about the running kernel.

use super::CountsError;
use super::events::sees_interrupts;
use super::program::Wait;
use mmscale_frames::pcp::{DrainSize, PcpLimits};
use mmscale_frames::zone::Watermarks;
use mmscale_harness::versions::{Version, running};
use mmscale_mm::time::Hz;
use mmscale_mm::versions::History;
use std::fs;
use std::io::{Read, Seek};
use std::path::Path;

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
    /// Whether it has tracepoints of interrupts to other CPUs.
    pub(super) sees_interrupts: bool,
    /// Addresses of functions that tracepoints name.
    pub(super) vmstat_update: u64,
    pub(super) delayed_work_timer_fn: u64,
    pub(super) min_free_kb: u64,
    pub(super) watermark_scale: u32,
    /// Pages of the zones of node 0 below the job's.
    pub(super) low_pages: u64,
    /// The watermarks of the job's zone.
    pub(super) marks: Watermarks,
    /// How threads wait such that their CPUs have a tick.
    pub(super) wait: Wait,
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
        let has = |event: &str| Path::new(tracefs).join("events").join(event).exists();
        let sees_interrupts = sees_interrupts(has)?;
        let symbols = read("/proc/kallsyms")?;
        let hz = mmscale_linux::tick_hz().and_then(Hz::new);
        let version = running();
        // What the comparison reads later is read before anything runs: this may fail.
        let cache = Cache::look(0)?;
        Ok(Self {
            version,
            release: read("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            is_guest: is_guest(&read("/proc/cpuinfo")?),
            hz: hz.ok_or_else(|| needs("the tick of this kernel has no usual rate"))?,
            cpus,
            tracefs: tracefs.to_owned(),
            sees_interrupts,
            vmstat_update: address(&symbols, "vmstat_update")?,
            delayed_work_timer_fn: address(&symbols, "delayed_work_timer_fn")?,
            min_free_kb: number("/proc/sys/vm/min_free_kbytes")?,
            watermark_scale: number("/proc/sys/vm/watermark_scale_factor")?,
            low_pages: zones()?
                .iter()
                .filter(|zone| zone.name != "Normal")
                .map(Zone::managed)
                .sum(),
            marks: cache.marks,
            wait: wait(&read("/proc/cmdline")?),
        })
    }
}

/// How threads wait on a kernel with these parameters: idle CPUs have a tick only with nohz=off.
fn wait(parameters: &str) -> Wait {
    match parameters.split_whitespace().any(|word| word == "nohz=off") {
        true => Wait::Sleep,
        false => Wait::Compute,
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
    /// Returns the least positive number behind the lines that begin with `name`.
    fn least(&self, name: &str) -> Option<u64> {
        let words = self.lines.iter().filter_map(|line| line.trim().strip_prefix(name));
        words.filter_map(|rest| rest.trim().parse().ok()).filter(|&number| number > 0).min()
    }
    fn managed(&self) -> u64 {
        self.value("managed ", 0).unwrap_or(0)
    }
}

fn zones() -> Result<Vec<Zone>, CountsError> {
    Ok(zones_in(&read("/proc/zoneinfo")?))
}

/// Returns the zones of node 0.
fn zones_in(zoneinfo: &str) -> Vec<Zone> {
    let mut zones: Vec<Zone> = Vec::new();
    for line in zoneinfo.lines() {
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
    zones
}

/// A CPU's page cache of zone Normal of node 0.
pub(super) struct Cache {
    pub(super) managed: u64,
    pub(super) marks: Watermarks,
    pub(super) start_pfn: u64,
    pub(super) count: u32,
    pub(super) high: u32,
    batch: u32,
    /// `high_min` and `high_max`, where the kernel prints them.
    printed: Option<[u32; 2]>,
    /// The least `high` of all CPUs' caches.
    least_high: u32,
}

/// The source of the limits of a page cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Source {
    /// The kernel prints them.
    Printed,
    /// The kernel does not tune `high`, and prints it.
    Fixed,
    /// The kernel prints no limits: they follow from its low watermark, by its formula. No cache in
    /// use has a `high` below the lower limit; the least one of all CPUs is this.
    Computed { least_high: u32 },
}

impl Cache {
    pub(super) fn look(cpu: usize) -> Result<Self, CountsError> {
        Self::of(&zones()?, cpu)
    }
    /// Looks at the page cache of a CPU, and calls `mark` before the end of the reading changes it.
    /// The second reading of an open file needs no memory.
    pub(super) fn look_and(cpu: usize, mark: impl FnOnce()) -> Result<Self, CountsError> {
        let path = "/proc/zoneinfo";
        let failed = |why| needs(format!("reading {path}: {why}"));
        // tidy: opened: a file of the kernel
        let mut file = fs::File::open(path).map_err(failed)?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(failed)?;
        // The program's heap grows now, not after the mark.
        drop(zones_in(&text));
        text.clear();
        file.rewind().map_err(failed)?;
        file.read_to_string(&mut text).map_err(failed)?;
        mark();
        drop(file);
        Self::of(&zones_in(&text), cpu)
    }
    fn of(zones: &[Zone], cpu: usize) -> Result<Self, CountsError> {
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
        let mark = |name: &str| value(name, 0).map(|value| value as u32);
        let printed = match [of_cpu("high_min:"), of_cpu("high_max:")] {
            [Ok(least), Ok(most)] => Some([least, most]),
            _ => None,
        };
        let high = of_cpu("high:")?;
        Ok(Self {
            managed: zone.managed(),
            marks: Watermarks { min: mark("min ")?, low: mark("low ")?, high: mark("high ")? },
            start_pfn: value("start_pfn:", 0)?,
            count: of_cpu("count:")?,
            high,
            batch: of_cpu("batch:")?,
            printed,
            least_high: zone.least("high:").map_or(high, |least| least as u32),
        })
    }
    /// Returns the limits of the cache in a kernel of this version with so many CPUs.
    pub(super) fn limits(&self, version: Version, cpus: usize) -> (PcpLimits, Source) {
        let Self { managed, batch, high, marks, .. } = *self;
        let computed = PcpLimits::of(managed, marks.low, cpus, batch, None);
        let is_tuned = History::of("high").is_none_or(|high| high.policy(version) == "stock");
        match self.printed {
            Some([high_min, high_max]) => {
                (PcpLimits { high_min, high_max, ..computed }, Source::Printed)
            }
            None if !is_tuned => (computed.fixed(high, DrainSize::Doubled), Source::Fixed),
            None => (computed, Source::Computed { least_high: self.least_high }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// /proc/zoneinfo of a machine with 4 CPUs, cut; Linux 6.12.
    const ZONEINFO: &str = "\
Node 0, zone    DMA32
  pages free     192509
        low      5454
        managed  192509
Node 0, zone   Normal
  pages free     509000
        boost    0
        min      11584
        low      14480
        high     17376
        managed  509951
  pagesets
    cpu: 0
              count:    17
              high:     4125
              batch:    63
    cpu: 1
              count:    9
              high:     3620
              batch:    63
  start_pfn:           262144
";

    fn cache(zoneinfo: &str) -> Result<Cache, CountsError> {
        Cache::of(&zones_in(zoneinfo), 0)
    }

    #[test]
    fn limits_that_a_kernel_does_not_print_follow_from_its_low_watermark() {
        let found = cache(ZONEINFO).unwrap();
        let (limits, source) = found.limits(Version::new(6, 12), 4);
        assert_eq!((limits.high_min, limits.high_max), (3620, 15_935));
        assert_eq!(source, Source::Computed { least_high: 3620 });
        assert_eq!(found.marks, Watermarks { min: 11_584, low: 14_480, high: 17_376 });
    }

    #[test]
    fn threads_sleep_where_idle_cpus_have_a_tick() {
        assert_eq!(wait("quiet nohz=off root=/dev/vda"), Wait::Sleep);
        assert_eq!(wait("quiet nohz=on"), Wait::Compute);
    }

    #[test]
    fn limits_that_a_kernel_prints_are_read() {
        let lines = "high:     4125\n              high_min: 3700\n              high_max: 9000";
        let found = cache(&ZONEINFO.replacen("high:     4125", lines, 1)).unwrap();
        let (limits, source) = found.limits(Version::new(6, 18), 4);
        assert_eq!((limits.high_min, limits.high_max, source), (3700, 9000, Source::Printed));
    }

    #[test]
    fn kernels_before_6_7_have_one_high() {
        let found = cache(ZONEINFO).unwrap();
        let (limits, source) = found.limits(Version::new(6, 1), 4);
        assert_eq!((limits.high_min, limits.high_max, limits.scale_max), (4125, 4125, 0));
        assert_eq!(source, Source::Fixed);
    }
}
