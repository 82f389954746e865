//! One run, as arguments of a command line.

use std::fmt;

/// One run of one arm with one seed, and possibly of a second arm with one additional policy.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Case {
    pub(crate) study: String,
    pub(crate) arm: String,
    /// `KEY=POLICY` of the second arm.
    pub(crate) policy: Option<String>,
    pub(crate) profile: String,
    pub(crate) cpus: u64,
    pub(crate) shape: &'static str,
    pub(crate) hz: u32,
    pub(crate) seed: u64,
    pub(crate) check: bool,
    pub(crate) set: Vec<Setting>,
}

/// A parameter that differs from its quick default.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Setting {
    pub(crate) name: String,
    pub(crate) value: String,
    /// Whether the run would be more than one document without this setting.
    pub(crate) needed: bool,
}

impl Case {
    /// Returns the arguments after the program's name; `sched` is the schedule.
    pub(crate) fn args(&self, sched: &str) -> Vec<String> {
        let mut args = vec!["run".to_owned(), self.study.clone(), "--quick".to_owned()];
        let mut option = |name: &str, value: String| args.extend([name.to_owned(), value]);
        option("--arm", self.arm.clone());
        if let Some(policy) = &self.policy {
            option("--policy", policy.clone());
        }
        option("--profile", self.profile.clone());
        option("--cpus", self.cpus.to_string());
        option("--shape", self.shape.to_owned());
        option("--hz", self.hz.to_string());
        option("--seeds", "1".to_owned());
        option("--seed", self.seed.to_string());
        for Setting { name, value, .. } in &self.set {
            option("--set", format!("{name}={value}"));
        }
        option("--set", format!("sched={sched}"));
        if self.check {
            args.push("--check".to_owned());
        }
        args
    }
    /// Returns smaller cases that differ from this one in one respect.
    pub(crate) fn smaller(&self) -> Vec<Self> {
        let mut cases = Vec::new();
        for at in (0..self.set.len()).filter(|&at| !self.set[at].needed) {
            let mut case = self.clone();
            case.set.remove(at);
            cases.push(case);
        }
        if self.policy.is_some() {
            cases.push(Self { policy: None, ..self.clone() });
        }
        if self.check {
            cases.push(Self { check: false, ..self.clone() });
        }
        for cpus in [self.cpus / 2, self.cpus - 1] {
            if cpus > 0 && cpus < self.cpus {
                cases.push(Self { cpus, ..self.clone() });
            }
        }
        for (at, setting) in self.set.iter().enumerate() {
            if let Ok(value) = setting.value.parse::<u64>()
                && value > 1
            {
                let mut case = self.clone();
                case.set[at].value = (value / 2).to_string();
                cases.push(case);
            }
        }
        cases
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mmscale {}", self.args("both").join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smaller_cases_lose_one_thing_each() {
        let setting = |name: &str, value: &str, needed| Setting {
            name: name.into(),
            value: value.into(),
            needed,
        };
        let case = Case {
            study: "vmstat".into(),
            arm: "stock".into(),
            policy: Some("tick=phased".into()),
            profile: "x".into(),
            cpus: 2,
            shape: "fill",
            hz: 250,
            seed: 7,
            check: true,
            set: vec![setting("burst_pages", "9", false), setting("requeue", "always", true)],
        };
        let smaller = case.smaller();
        assert_eq!(smaller.len(), 1 + 1 + 1 + 2 + 1);
        assert_eq!(smaller.iter().filter(|case| case.policy.is_none()).count(), 1);
        assert!(case.to_string().contains("--arm stock --policy tick=phased "), "{case}");
        assert!(smaller.iter().all(|other| *other != case));
        assert_eq!(smaller.last().expect("one").set[0].value, "4");
        assert!(case.to_string().ends_with("--set sched=both --check"), "{case}");
    }
}
