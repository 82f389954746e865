//! An address space with a million VMAs.

use crate::address::machine::{Machine, range};
use crate::address::random::Random;
use mmscale_arch::Vpn;
use mmscale_mm::space::{MapRequest, MayMove, Place, Prot, RemapRequest, SpaceError};

const VMAS: u64 = 1_000_000;
const FIRST: u64 = 512;

/// The protection of the page at this distance from the first: neighbours differ.
fn prot(at: u64) -> Prot {
    if at.is_multiple_of(2) { Prot::RW } else { Prot::READ }
}

#[test]
fn a_million_vmas() {
    let machine = Machine::boot(1, |config| config.space.vmas_max = VMAS as u32 - 1);
    let (space, on) = (machine.space(), machine.on());
    for at in 0..VMAS {
        let request = MapRequest::new(1).at(Place::Free(Vpn::new(FIRST + at))).prot(prot(at));
        assert_eq!(space.mmap(on, request), Ok(Vpn::new(FIRST + at)));
    }
    assert_eq!(space.pages(), (VMAS, 0));
    assert_eq!(space.mmap(on, MapRequest::new(1)), Err(SpaceError::NoMemory), "one too many");
    let mut random = Random(1);
    for _ in 0..100_000 {
        let at = random.below(VMAS);
        let vma = space.vma_at(Vpn::new(FIRST + at)).expect("it is mapped");
        assert_eq!((vma.range, vma.prot), (range(FIRST + at, 1), prot(at)));
    }
    // Some of them are used, from one end to the other.
    for at in (0..VMAS).step_by(5_000) {
        assert_eq!(machine.write(&space, FIRST + at, at), Ok(()));
    }
    // Every fifth is unmapped, which leaves groups of four.
    for at in (3..VMAS).step_by(5) {
        assert_eq!(space.munmap(on, range(FIRST + at, 1)), Ok(()));
    }
    assert_eq!(machine.check().vmas, VMAS - VMAS / 5);
    // A thousand pages are unmapped in one call, and mapped again as one VMA.
    let whole = range(FIRST + VMAS / 2, 1_000);
    assert_eq!(space.munmap(on, whole), Ok(()));
    let request = MapRequest::new(1_000).at(Place::Free(whole.start()));
    assert_eq!(space.mmap(on, request.prot(Prot::NONE)), Ok(whole.start()));
    let from = Vpn::new(FIRST + 5_000);
    let away = RemapRequest { from, old_pages: 1, new_pages: 3, may_move: MayMove::Anywhere };
    let there = space.mremap(on, away).expect("there is room");
    assert_eq!(machine.read(&space, there.get()), Ok(5_000));
    assert_eq!(machine.read(&space, FIRST + 10_000), Ok(10_000));
    assert_eq!(machine.check().vmas, VMAS - VMAS / 5 - 800 + 1);
    machine.exit(space);
    machine.end();
}
