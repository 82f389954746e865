//! The program whose counts are compared: the same source on the kernel and on the simulator.

use mmscale_system::{
    Addr, Advice, Body, Errno, HUGE_BYTES, MapSpec, MayMove, PAGE_BYTES, Present, Prot, System,
    ThreadId, ThreadSpec,
};

/// Pages that the program takes beyond those that the page cache of CPU 0 has at the start:
/// refills of one batch to the largest, two more of these, and half of another.
pub(super) const PAST_EMPTY: u64 = 63 * (1 + 2 + 4 + 8 + 16 + 32 * 3 + 16);
/// Pages that are taken on CPU 1 and freed on CPU 0: more than the refills raise `high` by.
pub(super) const FOREIGN: u64 = 14_000;
/// How long the program computes after its frees, in ns: ticks that shrink the page cache.
const REST_NS: u64 = 12_000_000_000;
/// The real-time priority of threads that no other task should disturb, for less than a second.
const PRIORITY: u8 = 10;
/// Times that each kind of call is made, and each that takes pages, of which many are traced.
const ROUNDS: u32 = 16;
const ROUNDS_WITH_PAGES: u32 = 4;
/// Times that CPU 0 takes and frees pages at most, on a kernel where another task may use the page
/// cache meanwhile.
pub(super) const ATTEMPTS: usize = 3;
/// Times that works are queued on so many CPUs.
const WORKS: u32 = 4;
/// How long a busy thread computes before it takes another page, in ns: each tick finds something
/// to do.
const BUSY_NS: u64 = 5_000_000;
/// The shortest time that a sleeping thread sleeps before it takes another page, in ns, and how
/// many multiples of it follow each other.
const SLEEP_NS: u64 = 10_000_000;
const SLEEPS: u64 = 3;
/// How long the first thread sleeps between two looks at a flag, and how long each of many, in ns:
/// these share one clock where time passes with instructions.
const FLAG_NS: u64 = 2_000_000;
const FLAG_OF_MANY_NS: u64 = 20_000_000;
/// Pages of a huge page.
const HUGE_PAGES: u64 = HUGE_BYTES / PAGE_BYTES;
/// How long the second thread computes between two looks at its flag, in ns.
const LOOK_NS: u64 = 100_000;

/// The way in which a thread waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wait {
    /// It computes: its CPU is never idle, and so never without a tick.
    Compute,
    /// It sleeps. The tick of an idle CPU has to go on.
    Sleep,
}

/// A part of the program.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Step {
    /// Every CPU takes page after page, so that its ticks have something to do.
    Busy,
    /// CPU 0 takes and frees pages.
    Pages,
    /// CPU 0 takes and frees no page.
    Rest,
    /// One call of a kind, by its index in [`KINDS`].
    Call(usize),
    /// The munmap of all that a call of this kind used.
    Release(usize),
    /// A thread computes on CPU 1 while CPU 0 makes the calls.
    Beside,
    /// One mbind while so many other CPUs have folios in their LRU batches.
    Works(Others),
}

/// CPUs next to CPU 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Others {
    None,
    One,
    All,
}

/// All numbers of CPUs for which works are queued.
pub(super) const OTHERS: [Others; 3] = [Others::None, Others::One, Others::All];

impl Others {
    /// Returns the number of these CPUs, of `cpus` in all.
    pub(super) fn count(self, cpus: usize) -> usize {
        match self {
            Self::None => 0,
            Self::One => 1,
            Self::All => cpus - 1,
        }
    }
}

/// A call whose effects are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Call {
    Munmap,
    DontNeed,
    Mprotect,
    Mremap,
    /// The first accesses to fresh pages.
    Touch,
    /// `MADV_POPULATE_WRITE`.
    Populate,
    /// The first accesses to fresh memory for which huge pages were asked.
    Huge,
}

impl Call {
    /// Returns whether the call takes pages.
    pub(super) const fn takes_pages(self) -> bool {
        matches!(self, Self::Touch | Self::Populate | Self::Huge)
    }
    /// Returns whether the call needs a kernel with huge pages.
    pub(super) const fn is_huge(self) -> bool {
        matches!(self, Self::Huge)
    }
}

/// A kind of call: a call on a range of so many touched pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Kind {
    pub(super) call: Call,
    pub(super) pages: u64,
}

impl Kind {
    /// Returns how often the call is made.
    pub(super) const fn rounds(self) -> u32 {
        if self.call.takes_pages() { ROUNDS_WITH_PAGES } else { ROUNDS }
    }
}

const fn kind(call: Call, pages: u64) -> Kind {
    Kind { call, pages }
}

/// All kinds of calls. Up to 33 pages are flushed one by one.
pub(super) const KINDS: [Kind; 22] = [
    kind(Call::Munmap, 1),
    kind(Call::Munmap, 33),
    kind(Call::Munmap, 34),
    kind(Call::Munmap, 512),
    kind(Call::Munmap, 2048),
    kind(Call::DontNeed, 1),
    kind(Call::DontNeed, 33),
    kind(Call::DontNeed, 34),
    kind(Call::DontNeed, 512),
    kind(Call::Mprotect, 1),
    kind(Call::Mprotect, 33),
    kind(Call::Mprotect, 34),
    kind(Call::Mremap, 1),
    kind(Call::Mremap, 64),
    kind(Call::Touch, 1),
    kind(Call::Touch, 64),
    kind(Call::Touch, 600),
    kind(Call::Populate, 1),
    kind(Call::Populate, 64),
    kind(Call::Populate, 600),
    kind(Call::Huge, 512),
    kind(Call::Huge, 1024),
];

/// A counter of the effects of the program.
pub(super) trait Watcher<S>: Clone + Send + 'static {
    /// A step begins, on the CPU of the calling thread. [`Step::Pages`] begins with the call of
    /// [`Watcher::cached_pages`].
    fn begin(&self, system: &S, step: Step);
    /// The step ends, in the same thread.
    fn end(&self, system: &S, step: Step);
    /// Returns the number of pages in the page cache of CPU 0.
    fn cached_pages(&self, system: &S) -> u64;
    /// Returns whether CPU 0 has taken and freed pages without another task in between, or often
    /// enough.
    fn is_enough(&self) -> bool;
}

/// Which parts of the program run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    /// All of them. Every CPU is busy for so long first, in ns. `huge`: also those on huge pages.
    All { busy_ns: u64, wait: Wait, huge: bool },
    /// Every CPU is busy for so long, in ns.
    Busy { busy_ns: u64, wait: Wait },
    /// CPU 0 takes and frees pages.
    Pages,
    /// CPU 0 takes and frees no page.
    Rest { wait: Wait },
    /// The calls of one kind, by its index in [`KINDS`]; or only what surrounds them.
    Calls { kind: usize, made: bool },
    /// The calls that queue works.
    Works,
}

/// Runs a part of the program.
pub(super) fn run<S: System, W: Watcher<S>>(
    system: &S,
    part: Part,
    watcher: &W,
) -> Result<(), Errno> {
    match part {
        Part::All { busy_ns, wait, huge } => {
            keep_busy(system, busy_ns, wait, watcher)?;
            while !watcher.is_enough() {
                take_and_free(system, watcher)?;
            }
            rest(system, wait, watcher, |_| ())?;
            queue_works(system, watcher)?;
            beside_a_thread(system, watcher, move |system, watcher| {
                (0..KINDS.len())
                    .filter(|&kind| huge || !KINDS[kind].call.is_huge())
                    .try_for_each(|kind| make_calls(system, watcher, kind, true))
            })
        }
        Part::Busy { busy_ns, wait } => keep_busy(system, busy_ns, wait, watcher),
        Part::Pages => take_and_free(system, watcher),
        Part::Works => queue_works(system, watcher),
        Part::Rest { wait } => {
            let own = watcher.clone();
            rest(system, wait, watcher, move |system| own.begin(system, Step::Rest))
        }
        Part::Calls { kind, made } => beside_a_thread(system, watcher, move |system, watcher| {
            make_calls(system, watcher, kind, made)
        }),
    }
}

/// Runs `body` in a thread and waits for it. A failed call of the body panics, which ends the run
/// with the message.
fn within<S: System>(
    system: &S,
    spec: ThreadSpec,
    body: impl FnOnce(&S) -> Result<(), Errno> + Send + 'static,
) -> Result<(), Errno> {
    system.join(system.spawn(spec, checked(body))?)
}

fn checked<S: System>(body: impl FnOnce(&S) -> Result<(), Errno> + Send + 'static) -> Body<S> {
    Box::new(|system| body(system).expect("the calls of the program succeed"))
}

/// Maps single pages and touches them.
pub(super) fn touched<S: System>(system: &S, pages: u64) -> Result<Addr, Errno> {
    let at = mapped(system, pages)?;
    touch(system, at, pages)?;
    Ok(at)
}

fn mapped<S: System>(system: &S, pages: u64) -> Result<Addr, Errno> {
    let at = system.mmap(MapSpec::new(bytes(pages)))?;
    single_pages(system, at, bytes(pages))?;
    Ok(at)
}

/// Asks for single pages. A kernel without huge pages refuses, and gives single pages anyway.
fn single_pages<S: System>(system: &S, at: Addr, bytes: u64) -> Result<(), Errno> {
    match system.madvise(at, bytes, Advice::NoHugePage) {
        Err(why) if why != Errno::Inval => Err(why),
        _ => Ok(()),
    }
}

/// Asks for huge pages.
fn huge_pages<S: System>(system: &S, at: Addr, bytes: u64) -> Result<(), Errno> {
    match system.madvise(at, bytes, Advice::HugePage) {
        Err(why) if why != Errno::Inval => Err(why),
        _ => Ok(()),
    }
}

fn touch<S: System>(system: &S, at: Addr, pages: u64) -> Result<(), Errno> {
    (0..pages).try_for_each(|page| system.write(at.page(page), 1))
}

const fn bytes(pages: u64) -> u64 {
    pages * PAGE_BYTES
}

/// The most pages that a busy thread takes.
pub(super) const fn busy_pages(busy_ns: u64) -> u64 {
    busy_ns / BUSY_NS + 1
}

/// A thread on every CPU that waits, and takes page after page.
fn keep_busy<S: System, W: Watcher<S>>(
    system: &S,
    busy_ns: u64,
    wait: Wait,
    watcher: &W,
) -> Result<(), Errno> {
    watcher.begin(system, Step::Busy);
    let end_ns = system.clock_ns() + busy_ns;
    let thread = move |system: &S| {
        let pages = busy_pages(busy_ns);
        let at = mapped(system, pages)?;
        for page in 0..pages {
            if system.clock_ns() >= end_ns {
                break;
            }
            system.write(at.page(page), 1)?;
            match wait {
                Wait::Compute => system.compute_ns(BUSY_NS)?,
                Wait::Sleep => system.sleep_ns(SLEEP_NS * (1 + page % SLEEPS))?,
            }
        }
        system.munmap(at, bytes(pages))
    };
    let start = |cpu| system.spawn(ThreadSpec::on(cpu), checked(thread));
    let threads = (0..system.cpus()).map(start).collect::<Result<Vec<_>, _>>()?;
    threads.into_iter().try_for_each(|thread| system.join(thread))?;
    watcher.end(system, Step::Busy);
    Ok(())
}

/// CPU 0 takes as many pages as it has cached and [`PAST_EMPTY`] more, and frees these and
/// [`FOREIGN`] pages that CPU 1 took. The thread has real-time priority while it
/// takes and frees, so that no other task uses the page cache.
fn take_and_free<S: System, W: Watcher<S>>(system: &S, watcher: &W) -> Result<(), Errno> {
    let of_cpu_1 = mapped(system, FOREIGN)?;
    within(system, ThreadSpec::on(1), move |system| touch(system, of_cpu_1, FOREIGN))?;
    let own = watcher.clone();
    within(system, ThreadSpec::on(0).real_time(PRIORITY), move |system| {
        own.begin(system, Step::Pages);
        let pages = own.cached_pages(system) + PAST_EMPTY;
        // Page tables are taken after the same pages on both sides.
        let (whole, at) = within_tables(system, pages)?;
        touch(system, at, pages)?;
        system.munmap(whole, whole_bytes(pages))?;
        system.munmap(of_cpu_1, bytes(FOREIGN))?;
        own.end(system, Step::Pages);
        if own.is_enough() {
            // As soon as this thread ends, a tick that is due runs.
            own.begin(system, Step::Rest);
        }
        Ok(())
    })
}

/// CPU 0 takes and frees no page. `begin` is called first.
fn rest<S: System, W: Watcher<S>>(
    system: &S,
    wait: Wait,
    watcher: &W,
    begin: impl FnOnce(&S) + Send + 'static,
) -> Result<(), Errno> {
    let own = watcher.clone();
    within(system, ThreadSpec::on(0), move |system| {
        begin(system);
        let end_ns = system.clock_ns() + REST_NS;
        while system.clock_ns() < end_ns {
            match wait {
                Wait::Compute => system.compute_ns(BUSY_NS)?,
                Wait::Sleep => system.sleep_ns(end_ns - system.clock_ns())?,
            }
        }
        own.end(system, Step::Rest);
        Ok(())
    })
}

/// Runs `body` in a thread on CPU 0 while another thread of the process computes on CPU 1: a flush
/// has to reach that CPU too, from the first call on. Both have real-time priority, so that no
/// other task runs meanwhile.
fn beside_a_thread<S: System, W: Watcher<S>>(
    system: &S,
    watcher: &W,
    body: impl FnOnce(&S, &W) -> Result<(), Errno> + Send + 'static,
) -> Result<(), Errno> {
    let flags = touched(system, 2)?;
    let (over, runs) = (flags, flags.page(1));
    system.write(over, 0)?;
    system.write(runs, 0)?;
    let own = watcher.clone();
    let beside = checked(move |system: &S| {
        own.begin(system, Step::Beside);
        system.write(runs, RUNS)?;
        while system.read(over)? == 0 {
            system.compute_ns(LOOK_NS)?;
        }
        own.end(system, Step::Beside);
        Ok(())
    });
    let beside = system.spawn(ThreadSpec::on(1).real_time(PRIORITY), beside)?;
    sleep_until(system, runs, RUNS, FLAG_NS)?;
    let own = watcher.clone();
    within(system, ThreadSpec::on(0).real_time(PRIORITY), move |system| {
        body(system, &own)?;
        system.write(over, 1)
    })?;
    system.join(beside)
}

/// Makes the calls of one kind, or only what surrounds them.
fn make_calls<S: System, W: Watcher<S>>(
    system: &S,
    watcher: &W,
    at: usize,
    made: bool,
) -> Result<(), Errno> {
    let Kind { call, pages } = KINDS[at];
    let (step, bytes) = (Step::Call(at), bytes(pages));
    for _ in 0..KINDS[at].rounds() {
        let (whole, range) = within_tables(system, pages)?;
        if call == Call::Huge {
            huge_pages(system, range, bytes)?;
        }
        // The first access to a new mapping does more than the others: an extra page takes it.
        system.write(range.page(pages), 1)?;
        if !call.takes_pages() {
            touch(system, range, pages)?;
        }
        let to = match call {
            Call::Mremap => Some(within_tables(system, pages)?),
            _ => None,
        };
        watcher.begin(system, step);
        match (call, to) {
            _ if !made => Ok(()),
            (Call::Munmap, _) => system.munmap(range, bytes),
            (Call::DontNeed, _) => system.madvise(range, bytes, Advice::DontNeed),
            (Call::Mprotect, _) => system.mprotect(range, bytes, Prot::Read),
            (Call::Mremap, Some((_, to))) => {
                system.mremap(range, bytes, bytes, MayMove::To(to)).map(|_| ())
            }
            (Call::Populate, _) => system.madvise(range, bytes, Advice::PopulateWrite),
            (Call::Huge, _) => (0..pages / HUGE_PAGES)
                .try_for_each(|huge| system.write(range.page(huge * HUGE_PAGES), 1)),
            (Call::Mremap, None) | (Call::Touch, _) => touch(system, range, pages),
        }?;
        watcher.end(system, step);
        if let Some((to, _)) = to {
            system.munmap(to, whole_bytes(pages))?;
        }
        watcher.begin(system, Step::Release(at));
        system.munmap(whole, whole_bytes(pages))?;
        watcher.end(system, Step::Release(at));
    }
    Ok(())
}

/// Values of the flag of all threads that fill LRU batches: each takes its page, and ends. That of
/// a thread says that it runs, and that it has its page.
const TAKE: u64 = 1;
const LEAVE: u64 = 2;
const RUNS: u64 = 3;

/// CPU 0 moves a page to its own node, which drains the LRU batches of all CPUs, while threads on
/// some of them have taken a page each: the end of such a thread would drain its batch. The start
/// of a thread leaves folios in the batches of both CPUs, and that of many takes long, so all of
/// them run when the batches are drained first.
fn queue_works<S: System, W: Watcher<S>>(system: &S, watcher: &W) -> Result<(), Errno> {
    let own = watcher.clone();
    within(system, ThreadSpec::on(0), move |system| {
        let cpus = system.cpus() as u64;
        let (pages, flags) = (mapped(system, cpus)?, touched(system, cpus)?);
        system.write(pages, 1)?;
        for others in OTHERS {
            for _ in 0..WORKS {
                system.write(flags, 0)?;
                let cpus = 1..=others.count(system.cpus());
                let thread = |cpu| fill_batch(system, pages, flags, cpu);
                let threads = cpus.clone().map(thread).collect::<Result<Vec<_>, _>>()?;
                drain_batches(system, pages)?;
                system.write(flags, TAKE)?;
                let has_page =
                    |cpu: usize| sleep_until(system, flags.page(cpu as u64), TAKE, FLAG_NS);
                cpus.clone().try_for_each(has_page)?;
                own.begin(system, Step::Works(others));
                drain_batches(system, pages)?;
                own.end(system, Step::Works(others));
                system.write(flags, LEAVE)?;
                threads.into_iter().try_for_each(|thread| system.join(thread))?;
            }
        }
        Ok(())
    })
}

/// Starts a thread on a CPU that takes a page when the first flag says so, sets its own flag, and
/// sleeps until it may end. Returns when it runs.
fn fill_batch<S: System>(
    system: &S,
    pages: Addr,
    flags: Addr,
    cpu: usize,
) -> Result<ThreadId, Errno> {
    let (page, flag) = (pages.page(cpu as u64), flags.page(cpu as u64));
    system.write(flag, 0)?;
    let body = checked(move |system: &S| {
        system.madvise(page, PAGE_BYTES, Advice::DontNeed)?;
        system.write(flag, RUNS)?;
        sleep_until(system, flags, TAKE, FLAG_OF_MANY_NS)?;
        system.write(page, 1)?;
        system.write(flag, TAKE)?;
        sleep_until(system, flags, LEAVE, FLAG_OF_MANY_NS)
    });
    let thread = system.spawn(ThreadSpec::on(cpu), body)?;
    sleep_until(system, flag, RUNS, FLAG_NS)?;
    Ok(thread)
}

/// Sleeps until a flag has a value, which it looks for each `look_ns`.
fn sleep_until<S: System>(system: &S, flag: Addr, value: u64, look_ns: u64) -> Result<(), Errno> {
    while system.read(flag)? != value {
        system.sleep_ns(look_ns)?;
    }
    Ok(())
}

fn drain_batches<S: System>(system: &S, page: Addr) -> Result<(), Errno> {
    system.mbind(page, PAGE_BYTES, 0, Present::Move)
}

/// Bytes of a mapping that has a range of `pages` pages and an extra one, with all of their page
/// tables, wherever it is.
const fn whole_bytes(pages: u64) -> u64 {
    bytes(pages + 1).next_multiple_of(HUGE_BYTES) + HUGE_BYTES
}

/// Maps memory; returns where, and a range in it that begins with a page table: moves and flushes
/// are made table by table.
fn within_tables<S: System>(system: &S, pages: u64) -> Result<(Addr, Addr), Errno> {
    let whole = system.mmap(MapSpec::new(whole_bytes(pages)))?;
    single_pages(system, whole, whole_bytes(pages))?;
    Ok((whole, Addr(whole.0.next_multiple_of(HUGE_BYTES))))
}
