//! Folios, their lists and batches, memory groups, on the machine that is stepped by hand.

mod batches;
mod charges;
mod drains;
mod folios;
mod lazy;
mod machine;
mod many;
mod moves;
