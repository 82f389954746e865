//! Corrupted address spaces: [`MmRef::verify`] must report each corruption. Also VMA locks,
//! tested from inside the module.

use crate::space::{MapRequest, MmRef, Place, Prot, Space, SpaceConfig, SpaceDefect, VmaFlags};
use crate::space::{Spaces, VmaRange, Vpn};

use crate::folio::{FolioFlags, Folios};
use crate::lru::{Lru, LruPolicy, LruRef};
use crate::memcg::{GroupId, Groups, GroupsConfig};
use crate::oom::{Oom, OomConfig};
use crate::pgtable::{CountMemory, MemAccess, PtRef, Pte, PteFlags, TableDefect, TableLocks};
use crate::rcu::Rcu;
use crate::reclaim::Reclaim;
use crate::smp::SmpConfig;
use crate::swap::{Swap, SwapConfig};
use crate::time::Time;
use crate::tlb::Tlb;
use crate::work::Work;
use alloc::string::ToString;
use alloc::sync::Arc;
use mmscale_arch::{Order, Pfn};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::{AllocConfig, FrameAllocator, Gfp, MemoryMap};
use mmscale_stepped::Stepped;

const AT: Vpn = Vpn::new(4096);

/// A program with six pages, of which two are in memory and the last two are read-only.
struct World {
    parts: MmParts,
    space: Arc<Space<Stepped>>,
}

/// The parts of a memory manager that the address space uses.
struct MmParts {
    frames: FrameAllocator<Stepped>,
    folios: Folios<Stepped>,
    groups: Groups<Stepped>,
    lru: Lru<Stepped>,
    work: Work<Stepped>,
    rcu: Rcu<Stepped>,
    locks: TableLocks<Stepped>,
    tlb: Tlb<Stepped>,
    counts: CountMemory<Stepped>,
    spaces: Spaces<Stepped>,
    swap: Swap<Stepped>,
    reclaim: Reclaim<Stepped>,
    oom: Oom<Stepped>,
    time: Time<Stepped>,
}

impl MmParts {
    fn new() -> Self {
        let map = MemoryMap::single(1 << 13);
        Self {
            frames: FrameAllocator::new(&map, AllocConfig::default()).unwrap(),
            folios: Folios::new(map.frames()),
            groups: Groups::new(GroupsConfig::ROOT, 1),
            lru: Lru::new(LruPolicy::Stock, 1, 1),
            work: Work::new(),
            rcu: Rcu::new(),
            locks: TableLocks::new(map.frames()),
            tlb: Tlb::new(SmpConfig::default()),
            counts: CountMemory::new(),
            spaces: Spaces::new(SpaceConfig::default(), map.frames() as u64),
            swap: Swap::new(SwapConfig::default()),
            reclaim: Reclaim::new(1),
            oom: Oom::new(OomConfig::default()),
            time: Time::new().expect("a frequency"),
        }
    }
    fn on(&self) -> MmRef<'_, Stepped> {
        let Self { frames, folios, groups, lru, work, rcu, locks, tlb, counts, .. } = self;
        let memory = LruRef { frames, folios, groups, lru, work, rcu };
        let paging = PtRef { frames, locks, tlb, counts, room: None };
        let Self { spaces, swap, reclaim, oom, time, .. } = self;
        MmRef { memory, paging, spaces, swap, reclaim, oom, time }
    }
}

impl World {
    fn new() -> Self {
        mmscale_stepped::boot(1, 1000);
        let parts = MmParts::new();
        let on = parts.on();
        on.spaces.start(&parts.frames).unwrap();
        let space = Space::new(on, GroupId::ROOT).unwrap();
        let request = MapRequest::new(4).at(Place::Fixed(AT));
        space.mmap(on, request).unwrap();
        let read = request.at(Place::Fixed(AT.offset(4))).prot(Prot::READ);
        space.mmap(on, MapRequest { pages: 2, ..read }).unwrap();
        let world = Self { parts, space };
        (0..2).for_each(|page| {
            world.frame(AT.offset(page));
        });
        world
    }
    fn on(&self) -> MmRef<'_, Stepped> {
        self.parts.on()
    }
    /// Returns the frame behind a page, after a write fault if needed.
    fn frame(&self, page: Vpn) -> Pfn {
        self.space.access(self.on(), page, MemAccess::Write, |pfn| pfn).unwrap()
    }
    /// Replaces the entry of `page` by `pte`.
    fn put(&self, page: Vpn, pte: Pte) {
        let mut ptes = self.space.table.lock_pte(self.on().paging, page).unwrap();
        ptes.take(page);
        ptes.fill(page, pte);
    }
}

/// Applies `plant` to a sound address space; the audit must return what `plant` returns.
#[track_caller]
fn caught(plant: impl FnOnce(&World) -> SpaceDefect) {
    let world = World::new();
    let audit = world.on().verify().unwrap();
    assert_eq!((audit.spaces, audit.vmas, audit.pages, audit.mapped), (1, 2, 6, 2));
    let expected = plant(&world);
    assert_eq!(world.on().verify(), Err(expected));
    assert!(!expected.to_string().is_empty());
}

#[test]
fn a_vma_with_another_range_than_its_place() {
    caught(|world| {
        let vmas = world.space.lock.write();
        let id = vmas.tree.get(AT).unwrap().value;
        let vma = vmas.vma(id);
        let range = VmaRange::with_pages(AT, 3).unwrap();
        vmas.slots().get(id).unwrap().set(&crate::space::Vma { range, ..vma });
        SpaceDefect::Range(AT)
    });
}

#[test]
fn a_vma_whose_lock_was_never_released() {
    caught(|world| {
        let vmas = world.space.lock.write();
        let id = vmas.tree.get(AT).unwrap().value;
        assert!(vmas.slots().get(id).unwrap().write(&world.space));
        SpaceDefect::Slots
    });
}

#[test]
fn pages_that_were_counted_wrong() {
    caught(|world| {
        world.space.lock.write().pages += 1;
        SpaceDefect::Pages
    });
    caught(|world| {
        world.space.lock.write().locked_pages += 1;
        SpaceDefect::Pages
    });
}

#[test]
fn a_vma_that_is_lost() {
    caught(|world| {
        let mut vmas = world.space.lock.write();
        vmas.tree.remove(AT.offset(4));
        SpaceDefect::Slots
    });
}

#[test]
fn a_page_outside_of_all_vmas() {
    caught(|world| {
        let pte = Pte::page(world.frame(AT), PteFlags::empty());
        world.put(AT.offset(6), pte);
        SpaceDefect::Stray(AT.offset(6))
    });
}

#[test]
fn a_huge_page_that_reaches_out_of_its_vma() {
    caught(|world| {
        let far = Vpn::new(1 << 20);
        let request = MapRequest::new(100).at(Place::Fixed(far));
        world.space.mmap(world.on(), request).unwrap();
        let mut pmd = world.space.table.lock_pmd(world.on().paging, far).unwrap();
        pmd.fill(far, Pte::page(world.frame(AT), PteFlags::HUGE));
        SpaceDefect::Stray(far)
    });
}

#[test]
fn a_page_with_more_rights_than_its_vma() {
    caught(|world| {
        let pte = Pte::page(world.on().spaces.zero(), PteFlags::ZERO | PteFlags::WRITE);
        world.put(AT.offset(5), pte);
        SpaceDefect::Rights(AT.offset(5))
    });
    caught(|world| {
        let id = world.space.lock.read().tree.get(AT).unwrap().value;
        let vmas = world.space.lock.write();
        let vma = vmas.vma(id);
        vmas.slots().get(id).unwrap().set(&crate::space::Vma { prot: Prot::NONE, ..vma });
        SpaceDefect::Rights(AT)
    });
}

#[test]
fn a_folio_with_another_count_of_mappings() {
    caught(|world| {
        let pfn = world.frame(AT);
        world.on().memory.add_map(pfn);
        SpaceDefect::Maps(pfn, 2, 1)
    });
    caught(|world| {
        let pfn = world.frame(AT);
        world.on().memory.remove_maps(pfn, 1);
        SpaceDefect::Maps(pfn, 0, 1)
    });
}

#[test]
fn a_folio_that_is_mapped_more_than_used() {
    caught(|world| {
        let pfn = world.frame(AT);
        let flags = PteFlags::ACCESSED | PteFlags::DIRTY;
        for page in [2, 3] {
            world.put(AT.offset(page), Pte::page(pfn, flags));
            world.on().memory.add_map(pfn);
        }
        SpaceDefect::References(pfn)
    });
}

#[test]
fn a_folio_that_is_written_to_and_shared() {
    caught(|world| {
        let pfn = world.frame(AT);
        world.on().memory.folios.clear(pfn, FolioFlags::EXCLUSIVE);
        SpaceDefect::Shared(pfn)
    });
    let world = World::new();
    let child = world.space.fork(world.on()).unwrap();
    world.on().verify().unwrap();
    let pfn = world.frame(AT.offset(1));
    let shared = child.access(world.on(), AT, MemAccess::Read, |pfn| pfn).unwrap();
    assert_ne!(pfn, shared);
    world.on().memory.folios.set(shared, FolioFlags::EXCLUSIVE);
    assert_eq!(world.on().verify(), Err(SpaceDefect::Shared(shared)));
}

#[test]
fn an_entry_that_maps_a_free_frame() {
    caught(|world| {
        let (frames, kind) = (&world.parts.frames, MigrateType::Movable);
        let pfn = frames.alloc_pages(Order::ZERO, kind, Gfp::KERNEL).unwrap();
        frames.free_pages(pfn, Order::ZERO);
        world.put(AT.offset(2), Pte::page(pfn, PteFlags::empty()));
        SpaceDefect::Table(TableDefect::MapsFree(AT.offset(2)))
    });
}

/// During a change page faults fall back to mmap_lock; after it they need no mmap_lock.
#[test]
fn a_page_fault_falls_back_while_a_vma_changes() {
    let world = World::new();
    let space = &world.space;
    assert!(space.lock_vma(AT).is_some_and(|guard| guard.vma().range.contains(AT)));
    assert!(space.lock_vma(AT.offset(6)).is_none(), "nothing is mapped there");
    let mut change = space.change();
    assert!(space.lock_vma(AT).is_some(), "nothing has changed yet");
    change.hold_at(AT);
    assert!(space.lock_vma(AT).is_none(), "its lock is held for writing");
    assert!(space.lock_vma(AT.offset(4)).is_some(), "the other VMA's is not");
    change.plan(1).unwrap();
    change.cut(AT.offset(2));
    assert!(space.lock_vma(AT.offset(4)).is_none(), "the tree is being changed");
    let reading = change.downgrade();
    let halves = [0, 3].map(|page| space.lock_vma(AT.offset(page)).unwrap().vma().range.pages());
    assert_eq!(halves, [2, 2], "readers see the change after the downgrade");
    drop(reading);
    let mut change = space.change();
    change.join_at(AT.offset(2));
    drop(change);
    assert_eq!(space.lock_vma(AT.offset(3)).unwrap().vma().range.pages(), 4);
    world.on().verify().unwrap();
}

/// A page fault that finds a VMA before mremap has moved its pages there cannot lock it.
#[test]
fn a_vma_that_waits_for_its_pages_is_locked_before_it_can_be_found() {
    let world = World::new();
    let space = &world.space;
    let vma = space.vma_at(AT).unwrap();
    let range = VmaRange::with_pages(AT.offset(100), 4).unwrap();
    let vma = crate::space::Vma { range, prot: Prot::READ, ..vma };
    let mut change = space.change();
    change.plan(1).unwrap();
    change.add_held(vma);
    let id = change.tree.get(range.start()).unwrap().value;
    assert!(!space.lookup.get(id).unwrap().try_read(space));
    drop(change);
    assert!(space.lock_vma(range.start()).is_some());
    world.on().verify().unwrap();
}

/// The entry that a fault has seen may be outdated: its frame is not part of a huge folio any more.
#[test]
fn a_fault_that_has_seen_a_part_of_a_huge_page_finds_the_folio_that_is_there_now() {
    let world = World::new();
    let (space, on) = (&world.space, world.on());
    let pfn = world.frame(AT.offset(1));
    {
        let mut ptes = space.table.find_pte(on.paging, AT.offset(1)).unwrap();
        ptes.clear(AT.offset(1), PteFlags::WRITE);
    }
    let seen = Pte::page(pfn, PteFlags::ACCESSED | crate::space::zap::PIECE);
    let vma = space.vma_at(AT).unwrap();
    let page = AT.offset(1);
    let patience = crate::space::fault::Patience::Sleep;
    let done = space.handle_fault(on, &vma, page, MemAccess::Write, seen, patience).unwrap();
    assert!(matches!(done, crate::space::fault::Handled::Done));
    assert_eq!(world.frame(page), pfn, "it has the page to itself and needs no copy");
    assert!(space.table.lookup(page).unwrap().0.flags().contains(PteFlags::WRITE));
    on.verify().unwrap();
}

/// The id of a removed VMA leads to nothing, even if its slot is used again.
#[test]
fn the_slot_of_a_vma_that_is_gone_is_not_mistaken_for_it() {
    let world = World::new();
    let space = &world.space;
    let old = space.lock.read().tree.get(AT).unwrap().value;
    let range = VmaRange::with_pages(AT, 4).unwrap();
    space.munmap(world.on(), range).unwrap();
    let request = MapRequest::new(4).at(Place::Fixed(AT));
    let request = MapRequest { flags: VmaFlags::DONT_FORK, ..request };
    space.mmap(world.on(), request).unwrap();
    let new = space.lock.read().tree.get(AT).unwrap().value;
    assert_eq!(new.index(), old.index(), "the slot is used again");
    assert!(space.lookup.get(old).is_none() && space.lookup.get(new).is_some());
}
