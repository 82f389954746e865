//! The per-CPU memory of an address space: its counts, and its concurrency IDs (`mm_cid`).

use super::RssPolicy;
use crate::percpu::{Area, Percpu};
use mmscale_arch::sync::{Numbers, Once, Sparse};
use mmscale_arch::{Asid, Machine};

/// Counts of an address space: pages of files, anonymous pages, shared memory, swap.
pub(super) const COUNTS: u32 = 4;
/// Bytes of a CPU's part of a count (`s32`).
const COUNT_BYTES: u32 = 4;
/// Bytes of a CPU's part of the concurrency IDs (`struct mm_cid`, since Linux 6.9).
const IDS_BYTES: u32 = 16;

/// The areas that an address space has allocated. Counts that are allocated together are the first
/// entry.
#[derive(Clone, Copy, Default)]
pub(super) struct Areas {
    counts: [Option<Area>; COUNTS as usize],
    ids: Option<Area>,
}

impl Areas {
    fn alloc<A: Machine>(policy: RssPolicy, on: &Percpu<A>) -> Self {
        let mut counts = [None; COUNTS as usize];
        match policy {
            RssPolicy::Tasks | RssPolicy::Single => {}
            RssPolicy::Four => {
                for count in &mut counts {
                    *count = Some(on.alloc(COUNT_BYTES));
                    on.list_counters();
                }
            }
            RssPolicy::Merged => {
                counts[0] = Some(on.alloc(COUNTS * COUNT_BYTES + IDS_BYTES));
                on.list_counters();
            }
            RssPolicy::Cpus | RssPolicy::Cached | RssPolicy::Tree => {
                counts[0] = Some(counts_alone(on));
            }
        }
        // Before Linux 6.2 there are neither counts nor IDs for each CPU.
        let ids = !matches!(policy, RssPolicy::Tasks | RssPolicy::Merged);
        let ids = ids.then(|| on.alloc(IDS_BYTES));
        if ids.is_some() || policy == RssPolicy::Merged {
            // `mm_init_cid` sets the ID of each CPU.
            on.set();
        }
        Self { counts, ids }
    }
    fn free<A: Machine>(&self, on: &Percpu<A>) {
        self.ids.iter().for_each(|area| on.free(area));
        for area in self.counts() {
            on.list_counters();
            on.free(area);
        }
    }
    fn counts(&self) -> impl Iterator<Item = &Area> {
        self.counts.iter().flatten()
    }
}

/// Allocates the counts of an address space.
fn counts_alone<A: Machine>(on: &Percpu<A>) -> Area {
    let area = on.alloc(COUNTS * COUNT_BYTES);
    on.list_counters();
    area
}

/// The per-CPU memory of all address spaces.
pub struct CountMemory<A: Machine> {
    percpu: Percpu<A>,
    /// Numbers of address spaces whose memory stays allocated after their end.
    objects: Numbers<A>,
    /// By these numbers, once it was allocated.
    kept: Sparse<Once<Areas>>,
}

impl<A: Machine> CountMemory<A> {
    /// Creates a machine's, of which nothing is allocated.
    pub fn new() -> Self {
        Self {
            percpu: Percpu::new(),
            objects: Numbers::new(0..Asid::COUNT),
            kept: Sparse::new(Asid::COUNT),
        }
    }
    /// The allocator.
    pub fn percpu(&self) -> &Percpu<A> {
        &self.percpu
    }
}

impl<A: Machine> Default for CountMemory<A> {
    fn default() -> Self {
        Self::new()
    }
}

/// The per-CPU memory of one address space.
pub(super) enum Memory {
    /// It has none: the kernel's own address space has memory that was not allocated.
    Static,
    /// It is freed with the address space.
    Own(Areas),
    /// It stays allocated, under this number.
    Kept(usize, Areas),
    /// The IDs, and the counts since a second task uses the address space.
    Late(Areas, Once<Area>),
}

impl Memory {
    pub(super) fn alloc<A: Machine>(policy: RssPolicy, on: &CountMemory<A>) -> Self {
        let new = || Areas::alloc(policy, &on.percpu);
        match policy {
            RssPolicy::Single => Self::Late(new(), Once::nothing()),
            RssPolicy::Cached => {
                let Some(number) = on.objects.take() else { return Self::Own(new()) };
                let kept = on.kept.get_or_make(number, |_| Once::nothing());
                Self::Kept(number, *kept.get().unwrap_or_else(|| kept.put(new())))
            }
            _ => Self::Own(new()),
        }
    }
    /// Allocates the counts, if that was left until now. Called once.
    pub(super) fn alloc_late<A: Machine>(&self, on: &CountMemory<A>) {
        if let Self::Late(_, counts) = self {
            counts.put(counts_alone(&on.percpu));
        }
    }
    /// The line of each CPU's copy that has its part of the counts; `None` if no CPU has a part.
    #[inline]
    pub(super) fn line(&self) -> Option<u32> {
        match self {
            Self::Static => None,
            Self::Own(areas) | Self::Kept(_, areas) => areas.counts().next().map(Area::line),
            Self::Late(_, counts) => counts.get().map(Area::line),
        }
    }
    /// Reads `counts` counts of all CPUs.
    pub(super) fn sum<A: Machine>(&self, on: &CountMemory<A>, counts: u32) {
        let areas = match self {
            Self::Static => return,
            Self::Own(areas) | Self::Kept(_, areas) => areas,
            Self::Late(_, late) => {
                late.get().into_iter().for_each(|area| on.percpu.sum(area, counts));
                return;
            }
        };
        let apart = areas.counts().count() as u32 == COUNTS;
        let each = if apart { 1 } else { counts };
        let areas = areas.counts().take(counts as usize);
        areas.for_each(|area| on.percpu.sum(area, each));
    }
    /// Frees it, at the end of the address space.
    pub(super) fn free<A: Machine>(&self, on: &CountMemory<A>) {
        match self {
            Self::Static => {}
            Self::Own(areas) => areas.free(&on.percpu),
            Self::Kept(number, _) => on.objects.give(*number),
            Self::Late(areas, counts) => {
                areas.free(&on.percpu);
                if let Some(area) = counts.get() {
                    on.percpu.list_counters();
                    on.percpu.free(area);
                }
            }
        }
    }
}
