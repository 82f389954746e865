//! Limits that a version of Linux has on a machine, computed by the code of the memory manager:
//! watermarks, page caches, thresholds of counters, batches.

use mmscale_frames::page_alloc::{AllocConfig, CachedOrders, HighPolicy, MemoryMap};
use mmscale_frames::vmstat::{normal_threshold, pressure_threshold};
use mmscale_frames::zone::{Geometry, Watermarks, huge_page_min_free};
use mmscale_harness::versions::{Version, policies_of};
use mmscale_mm::memcg::{CHARGE_BATCH, ThresholdPolicy};
use mmscale_mm::mm::MmConfig;
use mmscale_mm::pgtable::RssPolicy;
use mmscale_mm::space::CommitPolicy;
use mmscale_mm::vmstat_work::TickPolicy;

/// A zone of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneSize {
    /// The number of its node.
    pub node: u64,
    /// Its name: `DMA32`, `Normal`.
    pub name: String,
    /// Pages that the allocator manages.
    pub pages: u64,
    /// CPUs of its node.
    pub node_cpus: usize,
}

impl ZoneSize {
    /// Returns whether the zone takes part in `min_free_kbytes`: a zone of movable pages does not.
    pub fn has_share(&self) -> bool {
        self.pages > 0 && ["DMA", "DMA32", "Normal"].contains(&self.name.as_str())
    }
}

/// A machine, and the settings of its administrator.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// The zones, in the order of `/proc/zoneinfo`.
    pub zones: Vec<ZoneSize>,
    /// Online CPUs.
    pub cpus: usize,
    /// The size of a page in KiB.
    pub page_kib: u32,
    /// `vm.min_free_kbytes`; `None`: the kernel's choice, with huge pages on.
    pub min_free_kib: Option<u64>,
    /// `vm.watermark_scale_factor`.
    pub watermark_scale: u32,
    /// `vm.percpu_pagelist_high_fraction`, if it is set.
    pub high_fraction: Option<u32>,
    /// Whether memory is never overcommitted (`vm.overcommit_memory` is 2).
    pub never_overcommits: bool,
}

/// The part of a zone's pages that have records of frames: 64 bytes for each page of 4 KiB.
const MANAGED: [u64; 2] = [63, 64];
/// Pages of 4 KiB of the zones below 4 GiB on a usual PC: 16 MiB of which 4 KiB to 15 MiB are
/// free, and 3 GiB, above which devices have their addresses.
const DMA_PAGES: u64 = 3840;
const DMA_SPANNED: u64 = 4096;
const LOW_PAGES: u64 = 3 << 18;

impl Machine {
    /// Returns a PC with this memory, divided between its nodes: the zones as its firmware usually
    /// makes them.
    pub fn pc(cpus: usize, nodes: usize, memory_bytes: u64) -> Self {
        let pages = memory_bytes / 4096 / nodes as u64;
        let managed = |pages: u64| pages * MANAGED[0] / MANAGED[1];
        let mut zones = Vec::new();
        let mut zone = |node: usize, name: &str, pages: u64| {
            if pages > 0 {
                let (node, name) = (node as u64, name.to_owned());
                zones.push(ZoneSize { node, name, pages, node_cpus: cpus / nodes });
            }
        };
        for node in 0..nodes {
            let low = if node == 0 { pages.min(LOW_PAGES) } else { 0 };
            if node == 0 {
                zone(0, "DMA", DMA_PAGES.min(low));
                zone(0, "DMA32", managed(low.saturating_sub(DMA_SPANNED)));
            }
            zone(node, "Normal", managed(pages - low));
        }
        Self {
            zones,
            cpus,
            page_kib: 4,
            min_free_kib: None,
            watermark_scale: 10,
            high_fraction: None,
            never_overcommits: false,
        }
    }

    fn pages(&self) -> u64 {
        self.zones.iter().filter(|zone| zone.has_share()).map(|zone| zone.pages).sum()
    }
}

/// Limits of a zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneLimits {
    /// The zone.
    pub zone: ZoneSize,
    /// The watermarks.
    pub marks: Watermarks,
    /// The batch of page caches.
    pub batch: u32,
    /// The bounds of `high` of page caches; equal before Linux 6.7.
    pub high: [u32; 2],
    /// The most pages of a refill.
    pub refill: u32,
    /// The threshold of counters of the zone, and while memory is short.
    pub threshold: [u8; 2],
}

/// A limit of the whole machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Its name in Linux.
    pub name: &'static str,
    /// Its value; `None`: there is none.
    pub value: Option<u64>,
    /// The thing that it limits, and the formula.
    pub what: String,
    /// Where it is in Linux.
    pub source: &'static str,
}

/// The limits of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Those of zones, in the order of the machine's.
    pub zones: Vec<ZoneLimits>,
    /// Those of the whole machine.
    pub others: Vec<Limit>,
}

/// Versions in which a formula of Linux changed that the memory manager has in its newest form.
const MIN_FREE_256M: Version = Version::new(5, 8);
const CHARGE_64: Version = Version::new(6, 1);
/// `MEMCG_CHARGE_BATCH` before Linux 6.1.
const CHARGE_32: u64 = 32;
/// The largest `min_free_kbytes` before Linux 5.8, in KiB.
const MIN_FREE_64M: u64 = 65_536;

/// Returns the limits that a version of Linux has on a machine.
pub fn limits(machine: &Machine, version: Version) -> Limits {
    let mut mm = MmConfig::new(MemoryMap::single(1), TickPolicy::default());
    for (mechanism, policy) in policies_of(version) {
        mechanism.choose(&mut mm, policy);
    }
    mm.alloc.page_kib = machine.page_kib;
    mm.alloc.watermark_scale = machine.watermark_scale;
    mm.alloc.high_fraction = machine.high_fraction;
    let total = machine.pages();
    let min_free = min_free_kib(machine, &mm.alloc, version);
    mm.alloc.min_free_kb = Some(min_free);
    let of = |zone: &ZoneSize| {
        let marks = mm.alloc.watermarks(zone.pages, total);
        // A node without CPUs serves those of all nodes.
        let cpus = if zone.node_cpus == 0 { machine.cpus } else { zone.node_cpus };
        let caches = mm.alloc.pcp_limits(zone.pages, marks.low, cpus);
        let normal = normal_threshold(machine.cpus, zone.pages, machine.page_kib);
        let pressure = pressure_threshold(machine.cpus, marks.low - marks.min);
        ZoneLimits {
            zone: zone.clone(),
            marks,
            batch: caches.batch,
            high: [caches.high_min, caches.high_max],
            refill: caches.batch << caches.scale_max,
            threshold: [normal, pressure.min(normal)],
        }
    };
    let zones = machine.zones.iter().filter(|zone| zone.has_share()).map(of).collect();
    let mut others = vec![Limit {
        name: "min_free_kbytes",
        value: Some(min_free),
        what: match machine.min_free_kib {
            Some(_) => "as set on the machine".to_owned(),
            None => "4 * sqrt(memory in KiB), raised to 11 pageblocks a zone for huge pages, up \
                     to 5 % of memory"
                .to_owned(),
        },
        source: "mm/page_alloc.c calculate_min_free_kbytes, mm/khugepaged.c",
    }];
    others.extend(others_of(machine, &mm, version));
    Limits { zones, others }
}

fn min_free_kib(machine: &Machine, alloc: &AllocConfig, version: Version) -> u64 {
    if let Some(kib) = machine.min_free_kib {
        return kib;
    }
    let page_kib = u64::from(machine.page_kib);
    let total = machine.pages();
    let mut kib = alloc.min_free_pages(total) * page_kib;
    if version < MIN_FREE_256M {
        kib = kib.min(MIN_FREE_64M);
    }
    let geometry = Geometry::of_page(machine.page_kib);
    let block_pages = geometry.map_or(0, |geometry| geometry.block_pages() as u64);
    let zones = machine.zones.iter().filter(|zone| zone.has_share()).count() as u64;
    kib.max(huge_page_min_free(zones, block_pages).min(total / 20) * page_kib)
}

fn others_of(machine: &Machine, mm: &MmConfig, version: Version) -> Vec<Limit> {
    let cpus = machine.cpus;
    let tuned = mm.alloc.high == HighPolicy::Tuned;
    let what = match mm.space.rss {
        RssPolicy::Tasks => "faults after which a task adds to its process's count",
        _ => "pages that a CPU adds to a process's count at a time: 2 * CPUs, at least 32",
    };
    let rss = mm.space.rss.batch(cpus);
    let charge = if version < CHARGE_64 { CHARGE_32 } else { u64::from(CHARGE_BATCH) };
    let flush = charge * cpus as u64;
    let (flush, what_flush) = match mm.stat_threshold {
        ThresholdPolicy::Group => (Some(flush), format!("changes of a group: {charge} * CPUs")),
        ThresholdPolicy::Global | ThresholdPolicy::Uncapped => {
            (Some(flush), format!("changes of all groups: {charge} * CPUs"))
        }
        ThresholdPolicy::None => (None, "no threshold: each reader flushes".to_owned()),
    };
    let promise = if machine.never_overcommits { CommitPolicy::Small } else { mm.space.commit };
    let commit = promise.batch(machine.pages(), cpus.max(1));
    let orders = match mm.alloc.orders {
        CachedOrders::Low => "orders 0 to 3, and of huge pages",
        CachedOrders::Single => "order 0 only",
    };
    let limit =
        |name, value, what: &str, source| Limit { name, value, what: what.to_owned(), source };
    vec![
        limit("pcp orders", None, orders, "include/linux/mmzone.h NR_PCP_LISTS"),
        limit(
            "pcp batch scale",
            tuned.then(|| u64::from(mm.alloc.batch_scale_max)),
            if tuned { "a refill has up to batch << this" } else { "a refill has one batch" },
            "CONFIG_PCP_BATCH_SCALE_MAX",
        ),
        limit(
            "folio_batch",
            Some(mm.folios.folios() as u64),
            "folios that a CPU gathers for lru_lock",
            "include/linux/pagevec.h PAGEVEC_SIZE",
        ),
        limit("rss batch", Some(rss), what, "lib/percpu_counter.c, mm/memory.c"),
        limit("memory.stat flush", flush, &what_flush, "mm/memcontrol.c memcg_vmstats_needs_flush"),
        limit(
            "vm_committed_as",
            Some(commit),
            &format!("pages: memory / CPUs / {}", promise.divisor()),
            "mm/mm_init.c mm_compute_batch",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn v(major: u16, minor: u16) -> Version {
        Version::new(major, minor)
    }

    /// A computer with 24 GiB and 2 CPUs, as its Linux 6.18 has it.
    fn computer() -> Machine {
        let zone =
            |name: &str, pages| ZoneSize { node: 0, name: name.to_owned(), pages, node_cpus: 2 };
        let zones = vec![
            zone("DMA", 3840),
            zone("DMA32", 772_915),
            zone("Normal", 5_394_266),
            zone("Movable", 0),
        ];
        Machine { zones, ..Machine::pc(2, 1, 24 << 30) }
    }

    #[test]
    fn limits_are_those_of_a_kernel_that_was_asked() {
        let seen = limits(&computer(), v(6, 18));
        // `/proc/zoneinfo` and `/proc/sys/vm/min_free_kbytes` of that computer.
        let of = |zone: &ZoneLimits| {
            let Watermarks { min, low, high } = zone.marks;
            ([min, low, high], zone.batch, zone.high, zone.threshold[0])
        };
        let zones: Vec<_> = seen.zones.iter().map(of).collect();
        assert_eq!(
            zones,
            [
                ([10, 13, 16], 1, [6, 240], 4),
                ([2116, 2888, 3660], 63, [1444, 48_307], 24),
                ([14_769, 20_163, 25_557], 63, [10_081, 337_141], 36),
            ]
        );
        let other = |name: &str| seen.others.iter().find(|of| of.name == name).unwrap().value;
        assert_eq!(other("min_free_kbytes"), Some(67_584));
        assert_eq!(other("vm_committed_as"), Some(6_171_021 / 2 / 4));
        assert_eq!((other("folio_batch"), other("rss batch")), (Some(31), Some(32)));
    }

    #[test]
    fn versions_differ() {
        let of = |version| {
            let seen = limits(&computer(), version);
            let normal = seen.zones[2].clone();
            let other = |name: &str| seen.others.iter().find(|of| of.name == name).unwrap().value;
            (normal.high, normal.refill, other("folio_batch"), other("vm_committed_as"))
        };
        assert_eq!(of(v(5, 4)), ([378, 378], 63, Some(15), Some(6_171_021 / 2 / 256)));
        assert_eq!(of(v(6, 1)), ([10_081, 10_081], 63, Some(15), Some(6_171_021 / 2 / 4)));
        assert_eq!(of(v(6, 7)), ([10_081, 337_141], 63 << 5, Some(15), Some(6_171_021 / 2 / 4)));
    }

    #[test]
    fn a_machine_that_is_not_there_has_the_zones_of_a_pc() {
        let zones = |machine: &Machine| {
            machine.zones.iter().map(|zone| (zone.node, zone.name.clone())).collect::<Vec<_>>()
        };
        let names = |names: &[(u64, &str)]| {
            names.iter().map(|(node, name)| (*node, (*name).to_owned())).collect::<Vec<_>>()
        };
        let two = Machine::pc(64, 2, 512 << 30);
        assert_eq!(zones(&two), names(&[(0, "DMA"), (0, "DMA32"), (0, "Normal"), (1, "Normal")]));
        assert_eq!(zones(&Machine::pc(4, 1, 1 << 30)), names(&[(0, "DMA"), (0, "DMA32")]));
        let pages = two.pages() as f64 / f64::from(512 << 18);
        assert!((0.97..1.0).contains(&pages), "{pages}");
        let seen = limits(&two, v(6, 12));
        assert!(seen.zones.iter().all(|zone| zone.high[0] <= zone.high[1]));
        let set = Machine { min_free_kib: Some(1 << 20), high_fraction: Some(8), ..two };
        let set = limits(&set, v(6, 12));
        assert_eq!(set.zones[3].high[0], set.zones[3].high[1]);
    }
}
