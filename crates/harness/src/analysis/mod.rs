//! Analyses of plans: what a conclusion depends on, what time would be saved, and where the worst
//! wait came from.

mod robust;
mod traced;
mod whatif;

pub use robust::{Cache, RobustError, RobustRequest, Told, figures, on_drawn_machines, robust};
pub use traced::{Traced, lock_class, trace};
pub use whatif::{CallOrRun, FACTORS, Scalable, Step, WhatIfRequest, hold_scale, whatif};
