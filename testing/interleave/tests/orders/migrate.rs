//! Pages that mbind moves to another node while a program writes to them.

use crate::space::{AT, World, in_orders_of, nothing};
use mmscale_arch::{NodeId, VmaRange, Vpn};
use mmscale_mm::lru::LruPolicy;
use mmscale_mm::smp::CallPolicy;
use mmscale_mm::space::Present;

/// Moves the pages to another node.
fn move_away(world: &World) {
    let range = VmaRange::with_pages(Vpn::new(AT), 2).expect("user pages");
    let node = NodeId::new(1);
    let left = world.space().mbind(world.mm.mm_ref(), range, node, Present::Move);
    assert_eq!(left, Ok(0), "the pages have no other user");
}

/// The last of the written words: enough for the copy to begin in between.
const LAST: u64 = 39;

/// Writes, and checks what it wrote.
fn write_and_read(world: &World) {
    for stamp in 20..=LAST {
        assert_eq!(world.write(world.space(), 0, stamp), Ok(()));
        assert_eq!(world.read(world.space(), 0), Ok(stamp), "a write was lost");
    }
}

#[test]
fn a_write_while_its_page_migrates_is_not_lost() {
    in_orders_of(
        (LruPolicy::Lazy, CallPolicy::Stock),
        100,
        nothing,
        &[move_away, write_and_read],
        |world| {
            assert_eq!(world.read(world.space(), 0), Ok(LAST));
            assert_eq!(world.read(world.space(), 1), Ok(11));
        },
    );
}
