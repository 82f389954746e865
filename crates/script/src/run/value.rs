//! Values, and operations on them without a call.

use super::report::Kind;
use crate::ast::{Binary, Unary};
use crate::op::End;
use mmscale_system::{Addr, Fd, PAGE_BYTES, ProcessId, ThreadId};

/// A value of a program.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Value {
    #[default]
    None,
    /// A number, size or time.
    Number(i64),
    Memory(Memory),
    File(File),
    Process(ProcessId),
    Thread(ThreadId),
    Pidfd(Fd),
}

/// A range of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Memory {
    pub(crate) at: u64,
    pub(crate) bytes: u64,
    /// The identity of its contents: the words in its pages depend on it.
    pub(crate) tag: u64,
    /// The number of its first page in the mapping or file.
    pub(crate) first: u64,
}

/// A part of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct File {
    pub(crate) fd: Fd,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// The bits of a word that name the process that wrote it.
const WRITER_BITS: u32 = 16;

impl Memory {
    /// Returns the address of a page.
    pub(crate) fn page(&self, page: u64) -> Addr {
        Addr(self.at).page(page)
    }
    pub(crate) fn pages(&self) -> u64 {
        self.bytes.div_ceil(PAGE_BYTES)
    }
    /// Returns the word that `writer` writes to a page; never 0.
    pub(crate) fn word(&self, page: u64, writer: u64) -> u64 {
        let content = (self.tag ^ (self.first + page)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        content >> (WRITER_BITS + 1) << WRITER_BITS | 1 << 63 | writer & ((1 << WRITER_BITS) - 1)
    }
    /// Whether a word is 0 or one that any process of the script writes to a page.
    pub(crate) fn may_hold(&self, page: u64, word: u64) -> bool {
        word == 0 || word >> WRITER_BITS == self.word(page, 0) >> WRITER_BITS
    }
}

/// Selects `bytes` bytes that begin at `from`.
fn part(whole: &Value, from: u64, bytes: u64) -> Option<Value> {
    let end = from.checked_add(bytes)?;
    match *whole {
        Value::Memory(memory) if end <= memory.bytes => {
            let first = memory.first + from / PAGE_BYTES;
            Some(Value::Memory(Memory { at: memory.at + from, bytes, first, ..memory }))
        }
        Value::File(file) if end <= file.bytes => {
            Some(Value::File(File { offset: file.offset + from, bytes, ..file }))
        }
        _ => None,
    }
}

impl Value {
    pub(crate) fn number(self) -> Result<i64, Kind> {
        match self {
            Self::Number(number) => Ok(number),
            _ => Err(Kind::Unset),
        }
    }
    /// Returns a number that must not be negative.
    pub(crate) fn natural(self) -> Result<u64, Kind> {
        let number = self.number()?;
        u64::try_from(number).map_err(|_| Kind::Negative(number))
    }
    pub(crate) fn memory(self) -> Result<Memory, Kind> {
        match self {
            Self::Memory(memory) => Ok(memory),
            _ => Err(Kind::Unset),
        }
    }
    pub(crate) fn bytes(self) -> Result<u64, Kind> {
        match self {
            Self::Memory(memory) => Ok(memory.bytes),
            Self::File(file) => Ok(file.bytes),
            _ => Err(Kind::Unset),
        }
    }
    /// Returns a page of memory or of a file.
    pub(crate) fn page(self, page: i64) -> Result<Self, Kind> {
        let whole = self.bytes()?;
        let from = u64::try_from(page).ok().and_then(|page| page.checked_mul(PAGE_BYTES));
        let outside = || Kind::Page(page, whole as i64);
        from.and_then(|from| part(&self, from, PAGE_BYTES)).ok_or_else(outside)
    }
    /// Returns the part between two ends, each with its value.
    pub(crate) fn part(self, from: (End, i64), to: (End, i64)) -> Result<Self, Kind> {
        let bytes = self.bytes()?;
        let whole = i64::try_from(bytes).map_err(|_| Kind::Overflow)?;
        let end = |(end, value): (End, i64), without: i64| match end {
            End { slot: crate::op::NONE, .. } => Ok(without),
            End { pages: true, .. } => value.checked_mul(PAGE_BYTES as i64).ok_or(Kind::Overflow),
            End { pages: false, .. } => Ok(value),
        };
        let (from, to) = (end(from, 0)?, end(to, whole)?);
        let selected = || {
            let bytes = u64::try_from(to.checked_sub(from)?).ok()?;
            part(&self, u64::try_from(from).ok()?, bytes)
        };
        selected().ok_or(Kind::Outside(from, to, whole))
    }
}

pub(crate) fn unary(unary: Unary, of: i64) -> Result<i64, Kind> {
    match unary {
        Unary::Minus => of.checked_neg().ok_or(Kind::Overflow),
        Unary::Not => Ok(i64::from(of == 0)),
    }
}

pub(crate) fn binary(binary: Binary, a: i64, b: i64) -> Result<i64, Kind> {
    let result = match binary {
        Binary::Or => i64::from(a != 0 || b != 0),
        Binary::And => i64::from(a != 0 && b != 0),
        Binary::Equal => i64::from(a == b),
        Binary::Unequal => i64::from(a != b),
        Binary::AtMost => i64::from(a <= b),
        Binary::AtLeast => i64::from(a >= b),
        Binary::Less => i64::from(a < b),
        Binary::More => i64::from(a > b),
        Binary::Add => a.checked_add(b).ok_or(Kind::Overflow)?,
        Binary::Subtract => a.checked_sub(b).ok_or(Kind::Overflow)?,
        Binary::Multiply => a.checked_mul(b).ok_or(Kind::Overflow)?,
        Binary::Divide | Binary::Remainder if b == 0 => return Err(Kind::Division),
        Binary::Divide => a.checked_div(b).ok_or(Kind::Overflow)?,
        Binary::Remainder => a.checked_rem(b).ok_or(Kind::Overflow)?,
    };
    Ok(result)
}
