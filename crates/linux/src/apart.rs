//! Inherited state that a run must not have: a memory layout that places this program where the
//! memory of programs will be, children that the kernel reaps by itself, and free memory.

use crate::process::{USER_BEGIN, USER_END};
use std::io::{Error, Result};

/// Refuses a process whose own memory overlaps that of programs: processes of the run would unmap
/// it. The layouts of `setarch -L` and `vm.legacy_va_layout`, programs at fixed addresses, and
/// AddressSanitizer do this.
pub(crate) fn check_layout() -> Result<()> {
    match first_inside(&std::fs::read_to_string("/proc/self/maps")?) {
        None => Ok(()),
        Some(line) => Err(Error::other(format!(
            "this process has `{line}` below {USER_END:#x}, where programs of the run have theirs: \
             start it without `setarch -L`, with vm.legacy_va_layout=0, and without sanitizers"
        ))),
    }
}

/// Returns the first mapping in `maps` that overlaps the memory of programs.
fn first_inside(maps: &str) -> Option<&str> {
    maps.lines().find(|line| {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let number = |text| u64::from_str_radix(text, 16).ok();
        let range = range.and_then(|(from, to)| number(from).zip(number(to)));
        range.is_some_and(|(from, to)| from < USER_END && to > USER_BEGIN)
    })
}

/// Returns free memory of the C library's allocator to the kernel. Each fork of a run copies the
/// page tables of this program, too: 20 MiB that were in use before make a fork several times as
/// long.
pub(crate) fn return_free_memory() {
    // SAFETY: the allocator does it under its own locks.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0)
    };
}

/// Makes ends of children visible if the program that started this one has ignored them: the kernel
/// would reap such children by itself, and their ends would not be seen.
pub(crate) fn keep_ended_children() {
    // SAFETY: a zeroed sigaction is valid, and the place is ours; the default action is no handler.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        let asked = libc::sigaction(libc::SIGCHLD, std::ptr::null(), &raw mut now);
        if asked == 0 && now.sa_sigaction == libc::SIG_IGN {
            libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_among_those_of_programs_is_found() {
        let usual = "555555554000-555555556000 r--p 00000000 08:01 1 /bin/a\n\
                     7ffff7ffd000-7ffff7fff000 rw-p 00000000 00:00 0\n\
                     ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]\n";
        assert_eq!(first_inside(usual), None);
        let legacy = "2aaaaaaab000-2aaaaaaac000 r--p 00000000 08:01 1 /lib/ld.so";
        assert_eq!(first_inside(&format!("{usual}{legacy}\n")), Some(legacy));
        let fixed = "00400000-00401000 r-xp 00000000 08:01 1 /bin/a";
        assert_eq!(first_inside(fixed), Some(fixed));
    }
}
