//! Steps between two CPUs that need no tasks: cache lines and the lock.

use super::jobs::{Word, go};
use super::single::{median, ns_each};
use crate::config::Failure;
use crate::host::HostCpus;
use crate::{Threads, ThreadsSpin};
use mmscale_arch::{Cpu as _, LockClass, Machine as _, RawSpin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Runs `first` on one CPU of the computer and `second` on another; returns the result of `first`.
fn both<T: Send>(first: impl FnOnce() -> T + Send, second: impl FnOnce() + Send) -> T {
    let host = &HostCpus::allowed();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            host.pin(1);
            second();
        });
        let first = scope.spawn(move || {
            host.pin(0);
            first()
        });
        first.join().unwrap_or_else(|payload| std::panic::resume_unwind(payload))
    })
}

/// Spins without the processor's hint for wait loops, which would take longer than the transfer.
fn wait_for(word: &AtomicU64, value: u64) {
    let mut turns = 0_u32;
    while word.load(Ordering::Acquire) != value {
        turns += 1;
        if turns.is_multiple_of(1 << 16) {
            std::thread::yield_now();
        }
    }
}

/// A row of lines, walked in order.
struct LineRow(Vec<Line>);

#[derive(Default)]
#[repr(align(64))]
struct Line(AtomicU64);

impl LineRow {
    fn new(lines: usize) -> Self {
        Self((0..lines).map(|_| Line::default()).collect())
    }
    /// Reads and writes every line.
    fn write(&self) {
        for line in &self.0 {
            line.0.store(line.0.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }
    /// Reads and writes every line; returns ns a line.
    fn walk(&self) -> f64 {
        let start = Instant::now();
        self.write();
        ns_each(start, self.0.len() as u64)
    }
}

/// Measures one of a row of lines in this CPU's first-level cache, read and written in order.
pub(super) fn line_own_ns() -> f64 {
    let row = LineRow::new(256);
    median((0..64).map(|_| row.walk()).collect())
}

/// Measures one of a row of lines that another CPU has just written, read and written in order: 128
/// KiB, which stay in that CPU's own cache.
pub(super) fn line_in_row_ns() -> f64 {
    let row = LineRow::new(2048);
    after_the_other(|| row.walk())
}

/// Measures a line that another CPU has just written, read and written, where the CPU cannot
/// overlap it with other work: each line names the next one, and neighbours are never visited one
/// after the other.
///
/// Half of a ping-pong on one line takes longer, because there each CPU also takes the line from
/// the other's wait loop.
pub(super) fn line_ns() -> f64 {
    /// 64 KiB: the lines stay in a CPU's own cache.
    const LINES: u64 = 1024;
    /// Coprime to the number of lines, so that every line is visited; large, so that neighbours are
    /// far apart.
    const STRIDE: u64 = 389;
    let row = LineRow::new(LINES as usize);
    let chase = || {
        let start = Instant::now();
        let mut at = 0;
        for _ in 0..LINES {
            let line = &row.0[at].0;
            // The value read selects the next line: twice the number of visits is added to it.
            let visits = line.load(Ordering::Relaxed);
            line.store(visits + 2, Ordering::Relaxed);
            at = ((at as u64 + STRIDE + (visits & 1)) % LINES) as usize;
        }
        ns_each(start, LINES)
    };
    after_the_other(chase)
}

/// Lets two CPUs do `work` alternately; returns the median of the first one's results.
fn after_the_other(work: impl Fn() -> f64 + Sync) -> f64 {
    const TURNS: u64 = 16;
    let turn = &Word::default().0;
    both(
        || {
            let mut found = Vec::new();
            for at in 0..TURNS {
                wait_for(turn, 2 * at + 1);
                found.push(work());
                turn.store(2 * at + 2, Ordering::Release);
            }
            median(found)
        },
        || {
            for at in 0..TURNS {
                wait_for(turn, 2 * at);
                work();
                turn.store(2 * at + 1, Ordering::Release);
            }
        },
    )
}

/// Measures from one CPU's unlock to the other's first step under the lock. Both take the lock all
/// the time and hold it long enough for the other to be waiting. The times are read under the lock,
/// and only rounds in which it changed owners count. The owner writes `lines` lines of data, each of
/// which the next one writes before its first step.
pub(super) fn handoff_ns(lines: usize) -> Result<f64, Failure> {
    const TURNS: u64 = 2_000;
    const HOLD_NS: u64 = 600;
    struct Shared {
        lock: ThreadsSpin,
        /// When it was released, and by which CPU (1 or 2).
        released_ns: AtomicU64,
        by: AtomicU64,
        here: AtomicU64,
        data: LineRow,
    }
    let signal = go(
        2,
        |_| (),
        |jobs| {
            let shared = Arc::new(Shared {
                lock: ThreadsSpin::new(LockClass::Other),
                released_ns: AtomicU64::new(0),
                by: AtomicU64::new(0),
                here: AtomicU64::new(0),
                data: LineRow::new(lines),
            });
            for cpu in 0..2 {
                let (shared, signal) = (Arc::clone(&shared), Arc::clone(&jobs.signal));
                jobs.start(cpu, move || {
                    shared.here.fetch_add(1, Ordering::AcqRel);
                    while shared.here.load(Ordering::Acquire) < 2 {
                        Threads::relax();
                    }
                    let me = cpu as u64 + 1;
                    let mut gaps_ns = Vec::with_capacity(TURNS as usize);
                    for _ in 0..TURNS {
                        Threads::preempt_disable();
                        shared.lock.lock();
                        shared.data.write();
                        let taken_ns = Threads::now_ns();
                        if shared.by.load(Ordering::Relaxed) == 3 - me {
                            let released_ns = shared.released_ns.load(Ordering::Relaxed);
                            gaps_ns.push(taken_ns.saturating_sub(released_ns));
                        }
                        while Threads::now_ns() < taken_ns + HOLD_NS {}
                        shared.by.store(me, Ordering::Relaxed);
                        shared.released_ns.store(Threads::now_ns(), Ordering::Relaxed);
                        // SAFETY: taken above.
                        unsafe { shared.lock.unlock() };
                        Threads::preempt_enable();
                    }
                    gaps_ns.into_iter().for_each(|gap_ns| signal.took(gap_ns));
                });
            }
        },
    )?;
    Ok(signal.median_ns())
}
