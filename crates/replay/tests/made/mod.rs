//! Recordings that are made by hand or at random, and their runs.

use mmscale_lift::{
    Answer, AnswerId, Call, Event, FunctionId, Line, LineId, Lock, LockKind, Operation, Origin,
    Recording, Share, Site, SiteId, Ticks, What,
};
use mmscale_replay::{Played, Replay, Window};
use mmscale_sim::profile::Topology;
use mmscale_sim::{Policy, SimConfig, sample_profile};

/// The window of all runs: 1 ms after 0.2 ms.
pub(crate) const WINDOW: Window = Window { from_ns: 200_000, until_ns: 1_200_000 };

/// Returns an event in the function whose number is that of the kind.
pub(crate) fn event(after: u32, what: What, target: u32) -> Event {
    Event { after, what, offset: 0, target, site: SiteId(what as u32) }
}

/// Returns an operation that executes `instructions`.
pub(crate) fn operation(instructions: u64, events: &[Event]) -> Operation {
    Operation { count: 1, instructions, events: events.to_vec(), ..Operation::default() }
}

/// Returns a recording of CPUs on these nodes, all of which do the same operation, with one line
/// and one lock.
pub(crate) fn recording(nodes: &[u8], kind: LockKind, share: Share, of: &Operation) -> Recording {
    let functions: Vec<String> = What::ALL.iter().map(|what| format!("do_{what:?}")).collect();
    let caller = FunctionId(functions.len() as u32);
    let sites = (0..caller.0).map(|id| Site { function: FunctionId(id), caller });
    Recording {
        origin: Origin { node_of_cpu: nodes.to_vec(), ..Origin::default() },
        sites: sites.collect(),
        functions: functions.into_iter().chain(["sys_call".to_owned()]).collect(),
        lines: vec![line("struct file", share)],
        locks: vec![lock("lruvec", kind, share)],
        calls: Vec::new(),
        answers: Vec::new(),
        ticks: None,
        growth: None,
        cpus: vec![vec![of.clone()]; nodes.len()],
    }
}

/// Adds a call by each CPU of all others, which execute `instructions` and write the line; its
/// number is that of the CPU. It is a flush if `is_flush`.
pub(crate) fn add_calls(to: &mut Recording, instructions: u64, is_flush: bool) {
    let cpus = to.cpus.len() as u32;
    for sender in 0..cpus {
        let mut receivers = Vec::new();
        for receiver in (0..cpus).filter(|cpu| *cpu != sender) {
            receivers.push((receiver, AnswerId(to.answers.len() as u32)));
            let events = vec![event(100, What::Write, 0)];
            to.answers.push(Answer { sender, receiver, instructions, events });
        }
        to.calls.push(Call { is_flush, receivers });
    }
}

/// Adds a tick and a batch of RCU callbacks to each CPU, which execute so many instructions and
/// write the line; there are `batches` for a round.
pub(crate) fn add_ticks(to: &mut Recording, [tick, batch]: [u64; 2], batches: f64) {
    let mut all = |instructions: u64| -> Vec<Vec<AnswerId>> {
        let mut of_cpu = |cpu: u32| {
            let events = vec![event(100, What::Write, 0)];
            to.answers.push(Answer { sender: cpu, receiver: cpu, instructions, events });
            vec![AnswerId(to.answers.len() as u32 - 1)]
        };
        (0..to.cpus.len() as u32).map(&mut of_cpu).collect()
    };
    to.ticks = Some(Ticks { ticks: all(tick), callbacks: all(batch), batches });
}

pub(crate) fn line(object: &str, share: Share) -> Line {
    Line { address: 64, object: object.to_owned(), share, users: 4, writers: 4 }
}

pub(crate) fn lock(class: &str, kind: LockKind, share: Share) -> Lock {
    Lock { address: 80, kind, class: class.to_owned(), share, line: None }
}

/// Returns a machine with round costs, checkers on: `nodes` nodes of `cpus` CPUs in all, one thread
/// a core, one cache a node.
pub(crate) fn machine(cpus: usize, nodes: usize) -> SimConfig {
    let mut profile = sample_profile(cpus);
    profile.topology = Topology { cpus, smt: 1, cluster: cpus / nodes, nodes };
    SimConfig { seed: 7, ..SimConfig::new(profile, cpus) }
}

/// Replays a recording; panics if the run fails or a checker finds something.
pub(crate) fn play(recording: &Recording, config: SimConfig) -> Played {
    let replay = Replay::new(recording).unwrap_or_else(|why| panic!("{why}"));
    let played = replay.play(config, WINDOW);
    assert_eq!(played.outcome.failure, None);
    assert!(played.outcome.violations.is_empty(), "{:?}", played.outcome.violations);
    played
}

/// Returns the operations of a run on `nodes` nodes of `cpus` CPUs in all.
pub(crate) fn ops(recording: &Recording, cpus: usize, nodes: usize) -> f64 {
    play(recording, machine(cpus, nodes)).ops
}

/// Random numbers from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 += 1;
        mmscale_arch::random(self.0, mmscale_arch::CpuId::new(0), n) % n
    }
    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

/// Returns a random recording of four CPUs on two nodes: locks of all kinds, sleeping ones taken
/// before spinning ones, each kind in the order of their numbers.
pub(crate) fn random(seed: u64) -> Recording {
    const SHARES: [Share; 4] = [Share::Private, Share::Few, Share::Node, Share::All];
    let mut random = Random(seed << 32);
    let plain = operation(100, &[]);
    let mut made = recording(&[0, 0, 1, 1], LockKind::Spin, Share::All, &plain);
    made.lines = (0..4).map(|n| line(&format!("object {n}"), random.one_of(&SHARES))).collect();
    let kinds = [LockKind::Rwsem, LockKind::Mutex, LockKind::Spin, LockKind::Spin];
    made.locks = (0..4)
        .map(|n| {
            let of_lock = lock(&format!("class {n}"), kinds[n], random.one_of(&SHARES));
            let line = (random.below(2) == 0).then_some(LineId(n as u32));
            Lock { line, ..of_lock }
        })
        .collect();
    add_calls(&mut made, 700, random.below(2) == 0);
    if random.below(2) == 0 {
        add_ticks(&mut made, [4000, 900], 0.3);
    }
    for (cpu, operations) in made.cpus.iter_mut().enumerate() {
        *operations = (0..3).map(|_| random_operation(&mut random, cpu as u32)).collect();
    }
    made
}

fn random_operation(random: &mut Random, cpu: u32) -> Operation {
    let mut events = Vec::new();
    let mut held: Vec<u32> = Vec::new();
    let after = |random: &mut Random| random.below(900) as u32;
    for next in 0..4 {
        for _ in 0..random.below(4) {
            let what = random.one_of(&[What::Read, What::Write, What::Atomic]);
            events.push(event(after(random), what, random.below(4) as u32));
        }
        if random.below(3) > 0 {
            let shared = next != 1 && random.below(2) == 0;
            let what = if shared { What::AcquireShared } else { What::Acquire };
            events.push(event(after(random), what, next));
            held.push(next);
            if next == 0 && !shared && random.below(2) == 0 {
                events.push(event(after(random), What::Downgrade, next));
            }
        }
        if random.below(4) == 0 {
            events.push(event(after(random), What::Call, cpu));
            events.push(event(after(random), What::Wait, 0));
        }
        if !held.is_empty() && random.below(3) == 0 {
            let lock = held.remove(random.below(held.len() as u64) as usize);
            events.push(event(after(random), What::Release, lock));
        }
    }
    for lock in held {
        events.push(event(after(random), What::Release, lock));
    }
    let instructions = 100 + events.iter().map(|event| u64::from(event.after)).sum::<u64>();
    operation(instructions, &events)
}

/// Returns everything that a run gave.
pub(crate) fn all_of(played: &Played) -> impl PartialEq + std::fmt::Debug + use<> {
    (
        (played.outcome.fingerprint, played.ops, played.rounds, played.cpu_time),
        (played.called, played.ticks),
        (played.locks.clone(), played.lines.clone(), played.calls.clone()),
    )
}

/// Returns the run of a random recording under a schedule.
pub(crate) fn under(seed: u64, policy: Policy) -> Played {
    play(&random(seed), SimConfig { seed, policy, ..machine(8, 2) })
}
