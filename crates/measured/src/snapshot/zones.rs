//! `/proc/zoneinfo`: the zones of a machine, and the page caches of its CPUs.

use super::SnapshotError;

/// A zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Zone {
    /// The number of its node.
    pub node: u64,
    /// Its name: `DMA32`, `Normal`.
    pub name: String,
    /// Pages that the allocator manages.
    pub managed: u64,
    /// Free pages.
    pub free: u64,
    /// The watermarks min, low and high, without what a boost adds.
    pub marks: [u64; 3],
    /// The page cache of each CPU.
    pub caches: Vec<PageCache>,
}

/// The page cache of a CPU for a zone, with the threshold of the CPU's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageCache {
    /// The number of the CPU.
    pub cpu: u64,
    /// Pages in it.
    pub count: u64,
    /// `high` at that time.
    pub high: u64,
    /// The batch.
    pub batch: u64,
    /// The bounds of `high`, since Linux 6.7.
    pub bounds: Option<[u64; 2]>,
    /// The threshold at which a counter of this CPU is added to that of the zone.
    pub threshold: u64,
}

/// The most pages of a zone. Other numbers of a zone are not larger.
const MAX_PAGES: u64 = 1 << 32;
/// The most nodes of a machine.
const MAX_NODES: u64 = 1 << 10;

/// Parses the file.
pub(super) fn parse(text: &str) -> Result<Vec<Zone>, SnapshotError> {
    let mut zones: Vec<Zone> = Vec::new();
    let (mut boost, mut bounds) = (0, [None, None]);
    for (at, line) in text.lines().enumerate() {
        let wrong = |why: String| SnapshotError::Line { file: "/proc/zoneinfo", line: at + 1, why };
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["Node", node, "zone", name] = words[..] {
            let number = node.trim_end_matches(',').parse();
            let number = number.ok().filter(|number| *number < MAX_NODES);
            let node = number.ok_or_else(|| wrong(format!("`{node}` is no number of a node")))?;
            zones.push(Zone { node, name: name.to_owned(), ..Zone::default() });
            boost = 0;
            continue;
        }
        let (Some(zone), Some((name, values))) = (zones.last_mut(), words.split_first()) else {
            continue;
        };
        let number = || {
            let word = values.last().copied().unwrap_or_default();
            let number: Option<u64> = word.parse().ok();
            let number =
                number.ok_or_else(|| wrong(format!("`{line}` has no number at its end")))?;
            if number > MAX_PAGES {
                return Err(wrong(format!(
                    "{number} is out of range: a zone has 2^32 pages at most"
                )));
            }
            Ok(number)
        };
        match (*name, zone.caches.last_mut()) {
            ("pages", _) if values.first() == Some(&"free") => zone.free = number()?,
            ("boost", None) => boost = number()?,
            ("min", None) => zone.marks[0] = number()?.saturating_sub(boost),
            ("low", None) => zone.marks[1] = number()?.saturating_sub(boost),
            ("high", None) => zone.marks[2] = number()?.saturating_sub(boost),
            ("managed", None) => zone.managed = number()?,
            ("cpu:", _) => {
                bounds = [None, None];
                zone.caches.push(PageCache { cpu: number()?, ..PageCache::default() });
            }
            ("count:", Some(cache)) => cache.count = number()?,
            ("high:", Some(cache)) => cache.high = number()?,
            ("batch:", Some(cache)) => cache.batch = number()?,
            ("high_min:" | "high_max:", Some(cache)) => {
                bounds[usize::from(*name == "high_max:")] = Some(number()?);
                cache.bounds = bounds[0].zip(bounds[1]).map(|(min, max)| [min, max]);
            }
            ("vm", Some(cache)) if values.starts_with(&["stats", "threshold:"]) => {
                cache.threshold = number()?;
            }
            _ => {}
        }
    }
    let whole = zones.iter().any(|zone| zone.managed > 0);
    if !whole {
        return Err(SnapshotError::Missing("zone with managed pages in /proc/zoneinfo"));
    }
    Ok(zones)
}
