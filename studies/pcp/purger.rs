//! `purger`: the behaviour of user-space allocators with purge threads. Most threads touch memory,
//! chunk by chunk; a few others free the chunks of all threads (MADV_DONTNEED). The page caches of
//! the former CPUs are therefore always empty, and those of the latter always full. Another
//! [`Source`] has frames straight from the allocator, without address spaces.

use super::Tally;
use super::worker::Worker;
use mmscale_system::{Addr, Advice, Errno, MapSpec, PAGE_BYTES, Prot, System, ThreadSpec};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};

/// CPUs per process: 28 allocate, 4 purge.
pub(super) const GROUP: usize = 32;
/// One of this many threads purges.
const PURGES: usize = 8;
/// Chunks per thread.
const CHUNKS: u64 = 4;
/// Time that a thread without work computes before it checks again.
const PAUSE_NS: u64 = 500;

/// Sizes of the workload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Purger {
    pub(super) chunk_pages: u64,
    /// CPU time in user mode after each page, in ns.
    pub(super) user_ns: u64,
}

/// The memory of one thread's chunks.
pub(super) trait Source<S>: Send + Sync {
    /// Allocates and writes one page of a chunk.
    fn touch(&self, system: &S, chunk: u64, page: u64, tally: &mut Tally) -> Result<(), Errno>;
    /// Frees all pages of a chunk.
    fn give_back(&self, system: &S, chunk: u64) -> Result<(), Errno>;
}

/// Creates the memory of a thread: number of chunks, and pages per chunk.
pub(super) type SourceFactory<S> = fn(&S, u64, u64) -> Result<Box<dyn Source<S>>, Errno>;

/// Mapped memory.
struct Mapped {
    at: Addr,
    chunk_pages: u64,
}

/// Maps memory, followed by a guard page that keeps the VMA separate.
pub(super) fn mapped<S: System>(
    system: &S,
    chunks: u64,
    chunk_pages: u64,
) -> Result<Box<dyn Source<S>>, Errno> {
    let pages = chunks * chunk_pages;
    let at = system.mmap(MapSpec::new((pages + 1) * PAGE_BYTES))?;
    system.mprotect(at.page(pages), PAGE_BYTES, Prot::None)?;
    Ok(Box::new(Mapped { at, chunk_pages }))
}

impl<S: System> Source<S> for Mapped {
    fn touch(&self, system: &S, chunk: u64, page: u64, tally: &mut Tally) -> Result<(), Errno> {
        let page = self.at.page(chunk * self.chunk_pages + page);
        if tally.forgive(system.write(page, page.0))?.is_some() {
            tally.pages += 1;
            tally.damaged += u64::from(tally.forgive(system.read(page))? != Some(page.0));
        }
        Ok(())
    }
    fn give_back(&self, system: &S, chunk: u64) -> Result<(), Errno> {
        let at = self.at.page(chunk * self.chunk_pages);
        system.madvise(at, self.chunk_pages * PAGE_BYTES, Advice::DontNeed)
    }
}

/// The chunks of one thread, each owned by it or by the purger.
struct Arena<S> {
    source: Box<dyn Source<S>>,
    full: [AtomicBool; CHUNKS as usize],
}

impl<S: System> Arena<S> {
    fn is_full(&self, system: &S, chunk: u64) -> bool {
        system.take_turn();
        self.full[chunk as usize].load(Acquire)
    }
    fn set_full(&self, system: &S, chunk: u64, full: bool) {
        system.take_turn();
        self.full[chunk as usize].store(full, Release);
    }
}

/// The body of a thread.
type Part<S> = Box<dyn FnOnce(&S, &mut Tally) + Send>;

/// A process on `cpus` CPUs, starting with the worker's CPU.
pub(super) fn process<S: System>(
    system: &S,
    purger: &Purger,
    worker: &Worker,
    cpus: usize,
    make: SourceFactory<S>,
) -> Result<(), Errno> {
    let purgers = (cpus / PURGES).max(1);
    let allocators = (cpus - purgers).max(1);
    let mut arenas = Vec::new();
    for _ in 0..allocators {
        let source = make(system, CHUNKS, purger.chunk_pages)?;
        arenas.push(Arc::new(Arena { source, full: Default::default() }));
    }
    let mut threads = Vec::new();
    let mut start = |nth: usize, body: Part<S>| {
        let run = worker.run.clone();
        let body = move |system: &S| {
            let mut tally = Tally::default();
            body(system, &mut tally);
            run.tally.change(|sum| *sum += tally);
        };
        let spec = ThreadSpec::on(worker.cpu + nth % cpus);
        system.spawn(spec, Box::new(body)).map(|thread| threads.push(thread))
    };
    for (nth, arena) in arenas.iter().enumerate() {
        let (arena, plan, worker) = (Arc::clone(arena), *purger, worker.clone());
        let body = move |system: &S, tally: &mut Tally| {
            let _ = allocate(system, &plan, &worker, &arena, tally);
        };
        start(nth, Box::new(body))?;
    }
    for nth in 0..purgers {
        let own: Vec<_> = arenas.iter().skip(nth).step_by(purgers).cloned().collect();
        let worker = worker.clone();
        let body = move |system: &S, tally: &mut Tally| {
            let _ = purge(system, &worker, &own, tally);
        };
        start(allocators + nth, Box::new(body))?;
    }
    threads.into_iter().try_for_each(|thread| system.join(thread))?;
    let mut chunks = (0..CHUNKS).flat_map(|chunk| arenas.iter().map(move |arena| (arena, chunk)));
    chunks.try_for_each(|(arena, chunk)| arena.source.give_back(system, chunk))
}

fn allocate<S: System>(
    system: &S,
    plan: &Purger,
    worker: &Worker,
    arena: &Arena<S>,
    tally: &mut Tally,
) -> Result<(), Errno> {
    worker.begin(system)?;
    for chunk in (0..CHUNKS).cycle() {
        while arena.is_full(system, chunk) && worker.has_time(system) {
            tally.compute(system, worker.at(), PAUSE_NS)?;
        }
        if !worker.has_time(system) {
            break;
        }
        for page in 0..plan.chunk_pages {
            arena.source.touch(system, chunk, page, tally)?;
            tally.compute(system, worker.at(), plan.user_ns)?;
        }
        arena.set_full(system, chunk, true);
    }
    Ok(())
}

fn purge<S: System>(
    system: &S,
    worker: &Worker,
    arenas: &[Arc<Arena<S>>],
    tally: &mut Tally,
) -> Result<(), Errno> {
    worker.begin(system)?;
    let mut next = vec![0_u64; arenas.len()];
    while worker.has_time(system) {
        let mut found = false;
        for (arena, chunk) in arenas.iter().zip(&mut next) {
            if arena.is_full(system, *chunk) {
                arena.source.give_back(system, *chunk)?;
                arena.set_full(system, *chunk, false);
                *chunk = (*chunk + 1) % CHUNKS;
                found = true;
            }
        }
        if !found {
            tally.compute(system, worker.at(), PAUSE_NS)?;
        }
    }
    Ok(())
}
