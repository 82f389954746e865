//! Files of another machine: a snapshot, or an archive of sosreport.
//!
//! A snapshot is a text with a heading before each file or command, `==> /proc/zoneinfo <==`, as
//! `tail -n +1 FILE..` writes it. `mmscale profile snapshot` prints the script that makes one. An
//! archive is a tar file, also compressed with gzip, xz or zstd.
//!
//! | module | content |
//! |---|---|
//! | `archive` | from an archive to its files |
//! | `zones` | `/proc/zoneinfo` |
//! | `rates` | what happened between two snapshots |

mod archive;
mod rates;
#[cfg(test)]
mod tests;
mod zones;

use std::collections::BTreeMap;
use std::io::{self, Read};

use thiserror::Error;

pub use rates::{Rate, Rates, RatesError};
pub use zones::{PageCache, Zone};

/// Files of a machine, by name: paths without the first slash, and commands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    files: BTreeMap<String, String>,
}

/// Why files of a machine cannot be used.
#[derive(Debug, Error)]
pub enum SnapshotError {
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file is neither a snapshot nor an archive of such files.
    #[error(
        "it is no snapshot: no line `==> /proc/zoneinfo <==`, and no archive (tar, tar.gz, \
         tar.xz, tar.zst); `mmscale profile snapshot` prints a script that makes one"
    )]
    Unknown,
    /// The archive is damaged, or larger than the limit.
    #[error("it is an archive ({form}) that cannot be unpacked: {why}")]
    Archive {
        /// The form of the archive.
        form: &'static str,
        /// The error.
        why: String,
    },
    /// The archive has none of the files.
    #[error(
        "it is an archive of {files} files, and none is proc/zoneinfo, proc/meminfo, proc/vmstat \
         or an output of lscpu"
    )]
    Empty {
        /// Number of files.
        files: usize,
    },
    /// A file in it has an error.
    #[error("{file}, line {line}: {why}")]
    Line {
        /// The name of the file.
        file: &'static str,
        /// The line in that file, from 1.
        line: usize,
        /// The problem.
        why: String,
    },
    /// A file is missing.
    #[error("it has no {0}")]
    Missing(&'static str),
}

/// The largest snapshot and the largest file of an archive, in bytes. Fields of all zones and CPUs
/// of a machine of 4096 CPUs have less.
const MAX_FILE: u64 = 64 << 20;

impl Snapshot {
    /// Returns whether a file begins as a snapshot in text form.
    pub fn begins(start: &[u8]) -> bool {
        let lines = || start.split(|byte| *byte == b'\n').take(3);
        lines().any(|line| line.starts_with(b"==> ") && line.trim_ascii_end().ends_with(b" <=="))
    }

    /// Reads a snapshot or an archive.
    pub fn read(mut from: impl Read) -> Result<Self, SnapshotError> {
        let mut start = Vec::new();
        from.by_ref().take(1 << 9).read_to_end(&mut start)?;
        let whole = io::Cursor::new(start.clone()).chain(from);
        if let Some(form) = archive::Form::of(&start) {
            return Ok(Self { files: archive::unpacked(form, whole)? });
        }
        if !Self::begins(&start) {
            return Err(SnapshotError::Unknown);
        }
        let mut bytes = Vec::new();
        whole.take(MAX_FILE).read_to_end(&mut bytes)?;
        Ok(Self::of_text(&String::from_utf8_lossy(&bytes)))
    }

    /// Returns the files of a snapshot in text form.
    pub fn of_text(text: &str) -> Self {
        let mut files = BTreeMap::new();
        let mut name: Option<String> = None;
        for line in text.lines() {
            let heading =
                line.strip_prefix("==> ").and_then(|rest| rest.trim_end().strip_suffix(" <=="));
            if let Some(heading) = heading {
                let heading = heading.trim_start_matches('/').to_owned();
                files.insert(heading.clone(), String::new());
                name = Some(heading);
            } else if let Some(file) = name.as_ref().and_then(|name| files.get_mut(name)) {
                file.push_str(line);
                file.push('\n');
            }
        }
        Self { files }
    }

    /// Returns a file by its path.
    fn file(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str).filter(|text| !text.trim().is_empty())
    }

    /// Returns the file with the number after `before` in its path, by number.
    fn numbered<'a>(
        &'a self,
        before: &'a str,
        after: &'a str,
    ) -> impl Iterator<Item = (u64, &'a str)> {
        self.files.iter().filter_map(move |(path, text)| {
            let number = path.strip_prefix(before)?.strip_suffix(after)?.parse().ok()?;
            Some((number, text.trim()))
        })
    }

    /// Returns the name and the content of the output of `lscpu`, of rows if there are any.
    pub fn lscpu(&self) -> Option<(&str, String)> {
        let all = self.files.iter().filter(|(name, text)| {
            let name = name.rsplit('/').next().unwrap_or(name);
            (name.starts_with("lscpu") || name.starts_with("numactl")) && !text.trim().is_empty()
        });
        let all: Vec<(&str, &str)> =
            all.map(|(name, text)| (name.as_str(), text.as_str())).collect();
        // JSON is a whole file; texts complete each other.
        if let Some((name, text)) = all.iter().find(|(_, text)| text.contains("\"cpus\"")) {
            return Some((name, (*text).to_owned()));
        }
        let texts = all.iter().filter(|(_, text)| !text.trim_start().starts_with('{'));
        let joined: Vec<&str> = texts.clone().map(|(_, text)| *text).collect();
        texts.into_iter().next().map(|(name, _)| (*name, joined.join("\n\n")))
    }

    /// Returns the capacity of each CPU that the kernel knows, by number.
    pub fn capacities(&self) -> BTreeMap<u64, f64> {
        let files = self.numbered("sys/devices/system/cpu/cpu", "/cpu_capacity");
        files.filter_map(|(cpu, text)| Some((cpu, text.parse().ok()?))).collect()
    }

    /// Returns the CPUs of each node, if the snapshot has them.
    pub fn cpus_of_nodes(&self) -> BTreeMap<u64, usize> {
        let of_sysfs: BTreeMap<u64, usize> = self
            .numbered("sys/devices/system/node/node", "/cpulist")
            .filter_map(|(node, list)| Some((node, count(list)?)))
            .collect();
        if !of_sysfs.is_empty() {
            return of_sysfs;
        }
        let texts = self.files.iter().filter(|(name, _)| name.contains("lscpu"));
        let lines = texts.flat_map(|(_, text)| text.lines());
        lines
            .filter_map(|line| {
                let (name, list) = line.trim().split_once(':')?;
                let node = name.strip_prefix("NUMA node")?.strip_suffix(" CPU(s)")?;
                Some((node.parse().ok()?, count(list.trim())?))
            })
            .collect()
    }

    /// Returns the release of the kernel, such as `6.12.9-amd64`.
    pub fn release(&self) -> Option<&str> {
        let of_uname = self.files.iter().find(|(name, _)| {
            name.rsplit('/').next().is_some_and(|name| name.starts_with("uname"))
        });
        let digits =
            |word: &&str| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.');
        let of_uname = of_uname.and_then(|(_, text)| text.split_whitespace().find(digits));
        of_uname.or_else(|| self.file("proc/version")?.split_whitespace().find(digits))
    }

    /// Returns a setting below `/proc/sys`, such as `vm.min_free_kbytes`.
    pub fn setting(&self, name: &str) -> Option<u64> {
        let path = format!("proc/sys/{}", name.replace('.', "/"));
        if let Some(text) = self.file(&path) {
            return text.trim().parse().ok();
        }
        let all = self.files.iter().filter(|(file, _)| file.contains("sysctl"));
        let mut lines = all.flat_map(|(_, text)| text.lines());
        lines.find_map(|line| {
            let (key, value) = line.split_once('=')?;
            (key.trim() == name).then(|| value.trim().parse().ok())?
        })
    }

    /// Returns the zones of `/proc/zoneinfo`, in its order.
    pub fn zones(&self) -> Result<Vec<Zone>, SnapshotError> {
        let text = self.file("proc/zoneinfo").ok_or(SnapshotError::Missing("/proc/zoneinfo"))?;
        zones::parse(text)
    }

    /// Returns the memory of the machine in KiB (`MemTotal`).
    pub fn memory_kib(&self) -> Option<u64> {
        let line = self.file("proc/meminfo")?.lines().find(|line| line.starts_with("MemTotal:"))?;
        line.split_whitespace().nth(1)?.parse().ok()
    }

    /// Returns the size of a page in KiB: managed memory in the sizes that Linux has.
    pub fn page_kib(&self) -> Result<u32, SnapshotError> {
        let pages: u64 = self.zones()?.iter().map(|zone| zone.managed).sum();
        let kib = self.memory_kib().ok_or(SnapshotError::Missing("/proc/meminfo"))?;
        let ratio = kib as f64 / pages.max(1) as f64;
        let known =
            [4, 16, 64].into_iter().find(|kib| (ratio / f64::from(*kib) - 1.0).abs() < 0.25);
        known.ok_or(SnapshotError::Missing("/proc/meminfo and /proc/zoneinfo of one machine"))
    }

    /// Returns the counters of `/proc/vmstat`.
    pub fn counters(&self) -> Result<BTreeMap<&str, u64>, SnapshotError> {
        let text = self.file("proc/vmstat").ok_or(SnapshotError::Missing("/proc/vmstat"))?;
        let mut all = BTreeMap::new();
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let pair = line.trim().split_once(' ');
            let pair = pair.and_then(|(name, n)| Some((name, n.trim().parse().ok()?)));
            let (name, n) = pair.ok_or_else(|| SnapshotError::Line {
                file: "/proc/vmstat",
                line: at + 1,
                why: format!("`{line}` is not a name and a number; give the whole file"),
            })?;
            all.insert(name, n);
        }
        Ok(all)
    }

    /// Returns the time since the machine was booted, in seconds.
    pub fn uptime_s(&self) -> Option<f64> {
        let seconds: f64 = self.file("proc/uptime")?.split_whitespace().next()?.parse().ok()?;
        Some(seconds).filter(|seconds| seconds.is_finite())
    }
}

/// Returns the number of CPUs of a list such as `0-3,8`.
fn count(list: &str) -> Option<usize> {
    const MOST: usize = 1 << 16;
    let mut all: usize = 0;
    for part in list.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to): (usize, usize) = (from.parse().ok()?, to.parse().ok()?);
        all += to.checked_sub(from)? + 1;
        if all > MOST {
            return None;
        }
    }
    Some(all)
}
