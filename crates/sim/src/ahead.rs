//! Host memory that will be needed soon.
//!
//! With thousands of CPUs the host's caches do not hold what a turn uses: the CPU's own state and
//! the end of its coroutine's stack. Whose turn comes next is known most of the time, so both are
//! fetched while the turn before runs. That changes nothing but the host's time.

use crate::cpu::{Cpu, Waiter};

/// With fewer CPUs than this the caches hold them all, and looking ahead costs more than it saves.
const FEW_CPUS: usize = 256;
/// Bytes of a host cache line.
const LINE_BYTES: usize = 64;
/// Lines of a stack that a turn uses: about as deep as a lock in a task's own function.
const STACK_LINES: usize = 6;

/// Where each CPU's stack ended when it last left it. Addresses only: nothing is read through them.
pub(crate) struct Ahead {
    stacks: Vec<usize>,
}

impl Ahead {
    /// For a machine of `cpus` CPUs.
    pub(crate) fn new(cpus: usize) -> Self {
        Self { stacks: if cpus < FEW_CPUS { Vec::new() } else { vec![0; cpus] } }
    }
    /// Whether there are so many CPUs that it is worth it.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        !self.stacks.is_empty()
    }
    /// CPU `at` leaves its coroutine; called on the coroutine's stack.
    #[inline]
    pub(crate) fn leaves(&mut self, at: usize) {
        if let Some(stack) = self.stacks.get_mut(at) {
            let here = 0_u8;
            *stack = (&raw const here).addr();
        }
    }
    /// CPU `at` goes on soon.
    #[inline]
    pub(crate) fn comes(&self, at: usize, cpu: &Cpu) {
        if let Some(&stack) = self.stacks.get(at) {
            let cpu = (&raw const *cpu).addr();
            fetch(cpu);
            fetch(cpu + LINE_BYTES);
            (0..STACK_LINES).for_each(|line| fetch(stack + line * LINE_BYTES));
        }
    }
    /// A lock goes to CPU `at` soon, which waits for it in `waiter`.
    #[inline]
    pub(crate) fn gets_lock(&self, at: usize, cpu: &Cpu, waiter: &Waiter) {
        if at < self.stacks.len() {
            fetch((&raw const *waiter).addr());
            self.comes(at, cpu);
        }
    }
}

/// Asks the host for the line at an address; any address will do.
#[inline(always)]
fn fetch(address: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch accesses no memory as far as the program can tell, and never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::without_provenance(address)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
