//! `cargo xtask dist`: the files of a release, in `target/dist`.
//!
//! One static binary is built, and packed in three ways: an archive with its man pages and
//! completions, a package for Debian (cargo-deb), and a wheel (maturin). Next to them are the
//! sources, the crates as crates.io takes them, a list of all crates in the binary (CycloneDX), and
//! the SHA-256 sums of all of that. A tool that is not installed is named before the build, and its
//! files are left out.

mod sums;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::pages;

/// The package of the binary.
const PACKAGE: &str = "mmscale";

/// The tools other than cargo, the lowest major version, and how to get each.
const TOOLS: [(&str, u32, &str); 5] = [
    // Earlier versions cannot read a workspace with `resolver = "3"`.
    ("cargo-deb", 3, "cargo install cargo-deb --locked"),
    ("maturin", 1, "pip install maturin"),
    ("python3", 3, "install Python 3.10 or later"),
    ("git", 2, "install git"),
    ("tar", 1, "install GNU tar"),
];

/// A release that is being made.
struct Dist<'a> {
    root: &'a Path,
    /// The folder of the files.
    out: PathBuf,
    /// The folder of build products.
    target: PathBuf,
    /// The target triple.
    triple: String,
    version: String,
}

/// Makes all files that this computer has the tools for.
pub fn run(root: &Path) -> Result<String, String> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    let out = target.join("dist");
    let _ = fs::remove_dir_all(&out);
    fs::create_dir_all(&out).map_err(|why| format!("cannot create {}: {why}", out.display()))?;
    let (triple, version) = (triple()?, version(root)?);
    let dist = Dist { root, out, target, triple, version };
    // The build takes minutes.
    let missing = TOOLS.iter().filter_map(|(program, ..)| need(program).err());
    missing.for_each(|why| eprintln!("dist: {why}"));
    dist.binary()?;
    pages::write(root)?;
    let made = [
        ("archive", dist.archive()),
        ("deb", dist.deb()),
        ("wheel", dist.wheel()),
        ("sbom", dist.sbom()),
        ("sources", dist.sources()),
        ("crates", dist.crates()),
    ];
    let left_out = made
        .into_iter()
        .filter_map(|(name, made)| made.err().map(|why| format!("left out: {name}: {why}")));
    let left_out: Vec<String> = left_out.collect();
    let lines = [sums::write(&dist.out)?, left_out.clone()].concat();
    let told = format!("{}\n{}", dist.out.display(), lines.join("\n"));
    if left_out.is_empty() { Ok(format!("dist: {told}")) } else { Err(told) }
}

/// Returns the target of a static binary: musl where its standard library is installed, else glibc
/// with `+crt-static`.
fn triple() -> Result<String, String> {
    let host = said("rustc", &["-vV"])?;
    let host = host.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.ok_or("rustc does not name its host")?;
    let musl = host.replace("-gnu", "-musl");
    let folder = said("rustc", &["--print", "target-libdir", "--target", &musl]);
    let installed = folder.is_ok_and(|folder| Path::new(folder.trim()).is_dir());
    Ok(if installed { musl } else { host.to_owned() })
}

/// A package of the workspace.
struct Member {
    name: String,
    published: bool,
}

fn members(root: &Path) -> Result<Vec<Member>, String> {
    let manifest = root.join("Cargo.toml").display().to_string();
    let args = ["metadata", "--no-deps", "--format-version", "1", "--manifest-path", &manifest];
    let found = said(env!("CARGO"), &args)?;
    let found: serde_json::Value = serde_json::from_str(&found).map_err(|why| why.to_string())?;
    let packages = found["packages"].as_array().ok_or("cargo names no packages")?;
    let of = |package: &serde_json::Value| Member {
        name: package["name"].as_str().unwrap_or_default().to_owned(),
        published: package["publish"].is_null(),
    };
    Ok(packages.iter().map(of).collect())
}

fn version(root: &Path) -> Result<String, String> {
    let text = fs::read_to_string(root.join("Cargo.toml")).map_err(|why| why.to_string())?;
    let manifest: toml::Value = toml::from_str(&text).map_err(|why| why.to_string())?;
    let version = manifest["workspace"]["package"]["version"].as_str();
    Ok(version.ok_or("the workspace has no version")?.to_owned())
}

impl Dist<'_> {
    /// Returns a command in the root, with the flags of a static binary. All builds have the same
    /// flags, so that crates are compiled once.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.root).stdin(Stdio::null());
        command.env("RUSTFLAGS", "-C target-feature=+crt-static");
        command.env("CARGO_PROFILE_RELEASE_STRIP", "symbols");
        // Takes minutes longer than the build from sources; the program is somewhat faster.
        command.env("CARGO_PROFILE_RELEASE_LTO", "thin");
        command.env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "4");
        command.env("CARGO_TARGET_DIR", &self.target);
        command
    }

    fn built(&self) -> PathBuf {
        self.target.join(&self.triple).join("release/mmscale")
    }

    fn binary(&self) -> Result<(), String> {
        let args = ["build", "--release", "--locked", "-p", PACKAGE, "--bin", "mmscale"];
        done(self.command(env!("CARGO")).args(args).args(["--target", &self.triple]))
    }

    /// Packs binary, pages, completions and licences.
    fn archive(&self) -> Result<(), String> {
        let name = format!("mmscale-{}-{}", self.version, self.triple);
        let folder = self.target.join("dist-archive").join(&name);
        let _ = fs::remove_dir_all(&folder);
        let failed = |why: std::io::Error| format!("cannot write {}: {why}", folder.display());
        fs::create_dir_all(&folder).map_err(failed)?;
        fs::copy(self.built(), folder.join("mmscale")).map_err(failed)?;
        for file in ["README.md", "CAVEATS.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"] {
            fs::copy(self.root.join(file), folder.join(file)).map_err(failed)?;
        }
        for kind in ["man", "completions"] {
            done(self.command("cp").args(["-r", &format!("packaging/{kind}")]).arg(&folder))?;
        }
        let parent = folder.parent().expect("it was joined");
        done(self.tar(&name, parent)?.arg(&name))
    }

    /// Returns a command that packs files of a folder, which are to be named. Equal files give an
    /// equal archive.
    fn tar(&self, name: &str, folder: &Path) -> Result<Command, String> {
        need("tar")?;
        let mut tar = self.command("tar");
        // A pipe has no name and time, so that none is in the archive.
        tar.args(["--sort=name", "--owner=0", "--group=0", "--mtime=@0", "-czf"]);
        tar.arg(self.out.join(format!("{name}.tar.gz"))).arg("-C").arg(folder);
        Ok(tar)
    }

    fn deb(&self) -> Result<(), String> {
        need("cargo-deb")?;
        let mut deb = self.command(env!("CARGO"));
        deb.args(["deb", "--no-build", "--no-strip", "-p", PACKAGE, "--target", &self.triple]);
        done(deb.arg("--output").arg(&self.out))
    }

    fn wheel(&self) -> Result<(), String> {
        need("maturin")?;
        let mut wheel = self.command("maturin");
        wheel.current_dir(self.root.join("python"));
        wheel.args(["build", "--release", "--locked", "--target", &self.triple, "--out"]);
        done(wheel.arg(&self.out))
    }

    /// Copies the list of all crates in the binary, which maturin puts into the wheel as CycloneDX.
    fn sbom(&self) -> Result<(), String> {
        let files = fs::read_dir(&self.out).map_err(|why| why.to_string())?;
        let wheel = files.flatten().map(|file| file.path()).find(|path| has_end(path, "whl"));
        let wheel = wheel.ok_or("it is taken from the wheel, which was left out")?;
        let inside = self.target.join("dist-wheel");
        let _ = fs::remove_dir_all(&inside);
        need("python3")?;
        done(self.command("python3").args(["-m", "zipfile", "-e"]).arg(wheel).arg(&inside))?;
        let list = inside.join(format!("mmscale-{}.dist-info/sboms", self.version));
        let list = list.join(format!("{PACKAGE}.cyclonedx.json"));
        let to = self.out.join(format!("mmscale-{}.cdx.json", self.version));
        let copied = fs::copy(&list, to);
        copied.map(|_| ()).map_err(|why| format!("{} in the wheel: {why}", list.display()))
    }

    /// Packs the sources of the commit: `cargo install --path crates/cli --locked` installs from
    /// them.
    fn sources(&self) -> Result<(), String> {
        need("git")?;
        let name = format!("mmscale-{}-sources", self.version);
        let mut git = self.command("git");
        git.args(["archive", "--format=tar.gz", &format!("--prefix={name}/"), "-o"]);
        done(git.arg(self.out.join(format!("{name}.tar.gz"))).arg("HEAD"))
    }

    /// Packs the crates as `cargo package` makes them from the commit. They are not compiled once
    /// more: `cargo package --workspace` without `--no-verify` does that.
    fn crates(&self) -> Result<(), String> {
        let name = format!("mmscale-{}-crates", self.version);
        let built = self.target.join("package");
        let _ = fs::remove_dir_all(&built);
        let mut package = self.command(env!("CARGO"));
        package.args(["package", "--workspace", "--no-verify", "--locked"]);
        // Of the workspace, only what crates.io takes.
        for own in members(self.root)?.iter().filter(|member| !member.published) {
            package.args(["--exclude", &own.name]);
        }
        done(&mut package)?;
        let mut tar = self.tar(&name, &built)?;
        tar.arg(format!("--transform=s,^,{name}/,"));
        let files = fs::read_dir(&built).map_err(|why| why.to_string())?.flatten();
        let mut files: Vec<PathBuf> = files.map(|file| file.path()).collect();
        files.retain(|path| has_end(path, "crate"));
        files.sort();
        done(tar.args(files.iter().filter_map(|path| path.file_name())))
    }
}

/// Returns whether a file has this extension.
fn has_end(path: &Path, end: &str) -> bool {
    path.extension().is_some_and(|extension| extension == end)
}

/// Returns what a command prints.
fn said(program: &str, args: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output();
    let output = output.map_err(|why| format!("cannot run {program}: {why}"))?;
    if !output.status.success() {
        return Err(format!("{program} failed: {}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns an error with the way to get a tool if it is not installed, or too old.
fn need(program: &str) -> Result<(), String> {
    let tool = TOOLS.iter().find(|(name, ..)| *name == program);
    let (_, lowest, how) = tool.expect("the tools are listed");
    let shown = said(program, &["--version"]);
    let shown = shown.map_err(|_| format!("{program} is not installed: {how}"))?;
    match major(&shown) {
        Some(found) if found < *lowest => Err(format!(
            "{program} has version {}, and {lowest} or later is needed: {how}",
            shown.trim()
        )),
        _ => Ok(()),
    }
}

/// Returns the first number of the version in what a tool prints.
fn major(shown: &str) -> Option<u32> {
    let mut words = shown.split_whitespace().filter_map(|word| word.split_once('.'));
    words.find_map(|(first, _)| first.trim_start_matches('v').parse().ok())
}

/// Runs a command.
fn done(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|why| format!("cannot run {command:?}: {why}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?} failed")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_that_is_missing_is_named_with_the_way_to_get_it() {
        assert_eq!(said("no-such-tool", &["--version"]).unwrap_err().find("cannot run"), Some(0));
        for (program, _, how) in TOOLS {
            assert!(need(program).err().is_none_or(|why| why.ends_with(how)), "{program}");
        }
    }

    #[test]
    fn a_version_is_read_as_tools_print_it() {
        let shown = ["2.12.1\n", "maturin 1.16.0", "git version 2.39.5", "tar (GNU tar) 1.34"];
        assert_eq!(shown.map(major), [2, 1, 2, 1].map(Some));
        assert_eq!(major("unknown"), None);
    }

    #[test]
    fn all_crates_of_the_program_are_published_and_no_others() {
        let members = members(&crate::root()).unwrap();
        let published = |name: &str| members.iter().find(|of| of.name == name).unwrap().published;
        assert!(published(PACKAGE) && published("mmscale-studies"));
        assert!(!published("mmscale-stepped") && !published("xtask"));
    }
}
