//! Kernels from Debian's archive, fetched by its own tools, which check signatures. Nothing is
//! installed. A package is kept in the user's cache, as the archive removes old ones.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

/// The name of the kernels for virtual machines.
const FLAVOUR: &str = "-cloud-amd64";
/// The packages that may have the image; since Linux 7 the first.
const PACKAGES: [&str; 2] = ["linux-binary-", "linux-image-"];
/// Suites with other kernels than those of this computer's release.
const SUITES: [&str; 5] = ["bookworm", "bookworm-backports", "trixie", "trixie-backports", "sid"];
const ARCHIVE: &str = "http://deb.debian.org/debian";
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Returns the path of the newest package of a version, such as `6.12`.
///
/// # Errors
/// Why there is none.
pub(super) fn package(version: &str, tell: &dyn Fn(&str)) -> Result<PathBuf, String> {
    let is_version = |c: char| c.is_ascii_alphanumeric() || ".+~-".contains(c);
    if !version.starts_with(|c: char| c.is_ascii_digit()) || !version.chars().all(is_version) {
        return Err(format!("debian:{version}: give a version, such as debian:6.12"));
    }
    let cache = cache()?;
    // A version that was fetched stays what it is: results are compared.
    if let Some(kept) = kept(&cache, version) {
        return Ok(kept);
    }
    tell(&format!("fetching the kernel {version} of Debian"));
    let why = match fetched(&[], &cache, version) {
        Ok(path) => return Ok(path),
        Err(why) => why,
    };
    let options = own_lists(&cache, tell).map_err(|own| format!("{why}; {own}"))?;
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    fetched(&options, &cache, version)
}

/// Returns the folder with kernels, which is created.
fn cache() -> Result<PathBuf, String> {
    let given = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let caches = given("XDG_CACHE_HOME").or_else(|| Some(given("HOME")?.join(".cache")));
    let folder = caches.unwrap_or_else(env::temp_dir).join("mmscale").join("kernels");
    fs::create_dir_all(&folder)
        .map_err(|why| format!("cannot create {}: {why}", folder.display()))?;
    Ok(folder)
}

/// Returns the newest package of a version in a folder.
fn kept(folder: &Path, version: &str) -> Option<PathBuf> {
    let names = fs::read_dir(folder).ok()?.flatten();
    let names: Vec<String> =
        names.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let packages: Vec<&str> = names
        .iter()
        .filter(|name| name.ends_with(".deb"))
        .filter_map(|name| name.split('_').next())
        .collect();
    let package = newest(&packages, version)?;
    let name = names.iter().find(|name| name.split('_').next() == Some(package))?;
    Some(folder.join(name))
}

/// Downloads the newest package of a version. `options` are those of apt.
fn fetched(options: &[&str], cache: &Path, version: &str) -> Result<PathBuf, String> {
    let mut listed = String::new();
    for package in PACKAGES {
        let prefix = format!("{package}{version}");
        listed += &output("apt-cache", &[options, &["pkgnames", &prefix]].concat(), cache)?;
    }
    let listed: Vec<&str> = listed.lines().collect();
    let package = newest(&listed, version)
        .ok_or_else(|| format!("apt knows no kernel {version}*{FLAVOUR} of Debian"))?;
    // Elsewhere first: a download that is cut off is never taken for a package.
    let folder =
        tempfile::tempdir_in(cache).map_err(|why| format!("{}: {why}", cache.display()))?;
    output("apt-get", &[options, &["download", "--quiet", package]].concat(), folder.path())?;
    let entries = fs::read_dir(folder.path()).map_err(|why| why.to_string())?;
    let file = entries.flatten().next().ok_or_else(|| format!("apt-get got no {package}"))?;
    let path = cache.join(file.file_name());
    fs::rename(file.path(), &path).map_err(|why| format!("{}: {why}", path.display()))?;
    Ok(path)
}

/// Returns the options of apt for lists of its own, with the suites of all releases.
fn own_lists(cache: &Path, tell: &dyn Fn(&str)) -> Result<Vec<String>, String> {
    if !Path::new(KEYS).exists() {
        return Err(format!("and {KEYS} is missing: apt-get install debian-archive-keyring"));
    }
    let folder = cache.join("apt");
    let write = |why: std::io::Error| format!("{}: {why}", folder.display());
    fs::create_dir_all(folder.join("lists/partial")).map_err(write)?;
    fs::create_dir_all(folder.join("cache/archives/partial")).map_err(write)?;
    let line = |suite: &&str| format!("deb [signed-by={KEYS}] {ARCHIVE} {suite} main\n");
    fs::write(folder.join("sources.list"), SUITES.iter().map(line).collect::<String>())
        .map_err(write)?;
    let folder = folder.display();
    let options = [
        "-o".to_owned(),
        format!("Dir::Etc::sourcelist={folder}/sources.list"),
        "-oDir::Etc::sourceparts=-".to_owned(),
        format!("-oDir::State::lists={folder}/lists"),
        format!("-oDir::Cache={folder}/cache"),
    ];
    tell("reading the lists of packages of Debian");
    let call: Vec<&str> = options.iter().map(String::as_str).chain(["update", "--quiet"]).collect();
    output("apt-get", &call, cache)?;
    Ok(options.to_vec())
}

/// The newest of some packages whose version begins with this one, by the numbers in their names.
fn newest<'a>(packages: &[&'a str], version: &str) -> Option<&'a str> {
    let version_of = |name: &str| -> Option<String> {
        PACKAGES
            .iter()
            .find_map(|first| name.strip_prefix(first)?.strip_prefix(version))
            .map(str::to_owned)
    };
    let is_meant = |name: &&&str| {
        let Some(rest) = version_of(name) else { return false };
        // `6.1` is not `6.12`; the name of a version alone is that of a package without files.
        name.ends_with(FLAVOUR) && rest.starts_with(['.', '+', '-']) && rest != FLAVOUR
    };
    let key = |name: &&&str| {
        let numbers = name.split(|c: char| !c.is_ascii_digit());
        let numbers: Vec<u64> = numbers.filter_map(|word| word.parse().ok()).collect();
        (numbers, name.starts_with(PACKAGES[0]))
    };
    packages.iter().filter(is_meant).max_by_key(key).copied()
}

/// Runs a command and returns what it prints.
fn output(program: &str, args: &[&str], folder: &Path) -> Result<String, String> {
    let mut command = Command::new(program);
    command.args(args).current_dir(folder).stdin(Stdio::null());
    let output = command.output().map_err(|why| {
        format!("cannot run {program} ({why}): without apt, give the file of a kernel")
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rfind(|line| !line.is_empty()).unwrap_or("no message");
    Err(format!("{program} failed: {last}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTED: [&str; 9] = [
        "linux-image-6.1.0-9-cloud-amd64",
        "linux-image-6.1.0-56-cloud-amd64",
        "linux-image-6.1.0-56-cloud-amd64-dbg",
        "linux-image-6.12-cloud-amd64",
        "linux-image-6.12.117+deb12-cloud-amd64",
        "linux-image-6.12.9+deb12-cloud-amd64",
        "linux-image-7.3.4+deb13-cloud-amd64",
        "linux-binary-7.3.4+deb13-cloud-amd64",
        "linux-image-6.1.0-56-rt-amd64",
    ];

    #[test]
    fn the_newest_of_a_version_is_chosen() {
        let newest = |version| newest(&LISTED, version);
        assert_eq!(newest("6.1"), Some("linux-image-6.1.0-56-cloud-amd64"));
        assert_eq!(newest("6.12"), Some("linux-image-6.12.117+deb12-cloud-amd64"));
        assert_eq!(newest("6.12.9"), Some("linux-image-6.12.9+deb12-cloud-amd64"));
        assert_eq!(newest("7.3"), Some("linux-binary-7.3.4+deb13-cloud-amd64"));
        assert_eq!(newest("5.10"), None);
    }

    #[test]
    fn only_whole_packages_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let name = "linux-image-6.1.0-56-cloud-amd64_6.1.192-1_amd64.deb";
        fs::write(folder.path().join(name), "").unwrap();
        fs::write(folder.path().join("linux-image-6.1.0-99-cloud-amd64_6.1_amd64.deb.part"), "")
            .unwrap();
        assert_eq!(kept(folder.path(), "6.1"), Some(folder.path().join(name)));
        assert_eq!(kept(folder.path(), "6.12"), None);
    }

    #[test]
    fn a_version_is_no_option_and_no_path() {
        for wrong in ["", "--help", "../6.1", "6.1;x", "latest"] {
            let why = package(wrong, &|_| ()).unwrap_err();
            assert!(why.contains("give a version"), "{why}");
        }
    }
}
