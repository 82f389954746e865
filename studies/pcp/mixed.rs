//! `mixed`: short-lived memory among long-lived pages. One process per CPU repeatedly touches and
//! unmaps a range of memory. In between it sometimes reads a page of a file, in place of a page
//! that it read earlier. At the end only the long-lived pages remain. The number of pageblocks that
//! they occupy is the result.

use super::Tally;
use super::worker::{Worker, wait};
use mmscale_system::{Addr, Advice, Errno, MapSpec, PAGE_BYTES, System};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::Rng;

/// Every other page belongs to a file until all files are read for the first time; afterwards one
/// of this many.
const FILE_EVERY: u64 = 8;

/// Sizes of the workload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mixed {
    /// Pages of files.
    pub(super) long_pages: u64,
    /// Maximum number of pages of a range.
    pub(super) short_pages: u64,
}

struct Files {
    at: Addr,
    pages: u64,
    read: u64,
}

/// The process of a CPU.
pub(super) fn process<S: System>(system: &S, mixed: &Mixed, worker: &Worker) -> Result<(), Errno> {
    let (mut rng, mut tally) = (worker.rng(), Tally::default());
    let at = system.mmap(MapSpec::new(mixed.long_pages * PAGE_BYTES))?;
    let mut files = Files { at, pages: mixed.long_pages, read: 0 };
    worker.begin(system)?;
    let mut next = || {
        let pages = 1 + rng.next_u64() % mixed.short_pages;
        stretch(system, worker, pages, &mut files, &mut rng, &mut tally).map(|()| files.is_full())
    };
    while worker.has_time(system) && !next()? {}
    wait(system, worker.at().warm_ns)?;
    while worker.has_time(system) {
        next()?;
    }
    worker.add(&tally);
    worker.rest(system)
}

fn stretch<S: System>(
    system: &S,
    worker: &Worker,
    pages: u64,
    files: &mut Files,
    rng: &mut Xoshiro256PlusPlus,
    tally: &mut Tally,
) -> Result<(), Errno> {
    let bytes = pages * PAGE_BYTES;
    let Some(at) = tally.forgive(system.mmap(MapSpec::new(bytes)))? else { return Ok(()) };
    let stamp = rng.next_u64() | 1;
    for page in 0..pages {
        if tally.forgive(system.write(at.page(page), stamp))?.is_some() {
            tally.pages += 1;
        }
        let every = if files.is_full() { FILE_EVERY } else { 2 };
        if page % every == 0 {
            files.next(system, rng, tally)?;
        }
        if !worker.has_time(system) {
            break;
        }
    }
    if let Some(word) = tally.forgive(system.read(at))? {
        tally.damaged += u64::from(word != stamp && word != 0);
    }
    system.munmap(at, bytes)
}

impl Files {
    fn is_full(&self) -> bool {
        self.read >= self.pages
    }
    /// Reads another page: into the next free slot while there is one, otherwise in place of a
    /// random one.
    fn next<S: System>(
        &mut self,
        system: &S,
        rng: &mut Xoshiro256PlusPlus,
        tally: &mut Tally,
    ) -> Result<(), Errno> {
        let full = self.is_full();
        let page = self.at.page(if full { rng.next_u64() % self.pages } else { self.read });
        self.read += 1;
        if full {
            system.madvise(page, PAGE_BYTES, Advice::DontNeed)?;
        }
        tally.pages += 1;
        tally.forgive(system.write(page, self.read)).map(|_| ())
    }
}
