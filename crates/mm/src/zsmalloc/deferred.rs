//! Objects that are freed later: a buffer of each CPU, and a list of full buffers for a worker.
//!
//! A CPU adds a handle to its buffer without locks or atomics. A full buffer goes to the list, and
//! an empty one from the pool takes its place; the worker frees the objects of full buffers, and
//! returns the buffers. If the pool is empty the caller frees its object itself (Wenchao Hao,
//! "mm/zsmalloc: introduce per-cpu deferred free with page pool", linux-mm, 2026-05-09).

use super::Handle;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::cell::RefCell;
use mmscale_arch::sync::{PerCpu, PreemptGuard, SpinLock};
use mmscale_arch::{Cpu, CpuId, LockClass, Op};

/// Handles of a buffer: a page of words.
const ENTRIES: usize = 512;
/// Buffers of the pool: 256 KiB (`ZS_DEFERRED_POOL_SIZE`).
pub(super) const BUFFERS: usize = 64;

type Buffer = Vec<Handle>;

fn empty() -> Buffer {
    Vec::with_capacity(ENTRIES)
}

/// Buffers that no CPU fills.
struct Shelf {
    empty: Vec<Buffer>,
    full: VecDeque<Buffer>,
}

/// The result of adding a handle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pushed {
    /// It is in the CPU's buffer.
    Yes,
    /// It is in the CPU's buffer, and a full buffer waits for the worker.
    YesAndFull,
    /// There is no room: the caller frees the object.
    No,
}

pub(super) struct Deferred<A: Cpu> {
    own: PerCpu<A, RefCell<Buffer>>,
    shelf: SpinLock<A, Shelf>,
}

impl<A: Cpu> Deferred<A> {
    pub(super) fn new() -> Self {
        let shelf = Shelf {
            empty: (0..BUFFERS).map(|_| empty()).collect(),
            full: VecDeque::with_capacity(BUFFERS + A::cpus_possible()),
        };
        Self {
            own: PerCpu::new(|_| RefCell::new(empty())),
            shelf: SpinLock::new(LockClass::Other, shelf),
        }
    }
    /// Adds a handle to this CPU's buffer.
    pub(super) fn push(&self, handle: Handle) -> Pushed {
        let pinned = PreemptGuard::<A>::new();
        let mut own = self.own.get(&pinned).borrow_mut();
        A::work(Op::PercpuAdd, 1);
        let mut pushed = Pushed::Yes;
        if own.len() == ENTRIES {
            let mut shelf = self.shelf.lock();
            let Some(next) = shelf.empty.pop() else { return Pushed::No };
            shelf.full.push_back(core::mem::replace(&mut *own, next));
            pushed = Pushed::YesAndFull;
        }
        own.push(handle);
        pushed
    }
    /// Takes a full buffer off the list.
    pub(super) fn take(&self) -> Option<Buffer> {
        self.shelf.lock().full.pop_front()
    }
    /// Returns a buffer to the pool.
    pub(super) fn put(&self, mut buffer: Buffer) {
        buffer.clear();
        self.shelf.lock().empty.push(buffer);
    }
    /// Returns whether full buffers wait.
    pub(super) fn is_waiting(&self) -> bool {
        !self.shelf.lock().full.is_empty()
    }
    /// Takes what the buffer of `cpu` has.
    ///
    /// # Safety
    /// `cpu` runs no code meanwhile that adds handles: it is dead, or the machine has stopped.
    pub(super) unsafe fn take_stopped(&self, cpu: CpuId) -> Buffer {
        // SAFETY: as the caller promises.
        let own = unsafe { self.own.get_stopped(cpu) };
        own.replace(empty())
    }
    /// Returns all handles that wait.
    ///
    /// # Safety
    /// No CPU adds handles meanwhile.
    pub(super) unsafe fn waiting(&self) -> Box<[Handle]> {
        let cpus = (0..A::cpus_possible()).map(CpuId::new);
        // SAFETY: as the caller promises.
        let own = cpus.flat_map(|cpu| unsafe { self.own.get_stopped(cpu) }.borrow().clone());
        let own: Vec<Handle> = own.collect();
        let shelf = self.shelf.lock();
        own.into_iter().chain(shelf.full.iter().flatten().copied()).collect()
    }
}
