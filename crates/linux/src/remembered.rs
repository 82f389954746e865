//! Old values of settings, in files of `/run/mmscale`, from which they are restored if the tool and
//! the guardian are killed together. The tool locks each file for as long as it lives (fcntl(2), a
//! lock that forks do not inherit), so that two runs cannot change one setting.

use crate::proof::Identity;
use crate::setting::Value;
use std::fs::{self, File, OpenOptions};
use std::io::{Error, ErrorKind, Read, Result, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The folder of the files. `/run` is emptied at boot, when settings are reset too.
pub(crate) const FOLDER: &str = "/run/mmscale";

/// A file with old values, locked by this process.
#[derive(Debug)]
pub(crate) struct Remembered {
    file: File,
    path: PathBuf,
}

/// The content of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// The tool that has changed the settings.
    pub(crate) tool: Identity,
    /// The boot during which they are changed.
    boot: String,
    /// The old values.
    pub(crate) values: Vec<Value>,
}

/// Returns the folder, made if it is missing, accessible to this user only.
fn folder() -> Result<PathBuf> {
    let path = PathBuf::from(FOLDER);
    match fs::DirBuilder::new().mode(0o700).create(&path) {
        Err(why) if why.kind() != ErrorKind::AlreadyExists => return Err(why),
        _ => check_folder(&path)?,
    }
    Ok(path)
}

/// Refuses a folder that another user could have made, or could write to.
fn check_folder(path: &Path) -> Result<()> {
    // SAFETY: reads a number.
    check_folder_of(path, unsafe { libc::geteuid() })
}

/// Refuses a folder that does not belong to `user` alone. A user other than root cannot change
/// settings, and must not be asked to remove the folder: runs of root may use it.
fn check_folder_of(path: &Path, user: u32) -> Result<()> {
    let data = fs::symlink_metadata(path)?;
    if data.is_dir() && data.uid() == user && data.mode() & 0o077 == 0 {
        return Ok(());
    }
    let what = match user {
        0 => format!("{} is not a folder of root alone: remove it", path.display()),
        _ => format!("{} is used by runs of root", path.display()),
    };
    Err(Error::new(ErrorKind::PermissionDenied, what))
}

/// Returns the name of a setting's file. A setting of a namespace is a different setting in each
/// namespace.
fn file_name(key: &str) -> String {
    let namespace = match key {
        "kernel.domainname" | "kernel.hostname" => "uts",
        _ if key.starts_with("net.") => "net",
        _ if ["kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue"]
            .iter()
            .any(|start| key.starts_with(start)) =>
        {
            "ipc"
        }
        _ if key.starts_with("user.") => "user",
        _ => return key.to_owned(),
    };
    // Of the thread, as everything that it reads below /proc/sys.
    let link = fs::read_link(format!("/proc/thread-self/ns/{namespace}")).unwrap_or_default();
    let digits: String = link.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    format!("{key}@{namespace}{digits}")
}

fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// Locks the file; the error is the process that has the lock.
fn lock(file: &File) -> std::result::Result<(), i32> {
    // SAFETY: a zeroed lock is valid and covers the whole file; the descriptor is open.
    unsafe {
        let mut lock: libc::flock = std::mem::zeroed();
        lock.l_type = libc::F_WRLCK as i16;
        if libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &raw const lock) == 0 {
            return Ok(());
        }
        libc::fcntl(file.as_raw_fd(), libc::F_GETLK, &raw mut lock);
        Err(lock.l_pid)
    }
}

/// Whether the file still has its name: the previous holder of the lock may have removed it.
fn is_named(file: &File, path: &Path) -> bool {
    let there = fs::symlink_metadata(path).ok().zip(file.metadata().ok());
    there.is_some_and(|(there, own)| (there.dev(), there.ino()) == (own.dev(), own.ino()))
}

/// The result of locking a file.
pub(crate) enum Locked {
    /// This process has locked it.
    Ours(Remembered),
    /// Another process, given here, is changing the setting.
    Used(i32),
}

impl Remembered {
    /// Locks the file for the settings of which `key` is the first.
    pub(crate) fn lock(key: &str) -> Result<Locked> {
        Self::lock_file(folder()?.join(file_name(key)), true)
    }
    fn lock_file(path: PathBuf, create: bool) -> Result<Locked> {
        const PATIENCE: Duration = Duration::from_secs(2);
        let since = Instant::now();
        loop {
            let mut open = OpenOptions::new();
            open.read(true).write(true).create(create).mode(0o600);
            let file = open.custom_flags(libc::O_NOFOLLOW).open(&path)?;
            match lock(&file) {
                Ok(()) if is_named(&file, &path) => return Ok(Locked::Ours(Self { file, path })),
                // A tool that was killed, or its guardian, may still be ending.
                Err(pid) if since.elapsed() > PATIENCE => return Ok(Locked::Used(pid)),
                _ => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }
    /// Returns the files that dead runs left, for settings that this process sees.
    pub(crate) fn left() -> Vec<Self> {
        if check_folder(Path::new(FOLDER)).is_err() {
            return Vec::new();
        }
        let entries = fs::read_dir(FOLDER).into_iter().flatten().flatten();
        let seen = |entry: &fs::DirEntry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            file_name(name.split('@').next().unwrap_or_default()) == name
        };
        let locked = |entry: fs::DirEntry| match Self::lock_file(entry.path(), false) {
            Ok(Locked::Ours(remembered)) => Some(remembered),
            _ => None,
        };
        entries.filter(seen).filter_map(locked).collect()
    }
    /// Reads the file; `None` if nothing was changed since this boot.
    pub(crate) fn record(&mut self) -> Result<Option<Record>> {
        let mut text = String::new();
        self.file.rewind()?;
        self.file.read_to_string(&mut text)?;
        Ok(Record::parse(&text).filter(|record| record.boot == boot()))
    }
    /// Stores values, before any of them is changed.
    pub(crate) fn remember(&mut self, values: &[Value]) -> Result<Record> {
        let record = Record { tool: Identity::own(), boot: boot(), values: values.to_vec() };
        self.empty()?;
        self.file.write_all(record.text().as_bytes())?;
        self.file.sync_all()?;
        Ok(record)
    }
    fn empty(&mut self) -> Result<()> {
        self.file.rewind()?;
        self.file.set_len(0)
    }
    /// Removes the file after the settings were restored. It is emptied first, for a guardian that
    /// still has it open.
    pub(crate) fn forget(&mut self) -> Result<()> {
        self.empty()?;
        fs::remove_file(&self.path)
    }
    /// Takes the lock for the guardian, whose tool has ended. Returns false if a later run has it,
    /// or the file has changed since the fork.
    pub(crate) fn take_over(&mut self, record: &Record) -> bool {
        const PATIENCE: Duration = Duration::from_secs(5);
        let since = Instant::now();
        while lock(&self.file).is_err() {
            // A later run has it, and has restored the settings, or will.
            if since.elapsed() > PATIENCE {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let is_ours = self.record().is_ok_and(|now| now.as_ref() == Some(record));
        is_ours && is_named(&self.file, &self.path)
    }
    /// Returns its path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Record {
    /// Writes the record; its last line shows that it is complete.
    fn text(&self) -> String {
        let value = |Value { key, value }: &Value| format!("{key}={value}\n");
        let values: String = self.values.iter().map(value).collect();
        format!("tool {}\nboot {}\n{values}end\n", self.tool, self.boot)
    }
    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.strip_suffix("end\n")?.lines();
        let tool = lines.next()?.strip_prefix("tool ")?.parse().ok()?;
        let boot = lines.next()?.strip_prefix("boot ")?.to_owned();
        let value = |line: &str| {
            let (key, value) = line.split_once('=')?;
            Some(Value { key: key.to_owned(), value: value.to_owned() })
        };
        Some(Self { tool, boot, values: lines.map(value).collect::<Option<_>>()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_whole_or_none() {
        let value = |key: &str, value: &str| Value { key: key.to_owned(), value: value.to_owned() };
        let values = vec![value("vm.dirty_bytes", "0"), value("a.list", "1\t2=3")];
        let record = Record { tool: Identity::own(), boot: boot(), values };
        let text = record.text();
        assert_eq!(Record::parse(&text), Some(record));
        for end in 0..text.len() {
            assert_eq!(Record::parse(&text[..end]), None, "{end} bytes");
        }
    }

    #[test]
    fn a_folder_that_others_may_have_made_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("mmscale");
        fs::DirBuilder::new().mode(0o700).create(&folder).unwrap();
        assert!(check_folder(&folder).is_ok());
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o770)).unwrap();
        assert!(check_folder(&folder).is_err(), "others may write");
        let why = |user| check_folder_of(&folder, user).unwrap_err().to_string();
        assert!(why(0).ends_with("is not a folder of root alone: remove it"), "{}", why(0));
        assert!(why(65_534).ends_with("is used by runs of root"), "{}", why(65_534));
        let link = root.path().join("link");
        std::os::unix::fs::symlink(root.path(), &link).unwrap();
        assert!(check_folder(&link).is_err(), "a link");
    }

    #[test]
    fn a_file_that_lost_its_name_is_not_taken_over() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a.setting");
        let open = || match Remembered::lock_file(path.clone(), true) {
            Ok(Locked::Ours(remembered)) => remembered,
            _ => panic!("it is free"),
        };
        let values = [Value { key: "a.setting".to_owned(), value: "1".to_owned() }];
        let mut first = open();
        let record = first.remember(&values).unwrap();
        assert_eq!(first.record().unwrap(), Some(record.clone()));
        // A later run restores and forgets; the guardian of the first is late.
        open().forget().unwrap();
        assert!(!first.take_over(&record));
        let mut again = open();
        let record = again.remember(&values).unwrap();
        assert!(again.take_over(&record));
    }
}
