//! The work of the first process of a machine.

use super::Job;
use super::port::Port;
use crate::frames::{Frame, Up};
use crate::symbols;
use flate2::Compression;
use flate2::write::DeflateEncoder;
use rustix::fs::OFlags;
use rustix::ioctl::{Opcode, Setter, ioctl, opcode};
use rustix::mount::{MountFlags, mount};
use rustix::system::{RebootCommand, reboot};
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::thread;

/// This program in a machine.
pub(super) const PROGRAM: &str = "/init";
/// Its name, for documents.
const NAME: &str = "mmscale";
/// Its job.
pub(super) const JOB: &str = "/mmscale-job";
/// The folder of its libraries, which the kernel's parameters name.
pub(crate) const LIBRARIES: &str = "/lib/mmscale";

/// File systems, each with its place.
const MOUNTS: [(&str, &str); 7] = [
    ("proc", "/proc"),
    ("sysfs", "/sys"),
    ("devtmpfs", "/dev"),
    ("tracefs", "/sys/kernel/tracing"),
    ("debugfs", "/sys/kernel/debug"),
    ("cgroup2", "/sys/fs/cgroup"),
    ("tmpfs", "/dev/shm"),
];

/// Folders that programs expect. The first file system is a tmpfs itself, and another one would
/// hide the files of a job.
const FOLDERS: [&str; 3] = ["/tmp", "/run", "/var/tmp"];

/// The request that adds to the kernel's random numbers, `RNDADDENTROPY`.
const ADD_ENTROPY: Opcode = opcode::write::<[i32; 2]>(b'R', 3);

/// The bytes that it adds, as `struct rand_pool_info`.
#[repr(C)]
struct Entropy {
    bits: i32,
    bytes: i32,
    seed: [u8; 32],
}

/// Makes the kernel's random numbers ready, as they are on every computer that is up for some
/// seconds. Until then each new slab, whose objects it shuffles, costs 13,000 instructions more.
fn seed() {
    let entropy = Entropy { bits: 256, bytes: 32, seed: [0x6d; 32] };
    // tidy: opened: a device of the machine
    let Ok(device) = fs::OpenOptions::new().write(true).open("/dev/random") else { return };
    // SAFETY: the request reads such a structure, with as many bytes as it says.
    let request = unsafe { Setter::<ADD_ENTROPY, Entropy>::new(entropy) };
    // SAFETY: the request changes no memory of this process.
    let _ = unsafe { ioctl(device, request) };
}

/// Whether this process is the first one of a machine that [`crate::Machine`] boots.
pub fn is_guest() -> bool {
    std::process::id() == 1 && Path::new(JOB).exists()
}

/// Does the job of the machine, and powers it off.
pub fn main() -> ExitCode {
    for (kind, at) in MOUNTS {
        // Those that a kernel lacks are missed by the command, which says so.
        let _ = fs::create_dir_all(at);
        let _ = mount(kind, at, kind, MountFlags::empty(), None);
    }
    for folder in FOLDERS {
        let _ = fs::create_dir_all(folder);
    }
    seed();
    match Port::open() {
        Ok(port) => {
            let done = run(&port).and_then(|code| port.send(&Frame::Exit(code)));
            if let Err(why) = done {
                // The host reads of it here, or in the console.
                let _ = port.send(&Frame::Failed(why.to_string()));
                eprintln!("mmscale: {why}");
            }
            port.drain();
        }
        Err(why) => eprintln!("mmscale: cannot open the second serial port: {why}"),
    }
    // Everything is in memory: nothing is lost.
    let failed = reboot(RebootCommand::PowerOff);
    eprintln!("mmscale: cannot power off: {failed:?}");
    ExitCode::FAILURE
}

/// Runs the command. Returns its exit code.
fn run(port: &Port) -> io::Result<i32> {
    // tidy: opened: a file that the host made
    let job: Job = serde_json::from_slice(&fs::read(JOB)?)?;
    port.send(&Frame::Up(up()))?;
    if job.wants_symbols {
        // tidy: opened: a file of /proc
        let all = fs::read_to_string("/proc/kallsyms")?;
        port.send(&Frame::Symbols(deflated(&symbols::of_kernel(&all))?))?;
        port.drain();
    }
    let mut command = Command::new(PROGRAM);
    command
        .arg0(NAME)
        .args(&job.args)
        .current_dir(&job.folder)
        .env("HOME", "/tmp")
        .stdin(Stdio::null());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (out, error) = (child.stdout.take(), child.stderr.take());
    let status = thread::scope(|scope| {
        let (out, error) = (out.expect("a pipe"), error.expect("a pipe"));
        scope.spawn(|| port.forward(out, Frame::Output));
        scope.spawn(|| port.forward(error, Frame::Error));
        child.wait()
    })?;
    Ok(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)))
}

fn up() -> Up {
    // tidy: opened: files of /proc
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    Up {
        release: read("/proc/sys/kernel/osrelease"),
        version: read("/proc/sys/kernel/version"),
        cpus: thread::available_parallelism().map_or(0, usize::from),
        auto_init: auto_init(),
        // A mask: 0 is off.
        mglru: !["", "0x0000"].contains(&read("/sys/kernel/mm/lru_gen/enabled").as_str()),
    }
}

/// Returns the kernel's line on memory that it clears by itself.
fn auto_init() -> String {
    let mut options = fs::OpenOptions::new();
    // tidy: opened: a device of the machine
    let log = options.read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open("/dev/kmsg");
    let Ok(mut log) = log else { return String::new() };
    // Each read returns a record, until there is none.
    let mut record = vec![0; 8192];
    while let Ok(size @ 1..) = log.read(&mut record) {
        let text = String::from_utf8_lossy(&record[..size]);
        if let Some((_, settings)) = text.split_once("mem auto-init: ") {
            return settings.lines().next().unwrap_or_default().to_owned();
        }
    }
    String::new()
}

fn deflated(text: &str) -> io::Result<Vec<u8>> {
    let mut out = DeflateEncoder::new(Vec::new(), Compression::fast());
    out.write_all(text.as_bytes())?;
    out.finish()
}
