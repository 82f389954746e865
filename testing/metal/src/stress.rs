//! The frame allocator under load from all processors, with a check of every page.

use crate::cpu::Metal;
use crate::start::on_all;
use crate::{callbacks, per_cpu};
use core::sync::atomic::{AtomicU64, Ordering};
use mmscale_arch::{Callbacks, Cpu, CpuId, Ipi, Order, Pfn, TaskEntry};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::{AllocConfig, FrameAllocator, Gfp, MemoryMap};

/// Rounds of the load; in each, memory is taken until there is no more.
const ROUNDS: u64 = 3;
/// Allocations and frees of each processor in a round.
const STEPS: usize = 10_000;
/// Blocks that a processor has at a time.
const HELD: usize = 64;
/// Blocks on their way to another processor.
const MAILBOXES: usize = 32;

/// The upper half of the first word of a page that is allocated.
const ALLOCATED: u64 = 0x5aa5_1ee7 << 32;

/// A block as a word, never 0: what mailboxes hold, and what its pages are stamped with.
#[derive(Clone, Copy)]
struct Block {
    pfn: Pfn,
    order: Order,
}

impl Block {
    const fn word(self) -> u64 {
        (self.pfn.index() as u64) << 8 | self.order.get() as u64 | ALLOCATED
    }
    fn of(word: u64) -> Option<Self> {
        let low = word & 0xffff_ffff;
        let order = Order::new(low as u8)?;
        (word != 0).then(|| Self { pfn: Pfn::new((low >> 8) as usize), order })
    }
    fn pages(self) -> impl Iterator<Item = Page> {
        (0..self.order.pages()).map(move |at| Page::of(self.pfn.offset(at)))
    }
    /// Stamps the pages of a block that was just allocated.
    fn take(self) {
        for page in self.pages() {
            let old = page.read(0);
            assert!(old & ALLOCATED != ALLOCATED, "{:?} was handed out twice", self.pfn);
            page.write(0, self.word());
            page.write(Page::LAST, self.word());
        }
    }
    /// Checks the stamps, and removes them, before the block is freed.
    fn leave(self) {
        for page in self.pages() {
            let found = (page.read(0), page.read(Page::LAST));
            let wanted = (self.word(), self.word());
            assert!(found == wanted, "{:?}: {found:x?} for {wanted:x?}", self.pfn);
            page.write(0, 0);
        }
    }
}

/// The memory of a frame, as words.
struct Page(*mut u64);

impl Page {
    const LAST: usize = 511;

    /// Memory is mapped to itself.
    fn of(pfn: Pfn) -> Self {
        Self((pfn.index() << 12) as *mut u64)
    }
    fn read(&self, word: usize) -> u64 {
        // SAFETY: the frame is RAM of the allocator, and `word` is below 512.
        unsafe { self.0.add(word).read_volatile() }
    }
    fn write(&self, word: usize, value: u64) {
        // SAFETY: as in `read`.
        unsafe { self.0.add(word).write_volatile(value) }
    }
}

/// A load of all processors on one allocator.
struct Stress {
    frames: FrameAllocator<Metal>,
    pages: usize,
    mailboxes: [AtomicU64; MAILBOXES],
    allocated: AtomicU64,
    passed_on: AtomicU64,
    refused: AtomicU64,
}

/// The counts of a stress.
pub(crate) struct Done {
    /// Blocks that were allocated.
    pub(crate) allocated: u64,
    /// Blocks that another processor freed than the one that had allocated them.
    pub(crate) passed_on: u64,
    /// Allocations that found no memory.
    pub(crate) refused: u64,
    /// Interrupts that asked a processor to drain; all were handled.
    pub(crate) drains: u64,
    /// Frames that are free at the end.
    pub(crate) free: u64,
}

/// Runs the load on all processors, and checks that every frame is free at the end.
pub(crate) fn run(map: &MemoryMap, config: AllocConfig, seed: u64) -> Done {
    let frames = FrameAllocator::new(map, config).expect("a valid map");
    let all =
        map.zones.iter().flat_map(|zone| (0..zone.pages).map(|at| zone.start.offset(at as usize)));
    let in_hole = |pfn: &Pfn| map.holes.iter().any(|hole| hole.contains(&pfn.index()));
    all.filter(|pfn| !in_hole(pfn)).for_each(|pfn| Page::of(pfn).write(0, 0));
    let stress = Stress {
        frames,
        pages: map.pages() as usize,
        mailboxes: [const { AtomicU64::new(0) }; MAILBOXES],
        allocated: AtomicU64::new(0),
        passed_on: AtomicU64::new(0),
        refused: AtomicU64::new(0),
    };
    let (before, _) = per_cpu::interrupts_so_far();
    callbacks::with(&Draining(&stress.frames), || {
        for round in 0..ROUNDS {
            on_all(&|cpu| stress.mixed(Random::of(seed, round, cpu)));
            on_all(&|cpu| stress.all_memory(round as usize, cpu));
        }
        on_all(&|cpu| {
            stress.empty_mailboxes();
            stress.frames.drain_pages(CpuId::new(cpu));
            per_cpu::check_quiet();
        });
        stress.frames.drain_all();
    });
    let audit = stress.frames.verify().expect("the allocator is as it should be");
    let (drains, _) = per_cpu::interrupts_so_far();
    let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
    Done {
        allocated: count(&stress.allocated),
        passed_on: count(&stress.passed_on),
        refused: count(&stress.refused),
        drains: drains - before,
        free: audit.free,
    }
}

/// Frees a block twice, which the allocator must notice: in the second free, or in a check.
pub(crate) fn free_twice(map: &MemoryMap, config: AllocConfig) {
    let frames: FrameAllocator<Metal> = FrameAllocator::new(map, config).expect("a valid map");
    let pfn = frames.alloc_pages(Order::ZERO, MigrateType::Movable, Gfp::KERNEL).expect("memory");
    frames.free_pages(pfn, Order::ZERO);
    frames.free_pages(pfn, Order::ZERO);
    frames.drain_all();
    frames.verify().expect("the allocator is as it should be");
}

impl Stress {
    fn alloc(&self, order: Order, kind: MigrateType, gfp: Gfp) -> Option<Block> {
        let Ok(pfn) = self.frames.alloc_pages(order, kind, gfp) else {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        self.allocated.fetch_add(1, Ordering::Relaxed);
        let block = Block { pfn, order };
        block.take();
        Some(block)
    }
    fn free(&self, block: Block) {
        block.leave();
        self.frames.free_pages(block.pfn, block.order);
    }

    /// Puts blocks of all orders into a set, and takes them out: frees them, or sends them to
    /// another processor, which does.
    fn mixed(&self, mut random: Random) {
        let mut held = [None::<Block>; HELD];
        for _ in 0..STEPS {
            let slot = &mut held[random.below(HELD)];
            match slot.take() {
                // Half of all blocks are single pages, a quarter have two, and so on.
                None => {
                    let order = (random.next() | 1 << 10).trailing_zeros() as u8;
                    let order = Order::new(order).expect("10 is the largest order");
                    let kind = match random.below(4) {
                        0 => MigrateType::Unmovable,
                        1 => MigrateType::Reclaimable,
                        _ => MigrateType::Movable,
                    };
                    *slot = self.alloc(order, kind, Gfp::KERNEL);
                }
                Some(block) if random.below(2) == 0 => self.free(block),
                Some(block) => self.pass_on(block, random.below(MAILBOXES)),
            }
        }
        held.into_iter().flatten().for_each(|block| self.free(block));
    }

    /// Puts a block into a mailbox; frees the one that was there.
    fn pass_on(&self, block: Block, mailbox: usize) {
        // Pairs with itself: stamps are written before the block is passed on.
        let other = self.mailboxes[mailbox].swap(block.word(), Ordering::AcqRel);
        self.passed_on.fetch_add(1, Ordering::Relaxed);
        if let Some(other) = Block::of(other) {
            self.free(other);
        }
    }

    fn empty_mailboxes(&self) {
        let blocks = self.mailboxes.iter().map(|mailbox| mailbox.swap(0, Ordering::AcqRel));
        blocks.filter_map(Block::of).for_each(|block| self.free(block));
    }

    /// Takes all memory, then frees it. One processor only starts when
    /// the others are done with their loads, so that most free pages are in their caches.
    fn all_memory(&self, round: usize, cpu: usize) {
        if cpu != round % Metal::cpus_possible() {
            return;
        }
        self.empty_mailboxes();
        // A block's second word has the block that was taken before it.
        let (mut last, mut pages) = (0, 0);
        // The last allocations may go below the watermarks.
        for (order, gfp) in [
            (Order::PAGEBLOCK, Gfp::KERNEL),
            (Order::ZERO, Gfp::KERNEL),
            (Order::ZERO, Gfp::KERNEL | Gfp::MEMALLOC),
        ] {
            while let Some(block) = self.alloc(order, MigrateType::Movable, gfp) {
                Page::of(block.pfn).write(1, last);
                last = block.word();
                pages += order.pages();
            }
        }
        assert!(pages == self.pages, "only {pages} of {} frames could be taken", self.pages);
        while let Some(block) = Block::of(last) {
            last = Page::of(block.pfn).read(1);
            self.free(block);
        }
    }
}

/// Interrupts with the frame allocator alone: nothing but requests to drain.
struct Draining<'a>(&'a FrameAllocator<Metal>);

impl Callbacks for Draining<'_> {
    fn ipi(&self, reason: Ipi) {
        assert!(reason == Ipi::DrainPages, "an interrupt for {reason:?}");
        self.0.drain_ipi();
    }
    fn timer(&self) {}
    fn idle_enter(&self) {}
    fn idle_exit(&self) {}
    fn context_switch(&self) {}
    fn task(&self, _: TaskEntry) {}
    fn cpu_dying(&self) -> bool {
        false
    }
    fn cpu_down_prepare(&self, _: CpuId) {}
    fn cpu_dead(&self, _: CpuId) {}
    fn cpu_online(&self, _: CpuId) {}
}

/// Random numbers: xorshift64*, Vigna 2016.
pub(crate) struct Random(u64);

impl Random {
    /// Numbers of their own for each round and processor.
    pub(crate) fn of(seed: u64, round: u64, cpu: usize) -> Self {
        let mut random = Self((seed << 32 | round << 16 | cpu as u64) + 1);
        // The first numbers of states with few bits are alike.
        for _ in 0..16 {
            random.next();
        }
        random
    }
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        ((self.next() >> 32) as usize * bound) >> 32
    }
}
