//! Snapshots in both forms, and what is refused.

use std::io::Write as _;

use rand_core::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use ruzstd::encoding::CompressionLevel;

use super::*;

/// The snapshot of a computer with 2 CPUs, Linux 6.18.
const TEXT: &str = include_str!("../../tests/machines/two-cpus.snap");
/// Its `/proc/vmstat` some seconds later.
const LATER: &str = include_str!("../../tests/machines/two-cpus-later.snap");
/// These files as an archive of sosreport.
const ARCHIVE: &[u8] = include_bytes!("../../tests/machines/sosreport.tar.xz");

fn read(bytes: &[u8]) -> Result<Snapshot, String> {
    Snapshot::read(bytes).map_err(|why| why.to_string())
}

#[test]
fn a_snapshot_has_zones_page_caches_and_settings() {
    let snapshot = read(TEXT.as_bytes()).unwrap();
    let zones = snapshot.zones().unwrap();
    let normal = zones.iter().find(|zone| zone.name == "Normal").unwrap();
    assert_eq!((normal.node, normal.managed), (0, 5_394_266));
    assert_eq!(normal.marks, [14_769, 20_163, 25_557]);
    let cache = normal.caches[1];
    assert_eq!((cache.cpu, cache.batch, cache.bounds), (1, 63, Some([10_081, 337_141])));
    assert_eq!((normal.caches.len(), cache.threshold), (2, 36));
    assert_eq!(snapshot.page_kib().unwrap(), 4);
    assert_eq!(snapshot.setting("vm.min_free_kbytes"), Some(67_584));
    assert!(snapshot.release().unwrap().starts_with("6.18."));
    assert_eq!(snapshot.cpus_of_nodes(), BTreeMap::from([(0, 2)]));
    let (name, text) = snapshot.lscpu().unwrap();
    assert!(name.starts_with("lscpu") && text.contains("NUMA node0") && text.contains("ONLINE"));
}

#[test]
fn a_boost_is_no_part_of_a_watermark_and_older_kernels_have_no_bounds() {
    let text = "Node 1, zone   Normal\n  pages free     9\n        boost    100\n        min      \
                150\n        low      160\n        high     170\n        managed  4096\n  \
                pagesets\n    cpu: 3\n              count: 5\n              high:  378\n  \
                \x20           batch: 63\n  vm stats threshold: 10\n";
    let zones = zones::parse(text).unwrap();
    assert_eq!((zones[0].node, zones[0].marks), (1, [50, 60, 70]));
    let cache = zones[0].caches[0];
    assert_eq!((cache.cpu, cache.count, cache.high, cache.bounds), (3, 5, 378, None));
    let wrong = zones::parse(&text.replace("4096", "many")).unwrap_err().to_string();
    assert_eq!(wrong, "/proc/zoneinfo, line 7: `        managed  many` has no number at its end");
    let none = zones::parse("Node 0, zone DMA\n").unwrap_err().to_string();
    assert!(none.contains("zone with managed pages"), "{none}");
}

#[test]
fn an_archive_has_the_same_files() {
    let snapshot = read(TEXT.as_bytes()).unwrap();
    let mut tar = Vec::new();
    let decoder = lzma_rust2::XzReader::new(ARCHIVE, true);
    std::io::Read::read_to_end(&mut { decoder }, &mut tar).unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&tar).unwrap();
    let zstd = ruzstd::encoding::compress_to_vec(&tar[..], CompressionLevel::Fastest);
    for bytes in [ARCHIVE, &tar, &gzip.finish().unwrap(), &zstd] {
        let archive = read(bytes).unwrap();
        assert_eq!(archive.zones().unwrap(), snapshot.zones().unwrap());
        assert_eq!(archive.setting("vm.min_free_kbytes"), Some(67_584));
        assert!(archive.release().unwrap().starts_with("6.18."));
        assert!(archive.lscpu().unwrap().1.contains("NUMA node0"));
        let cut = read(&bytes[..bytes.len() / 3]);
        assert!(cut.is_err(), "{cut:?}");
    }
}

#[test]
fn an_archive_of_bzip2_is_refused_with_advice() {
    let why = read(b"BZh91AY&SY rest").unwrap_err();
    assert!(why.contains("(bzip2)") && why.contains("bunzip2"), "{why}");
}

#[test]
fn other_files_are_refused_with_what_makes_one() {
    assert!(read(b"a mail").unwrap_err().contains("mmscale profile snapshot"));
    assert!(read(b"").unwrap_err().contains("it is no snapshot"));
    let why = read(b"\x1f\x8b\x08\x00 damaged").unwrap_err();
    assert!(why.contains("it is an archive (gzip) that cannot be unpacked"), "{why}");
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_ustar();
    header.set_size(1);
    header.set_mode(0o600);
    builder.append_data(&mut header, "x/readme", &b"x"[..]).unwrap();
    let why = read(&builder.into_inner().unwrap()).unwrap_err();
    assert!(why.contains("it is an archive of 1 files, and none is proc/zoneinfo"), "{why}");
    let none = read(b"==> /proc/uptime <==\n5 6\n").unwrap();
    assert_eq!(none.zones().unwrap_err().to_string(), "it has no /proc/zoneinfo");
}

#[test]
fn two_snapshots_give_rates() {
    let [before, after] = [TEXT, LATER].map(|text| read(text.as_bytes()).unwrap());
    let rates = Rates::between(&before, &after, None).unwrap();
    let counter = |snapshot: &Snapshot, name: &str| snapshot.counters().unwrap()[name];
    let faults = counter(&after, "pgfault") - counter(&before, "pgfault");
    let seconds = after.uptime_s().unwrap() - before.uptime_s().unwrap();
    assert!((rates.of("pgfault") - faults as f64 / seconds).abs() < 1e-6);
    assert!(rates.of("pgalloc_*") > 0.0 && rates.of("pswpin") == 0.0);
    let twice = Rates::between(&before, &after, Some(2.0 * seconds)).unwrap();
    assert!((2.0 * twice.of("pgfault") / rates.of("pgfault") - 1.0).abs() < 1e-9);
    let why = Rates::between(&after, &before, None).unwrap_err().to_string();
    assert!(why.contains("is not later than the first"), "{why}");
    let without = |text: &str| read(text.replace("/proc/uptime", "/proc/x").as_bytes()).unwrap();
    let why = Rates::between(&without(TEXT), &without(LATER), None).unwrap_err().to_string();
    assert!(why.contains("give --seconds"), "{why}");
    let why = Rates::between(&without(LATER), &without(TEXT), Some(1.0)).unwrap_err().to_string();
    assert!(why.contains("not of one boot"), "{why}");
    let faults = format!("pgfault {}", counter(&after, "pgfault"));
    assert!(LATER.contains(&faults), "{faults}");
    let below = read(LATER.replace(&faults, "pgfault 18446744073709551611").as_bytes()).unwrap();
    let why = Rates::between(&before, &below, None).unwrap_err().to_string();
    assert!(why.contains("to 18446744073709551611"), "{why}");
}

#[test]
fn damaged_snapshots_are_read_or_refused() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(5);
    let mut read_ones = 0;
    for _ in 0..2000 {
        let mut bytes = TEXT.as_bytes().to_vec();
        for _ in 0..1 + random.next_u64() % 4 {
            let at = (random.next_u64() % bytes.len() as u64) as usize;
            match random.next_u64() % 4 {
                0 => bytes[at] = random.next_u64() as u8,
                1 => bytes.truncate(at.max(64)),
                2 => drop(bytes.drain(at..(at + 40).min(bytes.len()))),
                _ => bytes.splice(at..at, b"99999999999999999999 ".iter().copied()).for_each(drop),
            }
        }
        if let Ok(snapshot) = read(&bytes) {
            let all = (snapshot.zones().is_ok(), snapshot.counters().is_ok());
            let _ = (snapshot.page_kib(), snapshot.lscpu(), snapshot.cpus_of_nodes());
            read_ones += usize::from(all.0 && all.1);
        }
    }
    assert!((500..2000).contains(&read_ones), "{read_ones}");
}
