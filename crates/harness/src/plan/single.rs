//! Single runs of plans: the key of each, and the document that belongs to it.

use mmscale_document::{Build, Document, Fingerprint};

use super::Plan;
use crate::study::ArmId;

impl Plan {
    /// Returns a name over everything that the result of a run depends on, as 16 hexadecimal
    /// digits: the build, the study, the machine with all its numbers, the parameters, the policies
    /// of the arm, and the seed. Runs with equal keys have equal results. Scaled holds and `blame`
    /// are not included.
    pub fn key(&self, arm: ArmId, seed: u64) -> String {
        let mut key = Fingerprint::new();
        key.add_str(&self.origin.build.to_string());
        if let Some(program) = &self.origin.program {
            key.add_str(&program.to_string());
        }
        key.add_str(self.study.name());
        key.add_str(self.study.file_hash().unwrap_or_default());
        key.add_str(self.on.name());
        for (name, value) in self.params.values() {
            key.add_str(name);
            key.add_str(&value.to_string());
        }
        key.add_str(&self.study.arms()[arm.0].name);
        for (name, policy) in self.study.policies(arm, &self.params, self.on) {
            key.add_str(&name);
            key.add_str(&policy);
        }
        // The document names the profile.
        key.add_str(&self.profile_name);
        if let Some(profile) = &self.profile {
            // All numbers of the machine, as the engine uses them.
            let memory = (&profile.topology, profile.node_pages, profile.page_bytes);
            key.add_str(&format!("{memory:?}"));
            key.add_str(&format!("{:?}", (&profile.costs, &profile.swap, &profile.noise)));
        }
        [self.cpus as u64, u64::from(self.hz), seed].into_iter().for_each(|n| key.add(n));
        key.add_str(&format!("{:?}", (self.length, self.checks, self.linux)));
        key.to_hex()
    }

    /// Returns what differs between a document and the one that a run of this plan makes, apart
    /// from its results.
    pub fn owns(&self, arm: ArmId, seed: u64, document: &Document) -> Result<(), String> {
        let arms: Vec<&str> = document.arms.iter().map(|arm| arm.arm.as_str()).collect();
        let seeds: Vec<u64> = document.arms.iter().flat_map(|arm| arm.seeds.clone()).collect();
        let policies: Vec<_> = document.arms.iter().map(|arm| &arm.policies).collect();
        let program = |of: &Option<Build>| of.as_ref().map(Build::to_string);
        let hash = self.profile.as_ref().map(|profile| format!("{:016x}", profile.hash));
        let own = self.study.arms()[arm.0].name.as_str();
        let of_arm = self.study.policies(arm, &self.params, self.on);
        let same = [
            ("study", document.study == self.study.name()),
            ("study file", document.study_file_hash.as_deref() == self.study.file_hash()),
            ("machine", document.on == self.on),
            ("profile", document.profile == self.profile_name),
            ("profile's numbers", document.profile_hash == hash),
            ("number of CPUs", document.cpus as usize == self.cpus),
            ("topology", document.topology == self.topology),
            ("HZ", document.hz == self.hz),
            ("set of parameters", document.params == self.shown_params()),
            ("arm", arms == [own]),
            ("set of policies", policies == [&of_arm]),
            ("seed", seeds == [seed]),
            ("build", document.build == self.origin.build),
            ("program", program(&document.program) == program(&self.origin.program)),
        ];
        match same.iter().find(|(_, same)| !same) {
            Some((what, _)) => Err(format!("it is of another {what} than the run of its name")),
            None => Ok(()),
        }
    }

    /// Returns the plan of one of its runs.
    pub fn single(&self, arm: ArmId, seed: u64) -> Self {
        Self { arms: vec![arm], seeds: [seed].into(), look: None, ..self.clone() }
    }
}
