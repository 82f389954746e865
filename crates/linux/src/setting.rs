//! Settings of the kernel: their files, the settings that depend on each other, and values that the
//! kernel has accepted.

use std::fs;
use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};

/// Settings that the kernel changes together, from its documentation (admin-guide/sysctl).
struct Coupled {
    keys: &'static [&'static str],
    /// A write to one sets the others to 0, and 0 cannot be written to all of them.
    exclusive: bool,
}

const COUPLED: [Coupled; 5] = [
    Coupled { keys: &["vm.dirty_bytes", "vm.dirty_ratio"], exclusive: true },
    Coupled { keys: &["vm.dirty_background_bytes", "vm.dirty_background_ratio"], exclusive: true },
    Coupled { keys: &["vm.overcommit_kbytes", "vm.overcommit_ratio"], exclusive: true },
    Coupled { keys: &["vm.nr_hugepages", "vm.nr_hugepages_mempolicy"], exclusive: false },
    Coupled {
        keys: &["kernel.watchdog", "kernel.nmi_watchdog", "kernel.soft_watchdog"],
        exclusive: false,
    },
];

const ACTION: &str = "a write to it is an action, not a setting";
const FOR_GOOD: &str = "it cannot be undone before the next boot";
const MANY: &str = "it changes settings of all network interfaces";
/// Settings, or folders of them, that a run does not change.
const REFUSED: [(&str, &str); 11] = [
    ("vm.compact_memory", ACTION),
    ("vm.drop_caches", ACTION),
    ("vm.stat_refresh", ACTION),
    ("kernel.modules_disabled", FOR_GOOD),
    ("kernel.kexec_load_disabled", FOR_GOOD),
    ("kernel.unprivileged_bpf_disabled", FOR_GOOD),
    ("kernel.yama", FOR_GOOD),
    ("net.ipv4.ip_forward", MANY),
    ("net.ipv4.conf.all", MANY),
    ("net.ipv4.conf.default", MANY),
    ("net.ipv6.conf", MANY),
];

/// A setting, by its name with dots, and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Value {
    pub(crate) key: String,
    pub(crate) value: String,
}

/// Returns the file of a setting, whose name has dots or slashes.
fn path_of(key: &str) -> Option<PathBuf> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    if !key.chars().all(plain) || key.contains("..") || key.starts_with('/') {
        return None;
    }
    let path = Path::new("/proc/sys").join(key.replace('.', "/"));
    path.is_file().then_some(path)
}

/// Whether a word is the name of a setting.
pub fn is_sysctl(key: &str) -> bool {
    path_of(key).is_some()
}

/// Returns the canonical name of a setting, with dots; `None` if there is no such setting.
pub(crate) fn name_of(key: &str) -> Option<String> {
    let path = path_of(key)?;
    let below: Vec<_> = path.strip_prefix("/proc/sys").ok()?.iter().collect();
    Some(below.join(std::ffi::OsStr::new(".")).to_str()?.to_owned())
}

/// Returns why a run does not change a setting, if so.
pub(crate) fn refusal(key: &str) -> Option<&'static str> {
    let within = |name: &str| {
        key.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    REFUSED.iter().find(|(name, _)| within(name)).map(|(_, why)| *why)
}

fn coupled(key: &str) -> Option<&'static Coupled> {
    COUPLED.iter().find(|coupled| coupled.keys.contains(&key))
}

/// Returns a setting with those that the kernel changes together with it, always in the same order.
pub(crate) fn together(key: &str) -> Vec<String> {
    let keys = coupled(key).map_or(vec![key], |coupled| coupled.keys.to_vec());
    keys.into_iter().filter(|key| is_sysctl(key)).map(str::to_owned).collect()
}

/// Reads the value of a setting.
pub(crate) fn read(key: &str) -> Result<String> {
    let path = path_of(key).ok_or(ErrorKind::NotFound)?;
    let value = fs::read_to_string(path)?.trim_end_matches('\n').to_owned();
    if value.contains('\n') { Err(Error::other("its value has several lines")) } else { Ok(value) }
}

/// Whether two texts are the same value: the kernel separates numbers of a list by tabs.
pub(crate) fn same(a: &str, b: &str) -> bool {
    a.split_whitespace().eq(b.split_whitespace())
}

/// Writes a setting. The kernel may accept it and store another value.
pub(crate) fn write(key: &str, value: &str) -> Result<()> {
    fs::write(path_of(key).ok_or(ErrorKind::NotFound)?, value)
}

/// Reads several settings.
pub(crate) fn read_all(keys: &[String]) -> Result<Vec<Value>> {
    let one = |key: &String| Ok(Value { key: key.clone(), value: read(key)? });
    keys.iter().map(one).collect()
}

/// Returns the settings whose value has changed.
fn changed(before: &[Value]) -> impl Iterator<Item = &Value> {
    before.iter().filter(|old| !read(&old.key).is_ok_and(|now| same(&now, &old.value)))
}

/// Restores settings and reads them back. A write of one may change others, and may be refused
/// until another one is written, so it is done in several rounds. Returns the first that differs,
/// with the kernel's value.
pub(crate) fn restore(before: &[Value]) -> std::result::Result<(), Value> {
    const ROUNDS: usize = 4;
    for _ in 0..ROUNDS {
        for old in before {
            if !read(&old.key).is_ok_and(|now| same(&now, &old.value)) {
                // Only the value that is read back counts.
                let _ = write(&old.key, &old.value);
            }
        }
        if changed(before).next().is_none() {
            return Ok(());
        }
    }
    match changed(before).next() {
        None => Ok(()),
        Some(old) => {
            let value = read(&old.key).unwrap_or_else(|why| why.to_string());
            Err(Value { key: old.key.clone(), value })
        }
    }
}

/// Checks that settings can be restored, before any of them is changed: the kernel must accept
/// their present values.
pub(crate) fn can_restore(before: &[Value]) -> Result<()> {
    let zero = |old: &Value| old.value.trim() == "0";
    let exclusive =
        before.iter().any(|old| coupled(&old.key).is_some_and(|coupled| coupled.exclusive));
    if exclusive && before.iter().all(zero) {
        let keys: Vec<&str> = before.iter().map(|old| old.key.as_str()).collect();
        let what = format!("{} are all 0, to which the kernel does not return", keys.join(" and "));
        return Err(Error::other(what));
    }
    for old in before.iter().filter(|old| before.len() == 1 || !zero(old)) {
        match write(&old.key, &old.value) {
            // One of several settings may be read-only here: only the values that are read back
            // count.
            Err(why) if before.len() == 1 || why.kind() != ErrorKind::PermissionDenied => {
                return Err(why);
            }
            _ => {}
        }
    }
    restore(before).map_err(|left| Error::other(format!("the kernel stored {}", left.value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_settings_of_the_kernel_are_settings() {
        assert!(is_sysctl("kernel.pid_max"));
        assert!(is_sysctl("vm/swappiness"));
        for wrong in ["", "vm", "vm.no_such_thing", "../../etc/passwd", "/etc/passwd", "a b"] {
            assert!(!is_sysctl(wrong), "{wrong}");
        }
        assert_eq!(name_of("vm/swappiness"), name_of("vm.swappiness"));
    }

    #[test]
    fn settings_that_the_kernel_changes_together_are_known() {
        assert_eq!(together("vm.dirty_bytes"), together("vm.dirty_ratio"));
        assert_eq!(together("vm.dirty_ratio"), ["vm.dirty_bytes", "vm.dirty_ratio"]);
        assert_eq!(together("vm.swappiness"), ["vm.swappiness"]);
    }

    #[test]
    fn what_cannot_be_restored_is_refused() {
        assert!(refusal("vm.drop_caches").is_some() && refusal("net.ipv6.conf.lo.mtu").is_some());
        assert!(refusal("vm.swappiness").is_none() && refusal("kernel.yamaha").is_none());
        let zero = |key: &str| Value { key: key.to_owned(), value: "0".to_owned() };
        let why = can_restore(&[zero("vm.dirty_bytes"), zero("vm.dirty_ratio")]).unwrap_err();
        assert!(why.to_string().contains("are all 0"), "{why}");
    }

    #[test]
    fn a_value_that_the_kernel_does_not_accept_is_reported() {
        let old = Value { key: "kernel.ostype".to_owned(), value: "Other".to_owned() };
        let left = restore(&[old]).unwrap_err();
        assert_eq!((left.key.as_str(), left.value.as_str()), ("kernel.ostype", "Linux"));
    }

    #[test]
    fn values_of_a_list_are_compared_one_by_one() {
        assert!(same("4\t4 1  7\n", "4 4 1 7") && !same("4 4", "44"));
    }
}
