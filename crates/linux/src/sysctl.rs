//! Settings of the kernel that are changed temporarily, and restored in all cases. The tool
//! restores them and reads them back. If the tool is killed, a *guardian* process does, which holds
//! the other end of a pipe. If both are killed, a later run or `mmscale live doctor` does, from a
//! file (`remembered`).

use crate::end::{await_end, has_ended};
use crate::remembered::{Locked, Record, Remembered};
use crate::setting::{self, Value};
use std::io::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::thread::JoinHandle;
use std::time::Duration;
use thiserror::Error;

/// Why a setting cannot be changed, or was not restored.
#[derive(Debug, Error)]
pub enum SysctlError {
    /// There is no such setting.
    #[error("there is no setting `{0}` below /proc/sys: look for it with `sysctl -a`")]
    Unknown(String),
    /// A run could not restore it.
    #[error("cannot change {key} for a run: {why}; nothing was changed")]
    NotRestorable {
        /// The setting.
        key: String,
        /// Why it could not be restored.
        why: String,
    },
    /// Another run is changing it.
    #[error("cannot change {key}: process {pid} changes it now; wait until that run has ended")]
    Used {
        /// The setting.
        key: String,
        /// The process of the other run.
        pid: i32,
    },
    /// Its old value cannot be stored.
    #[error("cannot keep the old value of {key} in /run/mmscale: {why}; run as root")]
    Memory {
        /// The setting.
        key: String,
        /// The error.
        why: Error,
    },
    /// It cannot be read or written.
    #[error("cannot set {key} to `{value}`: {why}; run as root, and check which values it accepts")]
    Refused {
        /// The setting.
        key: String,
        /// The wanted value.
        value: String,
        /// The kernel's error.
        why: Error,
    },
    /// The kernel accepted a value and stored another.
    #[error("set {key} to `{value}`, and the kernel stored `{has}`; check which values it accepts")]
    NotTaken {
        /// The setting.
        key: String,
        /// The wanted value.
        value: String,
        /// The stored value.
        has: String,
    },
    /// It does not have its old value.
    #[error(
        "cannot restore {key}: it is `{has}`, and the kernel refuses its old value `{before}`; set \
         it by hand, or repeat `mmscale live doctor` (the old value is in {})", file.display()
    )]
    NotRestored {
        /// The setting.
        key: String,
        /// Its present value.
        has: String,
        /// Its old value.
        before: String,
        /// The file with its old value.
        file: PathBuf,
    },
    /// The guardian could not be started.
    #[error("cannot start the process that restores {0}: {1}; nothing was changed")]
    Guardian(String, Error),
    /// The guardian was killed.
    #[error(
        "the process that restores {0} if this one is killed was itself killed from outside; \
         {0} was restored and the run ended"
    )]
    GuardianKilled(String),
}

/// A setting that is restored when this is dropped, or its process ends.
#[derive(Debug)]
pub struct Sysctl {
    key: String,
    before: Vec<Value>,
    remembered: Option<Remembered>,
    held: i32,
    guardian: i32,
    watcher: Option<JoinHandle<()>>,
    /// Whether this process ends the guardian itself.
    ending: Arc<AtomicBool>,
}

impl Sysctl {
    /// Locks a setting, stores its value, and starts its guardian.
    pub fn guard(key: &str) -> Result<Self, SysctlError> {
        let key = setting::name_of(key).ok_or_else(|| SysctlError::Unknown(key.to_owned()))?;
        let not_restorable = |why: String| SysctlError::NotRestorable { key: key.clone(), why };
        if let Some(why) = setting::refusal(&key) {
            return Err(not_restorable(why.to_owned()));
        }
        let memory = |why| SysctlError::Memory { key: key.clone(), why };
        let keys = setting::together(&key);
        let mut remembered = match Remembered::lock(&keys[0]).map_err(memory)? {
            Locked::Ours(remembered) => remembered,
            Locked::Used(pid) => return Err(SysctlError::Used { key, pid }),
        };
        if let Some(record) = remembered.record().map_err(memory)? {
            if record.tool.runs() {
                return Err(SysctlError::Used { key, pid: record.tool.pid() });
            }
            restored(&record.values, &remembered)?;
        }
        let before = setting::read_all(&keys).map_err(|why| not_restorable(why.to_string()))?;
        if let Err(why) = setting::can_restore(&before) {
            let _ = remembered.forget();
            return Err(not_restorable(format!("its value cannot be written: {why}")));
        }
        let record = remembered.remember(&before).map_err(memory)?;
        let (held, guardian) = match start_guardian(&mut remembered, &record) {
            Ok(started) => started,
            Err(why) => {
                let _ = remembered.forget();
                return Err(SysctlError::Guardian(key, why));
            }
        };
        let ending = Arc::new(AtomicBool::new(false));
        let remembered = Some(remembered);
        Ok(Self { key, before, remembered, held, guardian, watcher: None, ending })
    }
    /// Returns the old value.
    pub fn before(&self) -> &str {
        let own = self.before.iter().find(|old| old.key == self.key);
        own.map_or("", |old| &old.value)
    }
    /// Sets it, and reads it back.
    pub fn set(&self, value: &str) -> Result<(), SysctlError> {
        let (key, value) = (self.key.clone(), value.to_owned());
        match setting::write(&key, &value).and_then(|()| setting::read(&key)) {
            Ok(has) if setting::same(&has, &value) => Ok(()),
            Ok(has) => Err(SysctlError::NotTaken { key, value, has }),
            Err(why) => Err(SysctlError::Refused { key, value, why }),
        }
    }
    /// Calls `lost` if the guardian is killed before the setting is restored.
    pub fn on_lost_guardian(&mut self, lost: impl FnOnce() + Send + 'static) {
        let (guardian, ending) = (self.guardian, Arc::clone(&self.ending));
        self.watcher = Some(std::thread::spawn(move || {
            await_end(guardian);
            // Pairs with the `Release` store in `end_guardian`, which precedes the end that it
            // causes.
            if !ending.load(Acquire) {
                lost();
            }
        }));
    }
    /// Restores it and reads it back. Fails if the kernel has another value, or if the guardian was
    /// killed meanwhile.
    pub fn restore(mut self) -> Result<(), SysctlError> {
        let lost = has_ended(self.guardian);
        self.undo()?;
        if lost { Err(SysctlError::GuardianKilled(self.key.clone())) } else { Ok(()) }
    }
    fn undo(&mut self) -> Result<(), SysctlError> {
        let Some(mut remembered) = self.remembered.take() else { return Ok(()) };
        let undone = restored(&self.before, &remembered);
        if undone.is_ok() {
            let key = &self.key;
            remembered.forget().map_err(|why| SysctlError::Memory { key: key.clone(), why })?;
        }
        undone
    }
    /// Kills the guardian, which has nothing to do any more and may be stopped.
    fn end_guardian(&mut self) {
        // Pairs with the `Acquire` load in the watcher.
        self.ending.store(true, Release);
        // SAFETY: a child of ours that is not reaped.
        unsafe { libc::kill(self.guardian, libc::SIGKILL) };
        if let Some(watcher) = self.watcher.take() {
            let _ = watcher.join();
        }
        close(self.held);
        // SAFETY: a child of ours.
        unsafe { libc::waitpid(self.guardian, std::ptr::null_mut(), 0) };
    }
}

impl Drop for Sysctl {
    fn drop(&mut self) {
        // A caller that must know whether this succeeded calls `restore`.
        let _ = self.undo();
        self.end_guardian();
    }
}

/// Restores settings; the error is the one that was not restored.
pub(crate) fn restored(before: &[Value], remembered: &Remembered) -> Result<(), SysctlError> {
    setting::restore(before).map_err(|left| {
        let old = before.iter().find(|old| old.key == left.key);
        SysctlError::NotRestored {
            before: old.map_or(String::new(), |old| old.value.clone()),
            key: left.key,
            has: left.value,
            file: remembered.path().to_owned(),
        }
    })
}

fn close(fd: i32) {
    // SAFETY: a descriptor of ours that is not used any more.
    unsafe { libc::close(fd) };
}

/// Starts the guardian; returns the end of the pipe that it watches, and its number.
fn start_guardian(remembered: &mut Remembered, record: &Record) -> Result<(i32, i32), Error> {
    let mut ends = [0; 2];
    // SAFETY: the place for two descriptors is ours.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(Error::last_os_error());
    }
    let [watched, held] = ends;
    // SAFETY: reads a number.
    let tool = unsafe { libc::getpid() };
    // SAFETY: the child uses memory and the C library's allocator, which survives forks.
    let guardian = unsafe { libc::fork() };
    if guardian == 0 {
        close(held);
        await_tool_end(tool, watched);
        restore_as_guardian(remembered, record);
        // SAFETY: ends the guardian.
        unsafe { libc::_exit(0) }
    }
    close(watched);
    if guardian < 0 {
        let why = Error::last_os_error();
        close(held);
        return Err(why);
    }
    Ok((held, guardian))
}

/// Restores the settings in several attempts, because the kernel may be busy. If all fail, the file
/// stays for a later run.
fn restore_as_guardian(remembered: &mut Remembered, record: &Record) {
    const TRIES: usize = 50;
    if !remembered.take_over(record) {
        return;
    }
    for _ in 0..TRIES {
        if restored(&record.values, remembered).is_ok() {
            let _ = remembered.forget();
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Waits until the tool has closed its end, or has ended: a process that it has forked may still
/// have the end open then.
fn await_tool_end(tool: i32, watched: i32) {
    const LOOK_MS: i32 = 50;
    // SAFETY: calls without memory of ours. If the tool ends while the guardian is stopped, the
    // guardian has to continue.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGCONT);
        libc::prctl(libc::PR_SET_NAME, c"mmscale-guard".as_ptr());
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGPIPE] {
            libc::signal(signal, libc::SIG_IGN);
        }
    }
    loop {
        let mut poll = libc::pollfd { fd: watched, events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor to poll; reads a number.
        let over = unsafe { libc::poll(&raw mut poll, 1, LOOK_MS) > 0 || libc::getppid() != tool };
        if over {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_settings_and_actions_are_refused() {
        let why = Sysctl::guard("vm.no_such_thing").unwrap_err().to_string();
        assert!(why.contains("sysctl -a"), "{why}");
        let why = Sysctl::guard("vm/drop_caches").unwrap_err().to_string();
        assert!(why.contains("nothing was changed"), "{why}");
    }
}
