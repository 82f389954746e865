//! Every allocator in the benchmark is one: blocks are aligned, disjoint, and can be freed.

use mmscale_peers::peer::{
    Bitmap, Blockmap, BlockmapOrders, BlockmapRecords, BuddySystem, BuddySystemMutex, Magazines,
    Ours, OursOnMachine, Peer, Posted, Stock,
};
use mmscale_peers::ring::wait_until;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

const FRAMES: usize = 1 << 14;

/// The allocated blocks, by first frame, with their ends.
type Out = Mutex<BTreeMap<u32, u32>>;

/// Adds a block to the allocated ones; panics if it overlaps one.
fn enter(out: &Out, frame: u32, order: u8) {
    let mut out = out.lock().expect("no panic");
    let end = frame + (1 << order);
    assert!(frame.is_multiple_of(1 << order), "{frame} is aligned to order {order}");
    assert!(end as usize <= FRAMES, "{frame} of order {order} is inside");
    let overlap = out.range(..end).next_back().filter(|(_, other)| **other > frame);
    assert_eq!(overlap, None, "{frame} of order {order} is out already");
    out.insert(frame, end);
}

/// Allocates blocks of orders 0 to 3 and frees them, some immediately and all at the end.
fn churn(peer: &impl Peer, out: &Out, thread: usize) {
    let give_back = |frame: u32, order: u8| {
        out.lock().expect("no panic").remove(&frame);
        peer.free(frame, order);
    };
    let mut held = Vec::new();
    for step in 0..4000usize {
        let order = (step * 7 + thread) as u8 % 4;
        let frame = peer.alloc(order).expect("far fewer than all frames are out");
        enter(out, frame, order);
        held.push((frame, order));
        if step % 3 != 0 {
            let (frame, order) = held.swap_remove(step * 31 % held.len());
            give_back(frame, order);
        }
    }
    held.into_iter().for_each(|(frame, order)| give_back(frame, order));
}

fn conforms<P: Peer>() {
    // Some keep their own data in the frames that they manage, or a reserve.
    let usable = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&usable);
    P::run(FRAMES, 1, move |peer, _| count.store(peer.free_frames(), Ordering::Relaxed));
    let usable = usable.load(Ordering::Relaxed);
    assert!(usable > FRAMES * 9 / 10, "{}: {usable} frames", P::NAME);

    let (out, done, after) = (Out::default(), AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&after);
    P::run(FRAMES, 2, move |peer, thread| {
        churn(peer, &out, thread);
        done.fetch_add(1, Ordering::AcqRel);
        if thread == 0 {
            wait_until(|| done.load(Ordering::Acquire) == 2);
            count.store(peer.free_frames(), Ordering::Relaxed);
            done.fetch_add(1, Ordering::AcqRel);
        }
        // A thread that ends drains its private pages, which is not allowed while frames are
        // counted.
        wait_until(|| done.load(Ordering::Acquire) == 3);
    });
    let after = after.load(Ordering::Relaxed);
    assert_eq!(after, usable, "{}: all frames are home", P::NAME);
}

#[test]
fn buddy_system_conforms() {
    conforms::<BuddySystem<11>>();
    conforms::<BuddySystem<33>>();
    conforms::<BuddySystemMutex>();
}

#[test]
fn bitmap_conforms() {
    conforms::<Bitmap>();
}

#[test]
fn magazines_conform() {
    conforms::<Magazines>();
}

#[test]
fn ours_conforms() {
    conforms::<Ours<Stock>>();
    conforms::<Ours<Posted>>();
    conforms::<Ours<Blockmap>>();
    conforms::<Ours<BlockmapOrders>>();
    conforms::<Ours<BlockmapRecords>>();
    conforms::<OursOnMachine>();
}
