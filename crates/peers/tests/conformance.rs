//! Every allocator in the benchmark is one: blocks are aligned, disjoint, and come back.

use mmscale_peers::peer::{Bitmap, BuddySystem, BuddySystemMutex, Magazines, Peer};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

const FRAMES: usize = 1 << 14;

/// Adds a block to the ones that are out; panics if it overlaps one.
fn enter(out: &mut BTreeMap<u32, u32>, frame: u32, order: u8) {
    let end = frame + (1 << order);
    assert!(frame.is_multiple_of(1 << order), "{frame} is aligned to order {order}");
    assert!(end as usize <= FRAMES, "{frame} of order {order} is inside");
    let overlap = out.range(..end).next_back().filter(|(_, other)| **other > frame);
    assert_eq!(overlap, None, "{frame} of order {order} is out already");
    out.insert(frame, end);
}

fn conforms<P: Peer>() {
    // Some keep their own data in the frames that they are given.
    let usable = count_free(&P::new(FRAMES));
    assert!(usable > FRAMES * 9 / 10, "{}: {usable} frames", P::NAME);
    let peer = P::new(FRAMES);
    let out = Mutex::new(BTreeMap::new());
    peer.run(2, &|thread| {
        let mut held = Vec::new();
        for step in 0..4000usize {
            let order = (step * 7 + thread) as u8 % 4;
            let frame = peer.alloc(order).expect("far fewer than all frames are out");
            enter(&mut out.lock().expect("no panic"), frame, order);
            held.push((frame, order));
            if step % 3 != 0 {
                let (frame, order) = held.swap_remove(step * 31 % held.len());
                out.lock().expect("no panic").remove(&frame);
                peer.free(frame, order);
            }
        }
        for (frame, order) in held {
            out.lock().expect("no panic").remove(&frame);
            peer.free(frame, order);
        }
    });
    assert_eq!(count_free(&peer), usable, "{}: all frames are home", P::NAME);
}

/// Takes single frames until there are none.
fn count_free(peer: &impl Peer) -> usize {
    let count = AtomicUsize::new(0);
    peer.run(1, &|_| {
        while peer.alloc(0).is_some() {
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    count.into_inner()
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
