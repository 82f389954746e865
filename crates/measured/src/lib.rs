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
//! | `parts` | files that are larger than a part, in bounded memory |
//! | `number` | counts, times, and percentages in the forms of the tools |
//! | `perf`, `perf_csv` | `perf lock contention`, as a table and with `-x` |
//! | `lock_stat` | `/proc/lock_stat` |
//! | `klockstat` | klockstat of bcc, in Python and with libbpf |
//! | `live` | documents of `mmscale live watch --format json` |
//! | `summary` | small tables of contentions and waits, as mails have them |
//! | `tree` | call trees of `perf report` in all forms |
//! | `chain` | call chains of `perf report -g flat` and `-g folded` |
//! | `frame`, `stacks` | stacks with their weights, folded stacks, chains with arrows |
//! | `prefix`, `kernel_log` | logs of a kernel: lockups, stalls, hung tasks |
//! | `robot` | reports of the kernel test robot, before and after a commit |
//! | `controls` | what terminals act on, which is removed |
//! | `contention` | traces of contended locks, as a stream |
//! | `comparison` | tables before and after a change, lists of changes |
//! | `size` | the number of CPUs |
//! | `snapshot` | files of a machine: its zones, and rates between two snapshots |
//! | `prose` | functions, locks and commands in the sentences |
//! | `resemble` | the known problem that a report resembles, and why |

mod bytes;
mod chain;
mod comparison;
mod contention;
mod controls;
mod fault;
mod frame;
mod kernel_log;
mod klockstat;
mod live;
mod lock_stat;
mod lockdep;
mod mail;
mod number;
mod parts;
mod perf;
mod perf_csv;
mod prefix;
mod prose;
mod report;
mod resemble;
mod robot;
mod role;
mod size;
mod snapshot;
mod stacks;
mod summary;
mod table;
mod text;
mod tree;

pub use bytes::{MAX_BYTES, text_of};
pub use comparison::{Chosen, Comparison, Comparisons, comparisons};
pub use contention::{Contention, Herd, LockSum, Spread, Stream};
pub use fault::{Fault, ReadError};
pub use lockdep::Order;
pub use parts::{PartsError, read_parts};
pub use prose::Prose;
pub use report::{Report, Spinning, read};
pub use resemble::{
    Basis, CALLS, Holder, Item, Likeness, Other, Resemblance, lock_of_robot, resemble,
};
pub use robot::{Change, PathChange, Robot};
pub use size::Sizes;
pub use snapshot::{PageCache, Rate, Rates, RatesError, Snapshot, SnapshotError, Zone};
pub use stacks::{Stack, Unit};
pub use table::{Table, UNKNOWN_CLASS};
