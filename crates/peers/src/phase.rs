//! The programs.

use crate::disturbance::lost_processor;
use crate::ring::{Ring, wait_until};
use crate::{FRAMES, Peer};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

/// A program, with the threads that run it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Each thread takes a frame and gives it back at once.
    Pair {
        /// Threads at the same time.
        threads: usize,
    },
    /// Each thread takes 65,536 frames, then gives all back in the same order.
    Bulk {
        /// Threads at the same time.
        threads: usize,
    },
    /// One thread takes frames, another gives them back.
    Pipe,
    /// Half of the frames are taken, in blocks of random orders 0 to 3; then each thread gives a
    /// random block of its own back and takes one of a random order.
    Mix {
        /// Threads at the same time.
        threads: usize,
    },
}

/// How often a disturbed measurement is made.
pub const TRIES: usize = 4;

/// One measurement.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sample {
    /// ns for one allocation with its free, as a thread sees it.
    pub ns: f64,
    /// How often a timed thread lost its processor to somebody else.
    pub disturbed: u64,
}

/// Frames that a thread holds at the peak of `Bulk`.
const BULK_FRAMES: usize = 65_536;

impl Phase {
    /// All of them, in the order of the table's columns.
    pub const ALL: [Self; 7] = [
        Self::Pair { threads: 1 },
        Self::Pair { threads: 2 },
        Self::Bulk { threads: 1 },
        Self::Bulk { threads: 2 },
        Self::Pipe,
        Self::Mix { threads: 1 },
        Self::Mix { threads: 2 },
    ];

    /// The column's name.
    pub fn name(self) -> String {
        match self {
            Self::Pair { threads } => format!("pair/{threads}"),
            Self::Bulk { threads } => format!("bulk/{threads}"),
            Self::Pipe => "pipe".to_owned(),
            Self::Mix { threads } => format!("mix/{threads}"),
        }
    }
    /// Threads that take part.
    pub fn threads(self) -> usize {
        match self {
            Self::Pair { threads } | Self::Bulk { threads } | Self::Mix { threads } => threads,
            Self::Pipe => 2,
        }
    }
    /// Runs the program on a fresh allocator. `scale` multiplies the number of operations. When
    /// somebody else had a processor meanwhile it tries again, [`TRIES`] times in all, and takes
    /// the least disturbed.
    pub fn measure<P: Peer>(self, scale: usize) -> Sample {
        let mut best = self.measure_once::<P>(scale);
        for _ in 1..TRIES {
            if best.disturbed == 0 {
                break;
            }
            let next = self.measure_once::<P>(scale);
            if next.disturbed < best.disturbed {
                best = next;
            }
        }
        best
    }
    fn measure_once<P: Peer>(self, scale: usize) -> Sample {
        let threads = self.threads();
        let clock = Arc::new(Clock::new(threads));
        let ring = Ring::default();
        let timer = Arc::clone(&clock);
        P::run(FRAMES, threads, move |peer, thread| match self {
            Self::Pair { .. } => pair(peer, &timer, 100_000 * scale),
            Self::Bulk { .. } => bulk(peer, &timer, scale),
            Self::Pipe => pipe(peer, &timer, &ring, thread, 100_000 * scale),
            Self::Mix { .. } => mix(peer, &timer, thread, threads, 50_000 * scale),
        });
        clock.sample()
    }
}

/// Adds up what the threads took, each over its own operations, from a common start.
struct Clock {
    threads: usize,
    ready: AtomicUsize,
    spent_ns: AtomicU64,
    operations: AtomicU64,
    disturbed: AtomicU64,
}

impl Clock {
    fn new(threads: usize) -> Self {
        Self {
            threads,
            ready: AtomicUsize::new(0),
            spent_ns: AtomicU64::new(0),
            operations: AtomicU64::new(0),
            disturbed: AtomicU64::new(0),
        }
    }
    /// Waits until all threads are here, then times `body`, which does `operations`.
    fn time(&self, operations: usize, body: impl FnOnce()) {
        let lost = lost_processor();
        self.ready.fetch_add(1, Ordering::AcqRel);
        wait_until(|| self.ready.load(Ordering::Acquire) == self.threads);
        let start = Instant::now();
        body();
        let spent = start.elapsed().as_nanos() as u64;
        self.disturbed.fetch_add(lost_processor() - lost, Ordering::Relaxed);
        self.spent_ns.fetch_add(spent, Ordering::Relaxed);
        self.operations.fetch_add(operations as u64, Ordering::Relaxed);
    }
    fn sample(&self) -> Sample {
        let operations = self.operations.load(Ordering::Relaxed);
        assert!(operations > 0, "somebody was timed");
        let ns = self.spent_ns.load(Ordering::Relaxed) as f64 / operations as f64;
        Sample { ns, disturbed: self.disturbed.load(Ordering::Relaxed) }
    }
}

fn take(peer: &impl Peer, order: u8) -> u32 {
    peer.alloc(order).expect("the programs never use more than the frames there are")
}

fn pair(peer: &impl Peer, clock: &Clock, count: usize) {
    for _ in 0..1000 {
        peer.free(take(peer, 0), 0);
    }
    clock.time(count, || {
        for _ in 0..count {
            peer.free(black_box(take(peer, 0)), 0);
        }
    });
}

fn bulk(peer: &impl Peer, clock: &Clock, repeats: usize) {
    let mut held = vec![0u32; BULK_FRAMES];
    clock.time(BULK_FRAMES * repeats, || {
        for _ in 0..repeats {
            held.iter_mut().for_each(|slot| *slot = take(peer, 0));
            held.iter().for_each(|&frame| peer.free(black_box(frame), 0));
        }
    });
}

fn pipe(peer: &impl Peer, clock: &Clock, ring: &Ring, thread: usize, count: usize) {
    // Operations are counted at the consumer: what it took per frame is what the pair took.
    if thread == 0 {
        clock.ready.fetch_add(1, Ordering::AcqRel);
        wait_until(|| clock.ready.load(Ordering::Acquire) == clock.threads);
        (0..count).for_each(|at| ring.push(at, take(peer, 0)));
    } else {
        clock.time(count, || (0..count).for_each(|at| peer.free(ring.pop(at), 0)));
    }
}

fn mix(peer: &impl Peer, clock: &Clock, thread: usize, threads: usize, count: usize) {
    let mut random = Random(0x5eed + thread as u64);
    let mut held = Vec::new();
    let mut frames = 0;
    while frames < FRAMES / 2 / threads {
        let order = random.order();
        held.push((take(peer, order), order));
        frames += 1 << order;
    }
    let mut churn = |count: usize| {
        for _ in 0..count {
            let at = random.below(held.len());
            let (frame, order) = held[at];
            peer.free(frame, order);
            let order = random.order();
            held[at] = (take(peer, order), order);
        }
    };
    churn(5_000);
    clock.time(count, || churn(count));
    held.iter().for_each(|&(frame, order)| peer.free(frame, order));
}

/// splitmix64: the same blocks for every allocator.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }
    fn order(&mut self) -> u8 {
        (self.next() >> 62) as u8
    }
}
