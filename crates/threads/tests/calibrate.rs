//! Calibration returns numbers that are valid in a profile, on any computer and under any load.

use mmscale_threads::calibrate::{Apart, Effort, Pair, Quantity, measure};

#[test]
fn every_number_is_positive_and_lies_in_its_spread() {
    let mut told = Vec::new();
    // Where these are not allowed, the first CPUs are measured in their place.
    let pairs = [Pair { apart: Apart::Node, cpus: [0, 1] }];
    let measured = measure(Effort::Quick, &pairs, |done, all| told.push((done, all))).unwrap();
    let pair = measured.pair.as_ref();
    let mut all = vec![
        measured.clock_ns,
        measured.line_own_ns,
        measured.atomic_ns,
        measured.lock_ns,
        measured.unlock_ns,
        measured.clear_page_ns,
        measured.clear_bytes_per_us,
        measured.irq_ns,
        measured.wake_ns,
    ];
    assert_eq!(pair.is_some(), measured.host_cpus > 1);
    all.extend(pair.iter().flat_map(|pair| {
        [pair.line_ns, pair.line_in_row_ns, pair.handoff_ns, pair.ipi_ns, pair.idle_wake_ns]
    }));
    for (apart, lines) in &measured.pairs {
        assert_eq!(*apart, Apart::Node);
        all.push(lines.line_ns);
        all.extend(lines.handoff_ns);
    }
    assert_eq!(measured.pairs.len(), 1);
    for Quantity { median, low, high, rounds } in all {
        assert!(low > 0.0 && low <= median && median <= high && high.is_finite());
        assert_eq!(rounds, 5);
    }
    assert_eq!(told, (0..=5).map(|done| (done, 5)).collect::<Vec<_>>());
}
