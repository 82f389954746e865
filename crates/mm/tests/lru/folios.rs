//! Folios: counts, flags, freezing.

use crate::lru::machine::{ANON, Machine};
use mmscale_arch::{Order, Pfn};
use mmscale_frames::page_alloc::AllocError;
use mmscale_mm::folio::FolioFlags;
use mmscale_mm::lru::LruPolicy;

#[test]
fn a_folio_begins_with_one_reference_and_what_it_was_made_with() {
    let machine = Machine::boot(LruPolicy::Stock, 1);
    let folios = machine.memory().folios;
    let order = Order::new(4).unwrap();
    let pfn = machine.folio_of(order, ANON);
    let word = folios.word(pfn);
    assert_eq!((word.refs(), word.maps(), word.flags()), (1, 0, ANON.flags));
    assert_eq!((folios.mapping(pfn), folios.index(pfn), folios.group(pfn)), (7, 3, ANON.group));
    folios.set_mapping(pfn, 9, 11);
    assert_eq!((folios.mapping(pfn), folios.index(pfn)), (9, 11));
    machine.memory().put(pfn);
    assert_eq!(folios.word(pfn).refs(), 0);
    machine.end();
}

#[test]
fn references_keep_it_and_the_last_one_frees_it() {
    let machine = Machine::boot(LruPolicy::Stock, 1);
    let (memory, pfn) = (machine.memory(), machine.folio(ANON));
    memory.folios.get(pfn);
    assert!(memory.folios.try_get(pfn));
    memory.release(&[(pfn, 2)]);
    assert_eq!(machine.refs(pfn), 1);
    // The zero page is held too.
    assert_eq!(machine.mm.verify().unwrap().held, 2);
    memory.put(pfn);
    assert!(!memory.folios.try_get(pfn), "a freed folio gets no reference");
    machine.end();
}

#[test]
fn freezing_takes_all_references_or_none() {
    let machine = Machine::boot(LruPolicy::Stock, 1);
    let folios = machine.memory().folios;
    let pfn = machine.folio(ANON);
    folios.get(pfn);
    assert!(!folios.freeze(pfn, 1) && !folios.freeze(pfn, 3));
    assert_eq!(machine.refs(pfn), 2);
    assert!(folios.freeze(pfn, 2));
    assert!(!folios.try_get(pfn), "a frozen folio cannot be looked up");
    folios.unfreeze(pfn, 2);
    assert!(folios.word(pfn).refs() == 2 && folios.word(pfn).has(ANON.flags));
    machine.memory().release(&[(pfn, 2)]);
    machine.end();
}

#[test]
fn changes_of_flags_and_mappings_return_the_old_word() {
    let machine = Machine::boot(LruPolicy::Stock, 1);
    let folios = machine.memory().folios;
    let pfn = machine.folio(ANON);
    assert!(!folios.test_and_set(pfn, FolioFlags::DIRTY));
    assert!(folios.test_and_set(pfn, FolioFlags::DIRTY));
    assert!(folios.test_and_clear(pfn, FolioFlags::DIRTY));
    assert!(!folios.test_and_clear(pfn, FolioFlags::DIRTY));
    assert_eq!(folios.add_map(pfn).maps(), 0);
    assert_eq!(folios.add_map(pfn).maps(), 1);
    assert_eq!(folios.remove_maps(pfn, 1).maps(), 1);
    assert_eq!(folios.remove_maps(pfn, 1).maps(), 0);
    assert_eq!(folios.word(pfn).flags(), ANON.flags);
    machine.memory().put(pfn);
    machine.end();
}

#[test]
fn folios_that_cannot_be_had_leave_nothing_behind() {
    let machine = Machine::boot(LruPolicy::Stock, 1);
    mmscale_stepped::fail_allocs(1);
    let memory = machine.memory();
    let gfp = mmscale_frames::page_alloc::Gfp::KERNEL;
    let refused = memory.alloc_folio(crate::lru::machine::NODE, Order::ZERO, gfp, ANON);
    assert_eq!(refused, Err(mmscale_mm::lru::FolioError::Frames(AllocError::Injected)));
    assert_eq!(memory.folios.iter().collect::<Vec<(Pfn, _)>>(), []);
    machine.end();
}
