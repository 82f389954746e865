//! The memory of compressed pages: objects against a list of those in use, deferred frees,
//! failures.

use crate::swap::machine::Machine;
use mmscale_arch::{CpuId, LockClass};
use mmscale_frames::page_alloc::{AllocConfig, FrameAllocator, MemoryMap};
use mmscale_mm::folio::FolioFlags;
use mmscale_mm::swap::{SwapConfig, SwapDevice, WriteOut};
use mmscale_mm::zsmalloc::{
    Drain, FreePolicy, Handle, LookupPolicy, PagesPolicy, ZsAudit, ZsConfig, ZsViolation, Zsmalloc,
};
use mmscale_stepped::{self as stepped, Stepped};

const CPUS: usize = 3;

fn policies() -> impl Iterator<Item = ZsConfig> {
    LookupPolicy::ALL.into_iter().flat_map(|lookup| {
        [PagesPolicy::Stock, PagesPolicy::After].into_iter().flat_map(move |pages| {
            [FreePolicy::Stock, FreePolicy::Deferred].map(|free| ZsConfig { lookup, pages, free })
        })
    })
}

fn boot(config: ZsConfig) -> (FrameAllocator<Stepped>, Zsmalloc<Stepped>) {
    stepped::boot(CPUS, 1000);
    let map = MemoryMap::single(1 << 13);
    let frames = FrameAllocator::new(&map, AllocConfig::default()).expect("the map is sound");
    (frames, Zsmalloc::new(config))
}

/// Frees what is deferred, and checks that no page is left.
fn end(frames: &FrameAllocator<Stepped>, pool: &Zsmalloc<Stepped>) {
    while pool.drain(frames) == Drain::Needed {}
    (0..CPUS).for_each(|cpu| pool.drain_stopped(frames, CpuId::new(cpu)));
    assert_eq!(pool.verify(core::iter::empty()), Ok(ZsAudit::default()));
    (0..CPUS).map(CpuId::new).for_each(|cpu| {
        frames.drain_pages(cpu);
    });
    assert_eq!(frames.verify().expect("the frames add up").held, 0);
}

fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

#[test]
fn objects_in_use_are_those_that_were_allocated() {
    for (seed, config) in policies().enumerate() {
        let (frames, pool) = boot(config);
        let (mut held, mut state) = (Vec::<Handle>::new(), seed as u64);
        for step in 0..20_000 {
            stepped::set_cpu(next(&mut state) as usize % CPUS);
            // The number in use rises and falls, so zspages of all groups are there.
            let grows = next(&mut state) % 8 < if step / 4_000 % 2 == 0 { 5 } else { 3 };
            if grows || held.is_empty() {
                let grains = 1 + next(&mut state) as usize % 256;
                held.push(pool.alloc(&frames, grains).expect("there is memory"));
            } else {
                let handle = held.swap_remove(next(&mut state) as usize % held.len());
                if pool.free(&frames, handle) == Drain::Needed && next(&mut state).is_multiple_of(3)
                {
                    let _ = pool.drain(&frames);
                }
            }
            if step % 500 == 0 {
                let audit = pool.verify(held.iter().copied()).expect("it adds up");
                assert_eq!(audit.objects, held.len() as u64 + audit.deferred, "{config:?}");
                assert_eq!(audit.deferred > 0, config.free == FreePolicy::Deferred && step > 0);
            }
        }
        held.iter().for_each(|&handle| pool.free_now(&frames, handle));
        end(&frames, &pool);
    }
}

/// Objects of one size fill the fullest zspage first, so few pages are in use after frees.
#[test]
fn an_allocation_fills_the_fullest_zspage() {
    let (frames, pool) = boot(ZsConfig::default());
    // 128 256ths: two objects a page.
    let mut held: Vec<_> = (0..200).map(|_| pool.alloc(&frames, 128).expect("memory")).collect();
    let pages = |held: &[Handle]| pool.verify(held.iter().copied()).expect("it adds up").pages;
    assert_eq!(pages(&held), 100);
    for at in (0..100).rev() {
        let _ = pool.free(&frames, held.remove(2 * at));
    }
    assert_eq!(pages(&held), 100, "each page has one object");
    held.extend((0..100).map(|_| pool.alloc(&frames, 128).expect("memory")));
    assert_eq!(pages(&held), 100);
    held.iter().for_each(|&handle| pool.free_now(&frames, handle));
    end(&frames, &pool);
}

#[test]
fn wrong_names_of_objects_are_found() {
    let (frames, pool) = boot(ZsConfig::default());
    let [first, second] = [40, 90].map(|grains| pool.alloc(&frames, grains).expect("memory"));
    assert_eq!(Handle::of_word(first.word()), Some(first));
    assert_eq!(Handle::of_word(0), None);
    let found = |named: &[Handle]| pool.verify(named.iter().copied());
    assert_eq!(found(&[first, second]).map(|audit| audit.objects), Ok(2));
    assert_eq!(found(&[first, first]), Err(ZsViolation::Object(first)));
    assert_eq!(found(&[first]), Err(ZsViolation::Objects { named: 1, inuse: 2 }));
    pool.free_now(&frames, second);
    assert_eq!(found(&[first, second]), Err(ZsViolation::Object(second)));
    pool.free_now(&frames, first);
    end(&frames, &pool);
}

#[test]
#[should_panic(expected = "is freed twice")]
fn an_object_that_is_freed_twice_is_found() {
    let (frames, pool) = boot(ZsConfig::default());
    let [first, _second] = [40, 40].map(|grains| pool.alloc(&frames, grains).expect("memory"));
    pool.free_now(&frames, first);
    pool.free_now(&frames, first);
}

/// A CPU has a buffer of 512 handles, and 64 more are in the pool. After that the caller frees.
#[test]
fn without_a_free_buffer_the_caller_frees() {
    let config = ZsConfig { free: FreePolicy::Deferred, ..ZsConfig::default() };
    let (frames, pool) = boot(config);
    let (buffer, all) = (512, 512 * 65);
    let mut held: Vec<_> = (0..all + 10).map(|_| pool.alloc(&frames, 2).expect("memory")).collect();
    let mut needed = 0;
    for handle in held.drain(..) {
        needed += usize::from(pool.free(&frames, handle) == Drain::Needed);
    }
    assert_eq!(needed, 64, "a full buffer is reported once");
    let audit = || pool.verify(core::iter::empty()).expect("it adds up");
    assert_eq!(audit().deferred, all as u64, "the last ten were freed");
    assert_eq!(pool.drain(&frames), Drain::Needed, "a drain does half of the pool");
    assert_eq!(audit().deferred, (all - 32 * buffer) as u64);
    // The buffers are usable again.
    let more = pool.alloc(&frames, 2).expect("memory");
    assert_eq!(pool.free(&frames, more), Drain::Needed);
    assert_eq!(pool.drain(&frames), Drain::Needed);
    assert_eq!(pool.drain(&frames), Drain::NotNeeded);
    end(&frames, &pool);
}

/// Linux 6.2 to 6.10 has one lock over each allocation and each free, and other versions none.
#[test]
fn one_lock_is_over_all_of_the_pool_with_its_policy_only() {
    for lookup in LookupPolicy::ALL {
        let (frames, pool) = boot(ZsConfig { lookup, ..ZsConfig::default() });
        let taken = || stepped::lock_acquisitions(LockClass::ZsPool);
        let before = taken();
        let handle = pool.alloc(&frames, 43).expect("there is memory");
        let allocated = taken();
        pool.free_now(&frames, handle);
        // Without a zspage the lock is released for its pages, and taken again.
        let expected = if lookup == LookupPolicy::Pool { [2, 1] } else { [0, 0] };
        assert_eq!([allocated - before, taken() - allocated], expected, "{lookup:?}");
        end(&frames, &pool);
    }
}

#[test]
fn a_zspage_that_gets_too_few_pages_returns_them() {
    let (frames, pool) = boot(ZsConfig::default());
    // Objects of 43 256ths: 47 in 8 pages.
    for allowed in 0..3 {
        stepped::fail_alloc_after(allowed);
        assert!(pool.alloc(&frames, 43).is_err(), "the zspage has several pages");
    }
    end(&frames, &pool);
}

/// A slot's compressed page is replaced when its folio is written again, and freed with it.
#[test]
fn a_slot_has_one_compressed_page_at_most() {
    for zs in policies() {
        let machine = Machine::boot_with(
            CPUS,
            SwapConfig { pages: 600, device: SwapDevice::Compressed, zs, ..SwapConfig::default() },
        );
        let entries: Vec<_> = (1..=300).map(|stamp| machine.out(stamp)).collect();
        assert_eq!(machine.audit().compressed.objects, 300);
        // It is written to and written out again, to the same slot.
        let pfn = machine.read(entries[0]).expect("it is there");
        machine.swap.lock_folio(machine.memory(), pfn);
        assert_eq!(machine.swap.write_out(machine.memory(), pfn), WriteOut::Stored);
        let audit = machine.audit().compressed;
        assert_eq!(audit.objects - audit.deferred, 300);
        machine.memory().put(pfn);
        // Without memory for a zspage the page stays dirty, and its slot has no compressed page.
        let failed = (1_000..1_100).any(|stamp| {
            let before = machine.audit().compressed.objects;
            let (pfn, entry) = machine.to_cache(stamp);
            stepped::fail_allocs(1);
            assert_eq!(machine.swap.write_out(machine.memory(), pfn), WriteOut::Stored);
            let failed = stepped::failures_left() == 0;
            stepped::fail_allocs(0);
            assert_eq!(machine.word(pfn).has(FolioFlags::DIRTY), failed);
            assert_eq!(machine.audit().compressed.objects == before, failed);
            machine.free(entry);
            machine.memory().put(pfn);
            failed
        });
        assert!(failed, "a size class was full");
        entries.iter().for_each(|&entry| machine.free(entry));
        machine.end();
    }
}
