//! Sums over the operations of a recording: what an operation does without other CPUs.

use crate::recording::{
    FunctionId, Line, LineId, LockId, Operation, Recording, Share, SiteId, What,
};
use std::collections::{BTreeMap, BTreeSet};

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
    /// Bytes that an operation clears, and that it copies.
    pub cleared_bytes: f64,
    /// See `cleared_bytes`.
    pub copied_bytes: f64,
    /// Waits for other CPUs in an operation.
    pub waits: f64,
    /// Calls of other CPUs in an operation.
    pub calls: f64,
    /// CPUs that are called by a call: the mean.
    pub receivers: f64,
    /// Instructions of a called CPU: the mean.
    pub answer_instructions: f64,
    /// Shared lines by name; the most accesses first.
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

/// The accesses to the lines of one name and one kind of sharing.
#[derive(Clone, PartialEq, Debug)]
pub struct LineSum {
    /// The data in the lines.
    pub object: String,
    /// Which CPUs use them.
    pub share: Share,
    /// Lines.
    pub lines: u64,
    /// The most CPUs that use one of them.
    pub users: u32,
    /// Accesses an operation.
    pub accesses: f64,
    /// Those that write, atomics included.
    pub writes: f64,
    /// Atomics.
    pub atomics: f64,
    /// The functions of most accesses, with their accesses an operation.
    pub functions: Vec<(FunctionId, f64)>,
    /// The words of 8 bytes in a line that are used, by their first byte.
    pub words: Vec<WordSum>,
}

/// The accesses to a word of 8 bytes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct WordSum {
    /// Its first byte in the line.
    pub offset: u8,
    /// Accesses an operation.
    pub accesses: f64,
    /// Those that write, atomics included.
    pub writes: f64,
}

/// The class of a lock, whether it is taken for reading, where, and its kind of sharing.
type Taken = (String, bool, SiteId, Share);

/// The name of lines, and their kind of sharing.
type Named = (String, Share);

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
    functions: BTreeMap<FunctionId, u64>,
    lines: BTreeSet<LineId>,
    /// Accesses and writes, by word.
    words: [[u64; 2]; 8],
}

/// Sums the operations of a recording.
pub fn sums(recording: &Recording) -> Sums {
    let mut held: BTreeMap<Taken, Held> = BTreeMap::new();
    let mut used: BTreeMap<Named, Used> = BTreeMap::new();
    let mut sums = Sums::default();
    let mut instructions = Vec::new();
    let (mut locked, mut lines) = (0, [0; 4]);
    let (mut cleared, mut copied, mut waits) = (0, 0, 0);
    let (mut calls, mut receivers, mut answered) = (0, 0, 0);
    for operation in recording.operations() {
        sums.rounds += 1;
        sums.count += operation.count;
        instructions.push(operation.instructions as f64 / operation.count.max(1) as f64);
        locked += operation.locked;
        let shared = add(recording, operation, &mut held, &mut used);
        let all = [operation.private_lines, operation.read_only_lines, shared[0], shared[1]];
        for event in &operation.events {
            match event.what {
                What::Clear => cleared += u64::from(event.target),
                What::Copy => copied += u64::from(event.target),
                What::Wait => waits += 1,
                What::Call => {
                    let called = &recording.calls[event.target as usize].receivers;
                    calls += 1;
                    receivers += called.len() as u64;
                    let answers = called.iter().map(|(_, answer)| answer.index());
                    let lengths = answers.map(|answer| recording.answers[answer].instructions);
                    answered += lengths.sum::<u64>();
                }
                _ => {}
            }
        }
        lines.iter_mut().zip(all).for_each(|(sum, lines)| *sum += lines);
    }
    let per_op = |number: u64| number as f64 / sums.count.max(1) as f64;
    instructions.sort_by(f64::total_cmp);
    if let [first, .., last] | [first @ last] = &instructions[..] {
        sums.instructions = instructions[instructions.len() / 2];
        sums.instructions_range = [*first, *last];
    }
    sums.locked = per_op(locked);
    [sums.cleared_bytes, sums.copied_bytes, sums.waits] = [cleared, copied, waits].map(per_op);
    sums.calls = per_op(calls);
    sums.receivers = receivers as f64 / calls.max(1) as f64;
    sums.answer_instructions = answered as f64 / receivers.max(1) as f64;
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
    let sum = |(name, used): (Named, Used)| line_sum(recording, name, &used, &per_op);
    sums.lines = used.into_iter().map(sum).collect();
    sums.lines.sort_by(|a, b| b.accesses.total_cmp(&a.accesses));
    sums
}

fn line_sum(
    recording: &Recording,
    (object, share): Named,
    used: &Used,
    per_op: &impl Fn(u64) -> f64,
) -> LineSum {
    let mut functions: Vec<(FunctionId, f64)> =
        used.functions.iter().map(|(function, number)| (*function, per_op(*number))).collect();
    functions.sort_by(|a, b| b.1.total_cmp(&a.1));
    let words = used.words.iter().enumerate().filter(|(_, word)| word[0] > 0);
    let words = words.map(|(at, word)| WordSum {
        offset: at as u8 * 8,
        accesses: per_op(word[0]),
        writes: per_op(word[1]),
    });
    let users = used.lines.iter().map(|line| recording.lines[line.index()].users).max();
    LineSum {
        object,
        share,
        lines: used.lines.len() as u64,
        users: users.unwrap_or(0),
        accesses: per_op(used.accesses),
        writes: per_op(used.writes),
        atomics: per_op(used.atomics),
        functions,
        words: words.collect(),
    }
}

/// Adds an operation. Returns how many lines of few and of many CPUs it uses.
fn add(
    recording: &Recording,
    operation: &Operation,
    held: &mut BTreeMap<Taken, Held>,
    used: &mut BTreeMap<Named, Used>,
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
            let Line { object, share, .. } = &recording.lines[line.index()];
            let used = used.entry((object.clone(), *share)).or_default();
            used.lines.insert(line);
            used.accesses += 1;
            used.writes += u64::from(event.what != What::Read);
            used.atomics += u64::from(event.what == What::Atomic);
            let word = &mut used.words[usize::from(event.offset / 8)];
            word[0] += 1;
            word[1] += u64::from(event.what != What::Read);
            let function = recording.sites[event.site.index()].function;
            *used.functions.entry(function).or_default() += 1;
            continue;
        }
        if !event.what.is_of_lock() {
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
            _ => {}
        }
    }
    lines.sort_unstable();
    lines.dedup();
    let few = lines.iter().filter(|line| recording.lines[line.index()].share == Share::Few).count();
    [few as u64, (lines.len() - few) as u64]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{Event, Lock, LockKind, Site};

    /// An operation that holds a semaphore over a spin lock under which it writes a line.
    fn recording() -> Recording {
        let event = |after, what, target, site| Event {
            after,
            what,
            offset: 0,
            target,
            site: SiteId(site),
        };
        let operation = Operation {
            count: 2,
            instructions: 100,
            locked: 4,
            private_lines: 6,
            events: vec![
                event(10, What::Acquire, 0, 0),
                event(10, What::Acquire, 1, 1),
                event(5, What::Write, 0, 1),
                event(5, What::Atomic, 1, 1),
                event(10, What::Release, 1, 1),
                event(1, What::Clear, 4096, 1),
                event(9, What::Release, 0, 0),
            ],
            ..Operation::default()
        };
        let line =
            Line { address: 0, object: "zone".to_owned(), share: Share::All, users: 2, writers: 1 };
        let lock = |class: &str, kind| Lock {
            address: 0,
            kind,
            class: class.to_owned(),
            share: Share::All,
            line: None,
        };
        Recording {
            functions: vec!["munmap".to_owned(), "drain".to_owned()],
            sites: [0, 1]
                .map(|id| Site { function: FunctionId(id), caller: FunctionId(0) })
                .to_vec(),
            lines: vec![line.clone(), Line { users: 7, ..line }],
            locks: vec![lock("mmap_lock", LockKind::Rwsem), lock("zone", LockKind::Spin)],
            cpus: vec![vec![operation.clone(), operation]],
            ..Recording::default()
        }
    }

    #[test]
    fn halves_are_every_second_operation() {
        let mut recording = recording();
        recording.cpus[0][1].instructions = 300;
        let of = |first: usize| sums(&recording.half(first));
        assert_eq!([of(0).instructions, of(1).instructions], [50.0, 150.0]);
        recording.cpus[0].pop();
        assert_eq!(sums(&recording.half(1)).rounds, 1);
    }

    #[test]
    fn holds_and_lines_are_summed_by_operation() {
        let sums = sums(&recording());
        assert_eq!((sums.rounds, sums.count, sums.instructions), (2, 4, 50.0));
        assert_eq!((sums.locked, sums.private_lines, sums.cleared_bytes), (2.0, 3.0, 2048.0));
        let holds: Vec<(&str, f64, f64, f64)> = sums
            .locks
            .iter()
            .map(|lock| {
                let LockSum { class, acquisitions, hold_instructions, hold_accesses, .. } = lock;
                (class.as_str(), *acquisitions, *hold_instructions, *hold_accesses)
            })
            .collect();
        assert_eq!(holds, [("mmap_lock", 0.5, 40.0, 2.0), ("zone", 0.5, 20.0, 2.0)]);
        let [zone] = &sums.lines[..] else { panic!("{:?}", sums.lines) };
        assert_eq!((zone.lines, zone.users, zone.accesses), (2, 7, 1.0));
        assert_eq!((zone.writes, zone.atomics), (1.0, 0.5));
        assert_eq!(zone.functions, [(FunctionId(1), 1.0)]);
        assert_eq!(zone.words, [WordSum { offset: 0, accesses: 1.0, writes: 1.0 }]);
        assert_eq!((sums.few_lines, sums.many_lines), (0.0, 1.0));
    }
}
