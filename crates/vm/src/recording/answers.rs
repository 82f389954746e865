//! Calls of other CPUs and what these do then. Equal ones are kept once.

use mmscale_lift::{Answer, AnswerId, Call};
use std::collections::HashMap;

/// An answer without its lengths: sender, receiver, and kind, offset, target and place of events.
type Shape = (u32, u32, Vec<(u8, u8, u32, u32)>);

/// Calls and answers in the order in which they were first seen.
#[derive(Debug, Default)]
pub(super) struct Answers {
    calls: Vec<Call>,
    numbers: HashMap<Call, u32>,
    answers: Vec<Answer>,
    shapes: HashMap<Shape, AnswerId>,
    /// Instructions of all answers of a shape.
    lengths: Vec<Vec<u64>>,
}

impl Answers {
    /// Adds an answer. Of those with the same events the first one stays, with the median of the
    /// instructions: interrupts of other kinds may follow within it.
    pub(super) fn answer(&mut self, answer: Answer) -> AnswerId {
        let events = answer.events.iter();
        let shape = events.map(|of| (of.what as u8, of.offset, of.target, of.site.0)).collect();
        let next = AnswerId(self.answers.len() as u32);
        let key = (answer.sender, answer.receiver, shape);
        let id = *self.shapes.entry(key).or_insert(next);
        if id == next {
            self.lengths.push(Vec::new());
        }
        self.lengths[id.index()].push(answer.instructions);
        if id == next {
            self.answers.push(answer);
        }
        id
    }
    /// Adds an answer that is like no other one, with its own length.
    pub(super) fn alone(&mut self, answer: Answer) -> AnswerId {
        self.lengths.push(vec![answer.instructions]);
        self.answers.push(answer);
        AnswerId(self.answers.len() as u32 - 1)
    }
    /// Adds a call; returns its number.
    pub(super) fn call(&mut self, call: Call) -> u32 {
        let next = self.calls.len() as u32;
        let number = *self.numbers.entry(call.clone()).or_insert(next);
        if number == next {
            self.calls.push(call);
        }
        number
    }
    /// Returns all of them.
    pub(super) fn done(&mut self) -> (Vec<Call>, Vec<Answer>) {
        let mut answers = std::mem::take(&mut self.answers);
        for (answer, lengths) in answers.iter_mut().zip(&mut self.lengths) {
            lengths.sort_unstable();
            let of_events: u64 = answer.events.iter().map(|event| u64::from(event.after)).sum();
            answer.instructions = lengths[lengths.len() / 2].max(of_events);
        }
        (std::mem::take(&mut self.calls), answers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_answers_are_one_with_the_median_of_their_lengths() {
        let mut answers = Answers::default();
        let of = |sender, instructions| Answer { sender, instructions, ..Answer::default() };
        let ids = [(0, 300), (0, 9000), (0, 310), (1, 5)]
            .map(|(sender, n)| answers.answer(of(sender, n)));
        assert_eq!(ids.map(|id| id.0), [0, 0, 0, 1]);
        let call = |is_flush| Call { is_flush, receivers: vec![(1, ids[0])] };
        assert_eq!([call(true), call(false), call(true)].map(|of| answers.call(of)), [0, 1, 0]);
        let (calls, answers) = answers.done();
        assert_eq!((calls.len(), answers[0].instructions, answers[1].instructions), (2, 310, 5));
    }
}
