//! The kinds of work.

use crate::time::TimerSlot;
use core::sync::atomic::Ordering;
use mmscale_arch::sync::EachCpu;
use mmscale_arch::{Atomic, CpuId, Machine};

/// A piece of work. Each exists once, is pending at most once, and runs at most once at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkItem {
    /// The vmstat tick of a CPU, on that CPU.
    VmstatTick(CpuId),
    /// The shepherd that starts the ticks of CPUs that became busy.
    Shepherd,
    /// Draining the page caches of a CPU, on that CPU.
    DrainPages(CpuId),
    /// Draining the LRU batches of a CPU, on that CPU.
    LruDrain(CpuId),
    /// Returning the stock of charges of a CPU to its group, on that CPU.
    DrainStock(CpuId),
    /// Freeing stacks of tasks that ended on a CPU, on that CPU.
    FreeStacks(CpuId),
    /// Flushing the addresses of stacks on all CPUs.
    PurgeStacks,
    /// The periodic flush of the memory groups' statistics.
    StatFlush,
    /// Freeing deferred compressed pages.
    FreeCompressed,
}

impl WorkItem {
    /// Returns the timer that delays this work, on the CPU where it waits.
    pub(super) const fn slot(self) -> TimerSlot {
        TimerSlot::new(match self {
            Self::VmstatTick(_) => 0,
            Self::Shepherd => 1,
            Self::DrainPages(_) => 2,
            Self::LruDrain(_) => 3,
            Self::FreeStacks(_) => 4,
            Self::PurgeStacks => 5,
            Self::DrainStock(_) => 6,
            Self::StatFlush => 7,
            Self::FreeCompressed => 8,
        })
    }
    /// Returns the work that the timer `slot` of `cpu` delays.
    pub(super) fn of_slot(slot: TimerSlot, cpu: CpuId) -> Option<Self> {
        match slot.index() {
            0 => Some(Self::VmstatTick(cpu)),
            1 => Some(Self::Shepherd),
            2 => Some(Self::DrainPages(cpu)),
            3 => Some(Self::LruDrain(cpu)),
            4 => Some(Self::FreeStacks(cpu)),
            5 => Some(Self::PurgeStacks),
            6 => Some(Self::DrainStock(cpu)),
            7 => Some(Self::StatFlush),
            8 => Some(Self::FreeCompressed),
            _ => None,
        }
    }
    /// Returns the CPU to which the work is bound, if any.
    pub(super) const fn bound_to(self) -> Option<CpuId> {
        match self {
            Self::VmstatTick(cpu)
            | Self::DrainPages(cpu)
            | Self::LruDrain(cpu)
            | Self::DrainStock(cpu)
            | Self::FreeStacks(cpu) => Some(cpu),
            Self::Shepherd | Self::PurgeStacks | Self::StatFlush | Self::FreeCompressed => None,
        }
    }
}

/// The work waits for its timer or in a queue.
const PENDING: u32 = 1;
/// The work must not be queued.
const DISABLED: u32 = 2;

/// The state of one piece of work. The task that sets the pending bit may queue the work.
pub(super) struct ItemState<A: Machine> {
    flags: A::AtomicU32,
    /// The CPU on which it waits, or waited last.
    home: A::AtomicU32,
    /// The CPU on which it ran last.
    ran_on: A::AtomicU32,
}

impl<A: Machine> ItemState<A> {
    fn new() -> Self {
        Self {
            flags: A::AtomicU32::new(0),
            home: A::AtomicU32::new(0),
            ran_on: A::AtomicU32::new(0),
        }
    }
    /// Sets the pending bit, unless it is set or the work is disabled; returns whether it did.
    pub(super) fn take_pending(&self) -> bool {
        // Pairs with `clear_pending`: the task that sets the bit comes after the last user of it.
        self.flags.compare_exchange(0, PENDING, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
    /// Sets the pending bit like [`ItemState::take_pending`], for a cancel: also of a disabled
    /// item.
    pub(super) fn grab(&self) -> bool {
        // Pairs with `clear_pending`, as in `take_pending`: `Work::cancel_sync` sees `ran_on`.
        self.flags.fetch_or(PENDING, Ordering::AcqRel) & PENDING == 0
    }
    pub(super) fn clear_pending(&self) {
        // Pairs with `take_pending` and `grab`: the next user of the bit sees what this one wrote.
        self.flags.fetch_and(!PENDING, Ordering::AcqRel);
    }
    pub(super) fn is_pending(&self) -> bool {
        // A hint. Pairs with `take_pending`, `grab` and `clear_pending`.
        self.flags.load(Ordering::Acquire) & PENDING != 0
    }
    pub(super) fn disable(&self) {
        // Against the exchange in `take_pending` of the same word: it fails, or its work is found
        // by the cancel that follows.
        self.flags.fetch_or(DISABLED, Ordering::AcqRel);
    }
    pub(super) fn enable(&self) {
        // The exchange in `take_pending` succeeds again after this.
        self.flags.fetch_and(!DISABLED, Ordering::AcqRel);
    }
    pub(super) fn home(&self) -> CpuId {
        // Pairs with the store in `set_home`. A hint: the caller checks under the queue's lock.
        CpuId::new(self.home.load(Ordering::Acquire) as usize)
    }
    pub(super) fn set_home(&self, cpu: CpuId) {
        // Pairs with the load in `home`.
        self.home.store(cpu.index() as u32, Ordering::Release);
    }
    pub(super) fn ran_on(&self) -> CpuId {
        // Pairs with the store in `set_ran_on`, which precedes `clear_pending`.
        CpuId::new(self.ran_on.load(Ordering::Acquire) as usize)
    }
    pub(super) fn set_ran_on(&self, cpu: CpuId) {
        // Pairs with the load in `ran_on`.
        self.ran_on.store(cpu.index() as u32, Ordering::Release);
    }
}

/// The states of all work.
pub(super) struct Items<A: Machine> {
    ticks: EachCpu<ItemState<A>>,
    drains: EachCpu<ItemState<A>>,
    lru_drains: EachCpu<ItemState<A>>,
    stock_drains: EachCpu<ItemState<A>>,
    stacks: EachCpu<ItemState<A>>,
    purge: ItemState<A>,
    stat_flush: ItemState<A>,
    free_compressed: ItemState<A>,
    shepherd: ItemState<A>,
}

impl<A: Machine> Items<A> {
    pub(super) fn new() -> Self {
        Self {
            ticks: EachCpu::new::<A>(|_| ItemState::new()),
            drains: EachCpu::new::<A>(|_| ItemState::new()),
            lru_drains: EachCpu::new::<A>(|_| ItemState::new()),
            stock_drains: EachCpu::new::<A>(|_| ItemState::new()),
            stacks: EachCpu::new::<A>(|_| ItemState::new()),
            purge: ItemState::new(),
            stat_flush: ItemState::new(),
            free_compressed: ItemState::new(),
            shepherd: ItemState::new(),
        }
    }
    pub(super) fn of(&self, item: WorkItem) -> &ItemState<A> {
        match item {
            WorkItem::VmstatTick(cpu) => self.ticks.of(cpu),
            WorkItem::DrainPages(cpu) => self.drains.of(cpu),
            WorkItem::LruDrain(cpu) => self.lru_drains.of(cpu),
            WorkItem::DrainStock(cpu) => self.stock_drains.of(cpu),
            WorkItem::FreeStacks(cpu) => self.stacks.of(cpu),
            WorkItem::PurgeStacks => &self.purge,
            WorkItem::StatFlush => &self.stat_flush,
            WorkItem::FreeCompressed => &self.free_compressed,
            WorkItem::Shepherd => &self.shepherd,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_has_a_timer_of_its_own() {
        let cpu = CpuId::new(5);
        let drains =
            [WorkItem::DrainPages(cpu), WorkItem::LruDrain(cpu), WorkItem::DrainStock(cpu)];
        let stacks = [WorkItem::FreeStacks(cpu), WorkItem::PurgeStacks];
        let own = [WorkItem::VmstatTick(cpu), WorkItem::Shepherd, WorkItem::StatFlush].into_iter();
        let own = own.chain(drains).chain(stacks).chain([WorkItem::FreeCompressed]);
        let mut seen = 0_u32;
        for item in own {
            assert_eq!(WorkItem::of_slot(item.slot(), cpu), Some(item));
            assert_eq!(seen >> item.slot().index() & 1, 0);
            seen |= 1 << item.slot().index();
        }
    }
}
