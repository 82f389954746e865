//! Sums over the operations of a recording: what an operation does without other CPUs.

use crate::recording::{LineId, LockId, Operation, Recording, Share, SiteId, What};
use std::collections::BTreeMap;

/// Means over the operations that the script counts.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Sums {
    /// Operations that the script counted.
    pub count: u64,
    /// Rounds that were recorded.
    pub rounds: u64,
    /// Instructions an operation: the median over rounds.
    pub instructions: f64,
    /// The smallest and the largest of a round, as `instructions`.
    pub instructions_range: [f64; 2],
    /// Locked instructions an operation.
    pub locked: f64,
    /// Lines of a round that one CPU alone uses, divided by its operations.
    pub private_lines: f64,
    /// Lines that CPUs share and no CPU writes, as `private_lines`.
    pub read_only_lines: f64,
    /// Lines that few CPUs share and some CPU writes, as `private_lines`.
    pub few_lines: f64,
    /// Lines that many CPUs share and some CPU writes, as `private_lines`.
    pub many_lines: f64,
    /// Locks by class, place and kind of sharing; the longest holds an operation first.
    pub locks: Vec<LockSum>,
    /// Shared lines by what they hold; the most accesses first.
    pub lines: Vec<LineSum>,
}

/// The acquisitions of a lock at one place.
#[derive(Clone, PartialEq, Debug)]
pub struct LockSum {
    /// The class of the lock.
    pub class: String,
    /// Whether it is taken for reading.
    pub is_shared: bool,
    /// Where it is taken.
    pub site: SiteId,
    /// Which CPUs take it.
    pub share: Share,
    /// Acquisitions an operation.
    pub acquisitions: f64,
    /// Instructions of a hold: the mean.
    pub hold_instructions: f64,
    /// Shared lines that are used in a hold: the mean number of accesses.
    pub hold_accesses: f64,
}

/// The accesses to a line.
#[derive(Clone, PartialEq, Debug)]
pub struct LineSum {
    /// The line.
    pub line: LineId,
    /// Accesses an operation.
    pub accesses: f64,
    /// Those that write, atomics included.
    pub writes: f64,
    /// Atomics.
    pub atomics: f64,
    /// The places of most accesses, with their accesses an operation.
    pub sites: Vec<(SiteId, f64)>,
}

/// The class of a lock, whether it is taken for reading, where, and its kind of sharing.
type Taken = (String, bool, SiteId, Share);

/// A hold that has begun.
struct Hold {
    lock: LockId,
    row: Taken,
    /// Instructions of the operation before it.
    since: u64,
    /// Accesses of the operation before it.
    accesses: u64,
}

#[derive(Clone, Copy, Default)]
struct Held {
    acquisitions: u64,
    released: u64,
    instructions: u64,
    accesses: u64,
}

#[derive(Clone, Default)]
struct Used {
    accesses: u64,
    writes: u64,
    atomics: u64,
    sites: BTreeMap<SiteId, u64>,
}

/// Sums the operations of a recording.
pub fn sums(recording: &Recording) -> Sums {
    let mut held: BTreeMap<Taken, Held> = BTreeMap::new();
    let mut used: BTreeMap<LineId, Used> = BTreeMap::new();
    let mut sums = Sums::default();
    let mut instructions = Vec::new();
    let (mut locked, mut lines) = (0, [0; 4]);
    for operation in recording.operations() {
        sums.rounds += 1;
        sums.count += operation.count;
        instructions.push(operation.instructions as f64 / operation.count.max(1) as f64);
        locked += operation.locked;
        let shared = add(recording, operation, &mut held, &mut used);
        let all = [operation.private_lines, operation.read_only_lines, shared[0], shared[1]];
        lines.iter_mut().zip(all).for_each(|(sum, lines)| *sum += lines);
    }
    let per_op = |number: u64| number as f64 / sums.count.max(1) as f64;
    instructions.sort_by(f64::total_cmp);
    if let [first, .., last] | [first @ last] = &instructions[..] {
        sums.instructions = instructions[instructions.len() / 2];
        sums.instructions_range = [*first, *last];
    }
    sums.locked = per_op(locked);
    [sums.private_lines, sums.read_only_lines, sums.few_lines, sums.many_lines] = lines.map(per_op);
    sums.locks = held
        .into_iter()
        .map(|((class, is_shared, site, share), held)| LockSum {
            class,
            is_shared,
            site,
            share,
            acquisitions: per_op(held.acquisitions),
            hold_instructions: held.instructions as f64 / held.released.max(1) as f64,
            hold_accesses: held.accesses as f64 / held.released.max(1) as f64,
        })
        .collect();
    let length = |lock: &LockSum| lock.acquisitions * lock.hold_instructions;
    sums.locks.sort_by(|a, b| length(b).total_cmp(&length(a)));
    sums.lines = used.into_iter().map(|(line, used)| line_sum(line, &used, &per_op)).collect();
    sums.lines.sort_by(|a, b| b.accesses.total_cmp(&a.accesses));
    sums
}

fn line_sum(line: LineId, used: &Used, per_op: &impl Fn(u64) -> f64) -> LineSum {
    let mut sites: Vec<(SiteId, f64)> =
        used.sites.iter().map(|(site, number)| (*site, per_op(*number))).collect();
    sites.sort_by(|a, b| b.1.total_cmp(&a.1));
    LineSum {
        line,
        accesses: per_op(used.accesses),
        writes: per_op(used.writes),
        atomics: per_op(used.atomics),
        sites,
    }
}

/// Adds an operation. Returns how many lines of few and of many CPUs it uses.
fn add(
    recording: &Recording,
    operation: &Operation,
    held: &mut BTreeMap<Taken, Held>,
    used: &mut BTreeMap<LineId, Used>,
) -> [u64; 2] {
    let mut holds: Vec<Hold> = Vec::new();
    let (mut now, mut accesses) = (0_u64, 0_u64);
    let mut lines: Vec<LineId> = Vec::new();
    for event in &operation.events {
        now += u64::from(event.after);
        if event.what.is_access() {
            accesses += 1;
            let line = LineId(event.target);
            lines.push(line);
            let used = used.entry(line).or_default();
            used.accesses += 1;
            used.writes += u64::from(event.what != What::Read);
            used.atomics += u64::from(event.what == What::Atomic);
            *used.sites.entry(event.site).or_default() += 1;
            continue;
        }
        let (id, lock) = (LockId(event.target), &recording.locks[event.target as usize]);
        let mut taken = |is_shared: bool| {
            let row = (lock.class.clone(), is_shared, event.site, lock.share);
            held.entry(row.clone()).or_default().acquisitions += 1;
            Hold { lock: id, row, since: now, accesses }
        };
        match event.what {
            What::Acquire => holds.push(taken(false)),
            What::AcquireShared => holds.push(taken(true)),
            // The hold goes on: its place is that of the acquisition.
            What::Downgrade => {}
            What::Release => {
                if let Some(at) = holds.iter().rposition(|hold| hold.lock == id) {
                    let hold = holds.remove(at);
                    let sum = held.entry(hold.row).or_default();
                    sum.released += 1;
                    sum.instructions += now - hold.since;
                    sum.accesses += accesses - hold.accesses;
                }
            }
            What::Read | What::Write | What::Atomic => {}
        }
    }
    lines.sort_unstable();
    lines.dedup();
    let few = lines.iter().filter(|line| recording.lines[line.index()].share == Share::Few).count();
    [few as u64, (lines.len() - few) as u64]
}
