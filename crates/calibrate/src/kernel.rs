//! The profile file of this computer's kernel.

use super::file::{assumed, caches, costs, less, not_measured, swap, taken, topology};
use super::{CalibrateError, Measured, quantile};
use mmscale_arch::Op;
use mmscale_linux::steps::{PairRound, Round, measure_round};
use mmscale_mm::versions::Version;
use mmscale_sim::profile::{self, Merged, Number, ProfileFile, Section, instructions_key, op_key};
use mmscale_threads::calibrate::Quantity;

/// Measures the kernel's steps and creates a file from them and the lines and locks of this
/// computer. Numbers that cannot be measured from user space are those of the guest profile
/// `x86-2`; their source says so.
pub(super) fn measure(
    measured: &Measured,
    rounds: usize,
    done: &mut dyn FnMut(usize),
) -> Result<ProfileFile, CalibrateError> {
    let mut steps = Vec::new();
    for round in 0..rounds {
        done(round);
        steps.push(measure_round()?);
    }
    let merged = profile::open("x86-2")?;
    let running = mmscale_linux::kernel_release().and_then(|of| Version::of_release(&of));
    let merged = running.map_or(merged.clone(), |of| merged.on_linux(of.major, of.minor));
    let guest = &merged.file;
    let cpu = mmscale_harness::host().cpu;
    Ok(ProfileFile {
        base: None,
        description: format!("this computer's kernel: {cpu}"),
        topology: topology(measured.host_cpus),
        memory: memory(measured, &guest.memory),
        timer: Section::from([("hz".to_owned(), hz(&guest.timer))]),
        costs: kernel_costs(measured, &steps, &merged),
        swap: swap(&guest.swap),
        noise: Section::new(),
        clock: Section::new(),
        ops: operations(measured, &steps, &merged),
        instructions: Section::new(),
    })
}

fn memory(measured: &Measured, guest: &Section) -> Section {
    let pages = (mmscale_linux::available_bytes().unwrap_or(1 << 32) >> 12) as f64;
    let range = [(pages / 8.0).floor().max(1.0), pages * 8.0];
    Section::from([
        ("node_pages".to_owned(), assumed(pages, range, "the memory available during calibration")),
        ("page_bytes".to_owned(), assumed(4096.0, [4096.0, 65536.0], "the usual base page size")),
        ("tlb_broadcast_spaces".to_owned(), assumed(0.0, [0.0, 4087.0], "no broadcast is used")),
    ])
    .into_iter()
    .chain(caches(measured, guest))
    .collect()
}

/// Returns the ticks per second, from the resolution of the kernel's coarse clock.
fn hz(guest: &Section) -> Number {
    let Some(hz) = mmscale_linux::tick_hz() else { return not_measured(guest, "hz") };
    let source =
        "measured by `mmscale profile calibrate`: the resolution of the kernel's coarse clock";
    Number { value: f64::from(hz), range: [100.0, 1000.0], source: source.to_owned() }
}

/// Returns median and quartiles of a step over rounds.
fn step(steps: &[Round], of: impl Fn(&Round) -> Option<f64>) -> Option<Quantity> {
    let values: Option<Vec<f64>> = steps.iter().map(of).collect();
    let values = values.filter(|values| !values.is_empty())?;
    let at = |share| quantile(values.iter().copied(), share);
    Some(Quantity { median: at(0.5), low: at(0.25), high: at(0.75), rounds: values.len() })
}

fn kernel_costs(measured: &Measured, steps: &[Round], merged: &Merged) -> Section {
    let guest = &merged.file.costs;
    let mut costs = costs(measured, guest, guest);
    costs.extend(instructions(steps, merged).into_iter().flatten());
    let send_ns = guest["ipi_send_ns"].value;
    let pair = |of: fn(&PairRound) -> Option<f64>| {
        step(steps, move |round| round.pair.as_ref().and_then(of))
    };
    let measured = [
        (
            "switch_ns",
            step(steps, |round| Some(round.switch_ns)),
            "two tasks of a CPU that yield to each other, less the calls",
        ),
        (
            "wake_ns",
            step(steps, |round| Some(round.wake_ns)),
            "a futex wake-up on one CPU, less the calls and the switch",
        ),
        (
            "ipi_delivery_ns",
            pair(|pair| pair.ipi_ns).map(|quantity| less(quantity, send_ns)),
            "the additional time of an expedited membarrier with one interrupt, less ipi_send_ns",
        ),
        (
            "idle_exit_ns",
            pair(|pair| Some(pair.idle_exit_ns)),
            "a futex wake-up of a sleeping CPU, less wake_ns, switch_ns and a call",
        ),
        ("ipi_send_ns", None, ""),
        ("irq_ns", None, ""),
    ];
    for (key, found, how) in measured {
        let number = found.map_or_else(|| not_measured(guest, key), |found| taken(found, how));
        costs.insert(key.to_owned(), number);
    }
    costs
}

/// Returns the times of an instruction outside of spin holds and in them: that of mmap, whose
/// instructions were counted on an image of the last version at or before this kernel's, and the
/// same with the ratio of the two in the guest profile. Counts are of x86 kernels; there is none
/// for others.
fn instructions(steps: &[Round], merged: &Merged) -> Option<[(String, Number); 2]> {
    let guest = &merged.file;
    let count = &guest.instructions.get(&instructions_key(Op::VmaEdit))?.value;
    let vma_edit = step(steps, |round| Some(round.vma_edit_ns))?;
    let [usual, in_hold] = ["instruction_ns", "hold_instruction_ns"].map(|key| &guest.costs[key]);
    let times = vma_edit.median / count / usual.value;
    // Other operations have other misses: the guest's range, and what the rounds differ by.
    let [low, high] = [vma_edit.low, vma_edit.high].map(|ns| ns / count / usual.value);
    let number = |of: &Number, source: String| {
        let round = |ns: f64| (ns * 1000.0).round() / 1000.0;
        let range = [round(of.range[0] * low), round(of.range[1] * high)];
        Number { value: round(of.value * times), range, source }
    };
    let of = format!(
        "vma_edit_ns, {:.0} ns, which is {count} instructions in {}; median and quartiles of {} \
         rounds, and the relative range of x86-2",
        vma_edit.median, merged.kernel, vma_edit.rounds
    );
    let ratio = format!("derived from instruction_ns with the ratio of x86-2 ({})", in_hold.value);
    let found = [
        ("instruction_ns", number(usual, format!("derived from {of}"))),
        ("hold_instruction_ns", number(in_hold, ratio)),
    ];
    cfg!(target_arch = "x86_64").then(|| found.map(|(key, number)| (key.to_owned(), number)))
}

/// Operations charged for a fault that finds its page, other than the two that are determined here.
const OF_A_FAULT: [Op; 4] = [Op::VmaFind, Op::TableWalk, Op::MapPage, Op::PteSet];

fn operations(measured: &Measured, steps: &[Round], guest: &Merged) -> Section {
    let of = |of: fn(&Round) -> f64| step(steps, move |round| Some(of(round)));
    let guest_ns = |op: Op| guest.op(op).map_or(0.0, |number| number.value);
    let rest_ns: f64 = OF_A_FAULT.into_iter().map(guest_ns).sum();
    let entry = guest_ns(Op::FaultEntry) / (guest_ns(Op::FaultEntry) + guest_ns(Op::FaultHandle));
    let part = |share: f64| {
        let whole = less(of(|round| round.fault_ns)?, rest_ns);
        let Quantity { median, low, high, rounds } = whole;
        Some(Quantity { median: median * share, low: low * share, high: high * share, rounds })
    };
    let number = |op: Op| {
        let (found, how) = match op {
            Op::Syscall => (of(|round| round.syscall_ns), "getppid"),
            Op::VmaEdit => (
                of(|round| round.vma_edit_ns),
                "half of mmap and munmap of an untouched page, less the entries",
            ),
            Op::ClearPage => (Some(measured.clear_page_ns), "sequentially over 64 MiB"),
            Op::FaultEntry => (
                part(entry),
                "a write fault on a present shared page, less separately charged operations, times \
                 the share in x86-2",
            ),
            Op::FaultHandle => (part(1.0 - entry), "the rest of that write fault"),
            _ => (None, ""),
        };
        // Others have the time of their instructions.
        let of_guest = || {
            let key = op_key(op);
            guest.file.ops.contains_key(&key).then(|| not_measured(&guest.file.ops, &key))
        };
        found.map(|found| taken(found, how)).or_else(of_guest)
    };
    Op::ALL.iter().filter_map(|&op| Some((op_key(op), number(op)?))).collect()
}
