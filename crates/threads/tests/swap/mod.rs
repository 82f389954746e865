//! Swap and reclaim with real memory, a real file and real threads.

use crate::common::{config, run, task};
use mmscale_arch::sync::PreemptGuard;
use mmscale_arch::{
    CpuId, IoDirection, IoDone, Ipi, Machine as _, NodeId, PageIo, Pfn, Priority, TaskEntry,
};
use mmscale_frames::page_alloc::MemoryMap;
use mmscale_mm::lru::LruPolicy;
use mmscale_mm::mm::{KSWAPD, MM_TASK, MmConfig};
use mmscale_mm::swap::SwapConfig;
use mmscale_mm::vmstat_work::TickPolicy;
use mmscale_threads::{Outcome, Threads, ThreadsConfig};
use paged::Paged;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

#[path = "../../../mm/tests/reclaim/paged.rs"]
#[expect(dead_code, reason = "other tests use more of it")]
mod paged;
#[path = "../../../mm/tests/reclaim/storm.rs"]
mod storm;

#[test]
fn the_file_returns_what_was_written_and_completes_by_interrupt() {
    let heard: Arc<Mutex<Vec<IoDone>>> = Arc::default();
    let keep = Arc::clone(&heard);
    let outcome = run(&config(1), |kernel| {
        kernel.on_ipi(move |reason| {
            assert!(reason == Ipi::Block && Threads::in_interrupt());
            keep.lock().unwrap().extend(core::iter::from_fn(Threads::io_done));
        });
        task(kernel, 0, || {
            let ask = |direction, block, pfn| {
                let _pinned = PreemptGuard::<Threads>::new();
                Threads::io_submit(PageIo { direction, block, pfn: Pfn::new(pfn) }).expect("room");
            };
            Threads::write_stamp(Pfn::new(3), 33);
            assert!(!Threads::is_zero(Pfn::new(3)) && Threads::is_zero(Pfn::new(5)));
            // The last word of the page counts too.
            Threads::table_store(Pfn::new(5), 511, 55);
            assert!(!Threads::is_zero(Pfn::new(5)));
            ask(IoDirection::Write, 9, 5);
            ask(IoDirection::Write, 7, 3);
            ask(IoDirection::Read, 9, 3);
            assert_eq!(Threads::read_stamp(Pfn::new(3)), 0);
            assert_eq!(Threads::table_load(Pfn::new(3), 511), 55);
            ask(IoDirection::Read, 7, 3);
            assert_eq!(Threads::read_stamp(Pfn::new(3)), 33);
            ask(IoDirection::Read, 1_000, 3);
            assert_eq!(Threads::read_stamp(Pfn::new(3)), 0, "it was never written");
        });
    });
    assert_eq!(outcome.failure, None);
    let failed: Vec<bool> = heard.lock().unwrap().iter().map(|done| done.failed).collect();
    assert_eq!(failed, [false; 5]);
}

const CPUS: usize = 3;
const EACH: usize = 1_600;
const FRAMES: u32 = 3_072;

struct World {
    paged: Paged<Threads>,
    left: AtomicU32,
}

/// Forwards the callbacks of the machine.
struct Kernel(Arc<World>);

impl mmscale_arch::Callbacks for Kernel {
    fn ipi(&self, reason: Ipi) {
        match reason {
            Ipi::Block => self.0.paged.swap.io_interrupt(self.0.paged.memory()),
            _ => self.0.paged.mm.ipi(reason),
        }
    }
    fn timer(&self) {
        self.0.paged.mm.timer();
    }
    fn idle_enter(&self) {
        self.0.paged.mm.idle_enter();
    }
    fn idle_exit(&self) {
        self.0.paged.mm.idle_exit();
    }
    fn context_switch(&self) {
        self.0.paged.mm.context_switch();
    }
    fn task(&self, entry: TaskEntry) {
        let paged = &self.0.paged;
        match entry.0 {
            // The memory manager's own would search address spaces for pages.
            own if own & KSWAPD != 0 => paged.reclaim.kswapd(paged.scope(), NodeId::new(0)),
            own if own & MM_TASK != 0 => _ = paged.mm.task(entry),
            0 => self.first(),
            program => {
                let at = program as usize - 1;
                storm::storm(paged, at * EACH, EACH, 20_000, program);
                self.0.left.fetch_sub(1, SeqCst);
            }
        }
    }
    fn cpu_dying(&self) -> bool {
        self.0.paged.mm.cpu_dying()
    }
    fn cpu_down_prepare(&self, cpu: CpuId) {
        self.0.paged.mm.cpu_down_prepare(cpu);
    }
    fn cpu_dead(&self, cpu: CpuId) {
        self.0.paged.mm.cpu_dead(cpu);
        self.0.paged.swap.cpu_dead(self.0.paged.memory(), cpu);
        self.0.paged.swap.io_interrupt(self.0.paged.memory());
    }
    fn cpu_online(&self, cpu: CpuId) {
        self.0.paged.mm.cpu_online(cpu);
    }
}

fn spawn(cpu: usize, entry: u64) {
    let (cpu, entry) = (CpuId::new(cpu), TaskEntry(entry));
    let spec = mmscale_arch::TaskSpec { cpu, per_cpu: false, priority: Priority::Fair, entry };
    Threads::spawn(spec);
}

impl Kernel {
    /// Starts the other programs, takes a CPU offline and back, and checks the end state.
    fn first(&self) {
        let paged = &self.0.paged;
        paged.mm.start().expect("there is memory to start with");
        (0..CPUS).for_each(|cpu| spawn(cpu, 1 + cpu as u64));
        while self.0.left.load(SeqCst) > 0 {
            paged.mm.sleep_ns(5_000_000);
            Threads::cpu_offline(CpuId::new(2)).expect("it is online");
            paged.mm.sleep_ns(5_000_000);
            Threads::cpu_online(CpuId::new(2)).expect("it is offline");
        }
        paged.reclaim.stop(paged.memory());
        paged.audit();
        paged.mm.shutdown();
        paged.end();
    }
}

fn pressure(lru: LruPolicy) -> (Outcome, Arc<World>) {
    let mut kept = None;
    let config = ThreadsConfig { memory_pages: u64::from(FRAMES), ..config(CPUS) };
    let keep = &mut kept;
    let outcome = mmscale_threads::run(
        &config,
        |_| crate::common::deaf(),
        || {
            let mut config = MmConfig::new(MemoryMap::single(FRAMES), TickPolicy::Stock);
            config.lru = lru;
            let swap = SwapConfig { pages: 8_192, ..SwapConfig::default() };
            let paged = Paged::new(&config, swap, CPUS * EACH);
            let world = Arc::new(World { paged, left: AtomicU32::new(CPUS as u32) });
            *keep = Some(Arc::clone(&world));
            spawn(0, 0);
            Arc::new(Kernel(world))
        },
    );
    (outcome, kept.expect("it was built"))
}

#[test]
fn programs_larger_than_memory_find_their_pages_in_a_file() {
    for lru in [LruPolicy::Stock, LruPolicy::Lazy] {
        let (outcome, world) = pressure(lru);
        assert_eq!(outcome.failure, None, "{lru:?}");
        let found = world.paged.swap.counters();
        assert!(found.writes > 1_000 && found.reads > 1_000, "{lru:?} {found:?}");
        assert_eq!((found.write_errors, found.read_errors), (0, 0));
    }
}
