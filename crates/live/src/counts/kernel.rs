//! Facts about the running kernel.

use super::CountsError;
use super::events::{DRAIN, sees_interrupts};
use super::program::Wait;
use mmscale_frames::pcp::{DrainSize, PcpLimits};
use mmscale_frames::zone::Watermarks;
use mmscale_mm::time::Hz;
use mmscale_mm::versions::{History, NEWEST, Version};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{Read, Seek};
use std::path::Path;

const ZONEINFO: &str = "/proc/zoneinfo";

/// Facts about a kernel that a comparison needs, in the kernel's own words.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Facts {
    pub(super) release: String,
    pub(super) hz: u32,
    /// Whether it runs under a hypervisor, which may deschedule a CPU.
    pub(super) is_guest: bool,
    /// Whether the CPUs are emulated one after another.
    pub(super) is_emulated: bool,
    /// Online CPUs, numbered from 0.
    pub(super) cpus: usize,
    /// Whether it has tracepoints of interrupts to other CPUs.
    pub(super) sees_interrupts: bool,
    /// Whether its trace shows each call of the function that drains page caches.
    pub(super) sees_drains: bool,
    /// Whether a program gets huge pages if it asks for them.
    pub(super) has_huge: bool,
    pub(super) min_free_kb: u64,
    pub(super) watermark_scale: u32,
    /// /proc/cmdline.
    pub(super) parameters: String,
    /// /proc/zoneinfo.
    pub(super) zoneinfo: String,
}

/// The compared kernel.
pub(super) struct Kernel {
    pub(super) release: String,
    /// The version; of a kernel that tells none, the newest that is known.
    pub(super) version: Version,
    pub(super) hz: Hz,
    pub(super) is_guest: bool,
    pub(super) is_emulated: bool,
    pub(super) cpus: usize,
    pub(super) sees_interrupts: bool,
    pub(super) sees_drains: bool,
    pub(super) has_huge: bool,
    pub(super) min_free_kb: u64,
    pub(super) watermark_scale: u32,
    /// Pages of the zones of node 0 below the job's.
    pub(super) low_pages: u64,
    /// The page cache of CPU 0 before anything ran.
    pub(super) cache: Cache,
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

pub(super) fn needs(what: impl Into<String>) -> CountsError {
    CountsError::Needs(what.into())
}

impl Facts {
    /// Looks at the running kernel, whose tracepoints are in `tracefs`. An error says in a sentence
    /// what is missing.
    pub(super) fn look(tracefs: &str) -> Result<Self, CountsError> {
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
        let huge = read("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
        Ok(Self {
            release: read("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            hz: mmscale_linux::tick_hz().unwrap_or(0),
            is_guest: is_guest(&read("/proc/cpuinfo")?),
            is_emulated: mmscale_linux::is_emulated(),
            cpus,
            sees_interrupts: sees_interrupts(has)?,
            sees_drains: sees_drains(tracefs),
            has_huge: ["[always]", "[madvise]"].iter().any(|chosen| huge.contains(chosen)),
            min_free_kb: number("/proc/sys/vm/min_free_kbytes")?,
            watermark_scale: number("/proc/sys/vm/watermark_scale_factor")?,
            parameters: read("/proc/cmdline")?,
            zoneinfo: read(ZONEINFO)?,
        })
    }
}

/// Whether the kernel can trace calls of the function that drains page caches.
fn sees_drains(tracefs: &str) -> bool {
    let all = read(&format!("{tracefs}/available_filter_functions")).unwrap_or_default();
    all.lines().any(|line| line.split(' ').next() == Some(DRAIN))
}

impl Kernel {
    /// Returns the kernel that these facts describe.
    pub(super) fn of(facts: &Facts) -> Result<Self, CountsError> {
        let hz = Hz::new(facts.hz);
        let zones = zones_in(&facts.zoneinfo);
        Ok(Self {
            version: Version::of_release(&facts.release).unwrap_or(NEWEST),
            release: facts.release.clone(),
            hz: hz.ok_or_else(|| needs("the tick of this kernel has no usual rate"))?,
            is_guest: facts.is_guest,
            is_emulated: facts.is_emulated,
            cpus: facts.cpus,
            sees_interrupts: facts.sees_interrupts,
            sees_drains: facts.sees_drains,
            has_huge: facts.has_huge,
            min_free_kb: facts.min_free_kb,
            watermark_scale: facts.watermark_scale,
            low_pages: zones.iter().filter(|zone| zone.name != "Normal").map(Zone::managed).sum(),
            cache: Cache::of(&zones, 0)?,
            wait: wait(&facts.parameters),
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
    /// Looks at the page cache of a CPU, and calls `mark` before the end of the reading changes it.
    /// The second reading of an open file needs no memory.
    pub(super) fn look_and(cpu: usize, mark: impl FnOnce()) -> Result<Self, CountsError> {
        let failed = |why| needs(format!("reading {ZONEINFO}: {why}"));
        // tidy: opened: a file of the kernel
        let mut file = fs::File::open(ZONEINFO).map_err(failed)?;
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
