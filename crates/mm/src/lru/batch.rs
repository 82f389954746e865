//! What a CPU has gathered: batches of folios that are to move, and the slots of `Lazy`.
//!
//! A batch is used on its CPU only, with preemption off (the move-tail batch with interrupts off),
//! or once its CPU has died; its fields are relaxed atomics for the sake of the last. Others ask
//! one thing: whether the CPU has anything gathered at all.
//!
//! A slot is shared: who exchanges its folio for nothing owns the reference that the slot had. The
//! owner fills slots and knows those that it filled and emptied itself; that another CPU has
//! emptied one shows when the slots are full and the owner sweeps them.

use alloc::boxed::Box;
use core::sync::atomic::Ordering::{AcqRel, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU32};
use mmscale_arch::{Atomic, CpuId, Machine, OwnedCounter, Pfn, planted};

/// Folios in a batch (`PAGEVEC_SIZE`).
pub const BATCH: usize = 31;

/// What is to be done to the folios of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum BatchKind {
    /// Put on their lists.
    Add = 0,
    /// To the end of their list: they were written out for reclaim. Filled in interrupts too.
    MoveTail = 1,
    /// Pages of files that somebody wants gone.
    DeactivateFile = 2,
    /// Off the active list.
    Deactivate = 3,
    /// Free for the taking.
    Lazyfree = 4,
    /// On the active list.
    Activate = 5,
}

impl BatchKind {
    /// The number of kinds.
    pub const COUNT: usize = 6;
    /// All kinds, in the order in which they are drained.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Add,
        Self::MoveTail,
        Self::DeactivateFile,
        Self::Deactivate,
        Self::Lazyfree,
        Self::Activate,
    ];
}

/// Folios taken out of a batch, each with the reference that the batch had.
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
struct Batch {
    pfns: [AtomicU32; BATCH],
    len: AtomicU32,
}

impl Batch {
    fn new() -> Self {
        Self { pfns: core::array::from_fn(|_| AtomicU32::new(0)), len: AtomicU32::new(0) }
    }
    fn len(&self) -> usize {
        self.len.load(Relaxed) as usize
    }
}

/// All that one CPU has gathered.
pub(super) struct CpuBatches<A: Machine> {
    batches: [Batch; BatchKind::COUNT],
    /// `Lazy`: one more than the frame number, or 0. Empty under the other policies.
    slots: Box<[A::AtomicU32]>,
    /// Slots that the owner filled and has not emptied, by bit.
    filled: AtomicU32,
    /// Something is gathered, the move-tail batch apart.
    busy: Busy<A>,
    /// The move-tail batch is not empty. Apart, because interrupts change it.
    tail_busy: Busy<A>,
}

/// Whether there is something: the owner says, all CPUs may ask.
struct Busy<A: Machine> {
    shown: A::OwnedI8,
    /// What `shown` says, for the owner.
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

/// All slots are filled, as far as their owner knows.
const ALL_FILLED: u32 = (1 << BATCH) - 1;

impl<A: Machine> CpuBatches<A> {
    pub(super) fn new(slots: usize) -> Self {
        Self {
            batches: core::array::from_fn(|_| Batch::new()),
            slots: (0..slots).map(|_| A::AtomicU32::new(0)).collect(),
            filled: AtomicU32::new(0),
            busy: Busy::new(),
            tail_busy: Busy::new(),
        }
    }

    // -- Any CPU.

    /// Whether the CPU has anything gathered.
    pub(super) fn is_busy(&self) -> bool {
        self.busy.shown.is_nonzero() || self.tail_busy.shown.is_nonzero()
    }
    /// Takes `pfn` out of `slot` if it is there; the slot's reference is the caller's then.
    pub(super) fn claim(&self, slot: usize, pfn: Pfn) -> bool {
        let there = pfn.index() as u32 + 1;
        if planted!(LruClaimInTwoSteps) {
            let found = self.slots[slot].load(Relaxed) == there;
            if found {
                self.slots[slot].store(0, Release);
            }
            return found;
        }
        self.slots[slot].compare_exchange(there, 0, AcqRel, Relaxed).is_ok()
    }

    // -- The owner.

    /// Adds a folio, for which the caller has taken a reference; says whether the batch is full.
    pub(super) fn push(&self, kind: BatchKind, pfn: Pfn) -> bool {
        let batch = &self.batches[kind as usize];
        let len = batch.len();
        batch.pfns[len].store(pfn.index() as u32, Relaxed);
        batch.len.store(len as u32 + 1, Relaxed);
        self.note_some(kind);
        len + 1 == BATCH
    }
    /// Takes everything out of a batch.
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
    /// Folios in a batch.
    pub(super) fn len(&self, kind: BatchKind) -> usize {
        self.batches[kind as usize].len()
    }
    /// Whether the batch has this folio.
    pub(super) fn has(&self, kind: BatchKind, pfn: Pfn) -> bool {
        let batch = &self.batches[kind as usize];
        let sought = pfn.index() as u32;
        batch.pfns[..batch.len()].iter().any(|other| other.load(Relaxed) == sought)
    }
    /// A slot that the owner may fill; `None`: sweep first.
    pub(super) fn free_slot(&self) -> Option<usize> {
        let filled = self.filled.load(Relaxed);
        (filled != ALL_FILLED).then(|| (!filled).trailing_zeros() as usize)
    }
    /// Fills a slot that [`CpuBatches::free_slot`] named with a folio that says where it is.
    pub(super) fn fill(&self, slot: usize, pfn: Pfn) {
        self.filled.store(self.filled.load(Relaxed) | 1 << slot, Relaxed);
        self.note_some(BatchKind::Add);
        self.slots[slot].store(pfn.index() as u32 + 1, Release);
    }
    /// The owner has claimed a slot of its own: it may fill it again.
    pub(super) fn emptied(&self, slot: usize) {
        self.filled.store(self.filled.load(Relaxed) & !(1 << slot), Relaxed);
        self.note_rest(BatchKind::Add);
    }
    /// Takes what is left out of all slots.
    pub(super) fn sweep(&self) -> Taken {
        let mut taken = Taken::EMPTY;
        let mut filled = self.filled.load(Relaxed);
        while filled != 0 {
            let slot = filled.trailing_zeros() as usize;
            filled &= filled - 1;
            if let Some(pfn) = self.slots[slot].swap(0, AcqRel).checked_sub(1) {
                taken.push(Pfn::new(pfn as usize));
            }
        }
        self.filled.store(0, Relaxed);
        self.note_rest(BatchKind::Add);
        taken
    }
    /// What is in the slots: for checks.
    pub(super) fn in_slots(&self) -> impl Iterator<Item = Pfn> + '_ {
        self.slots
            .iter()
            .filter_map(|slot| slot.load(Relaxed).checked_sub(1).map(|pfn| Pfn::new(pfn as usize)))
    }
    /// What is in a batch: for checks.
    pub(super) fn in_batch(&self, kind: BatchKind) -> impl Iterator<Item = Pfn> + '_ {
        let batch = &self.batches[kind as usize];
        batch.pfns[..batch.len()].iter().map(|pfn| Pfn::new(pfn.load(Relaxed) as usize))
    }

    fn note_some(&self, kind: BatchKind) {
        if kind == BatchKind::MoveTail { &self.tail_busy } else { &self.busy }.note(true);
    }
    fn note_rest(&self, kind: BatchKind) {
        if kind == BatchKind::MoveTail {
            self.tail_busy.note(false);
        } else {
            let others = BatchKind::ALL.iter().filter(|&&other| other != BatchKind::MoveTail);
            let any = others.map(|&other| self.len(other)).any(|len| len > 0);
            self.busy.note(any || self.filled.load(Relaxed) != 0);
        }
    }
}

/// Where a pending folio waits, packed for its record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) cpu: CpuId,
    pub(super) slot: usize,
}

impl Place {
    pub(super) fn pack(self) -> u32 {
        (self.cpu.index() as u32) << 8 | self.slot as u32
    }
    pub(super) fn unpack(packed: u32) -> Self {
        Self { cpu: CpuId::new((packed >> 8) as usize), slot: (packed & 0xff) as usize }
    }
}
