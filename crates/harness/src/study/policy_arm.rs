//! Arms created on the command line (`--policy`): the first arm of a study with other policies.

use super::{Arm, Choice, guest, keys, value};
use crate::names::UnknownName;
use std::fmt;
use thiserror::Error;

/// An arm created on the command line: `tick=phased,caches=blockmap`, optionally preceded by a name
/// and a colon.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PolicyArm {
    name: Option<String>,
    /// Keys and values as given; at least one.
    choices: Vec<(String, String)>,
}

/// Why an arm cannot be created.
#[derive(Debug, Error)]
pub enum PolicyError {
    /// The name has a character that separates names elsewhere, or that a terminal acts on.
    #[error(
        "cannot name an arm `{}`: use letters, digits and -_.+, as in \
         mine:tick=phased", .0.escape_debug()
    )]
    Name(String),
    /// The text is not a list of choices.
    #[error(
        "cannot read --policy `{0}`: use [NAME:]KEY=POLICY[,KEY=POLICY..], as in \
         mine:tick=phased,lru=lazy"
    )]
    Malformed(String),
    /// A mechanism is chosen twice.
    #[error("--policy {arm}: `{key}` is chosen twice; choose it once")]
    Twice {
        /// The arm as given.
        arm: String,
        /// The key of the mechanism.
        key: String,
    },
    /// The mechanism or the policy does not exist.
    #[error("--policy {arm}: {why}")]
    Unknown {
        /// The arm as given.
        arm: String,
        /// The unknown name, and the known ones.
        why: Box<UnknownName>,
    },
    /// The guest allocator of an arm cannot be loaded.
    #[error("--policy {arm}: loading the allocator {why}")]
    Guest {
        /// The arm as given.
        arm: String,
        /// The file, and what is wrong.
        why: String,
    },
    /// The study already has an arm of this name.
    #[error("--policy {arm}: study `{study}` has an arm `{name}`; choose another name")]
    Taken {
        /// The arm as given.
        arm: String,
        /// The name of the arm.
        name: String,
        /// The name of the study.
        study: String,
    },
    /// Two `--policy` arms have the same name.
    #[error("two --policy arms are named `{name}`; give one another name, as in NAME:{list}")]
    SameName {
        /// The name of both arms.
        name: String,
        /// The choices of the second one.
        list: String,
    },
    /// The live kernel has mechanisms of its own.
    #[error(
        "--policy {arm} cannot be applied to the running kernel, which has mechanisms of its own; \
         use --on sim or --on threads"
    )]
    NotLive {
        /// The arm as given.
        arm: String,
    },
    /// The arms of the study do not consist of policies.
    #[error("study `{0}` has no policies to choose from; leave --policy and --linux out")]
    NoPolicies(String),
}

impl fmt::Display for PolicyArm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name.as_ref().map_or(String::new(), |name| format!("{name}:"));
        write!(f, "{name}{}", self.list())
    }
}

impl PolicyArm {
    /// Parses `NAME:KEY=VALUE,KEY=VALUE` or `KEY=VALUE,KEY=VALUE`.
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        let malformed = || PolicyError::Malformed(text.to_owned());
        let word = |word: &str| {
            let word = word.trim();
            let is_word = !word.is_empty() && !word.contains(['=', ':', ' ']);
            is_word.then(|| word.to_owned()).ok_or_else(malformed)
        };
        let (name, list) = match text.split_once(':') {
            // The colon of a guest's file is behind a key.
            Some((name, list)) if !name.contains('=') => (Some(word(name)?), list),
            _ => (None, text),
        };
        let is_plain = |c: char| c.is_alphanumeric() || "-_.+".contains(c);
        if let Some(name) = name.as_ref().filter(|name| !name.chars().all(is_plain)) {
            return Err(PolicyError::Name(name.clone()));
        }
        let choices = list.split(',').map(|choice| {
            let (key, value) = choice.split_once('=').ok_or_else(malformed)?;
            let is_guest = key == guest::KEY && guest::file_of(value).is_some();
            Ok((word(key)?, if is_guest { value.to_owned() } else { word(value)? }))
        });
        let arm = Self { name, choices: choices.collect::<Result<_, _>>()? };
        for (nth, (key, _)) in arm.choices.iter().enumerate() {
            if arm.choices[..nth].iter().any(|(other, _)| other == key) {
                return Err(PolicyError::Twice { key: key.clone(), arm: arm.to_string() });
            }
        }
        Ok(arm)
    }

    /// Returns the choices as given, `KEY=VALUE,KEY=VALUE`.
    fn list(&self) -> String {
        self.joined(",")
    }
    /// Returns the choices with `separator` between them.
    fn joined(&self, separator: &str) -> String {
        let choices: Vec<_> =
            self.choices.iter().map(|(key, value)| format!("{key}={value}")).collect();
        choices.join(separator)
    }

    /// Returns a name for an arm without one: its list, with the names of guests for their files.
    fn default_name(&self) -> String {
        let named = |(key, value): &(String, String)| {
            let guest = guest::file_of(value).filter(|_| key == guest::KEY).map(guest::name_of);
            format!("{key}={}", guest.as_ref().unwrap_or(value))
        };
        self.choices.iter().map(named).collect::<Vec<_>>().join("+")
    }

    /// Returns `base` with the choices of this arm. `own` are the study's own choices.
    pub(crate) fn on(&self, base: &Arm, own: &[Choice]) -> Result<Arm, PolicyError> {
        let unknown = |why| PolicyError::Unknown { arm: self.to_string(), why: Box::new(why) };
        let mut arm = base.clone();
        for (given, policy) in &self.choices {
            let key = keys(own)
                .find(|key| key == given)
                .ok_or_else(|| unknown(UnknownName::new("mechanism", given, keys(own))))?;
            if let Some(file) = guest::file_of(policy).filter(|_| key == guest::KEY) {
                let arm_text = self.to_string();
                let named = guest::policy_of(file);
                let named = named.map_err(|why| PolicyError::Guest { arm: arm_text, why })?;
                // An arm lives as long as the program.
                arm.choose(key, named.leak());
                continue;
            }
            arm.choose(key, value(key, policy, own).map_err(unknown)?);
        }
        Ok(arm)
    }

    /// Returns the names of `arms` in a study whose own arms are named `taken`. An arm without a
    /// given name is named after its choices, keys included, as several mechanisms have policies of
    /// the same name. `+` joins them, because commas separate arms in options.
    pub(crate) fn names(
        arms: &[Self],
        study: &str,
        taken: &[&str],
    ) -> Result<Vec<String>, PolicyError> {
        let mut names: Vec<String> = Vec::new();
        for arm in arms {
            let name = arm.name.clone().unwrap_or_else(|| arm.default_name());
            if taken.contains(&name.as_str()) {
                let (arm, study) = (arm.to_string(), study.to_owned());
                return Err(PolicyError::Taken { arm, name, study });
            }
            if names.contains(&name) {
                return Err(PolicyError::SameName { name, list: arm.list() });
            }
            names.push(name);
        }
        Ok(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: [Choice; 1] = [Choice { key: "bind", values: &["stay", "move"] }];

    fn parsed(texts: &[&str]) -> Vec<PolicyArm> {
        texts.iter().map(|text| PolicyArm::parse(text).expect("it is fine")).collect()
    }

    fn names(texts: &[&str]) -> Result<Vec<String>, String> {
        PolicyArm::names(&parsed(texts), "s", &["stock", "posted"]).map_err(|why| why.to_string())
    }

    #[test]
    fn a_list_changes_what_it_names_and_nothing_else() {
        let mut base = Arm::default();
        base.choose("lru", "freeze");
        let of = |text| {
            let arm = parsed(&[text])[0].on(&base, &OWN).map_err(|why| why.to_string())?;
            Ok(["tick", "lru", "bind"].map(|key| arm.chosen(key)))
        };
        assert_eq!(of("tick=phased"), Ok([Some("phased"), Some("freeze"), None]));
        assert_eq!(of("x:lru=lazy,bind=move"), Ok([None, Some("lazy"), Some("move")]));
        let refused: [(_, Result<_, String>); 3] = [
            ("tik=phased", of("tik=phased")),
            ("tick=fased", of("tick=fased")),
            ("bind=mov", of("bind=mov")),
        ];
        for ((text, why), nearest) in refused.into_iter().zip(["tick", "phased", "move"]) {
            let why = why.expect_err("it is unknown");
            assert!(why.starts_with(&format!("--policy {text}: there is no ")), "{why}");
            assert!(why.contains(&format!("did you mean `{nearest}`?")), "{why}");
        }
    }

    #[test]
    fn an_arm_is_called_by_its_name_or_its_list_of_mechanisms_and_policies() {
        let of = |texts: &[&str]| names(texts).expect("they are fine");
        assert_eq!(of(&["vma-locks=none", "mine:lru=lazy"]), ["vma-locks=none", "mine"]);
        assert_eq!(of(&["tick=phased,lru=lazy"]), ["tick=phased+lru=lazy"]);
        assert_eq!(of(&["tick=posted", "lru=posted"]), ["tick=posted", "lru=posted"]);
    }

    #[test]
    fn names_that_others_have_are_refused() {
        let why = names(&["posted:tick=phased"]).unwrap_err();
        assert_eq!(
            why,
            "--policy posted:tick=phased: study `s` has an arm `posted`; choose another name"
        );
        let why = names(&["tick=phased", "tick=phased"]).unwrap_err();
        assert!(why.starts_with("two --policy arms are named `tick=phased`; "), "{why}");
        assert!(names(&["a:tick=phased", "a:lru=lazy"]).is_err());
    }

    #[test]
    fn what_is_no_list_of_choices_is_refused() {
        for wrong in ["", "tick", "tick=", "=phased", "tick=phased,", ":tick=phased", "a:b:c=d"] {
            let why = PolicyArm::parse(wrong).unwrap_err().to_string();
            assert!(why.starts_with(&format!("cannot read --policy `{wrong}`: ")), "{why}");
        }
        for wrong in ["../a:tick=phased", "\x1b[31mN:tick=phased", "a,b:tick=phased"] {
            let why = PolicyArm::parse(wrong).unwrap_err().to_string();
            assert!(why.starts_with("cannot name an arm `"), "{why}");
            assert!(!why.contains('\x1b'), "{why}");
        }
        let why = PolicyArm::parse("tick=phased,tick=posted").unwrap_err().to_string();
        assert!(why.ends_with("`tick` is chosen twice; choose it once"), "{why}");
    }
}
