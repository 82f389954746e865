//! `cargo xtask dist`: the files of a release, in `target/dist`.
//!
//! One static binary is built, and packed in three ways: an archive with its man pages and
//! completions, a package for Debian (cargo-deb), and a wheel (maturin). Next to them are the
//! sources, a list of all crates in the binary (CycloneDX), and the SHA-256 sums of all of that. A
//! tool that is not installed is named, and its file is left out.

mod sums;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The package of the binary.
const PACKAGE: &str = "mmscale-cli";

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
    dist.binary()?;
    let made = [
        ("archive", dist.archive()),
        ("deb", dist.deb()),
        ("wheel", dist.wheel()),
        ("sbom", dist.sbom()),
        ("sources", dist.sources()),
    ];
    let left_out = made
        .into_iter()
        .filter_map(|(name, made)| made.err().map(|why| format!("left out: {name}: {why}")));
    let mut lines = sums::write(&dist.out)?;
    lines.extend(left_out);
    Ok(format!("dist: {}\n{}", dist.out.display(), lines.join("\n")))
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
        let archive = self.out.join(format!("{name}.tar.gz"));
        let parent = folder.parent().expect("it was joined");
        let mut tar = self.command("tar");
        // Equal contents give an equal archive.
        tar.args(["--sort=name", "--owner=0", "--group=0", "--mtime=@0", "-czf"]);
        done(tar.env("GZIP", "-n").arg(archive).arg("-C").arg(parent).arg(&name))
    }

    fn deb(&self) -> Result<(), String> {
        self.need("cargo-deb", &["--version"], "cargo install cargo-deb --locked")?;
        let mut deb = self.command(env!("CARGO"));
        deb.args(["deb", "--no-build", "--no-strip", "-p", PACKAGE, "--target", &self.triple]);
        done(deb.arg("--output").arg(&self.out))
    }

    fn wheel(&self) -> Result<(), String> {
        self.need("maturin", &["--version"], "pip install maturin")?;
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
        // maturin is a program of Python.
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
        let name = format!("mmscale-{}-sources", self.version);
        let mut git = self.command("git");
        git.args(["archive", "--format=tar.gz", &format!("--prefix={name}/"), "-o"]);
        done(git.arg(self.out.join(format!("{name}.tar.gz"))).arg("HEAD"))
    }

    fn need(&self, program: &str, args: &[&str], how: &str) -> Result<(), String> {
        said(program, args).map(|_| ()).map_err(|_| format!("{program} is not installed: {how}"))
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

/// Runs a command.
fn done(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|why| format!("cannot run {command:?}: {why}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?} failed")) }
}
