//! Random operations on ranges, including huge pages, against a plain map of pages.

use crate::table::common::{World, zap};
use mmscale_arch::{Order, PageSize, Pfn, VmaRange, Vpn};
use mmscale_mm::pgtable::{
    CopyPte, Direction, Downgraded, Gather, Gathered, MemAccess, Miss, PageTable, Pte, PteFlags,
};
use mmscale_mm::tlb::{Extent, Flushed};
use mmscale_stepped::{self as stepped, Stepped};
use std::collections::{BTreeMap, BTreeSet};

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
    fn direction(&mut self) -> Direction {
        if self.below(2) == 0 { Direction::Forward } else { Direction::Reverse }
    }
}

/// The size of each range in use: around the borders of tables of every level, and at both ends.
const WINDOW: u64 = 1400;
/// The end of the last huge page: the last page of the address space cannot be mapped.
const END: u64 = (1 << 35) - 512;
const BASES: [u64; 5] = [0, (1 << 18) - 700, (1 << 27) - 600, 512 * 9000, END - WINDOW];

struct Run {
    world: World,
    table: PageTable<Stepped>,
    random: Random,
    cpus: usize,
    /// Frames that entries name; the second half of them is huge pages.
    block: Pfn,
    /// Page -> frame, writable.
    pages: BTreeMap<u64, (usize, bool)>,
    huge: BTreeSet<u64>,
}

impl Run {
    fn new(seed: u64, cpus: usize) -> Self {
        let world = World::new(cpus);
        stepped::set_broadcast(cpus > 1);
        let (table, block) = (world.table(), world.take(Order::MAX));
        let (pages, huge) = (BTreeMap::new(), BTreeSet::new());
        Self { world, table, random: Random(seed), cpus, block, pages, huge }
    }
    fn page(&mut self) -> u64 {
        BASES[self.random.below(5) as usize] + self.random.below(WINDOW)
    }
    fn range(&mut self, longest: u64) -> VmaRange {
        let start = self.page();
        let end = END.min(start + 1 + self.random.below(longest));
        VmaRange::new(Vpn::new(start), Vpn::new(end)).expect("not empty")
    }
    fn frame(&mut self) -> Pfn {
        self.block.offset(self.random.below(512) as usize)
    }
    fn in_range(&self, range: VmaRange) -> Vec<u64> {
        let keys = self.pages.range(range.start().get()..range.end().get());
        keys.map(|(&at, _)| at).collect()
    }
    fn is_huge(&self, at: u64) -> bool {
        self.huge.contains(&(at & !511))
    }
    fn step(&mut self) {
        stepped::set_cpu(self.random.below(self.cpus as u64) as usize);
        match self.random.below(100) {
            0..34 => self.map(),
            34..38 => self.map_huge(),
            38..54 => self.unmap(),
            54..80 => self.access(),
            80..88 => self.look(),
            88..93 => self.protect(),
            93..95 => self.split(),
            95..97 => self.shift(),
            97..98 => self.copy(),
            _ => self.free_tables(),
        }
    }
    fn map(&mut self) {
        let range = self.range(12);
        let writable = self.random.below(3) > 0;
        let flags = if writable { PteFlags::WRITE } else { PteFlags::empty() };
        for at in range.start().get()..range.end().get() {
            let frame = self.frame();
            match self.table.lock_pte(self.world.on(), Vpn::new(at)) {
                Err(_) => assert!(self.is_huge(at)),
                Ok(mut ptes) if ptes.get(Vpn::new(at)).is_none() => {
                    ptes.fill(Vpn::new(at), Pte::page(frame, flags));
                    assert!(self.pages.insert(at, (frame.index(), writable)).is_none());
                }
                Ok(_) => assert!(self.pages.contains_key(&at)),
            }
        }
    }
    fn map_huge(&mut self) {
        let start = self.page() & !511;
        let Ok(mut pmd) = self.table.lock_pmd(self.world.on(), Vpn::new(start)) else { return };
        if pmd.get(Vpn::new(start)).is_none() {
            let frame = self.block.offset(512);
            pmd.fill(Vpn::new(start), Pte::page(frame, PteFlags::HUGE | PteFlags::WRITE));
            let pages = (0..512).map(|at| (start + at, (frame.index() + at as usize, true)));
            self.pages.extend(pages);
            self.huge.insert(start);
        } else {
            assert!(self.huge.contains(&start));
        }
    }
    fn unmap(&mut self) {
        let longest = if self.random.below(4) == 0 { 900 } else { 40 };
        let (range, direction) = (self.range(longest), self.random.direction());
        let mut wanted = Vec::new();
        for at in self.in_range(range) {
            wanted.push(self.pages.remove(&at).expect("it is there").0);
        }
        let touched = |start: &u64| *start < range.end().get() && range.start().get() < start + 512;
        self.huge.retain(|start| !touched(start));
        let mut got = Vec::new();
        let mut sink = |_: &Flushed, frames: &[Gathered]| {
            for &Gathered { pfn, count } in frames {
                got.extend(pfn.index()..pfn.index() + count as usize);
            }
        };
        zap(&self.world, &self.table, range, direction, &mut sink);
        got.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(got, wanted);
    }
    fn access(&mut self) {
        let at = self.page();
        let write = self.random.below(2) == 0;
        let how = if write { MemAccess::Write } else { MemAccess::Read };
        let got = self.table.access(self.world.on(), Vpn::new(at), how, Pfn::index);
        match (self.pages.get(&at), got) {
            (None, Err(Miss::NotPresent(pte))) => assert!(pte.is_none()),
            (Some(&(_, false)), Err(Miss::ReadOnly(_))) => assert!(write),
            (Some(&(frame, writable)), Ok(got)) => {
                assert!(got == frame && (writable || !write), "page {at:#x}");
            }
            (known, got) => panic!("page {at:#x} is {known:?}, and gives {got:?}"),
        }
    }
    fn look(&mut self) {
        let at = self.page();
        let found = self.table.lookup(Vpn::new(at));
        let frame = found.map(|(pte, size)| {
            let first = pte.pfn().expect("it is mapped").index();
            assert_eq!(size == PageSize::Huge, self.is_huge(at));
            if size == PageSize::Huge { first + (at & 511) as usize } else { first }
        });
        assert_eq!(frame, self.pages.get(&at).map(|&(frame, _)| frame));
    }
    fn protect(&mut self) {
        let range = self.range(60);
        for at in self.in_range(range) {
            if !self.is_huge(at) {
                let mut ptes = self.table.find_pte(self.world.on(), Vpn::new(at)).unwrap();
                ptes.clear(Vpn::new(at), PteFlags::WRITE);
                drop(ptes);
                self.pages.get_mut(&at).expect("it is there").1 = false;
            }
        }
        let _ = self.table.flush(self.world.on(), Extent::Range(range, PageSize::Base));
    }
    fn split(&mut self) {
        let at = self.page();
        let was = self.huge.remove(&(at & !511));
        assert_eq!(self.table.split_huge(self.world.on(), Vpn::new(at)), Ok(was));
    }
    fn shift(&mut self) {
        let mut from = self.range(1200);
        let mut to = (1 << 30) + self.random.below(2000);
        if self.random.below(2) == 0 {
            // Aligned, so that whole tables can move.
            from = VmaRange::new(Vpn::new(from.start().get() & !511), from.end()).unwrap_or(from);
            to &= !511;
        }
        let moved = self.table.move_range(self.world.on(), from, Vpn::new(to));
        assert_eq!(moved, Ok(()));
        for at in from.start().get()..from.end().get() {
            let there = Vpn::new(to + at - from.start().get());
            let known = self.pages.get(&at).map(|&(frame, _)| frame);
            let here = self.table.access(self.world.on(), Vpn::new(at), MemAccess::Read, |_| ());
            assert_eq!(here, Err(Miss::NotPresent(Pte::NONE)));
            let got = self.table.access(self.world.on(), there, MemAccess::Read, Pfn::index);
            assert_eq!(got.ok(), known);
        }
        let back = VmaRange::with_pages(Vpn::new(to), from.pages()).expect("far below the end");
        assert_eq!(self.table.move_range(self.world.on(), back, from.start()), Ok(()));
        // Huge pages stay huge if both ends are aligned.
        let table = &self.table;
        let still =
            |start: &u64| matches!(table.lookup(Vpn::new(*start)), Some((_, PageSize::Huge)));
        self.huge.retain(still);
    }
    fn copy(&mut self) {
        let (range, to) = (self.range(1400), self.world.table());
        let mut downgraded = Downgraded::default();
        let copied =
            self.table.copy_range(self.world.on(), &to, range, &mut downgraded, |_, _, pte| {
                Ok::<_, ()>(CopyPte::Copy(pte))
            });
        assert_eq!(copied, Ok(()));
        downgraded.flush(self.world.on(), &self.table);
        let frame = |table: &PageTable<Stepped>, at: u64| {
            let access = table.access(self.world.on(), Vpn::new(at), MemAccess::Read, Pfn::index);
            access.ok()
        };
        for at in range.start().get()..range.end().get() {
            assert_eq!(frame(&to, at), self.pages.get(&at).map(|&(frame, _)| frame));
        }
        self.world.end(to);
    }
    /// Frees the tables of a gap between pages, as munmap of a VMA in the gap would.
    fn free_tables(&mut self) {
        let at = self.page();
        if self.pages.contains_key(&at) {
            return;
        }
        let floor = self.pages.range(..at).next_back().map_or(0, |(&last, _)| last + 1);
        let ceiling = self.pages.range(at..).next().map_or(END, |(&next, _)| next);
        let bounds = VmaRange::new(Vpn::new(floor), Vpn::new(ceiling)).expect("a gap");
        let mut gather = Gather::new(&self.table);
        let mut sink = |_: &Flushed, _: &[Gathered]| panic!("tables are not released as pages");
        self.table.free_tables(self.world.on(), &mut gather, &mut sink, bounds, bounds);
        gather.finish(self.world.on(), &mut sink);
    }
    fn verify(&self) {
        let audit = self.table.verify(self.world.on()).expect("it is sound");
        let huge = self.huge.len() as u64;
        assert_eq!((audit.huge, audit.pages), (huge, self.pages.len() as u64 - 512 * huge));
        assert_eq!(self.world.held(), 1024 + u64::from(self.table.tables()));
    }
}

fn run(seed: u64, cpus: usize, steps: usize) {
    let mut run = Run::new(seed, cpus);
    for step in 0..steps {
        run.step();
        if step % 2000 == 0 {
            run.verify();
        }
    }
    run.verify();
    stepped::set_cpu(0);
    stepped::assert_quiet();
    run.world.end(run.table);
    assert_eq!(stepped::table_count(), 0);
}

#[test]
fn a_hundred_thousand_operations_on_one_cpu() {
    run(1, 1, 60_000);
    run(2, 1, 40_000);
}

#[test]
fn thirty_thousand_operations_on_four_cpus_with_broadcasts() {
    run(3, 4, 30_000);
}
