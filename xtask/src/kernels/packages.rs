//! Kernels of the distribution: packages of Debian, fetched by its own tools, which check their
//! signatures, and unpacked. Nothing is installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The versions that are fetched: Debian 12 boots 6.1, and 6.12 is in its backports.
pub(super) const VERSIONS: [&str; 2] = ["6.1", "6.12"];

/// The name of the kernels for virtual machines.
const FLAVOUR: &str = "-cloud-amd64";

/// Returns the image of the newest kernel of a version, below `folder`.
///
/// # Errors
/// Why there is none.
pub(super) fn image(folder: &Path, version: &str) -> Result<PathBuf, String> {
    let prefix = format!("linux-image-{version}.");
    let listed = output("apt-cache", &["pkgnames", &prefix], folder)?;
    let package = newest(&listed).ok_or_else(|| {
        format!("apt-cache knows no package {prefix}..{FLAVOUR}: run apt-get update")
    })?;
    let image = folder.join(package).with_added_extension("vmlinuz");
    if !image.exists() {
        let unpacked = folder.join("unpacked");
        let _ = fs::remove_dir_all(&unpacked);
        output("apt-get", &["download", "--quiet", package], folder)?;
        let archive = only(folder, &|name| {
            name.starts_with(&format!("{package}_")) && name.ends_with(".deb")
        })?;
        output("dpkg-deb", &["--extract", &archive.to_string_lossy(), "unpacked"], folder)?;
        let found = only(&unpacked.join("boot"), &|name| name.starts_with("vmlinuz-"))?;
        let moved = |why| format!("cannot move {}: {why}", found.display());
        fs::rename(&found, &image).map_err(moved)?;
        // Some hundred megabytes of modules.
        let _ = fs::remove_dir_all(&unpacked);
        let _ = fs::remove_file(&archive);
    }
    Ok(image)
}

/// The newest of some packages, by the numbers in their names.
fn newest(listed: &str) -> Option<&str> {
    let numbers = |name: &&str| -> Vec<u64> {
        name.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect()
    };
    listed.lines().filter(|name| name.ends_with(FLAVOUR)).max_by_key(numbers)
}

/// Returns the only file of a folder whose name is meant.
fn only(folder: &Path, is_meant: &dyn Fn(&str) -> bool) -> Result<PathBuf, String> {
    let entries = fs::read_dir(folder).map_err(|why| format!("{}: {why}", folder.display()))?;
    let meant =
        |path: &PathBuf| path.file_name().is_some_and(|name| is_meant(&name.to_string_lossy()));
    let mut found = entries.flatten().map(|entry| entry.path()).filter(meant);
    found.next().ok_or_else(|| format!("{} lacks the file of the kernel", folder.display()))
}

/// Runs a command in a folder and returns its standard output.
pub(super) fn output(program: &str, args: &[&str], folder: &Path) -> Result<String, String> {
    let ran = Command::new(program).args(args).current_dir(folder).output();
    let ran = ran.map_err(|why| format!("cannot run {program}: {why}"))?;
    if ran.status.success() {
        return Ok(String::from_utf8_lossy(&ran.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&ran.stderr);
    Err(format!("{program} {}: {}", args.join(" "), said.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_kernel_is_the_one_with_the_largest_numbers() {
        let listed = "linux-image-6.1.0-9-cloud-amd64\n\
                      linux-image-6.1.0-56-cloud-amd64\n\
                      linux-image-6.1.0-57-cloud-amd64-dbg\n\
                      linux-image-6.1.0-58-cloud-amd64-unsigned\n\
                      linux-image-6.1.0-59-amd64\n";
        assert_eq!(newest(listed), Some("linux-image-6.1.0-56-cloud-amd64"));
        let tuned = "linux-image-6.12.101+deb12-cloud-amd64\nlinux-image-6.12.99+deb12-cloud-amd64";
        assert_eq!(newest(tuned), Some("linux-image-6.12.101+deb12-cloud-amd64"));
        assert_eq!(newest("linux-image-6.1.0-59-amd64"), None);
    }
}
