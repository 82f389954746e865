//! Runs a compiled script on a system. Each program interprets the list of operations.
//!
//! Interpreting takes host time, and no time of a simulated machine: only calls and accesses to
//! memory do.

mod calls;
mod order;
mod place;
mod report;
mod value;
mod worker;

use crate::op::{Place, Program};
use order::Orders;
pub(crate) use place::Crowd;
pub use report::{Fault, Report};
use std::sync::Arc;
use value::Value;
pub(crate) use value::binary;
use worker::Worker;

use mmscale_system::System;

/// Times of a run, in ns of the machine's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Times {
    /// The common start of the programs.
    pub begin_ns: u64,
    /// Start of the window in which operations count.
    pub from_ns: u64,
    /// End of the window.
    pub until_ns: u64,
}

impl Times {
    /// Returns the time at which programs end that do not end by themselves: as long after the
    /// window as it is after the start.
    pub(crate) const fn hard_ns(self) -> u64 {
        self.until_ns.saturating_add(self.until_ns.saturating_sub(self.begin_ns))
    }
}

/// Receives what programs have counted, each at its end.
pub trait Receive: Send + Sync {
    /// Receives the report of a program.
    fn report(&self, report: Report);
    /// Receives durations of the parts in `time` of a program that was started on `cpu`, in ns.
    fn times(&self, cpu: usize, times_ns: &[u64]) {
        let _ = (cpu, times_ns);
    }
    /// Counts the arrival of a task at a barrier. Returns its number, from 1.
    fn arrive(&self) -> u64 {
        0
    }
    /// Returns the number of arrivals at barriers so far.
    fn arrivals(&self) -> u64 {
        u64::MAX
    }
}

impl<F: Fn(Report) + Send + Sync> Receive for F {
    fn report(&self, report: Report) {
        self(report);
    }
}

/// The receiver of a run.
pub type Sink = Arc<dyn Receive>;

/// Is called by a program at the start of each round of its outermost `loop`, with the operations
/// that it has counted so far. The loop ends if it returns `false`.
pub type Rounds = Arc<dyn Fn(u64) -> bool + Send + Sync>;

/// The functions that a run calls.
pub(crate) struct Hooks {
    pub(crate) sink: Sink,
    pub(crate) rounds: Option<Rounds>,
}

/// Runs a script as the first program of a system. `params` are the values of its parameters, in
/// bytes, ns or without a unit.
pub(crate) fn run<S: System>(
    program: &Arc<Program>,
    params: &[i64],
    seed: u64,
    times: Times,
    Hooks { sink, rounds }: Hooks,
    crowd: Crowd,
    system: &S,
) {
    let mut values = vec![Value::None; program.slots];
    for (slot, value) in values.iter_mut().zip(params) {
        *slot = Value::Number(*value);
    }
    // Rounds are counted, not timed.
    let step_ps = if rounds.is_some() { 0 } else { step_ps(times, system) };
    sink.report(Report { step_ps, ..Report::default() });
    let first = Worker::first(Arc::clone(program), values, seed, times, Arc::clone(&sink), crowd);
    let orders = program.has_orders().then(|| Arc::new(Orders::of(system)));
    first.watched(rounds).ordered(orders).run(system, 0);
    // This program only starts the others.
    sink.report(Report { prepared_faults: system.faults().unwrap_or(0), ..Report::default() });
}

/// Operations on values as most scripts have them, without a call.
const MEASURED: &str = "process measured { m = 0;
    for i in 0..4096 { a = i * 3 + 1; if a > 6000 { m = max(m, a); } } count; }";

/// Measures the time of an operation on the system's clock, in ps: the shortest of a few rounds.
fn step_ps<S: System>(times: Times, system: &S) -> u64 {
    let Ok(script) = crate::Script::parse("measured", MEASURED) else { return 0 };
    let ops = &script.program.ops;
    let body = ops.iter().position(|op| matches!(op.code, crate::op::Code::Start));
    // Behind `start`, at which a program waits.
    let place = body.map_or(0, |start| start as Place + 1);
    let round = |_| {
        let ignored: Sink = Arc::new(|_: Report| ());
        let values = vec![Value::None; script.program.slots];
        let program = Arc::clone(&script.program);
        let crowd = Crowd::new(1, 1, 1);
        let worker = Worker::first(program, values, 0, times, ignored, crowd);
        let begun_ns = system.clock_ns();
        let steps = worker.run(system, place);
        (system.clock_ns() - begun_ns) * 1000 / steps.max(1)
    };
    (0..4).map(round).min().unwrap_or(0)
}
