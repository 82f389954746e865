//! Compressed pages: CPUs allocate and free objects of one zspage, in every order.

use mmscale_arch::CpuId;
use mmscale_frames::page_alloc::{AllocConfig, FrameAllocator, MemoryMap};
use mmscale_interleave::{Model, check, cpu_body, run};
use mmscale_mm::zsmalloc::{
    Drain, FreePolicy, Handle, LookupPolicy, PagesPolicy, ZsAudit, ZsConfig, Zsmalloc,
};
use std::sync::Arc;

/// An object of half a page: two are a zspage of one page.
const HALF: usize = 128;

struct World {
    frames: FrameAllocator<Model>,
    pool: Zsmalloc<Model>,
}

impl World {
    fn alloc(&self) -> Handle {
        self.pool.alloc(&self.frames, HALF).expect("there is memory")
    }
    /// Frees an object; drains what is deferred so far, as a worker would.
    fn free(&self, handle: Handle) {
        if self.pool.free(&self.frames, handle) == Drain::Needed {
            let _ = self.pool.drain(&self.frames);
        }
    }
    /// Frees the last object of a zspage, and the first of the next.
    fn churn(&self) {
        let (a, b) = (self.alloc(), self.alloc());
        assert_ne!(a, b, "one object for two");
        self.free(a);
        let c = self.alloc();
        assert_ne!(b, c, "one object for two");
        self.free(b);
        self.free(c);
    }
}

fn churn_on_two_cpus(config: ZsConfig) {
    check(150, move || {
        let mut made = None;
        run(2, || {
            let map = MemoryMap::single(4096);
            let frames = FrameAllocator::new(&map, AllocConfig::default()).expect("a sane map");
            let world = Arc::new(World { frames, pool: Zsmalloc::new(config) });
            made = Some(Arc::clone(&world));
            let body = |world: Arc<World>| cpu_body(move || world.churn());
            (None, vec![body(Arc::clone(&world)), body(world)])
        });
        let World { frames, pool } = &*made.expect("it was built");
        (0..2).for_each(|cpu| pool.drain_stopped(frames, CpuId::new(cpu)));
        assert_eq!(pool.verify(core::iter::empty()), Ok(ZsAudit::default()));
        assert_eq!(frames.verify().expect("everything adds up").held, 0);
    });
}

#[test]
fn cpus_share_the_zspages_of_a_class() {
    for lookup in [LookupPolicy::Stock, LookupPolicy::Index] {
        for pages in [PagesPolicy::Stock, PagesPolicy::After] {
            churn_on_two_cpus(ZsConfig { lookup, pages, free: FreePolicy::Stock });
        }
    }
}

#[test]
fn deferred_objects_stay_in_use_until_they_are_freed() {
    churn_on_two_cpus(ZsConfig { free: FreePolicy::Deferred, ..ZsConfig::default() });
}
