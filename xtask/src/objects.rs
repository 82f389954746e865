//! `cargo xtask objects`: compiles what is kept in the repository in its compiled form, so that a
//! build needs no compiler of C: the BPF programs that observe the live kernel, and the plugins of
//! QEMU. Checks that each corresponds to its source.

use sha2::{Digest, Sha256};
use std::fs;
use std::path::Path;
use std::process::Command;

/// A compiled file.
struct Object {
    source: &'static str,
    /// The headers that it includes.
    headers: &'static [&'static str],
    object: &'static str,
    /// Compiler version, flags and hashes, one `key: value` per line.
    sum: &'static str,
    flags: &'static [&'static str],
}

const PLUGIN_HEADERS: &[&str] = &["crates/vm/plugin/kernel.h"];
/// The C library of a plugin is that of QEMU's process.
const PLUGIN_FLAGS: &[&str] = &[
    "-target",
    "x86_64-linux-gnu",
    "-std=gnu11",
    "-O2",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-shared",
    "-fPIC",
    "-fvisibility=hidden",
    "-nostdlib",
    "-Wl,--build-id=none",
];

const OBJECTS: [Object; 3] = [
    Object {
        source: "crates/linux/bpf/watch.bpf.c",
        headers: &[],
        object: "crates/linux/bpf/watch.bpf.o",
        sum: "crates/linux/bpf/watch.bpf.sum",
        flags: &["-target", "bpf", "-O2", "-g", "-Wall", "-Werror", "-mcpu=v3", "-c"],
    },
    Object {
        source: "crates/vm/plugin/instructions.c",
        headers: PLUGIN_HEADERS,
        object: "crates/vm/plugin/instructions.so",
        sum: "crates/vm/plugin/instructions.sum",
        flags: PLUGIN_FLAGS,
    },
    Object {
        source: "crates/vm/plugin/operations.c",
        headers: PLUGIN_HEADERS,
        object: "crates/vm/plugin/operations.so",
        sum: "crates/vm/plugin/operations.sum",
        flags: PLUGIN_FLAGS,
    },
];

/// Version suffixes to try, starting with the plain name.
const VERSIONS: [&str; 9] = ["", "-14", "-15", "-16", "-17", "-18", "-19", "-20", "-21"];

/// A compiler with the tool that strips debugging information.
struct Tools {
    clang: String,
    strip: String,
    version: String,
}

/// Returns the first compiler that supports BPF, with its `llvm-strip`; only `version` if it is
/// given.
fn tools(version: Option<&str>) -> Option<Tools> {
    VERSIONS.iter().find_map(|suffix| {
        let (clang, strip) = (format!("clang{suffix}"), format!("llvm-strip{suffix}"));
        let said = Command::new(&clang).arg("--version").output().ok()?;
        let said = String::from_utf8_lossy(&said.stdout).lines().next()?.to_owned();
        let targets = Command::new(&clang).arg("--print-targets").output().ok()?;
        let bpf = String::from_utf8_lossy(&targets.stdout).contains(" bpf ");
        let strips = Command::new(&strip).arg("--version").output().is_ok();
        let meant = version.is_none_or(|version| version == said);
        (bpf && strips && meant).then_some(Tools { clang, strip, version: said })
    })
}

/// Runs a command. Returns its output if it failed.
fn done(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|why| format!("cannot run {command:?}: {why}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?} failed:\n{}", String::from_utf8_lossy(&output.stderr)))
}

/// Returns the SHA-256 in hexadecimal digits. It reveals a change of one file alone; an object and
/// a sum that were replaced together are revealed only by compiling again.
fn sum_of(path: &Path) -> Result<String, String> {
    let bytes = fs::read(path).map_err(|why| format!("cannot read {}: {why}", path.display()))?;
    Ok(Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect())
}

impl Object {
    fn compile(&self, root: &Path, tools: &Tools, to: &Path) -> Result<(), String> {
        // Makes the object independent of the repository's path.
        let map = format!("-ffile-prefix-map={}=.", root.display());
        let with_names = to.with_extension("full");
        done(
            Command::new(&tools.clang)
                .current_dir(root)
                .args(self.flags)
                .arg(map)
                .args([self.source, "-o"])
                .arg(&with_names),
        )?;
        done(Command::new(&tools.strip).arg("-g").arg(&with_names).arg("-o").arg(to))?;
        fs::remove_file(&with_names).map_err(|why| format!("{}: {why}", with_names.display()))
    }

    fn sums(&self, root: &Path, version: &str) -> Result<String, String> {
        let (source, object) = (sum_of(&root.join(self.source))?, sum_of(&root.join(self.object))?);
        let flags = self.flags.join(" ");
        let headers = self
            .headers
            .iter()
            .map(|header| sum_of(&root.join(header)).map(|sum| format!("header: {sum}\n")));
        let headers = headers.collect::<Result<String, _>>()?;
        Ok(format!(
            "clang: {version}\nflags: {flags}\nsource: {source}\n{headers}object: {object}\n"
        ))
    }

    fn build(&self, root: &Path, tools: &Tools) -> Result<(), String> {
        self.compile(root, tools, &root.join(self.object))?;
        let text = self.sums(root, &tools.version)?;
        fs::write(root.join(self.sum), text)
            .map_err(|why| format!("cannot write {}: {why}", self.sum))
    }

    fn check(&self, root: &Path) -> Result<String, String> {
        let Self { source, object, sum, .. } = self;
        let noted = fs::read_to_string(root.join(sum)).map_err(|why| format!("{sum}: {why}"))?;
        let version =
            noted.lines().find_map(|line| line.strip_prefix("clang: ")).unwrap_or("unknown");
        if self.sums(root, version)? != noted {
            return Err(format!(
                "{object} was not compiled from {source}: run `cargo xtask objects`"
            ));
        }
        let Some(tools) = tools(Some(version)) else {
            return Ok(format!(
                "objects: hashes of {object} are equal; compiling again was skipped, as {version} \
                 is not installed"
            ));
        };
        let folder = tempfile::tempdir().map_err(|why| format!("cannot create a folder: {why}"))?;
        let again = folder.path().join("again.o");
        self.compile(root, &tools, &again)?;
        if sum_of(&again)? == sum_of(&root.join(object))? {
            Ok(format!("objects: {object} is equal to {source} compiled with {version}"))
        } else {
            Err(format!(
                "{object} differs from {source} compiled with {version}: run `cargo xtask objects`"
            ))
        }
    }
}

/// Compiles the objects, and records version, flags and hashes.
pub fn build(root: &Path) -> Result<String, String> {
    let tools = tools(None).ok_or(
        "no clang that supports BPF, or no llvm-strip of its version: install both (on Debian: \
         apt-get install clang llvm)",
    )?;
    OBJECTS.iter().try_for_each(|object| object.build(root, &tools))?;
    Ok(format!("objects: compiled with {}", tools.version))
}

/// Compares each object and its source with the recorded hashes, and compiles it again if the same
/// compiler is installed. Returns what was checked.
pub fn check(root: &Path) -> Result<String, String> {
    let checked: Vec<String> =
        OBJECTS.iter().map(|object| object.check(root)).collect::<Result<_, _>>()?;
    Ok(checked.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERSION: &str = "no such clang version 0";

    /// Returns a folder with a source, an object and their sums, for a compiler that does not
    /// exist.
    fn recorded(object: &Object) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir_all(root.join(object.object).parent().unwrap()).unwrap();
        fs::write(root.join(object.source), "abc").unwrap();
        for header in object.headers {
            fs::write(root.join(header), "header").unwrap();
        }
        fs::write(root.join(object.object), "object").unwrap();
        fs::write(root.join(object.sum), object.sums(root, VERSION).unwrap()).unwrap();
        folder
    }

    #[test]
    fn sums_are_those_of_the_standard() {
        let folder = recorded(&OBJECTS[0]);
        // FIPS 180-4's first example.
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sum_of(&folder.path().join(OBJECTS[0].source)).unwrap(), abc);
    }

    #[test]
    fn a_changed_object_or_source_is_found_without_a_compiler() {
        for object in &OBJECTS {
            let folder = recorded(object);
            let said = object.check(folder.path()).unwrap();
            assert!(said.contains("skipped, as no such clang"), "{said}");
            for (file, before) in [(object.object, "object"), (object.source, "abc")] {
                let file = folder.path().join(file);
                fs::write(&file, format!("{before}!")).unwrap();
                let why = object.check(folder.path()).unwrap_err();
                assert!(why.contains("was not compiled from"), "{why}");
                fs::write(&file, before).unwrap();
            }
            assert!(object.check(folder.path()).is_ok());
        }
    }
}
