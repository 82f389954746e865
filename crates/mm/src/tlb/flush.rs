//! Invalidations, on the CPU that requests them.
//!
//! With `stock` and `posted` a flush calls the CPUs that have the address space loaded and passes
//! its generation and its extent, as on x86. With `requests` a flush reads what the CPUs have
//! loaded, sends an IPI to those that are behind (one pending IPI serves all flushes), and waits
//! until each has flushed, unloaded the address space or gone idle.

use super::broadcast::Reach;
use super::cpu::ActiveMm;
use super::mm_context::{FlushInfo, MmContext};
use super::{Extent, FlushBy, Flushed, SINGLE_FLUSH_CEILING, Tables, Tlb, trace};
use crate::smp::{Call, CallFunc, SPIN_NS, Wait, Watch, in_pieces};
use core::sync::atomic::Ordering::SeqCst;
use mmscale_arch::sync::{NoPreempt, WaitQueue};
use mmscale_arch::{
    Asid, Atomic, CallEvent, CpuId, CpuMask, Func, Machine, PageSize, Span, Trace, VmaRange,
};

/// Tasks that sleep until one CPU has flushed.
pub(super) struct FlushSleepers<A: Machine> {
    /// Number of sleeping tasks, those about to sleep included.
    waiting: A::AtomicU32,
    queue: WaitQueue<A>,
}

impl<A: Machine> FlushSleepers<A> {
    pub(super) fn new() -> Self {
        Self { waiting: A::AtomicU32::new(0), queue: WaitQueue::new() }
    }
}

/// An invalidation that has a generation, and whose completion is not awaited yet.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PendingFlush {
    pub(super) asid: Asid,
    pub(super) generation: u64,
}

impl<A: Machine> Tlb<A> {
    /// Ensures that no CPU uses a translation of `asid` within `extent` that is no longer in the
    /// page table (`flush_tlb_mm_range`). The caller may hold spin locks; interrupts are on.
    pub fn flush(&self, asid: Asid, extent: Extent) -> Flushed {
        self.flush_with(asid, extent, Tables::Kept, Wait::Spin)
    }
    /// Flushes like [`Tlb::flush`]. With [`Tables::Freed`], no CPU walks the address space's tables
    /// speculatively on return either, unless it loads the address space again. With
    /// [`Wait::Sleep`] the caller holds no spin lock.
    pub fn flush_with(&self, asid: Asid, extent: Extent, tables: Tables, wait: Wait) -> Flushed {
        let _span = Span::<A>::enter(Func::FlushTlbMmRange);
        assert!(wait != Wait::No, "a flush without a wait proves nothing");
        self.smp.tally().flushes.add(1);
        if let Some(broadcast) = Self::broadcast_for_all() {
            Self::broadcast(broadcast, asid, extent);
            return Flushed { asid };
        }
        let extent = extent.at_most(SINGLE_FLUSH_CEILING);
        let context = self.context(asid);
        let generation = context.begin();
        let interrupted = match self.flush_by() {
            FlushBy::Call => self.reach_others(asid, generation, extent, tables, wait),
            FlushBy::Generation => {
                context.publish(generation, extent);
                let behind = self.send_flush_ipis(asid, context, generation);
                self.wait_for_all(asid, generation, &behind, wait);
                behind.count() as u32
            }
        };
        context.complete_deferred(generation);
        trace::<A>(extent, interrupted);
        Flushed { asid }
    }
    /// Flushes on all CPUs, by calls or by broadcast; returns the number of CPUs called.
    fn reach_others(
        &self,
        asid: Asid,
        generation: u64,
        extent: Extent,
        tables: Tables,
        wait: Wait,
    ) -> u32 {
        let context = self.context(asid);
        let reach = self.reach(context);
        match reach {
            Reach::Broadcast(broadcast) => {
                Self::broadcast(broadcast, asid, extent);
                return 0;
            }
            Reach::Both(broadcast) => Self::broadcast(broadcast, asid, Extent::All),
            Reach::Calls => {}
        }
        let called = self.call_others(asid, generation, extent, tables, wait);
        match reach {
            Reach::Calls => self.consider_global(context, tables, called),
            Reach::Both(_) | Reach::Broadcast(_) => self.joined(context),
        }
        called
    }

    // -- `stock` and `posted`.

    /// Returns whether a flush calls `cpu` (`should_flush_tlb`).
    pub(super) fn is_called(&self, cpu: CpuId, asid: Asid, tables: Tables) -> bool {
        // Pairs with the store in `switch`: see `flush_to_current_gen`.
        let loaded = ActiveMm::of(self.loaded_on(cpu).load(SeqCst));
        loaded.asid() == Some(asid) && (tables == Tables::Freed || !loaded.is_lazy())
    }
    fn call_others(
        &self,
        asid: Asid,
        generation: u64,
        extent: Extent,
        tables: Tables,
        wait: Wait,
    ) -> u32 {
        let what = FlushInfo::new(generation, extent).word();
        let info = [ActiveMm::new(asid, generation).word(), what];
        let call = Call { func: CallFunc::FlushTlb, info };
        let called = |cpu| self.is_called(cpu, asid, tables);
        let targets = self.context(asid).cpus();
        let run = |call| self.run(call);
        self.smp.flush_by_call(targets, called, called, (call, wait), &run)
    }

    // -- `requests`.

    fn is_behind(&self, cpu: CpuId, asid: Asid, generation: u64) -> bool {
        ActiveMm::of(self.loaded_on(cpu).load(SeqCst)).is_behind(asid, generation)
    }
    /// Flushes on this CPU and sends flush IPIs to the CPUs that are behind; returns these.
    ///
    /// Runs in pieces; between two pieces the caller may be preempted or migrated. A CPU that loads
    /// the address space after its mask bit was read reads the new generation itself. A piece may
    /// run on another CPU than the one before, so "this CPU" is decided for each target.
    pub(super) fn send_flush_ipis(
        &self,
        asid: Asid,
        context: &MmContext<A>,
        generation: u64,
    ) -> CpuMask {
        let mut behind = CpuMask::EMPTY;
        in_pieces::<A>(self.smp.counters(), context.cpus(), |off, cpu| {
            if cpu == off.cpu() {
                if self.own.get(off).active.get() == Some(asid) {
                    self.flush_to_current_gen(off);
                }
            } else if self.is_behind(cpu, asid, generation) && self.smp.send_flush_ipi(off, cpu) {
                behind.insert(cpu);
            }
        });
        behind
    }
    /// Waits until no CPU of `cpus` is behind. Each CPU begins with the one after it: otherwise
    /// all that flush together would sleep for the same one, in one queue.
    pub(super) fn wait_for_all(&self, asid: Asid, generation: u64, cpus: &CpuMask, wait: Wait) {
        let is_behind = |&cpu: &CpuId| self.is_behind(cpu, asid, generation);
        let mut behind = cpus.iter_after(A::cpu()).filter(is_behind);
        let Some(first) = behind.next() else { return };
        let _span = Span::<A>::enter(Func::CsdLockWait);
        let mut watch = Watch::<A>::begin(self.smp.config(), A::cpu(), CallFunc::FlushToCurrentGen);
        let mut last = first;
        for cpu in core::iter::once(first).chain(behind) {
            last = cpu;
            while self.is_behind(cpu, asid, generation) {
                if wait == Wait::Sleep && watch.age_ns() >= SPIN_NS {
                    self.sleep_for(cpu, &watch, || !self.is_behind(cpu, asid, generation));
                } else {
                    watch.turn(|| cpu);
                }
            }
        }
        let ns = watch.age_ns();
        self.smp.tally().csd_wait_total_ns.add(ns);
        self.smp.tally().csd_wait_max_ns.note(ns);
        A::trace(Trace::Call(CallEvent::Wait { target: last, ns }));
    }
    fn sleep_for(&self, cpu: CpuId, watch: &Watch<A>, over: impl Fn() -> bool) {
        let sleepers = self.sleepers.of(cpu);
        self.smp.tally().sleeps.add(1);
        // Store buffering with `wake_sleepers`: see there.
        sleepers.waiting.fetch_add(1, SeqCst);
        sleepers.queue.wait_until(|| {
            let over = over();
            if !over {
                watch.look(|| cpu);
            }
            over
        });
        // No partner: a CPU that reads the old count only wakes once too often.
        sleepers.waiting.fetch_sub(1, SeqCst);
    }
    /// Wakes the tasks that sleep for `cpu`, after its loaded word has changed. Pairs with
    /// `sleep_for`: this CPU stores its word, then loads `waiting`; the sleeper increments
    /// `waiting`, then loads the word. All four operations are SeqCst, so at least one of the two
    /// sees the other's store.
    #[inline]
    pub(super) fn wake_sleepers(&self, cpu: CpuId) {
        if self.flush_by() == FlushBy::Generation {
            let sleepers = self.sleepers.of(cpu);
            // Pairs with the add in `sleep_for`.
            if sleepers.waiting.load(SeqCst) != 0 {
                sleepers.queue.wake_all();
            }
        }
    }
    /// Wakes all sleepers once an interval, so that they check for a timeout.
    pub fn watch(&self) {
        self.smp.watch();
        for (_, sleepers) in self.sleepers.iter() {
            // Pairs with the add in `sleep_for`. A sleeper that is missed is woken an interval
            // later.
            if sleepers.waiting.load(SeqCst) != 0 {
                sleepers.queue.wake_all();
            }
        }
    }

    // -- The kernel's own range.

    /// Ensures that no CPU uses a translation of the kernel's `range` that is no longer in the
    /// tables (`flush_tlb_kernel_range`). Calls every CPU, idle ones too: all of them use these
    /// translations.
    pub fn flush_kernel_range(&self, range: VmaRange, wait: Wait) {
        let _span = Span::<A>::enter(Func::FlushTlbKernelRange);
        self.smp.tally().flushes.add(1);
        if let Some(broadcast) = self.broadcast_for_kernel() {
            Self::broadcast(broadcast, Asid::KERNEL, Extent::Range(range, PageSize::Base));
            return;
        }
        let info = [range.start().get(), range.pages()];
        let call = Call { func: CallFunc::FlushTlbKernel, info };
        let reached = self.smp.on_each_cpu(call, wait, &|call| self.run(call));
        let extent = Extent::Range(range, PageSize::Base).at_most(SINGLE_FLUSH_CEILING);
        trace::<A>(extent, reached.others);
    }
}
