//! The first process of a virtual machine that `cargo xtask kernels` boots: mounts what `mmscale`
//! needs, runs it once for each line of `/jobs`, and powers the machine off.
//!
//! Standard output of the jobs goes to the second serial port, between a line `begin ARGUMENTS` and
//! a line `end EXIT-CODE`; the console has their standard error. `up` and `down` frame it all.

use std::ffi::{CString, c_char, c_int, c_ulong, c_void};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::process::{Command, Stdio};

unsafe extern "C" {
    fn mount(
        source: *const c_char,
        target: *const c_char,
        kind: *const c_char,
        flags: c_ulong,
        data: *const c_void,
    ) -> c_int;
    fn reboot(how: c_int) -> c_int;
}

/// `RB_POWER_OFF`.
const POWER_OFF: c_int = 0x4321_fedc;

/// File systems, each with its place.
const MOUNTS: [(&str, &str); 8] = [
    ("proc", "/proc"),
    ("sysfs", "/sys"),
    ("devtmpfs", "/dev"),
    ("tracefs", "/sys/kernel/tracing"),
    ("cgroup2", "/sys/fs/cgroup"),
    ("tmpfs", "/tmp"),
    ("tmpfs", "/run"),
    ("tmpfs", "/dev/shm"),
];

fn main() {
    for (kind, at) in MOUNTS {
        let _ = fs::create_dir_all(at);
        let [kind, at] = [kind, at].map(|text| CString::new(text).expect("no NUL in it"));
        // SAFETY: the strings end with NUL, and none of these file systems needs data. A job that
        // misses one says so.
        unsafe { mount(kind.as_ptr(), at.as_ptr(), kind.as_ptr(), 0, std::ptr::null()) };
    }
    if let Err(why) = jobs() {
        eprintln!("init: {why}");
    }
    // SAFETY: takes a number, and does not return. Everything is in memory: nothing is lost.
    unsafe { reboot(POWER_OFF) };
}

fn jobs() -> std::io::Result<()> {
    let mut results = OpenOptions::new().write(true).open("/dev/ttyS1")?;
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let online = fs::read_to_string("/sys/devices/system/cpu/online")?;
    writeln!(results, "up {} {}", release.trim(), online.trim())?;
    for job in fs::read_to_string("/jobs")?.lines() {
        writeln!(results, "begin {job}")?;
        let code = run(job, &results)?;
        writeln!(results, "\nend {code}")?;
    }
    // The last close of the port waits until all is sent.
    writeln!(results, "down")
}

fn run(job: &str, results: &File) -> std::io::Result<String> {
    let console = OpenOptions::new().write(true).open("/dev/console")?;
    let status = Command::new("/mmscale")
        .args(job.split(' '))
        .env("HOME", "/tmp")
        .stdin(Stdio::null())
        .stdout(results.try_clone()?)
        .stderr(console)
        .status()?;
    Ok(status.code().map_or_else(|| status.to_string(), |code| code.to_string()))
}
