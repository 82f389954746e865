//! Files of another machine: a snapshot or an archive, and what commands take from it.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::anyhow;
use mmscale_calibrate::derive::{Memory, Text};
use mmscale_calibrate::limits::{Machine, ZoneSize};
use mmscale_files::Pipe;
use mmscale_measured::{Snapshot, SnapshotError, Zone};

use crate::failure::Failure;

/// Files of a machine, with the name of the file that has them.
pub(crate) struct MachineFiles {
    pub(crate) name: String,
    pub(crate) snapshot: Snapshot,
}

impl MachineFiles {
    /// Reads a snapshot or an archive; `-` is stdin.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let fail = |why: String| Failure::Call(anyhow!("cannot read `{}`: {why}", path.display()));
        let file = mmscale_files::open(path, Pipe::Read).map_err(|why| fail(why.to_string()))?;
        let snapshot = Snapshot::read(file).map_err(|why| fail(why.to_string()))?;
        let name = path.file_name().filter(|_| path != Path::new("-"));
        let name = name.map_or("stdin".into(), |name| name.to_string_lossy()).into_owned();
        Ok(Self { name, snapshot })
    }

    /// Converts an error of a file in it.
    fn wrong(&self, why: SnapshotError) -> Failure {
        Failure::Call(anyhow!("cannot use `{}`: {why}", self.name))
    }

    /// Returns the zones.
    pub(crate) fn zones(&self) -> Result<Vec<Zone>, Failure> {
        self.snapshot.zones().map_err(|why| self.wrong(why))
    }

    /// Returns the output of `lscpu`.
    pub(crate) fn lscpu(&self) -> Option<Text> {
        let (name, text) = self.snapshot.lscpu()?;
        Some(Text { name: format!("{name} in {}", self.name), text })
    }

    /// Returns the memory of the machine, as a profile has it.
    pub(crate) fn memory(&self) -> Result<Memory, Failure> {
        let zones = self.zones()?;
        let page_kib = self.snapshot.page_kib().map_err(|why| self.wrong(why))?;
        // The model has no DMA zone, which few allocations use.
        let of = |name: &'static str| {
            zones.iter().filter(move |zone| zone.name == name && zone.managed > 0)
        };
        let simulated = || of("DMA32").chain(of("Normal"));
        let mut nodes: BTreeMap<u64, u64> = BTreeMap::new();
        for zone in simulated().chain(of("Movable")) {
            *nodes.entry(zone.node).or_default() += zone.managed;
        }
        if nodes.is_empty() {
            // All memory is below the limit of a device, as with pages of 64 KiB on arm64.
            for zone in zones.iter().filter(|zone| zone.managed > 0) {
                *nodes.entry(zone.node).or_default() += zone.managed;
            }
        }
        let min_free: u64 = simulated().map(|zone| zone.marks[0]).sum();
        let caches = || of("Normal").flat_map(|zone| &zone.caches);
        Ok(Memory {
            source: format!("/proc/zoneinfo of the machine: {}", self.name),
            page_bytes: page_kib << 10,
            node_pages: nodes.values().sum::<u64>() / nodes.len().max(1) as u64,
            dma32_pages: if of("Normal").next().is_some() {
                of("DMA32").map(|zone| zone.managed).sum()
            } else {
                0
            },
            min_free_kib: min_free * u64::from(page_kib),
            pcp_batch: caches().map(|cache| cache.batch).max().unwrap_or(0),
        })
    }

    /// Returns the machine whose limits are computed.
    pub(crate) fn machine(&self) -> Result<Machine, Failure> {
        let zones = self.zones()?;
        let cpus = zones.iter().map(|zone| zone.caches.len()).max().unwrap_or(0).max(1);
        let of_nodes = self.snapshot.cpus_of_nodes();
        let nodes = zones.iter().map(|zone| zone.node + 1).max().unwrap_or(1) as usize;
        let node_cpus = |node: u64| match of_nodes.get(&node) {
            Some(cpus) => *cpus,
            None if of_nodes.is_empty() => cpus / nodes,
            None => 0,
        };
        // No kernel takes larger ones.
        let setting = |name: &str| self.snapshot.setting(name).filter(|&of| of <= 1 << 26);
        let fraction = setting("vm.percpu_pagelist_high_fraction").filter(|&of| of > 0);
        Ok(Machine {
            zones: zones
                .iter()
                .map(|zone| ZoneSize {
                    node: zone.node,
                    name: zone.name.clone(),
                    pages: zone.managed,
                    node_cpus: node_cpus(zone.node),
                })
                .collect(),
            cpus,
            page_kib: self.snapshot.page_kib().map_err(|why| self.wrong(why))?,
            min_free_kib: setting("vm.min_free_kbytes"),
            watermark_scale: setting("vm.watermark_scale_factor")
                .map_or(10, |of| of.clamp(1, 3000) as u32),
            high_fraction: fraction.map(|of| of as u32),
            never_overcommits: setting("vm.overcommit_memory") == Some(2),
        })
    }
}
