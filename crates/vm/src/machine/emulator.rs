//! QEMU: whether it is there, and how it executes code.

use std::fs::OpenOptions;
use std::process::{Command, Stdio};

/// The program.
pub const EMULATOR: &str = "qemu-system-x86_64";

/// How code of a machine is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accelerator {
    /// By this computer's processors, at their speed.
    Kvm,
    /// By translation, CPU after CPU on one CPU of this computer: counts mean something, and times
    /// do not.
    Emulation,
}

impl Accelerator {
    /// The options of QEMU. With a thread for each CPU, those that spin would take the time of
    /// those that work.
    pub(super) const fn options(self) -> [&'static str; 4] {
        match self {
            Self::Kvm => ["-cpu", "host", "-accel", "kvm"],
            // Without numbers from this computer's hardware, which differ from run to run.
            Self::Emulation => ["-cpu", "max,-rdrand,-rdseed", "-accel", "tcg,thread=single"],
        }
    }
}

/// Returns how this computer can execute code of a machine.
///
/// # Errors
/// Why it can only emulate.
pub fn accelerator() -> Result<Accelerator, String> {
    // tidy: opened: a file of /proc
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = cpus.lines().find(|line| line.starts_with("flags"));
    // A guest may see the device without them, and no machine starts there.
    if !flags.is_some_and(|flags| flags.split(' ').any(|flag| ["vmx", "svm"].contains(&flag))) {
        return Err("its processors offer no virtualisation (vmx, svm)".to_owned());
    }
    // tidy: opened: a device
    match OpenOptions::new().read(true).write(true).open("/dev/kvm") {
        Ok(_) => Ok(Accelerator::Kvm),
        Err(why) => Err(format!("/dev/kvm cannot be opened: {why}")),
    }
}

/// Returns the version of QEMU, such as 7.2.22; `None` if it is not installed.
pub fn emulator_version() -> Option<String> {
    let output = Command::new(EMULATOR).arg("--version").stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (_, rest) = text.split_once("version ")?;
    rest.split_whitespace().next().map(str::to_owned)
}
