//! Runs a script on the running kernel for a number of rounds, not for a time: where time passes
//! as in an emulator, only counts mean something. A round is one of the outermost `loop` of the
//! script's first program that has one; other programs run as they are scheduled.

use mmscale_harness::{Interrupt, ScriptReport, ScriptTimes, Study};
use mmscale_linux::{Config, Failure, Linux, PROCESS_BYTES, Shared};
use mmscale_system::{System, plain};
use std::sync::Arc;
use thiserror::Error;

/// The most rounds of a run.
pub const MAX_ROUNDS: usize = 1000;
/// Rounds before the first that counts: caches fill, and a script may begin with another size.
const WARM_ROUNDS: u64 = 2;

/// The time that programs have to come to their start, in ns.
const BEGIN_NS: u64 = 50_000_000;
/// A time that no run reaches, in ns.
const NEVER_NS: u64 = u64::MAX / 4;
/// Memory of a run in addition to that of its processes and pages.
const SPARE_BYTES: u64 = 128 << 20;
/// Memory of a page with its part of page tables.
const PAGE_AND_TABLES_BYTES: u64 = 4096 + 4096 / 128;
/// The longest time of a run, in ns of the machine's clock.
const LIMIT_NS: u64 = 3_600_000_000_000;

/// Why a script was not run.
#[derive(Debug, Error)]
pub enum RoundsError {
    /// It has no rounds.
    #[error("`{0}` is no script with a `loop`: it has no rounds to count")]
    NoLoop(String),
    /// Its programs ended before all rounds.
    #[error("the script `{script}` ended after {rounds} rounds of {wanted}{why}")]
    Early {
        /// The name of the script.
        script: String,
        /// Rounds that it did.
        rounds: usize,
        /// Rounds that were asked for.
        wanted: usize,
        /// The error of its program, if one was reported.
        why: String,
    },
    /// The user interrupted it.
    #[error("interrupted")]
    Interrupted,
    /// The kernel did not run it.
    #[error("{0}")]
    Run(String),
}

/// Calls at the edges of rounds, on the CPU of the program.
#[derive(Clone, Copy, Debug)]
pub struct Marks {
    /// Before the first round that counts; again for each script.
    pub arm: fn(),
    /// At the begin of a round.
    pub begin: fn(),
    /// At its end.
    pub end: fn(),
}

/// The state that the processes of a run share.
#[derive(Clone, Copy)]
struct State {
    /// The process whose rounds count; 0 until one begins.
    owner: u32,
    /// Rounds that it began, those of the warm-up included.
    begun: u64,
    /// Operations before the current round.
    ops_before: u64,
    ops: [u64; MAX_ROUNDS],
}

plain! { State { owner, begun, ops_before, ops } }

impl State {
    /// Rounds that count and have ended.
    fn done(&self) -> usize {
        self.begun.saturating_sub(WARM_ROUNDS + 1) as usize
    }

    /// Notes that a process begins a round, after `ops` operations.
    fn begins(&mut self, process: u32, wanted: usize, ops: u64) -> Edge {
        if self.owner == 0 {
            self.owner = process;
        }
        if self.owner != process {
            return if self.done() < wanted { Edge::Foreign } else { Edge::Last };
        }
        self.begun += 1;
        let done = self.done();
        if let Some(before) = done.checked_sub(1) {
            self.ops[before] = ops - self.ops_before;
        }
        self.ops_before = ops;
        match self.begun {
            1..=WARM_ROUNDS => Edge::Warm,
            begun if begun == WARM_ROUNDS + 1 => Edge::First,
            _ if done < wanted => Edge::Next,
            _ => Edge::Last,
        }
    }
}

/// An edge between two rounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Edge {
    /// Of another process: it goes on as long as rounds are missing.
    Foreign,
    /// Neither round counts.
    Warm,
    /// The next one counts.
    First,
    /// Both count.
    Next,
    /// The last one counted.
    Last,
}

impl Edge {
    /// Places marks. Returns whether there is another round.
    fn pass(self, marks: Marks) -> bool {
        match self {
            Self::Foreign | Self::Warm => {}
            Self::First => {
                (marks.arm)();
                (marks.begin)();
            }
            Self::Next => {
                (marks.end)();
                (marks.begin)();
            }
            Self::Last => {
                (marks.end)();
                return false;
            }
        }
        true
    }
}

/// Runs a script on one CPU. Returns the operations of each round that counts.
///
/// # Errors
/// See [`RoundsError`].
pub fn run(
    study: &Study,
    wanted: usize,
    marks: Marks,
    interrupt: &Interrupt,
) -> Result<Vec<u64>, RoundsError> {
    let script = study.script().filter(|script| script.loops());
    let Some(script) = script else {
        return Err(RoundsError::NoLoop(study.name().to_owned()));
    };
    let wanted = wanted.min(MAX_ROUNDS);
    let params: Vec<i64> = script.params().iter().map(|param| param.default).collect();
    let needs = script.needs(&params, 1);
    let processes = needs.tasks + 8;
    let config = Config {
        cpus: 1,
        memory_bytes: SPARE_BYTES + processes * PROCESS_BYTES + needs.pages * PAGE_AND_TABLES_BYTES,
        processes,
        limit_ns: LIMIT_NS,
        interrupt: Some(interrupt.flag()),
    };
    let state = Shared::new(State { owner: 0, begun: 0, ops_before: 0, ops: [0; MAX_ROUNDS] });
    let report = Shared::<ScriptReport>::default();
    let (own, own_state, own_report) = (study.clone(), state.clone(), report.clone());
    let body = move |system: &Linux| {
        let begin_ns = system.clock_ns() + BEGIN_NS;
        let times = ScriptTimes { begin_ns, from_ns: begin_ns, until_ns: NEVER_NS };
        let sink = move |report: ScriptReport| own_report.change(|all| *all += report);
        let rounds = move |ops: u64| {
            let process = std::process::id();
            let edge = own_state.change(|state| state.begins(process, wanted, ops));
            edge.pass(marks)
        };
        let script = own.script().expect("it is a script, as above");
        script.run_rounds(&params, 0, times, Arc::new(sink), Arc::new(rounds), system);
    };
    mmscale_linux::run(&config, Box::new(body)).map_err(|why| match why {
        Failure::Interrupted => RoundsError::Interrupted,
        why => RoundsError::Run(why.to_string()),
    })?;
    let state = state.get();
    match state.done() < wanted {
        true => Err(RoundsError::Early {
            script: script.name().to_owned(),
            rounds: state.done(),
            wanted,
            why: report.get().fault.map_or_else(String::new, |fault| format!(": {fault}")),
        }),
        false => Ok(state.ops[..wanted].to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmscale_harness::Registry;

    const MARKS: Marks = Marks { arm: || (), begin: || (), end: || () };

    fn ran(text: &str, wanted: usize) -> Result<Vec<u64>, RoundsError> {
        let study = Registry::default().script_of("few", text).unwrap();
        run(&study, wanted, MARKS, &Interrupt::default())
    }

    #[test]
    fn rounds_count_after_those_of_the_warm_up() {
        let mut state = State { owner: 0, begun: 0, ops_before: 0, ops: [0; MAX_ROUNDS] };
        let mut begins = |process, ops| state.begins(process, 2, ops);
        assert_eq!(
            [begins(7, 0), begins(7, 3), begins(8, 0)],
            [Edge::Warm, Edge::Warm, Edge::Foreign]
        );
        assert_eq!(
            [begins(7, 10), begins(7, 14), begins(7, 19)],
            [Edge::First, Edge::Next, Edge::Last]
        );
        assert_eq!(begins(8, 5), Edge::Last);
        assert_eq!((state.done(), &state.ops[..2]), (2, &[4, 5][..]));
    }

    #[test]
    fn a_script_without_rounds_is_refused() {
        let why = ran("process one { start; count; }", 3).unwrap_err();
        assert!(why.to_string().contains("no script with a `loop`"), "{why}");
    }

    #[test]
    fn a_script_runs_for_its_rounds_on_this_kernel() {
        let text = "process one { start; loop { mem = mmap(16 KiB); for i in 0..pages(mem) { \
                    write(mem[i]); count; } munmap(mem); } }";
        assert_eq!(ran(text, 5).unwrap(), [4; 5]);
    }

    #[test]
    fn a_script_that_ends_early_says_why() {
        let text = "process one { start; n = 0; loop { n = n + 1; mem = mmap((5 - n) * 1 page); \
                    count; } }";
        let why = ran(text, 50).unwrap_err().to_string();
        assert!(why.contains("ended after 2 rounds of 50: line 1"), "{why}");
    }
}
