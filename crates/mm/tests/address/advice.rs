//! madvise, mlock and mincore behave as their manual pages describe.

use crate::address::machine::{GROUP, Machine, POLICIES, range};
use mmscale_arch::{NodeId, Vpn};
use mmscale_mm::lru::LruList;
use mmscale_mm::space::{
    Advice, FaultError, HugePages, LockWhat, MapRequest, Place, Prot, Space, SpaceError,
};
use mmscale_stepped::Stepped;

const AT: u64 = 512 * 16;

fn map(machine: &Machine, space: &Space<Stepped>, at: u64, pages: u64, prot: Prot) {
    let request = MapRequest::new(pages).at(Place::Fixed(Vpn::new(at))).prot(prot);
    assert_eq!(space.mmap(machine.on(), request), Ok(Vpn::new(at)));
}

fn fill(machine: &Machine, space: &Space<Stepped>, at: u64, pages: u64, stamp: u64) {
    (0..pages).for_each(|page| machine.write(space, at + page, stamp + page).expect("it is there"));
}

/// The number of pages on the unevictable list.
fn unevictable(machine: &Machine) -> u64 {
    let on = |node| machine.mm.memory().list_pages(GROUP, NodeId::new(node), LruList::Unevictable);
    on(0) + on(1)
}

#[test]
fn given_up_pages_are_zero() {
    for policy in POLICIES {
        let machine = Machine::boot(1, |config| config.lru = policy);
        let (on, space) = (machine.on(), machine.space());
        map(&machine, &space, AT, 6, Prot::RW);
        fill(&machine, &space, AT, 6, 50);
        assert_eq!(space.madvise(on, range(AT + 2, 2), Advice::DontNeed), Ok(()));
        assert_eq!(machine.mincore(&space, AT, 6), [true, true, false, false, true, true]);
        assert_eq!(
            [1, 2, 3, 4].map(|page| machine.read(&space, AT + page)),
            [51, 0, 0, 54].map(Ok)
        );
        // Advice that only moves folios between lists does not change the pages.
        for advice in [Advice::Free, Advice::Cold, Advice::WillNeed] {
            assert_eq!(space.madvise(on, range(AT, 6), advice), Ok(()));
            assert_eq!(machine.read(&space, AT + 5), Ok(55));
        }
        machine.check();
        machine.exit(space);
        machine.end();
    }
}

#[test]
fn advice_goes_on_behind_a_hole_and_stops_at_locked_pages() {
    let machine = Machine::stock();
    let (on, space) = (machine.on(), machine.space());
    map(&machine, &space, AT, 2, Prot::RW);
    map(&machine, &space, AT + 3, 6, Prot::RW);
    fill(&machine, &space, AT, 2, 50);
    fill(&machine, &space, AT + 3, 6, 53);
    assert_eq!(space.mlock(on, range(AT + 5, 2), LockWhat::Everything), Ok(()));
    let give_up = |at, pages| space.madvise(on, range(at, pages), Advice::DontNeed);
    assert_eq!(give_up(AT + 1, 3), Err(SpaceError::NoMemory));
    assert_eq!(machine.read(&space, AT + 3), Ok(0), "behind the hole");
    assert_eq!(give_up(AT, 9), Err(SpaceError::Inval));
    let stamps = [0, 4, 5, 6, 7].map(|page| machine.read(&space, AT + page));
    assert_eq!(stamps, [0, 0, 55, 56, 57].map(Ok), "up to the locked ones");
    for advice in [Advice::Free, Advice::Cold, Advice::PageOut] {
        assert_eq!(space.madvise(on, range(AT + 5, 1), advice), Err(SpaceError::Inval));
    }
    assert_eq!(space.madvise(on, range(AT + 5, 1), Advice::WillNeed), Ok(()));
    machine.exit(space);
    machine.end();
}

#[test]
fn populating_wants_the_right() {
    let machine = Machine::stock();
    let (on, space) = (machine.on(), machine.space());
    map(&machine, &space, AT, 2, Prot::RW);
    map(&machine, &space, AT + 2, 2, Prot::READ);
    map(&machine, &space, AT + 4, 2, Prot::NONE);
    let advise = |pages, advice| space.madvise(on, range(AT, pages), advice);
    assert_eq!(advise(4, Advice::PopulateWrite), Err(SpaceError::Inval));
    assert_eq!(machine.mincore(&space, AT, 4), [true, true, false, false]);
    assert_eq!(advise(6, Advice::PopulateRead), Err(SpaceError::Inval));
    assert_eq!(machine.mincore(&space, AT, 6), [true, true, true, true, false, false]);
    assert_eq!(advise(7, Advice::PopulateRead), Err(SpaceError::Inval), "before the hole");
    assert_eq!(machine.check().mapped, 2);
    // The pages before a hole are populated.
    assert_eq!(space.munmap(on, range(AT + 3, 3)), Ok(()));
    assert_eq!(space.madvise(on, range(AT, 3), Advice::DontNeed), Ok(()));
    assert_eq!(advise(5, Advice::PopulateRead), Err(SpaceError::NoMemory));
    assert_eq!(machine.mincore(&space, AT, 3), [true, true, true]);
    machine.exit(space);
    machine.end();
}

#[test]
fn locked_pages_are_on_the_unevictable_list() {
    for policy in POLICIES {
        let machine = Machine::boot(1, |config| config.lru = policy);
        let (on, space) = (machine.on(), machine.space());
        map(&machine, &space, AT, 10, Prot::RW);
        fill(&machine, &space, AT, 4, 50);
        assert_eq!(space.mlock(on, range(AT, 8), LockWhat::Everything), Ok(()));
        assert_eq!(machine.mincore(&space, AT, 10)[..9], [[true; 8].as_slice(), &[false]].concat());
        machine.mm.memory().drain();
        assert_eq!(unevictable(&machine), 8);
        assert_eq!(space.munlock(on, range(AT, 3)), Ok(()));
        machine.mm.memory().drain();
        assert_eq!(unevictable(&machine), 5);
        // Locked when touched.
        assert_eq!(space.mlock(on, range(AT + 8, 2), LockWhat::OnFault), Ok(()));
        assert!(!machine.mincore(&space, AT + 8, 1)[0]);
        machine.write(&space, AT + 8, 1).unwrap();
        machine.mm.memory().drain();
        assert_eq!(unevictable(&machine), 6);
        assert_eq!(space.munmap(on, range(AT + 4, 5)), Ok(()));
        assert_eq!((unevictable(&machine), space.pages()), (1, (5, 2)));
        machine.check();
        machine.exit(space);
        machine.end();
    }
}

#[test]
fn mlock_says_what_is_wrong() {
    let machine = Machine::boot(1, |config| config.space.memlock_pages = 5);
    let (on, space) = (machine.on(), machine.space());
    map(&machine, &space, AT, 4, Prot::RW);
    map(&machine, &space, AT + 5, 4, Prot::NONE);
    let lock = |at, pages| space.mlock(on, range(at, pages), LockWhat::Everything);
    assert_eq!(lock(AT, 6), Err(SpaceError::NoMemory), "over the limit");
    assert_eq!(space.pages().1, 0);
    assert_eq!(lock(AT + 2, 3), Err(SpaceError::NoMemory), "over a hole");
    assert_eq!(space.pages().1, 2, "the part before the hole is locked");
    assert_eq!(lock(AT, 4), Ok(()), "locked pages do not count twice");
    assert_eq!(lock(AT + 5, 1), Err(SpaceError::NoMemory), "no access is allowed");
    assert_eq!(space.munlock(on, range(AT, 5)), Err(SpaceError::NoMemory));
    assert_eq!(space.pages().1, 1, "but the part before the hole is unlocked");
    machine.exit(space);
    machine.end();

    let machine = Machine::boot(1, |config| config.space.memlock_pages = 0);
    let (on, space) = (machine.on(), machine.space());
    map(&machine, &space, AT, 4, Prot::RW);
    let locked = space.mlock(on, range(AT, 1), LockWhat::OnFault);
    assert_eq!(locked, Err(SpaceError::Perm));
    machine.exit(space);
    machine.end();
}

#[test]
fn collapsing_keeps_the_content() {
    for policy in POLICIES {
        let machine = Machine::boot(1, |config| {
            config.lru = policy;
            config.space.huge = HugePages::Never;
        });
        let (on, space) = (machine.on(), machine.space());
        map(&machine, &space, AT - 3, 1030, Prot::RW);
        fill(&machine, &space, AT, 100, 50);
        machine.read(&space, AT + 200).unwrap();
        let collapse = |at, pages| space.madvise(on, range(at, pages), Advice::Collapse);
        assert_eq!(collapse(AT + 1, 510), Err(SpaceError::Inval));
        assert_eq!(collapse(AT, 511), Ok(()), "no aligned part, nothing is missing");
        assert_eq!(collapse(AT + 2000, 10), Err(SpaceError::NoMemory));
        assert_eq!(machine.check().mapped, 100);
        assert_eq!(collapse(AT - 4, 600), Err(SpaceError::NoMemory));
        assert_eq!(collapse(AT - 3, 1030), Ok(()));
        assert_eq!(machine.check().mapped, 2);
        assert!((0..100).all(|page| machine.read(&space, AT + page) == Ok(50 + page)));
        assert!((100..1024).all(|page| machine.read(&space, AT + page) == Ok(0)));
        assert_eq!(collapse(AT, 512), Ok(()), "it is huge already");
        // Unmapping a part splits the huge page; the rest keeps its content.
        assert_eq!(space.munmap(on, range(AT + 10, 10)), Ok(()));
        assert_eq!(machine.check().mapped, 502 + 1);
        assert_eq!(machine.read(&space, AT + 10), Err(FaultError::Segv));
        assert_eq!([9, 20].map(|page| machine.read(&space, AT + page)), [Ok(59), Ok(70)]);
        assert_eq!(space.madvise(on, range(AT + 512, 5), Advice::NoHugePage), Ok(()));
        assert_eq!(collapse(AT + 512, 512), Err(SpaceError::Inval));
        machine.exit(space);
        machine.end();
    }
}

#[test]
fn a_huge_page_comes_with_the_first_write_where_it_is_wanted() {
    for huge in [HugePages::Never, HugePages::Advised, HugePages::Always] {
        let machine = Machine::boot(1, |config| config.space.huge = huge);
        let (on, space) = (machine.on(), machine.space());
        map(&machine, &space, AT, 2048, Prot::RW);
        assert_eq!(space.madvise(on, range(AT, 700), Advice::HugePage), Ok(()));
        assert_eq!(space.madvise(on, range(AT + 1200, 848), Advice::NoHugePage), Ok(()));
        let (first, always) = (huge != HugePages::Never, huge == HugePages::Always);
        // The third range extends over two VMAs, the last one must not be huge.
        for (at, is_huge) in [(AT + 7, first), (AT + 512, false), (AT + 1536, false)] {
            machine.write(&space, at, 9).unwrap();
            let there = machine.mincore(&space, at, 2);
            assert_eq!(there, [true, is_huge], "at {at:#x} with {huge:?}");
        }
        assert_eq!(space.madvise(on, range(AT + 512, 600), Advice::DontNeed), Ok(()));
        assert_eq!(machine.check().mapped, 2);
        // The table of single pages stays, so the next write gets a single page.
        machine.write(&space, AT + 512, 1).unwrap();
        assert_eq!(machine.mincore(&space, AT + 512, 2), [true, false]);
        map(&machine, &space, AT + 512 * 10, 512, Prot::RW);
        machine.write(&space, AT + 512 * 10, 1).unwrap();
        assert_eq!(machine.mincore(&space, AT + 512 * 10, 2), [true, always]);
        machine.exit(space);
        machine.end();
    }
}

/// Advice about use changes the flags of VMAs: a part is split off, and merged when its flags are
/// those of its neighbours again.
#[test]
fn advice_about_use_splits_and_merges() {
    let pairs = [
        (Advice::Random, Advice::Normal),
        (Advice::Sequential, Advice::Normal),
        (Advice::Mergeable, Advice::Unmergeable),
        (Advice::DontDump, Advice::DoDump),
    ];
    let machine = Machine::stock();
    let (on, space) = (machine.on(), machine.space());
    map(&machine, &space, AT, 6, Prot::RW);
    fill(&machine, &space, AT, 6, 50);
    let vmas = |at, pages, advice| {
        assert_eq!(space.madvise(on, range(at, pages), advice), Ok(()));
        space.vmas().len()
    };
    for (set, clear) in pairs {
        assert_eq!(vmas(AT + 2, 2, set), 3, "{set:?}");
        assert_eq!(vmas(AT, 6, set), 1, "{set:?}");
        assert_eq!(vmas(AT + 2, 2, clear), 3, "{clear:?}");
        assert_eq!(vmas(AT, 6, clear), 1, "{clear:?}");
    }
    // One order of reads replaces the other.
    assert_eq!([vmas(AT, 3, Advice::Random), vmas(AT, 3, Advice::Sequential)], [2, 2]);
    assert_eq!([vmas(AT + 3, 3, Advice::Sequential), vmas(AT, 6, Advice::Normal)], [1, 1]);
    assert!((0..6).all(|page| machine.read(&space, AT + page) == Ok(50 + page)));
    machine.exit(space);
    machine.end();
}

#[test]
fn mincore_wants_all_of_it_mapped() {
    let machine = Machine::stock();
    let (on, space) = (machine.on(), machine.space());
    map(&machine, &space, AT, 3, Prot::RW);
    map(&machine, &space, AT + 4, 3, Prot::RW);
    let mut told = 0;
    let asked = space.mincore(on, range(AT + 1, 4), |_| told += 1);
    assert_eq!((asked, told), (Err(SpaceError::NoMemory), 0));
    machine.read(&space, AT + 5).unwrap();
    assert_eq!(machine.mincore(&space, AT + 4, 3), [false, true, false]);
    machine.exit(space);
    machine.end();
}

#[test]
fn pages_given_up_are_dropped_and_others_go_to_swap() {
    for policy in POLICIES {
        let machine = Machine::boot(1, |config| {
            config.lru = policy;
            config.swap.pages = 100;
        });
        let (on, space) = (machine.on(), machine.space());
        map(&machine, &space, AT, 8, Prot::RW);
        fill(&machine, &space, AT, 8, 50);
        let advise = |at, pages, advice| space.madvise(on, range(at, pages), advice);
        assert_eq!(advise(AT, 4, Advice::Free), Ok(()));
        // One of the pages is written to again.
        machine.write(&space, AT + 1, 151).unwrap();
        assert_eq!(advise(AT, 7, Advice::PageOut), Ok(()));
        machine.finish_ios(usize::MAX);
        let audit = machine.check();
        assert_eq!((audit.mapped, audit.swapped.len()), (1 + 1, 3), "{policy:?}");
        let stamps = [0, 1, 2, 3, 4, 5, 6, 7].map(|page| machine.read(&space, AT + page).unwrap());
        assert_eq!(stamps, [0, 151, 0, 0, 54, 55, 56, 57]);
        machine.exit(space);
        machine.end();
    }
}
