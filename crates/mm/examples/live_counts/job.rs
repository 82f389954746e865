//! The job on the live kernel.

use crate::kernel::Cache;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

const PAGE: usize = 4096;

fn pin(cpu: usize) -> Result<(), String> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).map_err(|why| format!("pinning a thread to CPU {cpu}: {why}"))
}

/// Touched single pages.
struct Pages {
    base: *mut u8,
    bytes: usize,
}

// SAFETY: the mapping is reached through this value alone.
unsafe impl Send for Pages {}

impl Pages {
    /// Takes `pages` pages from this CPU's page cache, one by one.
    fn touch(pages: usize) -> Result<Self, String> {
        let (access, bytes) = (ProtFlags::READ | ProtFlags::WRITE, pages * PAGE);
        // SAFETY: a new mapping, placed by the system, overlaps nothing.
        let base =
            unsafe { mmap_anonymous(core::ptr::null_mut(), bytes, access, MapFlags::PRIVATE) };
        let base = base.map_err(|why| format!("mapping {pages} pages: {why}"))?.cast::<u8>();
        let pages = Self { base, bytes };
        // SAFETY: the mapping is ours.
        let small = unsafe { madvise(base.cast(), bytes, Advice::LinuxNoHugepage) };
        // A kernel without huge pages refuses, and gives single pages anyway.
        if let Err(why) = small
            && why != rustix::io::Errno::INVAL
        {
            return Err(format!("asking for single pages: {why}"));
        }
        for at in (0..bytes).step_by(PAGE) {
            // SAFETY: the byte lies in the mapping, which only this value reaches.
            unsafe { base.add(at).write_volatile(1) };
        }
        Ok(pages)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and is not used after this. If the call fails, it stays
        // until the process ends.
        let _ = unsafe { munmap(self.base.cast(), self.bytes) };
    }
}

fn spin(time: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < time {
        std::hint::spin_loop();
    }
}

fn joined<T>(thread: thread::JoinHandle<Result<T, String>>) -> Result<T, String> {
    thread.join().map_err(|_| "a thread panicked".to_owned())?
}

/// A thread on every CPU that computes and takes and frees a few pages, so that no CPU is idle and
/// every tick finds something to do.
pub(crate) fn keep_busy(cpus: usize, seconds: u64) -> Result<(), String> {
    let work = |cpu| {
        thread::spawn(move || {
            pin(cpu)?;
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_secs(seconds) {
                drop(Pages::touch(8)?);
                spin(Duration::from_millis(5));
            }
            Ok(())
        })
    };
    let threads: Vec<_> = (0..cpus).map(work).collect();
    threads.into_iter().try_for_each(joined)
}

/// Gives the calling thread the CPU for itself, or ends that. Used for a few ms only: no other
/// thread runs on the CPU then, not even a kernel thread. Without `chrt` other threads may disturb.
fn alone(on: bool) {
    let thread = rustix::thread::gettid().to_string();
    let policy = if on { ["--fifo", "--pid", "10"] } else { ["--other", "--pid", "0"] };
    let _ = Command::new("chrt").args(policy).arg(thread).output();
}

/// The job: as many pages as CPU 0 has cached and `past_empty` more are taken there; these and
/// `foreign` ones from CPU 1 are freed there; then nothing but computing. Returns the page cache as
/// it was at the start.
pub(crate) fn take_and_free(
    past_empty: usize,
    foreign: usize,
    rest_s: u64,
) -> Result<Cache, String> {
    let others = joined(thread::spawn(move || {
        pin(1)?;
        Pages::touch(foreign)
    }))?;
    joined(thread::spawn(move || {
        pin(0)?;
        alone(true);
        let start = Cache::look(0)?;
        drop((Pages::touch(start.count as usize + past_empty)?, others));
        alone(false);
        spin(Duration::from_secs(rest_s));
        Ok(start)
    }))
}
