//! Data of one CPU, guarded against the interrupts of that same CPU.

use crate::Cpu;
use core::sync::atomic::{AtomicBool, Ordering, compiler_fence};

/// In checked builds: loads after which a context that finds the data in use believes that it has
/// interrupted its user.
const WATCHED: u32 = 100;

/// A `T` that only one CPU changes, in at most one context at a time: a task, or an interrupt that
/// came while the task did not use it.
///
/// It is not a lock between CPUs. Entering costs a load and a store. An interrupt that finds the
/// data in use has interrupted its user, and must do without the data. The fields of `T` are
/// relaxed atomics, which their CPU reads and writes like plain variables. So other CPUs may read
/// them ([`Local::peek`]); the values are exact only while their CPU does not change them.
///
/// If all bits of the data may be zero, so may all bits of this: the data is not in use.
///
/// With [`Cpu::SHARED_CACHES`] another CPU may enter too, while the data is not in use. Then
/// entering is an atomic exchange.
pub struct Local<T> {
    used: AtomicBool,
    data: T,
}

impl<T> Local<T> {
    /// Wraps data that is not in use.
    pub const fn new(data: T) -> Self {
        Self { used: AtomicBool::new(false), data }
    }
    /// Returns the data, or `None` if the interrupted context uses it, or another CPU with
    /// [`Cpu::SHARED_CACHES`]. Without that, the caller runs on the CPU of the data, or that CPU
    /// has stopped. It does not migrate while it has the guard.
    ///
    /// # Panics
    /// In checked builds, if it notices that the user of the data was not interrupted, but runs at
    /// the same time: two contexts have one CPU number.
    #[inline]
    pub fn enter<A: Cpu>(&self) -> Option<LocalGuard<'_, T>> {
        if A::SHARED_CACHES {
            // Pairs with the `Release` in `drop` of another CPU's guard.
            let used = self.used.swap(true, Ordering::Acquire);
            return if used { None } else { Some(LocalGuard { local: self }) };
        }
        if self.used.load(Ordering::Relaxed) {
            if cfg!(debug_assertions) {
                self.watch(WATCHED);
            }
            return None;
        }
        self.used.store(true, Ordering::Relaxed);
        // An interrupt on this CPU must see `used` set before it sees changes to the data. It runs
        // on the same CPU, so a compiler fence is enough. The fence in `drop` is its counterpart.
        compiler_fence(Ordering::SeqCst);
        Some(LocalGuard { local: self })
    }
    /// Panics if the data is released meanwhile. An interrupted user cannot do that.
    #[cold]
    fn watch(&self, loads: u32) {
        for _ in 0..loads {
            let used = self.used.load(Ordering::Relaxed);
            assert!(used, "two contexts run as one CPU at the same time: give each its own number");
            core::hint::spin_loop();
        }
    }
    /// Returns the data, exclusively.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.data
    }
    /// Returns the data for reading, on any CPU.
    pub fn peek(&self) -> &T {
        &self.data
    }
}

/// The data is in use until this is dropped.
#[must_use]
pub struct LocalGuard<'a, T> {
    local: &'a Local<T>,
}

impl<T> core::ops::Deref for LocalGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.local.data
    }
}

impl<T> Drop for LocalGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // Counterpart of the fence in `enter`: an interrupt that finds `used` clear finds the data
        // complete. Pairs with the exchange there: so does another CPU.
        compiler_fence(Ordering::SeqCst);
        self.local.used.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use crate::bare::{Bare, BareCpu};
    use crate::{CpuId, IrqState};
    use core::sync::atomic::AtomicU32;
    use std::sync::Barrier;
    use std::thread;

    struct One<const SHARED: bool>;

    // SAFETY: there are no interrupts, and no preemption. The tests break the rule on purpose.
    unsafe impl<const SHARED: bool> Bare for One<SHARED> {
        const SHARED_CACHES: bool = SHARED;
        fn cpu() -> CpuId {
            CpuId::new(0)
        }
        fn cpus() -> usize {
            1
        }
        fn preempt_disable() {}
        fn preempt_enable() {}
        fn irq_save() -> IrqState {
            IrqState(false)
        }
        fn irq_restore(_: IrqState) {}
    }

    fn an_interrupt_cannot_enter<const SHARED: bool>() {
        let local = Local::new(AtomicU32::new(1));
        let enter = || local.enter::<BareCpu<One<SHARED>>>();
        let first = enter().expect("the data is not in use");
        assert!(enter().is_none());
        first.store(2, Ordering::Relaxed);
        drop(first);
        assert_eq!(enter().map(|guard| guard.load(Ordering::Relaxed)), Some(2));
    }

    #[test]
    fn an_interrupt_of_its_user_cannot_enter() {
        an_interrupt_cannot_enter::<false>();
        an_interrupt_cannot_enter::<true>();
    }

    /// A thread that finds another one in the data, which then leaves: no interrupt sees that.
    #[test]
    fn two_threads_that_run_as_one_cpu_are_noticed() {
        let (local, together) = (Local::new(AtomicU32::new(1)), Barrier::new(2));
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                together.wait();
                local.watch(u32::MAX);
            });
            let guard = local.enter::<BareCpu<One<false>>>().expect("the data is not in use");
            together.wait();
            drop(guard);
            let said = other.join().expect_err("it sees that the data is released");
            let said = said.downcast_ref::<&str>().expect("a message");
            assert!(said.contains("two contexts run as one CPU"), "{said}");
        });
    }

    /// With an exchange no two CPUs are in the data at the same time.
    #[test]
    fn shared_data_has_one_user_at_a_time() {
        let local = Local::new(AtomicU32::new(0));
        let add = || {
            let mut left = 20_000;
            while left > 0 {
                if let Some(data) = local.enter::<BareCpu<One<true>>>() {
                    data.store(data.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                    left -= 1;
                }
                thread::yield_now();
            }
        };
        thread::scope(|scope| (0..3).for_each(|_| _ = scope.spawn(add)));
        assert_eq!(local.peek().load(Ordering::Relaxed), 60_000);
    }
}
