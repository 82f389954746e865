//! Analyses of plans: what a conclusion depends on, what time would be saved, which part of a
//! change contributes what, where which arm is best, and where the worst wait came from.

mod ablate;
mod robust;
mod settle;
mod traced;
mod whatif;

pub use ablate::{ablation, subsets};
pub use robust::{Cache, RobustError, RobustRequest, Told, figures, on_drawn_machines, robust};
pub use settle::{Best, Knob, Limit, MapError, Question, Region, Rule, Settled, Tried};
pub use traced::{Traced, lock_class, trace};
pub use whatif::{CallOrRun, FACTORS, Scalable, Step, WhatIfRequest, hold_scale, whatif};
