//! Prefetching of host memory before a turn.
//!
//! With hundreds of CPUs the host's caches do not hold the data of a turn: the CPU's own state, its
//! coroutine, the top of that coroutine's stack, and the atomic, lock or page table that the CPU
//! waits to use. The next CPU is known most of the time, so all of these are fetched during the
//! turn before. That changes only the host's time.

use crate::cpu::{Cpu, Waiter};

/// With fewer CPUs than this the host's caches hold all of them, and prefetching costs more than it
/// saves.
const MIN_CPUS: usize = 256;
/// Bytes of a host cache line.
const LINE_BYTES: usize = 64;
/// Lines of a stack that a turn uses: enough for a lock in a task's own function.
const STACK_LINES: usize = 6;

/// No known address.
pub(crate) const NO_ADDRESS: usize = 0;

/// Addresses that a CPU's next turn uses first.
#[derive(Clone, Copy)]
struct TurnAddresses {
    /// The end of its stack when its task was last suspended.
    stack: usize,
    /// The data that it waits to use.
    near: usize,
    /// The coroutine of its task.
    coroutine: usize,
}

/// The addresses for each CPU's next turn. They are only prefetched, never read.
pub(crate) struct Prefetcher {
    turns: Vec<TurnAddresses>,
    /// The address of the array of coroutines, and the size of an element.
    coroutines: (usize, usize),
}

impl Prefetcher {
    /// Makes an empty table for a machine of `cpus` CPUs.
    pub(crate) fn new(cpus: usize) -> Self {
        let nothing = TurnAddresses { stack: NO_ADDRESS, near: NO_ADDRESS, coroutine: NO_ADDRESS };
        let turns = if cpus < MIN_CPUS { Vec::new() } else { vec![nothing; cpus] };
        Self { turns, coroutines: (NO_ADDRESS, 0) }
    }
    /// Records that the array of coroutines is at `address`, with elements of `apart` bytes.
    pub(crate) fn set_coroutines(&mut self, address: usize, apart: usize) {
        self.coroutines = (address, apart);
    }
    /// Whether there are enough CPUs for prefetching.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        !self.turns.is_empty()
    }
    /// Records the addresses of CPU `at`, whose coroutine is suspended; called on the coroutine's
    /// stack.
    #[inline]
    pub(crate) fn record(&mut self, at: usize, near: usize, task: u32) {
        let (coroutines, apart) = self.coroutines;
        if let Some(turns) = self.turns.get_mut(at) {
            let here = 0_u8;
            let stack = (&raw const here).addr();
            let near = if near == NO_ADDRESS { stack } else { near };
            *turns = TurnAddresses { stack, near, coroutine: coroutines + task as usize * apart };
        }
    }
    /// Prefetches the data of CPU `at`, which resumes soon.
    #[inline]
    pub(crate) fn fetch_cpu(&self, at: usize, cpu: &Cpu) {
        if let Some(&TurnAddresses { stack, near, coroutine }) = self.turns.get(at) {
            let cpu = (&raw const *cpu).addr();
            fetch_line(cpu);
            fetch_line(cpu + LINE_BYTES);
            fetch_line(coroutine);
            fetch_line(near);
            (0..STACK_LINES).for_each(|line| fetch_line(stack + line * LINE_BYTES));
        }
    }
    /// Prefetches the data of CPU `at`, which waits in `waiter` for a lock that it gets soon.
    #[inline]
    pub(crate) fn fetch_waiter(&self, at: usize, cpu: &Cpu, waiter: &Waiter) {
        if at < self.turns.len() {
            fetch_line((&raw const *waiter).addr());
            self.fetch_cpu(at, cpu);
        }
    }
}

/// Prefetches the host's cache line at an address, which may be any number.
#[inline(always)]
fn fetch_line(address: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch has no effect on memory that the program can observe, and never
        // faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::without_provenance(address)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
