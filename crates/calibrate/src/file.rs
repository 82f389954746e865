//! The profile file of this computer, with a source for each number.

use super::fit::{FITTED, decided_by};
use super::pairs;
use super::program::Piece;
use super::{CalibrateError, Measured, OpCosts};
use mmscale_arch::{MAX_CPUS, Op};
use mmscale_frames::frame::FrameTable;
use mmscale_sim::profile::{self, Number, ProfileFile, Section, op_key};
use mmscale_threads::calibrate::{Apart, MeasuredPair, Quantity};

/// Bytes per cache line.
const LINE_BYTES: f64 = 64.0;

/// Creates the file from measurements. Numbers that were not measured are those of `x86-26`, or of
/// `x86-2` if they need two CPUs and the computer has one; their source says so. Without `ops`, all
/// costs of operations are taken from there.
pub(super) fn write(
    measured: &Measured,
    ops: Option<&OpCosts>,
) -> Result<ProfileFile, CalibrateError> {
    let metal = profile::builtin_file("x86-26")?;
    let guest = profile::builtin_file("x86-2")?;
    Ok(ProfileFile {
        base: None,
        description: format!("this computer: {}", mmscale_harness::host().cpu),
        topology: topology(measured.host_cpus),
        memory: memory(measured, &metal.memory),
        timer: Section::from([(
            "hz".to_owned(),
            assumed(1000.0, [100.0, 1000.0], "chosen by the run"),
        )]),
        costs: costs(measured, &guest.costs, &metal.costs),
        swap: swap(&metal.swap),
        noise: Section::new(),
        clock: Section::new(),
        ops: operations(measured, ops, &metal.ops),
        instructions: Section::new(),
    })
}

pub(super) fn topology(host_cpus: usize) -> Section {
    let number = |value: usize| Number {
        value: value as f64,
        range: [1.0, MAX_CPUS as f64],
        source: format!("this computer: {host_cpus} CPUs available to the process"),
    };
    let [smt, cluster, nodes] = pairs::groups(&pairs::cpus());
    // Groups that do not divide the CPUs, as where the process may use only some of them.
    let fits = host_cpus.is_multiple_of(cluster * nodes) && cluster.is_multiple_of(smt);
    let [smt, cluster, nodes] = if fits { [smt, cluster, nodes] } else { [1, host_cpus, 1] };
    let keys = [("cpus", host_cpus), ("smt", smt), ("cluster", cluster), ("nodes", nodes)];
    keys.into_iter().map(|(key, value)| (key.to_owned(), number(value))).collect()
}

fn memory(measured: &Measured, metal: &Section) -> Section {
    let pages = mmscale_threads::MEMORY_PAGES as f64;
    Section::from([
        (
            "node_pages".to_owned(),
            assumed(pages, [pages / 8.0, pages * 64.0], "the memory of the threads machine"),
        ),
        (
            "page_bytes".to_owned(),
            assumed(4096.0, [4096.0, 65536.0], "frame size of the threads machine"),
        ),
        ("tlb_broadcast_spaces".to_owned(), assumed(0.0, [0.0, 0.0], "no broadcast is used")),
    ])
    .into_iter()
    .chain(caches(measured, metal))
    .collect()
}

/// Returns the bandwidth of memory, from the rate at which all CPUs together clear, what it moves
/// for a byte that is written, and the size of the last-level cache.
pub(super) fn caches(measured: &Measured, metal: &Section) -> [(String, Number); 3] {
    let (traffic, rate) = (not_measured(metal, "write_traffic"), measured.clear_bytes_per_us);
    let whole = Quantity {
        median: (rate.median * traffic.value).round(),
        low: (rate.low * traffic.value).floor(),
        high: (rate.high * traffic.value).ceil(),
        ..rate
    };
    let how = format!("all CPUs clear at the same time, {} bytes moved for each", traffic.value);
    let size = match pairs::cache_kib() {
        Some(kib) => Number {
            value: kib as f64,
            range: [kib as f64 / 4.0, kib as f64 * 2.0],
            source:
                "measured by `mmscale profile calibrate`: the last-level cache of the first CPU, \
                     as the kernel has it; range: shared with other guests, private caches added"
                    .to_owned(),
        },
        None => not_measured(metal, "cluster_cache_kib"),
    };
    [
        ("node_bytes_per_us".to_owned(), taken(whole, &how)),
        ("write_traffic".to_owned(), traffic),
        ("cluster_cache_kib".to_owned(), size),
    ]
}

pub(super) fn costs(measured: &Measured, guest: &Section, metal: &Section) -> Section {
    let own = measured.line_own_ns;
    let mut costs: Vec<(&str, Number)> = vec![
        ("line_own_ns", taken(own, "a walk along lines in the first-level cache")),
        ("atomic_ns", taken(measured.atomic_ns, "an add to a line that the CPU owns")),
        (
            "lock_ns",
            taken(less(measured.lock_ns, own.median), "an uncontended lock, less line_own_ns"),
        ),
        ("unlock_ns", taken(measured.unlock_ns, "unlocking")),
        (
            "irq_ns",
            taken(
                less(measured.irq_ns, measured.atomic_ns.median),
                "an interrupt to the own CPU, less atomic_ns",
            ),
        ),
        ("switch_ns", taken(measured.switch_ns, "two tasks of one CPU wake each other")),
        ("wake_ns", taken(measured.wake_ns, "waking a task of the own CPU")),
        ("line_memory_ns", not_measured(metal, "line_memory_ns")),
        ("entry_extra_ns", assumed(0.0, [0.0, 0.0], "entries are measured with all mitigations")),
        ("jitter_percent", not_measured(metal, "jitter_percent")),
        ("tlb_broadcast_ns", not_measured(metal, "tlb_broadcast_ns")),
    ];
    if let Some(pair) = &measured.pair {
        costs.extend(OTHERS.map(|(key, _)| key).into_iter().zip(lines(measured, pair)));
        costs.extend(handoff(measured, pair));
        let line_ns = pair.line_ns.median;
        let after_send = less(pair.ipi_ns, pair.ipi_send_ns.median);
        let started_ns = measured.wake_ns.median + measured.switch_ns.median;
        let after_wake = less(pair.idle_wake_ns, started_ns);
        costs.extend([
            ("frame_hidden_percent", frame_hidden(pair.line_in_row_ns, line_ns)),
            ("ipi_send_ns", taken(pair.ipi_send_ns, "the sender's part")),
            ("ipi_delivery_ns", taken(after_send, "send to handler, less ipi_send_ns")),
            ("idle_exit_ns", taken(after_wake, "a sleeping CPU, less wake_ns and switch_ns")),
        ]);
    } else {
        let keys = ["frame_hidden_percent", "handoff_fixed_ns", "handoff_lines", "ipi_send_ns"];
        let keys = OTHERS.map(|(key, _)| key).into_iter().chain(keys);
        let keys = keys.chain(["ipi_delivery_ns", "idle_exit_ns"]);
        costs.extend(keys.map(|key| (key, not_measured(guest, key))));
    }
    costs.into_iter().map(|(key, number)| (key.to_owned(), number)).collect()
}

/// Lines between two CPUs, by where these part.
const OTHERS: [(&str, Apart); 4] = [
    ("line_smt_ns", Apart::Thread),
    ("line_cluster_ns", Apart::Cluster),
    ("line_node_ns", Apart::Node),
    ("line_remote_ns", Apart::Remote),
];

/// Returns the costs of [`OTHERS`]. Those of a pair that the computer does not have are those of
/// the next wider one, or of the widest.
fn lines(measured: &Measured, usual: &MeasuredPair) -> [Number; OTHERS.len()] {
    OTHERS.map(|(_, apart)| {
        let at_least = measured.pairs.iter().find(|(of, _)| *of >= apart);
        let found = at_least.or(measured.pairs.last());
        let line = found.map_or(usual.line_ns, |(_, lines)| lines.line_ns);
        taken(line, "a chase along lines that the other CPU wrote")
    })
}

/// The ways of a line in a handoff, where only one distance was measured: the owner's store takes
/// the line from the waiter, which takes it back.
const HANDOFF_LINES: f64 = 2.0;

/// Returns the costs of a handoff: the straight line through the handoffs of all pairs, over the
/// time of a line between the two.
fn handoff(measured: &Measured, usual: &MeasuredPair) -> [(&'static str, Number); 2] {
    let points: Vec<(f64, Quantity)> = measured
        .pairs
        .iter()
        .map(|(_, lines)| (lines.line_ns.median, lines.handoff_ns[0]))
        .collect();
    let fits = [|of: Quantity| of.median, |of: Quantity| of.low, |of: Quantity| of.high]
        .map(|of| fitted(points.iter().map(|&(line_ns, handoff)| (line_ns, of(handoff)))));
    let data = measured.pairs.iter().map(|(apart, lines)| {
        let [_, one, eight] = lines.handoff_ns.map(|with| with.median);
        format!("{}: {one:.0} ns with a line of data, {eight:.0} with 8", apart.name())
    });
    let data: Vec<String> = data.collect();
    let data = if data.is_empty() { String::new() } else { format!(" ({})", data.join("; ")) };
    if let [Some(median), Some(low), Some(high)] = fits {
        let quantity = |of: fn(Fit) -> f64| {
            let all = [of(median), of(low), of(high)];
            Quantity {
                median: all[0],
                low: all.into_iter().fold(f64::INFINITY, f64::min),
                high: all.into_iter().fold(0.0, f64::max),
                ..points[0].1
            }
        };
        let how = format!("unlock to owner, at {} distances{data}", points.len());
        return [
            ("handoff_fixed_ns", taken(quantity(|fit| fit.fixed_ns), &how)),
            ("handoff_lines", taken(quantity(|fit| fit.lines), &how)),
        ];
    }
    let (line_ns, handoff) =
        points.first().copied().unwrap_or((usual.line_ns.median, usual.handoff_ns));
    let how = format!("unlock to owner, less {HANDOFF_LINES} lines{data}");
    let lines = "one distance was measured: a store takes the line from the waiter, which takes it \
                 back";
    [
        ("handoff_fixed_ns", taken(less(handoff, HANDOFF_LINES * line_ns), &how)),
        ("handoff_lines", assumed(HANDOFF_LINES, [1.0, 5.0], lines)),
    ]
}

/// A straight line through handoffs.
#[derive(Clone, Copy)]
struct Fit {
    fixed_ns: f64,
    lines: f64,
}

/// Returns the line of least squares; `None` where the distances are nearly equal.
fn fitted(points: impl Iterator<Item = (f64, f64)> + Clone) -> Option<Fit> {
    let count = points.clone().count() as f64;
    let mean = |of: fn((f64, f64)) -> f64| points.clone().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let spread = points.clone().map(|(at, _)| (at - x).powi(2)).sum::<f64>();
    if count < 2.0 || spread.sqrt() < x / 4.0 {
        return None;
    }
    let lines = points.map(|(at, of)| (at - x) * (of - y)).sum::<f64>() / spread;
    let lines = lines.max(0.0);
    // A handoff is never shorter than the ways of its lines.
    let fixed_ns = (y - lines * x).max(0.0);
    Some(Fit { fixed_ns, lines: (y - fixed_ns) / x })
}

/// Returns the swap device, which is not measured.
pub(super) fn swap(metal: &Section) -> Section {
    metal.keys().map(|key| (key.clone(), not_measured(metal, key))).collect()
}

/// Returns the part of a line's transfer time that a sequential walk over frame records hides:
/// several records share a line, and the next lines are prefetched.
fn frame_hidden(in_row: Quantity, line_ns: f64) -> Number {
    let records = FrameTable::RECORD_BYTES as f64 / LINE_BYTES;
    let hidden = |in_row_ns: f64| (100.0 * (1.0 - in_row_ns * records / line_ns)).clamp(0.0, 100.0);
    let percent = Quantity {
        median: hidden(in_row.median),
        low: hidden(in_row.high),
        high: hidden(in_row.low),
        ..in_row
    };
    taken(percent, "a walk along lines that the other CPU wrote, for records of 12 bytes")
}

fn operations(measured: &Measured, fitted: Option<&OpCosts>, metal: &Section) -> Section {
    let number = |op: Op| {
        let place = FITTED.iter().position(|&of| of == op);
        if let (Some(at), Some(fitted)) = (place, fitted) {
            let quantity = Quantity {
                median: fitted.median[at],
                low: fitted.low[at],
                high: fitted.high[at],
                rounds: fitted.rounds,
            };
            return Some(taken(quantity, piece_name(decided_by(op))));
        }
        match op {
            Op::ClearPage => Some(taken(measured.clear_page_ns, "sequentially over 64 MiB")),
            Op::Syscall => {
                Some(assumed(2.0, [0.0, 20.0], "a function call, as there is no kernel entry"))
            }
            // Others have the time of their instructions.
            _ => metal.contains_key(&op_key(op)).then(|| not_measured(metal, &op_key(op))),
        }
    };
    Op::ALL.iter().filter_map(|&op| Some((op_key(op), number(op)?))).collect()
}

fn piece_name(piece: Piece) -> &'static str {
    match piece {
        Piece::CachedAlloc => "from allocations that the page cache serves, on one CPU",
        Piece::CachedFree => "from frees into the page cache, on one CPU",
        Piece::BulkAlloc => "from allocations in bulk, refills included, on one CPU",
        Piece::BulkFree => "from frees in bulk, drains included, on one CPU",
    }
}

pub(super) fn taken(quantity: Quantity, how: &str) -> Number {
    let Quantity { median, low, high, rounds } = quantity;
    let round = |ns: f64| (ns * 1000.0).round() / 1000.0;
    let source = format!(
        "measured by `mmscale profile calibrate`: {how}; median and quartiles of {rounds} rounds"
    );
    Number { value: round(median), range: [round(low), round(high)], source }
}

pub(super) fn assumed(value: f64, range: [f64; 2], why: &str) -> Number {
    Number { value, range, source: format!("assumption: {why}") }
}

pub(super) fn not_measured(section: &Section, key: &str) -> Number {
    let number = &section[key];
    Number { source: format!("not measured here; {}", number.source), ..number.clone() }
}

/// Subtracts a part that a quantity contains; the result is not negative.
pub(super) fn less(quantity: Quantity, part: f64) -> Quantity {
    let rest = |ns: f64| (ns - part).max(0.0);
    Quantity {
        median: rest(quantity.median),
        low: rest(quantity.low),
        high: rest(quantity.high),
        ..quantity
    }
}
