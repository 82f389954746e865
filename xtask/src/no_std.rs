//! Proves that the kernel's crates link without std, and the frame allocator also without a heap.
//!
//! Creates packages around the programs of `xtask/no_std_probe/` in the target folder and builds
//! them against the crates, with the workspace's lock file. Each has its own panic handler: if any
//! dependency linked std, there would be two handlers, which rustc refuses. `heapless` has no
//! global allocator: if a dependency refers to `alloc`, rustc asks for one.
//!
//! The library for programs in C is built for a bare machine, and linked with its example of a
//! kernel and nothing else.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A program, which is built as a package.
struct Probe {
    name: &'static str,
    /// Its root.
    source: &'static str,
    /// The crates that it links.
    crates: &'static [&'static str],
    /// Whether they have the features that are on by default.
    default_features: bool,
}

/// The machine of all probes.
const BARE_SOURCE: &str = include_str!("../no_std_probe/bare.rs");

const PROBES: [Probe; 2] = [
    Probe {
        name: "no-std",
        source: include_str!("../no_std_probe/main.rs"),
        crates: &["arch", "frames", "mm", "system", "kernel"],
        default_features: true,
    },
    Probe {
        name: "heapless",
        source: include_str!("../no_std_probe/heapless.rs"),
        crates: &["arch", "frames"],
        default_features: false,
    },
];

/// A machine without an operating system.
const BARE: &str = "x86_64-unknown-none";

/// Builds and runs the probes. Returns what was done.
///
/// # Errors
/// The failed step, with the compiler's messages.
pub fn check(root: &Path) -> Result<String, String> {
    let mut done = Vec::new();
    for probe in &PROBES {
        let package = probe.write_package(root)?;
        let binary = probe.build(&package, None)?;
        let status = Command::new(&binary)
            .status()
            .map_err(|why| format!("starting {}: {why}", binary.display()))?;
        if !status.success() {
            return Err(format!("the probe {} failed with {status}", probe.name));
        }
        let (crates, without) = (probe.crates.join(", "), probe.without());
        done.push(format!(
            "no-std: {crates} link without {without}; the frame allocator ran on the host"
        ));
        if is_installed(BARE) {
            probe.build(&package, Some(BARE))?;
            done.push(format!("no-std: they also link for {BARE}"));
        }
    }
    if !is_installed(BARE) {
        done.push(format!(
            "no-std: skipped {BARE}, which is not installed: `rustup target add {BARE}`"
        ));
    } else if cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        let program = link_c(root)?;
        check_c(&program)?;
        done.push("no-std: frames-c links without std, a heap and a C library, and ran".into());
    } else {
        done.push("no-std: skipped frames-c, which runs on Linux for x86-64 only".into());
    }
    Ok(done.join("\n"))
}

/// Builds the library for programs in C without its feature `std`, and links it with the example of
/// a kernel, without a C library. Returns the path of the program.
fn link_c(root: &Path) -> Result<PathBuf, String> {
    let home = target_of(root).join("no-std");
    let (products, program) = (home.join("target"), home.join("kernel"));
    let mut cargo = cargo_build(&products);
    cargo.args(["-p", "mmscale-frames-c", "--lib", "--no-default-features", "--target", BARE]);
    cargo.arg("--manifest-path").arg(root.join("Cargo.toml"));
    finish(&mut cargo, "building frames-c without std")?;
    let (c, start) = (root.join("crates/frames-c"), root.join("xtask/no_std_probe/start.c"));
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-ffreestanding", "-fno-stack-protector"]);
    cc.args(["-nostdlib", "-static", "-no-pie", "-I"]).arg(c.join("include"));
    cc.arg(c.join("examples/kernel.c")).arg(start);
    cc.arg(products.join(BARE).join("debug/libmmscale_frames_c.a")).arg("-o").arg(&program);
    finish(&mut cc, "linking frames-c without a C library")?;
    Ok(program)
}

/// Runs the kernel in C, and once more with a wrong call, whose panic it must print.
fn check_c(program: &Path) -> Result<(), String> {
    let run = |argument: &[&str]| {
        let ran = Command::new(program).args(argument).output();
        ran.map_err(|why| format!("starting {}: {why}", program.display()))
    };
    let fine = run(&[])?;
    if !fine.status.success() {
        return Err(format!("the kernel in C failed with {}", fine.status));
    }
    let wrong = run(&["wrong"])?;
    let said = String::from_utf8_lossy(&wrong.stdout);
    if wrong.status.success() || !said.contains("\npanicked at ") {
        return Err(format!("a wrong call of the kernel in C ended with {}: {said}", wrong.status));
    }
    Ok(())
}

/// The target folder.
fn target_of(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into)
}

/// A build with these products.
fn cargo_build(products: &Path) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--target-dir"]).arg(products);
    cargo
}

/// Runs a command of the compiler.
fn finish(command: &mut Command, what: &str) -> Result<(), String> {
    let output = command.output().map_err(|why| format!("{what}: starting: {why}"))?;
    if output.status.success() { Ok(()) } else { Err(format!("{what}:\n{}", text_of(&output))) }
}

impl Probe {
    /// Returns the name of what the program does not have.
    fn without(&self) -> &'static str {
        if self.default_features { "std" } else { "std and a heap" }
    }

    /// Creates the package and returns its folder.
    fn write_package(&self, root: &Path) -> Result<PathBuf, String> {
        let package = target_of(root).join("no-std").join(self.name);
        let say = |why: std::io::Error| format!("writing {}: {why}", package.display());
        fs::create_dir_all(&package).map_err(say)?;
        fs::write(package.join("Cargo.toml"), self.manifest(root)).map_err(say)?;
        fs::write(package.join("main.rs"), self.source).map_err(say)?;
        fs::write(package.join("bare.rs"), BARE_SOURCE).map_err(say)?;
        fs::copy(root.join("Cargo.lock"), package.join("Cargo.lock")).map_err(say)?;
        Ok(package)
    }

    fn manifest(&self, root: &Path) -> String {
        let mut text = format!(
            "[package]\nname = \"probe-{0}\"\nedition = \"2024\"\npublish = false\n\
             [workspace]\n\
             [[bin]]\nname = \"probe-{0}\"\npath = \"main.rs\"\ntest = false\n\
             [profile.dev]\npanic = \"abort\"\n\
             [dependencies]\n",
            self.name
        );
        for krate in self.crates {
            let path = root.join("crates").join(krate).display().to_string();
            let features = self.default_features;
            text += &format!(
                "mmscale-{krate} = {{ path = {path:?}, default-features = {features} }}\n"
            );
        }
        text
    }

    /// Builds the package, for the host or for `target`. Returns the path of the program.
    fn build(&self, package: &Path, target: Option<&str>) -> Result<PathBuf, String> {
        let products = package.with_file_name("target");
        let mut cargo = cargo_build(&products);
        cargo.arg("--manifest-path").arg(package.join("Cargo.toml"));
        cargo.args(target.map(|target| format!("--target={target}")));
        let to = target.unwrap_or("the host");
        finish(&mut cargo, &format!("building the probe {} for {to}", self.name))?;
        let program = format!("probe-{}", self.name);
        Ok(products.join(target.unwrap_or("")).join("debug").join(program))
    }
}

fn text_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).trim_end().to_owned()
}

/// Returns whether the core library of `target` is installed.
fn is_installed(target: &str) -> bool {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output =
        Command::new(rustc).args(["--print", "target-libdir", "--target", target]).output();
    output.is_ok_and(|output| {
        let folder = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        output.status.success() && folder.is_dir()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The beginning of any probe without std.
    const SKELETON: &str = "#![no_std]\n#![no_main]\n\
        #[panic_handler]\nfn panic(_: &core::panic::PanicInfo<'_>) -> ! {\n    loop {}\n}\n";

    /// Returns the errors of rustc for a program; empty if it compiles.
    fn errors_in(text: &str, name: &str) -> String {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join(name).with_extension("rs");
        fs::write(&file, text).expect("a temporary file");
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let output = Command::new(rustc)
            .args(["--edition=2024", "--crate-type=bin", "-Cpanic=abort", "--emit=metadata", "-o"])
            .arg(file.with_extension("rmeta"))
            .arg(&file)
            .output()
            .expect("rustc starts");
        if output.status.success() { String::new() } else { text_of(&output) }
    }

    #[test]
    fn a_std_that_comes_in_is_caught() {
        assert_eq!(errors_in(SKELETON, "without"), "");
        let errors = errors_in(&format!("{SKELETON}extern crate std;\n"), "with");
        assert!(errors.contains("`panic_impl`"), "{errors}");
    }

    #[test]
    fn an_alloc_that_comes_in_is_caught() {
        let errors = errors_in(&format!("{SKELETON}extern crate alloc;\n"), "heap");
        assert!(errors.contains("no global memory allocator"), "{errors}");
    }

    #[test]
    fn the_probes_begin_like_the_skeleton() {
        for Probe { source, .. } in PROBES {
            assert!(source.contains("#![no_std]") && source.contains("#[panic_handler]"));
        }
        let heapless = PROBES.iter().find(|probe| !probe.default_features);
        assert!(heapless.is_some_and(|probe| !probe.source.contains("\n#[global_allocator]")));
    }
}
