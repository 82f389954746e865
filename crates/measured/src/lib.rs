//! Reads what other tools report about the locks of a kernel: whole reports, and tables and stacks
//! in mails.
//!
//! [`read`] decodes a file, finds every table and stack in it, and returns a [`Report`]. Errors in
//! a table have a line and a column; rows before the error are kept, so that the caller decides
//! whether a damaged table is of use. [`resemble`] compares a report with the problems that have
//! a study.
//!
//! | module | content |
//! |---|---|
//! | `bytes`, `mail`, `text` | from bytes to lines: encodings, mails, quotes; words with columns |
//! | `number` | counts, times, and percentages in the forms of the tools |
//! | `perf`, `perf_csv` | `perf lock contention`, as a table and with `-x` |
//! | `lock_stat` | `/proc/lock_stat` |
//! | `klockstat` | klockstat of bcc, in Python and with libbpf |
//! | `live` | documents of `mmscale live watch --format json` |
//! | `summary` | small tables of contentions and waits, as mails have them |
//! | `stacks`, `tree` | call paths in mails: stacks, chains with arrows, trees of `perf report` |
//! | `prose` | functions, locks, sizes and commands in the rest of the text |
//! | `resemble` | the known problem that a report resembles, and why |

mod bytes;
mod fault;
mod klockstat;
mod live;
mod lock_stat;
mod mail;
mod number;
mod perf;
mod perf_csv;
mod prose;
mod report;
mod resemble;
mod stacks;
mod summary;
mod table;
mod text;
mod tree;

pub use bytes::MAX_BYTES;
pub use fault::{Fault, ReadError};
pub use prose::Prose;
pub use report::{Report, read};
pub use resemble::{Basis, CALLS, Item, Likeness, Resemblance, resemble};
pub use stacks::Stack;
pub use table::{Table, UNKNOWN_CLASS};
