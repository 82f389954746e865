//! The lock classes of reports and live kernels, compared with the classes of the simulator and
//! with the table of locks that are not simulated.

use mmscale_arch::LockClass;
use mmscale_document::{Counterpart, LOCK_CLASSES};
use mmscale_harness::coverage::GAPS;

#[test]
fn every_counterpart_is_a_class_or_a_gap() {
    for row in LOCK_CLASSES {
        match row.counterpart {
            Counterpart::Class(name) => {
                let known = LockClass::ALL.iter().any(|class| class.name() == name);
                assert!(known, "`{}` names `{name}`, which the simulator does not have", row.class);
            }
            Counterpart::Gap(name) => {
                let known = GAPS.iter().any(|gap| gap.name == name);
                assert!(known, "`{}` names `{name}`, which is not in GAPS", row.class);
            }
            Counterpart::Unknown => {}
        }
    }
}

#[test]
fn a_gap_that_is_a_lock_has_a_class() {
    // Mechanisms without a lock that spins, callbacks of many locks, and other uses of locks that
    // are simulated. Mutexes have one class.
    let others = [
        "callbacks of CPU hotplug",
        "large folios",
        "multi-gen LRU",
        "NUMA balancing",
        "mmap_lock of first faults",
        "i_mmap_rwsem of libraries",
        "siglock of signals",
        "oom_adj_mutex",
        "ucounts",
        "folio lock",
        "exec",
        "locks of fsync",
        "lru_lock of file pages",
        "readahead",
        "pidfs",
        "i_pages of dirty pages",
    ];
    for gap in GAPS.iter().filter(|gap| !others.contains(&gap.name)) {
        let known = LOCK_CLASSES.iter().any(|row| row.counterpart == Counterpart::Gap(gap.name));
        assert!(known, "no row of LOCK_CLASSES names the gap `{}`", gap.name);
    }
}
