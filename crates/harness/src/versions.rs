//! Versions of Linux: the arms that one of them has, and the version of the running kernel.

use crate::arm::Arm;
use crate::host::release;
use crate::names::UnknownName;
use mmscale_mm::policy::Mechanism;
pub use mmscale_mm::versions::{
    GAPS, Gap, HISTORIES, History, Missing, Step, VERSIONS, Version, policies_of,
};

/// Returns the version that a name such as `6.12` chooses for a simulated machine.
pub fn linux_version(name: &str) -> Result<Version, UnknownName> {
    let names = VERSIONS.map(|version| version.to_string());
    let found = VERSIONS.into_iter().zip(&names).find(|(_, known)| *known == name);
    let unknown = || UnknownName::new("Linux version", name, names.iter().map(String::as_str));
    found.map(|(version, _)| version).ok_or_else(unknown)
}

/// Returns the version of the running kernel; that of the newest known one if this computer does
/// not report a version of Linux.
pub fn running() -> Version {
    let newest = VERSIONS[VERSIONS.len() - 1];
    release().and_then(|release| Version::of_release(&release)).unwrap_or(newest)
}

/// A policy of an arm that one version of Linux has, and another one does not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OtherVersion {
    /// The mechanism and the policy of the arm.
    pub chosen: (&'static str, &'static str),
    /// The policy of the version.
    pub has: &'static str,
}

impl Arm {
    /// Returns this arm with the policies of `version` for all mechanisms that it does not choose.
    pub(crate) fn as_of(&self, version: Version) -> Self {
        let mut arm = self.clone();
        for (mechanism, policy) in policies_of(version) {
            if arm.chosen(mechanism.key).is_none() {
                arm.choose(mechanism.key, policy.name);
            }
        }
        arm
    }
    /// Returns the first policy of this arm that other versions of Linux have, but not `version`.
    pub(crate) fn of_another_version(&self, version: Version) -> Option<OtherVersion> {
        self.differences(version).find(|other| {
            let (key, policy) = other.chosen;
            let history = History::of(key);
            history.is_some_and(|history| history.span(policy).is_some())
        })
    }
    /// Returns whether all chosen policies are those of `version`.
    pub(crate) fn is_linux(&self, version: Version) -> bool {
        self.differences(version).next().is_none()
    }
    fn differences(&self, version: Version) -> impl Iterator<Item = OtherVersion> + '_ {
        policies_of(version).filter_map(|(mechanism, policy)| {
            let chosen = self.chosen(mechanism.key).filter(|&chosen| chosen != policy.name)?;
            Some(OtherVersion { chosen: (mechanism.key, chosen), has: policy.name })
        })
    }
}

/// Returns the policies of `version` that differ from those of `other`, as `KEY=POLICY`.
fn list(version: Version, other: impl Fn(&Mechanism) -> &'static str) -> Vec<String> {
    let differ = policies_of(version).filter(|(of, policy)| policy.name != other(of));
    differ.map(|(of, policy)| format!("{}={}", of.key, policy.name)).collect()
}

/// Returns the policies of `version` that are not the default, as `KEY=POLICY, ..`.
pub fn policies_in(version: Version) -> String {
    list(version, |mechanism| mechanism.default().name).join(", ")
}

/// Returns the options that choose the policies of `version` for a simulated machine.
pub fn simulated_as(version: Version) -> String {
    let older = VERSIONS.into_iter().rev().find(|known| *known <= version);
    let base = older.unwrap_or(VERSIONS[0]);
    let of_base = |mechanism: &Mechanism| {
        let mut all = policies_of(base);
        all.find(|(of, _)| of.key == mechanism.key).map_or("", |(_, policy)| policy.name)
    };
    match list(version, of_base) {
        same if same.is_empty() => format!("--linux {base}"),
        policies => format!("--linux {base} --policy {}", policies.join(",")),
    }
}

/// Returns the remark for simulated runs of `version`.
pub(crate) fn remark(version: Version) -> String {
    let gaps = GAPS.iter().filter(|gap| gap.is_of(version)).map(|gap| gap.what);
    let gaps = gaps.collect::<Vec<_>>().join("; ");
    let gaps = if gaps.is_empty() { String::new() } else { format!(" Not modelled: {gaps}.") };
    format!(
        "Policies as in Linux {version} ({}), where an arm does not choose others.{gaps}",
        policies_in(version)
    )
}

/// Returns the description of the running kernel: its policies by its version, and the simulated
/// runs to compare it with. `None` if this computer does not report a version of Linux.
pub fn running_kernel() -> Option<String> {
    let release = release()?;
    Version::of_release(&release).map(|version| label(&release, version))
}

/// Returns the description of a kernel with a release string and its version.
fn label(release: &str, version: Version) -> String {
    format!(
        "Linux {release} has {} by its version; compare it with simulated runs with {}",
        policies_in(version),
        simulated_as(version)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const V6_12: Version = Version::new(6, 12);
    const V6_18: Version = Version::new(6, 18);

    fn arm(choices: &[(&'static str, &'static str)]) -> Arm {
        let mut arm = Arm::default();
        choices.iter().for_each(|(key, policy)| arm.choose(key, policy));
        arm
    }

    #[test]
    fn an_unknown_version_is_refused_with_the_list() {
        assert_eq!(linux_version("6.12").ok(), Some(V6_12));
        let why = linux_version("6.2").expect_err("it is none").to_string();
        assert!(why.starts_with("there is no Linux version named `6.2`"), "{why}");
        assert!(why.ends_with("(known: 5.10, 5.15, 6.1, 6.12, 6.18)"), "{why}");
    }

    #[test]
    fn an_arm_has_a_versions_policies_except_its_own() {
        let of = arm(&[("lru", "lazy"), ("unmap", "stock")]).as_of(V6_12);
        let of = ["lru", "unmap", "vma-locks", "exit"].map(|key| of.chosen(key));
        assert_eq!(of, [Some("lazy"), Some("stock"), Some("faults"), Some("stock")]);
    }

    /// The reaper's walk in reverse order was merged for 6.18: there the arm that chooses the old
    /// walk is another version, and the one that chooses the new walk is the kernel.
    #[test]
    fn the_reaper_of_one_version_is_not_that_of_another() {
        let [stock, posted, claims] =
            ["stock", "posted", "claims"].map(|exit| arm(&[("exit", exit)]));
        let is = |version| [&stock, &posted, &claims].map(|arm| arm.is_linux(version));
        assert_eq!(is(V6_12), [true, false, false]);
        assert_eq!(is(V6_18), [false, true, false]);
        let other = |version| {
            [&stock, &posted, &claims].map(|arm| arm.of_another_version(version).is_some())
        };
        assert_eq!(other(V6_12), [false, true, false]);
        assert_eq!(other(V6_18), [true, false, false]);
        let why = stock.of_another_version(V6_18).expect("it is old");
        assert_eq!(why, OtherVersion { chosen: ("exit", "stock"), has: "posted" });
    }

    #[test]
    fn a_release_leads_to_the_row_of_the_simulated_table() {
        let of = |release: &str| label(release, Version::of_release(release).expect("a version"));
        assert_eq!(
            of("6.18.44-fc-v782"),
            "Linux 6.18.44-fc-v782 has bulk=whole, exit=posted by its version; compare it with \
             simulated runs with --linux 6.18"
        );
        assert!(of("6.12.63+deb12").ends_with(" with --linux 6.12"));
        let newer = of("7.0.1");
        assert!(newer.ends_with(" --linux 6.18 --policy bulk=stock"), "{newer}");
        let between = of("6.16.0");
        assert!(
            between.ends_with(" --linux 6.12 --policy broadcast=stock,unmap=stock"),
            "{between}"
        );
        assert!(of("5.4.0").contains("high=batches"));
    }

    #[test]
    fn what_a_version_has_and_the_model_has_not_is_said() {
        let old = remark(Version::new(5, 10));
        assert!(old.contains("Linux 5.10 (high=batches, "), "{old}");
        assert!(old.contains("Not modelled: one LRU lock for all"), "{old}");
        assert!(!remark(V6_12).contains("Not modelled"));
    }
}
