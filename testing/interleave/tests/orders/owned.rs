//! Page caches that own pageblocks: pages that return to their owner while it refills, is drained
//! by another CPU, goes offline, or loses the pageblock to isolation.

use mmscale_arch::{CpuId, Order, Pfn};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::{AllocConfig, FrameAllocator, Gfp, MemoryMap, PcpPolicy};
use mmscale_frames::zone::ZoneId;
use mmscale_interleave::{CpuBody, Model, check, cpu_body, run, set_online};
use std::sync::Arc;

/// Enough for page caches in which a pageblock fits.
const PAGES: u32 = 1 << 19;
const OWNER: CpuId = CpuId::new(0);
const SCHEDULES: usize = 400;
const EIGHT: Order = match Order::new(3) {
    Some(order) => order,
    None => Order::ZERO,
};

type Frames = FrameAllocator<Model>;

fn alloc(frames: &Frames) -> Pfn {
    let page = frames.alloc_pages(Order::ZERO, MigrateType::Movable, Gfp::KERNEL);
    page.expect("there is memory")
}

fn free(frames: &Frames, pages: &[Pfn]) {
    pages.iter().for_each(|&page| frames.free_pages(page, Order::ZERO));
}

/// CPU 0 owns the pageblock of which it has allocated all but two pages. `bodies` receive some of
/// those pages and are what the CPUs do with them. Afterwards all other pages are freed, the
/// structures must be consistent, and the pageblock whole again.
fn scenario(bodies: impl Fn(&Arc<Frames>, &[Pfn]) -> Vec<CpuBody> + Send + Sync + 'static) {
    check(SCHEDULES, move || {
        let (mut made, mut rest) = (None, Vec::new());
        run(3, || {
            let config = AllocConfig { caches: PcpPolicy::Posted, ..AllocConfig::default() };
            let frames = Arc::new(Frames::new(&MemoryMap::single(PAGES), config).expect("sane"));
            // All but two pages of a pageblock.
            let pages: Vec<Pfn> = (0..6).map(|_| alloc(&frames)).collect();
            let large = || frames.alloc_pages(EIGHT, MigrateType::Movable, Gfp::KERNEL);
            rest = (0..63).map(|_| large().expect("there is memory")).collect();
            let owner = frames.inspect_buddy(ZoneId::new(0), |buddy| buddy.owner(pages[0]));
            assert_eq!(owner, Some(OWNER));
            made = Some(Arc::clone(&frames));
            (None, bodies(&frames, &pages))
        });
        let frames = made.expect("it was built");
        let audit = frames.verify().expect("everything adds up");
        assert_eq!(audit.held, (rest.len() * EIGHT.pages()) as u64);
        // The caller is on CPU 0.
        set_online(OWNER.index(), true);
        rest.iter().for_each(|&pfn| frames.free_pages(pfn, EIGHT));
        frames.drain_all();
        let audit = frames.verify().expect("everything adds up");
        assert_eq!(audit.free + audit.isolated, PAGES.into());
        if audit.isolated == 0 {
            let whole = frames.inspect_buddy(ZoneId::new(0), |buddy| buddy.free_blocks(Order::MAX));
            assert_eq!(whole, PAGES >> Order::MAX.get());
        }
    });
}

fn body(frames: &Arc<Frames>, f: impl FnOnce(&Frames) + Send + 'static) -> CpuBody {
    let frames = Arc::clone(frames);
    cpu_body(move || f(&frames))
}

/// Allocates more than is cached, and frees.
fn refill(frames: &Frames) {
    let pages: Vec<Pfn> = (0..6).map(|_| alloc(frames)).collect();
    let mut seen = pages.clone();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), pages.len(), "one frame for two");
    free(frames, &pages);
}

#[test]
fn pages_come_home_while_their_owner_refills_and_is_drained() {
    scenario(|frames, pages| {
        let (some, others) = (pages[..4].to_vec(), pages[4..].to_vec());
        vec![
            body(frames, refill),
            body(frames, move |frames| free(frames, &some)),
            body(frames, move |frames| {
                frames.drain_pages(OWNER);
                free(frames, &others);
            }),
        ]
    });
}

#[test]
fn two_cpus_free_to_a_third_that_is_busy() {
    scenario(|frames, pages| {
        let (some, others) = (pages[..3].to_vec(), pages[3..].to_vec());
        vec![
            body(frames, refill),
            body(frames, move |frames| free(frames, &some)),
            body(frames, move |frames| free(frames, &others)),
        ]
    });
}

#[test]
fn no_page_comes_home_to_a_cpu_that_is_gone() {
    scenario(|frames, pages| {
        let (some, others) = (pages[..3].to_vec(), pages[3..].to_vec());
        vec![
            body(frames, |_| {}),
            body(frames, move |frames| {
                set_online(OWNER.index(), false);
                frames.cpu_dead(OWNER);
                free(frames, &some);
            }),
            body(frames, move |frames| free(frames, &others)),
        ]
    });
}

#[test]
fn nothing_of_an_isolated_pageblock_stays_cached() {
    scenario(|frames, pages| {
        let target = pages[0];
        let (some, others) = (pages[..3].to_vec(), pages[3..].to_vec());
        vec![
            body(frames, move |frames| {
                free(frames, &[alloc(frames)]);
                free(frames, &some);
            }),
            body(frames, move |frames| {
                frames.isolate_pageblock(target).expect("no other task isolates it");
            }),
            body(frames, move |frames| free(frames, &others)),
        ]
    });
}
