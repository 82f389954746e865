//! Translations that CPUs keep, and how to be sure that no CPU uses one any more.
//!
//! Every address space has a generation, which grows with each invalidation, and every CPU says
//! which address space it has loaded and up to which generation it has forgotten what it was to
//! forget. An invalidation ([`Tlb::flush`]) makes a new generation, and reaches the CPUs that have
//! the address space loaded; whoever loads an address space looks at its generation. How CPUs are
//! reached is the policy of [`crate::smp`]:
//!
//! * `stock` and `posted`: a call to each CPU, to idle ones too if tables are freed. A CPU that is
//!   called forgets the call's pages if it is exactly one generation behind, or else everything; an
//!   idle one loads nothing from then on.
//! * `requests`: a nudge to each that is behind, and a wait on what CPUs have loaded. A CPU that is
//!   nudged forgets the pages of the last few invalidations if it knows them all.
//!
//! Where all CPUs can be told by a broadcast, that is all there is to do.
//!
//! The order that makes this right: an invalidation first changes the page table, then the
//! generation, then looks at what the CPUs have loaded. A CPU first says what it loads, then looks
//! at the generation. One of the two sees the other.
//!
//! A CPU that is idle keeps its address space loaded, but *lazily*: it uses none of its
//! translations, and looks at the generation when it leaves idle. So a CPU that stops for good,
//! which it does when idle, is waited for by nobody. Its hardware may still read the tables by
//! itself: so where tables are freed it is called like the others, and loads none. With `requests`
//! it loads none when it goes idle, which takes a switch ([`Op::MmSwitch`]), and is left alone.
//!
//! | file | what it holds |
//! |---|---|
//! | `flush` | invalidations, from the side of who wants them |
//! | `target` | the same, at a CPU that is reached |
//! | `batch` | invalidations that are put off and done together, for reclaim |
//! | `limbo` | frames whose release waits for an invalidation, for the reaper |
//! | `parcel` | the same for reclaim, by batches |
//! | `space`, `cpu` | what is known of an address space, and of a CPU |
//!
//! Locks: a flush may be asked for under page-table locks. It waits with interrupts on; so whoever
//! waits for a lock under which somebody flushes must have interrupts on as well: page-table locks
//! are never taken with interrupts off.

mod batch;
mod cpu;
mod flush;
mod limbo;
mod parcel;
mod space;
mod target;

pub use batch::Batch;
pub use flush::Begun;
pub use limbo::{LIMBO_FRAMES, Leave, Parked};
pub use parcel::{PARCEL_PAGES, PARCELS};

use crate::smp::{CallPolicy, CallStats, Smp, SmpConfig, Wait};
use core::sync::atomic::Ordering::{Acquire, SeqCst};
use cpu::{Loaded, Own};
use flush::Sleepers;
use limbo::Limbo;
use mmscale_arch::sync::{EachCpu, IrqGuard, NoPreempt, Numbers, PerCpu, Sparse};
use mmscale_arch::{Asid, Atomic, CpuId, Func, Machine, Op, PageSize, Span, TlbEvent, planted};
use mmscale_arch::{Trace, VmaRange};
use parcel::Parcels;
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

/// What becomes of page tables that the invalidated entries led to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tables {
    /// They stay.
    Kept,
    /// They are freed once the flush is done (`freed_tables`).
    Freed,
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

/// How CPUs are brought to forget translations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Forgetting {
    /// A call tells them what to forget.
    Called,
    /// They find it out by generations, and are nudged to look.
    Nudged,
}

impl Forgetting {
    const fn of(policy: CallPolicy) -> Self {
        match policy {
            CallPolicy::Stock | CallPolicy::Posted => Self::Called,
            CallPolicy::Requests => Self::Nudged,
        }
    }
}

/// What all CPUs may know of all address spaces.
pub struct Tlb<A: Machine> {
    spaces: Sparse<Space<A>>,
    numbers: Numbers<A>,
    loaded: EachCpu<A::AtomicU64>,
    own: PerCpu<A, Own>,
    sleepers: EachCpu<Sleepers<A>>,
    limbo: Limbo<A>,
    parcels: Parcels<A>,
    smp: Smp<A>,
}

impl<A: Machine> Tlb<A> {
    /// No address space; CPUs reach one another by `config`.
    pub fn new(config: SmpConfig) -> Self {
        Self {
            spaces: Sparse::new(Asid::COUNT),
            numbers: Numbers::new(1..Asid::KERNEL.index()),
            loaded: EachCpu::new::<A>(|_| A::AtomicU64::new(Loaded::NOTHING.word())),
            own: PerCpu::new(|_| Own::default()),
            sleepers: EachCpu::new::<A>(|_| Sleepers::new()),
            limbo: Limbo::new(Forgetting::of(config.policy)),
            parcels: Parcels::new(Forgetting::of(config.policy)),
            smp: Smp::new(config),
        }
    }
    /// Calls to other CPUs. The TLB has them, as nothing reaches other CPUs without it below.
    pub fn smp(&self) -> &Smp<A> {
        &self.smp
    }
    /// How CPUs are brought to forget translations.
    pub(crate) fn forgetting(&self) -> Forgetting {
        Forgetting::of(self.smp.config().policy)
    }
    /// What has been counted, of calls and of flushes.
    pub fn stats(&self) -> CallStats {
        self.smp.stats()
    }
    /// A number for a new address space. No CPU keeps a translation of it that it would use.
    pub fn alloc_asid(&self) -> Result<Asid, NoAsid> {
        let asid = Asid::new(self.numbers.take().ok_or(NoAsid)?);
        self.spaces.get_or_make(asid.index(), |_| Space::new());
        Ok(asid)
    }
    /// Gives the number back. Nobody will use the address space or load it.
    pub fn free_asid(&self, asid: Asid) {
        if !planted!(TlbAsidUnflushed) {
            let _ = self.flush_with(asid, Extent::All, Tables::Freed, Wait::Sleep);
        }
        self.numbers.give(asid.index());
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
        let known = if planted!(TlbSwitchForgetsNothing) {
            self.space(asid).generation.load(SeqCst)
        } else if before.asid() == Some(asid) {
            before.generation()
        } else {
            own.recall(asid).unwrap_or(0)
        };
        if planted!(TlbLoadedLate) {
            // What it is to forget is looked at before the CPU says what it loads.
            let generation = self.space(asid).generation.load(SeqCst);
            self.space(asid).forget(asid, known, generation);
            word.store(Loaded::new(asid, generation).word(), SeqCst);
            A::tlb_load(Some(asid));
            return;
        }
        word.store(Loaded::new(asid, known).word(), SeqCst);
        self.wake_sleepers(cpu);
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
            if self.forgetting() == Forgetting::Nudged {
                // Its hardware has no business in tables that may go without a word to it.
                A::work(Op::MmSwitch, 1);
                self.wake_sleepers(off.cpu());
            }
        }
    }
    /// The calling thread is done with its address space: this CPU keeps it lazily (`exit_mm`).
    /// With a broadcast nobody asks.
    pub fn exit_mm(&self) {
        if !A::has_tlb_broadcast() {
            self.enter_lazy();
        }
    }
    /// Makes sure, once and for all, that no CPU uses a translation of `asid`. Its last thread has
    /// ended, and the caller sees to it that nobody loads it any more. This CPU keeps what it has
    /// loaded lazily from now on (`exit_mm`).
    pub fn retire(&self, asid: Asid) -> Retired {
        self.enter_lazy();
        let Flushed { asid } = self.flush_with(asid, Extent::All, Tables::Freed, Wait::Sleep);
        Retired { asid }
    }
    // -- Callbacks.

    /// `cpu` has stopped for good: when it starts again it knows nothing.
    pub fn cpu_dead(&self, cpu: CpuId) {
        // SAFETY: the CPU has stopped, and its hotplug operation is still under way here.
        let own = unsafe { self.own.get_stopped(cpu) };
        if !planted!(TlbDeadRemembers) {
            own.reset();
        }
        let word = self.loaded_on(cpu);
        let loaded = Loaded::of(word.swap(Loaded::NOTHING.word(), SeqCst));
        if let Some(asid) = loaded.asid() {
            self.space(asid).leave(cpu);
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
