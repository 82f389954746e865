//! TLB shootdown: invalidating translations on all CPUs that may cache them.
//! `docs/internals/tlb.md` introduces the protocol with an example.
//!
//! The simple version: clear the entry, interrupt every CPU, wait until each has flushed. The real
//! one avoids most interrupts:
//!
//! * Each address space has a *generation* that every invalidation increments
//!   (`mm->context.tlb_gen`). Each CPU publishes which address space it has loaded and up to which
//!   generation it has flushed. A CPU that has another address space loaded needs no IPI: it reads
//!   the generation when it loads this one.
//! * An idle CPU is *lazy*: it has its address space loaded, uses none of its translations, and
//!   reads the generation when it leaves idle. It needs no IPI either, except where page tables are
//!   freed, because its hardware may still walk them.
//!
//! [`Tlb::flush`] starts a generation and reaches the CPUs that are behind. How it reaches them is
//! the policy of [`crate::smp`]:
//!
//! * `stock` and `posted`: a call to each CPU that has the address space loaded; to lazy CPUs too
//!   if tables are freed. The target flushes the call's pages if it is exactly one generation
//!   behind, otherwise everything. A lazy target unloads the address space.
//! * `requests`: an IPI to each CPU that is behind, and a wait until its published word shows that
//!   it has flushed. The target flushes the pages of the last few invalidations if all are known,
//!   otherwise everything. A CPU that goes idle unloads its tables ([`Op::MmSwitch`]), so that it
//!   is never interrupted, also where tables are freed.
//!
//! A machine that broadcasts invalidations of every address space needs none of this. One that does
//! so for some address spaces (x86 with INVLPGB) has a state for each: `broadcast.rs`.
//!
//! # Ordering
//!
//! | flusher | CPU that loads the address space |
//! |---|---|
//! | 1. clear the page-table entry | |
//! | 2. `generation.fetch_add`, SeqCst | a. set its bit in `cpus`, SeqCst |
//! | | b. publish `(asid, old generation)`, SeqCst store |
//! | 3. load `cpus`, then each CPU's word, SeqCst | c. load `generation`, SeqCst |
//! | 4. send to CPUs behind, wait | d. flush, publish the new generation, use the tables |
//!
//! Step 1 precedes 2, 2 precedes 3, a precedes b, b precedes c, and c precedes d. All operations of
//! 2, 3, a, b and c are SeqCst, so they have one total order. If c precedes 2, then a and b precede
//! 3: the flusher sees the CPU and waits for it. If 2 precedes c, the CPU reads the new generation
//! and flushes before it uses a translation. It walks the table after c, so it then sees the entry
//! that step 1 cleared.
//!
//! # Files
//!
//! | file | contents |
//! |---|---|
//! | `flush` | invalidations, on the CPU that requests them |
//! | `target` | invalidations, on a CPU that is reached |
//! | `broadcast` | invalidations that all CPUs apply without an interrupt |
//! | `batch` | deferred invalidations that are flushed together, for reclaim |
//! | `limbo` | frames that wait for an invalidation, for the reaper |
//! | `limbo_batch` | pages that wait for an invalidation, for reclaim, by batches |
//! | `mm_context`, `cpu` | the state of an address space, and of a CPU |
//!
//! Locks: a flush may run under page-table locks, and waits with interrupts on. A CPU that spins
//! for a page-table lock must therefore take interrupts, or it could never answer the holder's
//! flush: page-table locks are never taken with interrupts off.

mod batch;
mod broadcast;
mod cpu;
mod flush;
mod limbo;
mod limbo_batch;
mod mm_context;
mod target;

pub use batch::UnmapBatch;
pub use flush::PendingFlush;
pub use limbo::{LIMBO_FRAMES, Leave, Parked};
pub use limbo_batch::{LIMBO_BATCH_PAGES, LIMBO_BATCHES};

use crate::smp::{CallPolicy, CallStats, Smp, SmpConfig, Wait};
use core::sync::atomic::Ordering::{Acquire, SeqCst};
use cpu::{ActiveMm, CpuContexts, NEVER};
use flush::FlushSleepers;
use limbo::Limbo;
use limbo_batch::LimboBatches;
use mm_context::MmContext;
use mmscale_arch::sync::{EachCpu, IrqGuard, NoPreempt, Numbers, PerCpu, Sparse};
use mmscale_arch::{Asid, Atomic, CpuId, DataLine, Func, Machine, Op, PageSize, Span, TlbEvent};
use mmscale_arch::{Trace, VmaRange};

/// Maximum of translations that a flush invalidates one by one; for more it invalidates all
/// (`tlb_single_page_flush_ceiling` of x86).
pub const SINGLE_FLUSH_CEILING: u64 = 33;
/// Like [`SINGLE_FLUSH_CEILING`], for machines that broadcast invalidations (`MAX_DVM_OPS` of
/// arm64).
pub const BROADCAST_CEILING: u64 = 512;

/// The translations to invalidate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent {
    /// All translations of the address space.
    All,
    /// The translations of a range, all of this size.
    Range(VmaRange, PageSize),
}

impl Extent {
    /// Returns the number of translations; `None` for all.
    const fn units(self) -> Option<u64> {
        match self {
            Self::All => None,
            Self::Range(range, size) => Some(range.pages().div_ceil(size.pages())),
        }
    }
    /// Returns the extent, or `All` if it has more than `ceiling` translations.
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

/// Whether page tables are freed to which the invalidated entries led.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tables {
    /// The tables stay.
    Kept,
    /// The tables are freed after the flush (`freed_tables`).
    Freed,
}

/// Proof that no CPU uses a translation that was removed from the address space's tables before the
/// flush that returned this value. Returned by a flush, and by [`Retired::flushed`].
#[must_use]
#[derive(Debug)]
pub struct Flushed {
    asid: Asid,
}

impl Flushed {
    /// Returns the address space whose translations were invalidated.
    pub fn asid(&self) -> Asid {
        self.asid
    }
}

/// Proof that no CPU uses or will use a translation of an address space: its last thread had exited
/// before all were invalidated. Entries removed from its tables, earlier or later, need no flush.
/// Valid until the ASID is assigned to another address space ([`Tlb::free_asid`] flushes before
/// that).
#[must_use]
#[derive(Debug)]
pub struct Retired {
    asid: Asid,
}

impl Retired {
    /// Recreates the proof. The caller must have recorded that `Tlb::retire(asid)` completed.
    pub(crate) fn again(asid: Asid) -> Self {
        Self { asid }
    }
    /// Returns the proof that this is for frames that were mapped.
    pub fn flushed(&self) -> Flushed {
        Flushed { asid: self.asid }
    }
}

/// All ASIDs of the machine are in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoAsid;

/// How CPUs are made to flush translations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FlushBy {
    /// A call passes the range to flush.
    Call,
    /// An IPI makes them read the generation.
    Generation,
}

impl FlushBy {
    const fn of(policy: CallPolicy) -> Self {
        match policy {
            CallPolicy::Stock | CallPolicy::Posted => Self::Call,
            CallPolicy::Requests => Self::Generation,
        }
    }
}

/// TLB state of all address spaces and all CPUs.
pub struct Tlb<A: Machine> {
    contexts: Sparse<MmContext<A>>,
    numbers: Numbers<A>,
    loaded: EachCpu<A::AtomicU64>,
    own: PerCpu<A, CpuContexts>,
    sleepers: EachCpu<FlushSleepers<A>>,
    limbo: Limbo<A>,
    limbo_batches: LimboBatches<A>,
    /// Number of address spaces whose invalidations are broadcast, on a machine that limits it.
    globals: A::AtomicU32,
    smp: Smp<A>,
}

impl<A: Machine> Tlb<A> {
    /// Creates the state without any address space. CPUs reach one another by `config`.
    pub fn new(config: SmpConfig) -> Self {
        Self {
            contexts: Sparse::new(Asid::COUNT),
            numbers: Numbers::new(1..Asid::KERNEL.index()),
            loaded: EachCpu::new::<A>(|_| {
                A::AtomicU64::named(ActiveMm::NOTHING.word(), DataLine::LoadedMm)
            }),
            own: PerCpu::new(|_| CpuContexts::default()),
            sleepers: EachCpu::new::<A>(|_| FlushSleepers::new()),
            limbo: Limbo::new(FlushBy::of(config.policy)),
            limbo_batches: LimboBatches::new(FlushBy::of(config.policy)),
            globals: A::AtomicU32::new(0),
            smp: Smp::new(config),
        }
    }
    /// Returns the calls to other CPUs. The TLB owns them because no module below it needs them.
    pub fn smp(&self) -> &Smp<A> {
        &self.smp
    }
    /// Returns how CPUs are made to flush translations.
    pub(crate) fn flush_by(&self) -> FlushBy {
        FlushBy::of(self.smp.config().policy)
    }
    /// Returns the statistics of calls and flushes.
    pub fn stats(&self) -> CallStats {
        self.smp.stats()
    }
    /// See [`Smp::memory_bytes`].
    pub fn call_memory_bytes(&self) -> u64 {
        self.smp.memory_bytes()
    }
    /// A number for a new address space. No CPU keeps a translation of it that it would use.
    pub fn alloc_asid(&self) -> Result<Asid, NoAsid> {
        let asid = Asid::new(self.numbers.take().ok_or(NoAsid)?);
        self.contexts.get_or_make(asid.index(), |_| MmContext::new());
        Ok(asid)
    }
    /// Frees an ASID. The caller guarantees that no CPU uses or loads the address space.
    pub fn free_asid(&self, asid: Asid) {
        let _ = self.flush_with(asid, Extent::All, Tables::Freed, Wait::Sleep);
        self.leave_global(self.context(asid));
        self.numbers.give(asid.index());
    }
    fn context(&self, asid: Asid) -> &MmContext<A> {
        match self.contexts.get(asid.index()) {
            Some(context) => context,
            None => panic!("address space {} was never allocated", asid.index()),
        }
    }
    fn loaded_on(&self, cpu: CpuId) -> &A::AtomicU64 {
        self.loaded.of(cpu)
    }
    /// Returns how often translations of the address space were invalidated.
    pub fn generation(&self, asid: Asid) -> u64 {
        // A statistic. Pairs with the add in `begin` (mm_context.rs).
        self.context(asid).generation.load(SeqCst) - mm_context::FIRST
    }
    /// Returns the number of CPUs that have the address space loaded, lazy ones included.
    pub fn cpus_of(&self, asid: Asid) -> usize {
        self.context(asid).cpus().count()
    }

    /// Loads `asid` on this CPU (`switch_mm`).
    #[inline]
    pub fn load(&self, off: &IrqGuard<A>, asid: Asid) {
        let own = self.own.get(off);
        if own.active.get() != Some(asid) {
            self.switch(off, own, asid);
        }
    }
    #[cold]
    fn switch(&self, off: &IrqGuard<A>, own: &CpuContexts, asid: Asid) {
        let _span = Span::<A>::enter(Func::SwitchMm);
        A::work(Op::MmSwitch, 1);
        own.active.set(Some(asid));
        if Self::broadcast_for_all().is_some() {
            A::tlb_load(Some(asid));
            return;
        }
        // Until it has flushed, the CPU uses no translations: neither those that a flusher no
        // longer waits for, nor those that it still has to flush.
        A::tlb_load(None);
        let (cpu, word) = (off.cpu(), self.loaded_on(off.cpu()));
        let before = ActiveMm::of(word.load(Acquire));
        if before.asid() != Some(asid) {
            if let Some(left) = before.asid() {
                own.remember(left, before.generation());
                self.context(left).leave(cpu);
            }
            self.context(asid).enter(cpu);
        }
        let known = if before.asid() == Some(asid) {
            before.generation()
        } else {
            own.recall(asid).unwrap_or(NEVER)
        };
        // Pairs with `is_called` and `is_behind`: see `flush_to_current_gen`.
        word.store(ActiveMm::new(asid, known).word(), SeqCst);
        self.wake_sleepers(cpu);
        // After the load of the state no old translation is in this TLB: see `broadcast`.
        if !self.is_global(self.context(asid)) {
            self.flush_to_current_gen(off);
        }
        A::tlb_load(Some(asid));
    }
    /// Makes this CPU lazy: it has the address space loaded and uses none of its translations
    /// (`enter_lazy_tlb`). Interrupts are off.
    pub fn enter_lazy(&self) {
        let off = IrqGuard::<A>::new();
        let own = self.own.get(&off);
        if own.active.take().is_none() {
            return;
        }
        A::tlb_load(None);
        if Self::broadcast_for_all().is_none() {
            let word = self.loaded_on(off.cpu());
            // Only this CPU stores its word: the load has no partner. The store pairs with the
            // loads in `is_called` and `is_behind` (flush.rs): the CPU has stopped using
            // translations.
            let loaded = ActiveMm::of(word.load(Acquire));
            word.store(loaded.lazily().word(), SeqCst);
            if self.flush_by() == FlushBy::Generation {
                // A lazy CPU gets no IPI when tables are freed, so its hardware must not walk them.
                A::work(Op::MmSwitch, 1);
                self.wake_sleepers(off.cpu());
            }
        }
    }
    /// Makes this CPU lazy, because the calling thread is done with its address space (`exit_mm`).
    /// Does nothing on machines that broadcast: there no flusher reads the state.
    pub fn exit_mm(&self) {
        if Self::broadcast_for_all().is_none() {
            self.enter_lazy();
        }
    }
    /// Invalidates all translations of `asid`, whose last thread has exited. The caller guarantees
    /// that no CPU loads it again. This CPU becomes lazy (`exit_mm`). Sleeps.
    pub fn retire(&self, asid: Asid) -> Retired {
        self.enter_lazy();
        let Flushed { asid } = self.flush_with(asid, Extent::All, Tables::Freed, Wait::Sleep);
        Retired { asid }
    }
    // -- Callbacks.

    /// Clears the state of `cpu`, which has stopped: when it starts again its TLB is empty.
    pub fn cpu_dead(&self, cpu: CpuId) {
        // SAFETY: the CPU has stopped, and its hotplug operation is still under way here.
        let own = unsafe { self.own.get_stopped(cpu) };
        own.reset();
        let word = self.loaded_on(cpu);
        let loaded = ActiveMm::of(word.swap(ActiveMm::NOTHING.word(), SeqCst));
        if let Some(asid) = loaded.asid() {
            self.context(asid).leave(cpu);
        }
        self.wake_sleepers(cpu);
    }
}

fn trace<A: Machine>(extent: Extent, interrupted: u32) {
    A::trace(Trace::Tlb(TlbEvent::Flush {
        pages: extent.units().unwrap_or(0) as u32,
        interrupted,
    }));
}
