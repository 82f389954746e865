//! Measurement of the cost of steps on this computer, for a profile of the simulator.
//!
//! Only single steps are measured: an atomic, a lock, a cache-line transfer between CPUs, an
//! interrupt, a switch. The throughput of the memory manager on several CPUs is not measured,
//! because the profile is to predict it. All steps alternate in rounds, so that a slow moment of
//! the computer affects all of them alike. Each number is the median over rounds, with the
//! quartiles as its range.

mod cross;
mod jobs;
mod quantity;
mod single;
mod tasks;

pub use quantity::Quantity;

use crate::config::Failure;
use crate::host::HostCpus;
use crate::host_cpus;
use quantity::Samples;
use std::sync::Barrier;

/// The cost of steps on this computer, in ns. Steps between two CPUs are missing on a computer with
/// one.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// CPUs that the process may use.
    pub host_cpus: usize,
    /// A read of the machine's clock, which is part of every tracepoint. It is subtracted from the
    /// others.
    pub clock_ns: Quantity,
    /// One of many lines in a row in this CPU's first-level cache, read and written in order.
    pub line_own_ns: Quantity,
    /// An add to a line that this CPU owns.
    pub atomic_ns: Quantity,
    /// Taking a free spin lock whose line this CPU owns.
    pub lock_ns: Quantity,
    /// Releasing a spin lock.
    pub unlock_ns: Quantity,
    /// An interrupt of a CPU to itself, from before the send to after the handler.
    pub irq_ns: Quantity,
    /// A switch from one task to another on a CPU.
    pub switch_ns: Quantity,
    /// Making a waiting task of the same CPU runnable.
    pub wake_ns: Quantity,
    /// Clearing 4 KiB that are in no nearby cache.
    pub clear_page_ns: Quantity,
    /// Bytes that all CPUs together clear in a microsecond.
    pub clear_bytes_per_us: Quantity,
    /// Steps between two CPUs.
    pub pair: Option<MeasuredPair>,
    /// Lines and the lock between two CPUs of each pair that was asked for.
    pub pairs: Vec<(Apart, MeasuredLines)>,
}

/// Where two CPUs part.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Apart {
    /// Two hardware threads of a core.
    Thread,
    /// Two cores behind one last-level cache that is smaller than a node.
    Cluster,
    /// Two caches of a node; or two cores, if a node has one cache.
    Node,
    /// Two nodes.
    Remote,
}

impl Apart {
    /// Returns what the two are, for a text.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Thread => "threads of a core",
            Self::Cluster => "cores of a cache",
            Self::Node => "cores of a node",
            Self::Remote => "nodes",
        }
    }
}

/// Two CPUs, by the system's numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pair {
    /// Where they part.
    pub apart: Apart,
    /// The CPUs.
    pub cpus: [usize; 2],
}

/// Lines of data that the owner of a lock writes, of which the next owner writes all.
pub const DATA_LINES: [usize; 3] = [0, 1, 8];

/// Lines and the lock between two CPUs, in ns.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredLines {
    /// A cache line, as [`MeasuredPair::line_ns`].
    pub line_ns: Quantity,
    /// A handoff, as [`MeasuredPair::handoff_ns`], with as many lines of data as [`DATA_LINES`].
    pub handoff_ns: [Quantity; DATA_LINES.len()],
}

/// The cost of steps between two CPUs, in ns.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredPair {
    /// A cache line from the CPU that wrote it to the other, which cannot overlap it with other
    /// work.
    pub line_ns: Quantity,
    /// One of a row of lines that the other CPU has just written, read and written in order.
    pub line_in_row_ns: Quantity,
    /// From the unlock by one CPU to the first step of the other under the lock that it waited for.
    pub handoff_ns: Quantity,
    /// The sender's part of an interrupt to the other CPU.
    pub ipi_send_ns: Quantity,
    /// From before the send to the handler of a CPU that runs in a wait loop.
    pub ipi_ns: Quantity,
    /// From before the wake-up of a task on a CPU that sleeps to its first step.
    pub idle_wake_ns: Quantity,
}

/// The length of a measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effort {
    /// About half a second: for tests and first looks.
    Quick,
    /// Some seconds.
    Full,
}

impl Effort {
    fn rounds(self) -> usize {
        match self {
            Self::Quick => 5,
            Self::Full => 41,
        }
    }
}

/// Runs `body` on every CPU of the computer at the same time, each on a pinned thread, which also
/// pins the machines that it runs.
///
/// Steps of one CPU are measured in this way because CPUs may be threads of one core, or share its
/// power, and are slower together. A profile is for machines whose CPUs are all busy.
pub fn on_each_cpu<T: Send>(body: impl Fn() -> T + Sync) -> Vec<T> {
    let host = HostCpus::allowed();
    let start = Barrier::new(host.count());
    let work = |cpu: usize| {
        host.pin(cpu);
        start.wait();
        body()
    };
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..host.count()).map(|cpu| scope.spawn(move || work(cpu))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, T>| thread.join();
        let results = threads.into_iter().map(join);
        results.map(|result| result.unwrap_or_else(|why| std::panic::resume_unwind(why))).collect()
    })
}

/// Steps of one CPU, in the order of the fields of [`Measured`].
type Singles = [f64; 8];

/// One round of the steps of one CPU.
fn singles() -> Result<Singles, Failure> {
    let bench = single::Bench::new();
    let clock_ns = bench.clock_ns();
    let less_clock = |ns: f64| (ns - clock_ns).max(0.0);
    let (lock_ns, unlock_ns) = bench.lock_unlock_ns();
    let (both_ns, wake_ns) = (tasks::wake_and_switch_ns()?, tasks::wake_ns()?);
    Ok([
        clock_ns,
        cross::line_own_ns(),
        bench.atomic_ns(),
        lock_ns,
        unlock_ns,
        less_clock(tasks::irq_ns()?),
        (both_ns - wake_ns).max(0.0),
        less_clock(wake_ns),
    ])
}

/// Runs all measurements. `progress` receives the numbers of finished rounds and of all rounds.
///
/// Steps between CPUs are those of the nearest two of different cores in `pairs`, or of the first
/// two CPUs if there are none.
pub fn measure(
    effort: Effort,
    pairs: &[Pair],
    mut progress: impl FnMut(usize, usize),
) -> Result<Measured, Failure> {
    let host_cpus = host_cpus();
    let rounds = effort.rounds();
    let clears = single::Clears::new()?;
    let mut steps = [const { Samples::new() }; 8];
    let [mut clear, mut bandwidth] = [const { Samples::new() }; 2];
    let [mut line, mut in_row, mut handoff] = [const { Samples::new() }; 3];
    let [mut send, mut ipi, mut idle_wake] = [const { Samples::new() }; 3];
    let mut lines: Vec<PairSamples> = pairs.iter().map(|_| PairSamples::default()).collect();
    let usual =
        pairs.iter().filter(|pair| pair.apart > Apart::Thread).min_by_key(|pair| pair.apart);
    for round in 0..rounds {
        progress(round, rounds);
        let of_cpus: Vec<Singles> = on_each_cpu(singles).into_iter().collect::<Result<_, _>>()?;
        for (at, step) in steps.iter_mut().enumerate() {
            step.add(of_cpus.iter().map(|of| of[at]).sum::<f64>() / of_cpus.len() as f64);
        }
        let clock_ns = of_cpus[0][0];
        let less_clock = |ns: f64| (ns - clock_ns).max(0.0);
        clear.add(clears.page_ns());
        bandwidth.add(clears.bytes_per_us(host_cpus));
        if host_cpus > 1 {
            let [one, row, lock, sent, handled, woken] = on_pair(usual, steps_of_two)?;
            line.add(one);
            in_row.add(row);
            handoff.add(less_clock(lock));
            send.add(less_clock(sent));
            ipi.add(less_clock(handled));
            idle_wake.add(less_clock(woken));
        }
        for (pair, samples) in pairs.iter().zip(&mut lines) {
            samples.line.add(on_pair(Some(pair), || Ok(cross::line_ns()))?);
            for (handoff, lines) in samples.handoff.iter_mut().zip(DATA_LINES) {
                handoff.add(less_clock(on_pair(Some(pair), || cross::handoff_ns(lines))?));
            }
        }
    }
    progress(rounds, rounds);
    let pair = (host_cpus > 1).then(|| MeasuredPair {
        line_ns: line.quantity(),
        line_in_row_ns: in_row.quantity(),
        handoff_ns: handoff.quantity(),
        ipi_send_ns: send.quantity(),
        ipi_ns: ipi.quantity(),
        idle_wake_ns: idle_wake.quantity(),
    });
    let [clock, line_own, atomic, lock, unlock, irq, switch, wake] = steps.map(Samples::quantity);
    Ok(Measured {
        host_cpus,
        clock_ns: clock,
        line_own_ns: line_own,
        atomic_ns: atomic,
        lock_ns: lock,
        unlock_ns: unlock,
        irq_ns: irq,
        switch_ns: switch,
        wake_ns: wake,
        clear_page_ns: clear.quantity(),
        clear_bytes_per_us: bandwidth.quantity(),
        pair,
        pairs: pairs.iter().map(|pair| pair.apart).zip(lines.into_iter().map(found)).collect(),
    })
}

/// Rounds of lines and the lock between two CPUs.
#[derive(Default)]
struct PairSamples {
    line: Samples,
    handoff: [Samples; DATA_LINES.len()],
}

fn found(of: PairSamples) -> MeasuredLines {
    let PairSamples { line, handoff } = of;
    MeasuredLines { line_ns: line.quantity(), handoff_ns: handoff.map(Samples::quantity) }
}

/// One round of the steps between two CPUs: a line, a line in a row, a handoff, the send of an
/// interrupt, its handling, and a wake-up of an idle CPU, in ns.
fn steps_of_two() -> Result<[f64; 6], Failure> {
    Ok([
        cross::line_ns(),
        cross::line_in_row_ns(),
        cross::handoff_ns(0)?,
        tasks::ipi_send_ns()?,
        tasks::ipi_ns()?,
        tasks::idle_wake_ns()?,
    ])
}

/// Measures on two CPUs; on the first two if there is no pair, or the system does not allow it.
fn on_pair<T: Send>(
    pair: Option<&Pair>,
    steps: impl Fn() -> Result<T, Failure> + Sync + Send,
) -> Result<T, Failure> {
    let placed = pair.and_then(|pair| HostCpus::only(&pair.cpus, &steps));
    placed.unwrap_or_else(steps)
}
