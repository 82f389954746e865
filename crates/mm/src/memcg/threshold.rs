//! The threshold of readers before Linux 6.8: one count of changes for all groups
//! (`stats_flush_threshold`).
//!
//! Each CPU counts its changes, and adds them to the shared count in whole batches. A reader
//! flushes if that has more batches than there are CPUs. The flush covers all groups, and the count
//! begins again.

use super::CHARGE_BATCH;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;
use mmscale_arch::sync::EachCpu;
use mmscale_arch::{Atomic, CpuId, DataLine, Machine, Op};

mmscale_arch::policies! {
    /// When a reader of a group's statistics flushes them first, and where changes are counted for
    /// that.
    pub enum ThresholdPolicy: "stat-threshold", "changes of groups' statistics before a flush" {
        /// Counts changes of each group, its descendants included, up to 64 for each CPU.
        Group = "stock",
        /// Counts changes of all groups in one word, in batches of 64, up to one for each CPU.
        Global = "global",
        /// Counts changes of all groups in one word, also those beyond the threshold.
        Uncapped = "uncapped",
        /// Counts no changes: each reader flushes, and reclaim does not.
        None = "none",
    }
}

/// The count of changes of all groups.
pub(super) struct AllChanges<A: Machine> {
    /// Batches since the last flush.
    batches: A::AtomicU32,
    /// Changes that are not in `batches`. Only its CPU uses it.
    own: EachCpu<AtomicU32>,
    /// Whether batches beyond the threshold are left out.
    capped: bool,
}

impl<A: Machine> AllChanges<A> {
    pub(super) fn new(capped: bool) -> Self {
        Self {
            batches: A::AtomicU32::named(0, DataLine::StatsUpdates),
            own: EachCpu::new::<A>(|_| AtomicU32::new(0)),
            capped,
        }
    }
    /// Counts changes of a CPU, the calling one (`memcg_rstat_updated`).
    pub(super) fn note(&self, cpu: CpuId, count: u32) {
        A::work(Op::PercpuAdd, 1);
        let own = self.own.of(cpu);
        let sum = own.load(Relaxed).saturating_add(count);
        let full = sum > CHARGE_BATCH;
        own.store(if full { 0 } else { sum }, Relaxed);
        if full && !(self.capped && self.is_due()) {
            self.batches.fetch_add(sum / CHARGE_BATCH, Relaxed);
        }
    }
    /// Whether a reader flushes.
    pub(super) fn is_due(&self) -> bool {
        self.batches.load_uncharged(Relaxed) > A::cpus_possible() as u32
    }
    /// Begins again, after a flush.
    pub(super) fn reset(&self) {
        self.batches.store(0, Relaxed);
    }
}
