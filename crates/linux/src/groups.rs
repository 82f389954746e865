//! Memory groups of runs. A run makes one and removes it. If all of its processes are killed, a
//! later run or `live doctor` finds the group, kills the processes in it and removes it.

use crate::proof::{Identity, lock_of_dead};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The mount points of a hierarchy of groups, version 1 first.
const ROOTS: [&str; 2] = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"];
/// How long processes may take to end, and a group to become empty.
const PATIENCE: Duration = Duration::from_secs(5);

/// Returns the possible locations of a new memory group below this process's own, with the file of
/// its limit. Its name identifies the tool that made it.
pub(crate) fn places() -> Vec<(PathBuf, &'static str)> {
    let name = format!("mmscale-{}-{}", Identity::own(), next());
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let place = |line: &str| {
        let mut fields = line.splitn(3, ':');
        let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let path = Path::new(path.trim_start_matches('/')).join(&name);
        if controllers.split(',').any(|name| name == "memory") {
            Some((Path::new(ROOTS[0]).join(path), "memory.limit_in_bytes"))
        } else if number == "0" {
            Some((Path::new(ROOTS[1]).join(path), "memory.max"))
        } else {
            None
        }
    };
    own.lines().filter_map(place).collect()
}

fn next() -> u32 {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Relaxed: only the numbers must differ.
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Makes a group with its limit and locks it. A group that cannot have the limit is removed. The
/// lock is released when the calling process has ended, in any way.
pub(crate) fn make(group: &Path, limit: &str, bytes: u64) -> Option<File> {
    fs::create_dir(group).ok()?;
    let locked = File::open(group).ok().filter(|lock| lock.try_lock().is_ok());
    if locked.is_none() || fs::write(group.join(limit), bytes.to_string()).is_err() {
        let _ = fs::remove_dir(group);
        return None;
    }
    // The limit is of memory: what is swapped out beyond it would be taken from other programs.
    let _ = fs::write(group.join("memory.swap.max"), "0");
    let _ = fs::write(group.join("memory.memsw.limit_in_bytes"), bytes.to_string());
    locked
}

/// Removes a group, whose last process may still be ending. Returns whether it is gone.
pub(crate) fn remove(group: &Path) -> bool {
    for _ in 0..200 {
        if fs::remove_dir(group).is_ok() || !group.exists() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

fn members(group: &Path) -> Vec<i32> {
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).filter(|&pid| pid > 0).collect()
}

/// Kills all processes of a group and waits until they have ended.
pub(crate) fn kill_all(group: &Path) {
    let since = Instant::now();
    while since.elapsed() < PATIENCE && !members(group).is_empty() {
        // In one step where the kernel can: version 2, since Linux 5.14.
        if fs::write(group.join("cgroup.kill"), "1").is_err() {
            members(group).into_iter().for_each(|pid| kill_member(group, pid));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Kills a process if it is in the group. Its number is checked again while the kernel cannot reuse
/// it.
fn kill_member(group: &Path, pid: i32) {
    // SAFETY: only numbers; the descriptor is ours.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0) as i32;
        if fd < 0 {
            return;
        }
        if members(group).contains(&pid) {
            libc::syscall(libc::SYS_pidfd_send_signal, fd, libc::SIGKILL, 0, 0);
        }
        libc::close(fd);
    }
}

/// Returns the tool that made a group, from its name.
fn owner(group: &Path) -> Option<Identity> {
    let name = group.file_name()?.to_str()?.strip_prefix("mmscale-")?;
    name.rsplit_once('-')?.0.parse().ok()
}

/// Collects the groups of runs below `folder`, those of live runs included.
fn all_below(folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        match owner(&entry.path()) {
            Some(_) => found.push(entry.path()),
            None => all_below(&entry.path(), found),
        }
    }
}

/// Removes groups whose tool and warden are gone. Returns the removed ones, and those that could
/// not be removed.
pub(crate) fn remove_stale() -> (Vec<PathBuf>, Vec<PathBuf>) {
    let root = ROOTS.iter().map(Path::new).find(|root| root.is_dir());
    let mut all = Vec::new();
    root.into_iter().for_each(|root| all_below(root, &mut all));
    all.into_iter().filter_map(|group| Some((remove_if_stale(&group)?, group))).fold(
        Default::default(),
        |mut both: (Vec<_>, Vec<_>), (removed, group)| {
            if removed {
                both.0.push(group)
            } else {
                both.1.push(group)
            }
            both
        },
    )
}

/// Removes a group. Returns `None` if it is in use, or another user's.
fn remove_if_stale(group: &Path) -> Option<bool> {
    let lock = File::open(group).ok()?;
    // SAFETY: reads a number.
    let own = lock.metadata().ok()?.uid() == unsafe { libc::geteuid() };
    let _lock = if own { lock_of_dead(owner(group)?, lock)? } else { return None };
    kill_all(group);
    Some(remove(group))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_groups_name_identifies_its_tool() {
        let (path, _) = places().remove(0);
        assert_eq!(owner(&path), Some(Identity::own()));
        for other in ["/a/mmscale-1-2", "/a/mmscale-x-1-2", "/a/other-1-2-3", "/"] {
            assert_eq!(owner(Path::new(other)), None, "{other}");
        }
    }
}
