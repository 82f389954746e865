//! What goes with time: timers, work, grace periods, the upkeep tick, on the one-thread machine.

mod machine;
mod phased;
mod rcu;
mod time;
mod upkeep;
mod work;
