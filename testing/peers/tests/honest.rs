//! Every allocator in every program, with real memory: no page is written by two owners, and all
//! pages are freed. Also the figures of fragmentation for known designs.

use mmscale_peers::FRAMES;
use mmscale_peers::fragmentation::{Fragmentation, measure};
use mmscale_peers::peer::{
    Bitmap, Blockmap, BlockmapOrders, BlockmapRecords, BuddySlab, BuddySystem, Floor, Magazines,
    Ours, Peer, Posted, Stock,
};
use mmscale_peers::phase::{FreeOrder, PoolState, Program};
use mmscale_peers::round::{Effort, Entry, Shown, check};
use mmscale_peers::sheet::Sheet;

const EFFORT: Effort = Effort { frames: 1 << 13, rounds: 1, operations: 500, shown: Shown::Median };

/// All kinds of tables; the two by order on two threads only.
fn sheets() -> Vec<Sheet> {
    let (fresh, used) = (PoolState::Fresh, PoolState::Fragmented);
    vec![
        Sheet::programs(fresh, FreeOrder::Same),
        Sheet::programs(fresh, FreeOrder::Reverse),
        Sheet::programs(used, FreeOrder::Same),
        Sheet::programs(used, FreeOrder::Random),
        Sheet::orders(Program::Pair, 2, fresh, FreeOrder::Same),
        Sheet::orders(Program::Bulk, 2, fresh, FreeOrder::Random),
        Sheet::orders(Program::Bulk, 2, used, FreeOrder::Same),
    ]
}

fn honest(entry: Entry) {
    let entries = [entry];
    for sheet in sheets() {
        let rows = check(&entries, &sheet, EFFORT).unwrap_or_else(|why| panic!("{why}"));
        // On a fragmented pool there may be no large blocks, on a fresh one there are.
        let missing = rows[0].times.iter().filter(|cell| cell.is_none()).count();
        let used = sheet.columns[0].1.pool == PoolState::Fragmented;
        assert!(missing == 0 || used, "{}: {missing} of {}", entries[0].name, sheet.title);
    }
}

#[test]
fn ours_is_honest() {
    honest(Entry::of::<Ours<Stock>>());
    honest(Entry::of::<Ours<Posted>>());
    honest(Entry::of::<Ours<Blockmap>>());
    honest(Entry::of::<Ours<BlockmapOrders>>());
    honest(Entry::of::<Ours<BlockmapRecords>>());
}

#[test]
fn buddies_are_honest() {
    honest(Entry::of::<BuddySystem<11>>());
    honest(Entry::of::<BuddySlab>());
}

#[test]
fn magazines_and_bitmaps_are_honest() {
    honest(Entry::of::<Magazines>());
    honest(Entry::of::<Bitmap>());
}

/// It returns the same frames to all threads: the check must report that.
#[test]
fn fraud_is_found() {
    struct Fraud;
    impl Peer for Fraud {
        const NAME: &'static str = "fraud";
        fn run(frames: usize, threads: usize, body: impl Fn(&Self, usize) + Send + Sync + 'static) {
            Floor::run(frames, threads, move |_, thread| body(&Self, thread));
        }
        fn alloc(&self, _: u8) -> Option<u32> {
            Some(0)
        }
        fn free(&self, _: u32, _: u8) {}
    }
    let sheet = Sheet::programs(PoolState::Fresh, FreeOrder::Same);
    let told = check(&[Entry::of::<Fraud>()], &sheet, EFFORT).err().expect("it is found");
    // Which of its frauds two threads commit first depends on the host.
    assert!(told.starts_with("fraud in ") && told.contains(": frame 0: "), "{told}");
}

/// Measures the figures of one allocator, which are identical in every call.
fn figures<P: Peer>() -> Fragmentation {
    let (first, second) = (measure::<P>(1 << 14), measure::<P>(1 << 14));
    assert_eq!(first, second, "{} is not the same twice", P::NAME);
    first
}

#[test]
fn lowest_address_first_recovers_and_lists_do_not() {
    let bitmap = figures::<Bitmap>();
    assert!(bitmap.recovery[1] > 90.0 && bitmap.recovery[0] < bitmap.recovery[1], "{bitmap:?}");
    let list = figures::<BuddySlab>();
    assert!(list.recovery[2] < 10.0 && list.churn > 90.0, "{list:?}");
    for found in [bitmap, list] {
        assert_eq!((found.reachable, found.whole), (100.0, 100.0), "one pool under one lock");
    }
}

#[test]
fn ours_loses_no_page_and_no_whole_block_for_good() {
    for found in [figures::<Ours<Stock>>(), figures::<Ours<Posted>>()] {
        assert_eq!((found.reachable, found.whole), (100.0, 100.0), "{found:?}");
    }
}

/// The promises of its documents, on as many frames as the benchmark has.
#[test]
fn blockmap_keeps_whole_blocks_whole_and_gets_them_back() {
    let found = measure::<Ours<Blockmap>>(FRAMES);
    assert!(found.churn >= 99.0, "{found:?}");
    assert!(found.recovery[1] >= 95.0 && found.recovery[2] >= 99.0, "{found:?}");
    assert_eq!((found.reachable, found.whole), (100.0, 100.0), "{found:?}");
}
