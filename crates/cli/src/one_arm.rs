//! Requests of commands that run one arm of a simulated machine.

use mmscale_document::Target;
use mmscale_harness::{
    ArmId, CallError, Checks, Length, Origin, PolicyArm, Request, linux_version,
};

use crate::args::OneArm;
use crate::failure::Failure;
use crate::settings::settings;

/// The seeds of a request: the first one, and their number.
pub(crate) struct Seeds {
    pub(crate) first: u64,
    pub(crate) number: u64,
}

impl OneArm {
    /// Returns the request of these options.
    pub(crate) fn request(
        &self,
        studies: Vec<String>,
        seeds: Seeds,
        length: Length,
        origin: Origin,
    ) -> Result<Request, Failure> {
        let settings = settings(&self.set, self.cpus.as_deref(), self.hz.as_deref())?;
        let policies = self.policies.iter().map(|text| PolicyArm::parse(text));
        Ok(Request {
            studies,
            on: Some(Target::Sim),
            arms: self.arm.iter().cloned().collect(),
            policies: policies.collect::<Result<_, _>>().map_err(CallError::from)?,
            linux: self.linux.as_deref().map(linux_version).transpose().map_err(CallError::from)?,
            profile: self.profile.clone(),
            settings,
            seeds: Some(seeds.number),
            first_seed: seeds.first,
            length,
            checks: Checks::Off,
            blame: false,
            costs: self.costs.parsed()?,
            hold_scale: None,
            shape: self.shape.into(),
            origin,
        })
    }

    /// Returns the arm to run: that of --policy, which follows the study's first one, or the first.
    pub(crate) fn of(&self, arms: &[ArmId]) -> ArmId {
        arms[if self.policies.is_empty() { 0 } else { arms.len() - 1 }]
    }
}
