//! The inside of the memory manager, for programs of studies and tests: no system call shows it.

use crate::Kernel;
use mmscale_arch::{CpuId, Machine, Order, Pfn};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::{AllocError, Census, Gfp, Zone};
use mmscale_frames::pcp::{Pcp, PcpLimits};
use mmscale_frames::vmstat::ZoneItem;
use mmscale_frames::zone::{IsolateError, ZoneId, ZoneKind};
use mmscale_mm::lru::LruCounters;
use mmscale_mm::memcg::GroupId;
use mmscale_mm::oom::OomCounters;
use mmscale_mm::smp::CallStats;
use mmscale_mm::stack::StackStats;
use mmscale_mm::swap::SwapCounters;
use mmscale_mm::vmap::VmapStats;

/// The inside of a memory manager on any machine.
pub trait Inside {
    // -- The machine.

    /// Computes for `ns` of CPU time, whether or not the caller is being stopped.
    fn compute(&self, ns: u64);
    /// Waits until every other CPU is idle. Sleeps.
    fn wait_for_idle(&self);
    /// Clears a block of frames.
    fn clear_block(&self, pfn: Pfn, order: Order);

    // -- Frames.

    /// Allocates a block of frames.
    fn alloc_pages(&self, order: Order, kind: MigrateType) -> Result<Pfn, AllocError>;
    /// Frees a block of frames.
    fn free_pages(&self, pfn: Pfn, order: Order);
    /// Counts free blocks.
    fn census(&self) -> Census;
    /// Returns the free pages of all zones by their counters, without those in page caches.
    fn free_count(&self) -> u64;
    /// Returns the pages in the page caches of a CPU.
    fn cached_count(&self, cpu: CpuId) -> u64;
    /// Returns the sum of the min watermarks of all zones, in pages.
    fn min_pages(&self) -> u64;
    /// Returns the sum of the high watermarks of all zones, in pages.
    fn high_pages(&self) -> u64;
    /// Returns the first zone of this kind.
    fn zone_of_kind(&self, kind: ZoneKind) -> Option<ZoneId>;
    /// Returns the limits of a page cache. Panics if there is none, as with policy `blockmap`.
    fn pcp_limits(&self, zone: ZoneId, cpu: CpuId) -> PcpLimits;
    /// Returns the `high` of a page cache. Panics if there is none, as with policy `blockmap`.
    fn pcp_high(&self, zone: ZoneId, cpu: CpuId) -> u32;
    /// Sets the `high` of a page cache. Panics if there is none, as with policy `blockmap`.
    fn set_pcp_high(&self, zone: ZoneId, cpu: CpuId, high: u32);
    /// Returns the pages of a page cache to their zone.
    fn drain_pages_zone(&self, zone: ZoneId, cpu: CpuId);
    /// Adds the folios of all batches to the LRU lists.
    fn drain_lists(&self);

    // -- Pageblocks, each named by its first frame.

    /// Isolates pageblocks: their free pages cannot be allocated any more.
    fn isolate_pageblocks(&self, blocks: &[Pfn]) -> Result<(), IsolateError>;
    /// Ends the isolation of a pageblock.
    fn unisolate_pageblock(&self, block: Pfn) -> Result<(), IsolateError>;
    /// Takes an isolated pageblock offline.
    fn offline_pageblock(&self, block: Pfn) -> Result<(), IsolateError>;
    /// Brings a pageblock back online.
    fn online_pageblock(&self, block: Pfn) -> Result<(), IsolateError>;

    // -- Memory groups.

    /// Returns the pages that a group is charged for.
    fn group_usage(&self, group: GroupId) -> u64;
    /// Limits the pages of a group.
    fn set_group_limit(&self, group: GroupId, pages: Option<u64>);

    // -- Statistics.

    /// Returns those of LRU lists.
    fn lru_counters(&self) -> LruCounters;
    /// Returns those of OOM kills.
    fn oom_counters(&self) -> OomCounters;
    /// Returns those of swap.
    fn swap_counters(&self) -> SwapCounters;
    /// Returns those of calls to other CPUs.
    fn call_stats(&self) -> CallStats;
    /// Returns the bytes that calls to other CPUs use.
    fn call_memory_bytes(&self) -> u64;
    /// Returns those of stacks of tasks.
    fn stack_stats(&self) -> StackStats;
    /// Returns those of the kernel's own address range.
    fn kernel_range_stats(&self) -> VmapStats;
}

impl<A: Machine> Kernel<A> {
    fn sum_of_zones(&self, of: impl Fn(&Zone<A>) -> u32) -> u64 {
        self.mm.frames().zones().iter().map(|zone| u64::from(of(zone))).sum()
    }
}

impl<A: Machine> Inside for Kernel<A> {
    fn compute(&self, ns: u64) {
        A::user(ns);
    }
    fn wait_for_idle(&self) {
        self.mm.rcu().wait_for_idle();
    }
    fn clear_block(&self, pfn: Pfn, order: Order) {
        A::clear_block(pfn, order);
    }

    fn alloc_pages(&self, order: Order, kind: MigrateType) -> Result<Pfn, AllocError> {
        self.mm.frames().alloc_pages(order, kind, Gfp::KERNEL)
    }
    fn free_pages(&self, pfn: Pfn, order: Order) {
        self.mm.frames().free_pages(pfn, order);
    }
    fn census(&self) -> Census {
        self.mm.frames().census()
    }
    fn free_count(&self) -> u64 {
        self.mm.frames().stats().all_zones(ZoneItem::FreePages)
    }
    fn cached_count(&self, cpu: CpuId) -> u64 {
        self.sum_of_zones(|zone| self.mm.frames().cached_pages(zone.id(), cpu))
    }
    fn min_pages(&self) -> u64 {
        self.sum_of_zones(|zone| zone.watermarks().min)
    }
    fn high_pages(&self) -> u64 {
        self.sum_of_zones(|zone| zone.watermarks().high)
    }
    fn zone_of_kind(&self, kind: ZoneKind) -> Option<ZoneId> {
        self.mm.frames().zones().iter().find(|zone| zone.kind() == kind).map(Zone::id)
    }
    fn pcp_limits(&self, zone: ZoneId, cpu: CpuId) -> PcpLimits {
        self.mm.frames().inspect_pcp(zone, cpu, Pcp::limits)
    }
    fn pcp_high(&self, zone: ZoneId, cpu: CpuId) -> u32 {
        self.mm.frames().inspect_pcp(zone, cpu, Pcp::high)
    }
    fn set_pcp_high(&self, zone: ZoneId, cpu: CpuId, high: u32) {
        self.mm.frames().set_pcp_high(zone, cpu, high);
    }
    fn drain_pages_zone(&self, zone: ZoneId, cpu: CpuId) {
        self.mm.frames().drain_pages_zone(zone, cpu);
    }
    fn drain_lists(&self) {
        self.mm.memory().drain();
    }

    fn isolate_pageblocks(&self, blocks: &[Pfn]) -> Result<(), IsolateError> {
        self.mm.frames().isolate_pageblocks(blocks)
    }
    fn unisolate_pageblock(&self, block: Pfn) -> Result<(), IsolateError> {
        self.mm.frames().unisolate_pageblock(block)
    }
    fn offline_pageblock(&self, block: Pfn) -> Result<(), IsolateError> {
        self.mm.frames().offline_pageblock(block)
    }
    fn online_pageblock(&self, block: Pfn) -> Result<(), IsolateError> {
        self.mm.frames().online_pageblock(block)
    }

    fn group_usage(&self, group: GroupId) -> u64 {
        self.mm.memory().groups.usage(group)
    }
    fn set_group_limit(&self, group: GroupId, pages: Option<u64>) {
        self.mm.memory().groups.set_limit(group, pages);
    }

    fn lru_counters(&self) -> LruCounters {
        self.mm.mm_ref().memory.lru.counters()
    }
    fn oom_counters(&self) -> OomCounters {
        self.mm.oom().counters()
    }
    fn swap_counters(&self) -> SwapCounters {
        self.mm.mm_ref().swap.counters()
    }
    fn call_stats(&self) -> CallStats {
        self.mm.call_stats()
    }
    fn call_memory_bytes(&self) -> u64 {
        self.mm.tlb().call_memory_bytes()
    }
    fn stack_stats(&self) -> StackStats {
        self.mm.stacks().stats()
    }
    fn kernel_range_stats(&self) -> VmapStats {
        self.mm.stacks().range_stats()
    }
}
