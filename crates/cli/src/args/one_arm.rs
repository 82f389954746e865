//! The options that `whatif` and `trace` share: a simulated machine, and one arm on it.

use mmscale_harness::{ArmId, Origin, Request};

use super::ARMS;
use super::groups::{ChangeArgs, MachineArgs, Size};
use crate::failure::Failure;

#[derive(Debug, clap::Args)]
pub(crate) struct OneArm {
    #[command(flatten)]
    machine: MachineArgs,
    /// The arm; the study's first one if none is named
    #[arg(help_heading = ARMS, long, value_name = "NAME", conflicts_with = "policies")]
    arm: Option<String>,
    #[command(flatten)]
    changes: ChangeArgs,
}

impl OneArm {
    /// Returns the request of these options.
    pub(crate) fn request(
        &self,
        studies: Vec<String>,
        size: Size,
        origin: Origin,
    ) -> Result<Request, Failure> {
        let arms = self.arm.iter().cloned().collect();
        self.machine.request(studies, arms, &self.changes, size, origin)
    }

    /// Returns the arm to run: that of --policy, which follows the study's first one, or the first.
    pub(crate) fn of(&self, arms: &[ArmId]) -> ArmId {
        arms[if self.changes.policies.is_empty() { 0 } else { arms.len() - 1 }]
    }
}
