//! Words of a line on a line of their own: what a change of a structure's layout would do.

use crate::recording::{Line, LineId, Recording};
use std::collections::BTreeMap;
use thiserror::Error;

/// Bytes of a line.
const LINE_BYTES: u64 = 64;

/// Words of the lines of one name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Words {
    /// The name of the lines.
    pub object: String,
    /// The first byte in each of the lines, and how many.
    pub offset: u8,
    /// See `offset`.
    pub length: u8,
}

/// Why words cannot be moved.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum SplitError {
    /// No line has the name.
    #[error("no line that CPUs share is named `{object}`{like}")]
    Unknown {
        /// The name.
        object: String,
        /// Names that begin alike, as a remark.
        like: String,
    },
    /// The words are not in a line, or are all of it.
    #[error("{0} bytes at {1}: a line has bytes 0 to 63, and some of them must stay")]
    Range(u8, u8),
    /// No operation uses the words, or all accesses are to them.
    #[error("the operations use {0} of the lines' words there: nothing would part")]
    Nothing(&'static str),
}

impl Recording {
    /// Returns the recording with these words on lines of their own, and how many lines got such a
    /// neighbour.
    ///
    /// # Errors
    /// There are no such words.
    pub fn split(&self, words: &Words) -> Result<(Self, usize), SplitError> {
        let Words { object, offset, length } = words;
        let end = u64::from(*offset) + u64::from(*length);
        if *length == 0 || end > LINE_BYTES || u64::from(*length) == LINE_BYTES {
            return Err(SplitError::Range(*length, *offset));
        }
        let is_meant = |line: &Line| line.object == *object;
        if !self.lines.iter().any(is_meant) {
            let begins = |line: &&Line| {
                line.object.split(' ').any(|word| object.split(' ').any(|other| other == word))
            };
            let mut like: Vec<&str> =
                self.lines.iter().filter(begins).map(|line| line.object.as_str()).collect();
            like.sort_unstable();
            like.dedup();
            let like = match &like[..] {
                [] => String::new(),
                some => format!("; there is `{}`", some[..some.len().min(3)].join("`, `")),
            };
            return Err(SplitError::Unknown { object: object.clone(), like });
        }
        let mut split = self.clone();
        let mut own: BTreeMap<LineId, LineId> = BTreeMap::new();
        let is_there = |byte: u64| (u64::from(*offset)..end).contains(&byte);
        let (mut moved, mut stay) = (0_u64, 0_u64);
        let lines = &mut split.lines;
        let mut own_line = |of: LineId| {
            *own.entry(of).or_insert_with(|| {
                let line = &lines[of.index()];
                let object = format!("{}+{offset}", line.object);
                let address = line.address + u64::from(*offset);
                let new = Line { object, address, ..line.clone() };
                lines.push(new);
                LineId(lines.len() as u32 - 1)
            })
        };
        for lock in &mut split.locks {
            let Some(line) = lock.line.filter(|line| is_meant(&self.lines[line.index()])) else {
                continue;
            };
            if is_there(lock.address % LINE_BYTES) {
                lock.line = Some(own_line(line));
            }
        }
        let answers = split.answers.iter_mut().flat_map(|answer| &mut answer.events);
        let operations = split.cpus.iter_mut().flatten();
        let events = operations.flat_map(|operation| &mut operation.events).chain(answers);
        for event in events {
            let line = LineId(event.target);
            if !event.what.is_access() || !is_meant(&self.lines[line.index()]) {
                continue;
            }
            if is_there(event.offset.into()) {
                event.target = own_line(line).0;
                moved += 1;
            } else {
                stay += 1;
            }
        }
        match (moved, stay, own.len()) {
            (_, _, 0) => Err(SplitError::Nothing("none")),
            (1.., 0, _) => Err(SplitError::Nothing("all")),
            (_, _, lines) => Ok((split, lines)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{Event, Lock, LockKind, Operation, Share, SiteId, What};

    fn recording() -> Recording {
        let line = |object: &str| Line {
            address: 0x1000,
            object: object.to_owned(),
            share: Share::All,
            users: 2,
            writers: 2,
        };
        let event =
            |what, target, offset| Event { after: 1, what, offset, target, site: SiteId(0) };
        let lock = Lock {
            address: 0x1008,
            kind: LockKind::Spin,
            class: "zone".to_owned(),
            share: Share::All,
            line: Some(LineId(0)),
        };
        Recording {
            lines: vec![line("line of zone"), line("vm_stat")],
            locks: vec![lock],
            cpus: vec![vec![Operation {
                events: vec![
                    event(What::Write, 0, 8),
                    event(What::Read, 0, 24),
                    event(What::Acquire, 0, 0),
                    event(What::Write, 1, 24),
                ],
                ..Operation::default()
            }]],
            ..Recording::default()
        }
    }

    fn words(object: &str, offset: u8, length: u8) -> Words {
        Words { object: object.to_owned(), offset, length }
    }

    #[test]
    fn words_get_a_line_and_the_rest_stays() {
        let (split, lines) = recording().split(&words("line of zone", 24, 8)).unwrap();
        assert_eq!((lines, split.lines.len()), (1, 3));
        assert_eq!(split.lines[2].object, "line of zone+24");
        let targets: Vec<u32> = split.cpus[0][0].events.iter().map(|event| event.target).collect();
        assert_eq!(targets, [0, 2, 0, 1]);
        assert_eq!(split.locks[0].line, Some(LineId(0)));
        let (split, _) = recording().split(&words("line of zone", 8, 4)).unwrap();
        assert_eq!(split.locks[0].line, Some(LineId(2)));
    }

    #[test]
    fn words_that_are_not_there_are_refused() {
        let why = |object, offset, length| {
            recording().split(&words(object, offset, length)).unwrap_err().to_string()
        };
        assert!(why("zone", 0, 8).contains("there is `line of zone`"));
        assert!(why("nothing", 0, 8).ends_with("named `nothing`"));
        assert!(why("vm_stat", 0, 64).contains("some of them must stay"));
        assert!(why("vm_stat", 60, 8).contains("bytes 0 to 63"));
        assert!(why("vm_stat", 0, 8).contains("none"));
        assert!(why("vm_stat", 24, 8).contains("all"));
    }
}
