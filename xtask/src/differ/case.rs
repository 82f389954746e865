//! One run, as the words of a command line.

use std::fmt;

/// One run of one arm with one seed.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Case {
    pub(crate) study: String,
    pub(crate) arm: String,
    pub(crate) profile: String,
    pub(crate) cpus: u64,
    pub(crate) hz: u32,
    pub(crate) seed: u64,
    pub(crate) check: bool,
    /// Parameters that are not at their quick defaults, by name.
    pub(crate) set: Vec<(String, String)>,
}

impl Case {
    /// The words after the program's name; `sched` is the schedule.
    pub(crate) fn args(&self, sched: &str) -> Vec<String> {
        let mut args = vec!["run".to_owned(), self.study.clone(), "--quick".to_owned()];
        let mut option = |name: &str, value: String| args.extend([name.to_owned(), value]);
        option("--arm", self.arm.clone());
        option("--profile", self.profile.clone());
        option("--cpus", self.cpus.to_string());
        option("--hz", self.hz.to_string());
        option("--seeds", "1".to_owned());
        option("--seed", self.seed.to_string());
        for (name, value) in &self.set {
            option("--set", format!("{name}={value}"));
        }
        option("--set", format!("sched={sched}"));
        if self.check {
            args.push("--check".to_owned());
        }
        args
    }
    /// Cases that differ from this one in one thing, and are smaller.
    pub(crate) fn smaller(&self) -> Vec<Self> {
        let mut cases = Vec::new();
        for at in 0..self.set.len() {
            let mut case = self.clone();
            case.set.remove(at);
            cases.push(case);
        }
        if self.check {
            cases.push(Self { check: false, ..self.clone() });
        }
        for cpus in [self.cpus / 2, self.cpus - 1] {
            if cpus > 0 && cpus < self.cpus {
                cases.push(Self { cpus, ..self.clone() });
            }
        }
        for (at, (_, value)) in self.set.iter().enumerate() {
            if let Ok(value) = value.parse::<u64>()
                && value > 1
            {
                let mut case = self.clone();
                case.set[at].1 = (value / 2).to_string();
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
        let case = Case {
            study: "vmstat".into(),
            arm: "stock".into(),
            profile: "x".into(),
            cpus: 2,
            hz: 250,
            seed: 7,
            check: true,
            set: vec![("burst_pages".into(), "9".into()), ("requeue".into(), "always".into())],
        };
        let smaller = case.smaller();
        assert_eq!(smaller.len(), 2 + 1 + 2 + 1);
        assert!(smaller.iter().all(|other| *other != case));
        assert_eq!(smaller.last().expect("one").set[0].1, "4");
        assert!(case.to_string().ends_with("--set sched=both --check"), "{case}");
    }
}
