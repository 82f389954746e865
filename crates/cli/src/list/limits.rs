//! `mmscale list limits`: the limits that a version of Linux has on a machine, next to those of the
//! machine itself if its files are given.

use anyhow::anyhow;
use mmscale_calibrate::limits::{Limits, Machine, ZoneLimits, limits};
use mmscale_harness::versions::{NEWEST, OLDEST, Version};
use mmscale_harness::{CallError, linux_version};
use mmscale_measured::Zone;
use mmscale_report::wrap;
use serde_json::{Value, json};

use crate::args::LimitsArgs;
use crate::failure::Failure;
use crate::machine_files::MachineFiles;

/// The version that has limits if the call and the files name none.
const VERSION: Version = Version::new(6, 18);

/// The limits of a machine, and those that its kernel printed.
pub(super) struct Shown {
    version: Version,
    machine: Machine,
    limits: Limits,
    /// The zones of the machine's own files, with their name.
    there: Option<(String, Vec<Zone>)>,
}

/// A column of the table: its heading, its width, the computed value, the machine's own.
type Column = (&'static str, usize, fn(&ZoneLimits) -> u64, fn(&Zone) -> Option<u64>);

const COLUMNS: [Column; 8] = [
    ("managed", 10, |of| of.zone.pages, |zone| Some(zone.managed)),
    ("min", 8, |of| of.marks.min.into(), |zone| Some(zone.marks[0])),
    ("low", 8, |of| of.marks.low.into(), |zone| Some(zone.marks[1])),
    ("high", 8, |of| of.marks.high.into(), |zone| Some(zone.marks[2])),
    ("batch", 6, |of| of.batch.into(), |zone| Some(zone.caches.first()?.batch)),
    ("high_min", 9, |of| of.high[0].into(), |zone| bounds(zone).map(|of| of[0])),
    ("high_max", 9, |of| of.high[1].into(), |zone| bounds(zone).map(|of| of[1])),
    ("stat", 5, |of| of.threshold[0].into(), |zone| Some(zone.caches.first()?.threshold)),
];

/// Returns the bounds of `high` of a zone's page caches. Before Linux 6.7 `high` does not change.
fn bounds(zone: &Zone) -> Option<[u64; 2]> {
    let cache = zone.caches.first()?;
    Some(cache.bounds.unwrap_or([cache.high, cache.high]))
}

/// Computes the limits of a call.
pub(super) fn shown(args: &LimitsArgs) -> Result<Shown, Failure> {
    let given = args.linux.as_deref().map(linux_version).transpose().map_err(CallError::from)?;
    let (machine, version, there) = match (&args.from, args.cpus, args.memory) {
        (Some(path), _, _) => {
            let files = MachineFiles::read(path)?;
            let release = files.snapshot.release();
            let own = release.and_then(Version::of_release);
            let version = given.or(own.filter(|version| version.is_known())).ok_or_else(|| {
                let release = release.unwrap_or("of an unknown version");
                Failure::Call(anyhow!(
                    "the kernel of `{}` is {release}; known are {OLDEST} to {NEWEST}: give --linux",
                    files.name
                ))
            })?;
            let (machine, zones) = (files.machine()?, files.zones()?);
            (machine, version, Some((files.name, zones)))
        }
        (None, Some(cpus), Some(memory)) => {
            let nodes = args.nodes.unwrap_or(1);
            if !cpus.is_multiple_of(nodes) || memory < 64 << 20 {
                return Err(Failure::Call(anyhow!(
                    "{cpus} CPUs and {} MiB of memory cannot be divided by {nodes} nodes of 64 \
                     MiB or more",
                    memory >> 20
                )));
            }
            let machine = Machine::pc(cpus as usize, nodes as usize, memory);
            (machine, given.unwrap_or(VERSION), None)
        }
        _ => {
            return Err(Failure::Call(anyhow!(
                "limits are those of a machine: give --cpus and --memory, or --from with its files"
            )));
        }
    };
    Ok(Shown { version, limits: limits(&machine, version), machine, there })
}

impl Shown {
    /// Returns the zone of the machine's own files.
    fn own(&self, of: &ZoneLimits) -> Option<&Zone> {
        let zones = &self.there.as_ref()?.1;
        zones.iter().find(|zone| zone.node == of.zone.node && zone.name == of.zone.name)
    }

    /// Returns the values that differ from the machine's own: zone, column, here, there. The
    /// threshold may be the smaller one of a machine that is short of memory.
    fn differences(&self) -> Vec<(String, &'static str, u64, u64)> {
        let mut found = Vec::new();
        for of in &self.limits.zones {
            let Some(zone) = self.own(of) else { continue };
            for (name, _, here, there) in COLUMNS {
                let Some(there) = there(zone) else { continue };
                let short = name == "stat" && there == u64::from(of.threshold[1]);
                if here(of) != there && !short {
                    found.push((title(of), name, here(of), there));
                }
            }
        }
        found
    }

    /// Returns the lines of a reader.
    pub(super) fn text(&self) -> Vec<String> {
        let Machine { cpus, page_kib, .. } = &self.machine;
        let s = if *cpus == 1 { "" } else { "s" };
        let title_line = format!("limits of Linux {} with {cpus} CPU{s}", self.version);
        let mut lines = vec![match &self.there {
            Some((name, _)) => format!("{title_line}, and those of {name}"),
            None => title_line,
        }];
        let heading = COLUMNS.map(|(name, width, ..)| format!("{name:>width$}")).concat();
        lines.push(format!("{:<9}{heading}", "zone"));
        for of in &self.limits.zones {
            let row = COLUMNS.map(|(_, width, here, _)| format!("{:>width$}", here(of))).concat();
            lines.push(format!("{:<9}{row}", title(of)));
            if let Some(zone) = self.own(of) {
                let cell = |(_, width, _, there): Column| match there(zone) {
                    Some(value) => format!("{value:>width$}"),
                    None => format!("{:>width$}", "-"),
                };
                lines.push(format!("{:<9}{}", "  there", COLUMNS.map(cell).concat()));
            }
        }
        lines.extend(wrap(
            &format!(
                "zone: node and name; pages of {page_kib} KiB. high_min, high_max: bounds of \
                 `high` of a CPU's page cache. stat: changes that a CPU gathers for a counter"
            ),
            "  ",
            "  ",
        ));
        if let Some((name, _)) = &self.there {
            lines.push(String::new());
            let found = self.differences();
            if found.is_empty() {
                lines.extend(wrap(&format!("all of these are as in {name}"), "", "  "));
            }
            for (zone, column, here, there) in found {
                let what = format!("{zone}: {column} is {there} there, {here} by the formula");
                lines.extend(wrap(&what, "differs: ", "  "));
            }
        } else {
            let what = "zones are assumed: those of a PC with 3 GiB below 4 GiB, 1/64 of memory \
                        for records of frames; --from takes a machine's own";
            lines.extend(wrap(what, "  ", "  "));
        }
        lines.push(String::new());
        for limit in &self.limits.others {
            let value = limit.value.map_or("-".to_owned(), |value| value.to_string());
            lines.extend(wrap(
                &format!("{} ({})", limit.what, limit.source),
                &format!("{:<18}{value:>9}  ", limit.name),
                &" ".repeat(29),
            ));
        }
        lines
    }

    /// Returns the limits as JSON.
    pub(super) fn json(&self) -> Value {
        let zones = self.limits.zones.iter().map(|of| {
            let mut zone = json!({"node": of.zone.node, "zone": of.zone.name, "refill": of.refill});
            for (name, _, here, there) in COLUMNS {
                zone[name] = here(of).into();
                if let Some(own) = self.own(of) {
                    zone[format!("{name}_there")] = there(own).into();
                }
            }
            zone
        });
        let others = self.limits.others.iter().map(|limit| {
            json!({"name": limit.name, "value": limit.value, "what": limit.what,
                   "source": limit.source})
        });
        json!({
            "linux": self.version.to_string(),
            "cpus": self.machine.cpus,
            "page_kib": self.machine.page_kib,
            "zones": zones.collect::<Vec<_>>(),
            "limits": others.collect::<Vec<_>>(),
        })
    }
}

fn title(of: &ZoneLimits) -> String {
    format!("{} {}", of.zone.node, of.zone.name)
}
