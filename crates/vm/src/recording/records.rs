//! A record of the plugin, which `plugin/operations.c` explains.

/// The kind of a record; the numbers are those of the plugin's `enum type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    Callbacks = 15,
    CallbacksDone = 16,
}

impl Type {
    pub(super) const ALL: [Self; 16] = [
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
        Self::Callbacks,
        Self::CallbacksDone,
    ];
}

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

/// Returns the instructions of callbacks in the records of an interrupt.
pub(super) fn callback_instructions(records: &[Raw]) -> u64 {
    let (mut all, mut runs) = (0, false);
    for raw in records {
        all += if runs { u64::from(raw.after) } else { 0 };
        runs = (runs || raw.what == Type::Callbacks) && raw.what != Type::CallbacksDone;
    }
    all
}
