//! Calibration writes a profile that the simulator accepts and that has a source for each number.

use mmscale_arch::Op;
use mmscale_calibrate::{Of, Speed, calibrate};
use mmscale_sim::profile;
use mmscale_threads::calibrate::Effort;

#[test]
fn the_profile_of_this_computer_is_whole_and_can_be_read_back() {
    let mut last = (0, 0);
    let file = calibrate(Of::Threads, Effort::Quick, |done, all| {
        assert!(last.0 <= done && done <= all);
        last = (done, all);
    })
    .unwrap();
    assert!(last.0 == last.1 && last.1 > 0);
    assert_eq!(profile::parse("calibrated", &profile::write(&file)).unwrap(), file);
    let resolved = profile::resolve("calibrated", &file).unwrap();
    assert_eq!(resolved.topology.cpus, mmscale_threads::host_cpus());
    assert_eq!(resolved.node_pages, mmscale_threads::MEMORY_PAGES);
    // The measured cost of an allocation from the cache is above zero.
    let ops = [Op::AllocEntry, Op::PcpTake, Op::PagePrep];
    assert!(ops.iter().map(|&op| resolved.costs.op_ps[op as usize]).sum::<u64>() > 0);
    for (key, number) in file.costs.iter().chain(&file.ops) {
        let from =
            ["measured by `mmscale profile calibrate`", "not measured here; ", "assumption: "];
        assert!(from.iter().any(|from| number.source.starts_with(from)), "{key}: {number:?}");
    }
    // The speed may have changed since calibration; only plausibility is checked.
    let slowness = Speed::of(&resolved).unwrap().slowness().unwrap();
    assert!(slowness.is_finite() && slowness > 0.0);
}

/// Steps that any kernel provides: each takes some time, and numbers that were not measured say so.
#[test]
fn the_profile_of_this_kernel_has_its_steps_and_the_guest_s_rest() {
    let file = calibrate(Of::Kernel, Effort::Quick, |_, _| ()).unwrap();
    assert_eq!(profile::parse("kernel", &profile::write(&file)).unwrap(), file);
    let resolved = profile::resolve("kernel", &file).unwrap();
    assert_eq!(resolved.topology.cpus, mmscale_threads::host_cpus());
    let measured = |number: &profile::Number| number.source.starts_with("measured by");
    let steps = ["syscall_ns", "vma_edit_ns", "fault_entry_ns", "fault_handle_ns"];
    for key in steps.into_iter().chain(["clear_page_ns"]) {
        let number = &file.ops[key];
        assert!(measured(number) && number.value > 0.0, "{key}: {number:?}");
    }
    let switch = &file.costs["switch_ns"];
    assert!(measured(switch) && switch.value > 0.0 && measured(&file.costs["wake_ns"]));
    // Zones cannot be seen from user space: what they take is the time of instructions, which is
    // that of mmap here.
    let guest = profile::open("x86-2").unwrap();
    let time = |section: &profile::Section, key: &str| section.get(key).map(|number| number.value);
    let both = ["instruction_ns", "hold_instruction_ns"];
    if cfg!(target_arch = "x86_64") {
        let [usual, in_hold] = both.map(|key| time(&file.costs, key).unwrap());
        let [of_guest, in_guest] = both.map(|key| time(&guest.file.costs, key).unwrap());
        assert!((usual / of_guest - in_hold / in_guest).abs() < 0.01, "{usual} and {in_hold} ns");
        let instructions = file.ops["vma_edit_ns"].value / usual;
        assert!((2000.0..4500.0).contains(&instructions), "{instructions} instructions of mmap");
    }
    for op in [Op::PagePrep, Op::PcpTake, Op::BuddyTake] {
        assert!(!file.ops.contains_key(&profile::op_key(op)), "{op:?}");
        let key = if op == Op::PagePrep { both[0] } else { both[1] };
        let times = time(&file.costs, key).map_or(1.0, |ns| ns / guest.file.costs[key].value);
        let of_guest = guest.resolve().unwrap().costs.op_ps[op as usize] as f64;
        let here = resolved.costs.op_ps[op as usize] as f64;
        assert!((here / of_guest / times - 1.0).abs() < 0.01, "{op:?}: {here} and {of_guest} ps");
    }
    let scan = &file.ops["pte_scan_ns"];
    assert_eq!(scan.value, guest.file.ops["pte_scan_ns"].value);
    assert!(scan.source.starts_with("not measured here; "), "{scan:?}");
}
