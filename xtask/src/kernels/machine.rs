//! A virtual machine: QEMU, which emulates its CPUs one after another on one CPU of this computer.
//! So counts of such a machine mean something, and times do not.

use super::guest::Transcript;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The emulator.
pub(super) const EMULATOR: &str = "qemu-system-x86_64";

/// The kernel's command line. `nowatchdog` and the setting of RCU keep it silent about CPUs that
/// the emulator does not run for a while; the clock source is the same on all versions.
const KERNEL_LINE: &str = "console=ttyS0 quiet panic=-1 mitigations=off nowatchdog \
                           rcupdate.rcu_cpu_stall_suppress=1 tsc=reliable no_timer_check";

/// The memory of a machine. Below 3 GiB it would have no zone Normal; what it does not touch costs
/// nothing.
const MEMORY: &str = "4G";

/// The clock of a machine: time passes with its instructions, 4 ns each, and jumps while all CPUs
/// are idle. So windows and time limits of programs do not depend on this computer's load.
const CLOCK: &str = "shift=2,sleep=off";

/// A machine waits for CPUs of this computer as other programs do: it may take this many times as
/// long as the CPU time that it may use.
const PATIENCE: u32 = 6;

/// A machine that is booted once.
pub(super) struct Machine<'a> {
    pub(super) image: &'a Path,
    pub(super) files: &'a Path,
    pub(super) cpus: usize,
    /// Whether time passes with instructions, which takes longer to emulate.
    pub(super) counts_instructions: bool,
    /// The most CPU time that it may use.
    pub(super) limit: Duration,
}

/// A machine that has ended.
pub(super) struct Ended {
    pub(super) transcript: Transcript,
    /// The end of its console, for messages.
    pub(super) console: String,
    pub(super) cpu_time: Duration,
    /// Why it was ended, if it did not end itself.
    pub(super) killed: Option<&'static str>,
}

/// A child that does not outlive this value, nor this program: the kernel kills it then.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Machine<'_> {
    /// Boots the machine and waits until it has powered itself off, or has used up its time.
    /// `folder` gets the output of its two serial ports.
    pub(super) fn run(&self, folder: &Path) -> Result<Ended, String> {
        let (console, results) = (folder.join("console"), folder.join("results"));
        let port = |path: &Path| format!("file:{}", path.display());
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", EMULATOR, "-nodefaults", "-no-user-config"]);
        command.args(["-machine", "q35,max-ram-below-4g=1G", "-cpu", "max", "-m", MEMORY]);
        command.args(["-accel", "tcg,thread=single", "-smp", &self.cpus.to_string()]);
        if self.counts_instructions {
            command.args(["-icount", CLOCK]);
        }
        command.args(["-display", "none", "-no-reboot", "-append", KERNEL_LINE]);
        command.arg("-kernel").arg(self.image).arg("-initrd").arg(self.files);
        command.args(["-serial", &port(&console), "-serial", &port(&results)]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let started = command.spawn().map_err(|why| format!("cannot run setpriv: {why}"))?;
        let mut child = Killed(started);
        let (begun, mut cpu_time, mut killed) = (Instant::now(), Duration::ZERO, None);
        while child.0.try_wait().map_err(|why| format!("cannot wait: {why}"))?.is_none() {
            cpu_time = cpu_time_of(child.0.id()).unwrap_or(cpu_time);
            if cpu_time > self.limit {
                killed = Some("it used up its CPU time");
                break;
            }
            if begun.elapsed() > self.limit * PATIENCE {
                killed = Some("this computer had no time for it");
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        drop(child);
        let read = |path: &Path| fs::read(path).unwrap_or_default();
        let lines = String::from_utf8_lossy(&read(&console)).replace('\r', "");
        let lines: Vec<&str> = lines.lines().collect();
        Ok(Ended {
            transcript: Transcript::parse(&read(&results)),
            console: lines[lines.len().saturating_sub(30)..].join("\n"),
            cpu_time,
            killed,
        })
    }
}

/// The CPU time of a process, from its line in /proc, whose unit is 10 ms.
fn cpu_time_of(pid: u32) -> Option<Duration> {
    let line = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may have blanks; user and system time are 12th and 13th after it.
    let fields: Vec<&str> = line.rsplit_once(") ")?.1.split(' ').collect();
    let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Duration::from_millis((ticks(11)? + ticks(12)?) * 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_time_of_a_process_is_read() {
        assert!(cpu_time_of(std::process::id()).is_some());
        assert!(cpu_time_of(u32::MAX).is_none());
    }
}
