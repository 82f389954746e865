//! Planted bugs with frames and counters, and the checkers that catch them: some in an allocator
//! that only emits tracepoints, some in the use of the real one.

use crate::common::{Script, config, run_script};
use mmscale_arch::sync::IrqGuard;
use mmscale_arch::{
    CounterEvent, Cpu as _, CpuId, Machine as _, NodeId, Order, PageEvent, Pfn, Trace,
};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::{AllocConfig, FrameAllocator, Gfp, MemoryMap, Violation};
use mmscale_frames::vmstat::NodeItem;
use mmscale_sim::{Failure, Outcome, Rule, Sim};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

type Frames = FrameAllocator<Sim>;

fn order(value: u8) -> Order {
    Order::new(value).expect("an order of the buddy allocator")
}

fn one_task(body: impl FnOnce() + 'static) -> Outcome {
    run_script(config(2), |script| {
        script.spawn(0, body);
    })
}

fn frames() -> Rc<Frames> {
    let map = MemoryMap::single(1 << 15);
    Rc::new(FrameAllocator::new(&map, AllocConfig::default()).expect("the map is sound"))
}

fn take(frames: &Frames) -> Pfn {
    let page = frames.alloc_pages(Order::ZERO, MigrateType::Movable, Gfp::KERNEL);
    page.expect("there is memory")
}

/// The violations of a task that only emits the tracepoints of an allocator.
#[track_caller]
fn caught(rule: Rule, text: &str, body: impl FnOnce() + 'static) {
    let outcome = one_task(body);
    assert_eq!(outcome.failure, None);
    let [violation] = &outcome.violations[..] else { panic!("{:?}", outcome.violations) };
    assert_eq!(violation.rule, rule);
    assert!(violation.what.contains(text), "{violation}");
}

fn alloc_event(pfn: usize, size: u8) {
    Sim::trace(Trace::Page(PageEvent::Alloc { pfn: Pfn::new(pfn), order: order(size) }));
}

fn free_event(pfn: usize, size: u8) {
    Sim::trace(Trace::Page(PageEvent::Free { pfn: Pfn::new(pfn), order: order(size) }));
}

#[test]
fn a_frame_handed_out_twice_is_named() {
    caught(Rule::FrameState, "allocates frame 4098, which is allocated already", || {
        alloc_event(4096, 2);
        alloc_event(4100, 2);
        alloc_event(4098, 1);
    });
}

#[test]
fn a_frame_taken_back_twice_is_named() {
    caught(Rule::FrameState, "frees frame 7, which is not allocated", || {
        alloc_event(7, 0);
        free_event(7, 0);
        free_event(7, 0);
    });
}

#[test]
fn a_frame_used_after_it_was_freed_is_named() {
    let uses: [fn(Pfn); 3] = [
        |pfn| Sim::write_stamp(pfn, 1),
        |pfn| _ = Sim::read_stamp(pfn),
        |pfn| Sim::clear_block(pfn, Order::ZERO),
    ];
    for use_it in uses {
        caught(Rule::FrameState, "which is free", move || {
            let frames = frames();
            let page = take(&frames);
            use_it(page);
            frames.free_pages(page, Order::ZERO);
            use_it(page);
        });
    }
}

#[test]
fn a_frame_freed_twice_ends_the_run_with_its_number_and_place() {
    let outcome = one_task(|| {
        let frames = frames();
        let page = take(&frames);
        frames.free_pages(page, Order::ZERO);
        frames.free_pages(page, Order::ZERO);
    });
    let Some(Failure::Panic { message, location }) = outcome.failure else { panic!("no panic") };
    assert!(message.contains("freed twice: it is Cached already"), "{message}");
    assert_eq!(location.path, ["free_pages"]);
}

/// A task frees a page that it does not own; the next owner writes to it.
#[test]
fn a_stamp_that_changes_under_its_owner_is_seen() {
    for planted in [false, true] {
        let changed = Rc::new(Cell::new(false));
        let seen = Rc::clone(&changed);
        let outcome = run_script(config(2), |script| {
            let (frames, shelf) = (frames(), Rc::new(Cell::new(None)));
            let (ours, mine) = (Rc::clone(&frames), Rc::clone(&shelf));
            script.spawn(0, move || {
                let page = take(&ours);
                Sim::write_stamp(page, 0xa);
                mine.set(Some(page));
                Sim::user(100_000);
                seen.set(Sim::read_stamp(page) != 0xa);
            });
            script.spawn(1, move || {
                Sim::user(50_000);
                if planted && let Some(page) = shelf.get() {
                    frames.free_pages(page, Order::ZERO);
                }
                Sim::write_stamp(take(&frames), 0xb);
            });
        });
        assert_eq!((outcome.failure, outcome.violations), (None, vec![]));
        assert_eq!(changed.get(), planted);
    }
}

fn delta(cpu: usize, old: i8, new: i8, threshold: u8) {
    let cpu = CpuId::new(cpu);
    Sim::trace(Trace::Counter(CounterEvent::Delta {
        cpu,
        domain: 0x8001,
        item: 3,
        old,
        new,
        folded: 0,
        threshold,
    }));
}

#[test]
fn a_byte_past_its_threshold_is_named() {
    let text = "cpu0's byte of counter 3 of node 1 is -15, past its threshold 14";
    caught(Rule::CounterDrift, text, || {
        delta(0, 0, 14, 14);
        delta(0, 14, -15, 14);
    });
}

#[test]
fn a_byte_that_changes_unseen_is_named() {
    let text = "cpu1's byte of counter 3 of node 1 changed without a tracepoint: it was 5 and is 4";
    caught(Rule::CounterDrift, text, || {
        delta(1, 0, 5, 125);
        delta(1, 4, 0, 125);
    });
}

/// CPU 1 allocates and counts, then goes offline. `dead` decides which part of its state is taken
/// over. Returns the allocator's own verdict too.
fn unplug(dead: impl Fn(&Frames) + 'static) -> (Outcome, Option<Violation>) {
    let verdict = Rc::new(RefCell::new(None));
    let said = Rc::clone(&verdict);
    let outcome = run_script(config(2), |script: &Rc<Script>| {
        let frames = frames();
        let (on_one, at_death) = (Rc::clone(&frames), Rc::clone(&frames));
        *script.on_dead.borrow_mut() = Some(Box::new(move || dead(&at_death)));
        script.spawn(1, move || {
            on_one.free_pages(take(&on_one), Order::ZERO);
            let off = IrqGuard::<Sim>::new();
            on_one.stats().mod_node(&off, NodeId::new(0), NodeItem::FilePages, 3);
        });
        script.spawn(0, move || {
            Sim::user(1_000_000);
            assert_eq!(Sim::cpu_offline(CpuId::new(1)), Ok(()));
            *said.borrow_mut() = frames.verify().err();
        });
    });
    assert_eq!(outcome.failure, None);
    let verdict = verdict.take();
    (outcome, verdict)
}

#[test]
fn a_counter_lost_on_hotplug_is_named() {
    let one = CpuId::new(1);
    let (fine, verdict) = unplug(move |frames| frames.cpu_dead(one));
    assert_eq!((fine.violations, verdict), (vec![], None));
    // The pages are taken over, the counters are not.
    let (lost, verdict) = unplug(move |frames| _ = frames.drain_pages(one));
    assert_eq!(verdict, Some(Violation::LeftBehind(one)));
    let [violation] = &lost.violations[..] else { panic!("{:?}", lost.violations) };
    assert_eq!(violation.rule, Rule::LeftBehind);
    assert!(violation.what.contains("cpu1 went offline and leaves"), "{violation}");
    assert!(violation.what.contains("3 in counter 6 of node 0"), "{violation}");
    assert!(!violation.what.contains("cached"), "{violation}");
}

#[test]
fn pages_lost_on_hotplug_are_named() {
    let one = CpuId::new(1);
    let (lost, verdict) = unplug(move |frames| _ = frames.stats().fold_dead(one));
    assert_eq!(verdict, Some(Violation::LeftBehind(one)));
    let [violation] = &lost.violations[..] else { panic!("{:?}", lost.violations) };
    assert!(violation.what.contains("pages cached of zone 0"), "{violation}");
    assert!(!violation.what.contains("in counter"), "{violation}");
}
