//! Page tables and translations on many CPUs: the reach of flushes, and the effect of missing ones.

use crate::calls::{POLICIES, seeds};
use crate::common::{Script, config, run_script, run_well};
use mmscale_arch::sync::IrqGuard;
use mmscale_arch::{
    Atomic, Cpu, CpuId, Ipi, Machine as _, Op, Order, PageSize, Pfn, VmaRange, Vpn,
};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::{AllocConfig, FrameAllocator, Gfp, MemoryMap};
use mmscale_mm::pgtable::{
    CountMemory, Direction, Gather, Gathered, Leaf, MemAccess, Miss, PageTable, PtRef, Pte,
    PteFlags, PteTable, Room, TableLocks,
};
use mmscale_mm::smp::{CallPolicy, ShootdownPolicy, SmpConfig};
use mmscale_mm::tlb::{Extent, Flushed, Leave, Parked, Tlb};
use mmscale_sim::{Outcome, Policy, Rule, Sim, SimConfig, random_u64, table_host_bytes};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::Ordering::SeqCst;

/// The requirements of address spaces, and one of them.
pub(crate) struct World {
    pub(crate) frames: FrameAllocator<Sim>,
    locks: TableLocks<Sim>,
    pub(crate) tlb: Tlb<Sim>,
    counts: CountMemory<Sim>,
    table: RefCell<Option<Rc<PageTable<Sim>>>>,
    pub(crate) made: <Sim as Cpu>::AtomicU32,
    /// CPUs that have not finished.
    pub(crate) busy: <Sim as Cpu>::AtomicU32,
}

impl World {
    /// A world whose TLB receives the interrupts of the machine.
    fn boot(script: &Rc<Script>, pages: u32) -> Rc<Self> {
        Self::with(script, pages, SmpConfig::default())
    }
    pub(crate) fn with(script: &Rc<Script>, pages: u32, smp: SmpConfig) -> Rc<Self> {
        let frames = FrameAllocator::new(&MemoryMap::single(pages), AllocConfig::default());
        let world = Rc::new(Self {
            frames: frames.expect("the map is sound"),
            locks: TableLocks::new(pages as usize),
            tlb: Tlb::new(smp),
            counts: CountMemory::new(),
            table: RefCell::new(None),
            made: Atomic::new(0),
            busy: Atomic::new(0),
        });
        let of = |f: fn(&Self)| {
            let world = Rc::clone(&world);
            move || f(&world)
        };
        let hear = of(|world| world.tlb.interrupt());
        *script.on_ipi.borrow_mut() = Some(Box::new(move |reason| {
            assert_eq!(reason, Ipi::CallFunction);
            hear();
        }));
        *script.on_idle_enter.borrow_mut() = Some(Box::new(of(|world| world.tlb.enter_lazy())));
        *script.on_idle_exit.borrow_mut() = Some(Box::new(of(|world| world.tlb.smp().idle_exit())));
        let dying = Rc::clone(&world);
        *script.on_dying.borrow_mut() = Some(Box::new(move || dying.tlb.smp().cpu_dying()));
        let (dead, log) = (Rc::clone(&world), Rc::downgrade(script));
        *script.on_dead.borrow_mut() = Some(Box::new(move || {
            let script = log.upgrade().expect("the machine runs");
            let (_, cpu) = *script.hotplug.borrow().last().expect("it was noted");
            dead.tlb.cpu_dead(cpu);
            dead.frames.cpu_dead(cpu);
        }));
        world
    }
    pub(crate) fn on(&self) -> PtRef<'_, Sim> {
        PtRef {
            frames: &self.frames,
            locks: &self.locks,
            tlb: &self.tlb,
            counts: &self.counts,
            room: None,
        }
    }
    fn new_table(&self) -> Rc<PageTable<Sim>> {
        Rc::new(PageTable::new(self.on()).expect("there is memory"))
    }
    /// Returns the address space that all CPUs share; CPU 0 makes it.
    pub(crate) fn shared(&self) -> Rc<PageTable<Sim>> {
        if Sim::cpu() == CpuId::new(0) && self.made.load(SeqCst) == 0 {
            *self.table.borrow_mut() = Some(self.new_table());
            self.made.store(1, SeqCst);
        }
        while self.made.load(SeqCst) == 0 {
            Sim::relax();
        }
        self.table.borrow().clone().expect("it is made")
    }
    pub(crate) fn frame(&self) -> Pfn {
        let page = self.frames.alloc_pages(Order::ZERO, MigrateType::Movable, Gfp::KERNEL);
        page.expect("there is memory")
    }
    /// Uses `page`; a fault maps a new frame and writes the page's number into it. Each read
    /// returns the page's number: a frame that was freed and reused has another.
    pub(crate) fn touch(&self, table: &PageTable<Sim>, page: Vpn) {
        let look =
            |pfn| assert_eq!(Sim::read_stamp(pfn), page.get() + 1, "the frame of another page");
        while let Err(miss) = table.access(self.on(), page, MemAccess::Write, look) {
            assert!(matches!(miss, Miss::NotPresent(_)), "{miss:?}");
            let pfn = self.frame();
            Sim::write_stamp(pfn, page.get() + 1);
            let mut ptes = table.lock_pte(self.on(), page).expect("there is memory");
            if ptes.get(page).is_none() {
                ptes.fill(page, Pte::page(pfn, PteFlags::WRITE));
            } else {
                drop(ptes);
                self.frames.free_pages(pfn, Order::ZERO);
            }
        }
    }
    fn release(&self) -> impl FnMut(&Flushed, &[Gathered]) + '_ {
        |_, frames| frames.iter().for_each(|frame| self.frames.free_pages(frame.pfn, Order::ZERO))
    }
    /// Unmaps a range of single pages, and frees its frames.
    fn unmap(&self, table: &PageTable<Sim>, range: VmaRange) {
        let mut gather = Gather::new(table);
        for leaf in table.leaves(self.on(), range, Direction::Forward) {
            let Leaf::Ptes(mut ptes, part) = leaf else { panic!("no huge pages here") };
            for page in Direction::Forward.pages(part) {
                if let Some(pfn) = ptes.take(page).pfn() {
                    gather.note(page, PageSize::Base);
                    assert_eq!(gather.add(self.on(), pfn, 1), Room::More);
                }
            }
        }
        gather.finish(self.on(), &mut self.release());
    }
    /// CPU 1 uses page 9, then has interrupts off for a while, and uses the page again at the end
    /// of that. Meanwhile CPU 0 removes the page's entry and calls `then`, with the locked table of
    /// the entry and with the frame.
    pub(crate) fn take_while_used(
        self: &Rc<Self>,
        script: &Rc<Script>,
        then: impl FnOnce(&Self, &PageTable<Sim>, PteTable<'_, Sim>, Pfn) + 'static,
    ) {
        const PAGE: Vpn = Vpn::new(9);
        let user = Rc::clone(self);
        script.spawn(1, move || {
            let table = user.shared();
            user.touch(&table, PAGE);
            let off = IrqGuard::<Sim>::new();
            user.busy.store(1, SeqCst);
            Sim::user(50_000);
            let _ = table.access(user.on(), PAGE, MemAccess::Read, |_| ());
            drop(off);
        });
        let taker = Rc::clone(self);
        script.spawn(0, move || {
            let table = taker.shared();
            while taker.busy.load(SeqCst) != 1 {
                Sim::relax();
            }
            let mut ptes = table.find_pte(taker.on(), PAGE).expect("it is mapped");
            let pfn = ptes.take(PAGE).pfn().expect("it is mapped");
            then(&taker, &table, ptes, pfn);
        });
    }
    /// Destroys an address space; nothing of it remains.
    fn end(&self, table: &PageTable<Sim>) {
        self.unmap(table, VmaRange::USER);
        let (mut gather, all) = (Gather::new(table), VmaRange::USER);
        table.free_tables(self.on(), &mut gather, &mut self.release(), all, all);
        gather.finish(self.on(), &mut self.release());
        assert_eq!(table.tables(), 1);
    }
}

/// A machine with or without a broadcast of invalidations.
pub(crate) fn machine(cpus: usize, broadcast: bool) -> SimConfig {
    let mut config = config(cpus);
    config.profile.costs.tlb_broadcast_ps = if broadcast { 400_000 } else { 0 };
    config
}

pub(crate) fn range(start: u64, pages: u64) -> VmaRange {
    VmaRange::with_pages(Vpn::new(start), pages).expect("a range of user pages")
}

/// CPU 1 uses a page. CPU 0 unmaps and frees it, with a flush or without. CPU 1 continues.
fn use_and_free(broadcast: bool, flushed: bool) -> Outcome {
    run_script(machine(2, broadcast), |script| {
        let world = World::boot(script, 1 << 14);
        let user = Rc::clone(&world);
        script.spawn(1, move || {
            let table = user.shared();
            user.touch(&table, Vpn::new(9));
            user.busy.store(1, SeqCst);
            while user.busy.load(SeqCst) != 2 {
                Sim::relax();
            }
            let _ = table.access(user.on(), Vpn::new(9), MemAccess::Read, |_| ());
        });
        script.spawn(0, move || {
            let table = world.shared();
            while world.busy.load(SeqCst) != 1 {
                Sim::relax();
            }
            if flushed {
                world.unmap(&table, range(9, 1));
            } else {
                let mut ptes = table.find_pte(world.on(), Vpn::new(9)).expect("it is mapped");
                let pfn = ptes.take(Vpn::new(9)).pfn().expect("it is mapped");
                drop(ptes);
                world.frames.free_pages(pfn, Order::ZERO);
            }
            world.busy.store(2, SeqCst);
        });
    })
}

#[test]
fn a_frame_freed_without_a_flush_is_caught_when_freed_and_when_used() {
    for broadcast in [false, true] {
        let outcome = use_and_free(broadcast, false);
        assert_eq!(outcome.failure, None);
        let found: Vec<_> = outcome.violations.iter().map(|v| (v.rule, v.location.cpu)).collect();
        let rule = Rule::StaleTranslation;
        assert_eq!(found, [(rule, CpuId::new(0)), (rule, CpuId::new(1))], "{broadcast}");
        let outcome = use_and_free(broadcast, true);
        assert_eq!((outcome.failure, outcome.violations), (None, vec![]));
    }
}

/// Every CPU uses pages of a window and unmaps parts of it, all in one address space.
fn crowd(config: SimConfig, cpus: usize, rounds: u32) -> Outcome {
    crowd_by(SmpConfig::default(), config, cpus, rounds)
}

fn crowd_by(smp: SmpConfig, config: SimConfig, cpus: usize, rounds: u32) -> Outcome {
    run_script(config, |script| {
        let world = World::with(script, 1 << 14, smp);
        for cpu in 0..cpus {
            let world = Rc::clone(&world);
            script.spawn(cpu, move || {
                let table = world.shared();
                world.busy.fetch_add(1, SeqCst);
                for _ in 0..rounds {
                    for _ in 0..8 {
                        world.touch(&table, Vpn::new(500 + random_u64() % 48));
                    }
                    let pages = 1 + random_u64() % 40;
                    world.unmap(&table, range(500 + random_u64() % 24, pages));
                    if random_u64().is_multiple_of(4) {
                        Sim::user(5_000);
                    }
                }
                if world.busy.fetch_sub(1, SeqCst) == 1 {
                    world.end(&table);
                    table.verify(world.on()).expect("it is sound");
                    assert_eq!(world.frames.verify().expect("frames add up").held, 1);
                }
            });
        }
    })
}

#[test]
fn sixteen_cpus_flush_one_another_and_none_reads_a_freed_frame() {
    for broadcast in [false, true] {
        for seed in 0..3 {
            let config = SimConfig { seed, ..machine(16, broadcast) };
            let outcome = crowd(config, 16, 12);
            assert_eq!((outcome.failure, outcome.violations), (None, vec![]));
            assert_eq!(broadcast, outcome.lateness.interrupts == 0);
        }
    }
}

#[test]
fn both_policies_give_the_same_to_the_last_bit() {
    for broadcast in [false, true] {
        let with = |policy| crowd(SimConfig { policy, ..machine(6, broadcast) }, 6, 10).fingerprint;
        assert_eq!(with(Policy::Lazy), with(Policy::Naive), "broadcast: {broadcast}");
    }
}

/// Returns the time, in ns, that CPU 0 needs to unmap `pages` pages which `others` CPUs use too.
fn unmap_ns(broadcast: bool, others: usize, pages: u64) -> u64 {
    let took = Rc::new(Cell::new(0));
    let out = Rc::clone(&took);
    run_well(machine(others + 1, broadcast), |script| {
        let world = World::boot(script, 1 << 14);
        for cpu in 1..=others {
            let user = Rc::clone(&world);
            script.spawn(cpu, move || {
                let table = user.shared();
                (0..pages).for_each(|page| user.touch(&table, Vpn::new(page)));
                user.busy.fetch_add(1, SeqCst);
                while user.busy.load(SeqCst) != u32::MAX {
                    Sim::relax();
                }
            });
        }
        script.spawn(0, move || {
            let table = world.shared();
            while world.busy.load(SeqCst) as usize != others {
                Sim::user(1_000);
            }
            let from_ns = Sim::now_ns();
            world.unmap(&table, range(0, pages));
            out.set(Sim::now_ns() - from_ns);
            world.busy.store(u32::MAX, SeqCst);
        });
    });
    took.get()
}

#[test]
fn interrupts_cost_more_with_every_cpu_and_broadcasts_do_not() {
    let by_ipi = [unmap_ns(false, 1, 1), unmap_ns(false, 15, 1)];
    assert!(by_ipi[1] > by_ipi[0] + 14 * 150, "an interrupt is sent to each: {by_ipi:?}");
    let by_broadcast = [unmap_ns(true, 1, 1), unmap_ns(true, 15, 1)];
    assert!(by_broadcast[1] < by_ipi[1], "{by_broadcast:?} {by_ipi:?}");
}

#[test]
fn no_flush_waits_for_cpus_that_leave_meanwhile() {
    for broadcast in [false, true] {
        run_well(machine(4, broadcast), |script| {
            let world = World::boot(script, 1 << 14);
            for cpu in 1..4 {
                let world = Rc::clone(&world);
                script.spawn(cpu, move || {
                    let table = world.shared();
                    for _ in 0..60 {
                        let page = random_u64() % 32;
                        world.touch(&table, Vpn::new(page));
                        world.unmap(&table, range(page, 3));
                    }
                });
            }
            script.spawn(0, move || {
                world.shared();
                for turn in 0..6 {
                    let cpu = CpuId::new(1 + turn % 3);
                    assert_eq!(Sim::cpu_offline(cpu), Ok(()));
                    world.touch(&world.shared(), Vpn::new(3));
                    Sim::user(20_000);
                    assert_eq!(Sim::cpu_online(cpu), Ok(()));
                }
            });
        });
    }
}

#[test]
fn eight_thousand_small_address_spaces_take_a_few_kib_each() {
    const SPACES: usize = 8192;
    let config = SimConfig { limit_ns: 10_000_000_000, ..config(2) };
    run_well(config, |script| {
        let world = World::boot(script, 1 << 17);
        script.spawn(0, move || {
            let tables: Vec<_> = (0..SPACES).map(|_| world.new_table()).collect();
            let page = Vpn::new(0x7f_1234);
            tables.iter().for_each(|table| world.touch(table, page));
            let words = table_host_bytes() / SPACES;
            let locks = world.locks.groups_made() * 64 * size_of::<Option<<Sim as Cpu>::Spin>>();
            let each = words + locks / SPACES;
            assert!(each < 4096, "{each} bytes of host memory for an address space");
            for table in tables {
                world.end(&table);
                Rc::into_inner(table).expect("the only reference").destroy(world.on());
            }
            assert!(table_host_bytes() < 1 << 20, "{} bytes are left", table_host_bytes());
        });
    });
}

#[test]
fn a_store_is_seen_without_the_lock_only_from_its_time_on() {
    let seen = |policy| {
        let seen = Rc::new(RefCell::new(Vec::new()));
        let out = Rc::clone(&seen);
        run_well(SimConfig { policy, ..config(2) }, |script| {
            script.spawn(0, || {
                for value in 1..20 {
                    // No turn in here: the CPU runs ahead with its stores.
                    Sim::work(Op::PteSet, 3);
                    let _off = IrqGuard::<Sim>::new();
                    Sim::table_store(Pfn::new(5), 7, value << 1);
                }
            });
            script.spawn(1, move || {
                for _ in 0..40 {
                    Sim::work(Op::PteSet, 1);
                    out.borrow_mut().push(Sim::table_peek(Pfn::new(5), 7));
                }
            });
        });
        seen.take()
    };
    let lazy = seen(Policy::Lazy);
    assert_eq!(lazy, seen(Policy::Naive));
    let steps = lazy.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(steps > 10 && lazy.is_sorted(), "{lazy:?}");
}

#[test]
fn a_walk_goes_through_a_new_table_only_from_its_time_on() {
    const TABLES: u64 = 20;
    let seen = |policy| {
        let seen = Rc::new(RefCell::new(Vec::new()));
        let out = Rc::clone(&seen);
        run_well(SimConfig { policy, ..config(2) }, |script| {
            // An entry is the number of the next frame; the last tables contain their own number.
            [(5, 1, 6), (6, 2, 7), (7, 3, 10)]
                .into_iter()
                .chain((0..TABLES).map(|table| (10 + table as usize, 4, table)))
                .for_each(|(frame, word, entry)| Sim::table_store(Pfn::new(frame), word, entry));
            script.spawn(0, || {
                for table in 1..TABLES {
                    Sim::work(Op::PteSet, 3);
                    let _off = IrqGuard::<Sim>::new();
                    Sim::table_store(Pfn::new(7), 3, 10 + table);
                }
            });
            script.spawn(1, move || {
                for _ in 0..60 {
                    Sim::work(Op::PteSet, 1);
                    let down = |entry| (entry != 0).then(|| Pfn::new(entry as usize));
                    out.borrow_mut().push(Sim::table_walk(Pfn::new(5), &[1, 2, 3, 4], down).entry);
                }
            });
        });
        seen.take()
    };
    let lazy = seen(Policy::Lazy);
    assert_eq!(lazy, seen(Policy::Naive));
    assert!(lazy.is_sorted() && lazy.last() == Some(&(TABLES - 1)), "{lazy:?}");
    assert!(lazy.windows(2).filter(|pair| pair[0] != pair[1]).count() > 10, "{lazy:?}");
}

/// CPU 0 puts the frame of a page in use into limbo, and frees it when it leaves, or too early.
fn leave_limbo(early: bool) -> Outcome {
    let smp = SmpConfig { policy: CallPolicy::Requests, ..SmpConfig::default() };
    run_script(machine(2, false), move |script| {
        World::with(script, 1 << 14, smp).take_while_used(
            script,
            move |world, table, ptes, pfn| {
                drop(ptes);
                let began_ns = Sim::now_ns();
                let begun =
                    world.tlb.begin(table.asid(), Extent::Range(range(9, 1), PageSize::Base));
                assert!(world.tlb.park(begun, [Parked { pfn, count: 1 }].into_iter()));
                assert!(Sim::now_ns() - began_ns < 10_000, "it does not wait");
                if early {
                    world.frames.free_pages(pfn, Order::ZERO);
                    return;
                }
                let free = |_: &Flushed, frames: &[Parked]| {
                    frames.iter().for_each(|frame| world.frames.free_pages(frame.pfn, Order::ZERO));
                };
                assert_eq!(world.tlb.leave_limbo(Leave::Passed, free), 0, "CPU 1 uses it");
                assert_eq!(world.tlb.leave_limbo(Leave::All, free), 1);
                assert!(world.tlb.stats().limbo_age_max_ns > 30_000);
            },
        );
    })
}

#[test]
fn a_frame_that_leaves_limbo_early_is_caught_and_one_that_leaves_in_time_is_not() {
    let outcome = leave_limbo(false);
    assert_eq!((outcome.failure, outcome.violations), (None, vec![]));
    let found = leave_limbo(true).violations;
    assert!(found.iter().any(|found| found.rule == Rule::StaleTranslation), "{found:?}");
}

#[test]
fn under_all_policies_no_cpu_reads_a_freed_frame() {
    let by_calls = POLICIES.map(|policy| SmpConfig { policy, ..SmpConfig::default() });
    let in_turn = SmpConfig { shootdown: ShootdownPolicy::InTurn, ..SmpConfig::default() };
    for smp in by_calls.into_iter().chain([in_turn]) {
        for seed in seeds(10) {
            let outcome = crowd_by(smp, SimConfig { seed, ..machine(8, false) }, 8, 10);
            assert_eq!((outcome.failure, outcome.violations), (None, vec![]), "{smp:?} {seed}");
        }
    }
}
