//! A program: the interpreter of operations that are not calls.

use super::order::Orders;
use super::place::{Crowd, Relation, Seats};
use super::report::{Fault, Kind, Report};
use super::value::{Value, binary, unary};
use super::{Rounds, Sink, Times};
use crate::ast::TaskKind;
use crate::op::{Begin, Code, Known, NONE, NOWHERE, Op, Place, Program, Slot, Start};
use mmscale_system::{Body, Errno, ProcessId, System, ThreadId, ThreadSpec};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::sync::Arc;

/// Operations of the script without time passing after which a program ends.
const STUCK_STEPS: u64 = 4_000_000;
/// Rounds of a loop between two looks at the clock; a power of two.
const ROUNDS_PER_LOOK: u32 = 64;
/// The most tasks of a program that were not waited for.
const MAX_TASKS: usize = 1 << 16;

/// Why a program ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stop {
    /// It returned, or its time is over.
    End,
    /// It was killed.
    Killed,
    /// There was no memory for a call.
    Starved,
    /// An error of the script.
    Fault(Kind),
}

impl From<Kind> for Stop {
    fn from(kind: Kind) -> Self {
        Self::Fault(kind)
    }
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::Stopped => Self::Killed,
            Errno::Nomem => Self::Starved,
            errno => Self::Fault(Kind::Call(errno)),
        }
    }
}

/// Work for operations that were not counted yet.
#[derive(Clone, Copy, Default)]
pub(super) struct Pending {
    pub(super) calls: u64,
    pub(super) accesses: u64,
    steps: u64,
}

/// Tasks with their seats ([`Seats`]).
pub(super) type Started<T> = Vec<(T, usize)>;

/// A program that runs.
pub(super) struct Worker {
    program: Arc<Program>,
    values: Vec<Value>,
    rng: Xoshiro256PlusPlus,
    pub(super) times: Times,
    pub(super) sink: Sink,
    watcher: Option<Rounds>,
    pub(super) report: Report,
    /// Durations of the parts in `time` that ended in the window.
    times_ns: Vec<u64>,
    pub(super) pending: Pending,
    /// The CPU that it was started on.
    cpu: usize,
    /// A number that no other program has, with high probability.
    number: u64,
    /// Number of its mappings so far.
    mappings: u64,
    /// The number of its process in the words that it writes.
    pub(super) writer: u64,
    /// The numbers of the processes whose memory it has a copy of, in the words that they wrote.
    pub(super) ancestors: Vec<u64>,
    /// Files that it created and did not close.
    pub(super) files: u32,
    crowd: Crowd,
    orders: Option<Arc<Orders>>,
    /// The number of its memory group.
    group: usize,
    /// Whether it is a process at the top of the script.
    is_group: bool,
    /// Tasks that it started and did not wait for, with their seats.
    pub(super) children: Started<ProcessId>,
    pub(super) threads: Started<ThreadId>,
    pub(super) team: Started<ThreadId>,
    child_seats: Seats,
    thread_seats: Seats,
    ok: bool,
    rounds: u32,
    /// Start of the outermost `loop`, and its rounds that began within the window.
    looping_since_ns: Option<u64>,
    window_rounds: u64,
    /// Operations so far.
    steps: u64,
    /// The operations when time was last seen to pass, and that time.
    looked_steps: u64,
    looked_ns: u64,
}

impl Worker {
    pub(super) fn first(
        program: Arc<Program>,
        values: Vec<Value>,
        seed: u64,
        times: Times,
        sink: Sink,
        crowd: Crowd,
    ) -> Self {
        Self {
            program,
            values,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            times,
            sink,
            watcher: None,
            report: Report::default(),
            times_ns: Vec::new(),
            pending: Pending::default(),
            cpu: 0,
            number: 0,
            mappings: 0,
            writer: 0,
            ancestors: Vec::new(),
            files: 0,
            crowd,
            orders: None,
            group: 0,
            is_group: false,
            children: Vec::new(),
            threads: Vec::new(),
            team: Vec::new(),
            child_seats: Seats::new(),
            thread_seats: Seats::new(),
            ok: true,
            rounds: 0,
            looping_since_ns: None,
            window_rounds: 0,
            steps: 0,
            looked_steps: 0,
            looked_ns: 0,
        }
    }

    /// Sets the watcher of rounds, which tasks inherit.
    pub(super) fn watched(self, watcher: Option<Rounds>) -> Self {
        Self { watcher, ..self }
    }

    /// Sets the orders of CPUs, which tasks inherit.
    pub(super) fn ordered(self, orders: Option<Arc<Orders>>) -> Self {
        Self { orders, ..self }
    }

    /// Returns the program of a new task.
    fn child(&mut self, cpu: usize, group: usize, kind: Start) -> Self {
        let seed = self.rng.next_u64();
        let values = self.values.clone();
        let first = Self::first(
            Arc::clone(&self.program),
            values,
            seed,
            self.times,
            Arc::clone(&self.sink),
            self.crowd,
        );
        let mut ancestors = match kind {
            Start::Group | Start::Task(TaskKind::Process) => Vec::new(),
            Start::Task(TaskKind::Fork | TaskKind::Thread) | Start::Team => self.ancestors.clone(),
        };
        if kind == Start::Task(TaskKind::Fork) {
            ancestors.push(self.writer);
        }
        let first = first.watched(self.watcher.clone()).ordered(self.orders.clone());
        let is_group = kind == Start::Group;
        Self { cpu, number: seed, group, is_group, ancestors, ..first }
    }

    /// Runs from an operation to the end of the program, and reports. Returns the number of
    /// operations that were run.
    pub(super) fn run<S: System>(mut self, system: &S, from: Place) -> u64 {
        self.writer = u64::from(system.own_process().0);
        let program = Arc::clone(&self.program);
        let mut place = from as usize;
        let stop = loop {
            let op = &program.ops[place];
            self.steps += 1;
            self.pending.steps += 1;
            match self.step(&program, system, op, place + 1) {
                Ok(next) => place = next,
                Err(stop) => break (stop, op),
            }
        };
        let steps = self.steps;
        self.finish(system, stop);
        steps
    }

    fn finish<S: System>(mut self, system: &S, (stop, op): (Stop, &Op)) {
        match stop {
            Stop::End => {}
            // What the process counted is lost on the live kernel, so it is on every machine.
            Stop::Killed => return,
            Stop::Starved => self.report.starved += 1,
            Stop::Fault(kind) => {
                self.report.faults += 1;
                self.report.fault = Some(self.fault(op, kind));
            }
        }
        let now_ns = system.clock_ns();
        if self.counts(now_ns) {
            self.flush();
        }
        let whole = self.looping_since_ns.is_some_and(|since_ns| since_ns <= self.times.from_ns);
        if whole && now_ns >= self.times.until_ns {
            (self.report.looping, self.report.rounds_min) = (1, self.window_rounds);
        }
        self.sink.report(self.report);
        self.sink.times(self.cpu, &self.times_ns);
    }

    fn fault(&self, op: &Op, kind: Kind) -> Fault {
        let (Kind::Call(errno), Code::Call { verb, args, .. }) = (kind, op.code) else {
            return Fault::new(op.line, kind);
        };
        let [mut bytes, mut begin, mut number] = [None; 3];
        for arg in args.into_iter().filter(|slot| *slot != NONE).map(|slot| self.get(slot)) {
            let (size, at) = match arg {
                Value::Memory(memory) => (memory.bytes, memory.at),
                Value::File(file) => (file.bytes, file.offset),
                Value::Number(value) => {
                    number = Some(value);
                    continue;
                }
                _ => continue,
            };
            bytes.get_or_insert(size as i64);
            begin.get_or_insert((at % mmscale_system::PAGE_BYTES) as i64);
        }
        Fault::of_call(op.line, errno, verb.name(), [bytes, begin, number])
    }
    pub(super) fn get(&self, slot: Slot) -> Value {
        self.values[usize::from(slot)]
    }
    pub(super) fn set(&mut self, slot: Slot, value: Value) {
        if slot != NONE {
            self.values[usize::from(slot)] = value;
        }
    }
    /// Removes the values that do not survive an exec.
    pub(super) fn forget_memory(&mut self) {
        for value in &mut self.values {
            if matches!(value, Value::Memory(_) | Value::Pidfd(_)) {
                *value = Value::None;
            }
        }
    }
    pub(super) fn number(&self, slot: Slot) -> Result<i64, Kind> {
        self.get(slot).number()
    }

    /// Runs an operation. Returns the place of the next one.
    #[inline]
    fn step<S: System>(
        &mut self,
        program: &Program,
        system: &S,
        op: &Op,
        next: usize,
    ) -> Result<usize, Stop> {
        let to = |place: Place| place as usize;
        match op.code {
            Code::Goto(place) => return Ok(to(place)),
            Code::Unless(slot, place) => {
                return Ok(if self.number(slot)? == 0 { to(place) } else { next });
            }
            Code::Next { counter, end, top } => {
                let value = self.number(counter)?.checked_add(1).ok_or(Kind::Overflow)?;
                self.set(counter, Value::Number(value));
                return Ok(if value < self.number(end)? { to(top) } else { next });
            }
            Code::Ends { to: place, outermost } => {
                let now_ns = self.look(system)?;
                if outermost {
                    self.looping_since_ns.get_or_insert(now_ns);
                    self.window_rounds += u64::from(self.counts(now_ns));
                }
                let watcher = self.watcher.as_ref().filter(|_| outermost);
                let is_over = watcher.is_some_and(|watcher| !watcher(self.report.ops_ever));
                let ends = is_over || now_ns >= self.times.until_ns;
                return Ok(if ends { to(place) } else { next });
            }
            Code::Past(end, place) => {
                let now_ns = self.look(system)?;
                let since_ns = self.since_start(now_ns);
                let over = now_ns >= self.times.until_ns || since_ns >= self.number(end)?;
                return Ok(if over { to(place) } else { next });
            }
            Code::Edge(place) => return self.edge(system, place, next),
            Code::Choose(table) => return self.choose(&program.tables[usize::from(table)]),
            Code::Return => return Err(Stop::End),
            Code::Start => self.start(system)?,
            Code::Timed(begun) => {
                let now_ns = system.clock_ns();
                let took_ns = self.since_start(now_ns) - self.number(begun)?;
                if self.counts(now_ns) {
                    self.times_ns.push(took_ns.max(0) as u64);
                }
            }
            Code::Count(number) => self.count(system, number)?,
            Code::Begin(begin) => {
                let begun = self.begin(system, begin);
                self.attempted(op, begun)?;
            }
            Code::Call { verb, args, to } => {
                let done = self.call(system, verb, args, to);
                self.attempted(op, done)?;
            }
            _ => self.compute(system, op.code)?,
        }
        Ok(next)
    }

    /// Runs an operation on values.
    fn compute<S: System>(&mut self, system: &S, code: Code) -> Result<(), Stop> {
        let (to, value) = match code {
            Code::Set(to, value) => (to, Value::Number(value)),
            Code::Copy { to, from } => match self.get(from) {
                Value::None => return Err(Kind::Unset.into()),
                value => (to, value),
            },
            Code::Unary { to, unary: op, of } => (to, Value::Number(unary(op, self.number(of)?)?)),
            Code::Binary { to, binary: op, a, b } => {
                (to, Value::Number(binary(op, self.number(a)?, self.number(b)?)?))
            }
            Code::Pick { to, larger, a, b } => {
                let (a, b) = (self.number(a)?, self.number(b)?);
                (to, Value::Number(if larger { a.max(b) } else { a.min(b) }))
            }
            Code::Know { to, what } => (to, Value::Number(self.know(system, what))),
            Code::Random { to, from, until } => {
                let (from, until) = (self.number(from)?, self.number(until)?);
                let range = until.checked_sub(from).filter(|range| *range > 0);
                let drawn = self.below(range.ok_or(Kind::Random(from, until))? as u64);
                (to, Value::Number(from + drawn as i64))
            }
            Code::Measure { to, of, pages } => {
                let bytes = self.get(of).bytes()?;
                let size = if pages { bytes.div_ceil(mmscale_system::PAGE_BYTES) } else { bytes };
                (to, Value::Number(i64::try_from(size).map_err(|_| Kind::Overflow)?))
            }
            Code::Page { to, of, page } => (to, self.get(of).page(self.number(page)?)?),
            Code::MemoryGroup { to, first, count, index } => {
                let (index, count) = (self.get(index).natural()?, self.get(count).natural()?);
                let nth =
                    index.checked_rem(count).map(|nth| self.number(first).map(|n| n + nth as i64));
                (to, Value::Number(nth.transpose()?.unwrap_or(0)))
            }
            Code::Part { to, of, ends: [from, until] } => {
                let end = |end: crate::op::End| {
                    let value = if end.slot == NONE { Ok(0) } else { self.number(end.slot) };
                    value.map(|value| (end, value))
                };
                (to, self.get(of).part(end(from)?, end(until)?)?)
            }
            _ => return Ok(()),
        };
        self.set(to, value);
        Ok(())
    }

    fn know<S: System>(&self, system: &S, what: Known) -> i64 {
        match what {
            Known::Cpu => self.cpu as i64,
            Known::Cpus => system.cpus() as i64,
            Known::Nodes => system.nodes() as i64,
            Known::Now => self.since_start(system.clock_ns()),
            Known::Ok => i64::from(self.ok),
        }
    }

    fn since_start(&self, now_ns: u64) -> i64 {
        now_ns as i64 - self.times.begin_ns as i64
    }

    /// Returns a random number below `range`. The bias is below 2^-32 for ranges below 2^32.
    fn below(&mut self, range: u64) -> u64 {
        ((u128::from(self.rng.next_u64()) * u128::from(range)) >> 64) as u64
    }

    /// Ends an attempt: notes whether it succeeded. An error of another operation is returned.
    fn attempted(&mut self, op: &Op, done: Result<(), Stop>) -> Result<(), Stop> {
        if !op.attempt {
            return done;
        }
        self.ok = done.is_ok();
        match done {
            Err(Stop::Starved | Stop::Fault(Kind::Call(_))) => {
                self.report.failed_calls += 1;
                Ok(())
            }
            done => done,
        }
    }

    /// Returns the time. Fails if the program goes on without time passing.
    fn look<S: System>(&mut self, system: &S) -> Result<u64, Stop> {
        let now_ns = system.clock_ns();
        if now_ns != self.looked_ns {
            (self.looked_steps, self.looked_ns) = (self.steps, now_ns);
        }
        let stuck = self.steps - self.looked_steps > STUCK_STEPS;
        if stuck { Err(Kind::Stuck.into()) } else { Ok(now_ns) }
    }

    /// Passes the end of a loop's round.
    fn edge<S: System>(&mut self, system: &S, place: Place, next: usize) -> Result<usize, Stop> {
        self.rounds = self.rounds.wrapping_add(1);
        if !self.rounds.is_multiple_of(ROUNDS_PER_LOOK) {
            return Ok(next);
        }
        let now_ns = self.look(system)?;
        match place {
            NOWHERE if now_ns >= self.times.hard_ns() => Err(Stop::End),
            NOWHERE => Ok(next),
            _ if now_ns >= self.times.until_ns => Ok(place as usize),
            _ => Ok(next),
        }
    }

    fn choose(&mut self, table: &[(Slot, Place)]) -> Result<usize, Stop> {
        let mut sum = 0_u64;
        for (slot, _) in table {
            let weight = self.get(*slot).natural().map_err(|_| Kind::Weights)?;
            sum = sum.checked_add(weight).ok_or(Kind::Weights)?;
        }
        if sum == 0 {
            return Err(Kind::Weights.into());
        }
        let mut drawn = self.below(sum);
        for (slot, place) in table {
            let weight = self.get(*slot).natural()?;
            if drawn < weight {
                return Ok(*place as usize);
            }
            drawn -= weight;
        }
        Err(Kind::Weights.into())
    }

    /// Waits for the common start.
    fn start<S: System>(&mut self, system: &S) -> Result<(), Stop> {
        let now_ns = system.clock_ns();
        let late_ns = now_ns.saturating_sub(self.times.begin_ns);
        if late_ns > 0 {
            self.report.late += 1;
            self.report.late_max_ns = self.report.late_max_ns.max(late_ns);
        }
        self.report.prepared_faults += system.faults().unwrap_or(0);
        system.sleep_ns(self.times.begin_ns.saturating_sub(now_ns))?;
        self.pending = Pending::default();
        Ok(())
    }

    fn counts(&self, at_ns: u64) -> bool {
        (self.times.from_ns..self.times.until_ns).contains(&at_ns)
    }
    fn flush(&mut self) {
        let Pending { calls, accesses, steps } = std::mem::take(&mut self.pending);
        self.report.calls += calls;
        self.report.accesses += accesses;
        self.report.steps += steps;
    }

    /// Counts operations that end now.
    fn count<S: System>(&mut self, system: &S, number: Slot) -> Result<(), Stop> {
        let number = if number == NONE { 1 } else { self.get(number).natural()? };
        let now_ns = system.clock_ns();
        if now_ns >= self.times.begin_ns {
            self.report.ops_ever = self.report.ops_ever.saturating_add(number);
        }
        if self.counts(now_ns) {
            self.report.ops = self.report.ops.saturating_add(number);
            self.flush();
        } else {
            self.pending = Pending::default();
        }
        Ok(())
    }

    /// Starts a task.
    fn begin<S: System>(&mut self, system: &S, begin: Begin) -> Result<(), Stop> {
        if self.children.len() + self.threads.len() + self.team.len() >= MAX_TASKS {
            return Err(Kind::Children.into());
        }
        let seat = self.take_seat(begin);
        let begun = self.begin_on(system, begin, seat);
        if begun.is_err() {
            self.release_seat(begin.kind, seat);
        }
        begun
    }

    /// Returns the seat of a new task. One that the script places has that of the task itself.
    fn take_seat(&mut self, begin: Begin) -> usize {
        match begin.kind {
            _ if begin.cpu != NONE => 0,
            // The task waits for its team, so that the first of it has the CPU.
            Start::Team if self.team.is_empty() => 0,
            Start::Team | Start::Task(TaskKind::Thread) => self.thread_seats.take(),
            Start::Group | Start::Task(_) => self.child_seats.take(),
        }
    }
    pub(super) fn release_seat(&mut self, kind: Start, seat: usize) {
        match kind {
            Start::Team | Start::Task(TaskKind::Thread) => self.thread_seats.release(seat),
            Start::Group | Start::Task(_) => self.child_seats.release(seat),
        }
    }
    /// Returns the CPU of a new task.
    fn cpu_of<S: System>(&self, system: &S, begin: Begin, seat: usize) -> Result<usize, Kind> {
        if begin.cpu != NONE {
            let (wanted, cpus) = (self.number(begin.cpu)?, system.cpus());
            let cpu = usize::try_from(wanted).ok().filter(|cpu| *cpu < cpus);
            return cpu.ok_or(Kind::Cpu(wanted, cpus as i64));
        }
        if let (Some(order), Some(orders)) = (begin.order, &self.orders) {
            // The program that starts them has ended its work then, and its CPU is free.
            let seat = if begin.kind == Start::Group { seat - 1 } else { seat };
            return Ok(orders.cpu(order, self.cpu, seat));
        }
        let relation = match begin.kind {
            Start::Group => return Ok((seat - 1) % self.crowd.cpus),
            Start::Team | Start::Task(TaskKind::Thread) if self.is_group => Relation::FirstThread,
            Start::Team | Start::Task(TaskKind::Thread) => Relation::Thread,
            Start::Task(TaskKind::Fork | TaskKind::Process) => Relation::Child,
        };
        Ok(self.crowd.cpu(self.cpu, relation, seat))
    }

    fn begin_on<S: System>(&mut self, system: &S, begin: Begin, seat: usize) -> Result<(), Stop> {
        let cpu = self.cpu_of(system, begin, seat)?;
        let group = match begin.group {
            NONE => self.group,
            slot => usize::try_from(self.number(slot)?).unwrap_or(0),
        };
        let mut spec = ThreadSpec::on(cpu).in_group(group);
        if begin.priority != NONE {
            let wanted = self.number(begin.priority)?;
            let level = u8::try_from(wanted).ok().filter(|level| (1..=99).contains(level));
            let level = level.ok_or(Kind::Priority(wanted))?;
            spec = spec.real_time(level);
        }
        self.pending.calls += 1;
        let (child, place) = (self.child(cpu, group, begin.kind), begin.body);
        let body: Body<S> = Box::new(move |system: &S| _ = child.run(system, place));
        let inherits = self.program.inherits;
        let process = match begin.kind {
            Start::Group if inherits => system.fork(spec, body)?,
            Start::Task(TaskKind::Fork) => system.fork(spec, body)?,
            Start::Group | Start::Task(TaskKind::Process) => system.process(spec, body)?,
            Start::Task(TaskKind::Thread) | Start::Team => {
                let thread = system.spawn(spec, body)?;
                self.set(begin.to, Value::Thread(thread));
                let list =
                    if begin.kind == Start::Team { &mut self.team } else { &mut self.threads };
                list.push((thread, seat));
                return Ok(());
            }
        };
        self.children.push((process, seat));
        self.set(begin.to, Value::Process(process));
        Ok(())
    }

    /// Returns the identity of a new mapping.
    pub(super) fn new_tag(&mut self) -> u64 {
        self.mappings += 1;
        (self.number ^ self.mappings).wrapping_mul(0xff51_afd7_ed55_8ccd)
    }
}
