//! Calibration writes a profile that the simulator takes, and says where its numbers come from.

use mmscale_mm::arch::Op;
use mmscale_sim::profile;
use mmscale_study::calibrate::{Speed, calibrate};
use mmscale_threads::calibrate::Effort;

#[test]
fn the_profile_of_this_computer_is_whole_and_can_be_read_back() {
    let mut last = (0, 0);
    let file = calibrate(Effort::Quick, |done, all| {
        assert!(last.0 <= done && done <= all);
        last = (done, all);
    })
    .unwrap();
    assert!(last.0 == last.1 && last.1 > 0);
    assert_eq!(profile::parse("calibrated", &profile::write(&file)).unwrap(), file);
    let resolved = profile::resolve("calibrated", &file).unwrap();
    assert_eq!(resolved.topology.cpus, mmscale_threads::host_cpus());
    assert_eq!(resolved.node_pages, mmscale_threads::MEMORY_PAGES);
    // What an allocation from the cache costs is measured, and is more than nothing.
    let ops = [Op::AllocEntry, Op::PcpTake, Op::PagePrep];
    assert!(ops.iter().map(|&op| resolved.costs.op_ps[op as usize]).sum::<u64>() > 0);
    for (key, number) in file.costs.iter().chain(&file.ops) {
        let from = ["measured by `mmscale calibrate`", "not measured here; ", "assumption: "];
        assert!(from.iter().any(|from| number.source.starts_with(from)), "{key}: {number:?}");
    }
    // The computer is about as fast as it was a moment ago; only sense is asked for here.
    let slowness = Speed::of(&resolved).unwrap().slowness().unwrap();
    assert!(slowness.is_finite() && slowness > 0.0);
}
