//! Memory shared by processes that are forked after it was made: workers report through it.

use mmscale_system::Plain;
use std::cell::UnsafeCell;
use std::mem::{MaybeUninit, align_of, size_of};
use std::ops::Deref;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::{Duration, Instant};

/// A value in a mapping of its own, which forks share. It is unmapped when it is dropped, or its
/// process ends.
pub(crate) struct Region<T> {
    at: NonNull<T>,
}

/// Types for which all bytes 0 are a valid value.
///
/// # Safety
/// All bytes 0 are a valid value of the type.
pub(crate) unsafe trait Zeroed {}

impl<T: Zeroed> Region<T> {
    /// Maps zeros.
    pub(crate) fn zeroed() -> std::io::Result<Self> {
        // SAFETY: a new mapping, at an address of the kernel's choice.
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
        // SAFETY: mapped for as long as `self` lives, and valid from the start.
        unsafe { self.at.as_ref() }
    }
}

impl<T> Drop for Region<T> {
    fn drop(&mut self) {
        // SAFETY: no reference into it is left; `T` has nothing to drop.
        unsafe { libc::munmap(self.at.as_ptr().cast(), size_of::<T>()) };
    }
}

// SAFETY: as with a reference to a `T` and its only owner.
unsafe impl<T: Send + Sync> Send for Region<T> {}
// SAFETY: as with a reference to a `T`.
unsafe impl<T: Send + Sync> Sync for Region<T> {}

/// A lock between processes and threads: 0, or the number of the thread that holds it. If the
/// holder is killed, the next thread that locks it detects that and takes the lock over.
#[derive(Default)]
pub(crate) struct SharedLock(AtomicU32);

/// How long a thread waits before it checks whether the holder lives, and between two checks.
const DOUBT_AFTER: Duration = Duration::from_millis(200);

/// Releases the lock, on unwinding too.
struct SharedLockGuard<'a>(&'a SharedLock);

impl Drop for SharedLockGuard<'_> {
    fn drop(&mut self) {
        // Pairs with the `Acquire` exchanges in `with`.
        self.0.0.store(0, Release);
    }
}

impl SharedLock {
    /// Runs `work` under the lock, which is released if `work` panics.
    ///
    /// # Panics
    /// If the calling thread holds the lock already.
    pub(crate) fn with<R>(&self, work: impl FnOnce() -> R) -> R {
        // SAFETY: reads a number.
        let own = unsafe { libc::gettid() } as u32;
        let mut since = None;
        while let Err(holder) = self.0.compare_exchange_weak(0, own, Acquire, Relaxed) {
            assert!(holder != own, "a value that processes share is used inside its own change");
            let doubted = since.get_or_insert_with(Instant::now);
            if holder != 0 && doubted.elapsed() > DOUBT_AFTER {
                let dead = !lives(Path::new("/proc"), holder);
                // Of all threads that found the holder dead, one gets the lock.
                if dead && self.0.compare_exchange(holder, own, Acquire, Relaxed).is_ok() {
                    break;
                }
                since = None;
            }
            std::thread::yield_now();
        }
        let _held = SharedLockGuard(self);
        work()
    }
}

/// Whether a thread still runs; one that has ended and is not reaped does not. If `proc` cannot be
/// read, because it is not mounted or no file can be opened, the thread counts as running: two
/// holders at the same time would be worse than waiting.
fn lives(proc: &Path, thread: u32) -> bool {
    match std::fs::read_to_string(proc.join(thread.to_string()).join("stat")) {
        Ok(stat) => {
            let state = stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
            state.is_none_or(|state| !"ZX".contains(state))
        }
        Err(why) => {
            let gone = [libc::ENOENT, libc::ESRCH].map(Some).contains(&why.raw_os_error());
            !gone || !proc.join("self").exists()
        }
    }
}

/// A value in two copies, one of which is current. If a process is killed during a change, the
/// value stays as it was before.
struct Cell<T> {
    lock: SharedLock,
    /// The index of the current copy.
    current: AtomicU32,
    copies: [UnsafeCell<MaybeUninit<T>>; 2],
}

// SAFETY: a lock of zeros is free, the index is 0, and the copies may be any bytes.
unsafe impl<T> Zeroed for Cell<T> {}
// SAFETY: the copies are accessed under the lock only.
unsafe impl<T: Send> Sync for Cell<T> {}

/// A value that all processes of a run see and change, made before they start.
///
/// Each process has its own memory except for this value, so a pointer would be valid in one
/// process only: [`Plain`] types have none.
pub struct Shared<T: Plain>(Arc<Region<Cell<T>>>);

impl<T: Plain> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Plain> std::fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shared")
    }
}

impl<T: Plain + Default> Default for Shared<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: Plain> Shared<T> {
    /// Makes shared memory with `value` in it.
    ///
    /// # Panics
    /// If no memory can be mapped.
    pub fn new(value: T) -> Self {
        let region = Region::<Cell<T>>::zeroed().expect("there is a page for what processes share");
        // SAFETY: no other thread has a reference yet.
        unsafe { region.copies[0].get().write(MaybeUninit::new(value)) };
        Self(Arc::new(region))
    }
    /// Changes it under a lock that all processes share. If `change` panics, or its process is
    /// killed, the value stays as it was.
    ///
    /// # Panics
    /// If it is called inside `change`.
    pub fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let cell = &*self.0;
        cell.lock.with(|| {
            // Pairs with the `Release` below, in a process that was killed before it released the
            // lock.
            let current = (cell.current.load(Acquire) & 1) as usize;
            // SAFETY: under the lock, and this copy was written before it became current.
            let mut value = unsafe { (*cell.copies[current].get()).assume_init() };
            let result = change(&mut value);
            let other = current ^ 1;
            // SAFETY: under the lock, and no thread reads a copy that is not current.
            unsafe { cell.copies[other].get().write(MaybeUninit::new(value)) };
            cell.current.store(other as u32, Release);
            result
        })
    }
    /// Returns the value.
    pub fn get(&self) -> T {
        self.change(|value| *value)
    }
}

// SAFETY: numbers.
unsafe impl<const N: usize> Zeroed for [AtomicU64; N] {}

/// Numbers that all processes of a run see and change, made before they start, each at first 0.
/// They have no lock: a process that looks at one all the time makes no system call.
pub struct SharedNumbers<const N: usize>(Arc<Region<[AtomicU64; N]>>);

impl<const N: usize> SharedNumbers<N> {
    /// Makes shared memory with zeros in it.
    ///
    /// # Panics
    /// If no memory can be mapped.
    pub fn zeroed() -> Self {
        Self(Arc::new(Region::zeroed().expect("there is a page for what processes share")))
    }
}

impl<const N: usize> Clone for SharedNumbers<N> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<const N: usize> Deref for SharedNumbers<N> {
    type Target = [AtomicU64; N];
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<const N: usize> std::fmt::Debug for SharedNumbers<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SharedNumbers")
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
            // SAFETY: ends the child immediately.
            unsafe { libc::_exit(0) };
        }
        // SAFETY: waits for the child above.
        unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
        assert_eq!(sum.get(), 42);
    }

    #[test]
    fn a_lock_whose_holder_died_is_taken_over() {
        // SAFETY: the child ends immediately, and is reaped at the end.
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
    fn a_change_that_panics_or_is_cut_off_leaves_the_value_and_no_lock() {
        let pair = Shared::new((1_u64, 1_u64));
        let change = std::panic::AssertUnwindSafe(|| {
            pair.change(|pair| {
                pair.0 = 2;
                panic!("in the middle");
            })
        });
        assert!(std::panic::catch_unwind(change).is_err());
        assert_eq!(pair.get(), (1, 1), "a lock that stayed would be waited for without end");
        // SAFETY: the child only changes the value and is killed.
        let child = unsafe { libc::fork() };
        if child == 0 {
            pair.change(|pair| {
                pair.0 = 3;
                // SAFETY: ends the child.
                unsafe { libc::raise(libc::SIGKILL) };
            });
        }
        // SAFETY: waits for the child above.
        unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
        assert_eq!(pair.get(), (1, 1), "half of a change");
        pair.change(|pair| pair.1 = 4);
        assert_eq!(pair.get(), (1, 4));
    }

    #[test]
    #[should_panic(expected = "inside its own change")]
    fn a_value_that_is_used_inside_its_own_change_is_a_panic() {
        let sum = Shared::new(1_u64);
        sum.change(|_| sum.get());
    }

    #[test]
    fn a_holder_that_cannot_be_looked_at_is_taken_to_live() {
        let folder = tempfile::tempdir().unwrap();
        let lives = |thread| lives(folder.path(), thread);
        assert!(lives(7), "no /proc is mounted there");
        std::fs::create_dir_all(folder.path().join("self")).unwrap();
        assert!(!lives(7));
        // A read that fails for another reason, for example because no descriptor is left.
        std::fs::create_dir_all(folder.path().join("7/stat")).unwrap();
        assert!(lives(7));
        for (thread, stat, runs) in [(8, "8 (a) b) R 1", true), (9, "9 (x) Z 1", false)] {
            std::fs::create_dir_all(folder.path().join(thread.to_string())).unwrap();
            std::fs::write(folder.path().join(format!("{thread}/stat")), stat).unwrap();
            assert_eq!(lives(thread), runs, "{stat}");
        }
    }

    #[test]
    fn a_lock_is_left_to_a_holder_that_is_only_slow() {
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
        assert_eq!(sum.into_inner(), 3, "no other change came between reading and writing");
    }
}
