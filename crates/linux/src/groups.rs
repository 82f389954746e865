//! Memory groups of runs. A run makes one and removes it; if all of its processes are killed, a
//! later run or `doctor` finds the group, kills what is in it and removes it.

use crate::proof::{Identity, lock_of_dead};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where the groups of a hierarchy are mounted, version 1 first.
const ROOTS: [&str; 2] = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"];
/// How long processes may take to end, and a group to become empty.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where a new memory group below this process's own can be, with the file of its limit. Its name
/// says which tool it belongs to.
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
    // Pairs with itself: only that no two are equal matters.
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Makes a group with its limit and locks it; nothing is left of one that cannot have it. The lock
/// is free again when the calling process has ended, however it ends.
pub(crate) fn make(group: &Path, limit: &str, bytes: u64) -> Option<File> {
    fs::create_dir(group).ok()?;
    let locked = File::open(group).ok().filter(|lock| lock.try_lock().is_ok());
    if locked.is_none() || fs::write(group.join(limit), bytes.to_string()).is_err() {
        let _ = fs::remove_dir(group);
        return None;
    }
    // The limit is of memory: what is swapped out beyond it is taken from others too.
    let _ = fs::write(group.join("memory.swap.max"), "0");
    let _ = fs::write(group.join("memory.memsw.limit_in_bytes"), bytes.to_string());
    locked
}

/// Removes a group; its last process may still be on its way out. Returns whether it is gone.
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

/// Kills a process if it is in the group: its number is looked at again while it cannot be given to
/// another one.
fn kill_member(group: &Path, pid: i32) {
    // SAFETY: numbers only; the descriptor is ours.
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

/// The tool that a group belongs to, by its name.
fn owner(group: &Path) -> Option<Identity> {
    let name = group.file_name()?.to_str()?.strip_prefix("mmscale-")?;
    name.rsplit_once('-')?.0.parse().ok()
}

/// Groups of runs below `folder`, whether their runs live or not.
fn all_below(folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        match owner(&entry.path()) {
            Some(_) => found.push(entry.path()),
            None => all_below(&entry.path(), found),
        }
    }
}

/// Removes groups whose tool and warden are gone. Returns what was removed, and what could not be.
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

/// None if the group is in use, or another user's.
fn remove_if_stale(group: &Path) -> Option<bool> {
    let lock = File::open(group).ok()?;
    // SAFETY: asks for a number.
    let own = lock.metadata().ok()?.uid() == unsafe { libc::geteuid() };
    let _lock = if own { lock_of_dead(owner(group)?, lock)? } else { return None };
    kill_all(group);
    Some(remove(group))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_groups_name_says_whose_it_is() {
        let (path, _) = places().remove(0);
        assert_eq!(owner(&path), Some(Identity::own()));
        for other in ["/a/mmscale-1-2", "/a/mmscale-x-1-2", "/a/other-1-2-3", "/"] {
            assert_eq!(owner(Path::new(other)), None, "{other}");
        }
    }
}
