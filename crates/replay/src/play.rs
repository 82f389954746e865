//! A run: a recording on a simulated machine.

use crate::check::{ReplayError, check};
use crate::code::{Code, Rounds};
use crate::player::Player;
use crate::tally::{CallSums, Counted, TickSums};
use mmscale_arch::{CpuId, Probe, Trace, TraceGroup};
use mmscale_document::{BlameRows, CallRow, CpuTimeRecord, LineRecord, LockRow};
use mmscale_lift::{LockKind, Recording};
use mmscale_sim::{LineOrder, Outcome, SimConfig};
use std::any::Any;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

/// A recording that can be replayed.
#[derive(Clone)]
pub struct Replay {
    code: Arc<Code>,
    rounds: Rounds,
}

/// The part of a run that counts, in ns of virtual time. CPUs begin at 0 and end with the operation
/// in which the window ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// The start.
    pub from_ns: u64,
    /// The end.
    pub until_ns: u64,
}

/// The results of a run. They are those of the window.
pub struct Played {
    /// The window.
    pub window: Window,
    /// Operations that the recorded script counted. Of those that are not all in the window, as
    /// much counts as is.
    pub ops: f64,
    /// Recorded operations that ended. One of them is a round of the script's loop.
    pub rounds: u64,
    /// Time of all CPUs: in all, not idle, and stalled for lines.
    pub cpu_time: CpuTimeRecord,
    /// Locks by class and by the function that takes them, with its caller.
    pub locks: Vec<LockRow>,
    /// Lines that came from other CPUs, by what they hold.
    pub lines: Vec<LineRecord>,
    /// Calls of other CPUs.
    pub called: CallSums,
    /// Interrupts of timers.
    pub ticks: TickSums,
    /// CPU time: that of the instructions before an event counts for the function of the event.
    /// Times at which functions are entered are not known.
    pub calls: Vec<CallRow>,
    /// That time without waits for sleeping locks.
    pub work: Vec<CallRow>,
    /// The work of the holders of spin locks while others waited, if the run recorded it. Paths are
    /// those of `calls`.
    pub blame: BlameRows,
    /// The outcome of the machine. Its own statistics of locks have paths of the recording, but not
    /// its classes.
    pub outcome: Outcome,
}

impl Replay {
    /// Prepares a recording.
    ///
    /// # Errors
    /// A replay of it would not end.
    pub fn new(recording: &Recording) -> Result<Self, ReplayError> {
        check(recording)?;
        Ok(Self { code: Arc::new(Code::of(recording)), rounds: Rounds::All })
    }

    /// Returns the replay of every second round of each CPU, beginning with round 0 or 1. The
    /// difference of the two is the error of the recording.
    #[must_use]
    pub fn half(&self, first: usize) -> Self {
        Self { rounds: Rounds::Half(first), ..self.clone() }
    }

    /// Returns the classes of the spin locks of the recording, sorted.
    pub fn spin_classes(&self) -> Vec<&str> {
        let spins = self.code.locks.iter().filter(|lock| lock.kind == LockKind::Spin);
        let classes: BTreeSet<u32> = spins.map(|lock| lock.name).collect();
        let mut names: Vec<&str> =
            classes.into_iter().map(|name| self.code.line_names[name as usize].as_str()).collect();
        names.sort_unstable();
        names
    }

    /// Whether the recording has interrupts of timers.
    pub fn has_ticks(&self) -> bool {
        self.code.ticks.is_some()
    }

    /// Replays the recording on all CPUs of a machine until the end of the window. A run that ended
    /// early has no results but the outcome.
    pub fn play(&self, mut config: SimConfig, window: Window) -> Played {
        let ps = |ns: u64| ns.saturating_mul(1000);
        let counted = Counted { from_ps: ps(window.from_ns), until_ps: ps(window.until_ns) };
        let cpus = config.cpus as u64;
        config.line_order = LineOrder::ByCluster;
        config.locks_ns = (window.from_ns, window.until_ns);
        let scaled = config.hold_scale.map(|scale| scale.class.name());
        let mut player = None;
        let mut outcome = mmscale_sim::run(config, silent, || {
            let booted =
                Rc::new(Player::boot(Arc::clone(&self.code), self.rounds, counted, scaled));
            player = Some(Rc::clone(&booted));
            booted
        });
        let all_ns = cpus * (window.until_ns - window.from_ns);
        let cpu_time = CpuTimeRecord { all_ns, ..CpuTimeRecord::default() };
        let (locks, lines, calls, work) = (vec![], vec![], vec![], vec![]);
        let blame = std::mem::take(&mut outcome.blame);
        let (ops, rounds, called) = (0.0, 0, CallSums::default());
        let ticks = TickSums::default();
        let mut played = Played {
            window,
            ops,
            rounds,
            cpu_time,
            locks,
            lines,
            called,
            ticks,
            calls,
            work,
            blame,
            outcome,
        };
        if let Some(player) = player.filter(|_| played.outcome.failure.is_none()) {
            let (tally, idle_ps) = player.counted();
            played.ops = tally.ops();
            played.rounds = tally.rounds;
            played.called = tally.calls;
            played.ticks = tally.ticks;
            played.cpu_time.busy_ns = all_ns - idle_ps / 1000;
            played.cpu_time.lines_ns = tally.lines_ns();
            played.cpu_time.stranded_ns = played.outcome.stranded_ns;
            played.locks = tally.lock_rows(&self.code);
            played.lines = tally.line_rows(&self.code);
            played.calls = tally.call_rows(&self.code);
            played.work = tally.work_rows(&self.code);
        }
        played
    }
}

/// Returns a probe that hears nothing.
fn silent(_: CpuId) -> Box<dyn Probe> {
    struct Silent;
    impl Probe for Silent {
        fn hears(&self, _: TraceGroup) -> bool {
            false
        }
        fn event(&mut self, _: u64, _: &Trace) {}
        fn into_any(self: Box<Self>) -> Box<dyn Any> {
            self
        }
    }
    Box::new(Silent)
}
