//! Periodic and deferred work on the one-thread machine: timers, work, grace periods, the upkeep
//! tick.

mod machine;
mod phased;
mod rcu;
mod time;
mod upkeep;
mod work;
