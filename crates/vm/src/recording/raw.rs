//! The records of the plugin, which `plugin/operations.c` explains.

use super::packed::{Packed, Packer};
use super::records::{Raw, Type, callback_instructions};
use std::collections::{HashMap, HashSet};
use std::io::{self, Read};
use std::sync::Arc;

/// Bytes of a record.
const BYTES: usize = 32;
/// The bit of a CPU in records of interrupts of its timer, as in the plugin.
const TICKS: u16 = 0x8000;
/// The most bytes of all operations in memory, as they are kept. Those of later operations are left
/// out: turns go round, so each CPU keeps its first ones.
const MAX_BYTES: usize = 256 << 20;
/// The most answers that are kept once each, of all operations.
const MAX_ANSWERS: usize = 1 << 20;

/// The records of an operation, without those of its begin and its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RawOperation {
    pub(super) cpu: u16,
    pub(super) instructions: u64,
    pub(super) locked: u64,
    /// Instructions of interrupts on its CPU since the operation before.
    pub(super) interrupts: u64,
    /// Instructions after the last record.
    pub(super) rest: u32,
    /// Whether all of it was recorded.
    pub(super) is_whole: bool,
    pub(super) records: Packed,
    /// The work of CPUs that it called.
    pub(super) answers: Vec<RawAnswer>,
    /// Interrupts of timers, on any CPU, that began while it lasted: a sample of them.
    pub(super) ticks: Vec<RawAnswer>,
    /// Instructions of RCU callbacks in all of these.
    pub(super) callbacks: u64,
}

/// The work of a CPU in the interrupt of a call, or of its timer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RawAnswer {
    pub(super) cpu: u16,
    /// Calls that the operation sent before it began.
    pub(super) sent: u32,
    pub(super) instructions: u64,
    /// Equal ones are one.
    pub(super) records: Arc<[Raw]>,
}

/// An answer whose end is still to come.
struct Open {
    /// With the bit of ticks.
    cpu: u16,
    sent: u32,
    records: Vec<Raw>,
}

/// Answers that were seen, so that equal ones are kept once.
#[derive(Default)]
struct Known {
    all: HashSet<Arc<[Raw]>>,
    bytes: usize,
    /// Ticks of each CPU so far.
    ticks: HashMap<u16, u32>,
}

/// Of the ticks of a CPU the first ones are kept, and then one of so many, up to a number: each is
/// as long as an operation.
const FIRST_TICKS: u32 = 16;
const TICKS_APART: u32 = 64;
const LAST_TICK: u32 = 64 * 48;

impl Known {
    /// Counts a tick of a CPU. Returns whether it is one of those that are kept.
    fn keeps_tick(&mut self, cpu: u16) -> bool {
        let number = self.ticks.entry(cpu).or_default();
        *number = number.saturating_add(1);
        let of = *number - 1;
        of < FIRST_TICKS || (of.is_multiple_of(TICKS_APART) && of < LAST_TICK)
    }
    fn of(&mut self, records: Vec<Raw>) -> Arc<[Raw]> {
        if let Some(known) = self.all.get(&records[..]) {
            return Arc::clone(known);
        }
        let records: Arc<[Raw]> = records.into();
        self.bytes += size_of_val(&records[..]);
        if self.all.len() < MAX_ANSWERS {
            self.all.insert(Arc::clone(&records));
        }
        records
    }
}

/// An operation whose end is still to come.
struct Reading {
    operation: RawOperation,
    packer: Packer,
    open: Vec<Open>,
}

impl Reading {
    /// Adds a record of an interrupt; returns whether it can be.
    fn answer(&mut self, raw: Raw, cpu: u16, known: &mut Known) -> bool {
        let at = self.open.iter().position(|open| open.cpu == cpu);
        match (raw.what, at) {
            (Type::Answering, None) => {
                self.open.push(Open { cpu, sent: raw.value, records: Vec::new() });
            }
            (Type::Answered, Some(at)) => {
                let Open { sent, records, .. } = self.open.swap_remove(at);
                let (is_tick, cpu) = (cpu & TICKS != 0, cpu & !TICKS);
                let instructions = raw.address;
                if is_tick {
                    self.operation.callbacks += callback_instructions(&records);
                    // What is cut off says nothing of a tick.
                    if raw.acquire != 1 && known.keeps_tick(cpu) {
                        let records = known.of(records);
                        self.operation.ticks.push(RawAnswer { cpu, sent, instructions, records });
                    }
                } else {
                    let records = known.of(records);
                    self.operation.answers.push(RawAnswer { cpu, sent, instructions, records });
                }
            }
            (Type::Access | Type::Callbacks | Type::CallbacksDone, Some(at)) => {
                self.open[at].records.push(raw);
            }
            _ => return false,
        }
        true
    }
    fn bytes(&self) -> usize {
        let answers = self.operation.answers.len() + self.operation.ticks.len();
        self.packer.bytes() + answers * size_of::<RawAnswer>()
    }
    /// Ends it. Without room for it, its records are left out.
    fn done(self, end: &Raw, has_room: bool) -> RawOperation {
        let mut operation = self.operation;
        operation.instructions = end.address;
        operation.locked = end.value.into();
        operation.rest = end.after;
        operation.is_whole = end.acquire == 0 && has_room;
        match operation.is_whole {
            true => operation.records = self.packer.done(),
            false => operation.answers = Vec::new(),
        }
        operation
    }
}

/// Reads all operations.
///
/// # Errors
/// A record cannot be.
pub(super) fn operations(from: impl Read) -> io::Result<Vec<RawOperation>> {
    bounded(from, MAX_BYTES)
}

/// Reads all operations, and keeps the records of the first ones: `most` bytes at most.
fn bounded(mut from: impl Read, most: usize) -> io::Result<Vec<RawOperation>> {
    let wrong = || io::Error::other("a record of the plugin cannot be");
    let mut operations: Vec<RawOperation> = Vec::new();
    let mut known = Known::default();
    let mut open: Option<Reading> = None;
    let mut kept = 0;
    let mut buffer = vec![0_u8; BYTES * 4096];
    let mut filled = 0;
    loop {
        let read = from.read(&mut buffer[filled..])?;
        if read == 0 {
            break;
        }
        filled += read;
        let whole = filled / BYTES * BYTES;
        for bytes in buffer[..whole].as_chunks::<BYTES>().0 {
            let (raw, cpu) = record(bytes).ok_or_else(wrong)?;
            match (raw.what, &mut open) {
                (Type::Begun, None) => open = Some(begun(&raw, cpu)),
                (Type::Ended, Some(_)) => {
                    let reading = open.take().expect("it is open");
                    let bytes = reading.bytes();
                    let has_room = kept + known.bytes + bytes <= most;
                    kept += if has_room { bytes } else { 0 };
                    operations.push(reading.done(&raw, has_room));
                }
                (Type::Begun, Some(_)) | (_, None) => return Err(wrong()),
                // What is left out in any case is only checked.
                (_, Some(reading)) => {
                    let has_room = kept + known.bytes + reading.bytes() <= most;
                    let is_own = cpu == reading.operation.cpu;
                    if has_room && is_own {
                        reading.packer.push(raw);
                    } else if has_room && !reading.answer(raw, cpu, &mut known) {
                        return Err(wrong());
                    }
                }
            }
        }
        buffer.copy_within(whole..filled, 0);
        filled -= whole;
    }
    // One that the end of the machine cut off is left out.
    Ok(operations)
}

fn begun(raw: &Raw, cpu: u16) -> Reading {
    let operation = RawOperation {
        cpu,
        instructions: 0,
        locked: 0,
        interrupts: raw.value.into(),
        rest: 0,
        is_whole: false,
        records: Packed::default(),
        answers: Vec::new(),
        ticks: Vec::new(),
        callbacks: 0,
    };
    Reading { operation, packer: Packer::default(), open: Vec::new() }
}

/// Returns a record and its CPU; `None` if it cannot be.
fn record(bytes: &[u8; BYTES]) -> Option<(Raw, u16)> {
    let word = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|byte| bytes[at + byte]));
    let flags = bytes[31];
    let what = Type::ALL.get(usize::from(bytes[30]).wrapping_sub(1))?;
    let raw = Raw {
        address: u64::from(word(0)) | u64::from(word(4)) << 32,
        after: word(8),
        function: word(12).cast_signed(),
        caller: word(16).cast_signed(),
        acquire: word(20).cast_signed(),
        value: word(24),
        what: *what,
        writes: flags & 1 != 0,
        locked: flags & 2 != 0,
    };
    Some((raw, u16::from_ne_bytes([bytes[28], bytes[29]])))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(what: Type, address: u64, value: u32) -> Vec<u8> {
        let mut bytes = address.to_ne_bytes().to_vec();
        for word in [7_u32, 1, 2, 0, value] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(3_u16.to_ne_bytes());
        bytes.extend([what as u8, 1]);
        bytes
    }

    #[test]
    fn operations_are_read_and_a_cut_one_is_left_out() {
        let whole =
            [bytes(Type::Begun, 0, 40), bytes(Type::Access, 64, 0), bytes(Type::Ended, 99, 5)];
        let mut text = whole.concat();
        text.extend([bytes(Type::Begun, 0, 0), bytes(Type::Access, 64, 0)].concat());
        let read = operations(&text[..]).unwrap();
        assert_eq!(read.len(), 1);
        assert_eq!((read[0].cpu, read[0].instructions, read[0].locked), (3, 99, 5));
        assert_eq!((read[0].interrupts, read[0].records.len()), (40, 1));
        let first = read[0].records.iter().next().unwrap();
        assert!(read[0].is_whole && first.writes && !first.locked);
    }

    #[test]
    fn answers_of_other_cpus_are_read_apart() {
        let of_cpu = |cpu: u16, mut record: Vec<u8>| {
            record[28..30].copy_from_slice(&cpu.to_ne_bytes());
            record
        };
        let answer = [(Type::Answering, 0, 2), (Type::Access, 64, 0), (Type::Answered, 300, 0)]
            .map(|(what, address, value)| of_cpu(5, bytes(what, address, value)));
        let (begun, ended) = (bytes(Type::Begun, 0, 0), bytes(Type::Ended, 9, 0));
        let all = [begun.clone(), bytes(Type::Sent, 0, 0), answer.concat(), ended.clone()].concat();
        let read = operations(&all[..]).unwrap();
        assert_eq!(read[0].records.len(), 1);
        let [answer] = &read[0].answers[..] else { panic!("{read:?}") };
        assert_eq!((answer.cpu, answer.sent, answer.instructions), (5, 2, 300));
        assert_eq!(answer.records.len(), 1);
        // An access of another CPU that was not called.
        let wrong = [begun, of_cpu(6, bytes(Type::Access, 64, 0)), ended].concat();
        assert!(operations(&wrong[..]).is_err());
    }

    #[test]
    fn operations_beyond_the_limit_have_no_records() {
        let one = [bytes(Type::Begun, 0, 0), bytes(Type::Access, 64, 0), bytes(Type::Ended, 9, 0)];
        let text = [one.concat(), one.concat()].concat();
        let kept = |most: usize| -> Vec<(bool, usize)> {
            let read = bounded(&text[..], most).unwrap();
            read.iter().map(|of| (of.is_whole, of.records.len())).collect()
        };
        assert_eq!(kept(60), [(true, 1), (false, 0)]);
        assert_eq!(kept(MAX_BYTES), [(true, 1), (true, 1)]);
    }

    #[test]
    fn many_alike_records_of_a_long_operation_are_kept_in_few_bytes() {
        let of_cpu = |cpu: u16, mut record: Vec<u8>| {
            record[28..30].copy_from_slice(&cpu.to_ne_bytes());
            record
        };
        let mut text = bytes(Type::Begun, 0, 0);
        for page in 0..20_000_u64 {
            text.extend(bytes(Type::Access, 4096 * (page % 100), 0));
            text.extend(of_cpu(5, bytes(Type::Answering, 0, 2)));
            (0..30).for_each(|line| text.extend(of_cpu(5, bytes(Type::Access, 64 * line, 0))));
            text.extend(of_cpu(5, bytes(Type::Answered, 300, 0)));
        }
        text.extend(bytes(Type::Ended, 9, 0));
        // 660,000 records of 32 bytes.
        let read = bounded(&text[..], 1 << 20).unwrap();
        assert!(read[0].is_whole);
        assert_eq!((read[0].records.len(), read[0].answers.len()), (20_000, 20_000));
        assert!(read[0].answers.iter().all(|answer| answer.records.len() == 30));
    }

    #[test]
    fn ticks_are_read_apart_from_the_operation_on_their_cpu() {
        let of_tick = |what: Type, address: u64, acquire: u32| {
            let mut record = bytes(what, address, 0);
            record[20..24].copy_from_slice(&acquire.to_ne_bytes());
            record[28..30].copy_from_slice(&(3 | TICKS).to_ne_bytes());
            record
        };
        let access = bytes(Type::Access, 64, 0);
        let tick_of = |cut: u32| {
            let inside = [of_tick(Type::Callbacks, 0, 0), of_tick(Type::Access, 128, 0)];
            // The operation's buffer may be written before that of the rest of the tick.
            let rest = [access.clone(), of_tick(Type::Answered, 500, cut)];
            [vec![of_tick(Type::Answering, 0, 0)], inside.to_vec(), rest.to_vec()].concat().concat()
        };
        let all = [bytes(Type::Begun, 0, 0), access.clone(), tick_of(0), tick_of(1)].concat();
        let all = [all, bytes(Type::Ended, 9, 0)].concat();
        let read = operations(&all[..]).unwrap();
        assert_eq!((read[0].records.len(), read[0].answers.len()), (3, 0));
        let [tick] = &read[0].ticks[..] else { panic!("one is cut off: {:?}", read[0].ticks) };
        assert_eq!((tick.cpu, tick.instructions, tick.records.len()), (3, 500, 2));
        // Of many a sample is kept, and the callbacks of all count.
        let many: Vec<u8> = (0..5000).flat_map(|_| tick_of(0)).collect();
        let all = [bytes(Type::Begun, 0, 0), many, bytes(Type::Ended, 9, 0)].concat();
        let read = operations(&all[..]).unwrap();
        assert_eq!((read[0].ticks.len(), read[0].callbacks), (16 + 47, 5000 * 7));
    }

    #[test]
    fn records_that_cannot_be_are_errors() {
        for wrong in [
            bytes(Type::Access, 0, 0),
            [bytes(Type::Begun, 0, 0), bytes(Type::Begun, 0, 0)].concat(),
            [0; BYTES].to_vec(),
        ] {
            assert!(operations(&wrong[..]).is_err());
        }
    }
}
