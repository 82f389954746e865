//! Archives of files of a machine, as sosreport makes them.

use std::collections::BTreeMap;
use std::io::Read;

use flate2::read::MultiGzDecoder;
use lzma_rust2::XzReader;
use ruzstd::decoding::StreamingDecoder;

use super::{MAX_FILE, SnapshotError};

/// The most bytes that an archive may have when it is unpacked.
const MAX_ARCHIVE: u64 = 16 << 30;
/// The most files of an archive that are kept.
const MAX_KEPT: usize = 1 << 16;

/// A form of archive, by its first bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    Tar,
    Gzip,
    Xz,
    Zstd,
    /// Known, so that an error can say what to do.
    Bzip2,
}

impl Form {
    /// Returns the form that a file begins with.
    pub(super) fn of(start: &[u8]) -> Option<Self> {
        match start {
            [0x1f, 0x8b, ..] => Some(Self::Gzip),
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Self::Xz),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Self::Zstd),
            [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41, 0x59, 0x26, ..] => Some(Self::Bzip2),
            _ if start.get(257..262) == Some(b"ustar") => Some(Self::Tar),
            _ => None,
        }
    }
    fn name(self) -> &'static str {
        match self {
            Self::Tar => "tar",
            Self::Gzip => "gzip",
            Self::Xz => "xz",
            Self::Zstd => "zstd",
            Self::Bzip2 => "bzip2",
        }
    }
}

/// Returns the files of an archive that are of use.
pub(super) fn unpacked(
    form: Form,
    from: impl Read,
) -> Result<BTreeMap<String, String>, SnapshotError> {
    let refused = |why: String| SnapshotError::Archive { form: form.name(), why };
    let from: Box<dyn Read + '_> = match form {
        Form::Tar => Box::new(from),
        Form::Gzip => Box::new(MultiGzDecoder::new(from)),
        Form::Xz => Box::new(XzReader::new(from, true)),
        Form::Zstd => {
            Box::new(StreamingDecoder::new(from).map_err(|why| refused(why.to_string()))?)
        }
        Form::Bzip2 => {
            let advice = "bzip2 is not read: give the tar file that `bunzip2 -k FILE` makes of it";
            return Err(refused(advice.to_owned()));
        }
    };
    let failed = |why: std::io::Error| {
        let why = match why.to_string() {
            empty if empty.is_empty() => "it ends early".to_owned(),
            why => why,
        };
        refused(why)
    };
    let (mut files, mut seen) = (BTreeMap::new(), 0);
    let mut archive = tar::Archive::new(from.take(MAX_ARCHIVE));
    for entry in archive.entries().map_err(failed)? {
        let mut entry = entry.map_err(failed)?;
        if !entry.header().entry_type().is_file() {
            continue;
        }
        seen += 1;
        let path = entry.path_bytes();
        let path = String::from_utf8_lossy(&path);
        // The first folder is the archive's name.
        let path = path.trim_start_matches("./");
        let path = match path.split_once('/') {
            Some((first, rest)) if !matches!(first, "proc" | "sys" | "boot" | "sos_commands") => {
                rest
            }
            _ => path,
        };
        if files.len() < MAX_KEPT && is_of_use(path) {
            let path = path.to_owned();
            let mut bytes = Vec::new();
            entry.by_ref().take(MAX_FILE).read_to_end(&mut bytes).map_err(failed)?;
            files.insert(path, String::from_utf8_lossy(&bytes).into_owned());
        }
    }
    let known = |path: &String| {
        let name = path.rsplit('/').next().unwrap_or(path);
        name.starts_with("lscpu")
            || ["proc/zoneinfo", "proc/meminfo", "proc/vmstat"].contains(&path.as_str())
    };
    if files.keys().any(known) { Ok(files) } else { Err(SnapshotError::Empty { files: seen }) }
}

/// Returns whether a file is one that is read.
fn is_of_use(path: &str) -> bool {
    const WHOLE: [&str; 7] = [
        "proc/zoneinfo",
        "proc/vmstat",
        "proc/meminfo",
        "proc/buddyinfo",
        "proc/pagetypeinfo",
        "proc/uptime",
        "proc/version",
    ];
    let name = path.rsplit('/').next().unwrap_or(path);
    WHOLE.contains(&path)
        || path.starts_with("proc/sys/vm/")
        || path.starts_with("sys/devices/system/node/") && name == "cpulist"
        || name == "cpu_capacity"
        || path.starts_with("sos_commands/")
            && ["lscpu", "numactl", "sysctl", "uname", "uptime"]
                .iter()
                .any(|command| name.starts_with(command))
}
