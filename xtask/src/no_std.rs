//! Proves that the kernel's crates link without std.
//!
//! Creates a package around `xtask/no_std_probe/` in the target folder and builds it against the
//! crates, with the workspace's lock file. The program has its own panic handler: if any dependency
//! linked std, there would be two handlers, which rustc refuses.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The program's files.
const PROBE: [(&str, &str); 2] = [
    ("main.rs", include_str!("../no_std_probe/main.rs")),
    ("bare.rs", include_str!("../no_std_probe/bare.rs")),
];

/// The crates of a kernel.
const CRATES: [&str; 5] = ["arch", "frames", "mm", "system", "kernel"];

/// A machine without an operating system.
const BARE: &str = "x86_64-unknown-none";

/// Builds and runs the probe. Returns what was done.
///
/// # Errors
/// The failed step, with the compiler's messages.
pub fn check(root: &Path) -> Result<String, String> {
    let package = write_package(root)?;
    let binary = build(&package, None)?;
    let status = Command::new(&binary)
        .status()
        .map_err(|why| format!("starting {}: {why}", binary.display()))?;
    if !status.success() {
        return Err(format!(
            "the probe failed with {status}: the allocator does not work without std"
        ));
    }
    let mut done = format!(
        "no-std: {} link without std; the frame allocator ran on the host",
        CRATES.join(", ")
    );
    if is_installed(BARE) {
        build(&package, Some(BARE))?;
        done += &format!("\nno-std: they also link for {BARE}");
    } else {
        done += &format!(
            "\nno-std: skipped {BARE}, which is not installed: \
             `rustup target add {BARE}`"
        );
    }
    Ok(done)
}

/// Creates the package and returns its folder.
fn write_package(root: &Path) -> Result<PathBuf, String> {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into);
    let package = target.join("no-std").join("probe");
    let say = |why: std::io::Error| format!("writing {}: {why}", package.display());
    fs::create_dir_all(&package).map_err(say)?;
    fs::write(package.join("Cargo.toml"), manifest(root)).map_err(say)?;
    for (name, text) in PROBE {
        fs::write(package.join(name), text).map_err(say)?;
    }
    fs::copy(root.join("Cargo.lock"), package.join("Cargo.lock")).map_err(say)?;
    Ok(package)
}

fn manifest(root: &Path) -> String {
    let mut text = String::from(
        "[package]\nname = \"no-std-probe\"\nedition = \"2024\"\npublish = false\n\
         [workspace]\n\
         [[bin]]\nname = \"no-std-probe\"\npath = \"main.rs\"\ntest = false\n\
         [profile.dev]\npanic = \"abort\"\n\
         [dependencies]\n",
    );
    for krate in CRATES {
        let path = root.join("crates").join(krate);
        text += &format!("mmscale-{krate} = {{ path = {:?} }}\n", path.display().to_string());
    }
    text
}

/// Builds the package, for the host or for `target`. Returns the path of the program.
fn build(package: &Path, target: Option<&str>) -> Result<PathBuf, String> {
    let products = package.with_file_name("target");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.arg("build").arg("--quiet").arg("--target-dir").arg(&products);
    cargo.arg("--manifest-path").arg(package.join("Cargo.toml"));
    cargo.args(target.map(|target| format!("--target={target}")));
    let output = cargo.output().map_err(|why| format!("starting cargo: {why}"))?;
    if !output.status.success() {
        let target = target.unwrap_or("the host");
        return Err(format!("the probe does not build for {target}:\n{}", text_of(&output)));
    }
    Ok(products.join(target.unwrap_or("")).join("debug").join("no-std-probe"))
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
    fn the_probe_begins_like_the_skeleton() {
        let main = PROBE[0].1;
        assert!(main.contains("#![no_std]") && main.contains("#[panic_handler]"));
    }
}
