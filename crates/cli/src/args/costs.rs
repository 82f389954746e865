//! The option for other costs of a simulated machine.

use mmscale_harness::{CallError, Costs};

use super::MACHINE;
use crate::failure::Failure;

#[derive(Debug, clap::Args)]
pub(crate) struct CostArgs {
    /// Another value of a cost of the profile, within its range; several values (KEY=110,575) make
    /// a sweep; may be repeated. `mmscale profile show NAME` has all costs with their ranges
    #[arg(help_heading = MACHINE, long = "cost", value_name = "KEY=VALUE")]
    costs: Vec<String>,
}

impl CostArgs {
    /// Returns the costs that the call sets.
    pub(crate) fn parsed(&self) -> Result<Costs, Failure> {
        Ok(Costs::parse(&self.costs).map_err(CallError::from)?)
    }

    /// Returns the costs as given.
    pub(crate) fn given(&self) -> &[String] {
        &self.costs
    }
}
