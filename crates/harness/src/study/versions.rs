//! Versions of Linux: the arms that one of them has, and the version of the running kernel.

use super::Arm;
use crate::host::release;
use mmscale_document::LinuxRecord;
use mmscale_mm::policy::Mechanism;
pub use mmscale_mm::versions::{
    GAPS, Gap, HISTORIES, History, Missing, NEWEST, OLDEST, Step, VERSIONS, Version, policies_of,
    unchanged_since,
};
use thiserror::Error;

/// Why a version of Linux cannot be simulated.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum VersionError {
    /// The text is not a version.
    #[error("cannot read the Linux version `{0}`: use two numbers, as in 6.12")]
    Malformed(String),
    /// There was no such release.
    #[error("no release is Linux {0}: any release from {OLDEST} to {NEWEST} is allowed")]
    NoRelease(Version),
    /// The table of changes begins later.
    #[error("Linux {0} is older than the known changes: use {OLDEST} to {NEWEST}")]
    TooOld(Version),
    /// The table of changes ends before.
    #[error(
        "Linux {0} is newer than the known changes: use {OLDEST} to {NEWEST}, or --policy for a \
         change after {NEWEST}"
    )]
    TooNew(Version),
}

/// Returns the version that a name such as `6.12` chooses for a simulated machine.
pub fn linux_version(name: &str) -> Result<Version, VersionError> {
    let malformed = || VersionError::Malformed(name.to_owned());
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if !name.split('.').all(is_number) {
        return Err(malformed());
    }
    match Version::of_release(name).ok_or_else(malformed)? {
        known if known.is_known() => Ok(known),
        old if old < OLDEST => Err(VersionError::TooOld(old)),
        new if new > NEWEST => Err(VersionError::TooNew(new)),
        other => Err(VersionError::NoRelease(other)),
    }
}

/// Returns the version of a simulated run, and the last change of the tables that it has.
pub(crate) fn linux_record(version: Version) -> LinuxRecord {
    let unchanged_since = unchanged_since(version).to_string();
    LinuxRecord { version: version.to_string(), unchanged_since }
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
    let base = version.clamp(OLDEST, NEWEST);
    let of_base = |mechanism: &Mechanism| {
        let mut all = policies_of(base);
        all.find(|(of, _)| of.key == mechanism.key).map_or("", |(_, policy)| policy.name)
    };
    let policies = list(version, of_base);
    if policies.is_empty() {
        return format!("--linux {base}");
    }
    format!("--linux {base} --policy {}", policies.join(","))
}

/// Returns the remark for simulated runs of `version`.
pub(crate) fn remark(version: Version) -> String {
    let gaps = GAPS.iter().filter(|gap| gap.is_of(version)).map(|gap| gap.what);
    let gaps = gaps.collect::<Vec<_>>().join("; ");
    let gaps = if gaps.is_empty() { String::new() } else { format!(" Not modelled: {gaps}.") };
    format!(
        "Policies as in Linux {version} ({}), where an arm does not choose others; the last \
         known change up to it is of {}.{gaps}",
        policies_in(version),
        unchanged_since(version)
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
    fn every_release_of_the_table_can_be_chosen_and_no_other() {
        for (name, minor) in [("6.1", 1), ("6.6", 6), ("6.7", 7), ("6.6.58", 6), ("6.19", 19)] {
            assert_eq!(linux_version(name), Ok(Version::new(6, minor)), "{name}");
        }
        let why = |name| linux_version(name).expect_err("it is refused").to_string();
        assert!(why("4.9").ends_with("older than the known changes: use 5.0 to 7.3"));
        assert!(why("7.4").starts_with("Linux 7.4 is newer than the known changes: use 5.0"));
        assert!(why("5.20").starts_with("no release is Linux 5.20: any release from 5.0 to"));
        for wrong in ["", "6", "six", "6.", "6.12-rc1", "6.x", "-6.1", "6.99999"] {
            assert!(why(wrong).starts_with("cannot read the Linux version `"), "{wrong}");
        }
    }

    #[test]
    fn a_record_names_the_last_change_that_a_version_has() {
        let record = linux_record(Version::new(6, 5));
        assert_eq!((&*record.version, &*record.unchanged_since), ("6.5", "6.4"));
        assert!(remark(Version::new(6, 5)).contains("up to it is of 6.4"));
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
        assert!(of("7.0.1").ends_with(" --linux 7.0"));
        assert!(of("6.16.0").ends_with(" --linux 6.16"));
        assert!(of("5.4.0").ends_with(" --linux 5.4"));
        assert!(of("5.4.0").contains("high=batches"));
    }

    #[test]
    fn what_a_version_has_and_the_model_has_not_is_said() {
        let old = remark(Version::new(5, 10));
        assert!(old.contains("Linux 5.10 (folios=fifteen, high=batches, "), "{old}");
        assert!(old.contains("Not modelled: one LRU lock for all"), "{old}");
        assert!(!remark(V6_12).contains("Not modelled"));
    }
}
