//! A recording as a file: lines of JSON, compressed by gzip, whose check sum covers all of it.
//!
//! | line | what it has |
//! |---|---|
//! | 1 | the schema, the origin, and how many of each follow |
//! | 2 to 5 | functions, places, lines, locks |
//! | 6, 7 | calls of other CPUs, and what these do then; not in files of schema 1 |
//! | 8 | interrupts of timers, or null; not in files of schemas 1 and 2 |
//! | each further one | an operation: its CPU, its sums, its events as numbers, five each |

use crate::recording::{
    Answer, AnswerId, Call, Event, Function, Growth, Line, Lock, Operation, Origin, Recording,
    Site, SiteId, Ticks, What,
};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Read, Write};
use thiserror::Error;

/// The schema of the file.
pub const SCHEMA: &str = "mmscale/lift/3";
/// An earlier one, without interrupts of timers, which is read too.
const WITHOUT_TICKS: &str = "mmscale/lift/2";
/// An earlier one, without calls of other CPUs, which is read too.
const WITHOUT_CALLS: &str = "mmscale/lift/1";
/// The end of the name of a file.
pub const SUFFIX: &str = ".lift";
/// The first bytes of every gzip file.
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// The most bytes of a file when it is unpacked: some fifty million events.
const MAX_BYTES: u64 = 1 << 30;
/// The most CPUs of a recorded machine.
const MAX_CPUS: usize = 255;

/// Why a file is no recording.
#[derive(Debug, Error)]
pub enum LiftError {
    /// It is something else.
    #[error("it is no recording of a kernel: `mmscale lift record` writes them")]
    Foreign,
    /// It is of another version of this program.
    #[error("it has the schema `{0}`, and this program reads `{SCHEMA}`: record it again")]
    Schema(String),
    /// It is damaged.
    #[error("it is damaged ({0}): record it again")]
    Damaged(String),
}

/// The first line.
#[derive(Serialize, Deserialize)]
struct Head {
    schema: String,
    origin: Origin,
    cpus: usize,
    operations: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    growth: Option<Growth>,
}

/// A line of an operation.
#[derive(Serialize, Deserialize)]
struct Row {
    cpu: usize,
    /// In the order of the fields of [`Operation`].
    sums: [u64; 6],
    events: Vec<u32>,
}

/// An answer to a call.
#[derive(Serialize, Deserialize)]
struct AnswerRow {
    sender: u32,
    receiver: u32,
    instructions: u64,
    events: Vec<u32>,
}

/// Numbers of an event in a row.
const NUMBERS: usize = 5;

impl Recording {
    /// Writes the file.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn write(&self, to: impl Write) -> io::Result<()> {
        let mut to = GzEncoder::new(to, Compression::default());
        let operations = self.operations().count();
        let head = Head {
            schema: SCHEMA.to_owned(),
            origin: self.origin.clone(),
            cpus: self.cpus.len(),
            operations,
            growth: self.growth.clone(),
        };
        line(&mut to, &head)?;
        line(&mut to, &self.functions)?;
        line(&mut to, &self.sites)?;
        line(&mut to, &self.lines)?;
        line(&mut to, &self.locks)?;
        line(&mut to, &self.calls)?;
        line(&mut to, &self.answers.iter().map(AnswerRow::of).collect::<Vec<_>>())?;
        line(&mut to, &self.ticks)?;
        for (cpu, operations) in self.cpus.iter().enumerate() {
            for operation in operations {
                line(&mut to, &Row::of(cpu, operation))?;
            }
        }
        to.finish()?.flush()
    }

    /// Reads a file.
    ///
    /// # Errors
    /// It is no recording, one of another version, or damaged.
    pub fn read(bytes: &[u8]) -> Result<Self, LiftError> {
        if !bytes.starts_with(&GZIP) {
            return Err(LiftError::Foreign);
        }
        let mut lines = BufReader::new(GzDecoder::new(bytes).take(MAX_BYTES)).lines();
        let mut next = || match lines.next() {
            Some(Ok(line)) => Ok(line),
            Some(Err(why)) => Err(damaged(why)),
            None => Err(damaged("its end is missing")),
        };
        let head = next().map_err(|_| LiftError::Foreign)?;
        let head = head_of(&head)?;
        if !(1..=MAX_CPUS).contains(&head.cpus) || head.origin.node_of_cpu.len() != head.cpus {
            return Err(damaged("its number of CPUs cannot be"));
        }
        let mut recording = Self {
            origin: head.origin,
            functions: of_json::<Vec<Function>>(&next()?)?,
            sites: of_json::<Vec<Site>>(&next()?)?,
            lines: of_json::<Vec<Line>>(&next()?)?,
            locks: of_json::<Vec<Lock>>(&next()?)?,
            calls: Vec::new(),
            answers: Vec::new(),
            ticks: None,
            growth: head.growth,
            cpus: vec![Vec::new(); head.cpus],
        };
        if head.schema != WITHOUT_CALLS {
            recording.calls = of_json::<Vec<Call>>(&next()?)?;
            let answers = of_json::<Vec<AnswerRow>>(&next()?)?;
            let answers = answers.into_iter().map(AnswerRow::answer);
            let answers = answers.collect::<Option<_>>();
            recording.answers = answers.ok_or_else(|| damaged("an answer cannot be"))?;
        }
        if head.schema == SCHEMA {
            recording.ticks = of_json::<Option<Ticks>>(&next()?)?;
        }
        for _ in 0..head.operations {
            let row: Row = of_json(&next()?)?;
            let operations = recording.cpus.get_mut(row.cpu);
            let operations = operations.ok_or_else(|| damaged("a CPU cannot be"))?;
            operations.push(row.operation().ok_or_else(|| damaged("an event cannot be"))?);
        }
        // The check sum is behind the last line.
        match lines.next() {
            None => {}
            Some(Err(why)) => return Err(damaged(why)),
            Some(Ok(_)) => return Err(damaged("it has more lines than it says")),
        }
        recording.check()?;
        Ok(recording)
    }

    /// Checks that all numbers are below the lengths of their lists.
    fn check(&self) -> Result<(), LiftError> {
        let known = |id: u32, list: usize| (id as usize) < list;
        let functions = self.functions.len();
        let sites = self.sites.iter();
        let sites = sites.flat_map(|site| [site.function, site.caller]);
        let lines = self.locks.iter().filter_map(|lock| lock.line);
        let events = self.operations().flat_map(|operation| &operation.events);
        let is_known = |event: &Event| {
            let target = match event.what {
                what if what.is_access() => known(event.target, self.lines.len()),
                what if what.is_of_lock() => known(event.target, self.locks.len()),
                What::Call => known(event.target, self.calls.len()),
                _ => true,
            };
            target && known(event.site.0, self.sites.len())
        };
        let is_answer = |answer: &Answer| {
            let cpus = [answer.sender, answer.receiver];
            let mut events = answer.events.iter();
            cpus.into_iter().all(|cpu| known(cpu, self.cpus.len()))
                && events.all(|event| event.what.is_access() && is_known(event))
        };
        let is_received = |(cpu, answer): &(u32, AnswerId)| {
            known(*cpu, self.cpus.len()) && known(answer.0, self.answers.len())
        };
        let calls = self.answers.iter().all(is_answer)
            && self.calls.iter().flat_map(|call| &call.receivers).all(is_received);
        let all = calls
            && sites.into_iter().all(|id| known(id.0, functions))
            && lines.into_iter().all(|line| known(line.0, self.lines.len()))
            && events.into_iter().all(is_known);
        let has_ticks = self.ticks.as_ref().is_none_or(|ticks| ticks.is_of(self));
        if !all || !has_ticks || !self.growth.as_ref().is_none_or(|growth| growth.is_of(self)) {
            return Err(damaged("it names what it does not have"));
        }
        match self.cpus.iter().position(Vec::is_empty) {
            Some(cpu) => Err(damaged(format!("CPU {cpu} has no operation"))),
            None => Ok(()),
        }
    }
}

/// Reads the first line. A file of another schema may have another first line.
fn head_of(text: &str) -> Result<Head, LiftError> {
    let value: serde_json::Value = serde_json::from_str(text).map_err(|_| LiftError::Foreign)?;
    match value.get("schema").and_then(serde_json::Value::as_str) {
        Some(SCHEMA | WITHOUT_TICKS | WITHOUT_CALLS) => {
            serde_json::from_value(value).map_err(damaged)
        }
        Some(other) if other.starts_with("mmscale/lift/") => {
            Err(LiftError::Schema(other.to_owned()))
        }
        _ => Err(LiftError::Foreign),
    }
}

impl Row {
    fn of(cpu: usize, operation: &Operation) -> Self {
        let sums = [
            operation.count,
            operation.instructions,
            operation.locked,
            operation.private_lines,
            operation.read_only_lines,
            operation.switches,
        ];
        Self { cpu, sums, events: numbers_of(&operation.events) }
    }

    /// Returns the operation; `None` if an event cannot be.
    fn operation(&self) -> Option<Operation> {
        let [count, instructions, locked, private_lines, read_only_lines, switches] = self.sums;
        Some(Operation {
            count,
            instructions,
            locked,
            private_lines,
            read_only_lines,
            switches,
            events: events_of(&self.events)?,
        })
    }
}

impl AnswerRow {
    fn of(answer: &Answer) -> Self {
        let &Answer { sender, receiver, instructions, .. } = answer;
        Self { sender, receiver, instructions, events: numbers_of(&answer.events) }
    }
    /// Returns the answer; `None` if an event cannot be.
    fn answer(self) -> Option<Answer> {
        let Self { sender, receiver, instructions, events } = self;
        Some(Answer { sender, receiver, instructions, events: events_of(&events)? })
    }
}

fn numbers_of(events: &[Event]) -> Vec<u32> {
    let numbers = |event: &Event| {
        [event.after, event.what as u32, event.offset.into(), event.target, event.site.0]
    };
    events.iter().flat_map(numbers).collect()
}

/// Returns events from their numbers; `None` if one cannot be.
fn events_of(numbers: &[u32]) -> Option<Vec<Event>> {
    let (events, rest) = numbers.as_chunks::<NUMBERS>();
    let event = |&[after, what, offset, target, site]: &[u32; NUMBERS]| {
        Some(Event {
            after,
            what: *What::ALL.get(what as usize)?,
            offset: u8::try_from(offset).ok().filter(|offset| *offset < 64)?,
            target,
            site: SiteId(site),
        })
    };
    events.iter().map(event).collect::<Option<_>>().filter(|_| rest.is_empty())
}

fn line(to: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *to, value)?;
    to.write_all(b"\n")
}

fn of_json<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, LiftError> {
    serde_json::from_str(text).map_err(damaged)
}

fn damaged(why: impl ToString) -> LiftError {
    LiftError::Damaged(why.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::Growing;
    use crate::recording::{FunctionId, LineId, LockKind, Share};

    pub(crate) fn small() -> Recording {
        let event = |after, what, target| Event { after, what, offset: 8, target, site: SiteId(0) };
        let operation = Operation {
            count: 1,
            instructions: 100,
            locked: 2,
            events: vec![
                event(10, What::Acquire, 0),
                event(20, What::Write, 0),
                event(5, What::Release, 0),
                event(5, What::Call, 0),
            ],
            ..Operation::default()
        };
        let answer = Answer {
            sender: 0,
            receiver: 1,
            instructions: 300,
            events: vec![event(30, What::Atomic, 0)],
        };
        Recording {
            calls: vec![Call { is_flush: true, receivers: vec![(1, AnswerId(0))] }],
            answers: vec![answer],
            ticks: Some(Ticks {
                ticks: vec![vec![AnswerId(0)], vec![]],
                callbacks: vec![vec![], vec![AnswerId(0)]],
                batches: 0.5,
            }),
            growth: Some(Growth {
                sizes: vec![1, 2],
                error: None,
                places: vec![Growing { site: SiteId(0), instructions: 0.25, accesses: 0.0 }],
                each: vec![LineId(0)],
            }),
            origin: Origin { node_of_cpu: vec![0, 0], ..Origin::default() },
            functions: vec!["folio_batch_move_lru".to_owned()],
            sites: vec![Site { function: FunctionId(0), caller: FunctionId(0) }],
            lines: vec![Line {
                address: 0xffff_8880_0000_0040,
                object: "lruvec".to_owned(),
                share: Share::All,
                users: 2,
                writers: 2,
            }],
            locks: vec![Lock {
                address: 0xffff_8880_0000_0050,
                kind: LockKind::Spin,
                class: "lruvec".to_owned(),
                share: Share::All,
                line: Some(LineId(0)),
            }],
            cpus: vec![vec![operation.clone(), operation.clone()], vec![operation]],
        }
    }

    fn written(recording: &Recording) -> Vec<u8> {
        let mut bytes = Vec::new();
        recording.write(&mut bytes).unwrap();
        bytes
    }

    fn packed(text: &str) -> Vec<u8> {
        let mut to = GzEncoder::new(Vec::new(), Compression::fast());
        to.write_all(text.as_bytes()).unwrap();
        to.finish().unwrap()
    }

    fn unpacked(bytes: &[u8]) -> String {
        let mut text = String::new();
        GzDecoder::new(bytes).read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn a_recording_is_read_as_it_was_written() {
        let recording = small();
        assert_eq!(Recording::read(&written(&recording)).unwrap(), recording);
    }

    #[test]
    fn recordings_without_ticks_and_without_calls_are_read_too() {
        let mut old = small();
        old.ticks = None;
        let text = unpacked(&written(&old)).replace(SCHEMA, WITHOUT_TICKS);
        let without = |text: &str, left_out: &str| -> String {
            text.lines().filter(|line| *line != left_out).flat_map(|line| [line, "\n"]).collect()
        };
        assert_eq!(Recording::read(&packed(&without(&text, "null"))).unwrap(), old);
        old.cpus.iter_mut().flatten().for_each(|operation| operation.events.truncate(3));
        (old.calls, old.answers, old.growth) = (Vec::new(), Vec::new(), None);
        let text = unpacked(&written(&old)).replace(SCHEMA, WITHOUT_CALLS);
        let text = without(&without(&text, "null"), "[]");
        assert_eq!(Recording::read(&packed(&text)).unwrap(), old);
    }

    #[test]
    fn every_shorter_file_is_refused() {
        let bytes = written(&small());
        for length in 0..bytes.len() {
            assert!(Recording::read(&bytes[..length]).is_err(), "{length} of {}", bytes.len());
        }
    }

    #[test]
    fn a_changed_byte_is_refused() {
        let bytes = written(&small());
        // Bytes 4 to 9 are the time, flags and system of the packer.
        for at in (0..4).chain(10..bytes.len()) {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            if let Ok(read) = Recording::read(&changed) {
                assert_eq!(read, small(), "byte {at}");
            }
        }
    }

    #[test]
    fn foreign_and_newer_files_say_so() {
        let said = |bytes: &[u8]| Recording::read(bytes).unwrap_err().to_string();
        for foreign in [&b"{}"[..], b"", b"\x7fELF", &packed("hello\n"), &packed("{}\n")] {
            assert!(said(foreign).contains("no recording"), "{foreign:?}");
        }
        let newer = unpacked(&written(&small())).replace(SCHEMA, "mmscale/lift/4");
        assert!(said(&packed(&newer)).contains("mmscale/lift/4"));
    }

    #[test]
    fn numbers_beyond_their_lists_are_refused() {
        let mut all = Vec::new();
        let mut with = |change: &dyn Fn(&mut Recording)| {
            let mut recording = small();
            change(&mut recording);
            all.push(recording);
        };
        with(&|of| of.cpus[0][0].events[0].target = 1);
        with(&|of| of.cpus[0][0].events[3].target = 1);
        with(&|of| of.calls[0].receivers[0].0 = 2);
        with(&|of| of.calls[0].receivers[0].1 = AnswerId(1));
        with(&|of| of.answers[0].sender = 2);
        with(&|of| of.ticks.as_mut().unwrap().ticks[0][0] = AnswerId(1));
        with(&|of| of.ticks.as_mut().unwrap().callbacks.truncate(1));
        with(&|of| of.ticks.as_mut().unwrap().batches = -1.0);
        with(&|of| of.answers[0].events[0].target = 1);
        with(&|of| of.answers[0].events[0].what = What::Acquire);
        with(&|of| of.cpus[0][0].events[1].target = 1);
        with(&|of| of.cpus[1][0].events[1].site = SiteId(1));
        with(&|of| of.sites[0].caller = FunctionId(1));
        with(&|of| of.locks[0].line = Some(LineId(1)));
        with(&|of| of.growth.as_mut().unwrap().sizes = vec![1]);
        with(&|of| of.growth.as_mut().unwrap().places[0].site = SiteId(1));
        with(&|of| of.growth.as_mut().unwrap().places[0].accesses = 1e9);
        with(&|of| of.growth.as_mut().unwrap().each[0] = LineId(1));
        with(&|of| of.cpus[1].clear());
        with(&|of| of.origin.node_of_cpu.clear());
        for wrong in all {
            let why = Recording::read(&written(&wrong)).unwrap_err();
            assert!(matches!(why, LiftError::Damaged(_)), "{why}");
        }
    }
}
