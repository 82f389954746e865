//! The test programs, built once from the copy of the tree with all faults.

use super::tree_copy::TreeCopy;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The suites in ascending order of run time: package and target. A package's own name means its
/// unit tests.
const SUITES: [(&str, &str); 8] = [
    ("arch", "mmscale_arch"),
    ("frames", "mmscale_frames"),
    ("mm", "mmscale_mm"),
    ("frames", "rules"),
    ("mm", "rules"),
    ("sim", "machine"),
    ("interleave", "orders"),
    ("conformance", "cases"),
];

/// Packages whose tests are too slow for `--quick`.
const DEAR: [&str; 2] = ["sim", "conformance"];

/// A test program.
pub(super) struct Suite {
    /// The name in tables.
    pub(super) name: String,
    pub(super) program: PathBuf,
    /// The working directory of the tests, which is the folder of their package.
    pub(super) folder: PathBuf,
    /// The package, without the prefix of all packages.
    pub(super) krate: &'static str,
}

impl Suite {
    /// Returns whether the tests run code of this crate.
    pub(super) fn reaches(&self, krate: &str) -> bool {
        match self.krate {
            "arch" => krate == "arch",
            "frames" => ["arch", "frames"].contains(&krate),
            "conformance" => true,
            _ => krate != "kernel",
        }
    }
    /// Returns the names of the tests.
    ///
    /// # Errors
    /// Fails if the program cannot be started.
    pub(super) fn tests(&self) -> Result<Vec<String>, String> {
        let mut program = Command::new(&self.program);
        program.current_dir(&self.folder).args(["--list", "--format", "terse"]);
        let listed = program.output().map_err(|why| format!("starting {}: {why}", self.name))?;
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        Ok(listed
            .lines()
            .filter_map(|line| line.strip_suffix(": test"))
            .map(str::to_owned)
            .collect())
    }
}

/// Builds the suites of the copy in the folder `target`.
///
/// # Errors
/// The messages of cargo.
pub(super) fn suites(copy: &TreeCopy, target: &Path, quick: bool) -> Result<Vec<Suite>, String> {
    let wanted = |package: &&str| !quick || !DEAR.contains(package);
    let mut packages: Vec<&str> = SUITES.iter().map(|(package, _)| *package).collect();
    packages.sort_unstable();
    packages.dedup();
    packages.retain(wanted);
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(&copy.root).args(["test", "--tests"]).env("CARGO_TARGET_DIR", target);
    // A switch is in parentheses, and not all code of a fault is reached.
    cargo.env("RUSTFLAGS", "-Awarnings");
    // Debug information takes a third of the time of a build.
    cargo.env("CARGO_PROFILE_DEV_DEBUG", "false").env("CARGO_PROFILE_TEST_DEBUG", "false");
    tests(cargo.stderr(Stdio::inherit()), &packages)
}

/// Builds the suites of packages. `cargo`: `cargo test` with what decides how they are built.
///
/// # Errors
/// That they do not build.
fn tests(cargo: &mut Command, packages: &[&str]) -> Result<Vec<Suite>, String> {
    cargo.args(["--no-run", "--message-format=json"]);
    packages.iter().for_each(|package| _ = cargo.arg("-p").arg(format!("mmscale-{package}")));
    let output = cargo.output().map_err(|why| format!("starting cargo: {why}"))?;
    if !output.status.success() {
        return Err("the tests do not build".to_owned());
    }
    let programs = programs(&String::from_utf8_lossy(&output.stdout));
    let mut suites = Vec::new();
    for (package, target) in SUITES.iter().filter(|(package, _)| packages.contains(package)) {
        let found = programs.iter().find(|found| found.is(package, target));
        let found = found.ok_or_else(|| format!("cargo built no tests `{target}` of {package}"))?;
        let name = match *target {
            "rules" | "machine" | "orders" | "cases" => (*package).to_owned(),
            _ => format!("{package} (unit)"),
        };
        let (program, folder) = (found.program.clone(), found.folder.clone());
        suites.push(Suite { name, program, folder, krate: package });
    }
    Ok(suites)
}

/// A test program, as named by cargo.
#[derive(Debug, PartialEq, Eq)]
struct Program {
    folder: PathBuf,
    target: String,
    program: PathBuf,
}

impl Program {
    fn is(&self, package: &str, target: &str) -> bool {
        self.folder.ends_with(package) && self.target == target
    }
}

/// Returns the test programs in cargo's messages.
fn programs(messages: &str) -> Vec<Program> {
    let of = |line: &str| {
        let message: Value = serde_json::from_str(line).ok()?;
        if message["profile"]["test"] != true {
            return None;
        }
        let manifest = Path::new(message["manifest_path"].as_str()?);
        Some(Program {
            folder: manifest.parent()?.to_owned(),
            target: message["target"]["name"].as_str()?.to_owned(),
            program: message["executable"].as_str()?.into(),
        })
    };
    messages.lines().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_programs_are_found_among_messages() {
        let line = r#"{"reason":"compiler-artifact","manifest_path":"a/crates/mm/Cargo.toml",
            "target":{"name":"rules"},"profile":{"test":true},"executable":"t/rules-1"}"#;
        let line = line.replace('\n', "");
        let library = line.replace("\"test\":true", "\"test\":false");
        let found = programs(&format!("{library}\n{line}\nno JSON\n"));
        assert!(matches!(&found[..], [one] if one.is("mm", "rules") && !one.is("mm", "orders")));
    }
}
