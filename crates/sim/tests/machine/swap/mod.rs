//! The swap device in virtual time, and reclaim on it.

mod device;
mod pressure;
mod world;

#[path = "../../../../mm/tests/reclaim/paged.rs"]
#[expect(dead_code, reason = "other tests use more of it")]
mod paged;
#[path = "../../../../mm/tests/reclaim/storm.rs"]
mod storm;
