//! Per-CPU batches of folios to be moved, and the slots of `Lazy`.
//!
//! A batch is used by its own CPU with preemption off (the move-tail batch with interrupts off), or
//! by another CPU after its own has died; only for the latter its fields are atomics, all Relaxed.
//! Other CPUs read a flag for each batch: whether it has anything gathered.
//!
//! A slot is shared. The CPU that exchanges the slot's folio for 0 owns the reference that the slot
//! had. The slot's owner fills slots and records in `filled` those that it filled and has not
//! emptied. If another CPU empties a slot, the owner finds out when all slots are marked filled and
//! it sweeps them.

use alloc::boxed::Box;
use core::sync::atomic::Ordering::{AcqRel, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU32};
use mmscale_arch::{Atomic, CpuId, Machine, OwnedCounter, Pfn};

/// Maximum of folios in a batch (`PAGEVEC_SIZE`).
pub const BATCH: usize = 31;

/// The operation on the folios of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum BatchKind {
    /// Add to the list.
    Add = 0,
    /// Move to the tail of the list, after writeback for reclaim. Filled in interrupts too.
    MoveTail = 1,
    /// Move off the active list.
    Deactivate = 2,
    /// Mark as droppable.
    Lazyfree = 3,
    /// Move to the active list.
    Activate = 4,
}

impl BatchKind {
    /// The number of kinds.
    pub const COUNT: usize = 5;
    /// All kinds, in the order in which they are drained.
    pub const ALL: [Self; Self::COUNT] =
        [Self::Add, Self::MoveTail, Self::Deactivate, Self::Lazyfree, Self::Activate];
}

/// Folios taken from a batch, each with the batch's reference.
pub(super) struct Taken {
    pfns: [Pfn; BATCH],
    len: usize,
}

impl Taken {
    pub(super) const EMPTY: Self = Self { pfns: [Pfn::new(0); BATCH], len: 0 };

    pub(super) fn push(&mut self, pfn: Pfn) {
        self.pfns[self.len] = pfn;
        self.len += 1;
    }
    pub(super) fn as_slice(&self) -> &[Pfn] {
        &self.pfns[..self.len]
    }
}

/// One batch of one CPU.
struct FolioBatch {
    pfns: [AtomicU32; BATCH],
    len: AtomicU32,
}

impl FolioBatch {
    fn new() -> Self {
        Self { pfns: core::array::from_fn(|_| AtomicU32::new(0)), len: AtomicU32::new(0) }
    }
    fn len(&self) -> usize {
        self.len.load(Relaxed) as usize
    }
}

/// All batches and slots of one CPU.
pub(super) struct CpuBatches<A: Machine> {
    batches: [FolioBatch; BatchKind::COUNT],
    /// Folios with which a batch is full, up to [`BATCH`].
    full: usize,
    /// `Lazy`: frame number plus one, or 0. Without elements under the other policies.
    slots: Box<[A::AtomicU32]>,
    /// Slots that the owner has filled and not emptied, one bit each.
    filled: AtomicU32,
    /// By kind: the batch, or for `Add` a slot, is not empty.
    busy: [Busy<A>; BatchKind::COUNT],
    /// Lines that Linux reads in addition before it decides that a CPU needs no drain: its second
    /// batch for deactivation, the batch of mlock, and the buffer heads. All stay empty here.
    unused: [A::OwnedI8; LINES_READ - BatchKind::COUNT],
}

/// Cache lines of a CPU that are read to find that it needs no drain: in Linux six batches of
/// 31 folios, one of mlock, and the list of buffer heads (`cpu_needs_drain`).
const LINES_READ: usize = 8;

/// A flag that its CPU writes and all CPUs read. Relaxed: the fences in `drain_cpus` order it
/// against the drain generation (module `drain`).
struct Busy<A: Machine> {
    shown: A::OwnedI8,
    /// The value of `shown`, for the owner.
    known: AtomicBool,
}

impl<A: Machine> Busy<A> {
    fn new() -> Self {
        Self { shown: A::OwnedI8::zero(), known: AtomicBool::new(false) }
    }
    fn note(&self, busy: bool) {
        if self.known.load(Relaxed) != busy {
            self.known.store(busy, Relaxed);
            self.shown.set(busy.into());
        }
    }
}

/// All slots are filled as far as their owner knows.
const ALL_FILLED: u32 = (1 << BATCH) - 1;

impl<A: Machine> CpuBatches<A> {
    pub(super) fn new(slots: usize, full: usize) -> Self {
        Self {
            full,
            batches: core::array::from_fn(|_| FolioBatch::new()),
            slots: (0..slots).map(|_| A::AtomicU32::new(0)).collect(),
            filled: AtomicU32::new(0),
            busy: core::array::from_fn(|_| Busy::new()),
            unused: core::array::from_fn(|_| A::OwnedI8::zero()),
        }
    }

    // -- Any CPU.

    /// Returns whether the CPU has anything gathered (`cpu_needs_drain`). Reads one line of the CPU
    /// after the other, until one is not empty.
    pub(super) fn needs_drain(&self) -> bool {
        let batches = self.busy.iter().map(|busy| &busy.shown);
        batches.chain(&self.unused).any(OwnedCounter::is_nonzero)
    }
    /// Takes `pfn` from `slot` if it is there; the caller then owns the slot's reference.
    pub(super) fn claim(&self, slot: usize, pfn: Pfn) -> bool {
        let there = pfn.index() as u32 + 1;
        // Pairs with the store in `fill`: the folio's place is seen. Of this and `sweep` one gets
        // the slot's reference.
        self.slots[slot].compare_exchange(there, 0, AcqRel, Relaxed).is_ok()
    }

    // -- The owner.

    /// Adds a folio with a reference that the caller has taken; returns whether the batch is full.
    pub(super) fn push(&self, kind: BatchKind, pfn: Pfn) -> bool {
        let batch = &self.batches[kind as usize];
        let len = batch.len();
        batch.pfns[len].store(pfn.index() as u32, Relaxed);
        batch.len.store(len as u32 + 1, Relaxed);
        self.note_some(kind);
        len + 1 == self.full
    }
    /// Takes all folios from a batch.
    pub(super) fn take(&self, kind: BatchKind) -> Taken {
        let batch = &self.batches[kind as usize];
        let mut taken = Taken::EMPTY;
        for pfn in &batch.pfns[..batch.len()] {
            taken.push(Pfn::new(pfn.load(Relaxed) as usize));
        }
        batch.len.store(0, Relaxed);
        self.note_rest(kind);
        taken
    }
    /// Returns the number of folios in a batch.
    pub(super) fn len(&self, kind: BatchKind) -> usize {
        self.batches[kind as usize].len()
    }
    /// Returns whether the batch contains the folio.
    pub(super) fn has(&self, kind: BatchKind, pfn: Pfn) -> bool {
        let batch = &self.batches[kind as usize];
        let sought = pfn.index() as u32;
        batch.pfns[..batch.len()].iter().any(|other| other.load(Relaxed) == sought)
    }
    /// Returns a slot that the owner may fill, or `None` if it must sweep first.
    pub(super) fn free_slot(&self) -> Option<usize> {
        let filled = self.filled.load(Relaxed);
        (filled != ALL_FILLED).then(|| (!filled).trailing_zeros() as usize)
    }
    /// Fills a slot returned by [`CpuBatches::free_slot`] with a folio whose place already names
    /// it.
    pub(super) fn fill(&self, slot: usize, pfn: Pfn) {
        self.filled.store(self.filled.load(Relaxed) | 1 << slot, Relaxed);
        self.note_some(BatchKind::Add);
        // Pairs with the exchanges in `claim` and `sweep`.
        self.slots[slot].store(pfn.index() as u32 + 1, Release);
    }
    /// Records that the owner has claimed one of its own slots, which it may fill again.
    pub(super) fn emptied(&self, slot: usize) {
        self.filled.store(self.filled.load(Relaxed) & !(1 << slot), Relaxed);
        self.note_rest(BatchKind::Add);
    }
    /// Takes all folios left in the slots.
    pub(super) fn sweep(&self) -> Taken {
        let mut taken = Taken::EMPTY;
        let mut filled = self.filled.load(Relaxed);
        while filled != 0 {
            let slot = filled.trailing_zeros() as usize;
            filled &= filled - 1;
            // Against the exchange in `claim` on other CPUs: one of the two gets the slot's
            // reference.
            if let Some(pfn) = self.slots[slot].swap(0, AcqRel).checked_sub(1) {
                taken.push(Pfn::new(pfn as usize));
            }
        }
        self.filled.store(0, Relaxed);
        self.note_rest(BatchKind::Add);
        taken
    }
    /// Iterates over the folios in the slots, for checks.
    pub(super) fn in_slots(&self) -> impl Iterator<Item = Pfn> + '_ {
        self.slots
            .iter()
            .filter_map(|slot| slot.load(Relaxed).checked_sub(1).map(|pfn| Pfn::new(pfn as usize)))
    }
    /// Iterates over the folios in a batch, for checks.
    pub(super) fn in_batch(&self, kind: BatchKind) -> impl Iterator<Item = Pfn> + '_ {
        let batch = &self.batches[kind as usize];
        batch.pfns[..batch.len()].iter().map(|pfn| Pfn::new(pfn.load(Relaxed) as usize))
    }

    fn note_some(&self, kind: BatchKind) {
        self.busy[kind as usize].note(true);
    }
    fn note_rest(&self, kind: BatchKind) {
        let slots = kind == BatchKind::Add && self.filled.load(Relaxed) != 0;
        self.busy[kind as usize].note(slots || self.len(kind) > 0);
    }
}

/// Where a pending folio waits, packed into its record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PendingSlot {
    pub(super) cpu: CpuId,
    pub(super) slot: usize,
}

impl PendingSlot {
    pub(super) fn pack(self) -> u32 {
        (self.cpu.index() as u32) << 8 | self.slot as u32
    }
    pub(super) fn unpack(packed: u32) -> Self {
        Self { cpu: CpuId::new((packed >> 8) as usize), slot: (packed & 0xff) as usize }
    }
}
