//! Interrupts of timers, and the RCU callbacks in them.
//!
//! The emulator's timers run by the clock of the host, so the number of ticks in a recording says
//! nothing of a machine. Callbacks are of operations: as many instructions of them as ran while
//! operations were recorded belong to these. Both are sampled: a few of each CPU stand for all.

use super::raw::RawAnswer;
use super::records::{Raw, Type};

/// The most ticks, and the most batches of callbacks, that a recording has of a CPU.
const MOST: usize = 8;

/// A part of an interrupt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) instructions: u64,
    pub(super) records: Vec<Raw>,
}

/// Ticks and callbacks by CPU.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sampled {
    pub(super) ticks: Vec<Vec<Part>>,
    /// Batches of RCU callbacks.
    pub(super) callbacks: Vec<Vec<Part>>,
    /// Batches a round, of the length of those that were sampled.
    pub(super) batches: f64,
}

/// Samples the interrupts of timers of each CPU; `None` if there are none. A round has so many
/// instructions of callbacks.
pub(super) fn sampled(of_cpus: &[Vec<&RawAnswer>], a_round: f64) -> Option<Sampled> {
    let (mut ticks, mut callbacks) = (Vec::new(), Vec::new());
    for all in of_cpus {
        let with: Vec<&RawAnswer> =
            all.iter().copied().filter(|tick| has_callbacks(tick)).collect();
        ticks.push(spread(all).map(|tick| parts(tick).0).collect());
        let batches: Vec<Part> = spread(&with).flat_map(|tick| parts(tick).1).collect();
        callbacks.push(batches);
    }
    let of_sample = callbacks.iter().flatten();
    let (batches, length) = of_sample
        .fold((0_u64, 0_u64), |(batches, length), part| (batches + 1, length + part.instructions));
    let batches = a_round * batches as f64 / length.max(1) as f64;
    let is_empty = ticks.iter().all(Vec::is_empty);
    (!is_empty).then_some(Sampled { ticks, callbacks, batches })
}

fn has_callbacks(tick: &RawAnswer) -> bool {
    tick.records.iter().any(|raw| raw.what == Type::Callbacks)
}

/// Returns [`MOST`] of them, at equal distances.
fn spread<'a, T: Copy>(all: &'a [T]) -> impl Iterator<Item = T> + 'a {
    let number = all.len().min(MOST);
    (0..number).map(move |at| all[at * all.len() / number])
}

/// Returns an interrupt without its callbacks, and these.
fn parts(tick: &RawAnswer) -> (Part, Vec<Part>) {
    let (mut own, mut callbacks) = (Part::default(), Vec::new());
    let mut open: Option<Part> = None;
    let mut before = 0;
    for raw in tick.records.iter() {
        before += u64::from(raw.after);
        match (raw.what, &mut open) {
            (Type::Callbacks, None) => {
                own.instructions += u64::from(raw.after);
                // What follows is later by as much.
                open = Some(Part::default());
            }
            (Type::CallbacksDone, Some(_)) => {
                let mut part = open.take().expect("it is open");
                part.instructions += u64::from(raw.after);
                callbacks.push(part);
            }
            (_, Some(part)) => {
                part.instructions += u64::from(raw.after);
                part.records.push(*raw);
            }
            (_, None) => {
                own.instructions += u64::from(raw.after);
                own.records.push(*raw);
            }
        }
    }
    callbacks.extend(open);
    own.instructions += tick.instructions.saturating_sub(before);
    (own, callbacks)
}

#[cfg(test)]
mod tests {
    use super::super::records::callback_instructions;
    use super::*;

    fn raw(what: Type, after: u32) -> Raw {
        let (function, caller, acquire) = (0, 0, -1);
        let (address, value, writes, locked) = (64, 0, true, false);
        Raw { address, after, function, caller, acquire, value, what, writes, locked }
    }

    fn tick(instructions: u64, records: &[Raw]) -> RawAnswer {
        RawAnswer { cpu: 0, sent: 0, instructions, records: records.into() }
    }

    #[test]
    fn callbacks_are_cut_out_of_the_tick_and_belong_to_rounds() {
        let access = |after| raw(Type::Access, after);
        let with = [
            access(10),
            raw(Type::Callbacks, 20),
            access(100),
            raw(Type::CallbacksDone, 200),
            access(5),
        ];
        let (with, without) = (tick(400, &with), tick(70, &[access(70)]));
        let (own, callbacks) = parts(&with);
        assert_eq!((own.instructions, own.records.len()), (100, 2));
        assert_eq!((callbacks[0].instructions, callbacks[0].records.len()), (300, 1));
        assert_eq!([callback_instructions(&with.records), callback_instructions(&[])], [300, 0]);
        let Sampled { ticks, callbacks, batches } =
            sampled(&[vec![&with, &without, &with], vec![]], 75.0).unwrap();
        assert_eq!((ticks[0].len(), ticks[1].len(), callbacks[0].len()), (3, 0, 2));
        assert_eq!(batches, 75.0 / 300.0);
        assert_eq!(sampled(&[vec![], vec![]], 8.0), None);
    }

    #[test]
    fn few_of_many_ticks_stand_for_all() {
        let all: Vec<RawAnswer> = (0..1000)
            .map(|at| tick(900 + at, &[raw(Type::Callbacks, 0), raw(Type::CallbacksDone, 500)]))
            .collect();
        let of = sampled(&[all.iter().collect()], 5000.0).unwrap();
        assert_eq!((of.ticks[0].len(), of.callbacks[0].len()), (MOST, MOST));
        assert_eq!(of.batches, 10.0);
        let first = of.ticks[0][0].instructions;
        assert!(of.ticks[0].iter().skip(1).all(|part| part.instructions > first));
    }
}
