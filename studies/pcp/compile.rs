//! `compile`: a kernel build with the figures of recorded compilers (README, "A build as builds
//! are"). On each CPU one process after another faults in its pages, computes in between, and
//! exits. The kernel allocates slabs for it. All other memory is in use by a page cache of files,
//! which reclaim takes back.

use super::Tally;
use super::worker::{Worker, sleep_until};
use mmscale_arch::{Order, Pfn};
use mmscale_frames::frame::MigrateType;
use mmscale_kernel::Os;
use mmscale_system::{Addr, Advice, Body, Errno, MapSpec, PAGE_BYTES, System, ThreadSpec};
use rand_xoshiro::rand_core::Rng;

/// Pages of a compiler's text and libraries, which all processes share; every fourth is read.
const IMAGE_PAGES: u64 = 64;
/// Of 1024 processes these move to another CPU halfway: each frees half of its pages there, and
/// 0.14 % of all frees are on another CPU.
const MOVES_1024: u64 = 3;
/// For each of this many pages of a process the kernel allocates one slab.
const SLAB_EVERY: u64 = 32;
/// Orders of slabs, one after the other.
const SLAB_ORDERS: [u8; 4] = [0, 1, 2, 3];

/// Sizes of the workload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Compile {
    /// Mean number of pages of a process, uniformly distributed from half to one and a half.
    pub(super) pages: u64,
    /// CPU time in user mode after each page, in ns.
    pub(super) user_ns: u64,
    /// The page cache of files, if it fills the memory of the machine.
    pub(super) cache: Option<FileCache>,
}

/// Sizes of the page cache of files, of all CPUs.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileCache {
    /// Pages before the processes have been filled.
    pub(super) first_pages: u64,
    /// Pages of files that are read per second afterwards.
    pub(super) read_pages_per_s: u64,
}

/// A slab.
pub(super) struct Slab(Pfn, Order);

/// How a system allocates and frees memory of the kernel. The live kernel does so by itself.
pub(super) struct Slabs<S> {
    pub(super) take: fn(&S, Order) -> Option<Slab>,
    pub(super) give_back: fn(&S, Slab),
}

impl<S> Clone for Slabs<S> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<S> Copy for Slabs<S> {}

/// Slabs of a machine with this program's memory manager.
pub(super) fn slabs() -> Slabs<Os> {
    Slabs {
        take: |os, order| {
            let block = os.inside().alloc_pages(order, MigrateType::Unmovable);
            block.ok().map(|pfn| Slab(pfn, order))
        },
        give_back: |os, Slab(pfn, order)| os.inside().free_pages(pfn, order),
    }
}

/// No slabs.
pub(super) fn no_slabs<S: System>() -> Slabs<S> {
    Slabs { take: |_, _| None, give_back: |_, _| {} }
}

/// A process.
struct Job {
    heap: Addr,
    stamp: u64,
    slabs: Vec<Slab>,
    tally: Tally,
}

/// The parent of a CPU's processes. The first of them is in the middle of its life.
pub(super) fn make<S: System>(
    system: &S,
    plan: &Compile,
    worker: &Worker,
    slabs: Slabs<S>,
) -> Result<(), Errno> {
    let mut rng = worker.rng();
    let image = system.mmap(MapSpec::populated(IMAGE_PAGES * PAGE_BYTES))?;
    worker.begin(system)?;
    let mut lived_1024 = rng.next_u64() % 1024;
    while worker.has_time(system) {
        let pages = plan.pages / 2 + rng.next_u64() % plan.pages.max(1);
        let lived = pages * std::mem::take(&mut lived_1024) / 1024;
        let to = rng.next_u64() as usize % worker.cpus;
        let to = (rng.next_u64() % 1024 < MOVES_1024).then_some(to);
        let (plan, worker, stamp) = (*plan, worker.clone(), rng.next_u64() | 1);
        let child = system.fork(
            ThreadSpec::on(worker.cpu),
            Box::new(move |system: &S| {
                let part = Part { plan, worker, slabs };
                let _ = part.compile(system, image, (pages, lived, stamp), to);
            }),
        );
        match child {
            Ok(child) => _ = system.wait(child)?,
            Err(Errno::Nomem) => {}
            Err(other) => return Err(other),
        }
    }
    worker.rest(system)
}

/// The context of all parts of a process.
struct Part<S> {
    plan: Compile,
    worker: Worker,
    slabs: Slabs<S>,
}

impl<S: System> Part<S> {
    fn compile(
        self,
        system: &S,
        image: Addr,
        (pages, lived, stamp): (u64, u64, u64),
        to: Option<usize>,
    ) -> Result<(), Errno> {
        let mut tally = Tally::default();
        for page in (0..IMAGE_PAGES).step_by(4) {
            tally.forgive(system.read(image.page(page)))?;
        }
        let Some(heap) = tally.forgive(system.mmap(MapSpec::new(pages * PAGE_BYTES)))? else {
            self.worker.add(&tally);
            return Ok(());
        };
        let mut job = Job { heap, stamp, slabs: Vec::new(), tally };
        let _ = self.touch(system, &mut job, 0..lived, 0);
        let half = (pages / 2).max(lived);
        let _ = self.touch(system, &mut job, lived..half, self.plan.user_ns);
        if to.is_some() {
            // A thread that cannot be started must not lose them.
            self.give_back(system, &mut job);
        }
        let rest = move |system: &S| {
            let mut job = job;
            let _ = self.touch(system, &mut job, half..pages, self.plan.user_ns);
            self.give_back(system, &mut job);
            self.worker.add(&job.tally);
        };
        let rest: Body<S> = Box::new(rest);
        let Some(to) = to else {
            rest(system);
            return Ok(());
        };
        // The last thread to return tears down the process, on its own CPU.
        system.spawn(ThreadSpec::on(to), rest).map(|_| ())
    }
    fn give_back(&self, system: &S, job: &mut Job) {
        job.slabs.drain(..).for_each(|slab| (self.slabs.give_back)(system, slab));
    }
    /// Touches pages, computes for `user_ns` after each, and allocates the slabs that belong to
    /// them.
    fn touch(
        &self,
        system: &S,
        job: &mut Job,
        pages: std::ops::Range<u64>,
        user_ns: u64,
    ) -> Result<(), Errno> {
        for nth in pages {
            let page = job.heap.page(nth);
            let has_time = self.worker.has_time(system);
            if !has_time || job.tally.forgive(system.write(page, job.stamp))?.is_none() {
                return Ok(());
            }
            job.tally.pages += 1;
            job.tally.compiled += u64::from(self.worker.at().counts(system.clock_ns()));
            if nth.is_multiple_of(SLAB_EVERY) {
                let at = (nth / SLAB_EVERY) as usize % SLAB_ORDERS.len();
                let order = Order::new(SLAB_ORDERS[at]).unwrap_or(Order::ZERO);
                job.slabs.extend((self.slabs.take)(system, order));
            }
            job.tally.compute(system, self.worker.at(), user_ns)?;
            if let Some(word) = job.tally.forgive(system.read(page))? {
                job.tally.damaged += u64::from(word != job.stamp);
            }
        }
        Ok(())
    }
}

/// Time between two reads of files on a CPU.
const READ_EVERY_NS: u64 = 5_000_000;

/// A CPU's share of the page cache of files: a process whose memory is clean, as the pages of a
/// file are, so that reclaim takes it without a write. It is lazily freed anonymous memory, which
/// Linux and this kernel keep on the list of inactive file pages. When processes are in the middle
/// of their lives all free memory above the high watermark becomes page cache. Later files are read
/// at the given rate.
pub(super) fn file_cache(os: &Os, plan: FileCache, worker: &Worker) -> Result<(), Errno> {
    let (cpus, mut rng) = (worker.cpus as u64, worker.rng());
    worker.begin(os)?;
    read_files(os, plan.first_pages / cpus, &mut rng)?;
    sleep_until(os, worker.at().warm_ns)?;
    let spare_pages = os.inside().free_count().saturating_sub(os.inside().high_pages());
    read_files(os, spare_pages / cpus, &mut rng)?;
    let (begin_ns, mut read_pages) = (os.clock_ns(), 0);
    while worker.has_time(os) {
        os.sleep_ns(READ_EVERY_NS)?;
        let reading_ns = os.clock_ns() - begin_ns;
        let due_pages = plan.read_pages_per_s * reading_ns / 1_000_000_000 / cpus;
        read_files(os, due_pages - read_pages, &mut rng)?;
        read_pages = due_pages;
    }
    worker.rest(os)
}

/// Takes clean pages. Neighbours in memory are at random places of their list, as in a page cache
/// of files that were read at different times, so that reclaim frees pages whose buddies are in
/// use.
fn read_files<S: System>(system: &S, pages: u64, rng: &mut impl Rng) -> Result<(), Errno> {
    if pages == 0 {
        return Ok(());
    }
    let start = match system.mmap(MapSpec::new(pages * PAGE_BYTES)) {
        Err(Errno::Nomem) => return Ok(()),
        other => other?,
    };
    let mut order: Vec<u64> = (0..pages).collect();
    for last in (1..order.len()).rev() {
        order.swap(last, rng.next_u64() as usize % (last + 1));
    }
    for page in order {
        match system.write(start.page(page), 1) {
            Ok(()) | Err(Errno::Nomem) => {}
            other => return other,
        }
    }
    system.madvise(start, pages * PAGE_BYTES, Advice::Free)
}
