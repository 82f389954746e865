//! Translations that CPUs keep, and how to be sure that no CPU uses one any more.
//!
//! Every address space has a generation, which grows with each invalidation, and every CPU says
//! which address space it has loaded and up to which generation it has forgotten what it was to
//! forget. An invalidation ([`Tlb::flush`]) makes a new generation, interrupts the CPUs that have
//! the address space loaded and are behind, and waits until each has caught up, or has loaded
//! something else: whoever loads an address space looks at its generation. So nothing is queued,
//! two invalidations at a time serve one another, and an interrupt that was merged with another
//! does no harm. Where all CPUs can be told by a broadcast, that is all there is to do.
//!
//! The order that makes this right: an invalidation first changes the page table, then the
//! generation, then looks at what the CPUs have loaded. A CPU first says what it loads, then looks
//! at the generation. One of the two sees the other.
//!
//! A CPU that is idle keeps its address space loaded, but *lazily*: it uses none of its
//! translations, is not interrupted, and looks at the generation when it leaves idle. So a CPU
//! that stops for good, which it does when idle, is waited for by nobody.
//!
//! Locks: a flush may be asked for under page-table locks. It waits with interrupts on and
//! preemption off; so whoever waits for a lock under which somebody flushes must have interrupts
//! on as well: page-table locks are never taken with interrupts off.

mod cpu;
mod space;

use crate::arch::{Arch, Asid, Atomic, CpuId, CpuMask, Func, Ipi, LockClass, Op, PageSize, Span};
use crate::arch::{Trace, VmaRange};
use crate::sync::{EachCpu, IrqGuard, NoPreempt, PerCpu, PreemptGuard, Sparse, SpinLock};
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{Acquire, SeqCst};
use cpu::{Loaded, Own};
use space::Space;

/// More translations than this are not invalidated one by one on the own CPU but all together
/// (`tlb_single_page_flush_ceiling` of x86).
pub const SINGLE_FLUSH_CEILING: u64 = 33;
/// The same where invalidations are broadcast (`MAX_DVM_OPS` of arm64).
pub const BROADCAST_CEILING: u64 = 512;

/// What is invalidated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent {
    /// Everything of the address space.
    All,
    /// The translations of a range, which are of this size.
    Range(VmaRange, PageSize),
}

impl Extent {
    /// The number of translations; `None` for all.
    const fn units(self) -> Option<u64> {
        match self {
            Self::All => None,
            Self::Range(range, size) => Some(range.pages().div_ceil(size.pages())),
        }
    }
    /// The same, or everything if that is more than `ceiling` translations.
    fn at_most(self, ceiling: u64) -> Self {
        if self.units().is_some_and(|units| units <= ceiling) { self } else { Self::All }
    }
    const fn range(self) -> Option<VmaRange> {
        match self {
            Self::All => None,
            Self::Range(range, _) => Some(range),
        }
    }
}

/// Proof that no CPU uses a translation any more that was taken out of the address space's tables
/// before the flush that returned it. A flush makes one; so does [`Retired`].
#[must_use]
#[derive(Debug)]
pub struct Flushed {
    asid: Asid,
}

impl Flushed {
    /// Whose translations were invalidated.
    pub fn asid(&self) -> Asid {
        self.asid
    }
}

/// Proof that nobody uses a translation of an address space any more, nor ever will: its last
/// thread had ended, and then all were invalidated. So whatever is taken out of its tables, then or
/// later, needs no flush. That holds until its number goes to another ([`Tlb::free_asid`], which
/// flushes for that).
///
/// That the hardware does not read its tables either, on a CPU that has them loaded lazily, is an
/// assumption: a kernel would have such CPUs load something else.
#[must_use]
#[derive(Debug)]
pub struct Retired {
    asid: Asid,
}

impl Retired {
    /// The proof once more, for who keeps a note that [`Tlb::retire`] was done.
    pub(crate) fn again(asid: Asid) -> Self {
        Self { asid }
    }
    /// What it proves of frames that were mapped.
    pub fn flushed(&self) -> Flushed {
        Flushed { asid: self.asid }
    }
}

/// There are as many address spaces as a machine can have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoAsid;

/// Numbers of address spaces that nobody has.
struct Pool {
    /// Numbers from here on were never given out.
    next: usize,
    free: Vec<Asid>,
}

/// What all CPUs may know of all address spaces.
pub struct Tlb<A: Arch> {
    spaces: Sparse<Space<A>>,
    pool: SpinLock<A, Pool>,
    loaded: EachCpu<A::AtomicU64>,
    own: PerCpu<A, Own>,
}

impl<A: Arch> Tlb<A> {
    /// No address space.
    #[expect(clippy::new_without_default, reason = "there is one of it, made on purpose")]
    pub fn new() -> Self {
        Self {
            spaces: Sparse::new(Asid::COUNT),
            pool: SpinLock::new(LockClass::Other, Pool { next: 1, free: Vec::new() }),
            loaded: EachCpu::new::<A>(|_| A::AtomicU64::new(Loaded::NOTHING.word())),
            own: PerCpu::new(|_| Own::default()),
        }
    }
    /// A number for a new address space. No CPU keeps a translation of it that it would use.
    pub fn alloc_asid(&self) -> Result<Asid, NoAsid> {
        let asid = {
            let mut pool = self.pool.lock();
            match pool.free.pop() {
                Some(asid) => asid,
                None if pool.next < Asid::COUNT => {
                    pool.next += 1;
                    Asid::new(pool.next - 1)
                }
                None => return Err(NoAsid),
            }
        };
        self.spaces.get_or_make(asid.index(), |_| Space::new());
        Ok(asid)
    }
    /// Gives the number back. Nobody will use the address space or load it.
    pub fn free_asid(&self, asid: Asid) {
        let _ = self.flush(asid, Extent::All);
        self.pool.lock().free.push(asid);
    }
    fn space(&self, asid: Asid) -> &Space<A> {
        match self.spaces.get(asid.index()) {
            Some(space) => space,
            None => panic!("address space {} was never made", asid.index()),
        }
    }
    fn loaded_on(&self, cpu: CpuId) -> &A::AtomicU64 {
        self.loaded.of(cpu)
    }
    /// How often translations of the address space were invalidated.
    pub fn generation(&self, asid: Asid) -> u64 {
        self.space(asid).generation.load(SeqCst) - space::FIRST
    }
    /// The number of CPUs that may use translations of the address space now, or do so lazily.
    pub fn cpus_of(&self, asid: Asid) -> usize {
        self.space(asid).cpus().count()
    }

    /// This CPU uses the translations of `asid` from now on (`switch_mm`).
    #[inline]
    pub fn load(&self, off: &IrqGuard<A>, asid: Asid) {
        let own = self.own.get(off);
        if own.active.get() != Some(asid) {
            self.switch(off, own, asid);
        }
    }
    #[cold]
    fn switch(&self, off: &IrqGuard<A>, own: &Own, asid: Asid) {
        let _span = Span::<A>::enter(Func::SwitchMm);
        A::work(Op::MmSwitch, 1);
        own.active.set(Some(asid));
        if A::has_tlb_broadcast() {
            A::tlb_load(Some(asid));
            return;
        }
        // Until it has caught up the CPU uses no translations: not those that nobody waits for any
        // more, and not those that it has to forget.
        A::tlb_load(None);
        let (cpu, word) = (off.cpu(), self.loaded_on(off.cpu()));
        let before = Loaded::of(word.load(Acquire));
        if before.asid() != Some(asid) {
            if let Some(left) = before.asid() {
                own.remember(left, before.generation());
                self.space(left).leave(cpu);
            }
            self.space(asid).enter(cpu);
        }
        let known = if before.asid() == Some(asid) {
            before.generation()
        } else {
            own.recall(asid).unwrap_or(0)
        };
        word.store(Loaded::new(asid, known).word(), SeqCst);
        self.catch_up(off);
        A::tlb_load(Some(asid));
    }
    /// This CPU is idle: it keeps what it has loaded, but uses none of it (`enter_lazy_tlb`).
    /// Interrupts are off.
    pub fn enter_lazy(&self) {
        let off = IrqGuard::<A>::new();
        let own = self.own.get(&off);
        if own.active.take().is_none() {
            return;
        }
        A::tlb_load(None);
        if !A::has_tlb_broadcast() {
            let word = self.loaded_on(off.cpu());
            let loaded = Loaded::of(word.load(Acquire));
            word.store(loaded.lazily().word(), SeqCst);
        }
    }
    /// Forgets what this CPU is to forget of what it has loaded (`flush_tlb_func`).
    fn catch_up(&self, off: &IrqGuard<A>) {
        let word = self.loaded_on(off.cpu());
        let loaded = Loaded::of(word.load(Acquire));
        let Some(asid) = loaded.asid() else { return };
        let space = self.space(asid);
        let generation = space.generation.load(SeqCst);
        if generation > loaded.generation() {
            space.forget(asid, loaded.generation(), generation);
            word.store(loaded.at(generation).word(), SeqCst);
        }
    }

    /// Makes sure that no CPU uses a translation of `asid` within `extent` that is not in the page
    /// table any more (`flush_tlb_mm_range`). Waits for other CPUs with preemption off; interrupts
    /// are on.
    pub fn flush(&self, asid: Asid, extent: Extent) -> Flushed {
        let _span = Span::<A>::enter(Func::FlushTlbMmRange);
        let pinned = PreemptGuard::<A>::new();
        if A::has_tlb_broadcast() {
            let extent = extent.at_most(BROADCAST_CEILING);
            match extent.units() {
                Some(units) => A::work(Op::TlbFlushPage, units as u32),
                None => A::work(Op::TlbFlushAll, 1),
            }
            A::tlb_broadcast(asid, extent.range());
            trace::<A>(extent, 0);
            return Flushed { asid };
        }
        let extent = extent.at_most(SINGLE_FLUSH_CEILING);
        let generation = self.space(asid).begin(extent);
        let off = IrqGuard::<A>::new();
        if self.own.get(&off).active.get() == Some(asid) {
            self.catch_up(&off);
        }
        drop(off);
        let interrupted = self.reach_others(pinned.cpu(), asid, generation);
        trace::<A>(extent, interrupted);
        Flushed { asid }
    }
    /// Makes sure, once and for all, that no CPU uses a translation of `asid`. Its last thread has
    /// ended, and the caller sees to it that nobody loads it any more. This CPU keeps what it has
    /// loaded lazily from now on (`exit_mm`).
    pub fn retire(&self, asid: Asid) -> Retired {
        self.enter_lazy();
        let Flushed { asid } = self.flush(asid, Extent::All);
        Retired { asid }
    }
    /// Interrupts the other CPUs that are behind `generation`, and waits for them; returns how
    /// many there were.
    fn reach_others(&self, here: CpuId, asid: Asid, generation: u64) -> u32 {
        let behind = |cpu| Loaded::of(self.loaded_on(cpu).load(SeqCst)).is_behind(asid, generation);
        let mut waited_for = CpuMask::EMPTY;
        let mut count = 0;
        for cpu in self.space(asid).cpus() {
            if cpu != here && behind(cpu) {
                A::ipi_send(cpu, Ipi::TlbFlush);
                waited_for.insert(cpu);
                count += 1;
            }
        }
        if count > 0 {
            for cpu in waited_for.iter() {
                while behind(cpu) {
                    A::relax();
                }
            }
        }
        count
    }

    // -- Callbacks.

    /// Another CPU interrupts this one to have translations invalidated.
    pub fn ipi(&self) {
        let _span = Span::<A>::enter(Func::FlushTlbFunc);
        self.catch_up(&IrqGuard::new());
    }
    /// `cpu` has stopped for good: when it starts again it knows nothing.
    pub fn cpu_dead(&self, cpu: CpuId) {
        // SAFETY: the CPU has stopped, and its hotplug operation is still under way here.
        unsafe { self.own.get_stopped(cpu) }.reset();
        let word = self.loaded_on(cpu);
        let loaded = Loaded::of(word.swap(Loaded::NOTHING.word(), SeqCst));
        if let Some(asid) = loaded.asid() {
            self.space(asid).leave(cpu);
        }
    }
}

fn trace<A: Arch>(extent: Extent, interrupted: u32) {
    A::trace(Trace::TlbFlush { pages: extent.units().unwrap_or(0) as u32, interrupted });
}
