//! The records of the plugin, which `plugin/operations.c` explains.

use std::io::{self, Read};

/// Bytes of a record.
const BYTES: usize = 32;
/// The most records of all operations, half a gigabyte. Those of later operations are left out.
const MAX_RECORDS: usize = 1 << 24;

/// The kind of a record; the numbers are those of the plugin's `enum type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Begun = 1,
    Access = 2,
    Taken = 3,
    Released = 4,
    Downgraded = 5,
    Switched = 6,
    Waited = 7,
    Cleared = 8,
    Copied = 9,
    Stack = 10,
    Ended = 11,
    Sent = 12,
    Answering = 13,
    Answered = 14,
}

impl Type {
    const ALL: [Self; 14] = [
        Self::Begun,
        Self::Access,
        Self::Taken,
        Self::Released,
        Self::Downgraded,
        Self::Switched,
        Self::Waited,
        Self::Cleared,
        Self::Copied,
        Self::Stack,
        Self::Ended,
        Self::Sent,
        Self::Answering,
        Self::Answered,
    ];
}

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Raw {
    pub(super) address: u64,
    /// Instructions since the record before.
    pub(super) after: u32,
    /// Rows of the table of symbols, -1 for none.
    pub(super) function: i32,
    pub(super) caller: i32,
    pub(super) acquire: i32,
    pub(super) value: u32,
    pub(super) what: Type,
    pub(super) writes: bool,
    pub(super) locked: bool,
}

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
    pub(super) records: Vec<Raw>,
    /// The work of CPUs that it called.
    pub(super) answers: Vec<RawAnswer>,
}

/// The work of a CPU in the interrupt of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RawAnswer {
    pub(super) cpu: u16,
    /// Calls that the operation sent before it began.
    pub(super) sent: u32,
    pub(super) instructions: u64,
    pub(super) records: Vec<Raw>,
}

impl RawOperation {
    /// Adds a record of another CPU; returns whether it can be.
    fn answer(&mut self, raw: Raw, cpu: u16) -> bool {
        let open = self.answers.iter_mut().rfind(|answer| answer.cpu == cpu);
        match (raw.what, open) {
            (Type::Answering, _) => {
                self.answers.push(RawAnswer { cpu, sent: raw.value, ..RawAnswer::default() });
            }
            (Type::Answered, Some(answer)) => answer.instructions = raw.address,
            (Type::Access, Some(answer)) => answer.records.push(raw),
            _ => return false,
        }
        true
    }
}

/// Reads all operations.
///
/// # Errors
/// A record cannot be.
pub(super) fn operations(from: impl Read) -> io::Result<Vec<RawOperation>> {
    bounded(from, MAX_RECORDS)
}

/// Reads all operations, and the records of the first ones: `most` at most.
fn bounded(mut from: impl Read, most: usize) -> io::Result<Vec<RawOperation>> {
    let wrong = || io::Error::other("a record of the plugin cannot be");
    let mut operations: Vec<RawOperation> = Vec::new();
    let mut is_open = false;
    let mut all = 0_usize;
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
            all += 1;
            match (raw.what, operations.last_mut().filter(|_| is_open)) {
                (Type::Begun, None) => {
                    is_open = true;
                    operations.push(begun(&raw, cpu));
                }
                (Type::Ended, Some(operation)) => {
                    is_open = false;
                    operation.instructions = raw.address;
                    operation.locked = raw.value.into();
                    operation.rest = raw.after;
                    operation.is_whole = raw.acquire == 0 && all <= most;
                    match operation.is_whole {
                        true => operation.records.shrink_to_fit(),
                        false => {
                            operation.records = Vec::new();
                            operation.answers = Vec::new();
                        }
                    }
                }
                (Type::Begun, Some(_)) | (_, None) => return Err(wrong()),
                (_, Some(operation)) if cpu != operation.cpu => {
                    if all <= most && !operation.answer(raw, cpu) {
                        return Err(wrong());
                    }
                }
                (_, Some(operation)) if all <= most => operation.records.push(raw),
                (_, Some(_)) => {}
            }
        }
        buffer.copy_within(whole..filled, 0);
        filled -= whole;
    }
    // An operation that the end of the machine cut off.
    if is_open {
        operations.pop();
    }
    Ok(operations)
}

fn begun(raw: &Raw, cpu: u16) -> RawOperation {
    RawOperation {
        cpu,
        instructions: 0,
        locked: 0,
        interrupts: raw.value.into(),
        rest: 0,
        is_whole: false,
        records: Vec::new(),
        answers: Vec::new(),
    }
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
        assert!(read[0].is_whole && read[0].records[0].writes && !read[0].records[0].locked);
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
        let read = bounded(&text[..], 4).unwrap();
        let kept: Vec<(bool, usize)> =
            read.iter().map(|of| (of.is_whole, of.records.len())).collect();
        assert_eq!(kept, [(true, 1), (false, 0)]);
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
