//! Folios, their lists and batches, memory groups, on CPUs that are stepped by the tests.

mod batches;
mod charges;
mod drains;
mod folios;
mod lazy;
mod machine;
mod many;
mod moves;
mod stats;
