//! Runs a script on all CPUs of the running kernel, whose programs take turns: one round of one
//! program at any time. So no program finds a lock taken, and what a round does in the kernel is
//! the uncontended path. It is for virtual machines whose emulator records the rounds.
//!
//! A member is a program in its outermost `loop`. Members begin when no other one has come for a
//! while. They wait for their turn in user mode, and none ends before all have done their rounds:
//! so nothing else runs in the kernel in a round, except what interrupts bring.

use crate::rounds::{Marks, RoundsError};
use mmscale_harness::{Interrupt, ScriptReport, ScriptTimes, Study};
use mmscale_linux::{
    Config, Failure, Linux, PROCESS_BYTES, Shared, SharedNumbers, sleeps_of_thread,
};
use mmscale_system::System;
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::thread;
use std::time::{Duration, Instant};

/// The most rounds of a member that count.
pub const MAX_ROUNDS: u64 = 1000;
/// The most rounds of all members that count.
const MAX_ROWS: usize = 1 << 16;
/// Rounds before the first that counts, for each that counts: batches and caches have their sizes
/// then.
const WARM: u64 = 2;
/// The most operations of a member's rounds that count, if the call names no number of rounds, and
/// the fewest and the most rounds.
const OPERATIONS: u64 = 400;
const FEWEST_ROUNDS: u64 = 4;
const MOST_ROUNDS: u64 = 50;

/// The time after which no further member is expected: if there is one for each CPU, and if there
/// are fewer. On a busy computer an emulated machine is slow.
const SETTLED: Duration = Duration::from_millis(400);
const SETTLED_WITH_FEW: Duration = Duration::from_secs(5);
/// The time between two looks at whether others have come.
const LOOK: Duration = Duration::from_millis(50);
/// Looks for a turn between two looks at the clock, and the longest time of a turn of another.
const SPINS: u32 = 1 << 14;
const PATIENCE: Duration = Duration::from_secs(60);

/// The time that programs have to come to their start, in ns.
const BEGIN_NS: u64 = 300_000_000;
/// A time that no run reaches, in ns.
const NEVER_NS: u64 = u64::MAX / 4;
/// Memory of a run in addition to that of its processes and pages.
const SPARE_BYTES: u64 = 128 << 20;
/// Memory of a page with its part of page tables.
const PAGE_AND_TABLES_BYTES: u64 = 4096 + 4096 / 128;
/// The longest time of a run, in ns of the machine's clock.
const LIMIT_NS: u64 = 3_600_000_000_000;

/// The rounds that counted, in the order of turns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turns {
    /// Members: programs that loop.
    pub members: u64,
    /// Operations of each round.
    pub ops: Vec<u64>,
    /// Rounds in which their program slept.
    pub sleeps: u64,
}

/// Places of the numbers that members share.
#[derive(Clone, Copy)]
enum At {
    /// Members that have come.
    Come,
    /// Members when no further one was expected; 0 before.
    Members,
    /// Rounds that count, 0 before that is known.
    Wanted,
    /// Turns that have begun: the member with the number of the rest by `Members` has it.
    Turn,
    /// Members that have done their rounds.
    Done,
    /// 1: a member waited for too long. 2: one came when the others had begun.
    Failed,
    /// Rounds that counted.
    Rows,
    /// Rounds that counted in which their program slept.
    Sleeps,
    /// The operations of the first of them, plus 1.
    Row,
}

type Numbers = SharedNumbers<{ MAX_ROWS + 9 }>;

/// The state of a member, in its own memory.
#[derive(Clone, Copy)]
struct Member {
    is_in: bool,
    number: u64,
    rounds: u64,
    ops_before: u64,
    sleeps_before: u64,
    in_round: bool,
}

impl Member {
    const NEW: Self = Self {
        is_in: false,
        number: 0,
        rounds: 0,
        ops_before: 0,
        sleeps_before: 0,
        in_round: false,
    };
}

thread_local! {
    static MEMBER: Cell<Member> = const { Cell::new(Member::NEW) };
}

#[derive(Clone)]
struct Order {
    numbers: Numbers,
    /// Rounds that count, if the call says so.
    rounds: Option<u64>,
    marks: Marks,
}

impl Order {
    fn get(&self, at: At) -> u64 {
        // Pairs with the `Release` of `set` and `add`, in other processes.
        self.numbers[at as usize].load(Acquire)
    }
    fn set(&self, at: At, value: u64) {
        self.numbers[at as usize].store(value, Release);
    }
    /// Adds one; returns the number before.
    fn add(&self, at: At) -> u64 {
        self.numbers[at as usize].fetch_add(1, Release)
    }

    /// Passes the edge between two rounds of the calling member, after `ops` operations. Returns
    /// whether there is another round.
    fn edge(&self, ops: u64) -> bool {
        let mut member = MEMBER.get();
        // First of all: what follows is no part of the round.
        if member.in_round {
            (self.marks.end)();
            let slept = sleeps_of_thread() > member.sleeps_before;
            self.note(ops - member.ops_before, slept);
        }
        if !member.is_in {
            member = Member { is_in: true, number: self.come(), ..Member::NEW };
        } else {
            member.rounds += 1;
            if self.get(At::Wanted) == 0 {
                self.set(At::Wanted, self.wanted(ops - member.ops_before));
            }
            self.add(At::Turn);
        }
        let warm = WARM * self.get(At::Wanted);
        let goes_on = self.get(At::Wanted) == 0 || member.rounds < warm + self.get(At::Wanted);
        member.ops_before = ops;
        if !goes_on {
            self.wait_for_all();
            MEMBER.set(Member::NEW);
            return false;
        }
        let has_turn = self.wait_for_turn(member.number);
        let warm = WARM * self.get(At::Wanted);
        member.in_round = has_turn && self.get(At::Wanted) > 0 && member.rounds >= warm;
        member.sleeps_before = sleeps_of_thread();
        MEMBER.set(member);
        if member.in_round {
            (self.marks.begin)();
        }
        has_turn
    }

    /// Notes the operations of a round that counted, and whether its program slept in it.
    fn note(&self, ops: u64, slept: bool) {
        if slept {
            self.add(At::Sleeps);
        }
        let row = self.add(At::Rows) as usize;
        if let Some(place) = self.numbers.get(At::Row as usize + row) {
            place.store(ops + 1, Relaxed);
        }
    }

    /// Returns how many rounds count, if one has so many operations.
    fn wanted(&self, ops: u64) -> u64 {
        let members = self.get(At::Members).max(1);
        let by_ops = (OPERATIONS / ops.max(1)).clamp(FEWEST_ROUNDS, MOST_ROUNDS);
        let rounds = self.rounds.unwrap_or(by_ops);
        rounds.clamp(1, MAX_ROUNDS.min(MAX_ROWS as u64 / members))
    }

    /// Comes as a member. Returns its number when all have come.
    fn come(&self) -> u64 {
        let number = self.add(At::Come);
        if number == 0 {
            let cpus = thread::available_parallelism().map_or(1, usize::from) as u64;
            let (mut seen, mut since) = (0, Instant::now());
            let settled = |seen| if seen < cpus { SETTLED_WITH_FEW } else { SETTLED };
            while since.elapsed() < settled(seen) {
                let come = self.get(At::Come);
                if come != seen {
                    (seen, since) = (come, Instant::now());
                }
                thread::sleep(LOOK);
            }
            (self.marks.arm)();
            self.set(At::Members, self.get(At::Come));
        }
        while self.get(At::Members) == 0 && self.get(At::Failed) == 0 {
            thread::sleep(LOOK);
        }
        number
    }

    /// Waits in user mode. Returns whether the member has its turn; else another one does not end
    /// its own, or it came too late.
    fn wait_for_turn(&self, number: u64) -> bool {
        let members = self.get(At::Members);
        if number >= members {
            self.set(At::Failed, 2);
            return false;
        }
        let (mut seen, mut since) = (u64::MAX, Instant::now());
        loop {
            for _ in 0..SPINS {
                let turn = self.get(At::Turn);
                if turn % members == number {
                    return true;
                }
                // The emulator goes to the next CPU then.
                std::hint::spin_loop();
            }
            let turn = self.get(At::Turn);
            if turn != seen {
                (seen, since) = (turn, Instant::now());
            }
            if self.get(At::Failed) > 0 || since.elapsed() > PATIENCE {
                self.set(At::Failed, 1);
                return false;
            }
        }
    }

    fn wait_for_all(&self) {
        self.add(At::Done);
        while self.get(At::Done) < self.get(At::Members) && self.get(At::Failed) == 0 {
            thread::sleep(LOOK);
        }
    }

    /// Returns the rounds that counted.
    fn turns(&self) -> Turns {
        let rows = &self.numbers[At::Row as usize..];
        let ops = rows.iter().map(|row| row.load(Acquire)).take_while(|row| *row > 0);
        let ops = ops.map(|row| row - 1).collect();
        Turns { members: self.get(At::Members), ops, sleeps: self.get(At::Sleeps) }
    }
}

/// Runs a script with these values of its parameters on all CPUs.
///
/// # Errors
/// See [`RoundsError`]; also if a member waited too long for its turn.
pub fn run(
    study: &Study,
    params: &[i64],
    rounds: Option<u64>,
    marks: Marks,
    interrupt: &Interrupt,
) -> Result<Turns, RoundsError> {
    let script = study.script().filter(|script| script.loops());
    let Some(script) = script else {
        return Err(RoundsError::NoLoop(study.name().to_owned()));
    };
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let needs = script.needs(params, cpus);
    let processes = needs.tasks + 8;
    let config = Config {
        cpus,
        memory_bytes: SPARE_BYTES + processes * PROCESS_BYTES + needs.pages * PAGE_AND_TABLES_BYTES,
        processes,
        limit_ns: LIMIT_NS,
        interrupt: Some(interrupt.flag()),
    };
    let order = Order { numbers: SharedNumbers::zeroed(), rounds, marks };
    let report = Shared::<ScriptReport>::default();
    let (own, own_order, own_report) = (study.clone(), order.clone(), report.clone());
    let params = params.to_vec();
    let body = move |system: &Linux| {
        let begin_ns = system.clock_ns() + BEGIN_NS;
        let times = ScriptTimes { begin_ns, from_ns: begin_ns, until_ns: NEVER_NS };
        let faulty = own_order.clone();
        let sink = move |report: ScriptReport| {
            // The others would wait for its turn.
            if report.fault.is_some() {
                faulty.set(At::Failed, 1);
            }
            own_report.change(|all| *all += report);
        };
        let edge = move |ops: u64| own_order.edge(ops);
        let script = own.script().expect("it is a script, as above");
        script.run_rounds(&params, 0, times, Arc::new(sink), Arc::new(edge), system);
    };
    mmscale_linux::run(&config, Box::new(body)).map_err(|why| match why {
        Failure::Interrupted => RoundsError::Interrupted,
        why => RoundsError::Run(why.to_string()),
    })?;
    let turns = order.turns();
    let (members, wanted) = (order.get(At::Members), order.get(At::Wanted));
    let early = |why: String| RoundsError::Early {
        script: script.name().to_owned(),
        rounds: turns.ops.len(),
        wanted: (members * wanted) as usize,
        why,
    };
    if let Some(fault) = report.get().fault {
        return Err(early(format!(": {fault}")));
    }
    if order.get(At::Failed) == 2 {
        return Err(early(
            ": one of its programs came when the others had begun. Try again when this computer is \
             less busy"
                .to_owned(),
        ));
    }
    if order.get(At::Failed) > 0 {
        return Err(early(": its programs wait for one another within a round".to_owned()));
    }
    if turns.ops.len() as u64 != members * wanted || turns.ops.is_empty() {
        return Err(early(String::new()));
    }
    Ok(turns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmscale_harness::Registry;

    const MARKS: Marks = Marks { arm: || (), begin: || (), end: || () };

    fn ran(text: &str, rounds: Option<u64>) -> Result<Turns, RoundsError> {
        let study = Registry::default().script_of("few", text).unwrap();
        run(&study, &[], rounds, MARKS, &Interrupt::default())
    }

    #[test]
    fn every_member_does_its_rounds_in_turn() {
        let text = "process one per_cpu { start; loop { mem = mmap(16 KiB); for i in 0..pages(mem) \
                    { write(mem[i]); count; } munmap(mem); } }";
        let turns = ran(text, Some(3)).unwrap();
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        assert_eq!((turns.members, turns.ops), (cpus as u64, vec![4; 3 * cpus]));
    }

    #[test]
    fn rounds_that_sleep_are_counted() {
        let of = |statement: &str| {
            let text = format!("process one per_cpu {{ start; loop {{ {statement} count; }} }}");
            let turns = ran(&text, Some(8)).unwrap();
            (turns.sleeps, turns.ops.len() as u64)
        };
        let (sleeps, rounds) = of("sleep(1ms);");
        assert_eq!(sleeps, rounds);
        let (sleeps, rounds) = of("compute(1us);");
        assert!(sleeps * 2 < rounds, "{sleeps} of {rounds}");
    }

    #[test]
    fn short_rounds_count_more_often() {
        let order = Order { numbers: SharedNumbers::zeroed(), rounds: None, marks: MARKS };
        assert_eq!([1, 8, 20, 512].map(|ops| order.wanted(ops)), [50, 50, 20, 4]);
        let order = Order { rounds: Some(7), ..order };
        assert_eq!(order.wanted(1), 7);
    }

    #[test]
    fn a_script_that_ends_early_says_why() {
        let text = "process one per_cpu { start; n = 0; loop { n = n + 1; mem = mmap((5 - n) * 1 \
                    page); count; munmap(mem); } }";
        let why = ran(text, Some(30)).unwrap_err().to_string();
        assert!(why.contains("ended after"), "{why}");
    }
}
