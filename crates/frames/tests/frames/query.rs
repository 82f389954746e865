//! Questions about frames, pageblocks and free pages, compared with an oracle.

use crate::frames::oracle::{Oracle, depth};
use crate::frames::parts::{PAGES, START, boot, configs};
use crate::frames::random::Random;
use mmscale_arch::{Order, Pfn};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::{AllocConfig, FrameAllocator, FrameUse, Gfp, Records};
use mmscale_stepped::{self as stepped, Stepped};

type Frames = FrameAllocator<Stepped>;

/// Checks each frame, each pageblock and the counts.
fn check(frames: &Frames, oracle: &Oracle) {
    let (audit, count) = (frames.verify().unwrap(), frames.count_free());
    assert_eq!((count.in_zones, count.in_caches), (audit.free, audit.cached));
    assert_eq!(count.total(), u64::from(PAGES) - audit.held - audit.isolated - audit.offline);
    let mut held: Vec<Option<Order>> = vec![None; PAGES as usize];
    for (first, order) in oracle.blocks() {
        held[first - START..][..order.pages()].fill(Some(order));
    }
    let [mut free, mut cached] = [0; 2];
    for (pfn, held) in (START..).map(Pfn::new).zip(held) {
        match (frames.frame_use(pfn).expect("the zone has it"), held) {
            (FrameUse::Held(Some(order)), Some(of)) => assert_eq!(order, of, "{pfn:?}"),
            (FrameUse::Held(None), Some(of)) => {
                assert!(of < Order::PAGEBLOCK && frames.config().records == Records::None);
            }
            (FrameUse::Cached, None) => cached += 1,
            (FrameUse::Free(order), None) => {
                free += 1;
                let block = pfn.align_down(order);
                let same = frames.frame_use(block.offset(order.pages() - 1));
                assert_eq!(same, Some(FrameUse::Free(order)), "{pfn:?}");
            }
            (FrameUse::Isolated | FrameUse::Offline, None) => {}
            (said, held) => panic!("frame {}: {said:?}, but {held:?}", pfn.index()),
        }
    }
    assert_eq!((free, cached), (audit.free, audit.cached));
    let ends = START..START + PAGES as usize;
    for outside in [ends.start - 1, ends.end] {
        assert_eq!(frames.frame_use(Pfn::new(outside)), None);
        assert_eq!(frames.pageblock(Pfn::new(outside)), None);
    }
    let blocks = (ends.start / 512..ends.end.div_ceil(512)).map(|block| {
        let pfn = Pfn::new((block * 512).max(ends.start));
        frames.pageblock(pfn).expect("the zone has it")
    });
    let blocks: Vec<_> = blocks.collect();
    assert_eq!(blocks.iter().map(|block| block.pages).sum::<u32>(), PAGES);
    let free = blocks.iter().map(|block| u64::from(block.free)).sum::<u64>();
    assert_eq!(free, audit.free + audit.isolated);
    assert!(blocks.iter().all(|block| {
        let least = block.largest.map_or(0, |order| order.pages().min(block.pages as usize));
        block.largest.is_some() == (block.free > 0) && block.free as usize >= least
    }));
}

fn random_states(config: AllocConfig, seed: u64) {
    let (frames, mut oracle, mut random) = (boot(config), Oracle::default(), Random(seed));
    check(&frames, &oracle);
    for step in 0..6000 * depth() {
        if step % 50 == 0 {
            stepped::set_cpu(random.below(2));
        }
        let of = Order::new(random.below(11) as u8).unwrap();
        if oracle.pages < u64::from(PAGES) / 2 && random.below(2) == 0 {
            let wanted = MigrateType::from_index(random.below(3));
            let taken = frames.alloc_pages(of, wanted, Gfp::KERNEL);
            taken.into_iter().for_each(|pfn| oracle.add(pfn, of));
        } else if let Some((pfn, of)) = oracle.take(random.next() as usize) {
            frames.free_pages(pfn, of);
        }
        if step % 2000 == 0 {
            check(&frames, &oracle);
        }
    }
    check(&frames, &oracle);
    let block = (START / 512 + 5) * 512;
    frames.isolate_pageblock(Pfn::new(block)).unwrap();
    assert!(frames.pageblock(Pfn::new(block)).unwrap().isolated);
    check(&frames, &oracle);
    oracle.blocks().for_each(|(pfn, of)| frames.free_pages(Pfn::new(pfn), of));
    frames.drain_all();
    frames.offline_pageblock(Pfn::new(block)).unwrap();
    let offline = frames.pageblock(Pfn::new(block)).unwrap();
    assert!(offline.offline && !offline.isolated && offline.free == 0);
    check(&frames, &Oracle::default());
    frames.online_pageblock(Pfn::new(block)).unwrap();
    check(&frames, &Oracle::default());
}

#[test]
fn every_frame_and_pageblock_is_what_the_oracle_says() {
    configs().for_each(|config| (70..72).for_each(|seed| random_states(config, seed)));
}

#[test]
fn a_pageblock_has_the_type_of_its_pages() {
    for config in configs() {
        let frames = boot(config);
        for wanted in MigrateType::ALL {
            let pfn = frames.alloc_pages(Order::ZERO, wanted, Gfp::KERNEL).unwrap();
            assert_eq!(frames.pageblock(pfn).unwrap().migrate_type, wanted, "{config:?}");
        }
    }
}
