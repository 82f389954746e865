//! The result of a run as a document.
//!
//! A run of one study is one [`Document`]: the study's arms, their metrics with one value per seed,
//! lock statistics, and the context that is needed to judge them (machine, profile, parameters,
//! host). Its JSON form is stable and has a schema ([`schema_json`]). All collections are ordered,
//! so that equal results make equal bytes. A [`Fingerprint`] identifies the results by 16 digits.
//!
//! Waits that another tool measured are a [`Measurement`]. [`LOCK_CLASSES`] names the locks of
//! Linux for it and for the live kernel.

mod ablation;
mod blame;
mod call;
mod checksum;
mod costs;
mod critical;
mod document;
mod fingerprint;
mod line;
mod lock;
mod lock_class;
mod measured;
mod metric;
mod origin;
mod problem;
mod robust;
mod section;
mod settlement;
mod shown;
mod stack;
mod timeline;
mod value;
mod watched;
mod whatif;

pub use ablation::{
    ABLATION_SCHEMA, AblatedMetric, Ablation, Contribution, Interaction, PartContribution,
};
pub use blame::{BlameRecord, BlameRow, BlameRows, Doing, NamedLockRecord, NamedLockRow};
pub use call::{CallRecord, CallRow};
pub use checksum::{Kept, sum as checksum};
pub use costs::{COST_OPTION, HOLD_OPTION, machine_name};
pub use critical::{CriticalPath, PathPart};
pub use document::{
    ArmRecord, CpuTimeRecord, Document, FailureRecord, GapRecord, Histogram, Host, LinuxRecord,
    Looks, PerCpu, SCHEMA, Span, Target, Unsettled, schema_json,
};
pub use fingerprint::Fingerprint;
pub use line::LineRecord;
pub use lock::{ClassWaits, LIMITING_SHARE, LockRecord, LockRow, class_waits};
pub use lock_class::{
    Counterpart, LOCK_CLASSES, LockClassRow, LockKind, OTHER_CLASS, class_of, class_of_name,
    counterpart, lock_of,
};
pub use measured::{MEASURED_SCHEMA, MeasuredWait, Measurement, Site};
pub use metric::{Average, Better, ENOUGH_ROUNDS, HALVES_METRIC, Metric, ROUNDS_METRIC};
pub use origin::{Build, Groups, Topology};
pub use problem::{CALLING, ENDING, Problem, TICK};
pub use robust::{Claim, DrawnLimit, Level, MovedLimit, MovedNumber, ROBUST_SCHEMA, Robustness};
pub use section::{SectionRecord, SectionWait};
pub use settlement::{
    CostPlace, MapSection, SETTLEMENT_SCHEMA, SettledCosts, SettledError, SettledKnob,
    SettledLimit, SettledPoint, SettledRegion, Settlement,
};
pub use shown::{is_control, plain, short};
pub use stack::{
    is_acquiring, is_locking, is_semaphore, is_sleeping, is_tracing, path_of, plain_function,
    taken_through, wait_frames,
};
pub use timeline::{HoldSpan, Interval, LockName, SentInterrupt, Stretch, Timeline, WaitSpan};
pub use value::{ParamValue, Value};
pub use watched::{
    Call, Durations, Hold, LOG2_BUCKETS, OomEvents, Side, Wait, Watch, Watched, passes, stand_ins,
};
pub use whatif::{PlainMetric, Scaled, ScaledPoint, WHATIF_SCHEMA, WaitShare, WhatIf};
