//! A profile that is made from files of a machine has the limits of that machine.

use std::collections::BTreeMap;

use mmscale_calibrate::Profiles;
use mmscale_calibrate::derive::{DeriveError, Groups, Known, Memory, Text, derive};
use mmscale_frames::page_alloc::AllocConfig;

fn known(lscpu: &str) -> Known {
    Known {
        profiles: Profiles::default(),
        base: "x86-2".to_owned(),
        description: None,
        groups: Groups::default(),
        node_bytes: None,
        lscpu: Some(Text { name: "lscpu".to_owned(), text: lscpu.to_owned() }),
        capacities: BTreeMap::new(),
        memory: None,
        latencies: None,
        force: false,
    }
}

const TWO: &str = "CPU(s): 2\nThread(s) per core: 1\nL3 cache: 32 MiB (1 instance)\n";

#[test]
fn page_caches_and_watermarks_are_as_on_the_machine() {
    let memory = Memory {
        source: "/proc/zoneinfo".to_owned(),
        page_bytes: 4096,
        node_pages: 772_915 + 5_394_266,
        dma32_pages: 772_915,
        min_free_kib: 4 * (2116 + 14_769),
        pcp_batch: 63,
    };
    let known = Known { memory: Some(memory), ..known(TWO) };
    let file = derive(&known).unwrap().file;
    let profile = known.profiles.resolve("it", &file).unwrap();
    assert_eq!((profile.limits.dma32_pages, profile.limits.pcp_batch), (772_915, 63));
    // As the harness makes a memory manager of it.
    let config = AllocConfig {
        min_free_kb: Some(profile.limits.min_free_kib),
        batch_pages: Some(profile.limits.pcp_batch),
        ..AllocConfig::default()
    };
    let (total, low) = (profile.node_pages, u64::from(profile.limits.dma32_pages));
    let marks = config.watermarks(total - low, total);
    let caches = config.pcp_limits(total - low, marks.low, 2);
    // The machine has a DMA zone too, whose share is a page.
    assert!(marks.min.abs_diff(14_769) <= 1 && marks.low.abs_diff(20_163) <= 1, "{marks:?}");
    assert!(caches.high_min.abs_diff(10_081) <= 1, "{caches:?}");
    assert_eq!((caches.batch, caches.high_max), (63, 337_141));
}

#[test]
fn pages_of_another_size_than_those_of_the_base_are_refused() {
    let memory = Memory { page_bytes: 65_536, node_pages: 1 << 20, ..Memory::default() };
    let why = derive(&Known { memory: Some(memory), ..known(TWO) }).unwrap_err();
    assert!(matches!(why, DeriveError::Pages { own: 65_536, of_base: 4096, .. }), "{why}");
}

/// A phone: three small cores, four of middle size, one large.
fn phone() -> String {
    let rows = (0..8).map(|cpu| {
        let mhz = [2016, 2016, 2016, 2803, 2803, 2803, 2803, 3187][cpu];
        format!("{cpu} 0 0 {cpu} {cpu}:{cpu}:{cpu}:0 yes {mhz}.0000 300.0000\n")
    });
    format!("CPU NODE SOCKET CORE L1d:L1i:L2:L3 ONLINE MAXMHZ MINMHZ\n{}", rows.collect::<String>())
}

#[test]
fn cores_of_several_kinds_become_those_of_the_profile() {
    let of = |base: &str, lscpu: &str| {
        let known = Known { base: base.to_owned(), ..known(lscpu) };
        let derived = derive(&known).unwrap();
        let profile = known.profiles.resolve("it", &derived.file).unwrap();
        (profile.clock.small, profile.clock.middle, derived.file)
    };
    // Speeds of the base, which were measured.
    let (small, middle, file) = of("phone", &phone());
    assert_eq!((small, middle), ((3, 285), (4, 871)));
    assert!(file.description.ends_with("cores of 3 kinds"), "{}", file.description);
    // By the clock alone, as an assumption.
    let (small, middle, file) = of("arm64-72", &phone());
    assert_eq!((small, middle), ((3, 648), (4, 901)));
    assert!(file.clock["small_speed_percent"].source.starts_with("assumption: "));
    // A machine of one kind on a base of several.
    let (small, middle, _) = of("phone", TWO);
    assert_eq!((small.0, middle.0), (0, 0));
}
