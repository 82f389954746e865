//! Settings of the kernel that are changed for a while, and put back whatever happens: a *guardian*
//! process holds the other end of a pipe, and puts the old value back when this program has closed
//! it, or is gone, killed included.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use thiserror::Error;

/// Why a setting cannot be changed.
#[derive(Debug, Error)]
pub enum SysctlError {
    /// There is no such setting.
    #[error("there is no setting `{0}` below /proc/sys: look for it with `sysctl -a`")]
    Unknown(String),
    /// It cannot be read or written.
    #[error("cannot set {key} to `{value}`: {why}; run as root, and look what values it may have")]
    Refused {
        /// The setting.
        key: String,
        /// What it was to be.
        value: String,
        /// What the kernel said.
        why: std::io::Error,
    },
    /// Nobody could be started to put it back.
    #[error("cannot start the process that puts {0} back: {1}")]
    Guardian(String, std::io::Error),
}

/// A setting that goes back to what it was when this is dropped, or its program ends.
#[derive(Debug)]
pub struct Sysctl {
    key: String,
    path: PathBuf,
    before: String,
    held: i32,
    guardian: i32,
}

/// The file of a setting with dots or slashes in its name.
fn path_of(key: &str) -> Option<PathBuf> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    if !key.chars().all(plain) || key.contains("..") || key.starts_with('/') {
        return None;
    }
    let path = Path::new("/proc/sys").join(key.replace('.', "/"));
    path.is_file().then_some(path)
}

/// Whether a word names a setting of the kernel.
pub fn is_sysctl(key: &str) -> bool {
    path_of(key).is_some()
}

impl Sysctl {
    /// Remembers a setting, and starts its guardian.
    pub fn guard(key: &str) -> Result<Self, SysctlError> {
        let path = path_of(key).ok_or_else(|| SysctlError::Unknown(key.to_owned()))?;
        let refused =
            |why| SysctlError::Refused { key: key.to_owned(), value: "what it is".to_owned(), why };
        let before = fs::read_to_string(&path).map_err(refused)?.trim().to_owned();
        let failed = || SysctlError::Guardian(key.to_owned(), std::io::Error::last_os_error());
        let mut ends = [0; 2];
        // SAFETY: the place for two descriptors is ours.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
            return Err(failed());
        }
        let [watched, held] = ends;
        // SAFETY: asks for a number.
        let tool = unsafe { libc::getpid() };
        // SAFETY: the child uses memory and the C library's allocator, which survives forks.
        let guardian = unsafe { libc::fork() };
        if guardian == 0 {
            close(held);
            guardian_life(tool, watched, &path, &before);
        }
        close(watched);
        if guardian < 0 {
            close(held);
            return Err(failed());
        }
        Ok(Self { key: key.to_owned(), path, before, held, guardian })
    }
    /// What it was.
    pub fn before(&self) -> &str {
        &self.before
    }
    /// Sets it.
    pub fn set(&self, value: &str) -> Result<(), SysctlError> {
        let refused =
            |why| SysctlError::Refused { key: self.key.clone(), value: value.to_owned(), why };
        fs::write(&self.path, value).map_err(refused)
    }
}

impl Drop for Sysctl {
    fn drop(&mut self) {
        // The guardian does it again, and tells by its end that it is done.
        let _ = fs::write(&self.path, &self.before);
        close(self.held);
        // SAFETY: a child of ours.
        unsafe { libc::waitpid(self.guardian, std::ptr::null_mut(), 0) };
    }
}

fn close(fd: i32) {
    // SAFETY: a descriptor of ours that is not used any more.
    unsafe { libc::close(fd) };
}

/// Waits until the tool has closed its end, or is gone: somebody whom it has forked may still have
/// the end open then.
fn guardian_life(tool: i32, watched: i32, path: &Path, before: &str) -> ! {
    const LOOK_MS: i32 = 50;
    // SAFETY: calls without memory of ours.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, c"mmscale-guard".as_ptr());
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGPIPE] {
            libc::signal(signal, libc::SIG_IGN);
        }
    }
    loop {
        let mut poll = libc::pollfd { fd: watched, events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor to look at; asks for a number.
        let over = unsafe { libc::poll(&raw mut poll, 1, LOOK_MS) > 0 || libc::getppid() != tool };
        if over {
            break;
        }
    }
    // The kernel may be busy with it: not for ever.
    let begun = Instant::now();
    while fs::write(path, before).is_err() && begun.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(10));
    }
    // SAFETY: ends the guardian.
    unsafe { libc::_exit(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_settings_of_the_kernel_are_settings() {
        assert!(is_sysctl("kernel.pid_max"));
        assert!(is_sysctl("vm/swappiness"));
        for wrong in ["", "vm", "vm.no_such_thing", "../../etc/passwd", "/etc/passwd", "a b"] {
            assert!(!is_sysctl(wrong), "{wrong}");
        }
        assert!(Sysctl::guard("vm.no_such_thing").unwrap_err().to_string().contains("sysctl -a"));
    }
}
