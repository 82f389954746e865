//! The resources that a run may use, so that it does not harm the computer that it runs on.

use crate::groups;
use crate::task_limits::{Host, TooMuch, check_tasks, task_limits};
use mmscale_system::CpuPosition;
use std::fs::{self, File};
use std::path::PathBuf;

/// The mechanism that keeps the run's memory within its limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LimitedBy {
    /// A memory group: at the limit the kernel kills a process of the run, and no other.
    Group,
    /// Only the plan, which fits. If memory runs out, processes of the run are killed before
    /// others.
    Plan,
}

/// One part in this many of what is available is left for other programs.
const LEFT_FOR_OTHERS: u64 = 8;
/// Memory of the program's image in each process, with page tables and kernel memory.
pub const PROCESS_BYTES: u64 = 512 << 10;
/// The limit of locked memory of a process, in bytes: Linux's default.
const MEMLOCK_BYTES: u64 = 8 << 20;

/// The limits of one run. Dropping them removes their group.
#[derive(Debug)]
pub(crate) struct Limits {
    /// The possible locations of its group, with the file of its limit. The first that can be made
    /// is used.
    candidates: Vec<(PathBuf, &'static str)>,
    bytes: u64,
}

/// Returns the memory that programs could get, in bytes.
pub fn available_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib << 10)
}

impl Limits {
    /// Refuses a run that does not fit. Nothing is made yet: the warden must exist first, which
    /// removes it even if this process is killed.
    pub(crate) fn set_up(wants: u64, processes: u64) -> Result<Self, TooMuch> {
        check_tasks(processes, &task_limits(&Host::this()))?;
        if let Some(available) = available_bytes() {
            let free = available - available / LEFT_FOR_OTHERS;
            if wants > free {
                return Err(TooMuch::Memory { wants, available: free });
            }
        }
        Ok(Self { candidates: groups::places(), bytes: wants })
    }
    /// Makes a memory group where that is allowed, and puts the calling process, the warden, with
    /// all its future forks under the limits. Returns the group's lock, if there is a group. The
    /// lock shows that the warden lives, so no other process may keep it open.
    pub(crate) fn enter(&self) -> std::io::Result<Option<File>> {
        let mut made = None;
        for (group, limit) in &self.candidates {
            made = groups::make(group, limit, self.bytes);
            if made.is_some() {
                fs::write(group.join("cgroup.procs"), "0")?;
                break;
            }
        }
        // The run is killed before other programs if memory runs out all the same.
        let _ = fs::write("/proc/self/oom_score_adj", "1000");
        let limit = libc::rlimit { rlim_cur: MEMLOCK_BYTES, rlim_max: MEMLOCK_BYTES };
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the limits are ours. No core files: they would contain all memory.
        unsafe {
            libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit);
            libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
        }
        Ok(made)
    }
    /// Moves the calling process, the last of the run, out of the group and removes the group: the
    /// tool may have ended.
    pub(crate) fn leave(&self) {
        for (group, _) in self.candidates.iter().filter(|(group, _)| group.exists()) {
            if let Some(parent) = group.parent() {
                let _ = fs::write(parent.join("cgroup.procs"), "0");
            }
            groups::remove(group);
        }
    }
    /// Kills all processes of the group, from the tool, after the warden has ended.
    pub(crate) fn kill_all(&self) {
        self.candidates.iter().for_each(|(group, _)| groups::kill_all(group));
    }
}

impl Drop for Limits {
    fn drop(&mut self) {
        // The warden has removed it, unless it was killed.
        for (group, _) in &self.candidates {
            groups::remove(group);
        }
    }
}

/// Returns the kernel's numbers of `count` CPUs that this process may use; repeated if there are
/// fewer.
pub(crate) fn cpus(count: usize) -> std::io::Result<Vec<usize>> {
    // SAFETY: a set of CPUs of ours, which the call fills.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) != 0 {
            return Err(std::io::Error::last_os_error());
        }
        set
    };
    // SAFETY: within the set.
    let allowed =
        (0..libc::CPU_SETSIZE as usize).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) });
    let allowed: Vec<usize> = allowed.collect();
    Ok(allowed.iter().copied().cycle().take(count).collect())
}

/// Returns the number of memory nodes.
pub(crate) fn nodes() -> usize {
    let folder = fs::read_dir("/sys/devices/system/node");
    let is_node =
        |name: &str| name.strip_prefix("node").is_some_and(|rest| rest.parse::<u32>().is_ok());
    let count = folder.map_or(1, |entries| {
        entries.flatten().filter(|entry| entry.file_name().to_str().is_some_and(is_node)).count()
    });
    count.max(1)
}

/// Returns the CPUs that this process may use, by the kernel's numbers, with their positions.
pub fn cpu_positions() -> std::io::Result<Vec<(usize, CpuPosition)>> {
    let count = std::thread::available_parallelism()?.get();
    Ok(cpus(count)?.into_iter().map(|cpu| (cpu, position(cpu))).collect())
}

/// Returns where a CPU is, by the kernel's number.
pub(crate) fn position(cpu: usize) -> CpuPosition {
    let folder = format!("/sys/devices/system/cpu/cpu{cpu}");
    let entries = |path: &str| {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect::<Vec<_>>()
    };
    let numbered = |name: &str, begin: &str| name.strip_prefix(begin)?.parse::<usize>().ok();
    // A list begins with the lowest number of the CPUs that share something.
    let first_of = |path: &str| {
        let list = fs::read_to_string(path).ok()?;
        list.split(['-', ',']).next()?.trim().parse::<usize>().ok()
    };
    let node = entries(&folder).iter().find_map(|name| numbered(name, "node")).unwrap_or(0);
    let caches = format!("{folder}/cache");
    let last = entries(&caches).iter().filter_map(|name| numbered(name, "index")).max();
    let shared = last.and_then(|last| first_of(&format!("{caches}/index{last}/shared_cpu_list")));
    CpuPosition {
        core: first_of(&format!("{folder}/topology/thread_siblings_list")).unwrap_or(cpu),
        cluster: shared.unwrap_or(node),
        node,
    }
}

/// Returns the size of the last-level cache of the first CPU, in KiB; `None` if the kernel does not
/// say.
pub fn last_level_cache_kib() -> Option<u64> {
    let sizes = (0..8).map_while(|index| {
        fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size")).ok()
    });
    sizes.last()?.trim().strip_suffix('K')?.parse().ok()
}

/// Capabilities that programs keep, from capabilities(7): to set priorities, and to lower their
/// `oom_score_adj` again. All others are dropped, so that manual pages hold for root too.
const KEPT: [u32; 2] = [23, 24];

/// Drops the capabilities of root.
pub(crate) fn give_up_rights() {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    #[repr(C)]
    #[derive(Clone, Copy, Default)]
    struct Data {
        effective: u32,
        permitted: u32,
        inheritable: u32,
    }
    const VERSION_3: u32 = 0x2008_0522;
    let mut header = Header { version: VERSION_3, pid: 0 };
    let mut data = [Data::default(); 2];
    let kept = KEPT.iter().fold(0, |bits, bit| bits | 1 << bit);
    // SAFETY: both places have the layout that the calls expect.
    unsafe {
        if libc::syscall(libc::SYS_capget, &raw mut header, data.as_mut_ptr()) == 0 {
            data[0].effective &= kept;
            data[0].permitted &= kept;
            data[1] = Data::default();
            libc::syscall(libc::SYS_capset, &raw mut header, data.as_ptr());
        }
    }
}
