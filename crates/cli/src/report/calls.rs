//! Calls that are like the call of a document, for runs that a letter lacks.

use std::path::Path;

use clap::Parser;
use mmscale_document::{Document, Target};
use mmscale_harness::{MECHANISMS, RECORDING_SUFFIX, SCRIPT_SUFFIX};

use crate::args::{Args, ArmArgs, ChangeArgs, Command, MachineArgs, RunArgs, ShapeArg};

/// The call of a document, with the values of its own point of a sweep.
pub(super) struct SimilarCalls<'a> {
    document: &'a Document,
    args: Box<RunArgs>,
}

impl<'a> SimilarCalls<'a> {
    /// Parses the call of a document. `None` if it is not a call of `run`, or of another version of
    /// the program.
    pub(super) fn of(document: &'a Document) -> Option<Self> {
        match Args::try_parse_from(&document.command).ok()?.command? {
            Command::Run(args) => Some(Self { document, args }),
            _ => None,
        }
    }

    /// Returns the call that runs the document's point again with these options added.
    pub(super) fn run(&self, added: &str) -> String {
        self.call("run", &[self.machine(), self.changes(), vec![added.to_owned()]])
    }

    /// Returns the call that runs the point with other numbers of CPUs. `None` if the machine is
    /// not simulated.
    pub(super) fn on_cpus(&self, cpus: &str) -> Option<String> {
        self.is_simulated()?;
        let machine = vec![format!("--cpus {cpus}"), "--shape fill".to_owned()];
        Some(self.call("run", &[machine, self.profile_option(), self.costs(), self.changes()]))
    }

    /// Returns the call that runs the point on another profile. `None` if the machine is not
    /// simulated.
    pub(super) fn on_profile(&self, profile: &str) -> Option<String> {
        self.is_simulated()?;
        Some(self.call("run", &[vec![format!("--profile {profile}")], self.changes()]))
    }

    /// Returns the call that analyses what the conclusions depend on. `None` if the machine is not
    /// simulated, or if the call scales holds, which an analysis does not.
    pub(super) fn robust(&self) -> Option<String> {
        self.is_simulated().filter(|()| self.args.hold.is_none())?;
        Some(self.call("robust", &[self.machine(), self.changes()]))
    }

    fn call(&self, command: &str, options: &[Vec<String>]) -> String {
        let words = [self.program(), command.to_owned(), self.study()];
        let words = words.into_iter().chain(options.concat()).chain(["-o DIR".to_owned()]);
        words.collect::<Vec<_>>().join(" ")
    }

    /// Returns the call that runs other studies with the policies in which an arm differs from the
    /// first.
    pub(super) fn of_studies(&self, studies: &[&str], arm: &str) -> Option<String> {
        self.is_simulated()?;
        let base = &self.document.arms.first()?.policies;
        let arm = self.document.arms.iter().find(|other| other.arm == arm)?;
        // Other studies have no variants of this workload.
        let mechanism = |key: &str| MECHANISMS.iter().any(|mechanism| mechanism.key == key);
        let differs = |key: &String, policy: &String| base.get(key) != Some(policy);
        let policies =
            arm.policies.iter().filter(|(key, policy)| mechanism(key) && differs(key, policy));
        let policies: Vec<String> =
            policies.map(|(key, policy)| format!("{key}={policy}")).collect();
        if studies.is_empty() || policies.is_empty() {
            return None;
        }
        let (program, studies, policies) = (self.program(), studies.join(" "), policies.join(","));
        let policy = quoted(&format!("{}:{policies}", arm.arm));
        let hold =
            self.args.hold.as_ref().map_or(String::new(), |scale| format!(" --hold {scale}"));
        Some(format!("{program} run {studies} --policy {policy}{hold} -o DIR"))
    }

    /// Returns the name of the study, or the path of its script or recording as the call had it.
    fn study(&self) -> String {
        let study = &self.document.study;
        let suffix = if study.ends_with(RECORDING_SUFFIX) { "" } else { SCRIPT_SUFFIX };
        let file = format!("{study}{suffix}");
        let is_file =
            |path: &&String| Path::new(path).file_name().is_some_and(|name| name == &*file);
        let path = self.args.studies.iter().find(is_file);
        quoted(path.unwrap_or(study))
    }

    fn is_simulated(&self) -> Option<()> {
        (self.document.on == Target::Sim).then_some(())
    }

    fn program(&self) -> String {
        self.document.command.first().cloned().unwrap_or_default()
    }

    /// Returns the profile that the call names.
    pub(super) fn profile(&self) -> Option<&Path> {
        self.args.machine.profile.as_deref()
    }

    /// Returns the options of the machine.
    fn machine(&self) -> Vec<String> {
        let RunArgs { on, machine: MachineArgs { cpus, shape, .. }, .. } = &*self.args;
        let mut words = vec![];
        if let Some(on) = on.filter(|_| self.document.on != Target::Sim) {
            words.push(format!("--on {}", format!("{on:?}").to_lowercase()));
        }
        words.extend(cpus.is_some().then(|| format!("--cpus {}", self.document.cpus)));
        words.extend(match shape {
            ShapeArg::Keep => None,
            ShapeArg::Fill => Some("--shape fill".to_owned()),
            ShapeArg::Flat => Some("--shape flat".to_owned()),
        });
        words.extend(self.profile_option());
        words.extend(self.costs());
        words
    }

    fn profile_option(&self) -> Vec<String> {
        let path = self.profile().map(|profile| quoted(&profile.display().to_string()));
        path.map(|path| format!("--profile {path}")).into_iter().collect()
    }

    /// Returns the options of the costs of the document's point.
    fn costs(&self) -> Vec<String> {
        let keys = self.args.machine.costs.iter().filter_map(|item| item.split_once('='));
        let own = |(key, _): (&str, &str)| {
            let option = format!("--cost {}", key.trim());
            Some(format!("{option}={}", self.document.params.get(&option)?))
        };
        keys.filter_map(own).collect()
    }

    /// Returns the options of arms and parameters.
    fn changes(&self) -> Vec<String> {
        let RunArgs { machine: MachineArgs { hz, .. }, hold, arms, .. } = &*self.args;
        let ArmArgs { arms, changes: ChangeArgs { policies, linux, set } } = arms;
        let keys = set.iter().filter_map(|set| set.split_once('=')).map(|(key, _)| key);
        let mut words: Vec<String> = keys
            .filter_map(|key| Some(format!("--set {key}={}", self.document.params.get(key)?)))
            .collect();
        words.extend(hz.is_some().then(|| format!("--hz {}", self.document.hz)));
        words.extend(hold.as_ref().map(|scale| format!("--hold {scale}")));
        words.extend(linux.as_ref().map(|version| format!("--linux {version}")));
        words.extend((!arms.is_empty()).then(|| format!("--arm {}", arms.join(","))));
        words.extend(policies.iter().map(|arm| format!("--policy {}", quoted(arm))));
        words
    }
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    if word.chars().all(|c| c.is_alphanumeric() || "-_.,=/:+@%".contains(c)) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}
