//! The whole memory manager on the processors: programs whose loads and stores go through the MMU.

use crate::cpu::Metal;
use crate::per_cpu::MAX_CPUS;
use crate::start::on_all;
use crate::stress::Random;
use crate::{access, callbacks, per_cpu, shadow, tasks};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use mmscale_arch::{Cpu, Order};
use mmscale_frames::frame::MigrateType;
use mmscale_frames::page_alloc::MemoryMap;
use mmscale_kernel::{FinalCheck, Kernel, Os};
use mmscale_mm::mm::MmConfig;
use mmscale_mm::vmstat_work::TickPolicy;
use mmscale_system::{Addr, Advice, Body, MapSpec, Place, Prot, System as _, ThreadSpec};

/// Changes of the mapping that all processors read.
const CHANGES: u64 = 150;
/// Its pages, and the words that each processor reads between two changes.
const PAGES: u64 = 24;
const READS: u64 = 100;
/// Pages of a process that forks, and its forks for each processor.
const FORK_PAGES: u64 = 16;
const FORKS: usize = 8;
/// A word that no program writes into its memory.
const POISON: u64 = 0xdead_0000_dead_0000;

/// The counts of a system that ran.
pub(crate) struct Done {
    /// Changes of the mapping.
    pub(crate) changes: u64,
    /// Words that programs read and compared.
    pub(crate) reads: u64,
    /// Page faults.
    pub(crate) faults: u64,
    /// Interrupts between processors; all were handled.
    pub(crate) interrupts: u64,
    /// Tasks.
    pub(crate) tasks: u64,
}

/// Runs a system whose programs check what they read; then checks that all frames are free and all
/// structures are consistent. With `stale`, the last processor ignores flushes, and a program must
/// find that.
pub(crate) fn run(map: &MemoryMap, stale: bool) -> Done {
    let (faults, (interrupts, _)) = (access::faults(), per_cpu::interrupts_so_far());
    let counts = Arc::new(Mapping::new());
    let seen = Arc::clone(&counts);
    let program: Body<Os> = Box::new(move |os| {
        access::with_system(os, || {
            if stale {
                shadow::plant_stale(os.cpus() - 1);
            }
            change_while_all_read(os, &seen);
            fork_on_all(os);
        });
    });
    let config = MmConfig::new(map.clone(), TickPolicy::default());
    let kernel = Kernel::<Metal>::boot(&config, FinalCheck::Run, program);
    let kernel = kernel.expect("a valid configuration");
    callbacks::with(&kernel, || on_all(&|cpu| tasks::run(cpu)));
    on_all(&|_| per_cpu::check_quiet());
    let (sent, _) = per_cpu::interrupts_so_far();
    Done {
        changes: CHANGES,
        reads: counts.reads.iter().map(|reads| reads.load(Ordering::Relaxed)).sum(),
        faults: access::faults() - faults,
        interrupts: sent - interrupts,
        tasks: tasks::made(),
    }
}

/// A mapping that one thread changes while others read it.
struct Mapping {
    /// Where it is.
    at: AtomicU64,
    /// The number of the present state, twice; plus 1 while it changes.
    epoch: AtomicU64,
    /// By processor: words that were read in a state that stayed.
    reads: [AtomicU64; MAX_CPUS],
    /// Readers that try to write to a protected mapping now.
    writers: AtomicU64,
}

/// The epoch after the last.
const OVER: u64 = u64::MAX - 1;

/// The kinds of states, one after the other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    /// All pages were dropped, and written anew.
    Dropped,
    /// The mapping is new, at the same address.
    Mapped,
    /// The pages are those of the state before, and only readable.
    Protected,
}

impl Change {
    fn of(state: u64) -> Self {
        [Self::Dropped, Self::Mapped, Self::Protected][(state % 3) as usize]
    }
}

/// The word of `page` in a state. A protected mapping has those of the state before.
fn stamp(state: u64, page: u64) -> u64 {
    let written = if Change::of(state) == Change::Protected { state - 1 } else { state };
    written << 16 | page << 1 | 1
}

impl Mapping {
    fn new() -> Self {
        Self {
            at: AtomicU64::new(0),
            epoch: AtomicU64::new(1),
            reads: [const { AtomicU64::new(0) }; MAX_CPUS],
            writers: AtomicU64::new(0),
        }
    }
    fn page(&self, page: u64) -> Addr {
        Addr(self.at.load(Ordering::Relaxed)).page(page)
    }

    /// Makes the next state. When the system calls return, no processor may use an old translation.
    fn change(&self, os: &Os, state: u64) {
        let (at, bytes) = (self.page(0), PAGES * 4096);
        match Change::of(state) {
            Change::Dropped => {
                os.mprotect(at, bytes, Prot::ReadWrite).expect("the mapping is there");
                os.madvise(at, bytes, Advice::DontNeed).expect("the mapping is there");
            }
            Change::Mapped => {
                os.munmap(at, bytes).expect("the mapping is there");
                let new = MapSpec::new(bytes).at(Place::Fixed(at));
                assert!(os.mmap(new) == Ok(at), "mmap did not use the address");
            }
            Change::Protected => {
                os.mprotect(at, bytes, Prot::Read).expect("the mapping is there");
                return;
            }
        }
        poison_free_frames(os);
        for page in 0..PAGES {
            assert!(access::write(self.page(page), stamp(state, page)), "page {page} faults");
        }
    }

    /// Reads pages until the last state is over.
    fn read_until_over(&self, os: &Os, cpu: usize) {
        let mut random = Random::of(cpu as u64, 0, 0);
        loop {
            // Pairs with the stores in `change_while_all_read`.
            let epoch = self.epoch.load(Ordering::Acquire);
            if epoch == OVER {
                break;
            }
            if epoch & 1 != 0 {
                // Lets the tasks of the memory manager run.
                let _ = os.compute_ns(0);
                continue;
            }
            let (state, page) = (epoch / 2, random.below(PAGES as usize) as u64);
            let found = access::read(self.page(page));
            let may_write = Change::of(state) == Change::Protected && self.may_write(epoch, page);
            // The mapping was the same all the time only if the epoch is. Pairs as above.
            if self.epoch.load(Ordering::Acquire) == epoch {
                let wanted = stamp(state, page);
                assert!(
                    found == Some(wanted) && !may_write,
                    "stale translation: state {state}, page {page}: {found:x?} for {wanted:#x}, \
                     writable: {may_write}"
                );
                self.reads[cpu].fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Whether a page of the protected mapping of `epoch` can be written to.
    fn may_write(&self, epoch: u64, page: u64) -> bool {
        // Pairs with `change_while_all_read`: either this sees the new epoch, or the thread that
        // changes the mapping waits for this writer before it makes the mapping writable.
        self.writers.fetch_add(1, Ordering::SeqCst);
        let is_protected = self.epoch.load(Ordering::SeqCst) == epoch;
        let may_write = is_protected && access::write(self.page(page), POISON);
        self.writers.fetch_sub(1, Ordering::SeqCst);
        may_write
    }

    /// Waits until each reader has read [`READS`] more words.
    fn wait_for_readers(&self, os: &Os) {
        for reads in &self.reads[1..os.cpus()] {
            let before = reads.load(Ordering::Relaxed);
            while reads.load(Ordering::Relaxed) < before + READS {
                os.compute_ns(1000).expect("the program runs");
            }
        }
    }
}

/// Writes [`POISON`] into frames that are free: those that were just unmapped are among them.
fn poison_free_frames(os: &Os) {
    let inside = os.inside();
    let frames =
        (0..2 * PAGES).filter_map(|_| inside.alloc_pages(Order::ZERO, MigrateType::Movable).ok());
    let frames: Vec<_> = frames.collect();
    for &frame in &frames {
        use mmscale_arch::Machine as _;
        Metal::write_stamp(frame, POISON);
    }
    frames.into_iter().for_each(|frame| inside.free_pages(frame, Order::ZERO));
}

/// A thread changes a mapping; one on each other processor reads it through its MMU.
fn change_while_all_read(os: &Os, mapping: &Arc<Mapping>) {
    let at = os.mmap(MapSpec::new(PAGES * 4096)).expect("there is memory");
    mapping.at.store(at.0, Ordering::Relaxed);
    let reader = |cpu| {
        let mapping = Arc::clone(mapping);
        let body: Body<Os> = Box::new(move |os| mapping.read_until_over(os, cpu));
        os.spawn(ThreadSpec::on(cpu), body).expect("a thread can start")
    };
    let readers: Vec<_> = (1..os.cpus()).map(reader).collect();
    for state in 3..3 + CHANGES {
        // Pairs with the loads in `read_until_over`: readers see the change only with its epoch.
        mapping.epoch.store(2 * state + 1, Ordering::SeqCst);
        // See `may_write`.
        while mapping.writers.load(Ordering::SeqCst) > 0 {
            os.compute_ns(1000).expect("the program runs");
        }
        mapping.change(os, state);
        mapping.epoch.store(2 * state, Ordering::Release);
        mapping.wait_for_readers(os);
    }
    mapping.epoch.store(OVER, Ordering::Release);
    readers.into_iter().for_each(|reader| os.join(reader).expect("a reader ends"));
    os.munmap(at, PAGES * 4096).expect("the mapping is there");
}

/// A process on each processor forks; parent and child write to the pages that they share, and find
/// their own words.
fn fork_on_all(os: &Os) {
    let start = |cpu| {
        let body: Body<Os> = Box::new(move |os| {
            let at = os.mmap(MapSpec::new(FORK_PAGES * 4096)).expect("there is memory");
            for turn in 0..FORKS as u64 {
                write_all(at, turn);
                let child: Body<Os> = Box::new(move |_| {
                    check_all(at, turn);
                    write_all(at, !turn);
                    check_all(at, !turn);
                });
                let on = ThreadSpec::on((cpu + turn as usize) % Metal::cpus_possible());
                let child = os.fork(on, child).expect("a process can fork");
                check_all(at, turn);
                write_all(at, turn ^ 1 << 32);
                check_all(at, turn ^ 1 << 32);
                os.wait(child).expect("the child ends");
                check_all(at, turn ^ 1 << 32);
            }
        });
        os.process(ThreadSpec::on(cpu), body).expect("a process can start")
    };
    let processes: Vec<_> = (0..os.cpus()).map(start).collect();
    for process in processes {
        os.wait(process).expect("a process ends");
    }
}

fn write_all(at: Addr, word: u64) {
    for page in 0..FORK_PAGES {
        assert!(access::write(at.page(page), word ^ page), "page {page} faults");
    }
}

fn check_all(at: Addr, word: u64) {
    for page in 0..FORK_PAGES {
        let found = access::read(at.page(page));
        assert!(found == Some(word ^ page), "page {page}: {found:x?} for {:#x}", word ^ page);
    }
}
