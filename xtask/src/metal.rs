//! `cargo xtask metal`: builds the kernel of `testing/metal` and boots it under QEMU, with several
//! numbers of processors, and once more with each fault that it must notice.

use std::fmt::Write as _;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const TARGET: &str = "x86_64-unknown-none";
const QEMU: &str = "qemu-system-x86_64";
/// Numbers of processors if none is given.
const CPUS: [usize; 4] = [1, 2, 4, 8];
/// The most time that a machine may take: twenty times what it takes on two free CPUs.
const LIMIT: Duration = Duration::from_secs(180);
/// The last line of a kernel that found no fault, and the beginning of that of one that did.
const FINE: &str = "metal: fine";
const FAILED: &str = "metal: failed: ";

/// The arguments of the command.
#[derive(Clone, clap::Args)]
pub struct MetalArgs {
    /// Processors of the machines, 1 to 8; 1, 2, 4 and 8 if none is given
    #[arg(long, value_name = "N,..", value_delimiter = ',',
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=8))]
    cpus: Vec<usize>,
}

/// Faults that the kernel makes on request, and what it must say.
const PLANTED: [(&str, &str); 2] = [("double-free", "freed twice"), ("stale", "stale translation")];

/// Returns what the machines said.
///
/// # Errors
/// A tool that is missing to build or boot the kernel; the output of a machine that failed.
pub fn run(root: &Path, args: &MetalArgs) -> Result<String, String> {
    let kernel = build(root)?;
    let cpus = if args.cpus.is_empty() { CPUS.to_vec() } else { args.cpus.clone() };
    let mut done = String::new();
    for &cpus in &cpus {
        let said = boot(&kernel, cpus, "")?;
        if said.lines().last() != Some(FINE) {
            return Err(format!("with {cpus} processors:\n{}", said.trim_end()));
        }
        for line in said.lines().filter(|&line| line != FINE) {
            let _ = writeln!(done, "metal: {line}");
        }
    }
    for (fault, wanted) in PLANTED {
        let said = boot(&kernel, 2, &format!("plant={fault}"))?;
        let noticed = said.split_once(FAILED).filter(|(_, why)| why.contains(wanted));
        let Some((_, why)) = noticed else {
            return Err(format!("the planted {fault} was not noticed:\n{}", said.trim_end()));
        };
        let why = why.trim_end().lines().skip(1).collect::<Vec<_>>().join(" ");
        let _ = writeln!(done, "metal: planted {fault}: noticed: {why}");
    }
    let count = cpus.len();
    Ok(done + &format!("metal: {count} machines fine, {} planted faults noticed", PLANTED.len()))
}

fn build(root: &Path) -> Result<PathBuf, String> {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into);
    let products = target.join("metal");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // Where the folder's settings of cargo are found.
    cargo.current_dir(root.join("testing/metal"));
    cargo.args(["build", "--quiet", "--locked", "--target-dir"]).arg(&products);
    let output = cargo.output().map_err(|why| format!("starting cargo: {why}"))?;
    if !output.status.success() {
        return Err(format!(
            "the kernel does not build (`rustup target add {TARGET}` if that is missing):\n{}",
            String::from_utf8_lossy(&output.stderr).trim_end()
        ));
    }
    Ok(products.join(TARGET).join("debug").join("mmscale-metal"))
}

/// Boots a machine, and returns what it said until it ended.
fn boot(kernel: &Path, cpus: usize, command_line: &str) -> Result<String, String> {
    let mut qemu = Command::new(QEMU);
    qemu.args(["-nodefaults", "-display", "none", "-no-reboot", "-serial", "stdio", "-m", "256M"]);
    qemu.args(["-cpu", "max", "-accel", "tcg", "-smp", &cpus.to_string()]);
    qemu.args(["-device", "isa-debug-exit,iobase=0xf4,iosize=4", "-append", command_line]);
    qemu.arg("-kernel").arg(kernel);
    qemu.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let missing = "on Debian apt-get install qemu-system-x86";
    let mut child = qemu.spawn().map_err(|why| format!("starting {QEMU}: {why}; {missing}"))?;
    let mut output = child.stdout.take().ok_or("QEMU has no output")?;
    let reader = std::thread::spawn(move || {
        let mut said = Vec::new();
        let read = output.read_to_end(&mut said);
        read.map(|_| String::from_utf8_lossy(&said).into_owned())
    });
    let began = Instant::now();
    let ended = loop {
        match child.try_wait() {
            Ok(None) if began.elapsed() < LIMIT => {
                std::thread::sleep(Duration::from_millis(50));
            }
            Ok(status) => break status,
            Err(_) => break None,
        }
    };
    // Without effect if it has ended.
    let _ = child.kill();
    let _ = child.wait();
    let said = reader.join().map_err(|_| "reading what QEMU says failed")?;
    let said = said.map_err(|why| format!("reading what QEMU says: {why}"))?;
    match ended {
        Some(_) => Ok(said),
        None => Err(format!(
            "a machine with {cpus} processors did not end within {} s; it said:\n{}",
            LIMIT.as_secs(),
            said.trim_end()
        )),
    }
}
