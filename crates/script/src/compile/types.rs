//! Types of values.

use crate::ast::{Binary, Unary, Unit};

/// The type of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Type {
    Number,
    /// In bytes.
    Size,
    /// In ns.
    Time,
    Memory,
    File,
    Process,
    Thread,
    Pidfd,
}

impl Type {
    pub(crate) const fn of(unit: Unit) -> Self {
        match unit {
            Unit::One => Self::Number,
            Unit::Pages | Unit::Bytes => Self::Size,
            Unit::Time => Self::Time,
        }
    }
    /// Returns the type in words, with an example.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Number => "a number",
            Self::Size => "a size (as 64 KiB or 8 pages)",
            Self::Time => "a time (as 20us)",
            Self::Memory => "memory (from mmap)",
            Self::File => "a file (from memfd_create, or `file` at the top)",
            Self::Process => "a process (from fork or process)",
            Self::Thread => "a thread",
            Self::Pidfd => "a descriptor of a process (from pidfd_open)",
        }
    }
    /// Whether a value means nothing in a process that is not forked. Files are inherited.
    pub(crate) const fn is_of_process(self) -> bool {
        matches!(self, Self::Memory | Self::Thread | Self::Pidfd)
    }
    const fn is_scalar(self) -> bool {
        matches!(self, Self::Number | Self::Size | Self::Time)
    }
    /// Returns the type of an operation. `None`: the operation has no meaning.
    pub(crate) fn unary(self, unary: Unary) -> Option<Self> {
        match unary {
            Unary::Minus => self.is_scalar().then_some(self),
            Unary::Not => (self == Self::Number).then_some(self),
        }
    }
    /// Like [`Type::unary`], for two operands.
    pub(crate) fn binary(self, binary: Binary, other: Self) -> Option<Self> {
        if !self.is_scalar() || !other.is_scalar() {
            return None;
        }
        let same = self == other;
        match binary {
            Binary::Or | Binary::And => (same && self == Self::Number).then_some(self),
            Binary::Equal | Binary::Unequal => same.then_some(Self::Number),
            Binary::AtMost | Binary::AtLeast => same.then_some(Self::Number),
            Binary::Less | Binary::More => same.then_some(Self::Number),
            Binary::Add | Binary::Subtract | Binary::Remainder => same.then_some(self),
            Binary::Multiply if self == Self::Number => Some(other),
            Binary::Multiply => (other == Self::Number).then_some(self),
            Binary::Divide if same => Some(Self::Number),
            Binary::Divide => (other == Self::Number).then_some(self),
        }
    }
}
