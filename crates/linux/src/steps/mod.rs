//! Single steps of this kernel, timed by system calls, for a machine profile of it.
//!
//! Each is an operation that a kernel repeats often, on one CPU or between two: a system call, a
//! change of a VMA, a fault that finds its page, a task switch, a wake-up, a call to another CPU.
//! None of them is a measurement of a study.

mod pair;

pub use pair::switches;

use crate::limits;
use crate::system::clock_ns;
use std::io::Error;
use std::os::fd::{AsRawFd, FromRawFd};
use thiserror::Error;

/// The results of one round, in ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Round {
    /// A system call without work: getppid.
    pub syscall_ns: f64,
    /// Half of mmap and munmap of a page that is not touched, without the entries.
    pub vma_edit_ns: f64,
    /// A write fault on an existing page of a shared memory file: nothing is allocated.
    pub fault_ns: f64,
    /// A switch between two tasks of a CPU that yield to each other, without the calls.
    pub switch_ns: f64,
    /// Waking a task of the same CPU by futex, without the calls and the switch to it.
    pub wake_ns: f64,
    /// Steps between two CPUs; `None` on a computer with one.
    pub pair: Option<PairRound>,
}

/// The results of a round between two CPUs, in ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairRound {
    /// The time that one interrupt and its answer add to an expedited membarrier; `None` where the
    /// kernel does not have it.
    pub ipi_ns: Option<f64>,
    /// From the wake-up of a task on a sleeping CPU to its first step, without the wake-up itself,
    /// the switch and a call.
    pub idle_exit_ns: f64,
}

/// Why a step could not be measured.
#[derive(Debug, Error)]
#[error("measuring steps of this kernel: {what}: {why}")]
pub struct StepError {
    what: &'static str,
    why: Error,
}

fn failed(what: &'static str) -> impl FnOnce(Error) -> StepError {
    move |why| StepError { what, why }
}

fn now_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// Measures every step once, in about 50 ms. A slow moment of the computer affects all of them:
/// call it several times, and take medians.
pub fn measure_round() -> Result<Round, StepError> {
    let cpus = limits::cpus(2).map_err(failed("which CPUs may be used"))?;
    let (one, other) = (cpus[0], cpus[1]);
    let alone = pair::on(one, Alone::measure)?;
    let syscall_ns = alone.syscall_ns;
    let switch_ns = pair::switch_ns(one, alone.yield_ns)?;
    let wake_ns = (pair::turn_ns(one, one)? - switch_ns - 2.0 * syscall_ns).max(0.0);
    let between = |one, other| -> Result<PairRound, StepError> {
        let idle_exit_ns = pair::turn_ns(one, other)? - wake_ns - switch_ns - syscall_ns;
        Ok(PairRound { ipi_ns: pair::ipi_ns(one, other)?, idle_exit_ns: idle_exit_ns.max(0.0) })
    };
    let pair = (one != other).then(|| between(one, other)).transpose()?;
    let Alone { vma_edit_ns, fault_ns, .. } = alone;
    Ok(Round { syscall_ns, vma_edit_ns, fault_ns, switch_ns, wake_ns, pair })
}

/// Steps of one task on one CPU, in ns.
struct Alone {
    syscall_ns: f64,
    yield_ns: f64,
    vma_edit_ns: f64,
    fault_ns: f64,
}

impl Alone {
    fn measure() -> Result<Self, StepError> {
        let call_ns = |number| {
            median_ns(21, 200, || {
                // SAFETY: the call has no arguments.
                unsafe { libc::syscall(number) };
            })
        };
        let (syscall_ns, yield_ns) = (call_ns(libc::SYS_getppid), call_ns(libc::SYS_sched_yield));
        let mut refused = None;
        let both_ns = median_ns(21, 100, || {
            refused = Mapping::new(PAGE_BYTES, libc::MAP_ANONYMOUS, -1).err().or(refused.take());
        });
        if let Some(why) = refused {
            return Err(why);
        }
        let vma_edit_ns = (both_ns / 2.0 - syscall_ns).max(0.0);
        Ok(Self { syscall_ns, yield_ns, vma_edit_ns, fault_ns: fault_ns()? })
    }
}

/// Returns the median of some stretches, in ns a call: disturbance of one stretch does not count.
fn median_ns(stretches: usize, calls: u32, mut call: impl FnMut()) -> f64 {
    let stretch = |_| {
        let begun_ns = now_ns();
        (0..calls).for_each(|_| call());
        (now_ns() - begun_ns) as f64 / f64::from(calls)
    };
    let mut times: Vec<f64> = (0..stretches).map(stretch).collect();
    times.sort_by(f64::total_cmp);
    times[stretches / 2]
}

const PAGE_BYTES: usize = 4096;
/// Pages of a stretch of faults: one page table.
const FAULTS: usize = 512;

/// A mapping, which is unmapped on drop.
struct Mapping(*mut libc::c_void, usize);

impl Mapping {
    fn new(bytes: usize, flags: i32, file: i32) -> Result<Self, StepError> {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let shared = if file < 0 { libc::MAP_PRIVATE } else { libc::MAP_SHARED };
        // SAFETY: a new range of the kernel's choice.
        let at =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, rights, flags | shared, file, 0) };
        if at == libc::MAP_FAILED {
            return Err(failed("mmap")(Error::last_os_error()));
        }
        Ok(Self(at, bytes))
    }

    fn write_each_page(&self) {
        for at in (0..self.1).step_by(PAGE_BYTES) {
            // SAFETY: within the mapping, which is writable and has no other user.
            unsafe { self.0.cast::<u8>().add(at).write_volatile(1) };
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is ours, and no pointer into it is left.
        unsafe { libc::munmap(self.0, self.1) };
    }
}

/// Measures write faults on pages that a file has: the exception, the walk to the page, one entry.
fn fault_ns() -> Result<f64, StepError> {
    // SAFETY: the name ends with a zero.
    let file = unsafe { libc::memfd_create(c"mmscale-steps".as_ptr(), libc::MFD_CLOEXEC) };
    if file < 0 {
        return Err(failed("memfd_create")(Error::last_os_error()));
    }
    // SAFETY: the descriptor is new, and ours.
    let file = unsafe { std::fs::File::from_raw_fd(file) };
    let bytes = FAULTS * PAGE_BYTES;
    file.set_len(bytes as u64).map_err(failed("the length of a memory file"))?;
    let fd = file.as_raw_fd();
    // The first mapping allocates the pages of the file.
    Mapping::new(bytes, 0, fd)?.write_each_page();
    let mut times = Vec::new();
    for _ in 0..11 {
        let fresh = Mapping::new(bytes, 0, fd)?;
        let begun_ns = now_ns();
        fresh.write_each_page();
        times.push((now_ns() - begun_ns) as f64 / FAULTS as f64);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}
