//! Limits on the number of processes and threads, checked before a run starts any.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// A run that needs more than is available.
#[derive(Debug, Error)]
pub enum TooMuch {
    /// More memory.
    #[error(
        "the run needs {} MiB of memory, but {} MiB are available: make it smaller (--set), or \
         free memory",
        wants >> 20,
        available >> 20
    )]
    Memory {
        /// The memory that it needs, in bytes.
        wants: u64,
        /// The memory that is available, in bytes.
        available: u64,
    },
    /// More processes and threads.
    #[error(
        "the run needs {wants} processes and threads, but {limit} leaves room for {room}: make it \
         smaller (--set), or raise that limit"
    )]
    Processes {
        /// The processes and threads that it needs.
        wants: u64,
        /// The processes and threads that the limit still allows.
        room: u64,
        /// The limit.
        limit: String,
    },
}

/// One part in this many of what a limit leaves is left for other programs.
const LEFT_FOR_OTHERS: u64 = 8;
/// The warden and other processes of the tool.
const OWN: u64 = 4;

/// A limit, and how many more processes and threads it allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TaskLimit {
    limit: String,
    left: u64,
}

/// The location of `/proc` and `/sys`, and the limit of the user.
pub(crate) struct Host {
    root: PathBuf,
    /// `RLIMIT_NPROC` and the processes and threads that count against it, if it applies to this
    /// user.
    own: Option<(u64, u64)>,
}

/// Counts the processes and threads of a user.
fn tasks_of(user: u32) -> u64 {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_theirs = |entry: &fs::DirEntry| {
        entry.file_name().to_string_lossy().parse::<u32>().is_ok()
            && entry.metadata().is_ok_and(|data| data.uid() == user)
    };
    let threads = |entry: fs::DirEntry| {
        fs::read_dir(entry.path().join("task")).map_or(0, |tasks| tasks.count() as u64)
    };
    entries.filter(is_theirs).map(threads).sum()
}

impl Host {
    /// Returns this computer.
    pub(crate) fn this() -> Self {
        // SAFETY: reads a number.
        let user = unsafe { libc::geteuid() };
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the place is ours.
        let asked = unsafe { libc::getrlimit(libc::RLIMIT_NPROC, &raw mut limit) } == 0;
        let holds = asked && user != 0 && limit.rlim_cur != libc::RLIM_INFINITY;
        Self { root: "/".into(), own: holds.then(|| (limit.rlim_cur, tasks_of(user))) }
    }
    fn read(&self, path: &str) -> Option<String> {
        let text = fs::read_to_string(self.root.join(path.trim_start_matches('/'))).ok()?;
        Some(text.trim().to_owned())
    }
    fn number(&self, path: &str) -> Option<u64> {
        self.read(path)?.parse().ok()
    }
    /// Returns the number of existing processes and threads.
    fn tasks(&self) -> Option<u64> {
        let load = self.read("/proc/loadavg")?;
        load.split(' ').nth(3)?.split_once('/')?.1.parse().ok()
    }
    /// Returns the limits of control groups, from this process's own upwards.
    fn groups(&self) -> Vec<TaskLimit> {
        let own = self.read("/proc/self/cgroup").unwrap_or_default();
        let mut found = Vec::new();
        for line in own.lines() {
            let mut fields = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
            let base = match controllers {
                "" => "/sys/fs/cgroup",
                _ if controllers.split(',').any(|name| name == "pids") => "/sys/fs/cgroup/pids",
                _ => continue,
            };
            for group in Path::new(path.trim_start_matches('/')).ancestors() {
                let host = Path::new(base).join(group);
                let file = |name: &str| host.join(name).to_string_lossy().into_owned();
                let max = self.number(&file("pids.max"));
                let now = self.number(&file("pids.current"));
                if let Some((max, now)) = max.zip(now) {
                    let left = max.saturating_sub(now);
                    found.push(TaskLimit { limit: format!("{} ({max})", file("pids.max")), left });
                }
            }
        }
        found
    }
}

/// Returns what each limit leaves.
pub(crate) fn task_limits(host: &Host) -> Vec<TaskLimit> {
    let mut task_limits = host.groups();
    let Some(tasks) = host.tasks() else { return task_limits };
    for key in ["pid_max", "threads-max"] {
        if let Some(max) = host.number(&format!("/proc/sys/kernel/{key}")) {
            let left = max.saturating_sub(tasks);
            task_limits.push(TaskLimit { limit: format!("kernel.{key} ({max})"), left });
        }
    }
    if let Some((max, now)) = host.own {
        task_limits
            .push(TaskLimit { limit: format!("ulimit -u ({max})"), left: max.saturating_sub(now) });
    }
    task_limits
}

/// Refuses more processes than the narrowest limit leaves.
pub(crate) fn check_tasks(wants: u64, task_limits: &[TaskLimit]) -> Result<(), TooMuch> {
    let Some(narrowest) = task_limits.iter().min_by_key(|room| room.left) else { return Ok(()) };
    let room = narrowest.left - narrowest.left / LEFT_FOR_OTHERS;
    if wants + OWN <= room {
        return Ok(());
    }
    Err(TooMuch::Processes { wants, room, limit: narrowest.limit.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(files: &[(&str, &str)], own: Option<(u64, u64)>) -> (tempfile::TempDir, Host) {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let root = folder.path().to_owned();
        (folder, Host { root, own })
    }

    const LOAD: (&str, &str) = ("proc/loadavg", "0.1 0.2 0.3 2/100 4711\n");
    const MAX: (&str, &str) = ("proc/sys/kernel/pid_max", "1100\n");

    #[test]
    fn the_narrowest_limit_refuses_and_is_named() {
        let (_folder, this) = host(&[LOAD, MAX], None);
        let found = task_limits(&this);
        assert_eq!(found, [TaskLimit { limit: "kernel.pid_max (1100)".to_owned(), left: 1000 }]);
        assert!(check_tasks(800, &found).is_ok(), "an eighth stays for others");
        let why = check_tasks(900, &found).unwrap_err().to_string();
        assert!(why.contains("900 processes") && why.contains("kernel.pid_max (1100)"), "{why}");
        let (_folder, this) = host(&[LOAD, MAX], Some((300, 100)));
        let why = check_tasks(300, &task_limits(&this)).unwrap_err().to_string();
        assert!(why.contains("ulimit -u (300)") && why.contains("room for 175"), "{why}");
    }

    #[test]
    fn groups_above_ones_own_count() {
        let files = [
            LOAD,
            MAX,
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/b/pids.max", "max\n"),
            ("sys/fs/cgroup/a/pids.max", "64\n"),
            ("sys/fs/cgroup/a/pids.current", "14\n"),
        ];
        let (_folder, this) = host(&files, None);
        let why = check_tasks(60, &task_limits(&this)).unwrap_err().to_string();
        assert!(why.contains("/sys/fs/cgroup/a/pids.max (64)"), "{why}");
        assert!(check_tasks(40, &task_limits(&this)).is_ok());
    }

    #[test]
    fn a_run_without_visible_limits_starts() {
        let (_folder, this) = host(&[], None);
        assert!(check_tasks(1 << 20, &task_limits(&this)).is_ok());
    }
}
