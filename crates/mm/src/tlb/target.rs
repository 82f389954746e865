//! Invalidations, on a CPU that is reached.

use super::cpu::{ActiveMm, CpuContexts};
use super::mm_context::FlushInfo;
use super::{FlushBy, SINGLE_FLUSH_CEILING, Tlb};
use crate::smp::{Call, CallFunc};
use core::sync::atomic::Ordering::{Acquire, SeqCst};
use mmscale_arch::sync::{IrqGuard, NoPreempt};
use mmscale_arch::{Asid, Atomic, Func, Machine, Op, Span, VmaRange, Vpn};

impl<A: Machine> Tlb<A> {
    /// Handles an IPI on this CPU, all of whose calls are the TLB's.
    pub fn interrupt(&self) {
        self.smp.interrupt(&|call| self.run(call));
    }
    /// Runs one call on this CPU.
    pub fn run(&self, call: Call) {
        let off = IrqGuard::<A>::new();
        match call.func {
            CallFunc::FlushTlb => {
                let _span = Span::<A>::enter(Func::FlushTlbFunc);
                self.flush_func(&off, ActiveMm::of(call.info[0]), FlushInfo::of(call.info[1]));
            }
            CallFunc::FlushTlbBatch | CallFunc::FlushToCurrentGen => {
                let _span = Span::<A>::enter(Func::FlushTlbFunc);
                self.flush_to_current_gen(&off);
                self.wake_sleepers(off.cpu());
            }
            CallFunc::FlushTlbKernel => {
                let [start, pages] = call.info;
                let range = VmaRange::with_pages(Vpn::new(start), pages);
                match range.filter(|_| pages <= SINGLE_FLUSH_CEILING) {
                    Some(_) => A::work(Op::TlbFlushPage, pages as u32),
                    None => A::work(Op::TlbFlushAll, 1),
                }
                A::tlb_flush_local(Asid::KERNEL, range.filter(|_| pages <= SINGLE_FLUSH_CEILING));
            }
        }
    }
    /// Handles a call (`flush_tlb_func`). Does nothing if this CPU has another address space loaded
    /// or has flushed already. Flushes the call's pages if it missed no other invalidation,
    /// otherwise everything. Unloads a lazy address space.
    fn flush_func(&self, off: &IrqGuard<A>, wanted: ActiveMm, what: FlushInfo) {
        let word = self.loaded_on(off.cpu());
        // Only this CPU stores its word: no partner.
        let loaded = ActiveMm::of(word.load(Acquire));
        let Some(asid) = loaded.asid().filter(|&asid| wanted.asid() == Some(asid)) else { return };
        if loaded.is_lazy() {
            self.leave(off, self.own.get(off), asid, loaded);
            return;
        }
        // Pairs with `begin` (mm_context.rs): the entries of all generations up to this one are
        // cleared.
        let generation = self.context(asid).generation.load(SeqCst);
        let missed = loaded.missed(generation);
        if missed == 0 {
            return;
        }
        let only = wanted.missed(generation) == 0 && missed == 1;
        match what.range(generation).filter(|_| only) {
            Some((range, units)) => {
                A::work(Op::TlbFlushPage, units as u32);
                A::tlb_flush_local(asid, Some(range));
            }
            None => {
                A::work(Op::TlbFlushAll, 1);
                A::tlb_flush_local(asid, None);
            }
        }
        // Pairs with the loads in `is_called` (flush.rs) and `awake` (batch.rs). The flusher itself
        // waits for the end of the call.
        word.store(loaded.at(generation).word(), SeqCst);
    }
    /// Unloads the address space, also a lazy one (`leave_mm`).
    fn leave(&self, off: &IrqGuard<A>, own: &CpuContexts, asid: Asid, loaded: ActiveMm) {
        A::work(Op::MmSwitch, 1);
        own.remember(asid, loaded.generation());
        // Pairs with the loads in `is_called` (flush.rs): a flusher that sees it need not call this
        // CPU.
        self.loaded_on(off.cpu()).store(ActiveMm::NOTHING.word(), SeqCst);
        self.context(asid).leave(off.cpu());
    }
    /// Flushes the loaded address space up to its current generation, if this CPU is behind.
    pub(super) fn flush_to_current_gen(&self, off: &IrqGuard<A>) {
        let word = self.loaded_on(off.cpu());
        // Only this CPU stores its word: no partner.
        let loaded = ActiveMm::of(word.load(Acquire));
        let Some(asid) = loaded.asid() else { return };
        let context = self.context(asid);
        // Pairs with `begin`: a flush makes a generation and then loads what CPUs run on; this CPU
        // has published what it runs on before this load. All four are sequentially consistent.
        let generation = context.generation.load(SeqCst);
        let missed = loaded.missed(generation);
        if missed == 0 {
            return;
        }
        match self.flush_by() {
            FlushBy::Call => {
                A::work(Op::TlbFlushAll, 1);
                A::tlb_flush_local(asid, None);
            }
            FlushBy::Generation => context.flush_missed(asid, missed, generation),
        }
        // Pairs with the loads in `is_behind` (flush.rs) and `behind` (limbo.rs): a flusher that
        // sees the generation comes after the flush.
        word.store(loaded.at(generation).word(), SeqCst);
    }
}
