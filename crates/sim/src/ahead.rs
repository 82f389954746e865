//! Host memory that will be needed soon.
//!
//! With hundreds of CPUs the host's caches do not hold what a turn uses: the CPU's own state, its
//! coroutine, the end of that one's stack, and the atomic, lock or page table that the CPU waits
//! for its turn to use. Whose turn comes next is known most of the time, so all of them are fetched
//! while the turn before runs. That changes nothing but the host's time.

use crate::cpu::{Cpu, Waiter};

/// With fewer CPUs than this the caches hold them all, and looking ahead costs more than it saves.
const FEW_CPUS: usize = 256;
/// Bytes of a host cache line.
const LINE_BYTES: usize = 64;
/// Lines of a stack that a turn uses: about as deep as a lock in a task's own function.
const STACK_LINES: usize = 6;

/// No place on the host that is known.
pub(crate) const NOWHERE: usize = 0;

/// What a CPU's next turn uses first.
#[derive(Clone, Copy)]
struct Left {
    /// Where its stack ended when it last left it.
    stack: usize,
    /// What it waits for its turn to use.
    near: usize,
    /// The coroutine of its task.
    coroutine: usize,
}

/// Where on the host each CPU left off. Addresses only: nothing is read through them.
pub(crate) struct Ahead {
    left: Vec<Left>,
    /// The array of coroutines, and how far they are apart.
    coroutines: (usize, usize),
}

impl Ahead {
    /// For a machine of `cpus` CPUs.
    pub(crate) fn new(cpus: usize) -> Self {
        let nothing = Left { stack: NOWHERE, near: NOWHERE, coroutine: NOWHERE };
        let left = if cpus < FEW_CPUS { Vec::new() } else { vec![nothing; cpus] };
        Self { left, coroutines: (NOWHERE, 0) }
    }
    /// The array of coroutines is at `address`, `apart` bytes from one to the next.
    pub(crate) fn coroutines_at(&mut self, address: usize, apart: usize) {
        self.coroutines = (address, apart);
    }
    /// Whether there are so many CPUs that it is worth it.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        !self.left.is_empty()
    }
    /// CPU `at` leaves its coroutine; called on the coroutine's stack.
    #[inline]
    pub(crate) fn leaves(&mut self, at: usize, near: usize, task: u32) {
        let (coroutines, apart) = self.coroutines;
        if let Some(left) = self.left.get_mut(at) {
            let here = 0_u8;
            let stack = (&raw const here).addr();
            let near = if near == NOWHERE { stack } else { near };
            *left = Left { stack, near, coroutine: coroutines + task as usize * apart };
        }
    }
    /// CPU `at` goes on soon.
    #[inline]
    pub(crate) fn comes(&self, at: usize, cpu: &Cpu) {
        if let Some(&Left { stack, near, coroutine }) = self.left.get(at) {
            let cpu = (&raw const *cpu).addr();
            fetch(cpu);
            fetch(cpu + LINE_BYTES);
            fetch(coroutine);
            fetch(near);
            (0..STACK_LINES).for_each(|line| fetch(stack + line * LINE_BYTES));
        }
    }
    /// A lock goes to CPU `at` soon, which waits for it in `waiter`.
    #[inline]
    pub(crate) fn gets_lock(&self, at: usize, cpu: &Cpu, waiter: &Waiter) {
        if at < self.left.len() {
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
