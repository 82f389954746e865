//! Compressed pages of swap slots: their sizes, their memory, and the device's counts (zram).

use super::entry::SwapEntry;
use super::slots::SwapSlot;
use super::{Swap, SwapConfig};
use crate::lru::LruRef;
use crate::work::WorkItem;
use crate::zsmalloc::{Drain, GRAINS, Handle, Zsmalloc};
use core::sync::atomic::Ordering::Relaxed;
use mmscale_arch::{Atomic, CpuId, CpuMask, DataLine, Machine, random};

/// The smallest and the largest compressed page, in 256ths of a page, if not all have one size:
/// 12.5 and 62.5 percent, 37.5
/// on average. Sizes between are equally frequent. Assumption: memory of programs is compressed to
/// a half or a third; the spread is not published.
const SIZES: (u64, u64) = (32, 160);

/// The compressed pages of a device.
pub(super) struct Zram<A: Machine> {
    pub(super) pool: Zsmalloc<A>,
    /// The line of `notify_free`, `compr_data_size` and `pages_stored` (`struct zram_stats`):
    /// changes so far.
    stats: A::AtomicU64,
    /// The smallest and the largest size, in 256ths of a page.
    sizes: (u64, u64),
}

impl<A: Machine> Zram<A> {
    pub(super) fn new(config: &SwapConfig) -> Self {
        let stats = A::AtomicU64::named(0, DataLine::ZramStats);
        let sizes = config.compressed_percent.map_or(SIZES, |percent| {
            let size = (u64::from(percent) * GRAINS as u64).div_ceil(100);
            (size, size)
        });
        Self { pool: Zsmalloc::new(config.zs), stats, sizes }
    }
    /// Changes some of the device's counts. They are statistics: no decision depends on them.
    fn count(&self, changes: u32) {
        for _ in 0..changes {
            self.stats.fetch_add(1, Relaxed);
        }
    }
    /// Returns the size of the compressed page of a slot, in 256ths of a page: drawn from the run's
    /// seed and the slot's number.
    fn size_of(&self, entry: SwapEntry) -> usize {
        let (least, most) = self.sizes;
        let drawn = random(A::seed(), CpuId::new(0), u64::from(entry.slot()));
        (least + drawn % (most - least + 1)) as usize
    }
    /// Frees a compressed page (`slot_free`).
    fn free(&self, memory: LruRef<'_, A>, handle: Handle) {
        if self.pool.free(memory.frames, handle) == Drain::Needed {
            queue_drain(memory);
        }
        self.count(2);
    }
}

/// Queues the worker that frees deferred compressed pages, on a CPU that is idle, or on the next
/// one (a queue that is bound to no CPU: `WQ_UNBOUND`).
fn queue_drain<A: Machine>(memory: LruRef<'_, A>) {
    let own = A::cpu().index();
    let others =
        || (1..=A::cpus_possible()).map(|step| CpuId::new((own + step) % A::cpus_possible()));
    let mut online = CpuMask::EMPTY;
    A::online(&mut online);
    let usable = || others().filter(|&cpu| online.contains(cpu));
    let cpu = usable().find(|&cpu| memory.rcu.is_idle(cpu)).or_else(|| usable().next());
    memory.work.queue_on(cpu.unwrap_or(A::cpu()), WorkItem::FreeCompressed);
}

impl<A: Machine> Swap<A> {
    /// Allocates the memory of a slot's compressed page, in place of the page that it has; returns
    /// `false` if there is none. The caller has the lock of the folio, which is in the cache.
    pub(super) fn keep_compressed(&self, memory: LruRef<'_, A>, entry: SwapEntry) -> bool {
        let Some(zram) = &self.zram else { return true };
        let slot = self.slot(entry);
        if let Some(old) = Handle::of_word(slot.compressed.swap(0, Relaxed)) {
            zram.free(memory, old);
        }
        let Ok(handle) = zram.pool.alloc(memory.frames, zram.size_of(entry)) else { return false };
        slot.compressed.store(handle.word(), Relaxed);
        zram.count(2);
        true
    }
    /// Frees the compressed page of a slot that is freed (`zram_slot_free_notify`). Its cluster's
    /// lock is held.
    pub(super) fn forget_compressed(&self, memory: LruRef<'_, A>, slot: &SwapSlot<A>) {
        let Some(zram) = &self.zram else { return };
        zram.count(1);
        if let Some(handle) = Handle::of_word(slot.compressed.swap(0, Relaxed)) {
            zram.free(memory, handle);
        }
    }
    /// Frees deferred compressed pages. The caller is a worker.
    pub(crate) fn free_deferred(&self, memory: LruRef<'_, A>) {
        let Some(zram) = &self.zram else { return };
        if zram.pool.drain(memory.frames) == Drain::Needed {
            queue_drain(memory);
        }
    }
    /// Frees all deferred compressed pages. Only the caller runs.
    pub fn quiesce(&self, memory: LruRef<'_, A>) {
        let Some(zram) = &self.zram else { return };
        while zram.pool.drain(memory.frames) == Drain::Needed {}
        let cpus = (0..A::cpus_possible()).map(CpuId::new);
        cpus.for_each(|cpu| zram.pool.drain_stopped(memory.frames, cpu));
    }
}
