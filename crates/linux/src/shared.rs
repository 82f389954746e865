//! Memory that processes share which were forked after it was made: how workers tell what they did.

use std::cell::UnsafeCell;
use std::mem::{align_of, size_of};
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

/// A value in memory of its own, which forks share. It goes when its process ends, or is dropped.
pub(crate) struct Region<T> {
    at: NonNull<T>,
}

/// Types of which all bytes 0 are a value.
///
/// # Safety
/// They are.
pub(crate) unsafe trait Zeroed {}

impl<T: Zeroed> Region<T> {
    /// Zeros.
    pub(crate) fn zeroed() -> std::io::Result<Self> {
        // SAFETY: a new mapping, wherever the kernel likes.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size_of::<T>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        const { assert!(align_of::<T>() <= 4096) };
        match NonNull::new(at.cast::<T>()) {
            Some(place) if at != libc::MAP_FAILED => Ok(Self { at: place }),
            _ => Err(std::io::Error::last_os_error()),
        }
    }
}

impl<T> Deref for Region<T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: mapped for as long as `self` lives, and a value from the start.
        unsafe { self.at.as_ref() }
    }
}

impl<T> Drop for Region<T> {
    fn drop(&mut self) {
        // SAFETY: nobody has a reference into it any more; `T` has nothing to drop.
        unsafe { libc::munmap(self.at.as_ptr().cast(), size_of::<T>()) };
    }
}

// SAFETY: as with a reference to a `T` and its only owner.
unsafe impl<T: Send + Sync> Send for Region<T> {}
// SAFETY: as with a reference to a `T`.
unsafe impl<T: Send + Sync> Sync for Region<T> {}

/// A lock between processes and threads: 0, or the number of the thread that holds it. Whoever is
/// killed while he holds it keeps it: others take it from him.
#[derive(Default)]
pub(crate) struct SharedLock(AtomicU32);

/// How long somebody waits before he asks whether the holder lives, and between two questions.
const DOUBT_AFTER: Duration = Duration::from_millis(200);

impl SharedLock {
    /// Runs `work` while nobody else does.
    pub(crate) fn with<R>(&self, work: impl FnOnce() -> R) -> R {
        // SAFETY: asks for a number.
        let own = unsafe { libc::gettid() } as u32;
        let mut since = None;
        while let Err(holder) = self.0.compare_exchange_weak(0, own, Acquire, Relaxed) {
            let doubted = since.get_or_insert_with(Instant::now);
            if holder != 0 && doubted.elapsed() > DOUBT_AFTER {
                let dead = !lives(holder);
                // Of all who found him dead, one has it.
                if dead && self.0.compare_exchange(holder, own, Acquire, Relaxed).is_ok() {
                    break;
                }
                since = None;
            }
            std::thread::yield_now();
        }
        let result = work();
        self.0.store(0, Release);
        result
    }
}

/// Whether a thread still runs: one that has ended and is not reaped does not.
fn lives(thread: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{thread}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
    state.is_some_and(|state| !"ZX".contains(state))
}

struct Cell<T> {
    lock: SharedLock,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: a lock of zeros is free, and the value is written before anybody reads it.
unsafe impl<T> Zeroed for Cell<T> {}
// SAFETY: the value is touched under the lock only.
unsafe impl<T: Send> Sync for Cell<T> {}

/// A value that all processes of a run see and change, made before they start. Plain data only: a
/// pointer would mean something else in each process.
pub struct Shared<T: Copy + Send + 'static>(Arc<Region<Cell<T>>>);

impl<T: Copy + Send + 'static> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Copy + Send + 'static> std::fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shared")
    }
}

impl<T: Copy + Send + Default + 'static> Default for Shared<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: Copy + Send + 'static> Shared<T> {
    /// Memory with `value` in it.
    ///
    /// # Panics
    /// If there is no memory for it.
    pub fn new(value: T) -> Self {
        let region = Region::<Cell<T>>::zeroed().expect("there is a page for what processes share");
        // SAFETY: nobody else knows it yet.
        unsafe { region.value.get().write(Some(value)) };
        Self(Arc::new(region))
    }
    /// Changes it, alone.
    pub fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        self.0.lock.with(|| {
            // SAFETY: only under the lock.
            let value = unsafe { &mut *self.0.value.get() };
            change(value.as_mut().expect("it was made with a value"))
        })
    }
    /// What it is now.
    pub fn get(&self) -> T {
        self.change(|value| *value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fork_sees_what_another_wrote() {
        let sum = Shared::new(1_u64);
        // SAFETY: the child only changes the value and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            sum.change(|sum| *sum += 41);
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(0) };
        }
        // SAFETY: waits for the child above.
        unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
        assert_eq!(sum.get(), 42);
    }

    #[test]
    fn a_lock_whose_holder_died_is_taken_from_him() {
        // SAFETY: the child ends at once, and is reaped at the end.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends the child.
            unsafe { libc::_exit(0) };
        }
        // Not reaped yet, and reaped: both are dead.
        for reaped in [false, true] {
            let lock = SharedLock(AtomicU32::new(child as u32));
            assert_eq!(lock.with(|| 5), 5, "reaped: {reaped}");
            assert_eq!(lock.with(|| 6), 6);
            // SAFETY: waits for the child above.
            unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
        }
    }

    #[test]
    fn a_lock_is_left_to_a_holder_who_is_only_slow() {
        let (lock, sum) = (SharedLock::default(), AtomicU32::new(0));
        std::thread::scope(|scope| {
            let slow = || {
                lock.with(|| {
                    let seen = sum.load(Relaxed);
                    std::thread::sleep(2 * DOUBT_AFTER);
                    sum.store(seen + 1, Relaxed);
                });
            };
            (0..3).for_each(|_| _ = scope.spawn(slow));
        });
        assert_eq!(sum.into_inner(), 3, "nobody came between reading and writing");
    }
}
