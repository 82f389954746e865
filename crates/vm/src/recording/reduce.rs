//! From records to operations: shared lines and locks stay, the rest becomes sums.

use super::answers::Answers;
use super::layout::Layout;
use super::objects::{self, Region, Seen, is_device, is_entry_stack, region};
use super::packed::Packed;
use super::raw::{RawAnswer, RawOperation};
use super::records::{Raw, Type};
use super::ticks::{self, Sampled};
use super::usage::{Usage, Users, address_of, line_at};
use crate::machine::GuestMemory;
use crate::symbols::Table;
use mmscale_lift::{
    Answer, AnswerId, Call, Dropped, Event, FunctionId, Line, LineId, Lock, LockId, LockKind,
    Operation, Origin, Recording, Share, Site, SiteId, Ticks, What,
};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Bytes of a stack, as a shift; as in the plugin.
const STACK_SHIFT: u32 = 14;
/// The object of a lock that is in the record of a page: a page table has it.
pub const PAGE_TABLE: &str = "ptdesc ptl";

/// Where a lock is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken<'a> {
    /// The function that takes it, such as `_raw_spin_lock`.
    pub acquire: &'a str,
    /// Its caller.
    pub caller: &'a str,
    /// The caller of that.
    pub outer: &'a str,
    /// The variable that the lock is, or is part of.
    pub variable: Option<&'a str>,
    /// The structure that it is in, and its member, such as `mm_struct mmap_lock`.
    pub object: Option<&'a str>,
}

/// An operation's records with what the script counted in it.
struct Counted<'a> {
    raw: Cow<'a, RawOperation>,
    count: u64,
}

/// Counts by the script of its operations.
#[derive(Clone, Copy)]
pub(super) struct Counts<'a> {
    /// The count of each.
    pub(super) ops: &'a [u64],
    /// Operations in which their program slept.
    pub(super) sleeps: u64,
}

/// Returns the recording of operations. See [`super::Recorded::recording`].
pub(super) fn recording(
    table: &Table,
    memory: Option<&GuestMemory>,
    operations: &[RawOperation],
    origin: Origin,
    counts: Counts<'_>,
    class_of: &dyn Fn(&Taken<'_>) -> String,
) -> Result<Recording, String> {
    let ops = counts.ops;
    let cpus = origin.node_of_cpu.len();
    if operations.len() != ops.len() {
        return Err(format!(
            "the plugin saw {} rounds, and the script counted {}",
            operations.len(),
            ops.len()
        ));
    }
    let mut dropped = Dropped::default();
    let usual = usual_switches(operations, counts.sleeps);
    // Where an operation usually stays with its task, work of other tasks is none of it.
    let mut kept: Vec<Counted<'_>> = Vec::new();
    for (raw, &count) in operations.iter().zip(ops) {
        let raw = if usual == 0 { without_others(raw) } else { Cow::Borrowed(raw) };
        if !raw.is_whole {
            dropped.too_long += 1;
        } else if !is_usual(&raw, usual) {
            dropped.switched += 1;
        } else if !is_balanced(&raw) {
            dropped.unbalanced += 1;
        } else if usize::from(raw.cpu) < cpus {
            kept.push(Counted { raw, count });
        }
    }
    let usage = Usage::of(kept.iter().map(|counted| &*counted.raw), cpus);
    let interrupts = operations.iter().map(|raw| raw.interrupts).sum();
    let origin = Origin { dropped, interrupt_instructions: interrupts, ..origin };
    let nodes = origin.node_of_cpu.iter().max().map_or(1, |node| usize::from(*node) + 1);
    let layout = memory.and_then(|memory| Layout::of(memory, table, cpus, nodes));
    let mut reduction = Reduction::new(table, layout.as_ref(), &usage, origin);
    for counted in &kept {
        reduction.add(counted);
    }
    reduction.add_ticks(&kept);
    reduction.finish(class_of)
}

fn switches(raw: &RawOperation) -> u64 {
    raw.records.iter().filter(|record| record.what == Type::Switched).count() as u64
}

/// Returns how often the CPU goes to another task in an operation: the median of whole ones, and 0
/// if the program sleeps in fewer than half, or if one of them goes to none. Then others do so
/// because they are long, and not by their nature.
fn usual_switches(operations: &[RawOperation], sleeps: u64) -> u64 {
    if sleeps * 2 < operations.len() as u64 {
        return 0;
    }
    let whole = operations.iter().filter(|raw| raw.is_whole);
    let mut numbers: Vec<u64> = whole.map(switches).collect();
    numbers.sort_unstable();
    match numbers.first() {
        None | Some(0) => 0,
        Some(_) => numbers[numbers.len() / 2],
    }
}

/// Whether an operation goes to other tasks as often as others do. Tasks of the kernel that run in
/// between add to the number.
fn is_usual(raw: &RawOperation, usual: u64) -> bool {
    let number = switches(raw);
    usual.div_ceil(2) <= number && number <= usual * 2
}

/// Returns an operation without what other tasks did on its CPU while its own did not run.
fn without_others(raw: &RawOperation) -> Cow<'_, RawOperation> {
    if switches(raw) == 0 {
        return Cow::Borrowed(raw);
    }
    let mut own = None;
    let mut is_own = true;
    let mut left_out = 0;
    let mut held: Vec<u64> = Vec::new();
    let mut records: Vec<Raw> = Vec::with_capacity(raw.records.len());
    for record in raw.records.iter() {
        // The time up to this record.
        let after = if is_own { record.after } else { 0 };
        left_out += u64::from(record.after - after);
        let at = held.iter().position(|lock| *lock == record.address);
        match (record.what, at) {
            // An exception of any task begins there, and then goes to the task's own.
            (Type::Stack, _) if is_entry_stack(record.address << STACK_SHIFT) => {}
            (Type::Stack, _) => is_own = record.address == *own.get_or_insert(record.address),
            (Type::Taken, _) if is_own => held.push(record.address),
            // The scheduler takes the lock of its queue in one task, and releases it in the next.
            (Type::Released, Some(at)) => _ = held.swap_remove(at),
            _ if !is_own => continue,
            _ => {}
        }
        let what = if record.what == Type::Switched { Type::Stack } else { record.what };
        records.push(Raw { after, what, ..record });
    }
    let instructions = raw.instructions.saturating_sub(left_out);
    let records: Packed = records.into_iter().collect();
    let (answers, ticks) = (raw.answers.clone(), raw.ticks.clone());
    Cow::Owned(RawOperation { instructions, records, answers, ticks, ..*raw })
}

/// Whether all that it takes it releases, and once.
fn is_balanced(raw: &RawOperation) -> bool {
    let mut held: Vec<u64> = Vec::new();
    for record in raw.records.iter() {
        let at = held.iter().position(|lock| *lock == record.address);
        match (record.what, at) {
            (Type::Taken, Some(_)) => return false,
            (Type::Taken, None) => held.push(record.address),
            (Type::Released, Some(at)) => _ = held.swap_remove(at),
            _ => {}
        }
    }
    held.is_empty()
}

/// A recording in the making.
struct Reduction<'a> {
    table: &'a Table,
    layout: Option<&'a Layout<'a>>,
    usage: &'a Usage,
    recording: Recording,
    functions: HashMap<i32, FunctionId>,
    sites: HashMap<Site, SiteId>,
    /// By number of line.
    lines: HashMap<u64, LineId>,
    /// By address.
    locks: HashMap<u64, LockId>,
    /// The places at which a lock is taken: function that takes it, caller, caller of that.
    taken: Vec<BTreeMap<[i32; 3], u64>>,
    /// Accesses to a line by function.
    used: Vec<BTreeMap<i32, u64>>,
    /// The function that writes a line first; its caller where that only helps it.
    first_writer: Vec<Option<i32>>,
    answers: Answers,
    /// Accesses to the words of a line.
    words: Vec<[u64; 8]>,
}

impl<'a> Reduction<'a> {
    fn new(
        table: &'a Table,
        layout: Option<&'a Layout<'a>>,
        usage: &'a Usage,
        origin: Origin,
    ) -> Self {
        let cpus = vec![Vec::new(); origin.node_of_cpu.len()];
        Self {
            table,
            layout,
            usage,
            recording: Recording { origin, cpus, ..Recording::default() },
            functions: HashMap::new(),
            sites: HashMap::new(),
            lines: HashMap::new(),
            locks: HashMap::new(),
            taken: Vec::new(),
            used: Vec::new(),
            first_writer: Vec::new(),
            answers: Answers::default(),
            words: Vec::new(),
        }
    }

    fn function(&mut self, row: i32) -> FunctionId {
        let functions = &mut self.recording.functions;
        *self.functions.entry(row).or_insert_with(|| {
            functions.push(self.table.name(row).to_owned());
            FunctionId(functions.len() as u32 - 1)
        })
    }

    fn site(&mut self, record: &Raw) -> SiteId {
        let function = self.function(record.function);
        let site = Site { function, caller: self.function(record.caller) };
        let sites = &mut self.recording.sites;
        *self.sites.entry(site).or_insert_with(|| {
            sites.push(site);
            SiteId(sites.len() as u32 - 1)
        })
    }

    /// Returns how data with these users is shared.
    fn share_of(&self, address: u64, users: &Users) -> Share {
        match region(address) {
            // A page goes from hand to hand, and other CPUs have other pages.
            Region::Pages if users.users() > 1 => Share::Few,
            // However few CPUs a recorded node has.
            _ if self.layout.is_some_and(|layout| layout.is_of_node(address)) => Share::Node,
            _ => users.share(&self.recording.origin.node_of_cpu),
        }
    }

    fn line(&mut self, address: u64) -> LineId {
        let number = line_at(address);
        if let Some(id) = self.lines.get(&number) {
            return *id;
        }
        let users = &self.usage.lines[&number];
        let line = Line {
            address: address_of(number),
            object: String::new(),
            share: self.share_of(address, users),
            users: users.users() as u32,
            writers: users.writers() as u32,
        };
        self.recording.lines.push(line);
        self.used.push(BTreeMap::new());
        self.first_writer.push(None);
        self.words.push([0; 8]);
        let id = LineId(self.recording.lines.len() as u32 - 1);
        self.lines.insert(number, id);
        id
    }

    fn lock(&mut self, address: u64, acquire: &str) -> LockId {
        if let Some(id) = self.locks.get(&address) {
            return *id;
        }
        let kind = match acquire {
            name if name.starts_with("down_") => LockKind::Rwsem,
            name if name.starts_with("mutex_") => LockKind::Mutex,
            _ => LockKind::Spin,
        };
        let share = self.share_of(address, &self.usage.locks[&address]);
        let line = self.usage.is_shared(address).then(|| self.line(address));
        self.recording.locks.push(Lock { address, kind, class: String::new(), share, line });
        self.taken.push(BTreeMap::new());
        let id = LockId(self.recording.locks.len() as u32 - 1);
        self.locks.insert(address, id);
        id
    }

    fn add(&mut self, counted: &Counted<'_>) {
        let raw = &*counted.raw;
        let mut events = Vec::new();
        let mut lines: [HashSet<u64>; 2] = Default::default();
        let mut held: Vec<u64> = Vec::new();
        // Instructions since the last event.
        let mut after = 0_u32;
        let mut sent = 0_u32;
        for record in raw.records.iter() {
            let record = &record;
            after = after.saturating_add(record.after);
            if record.what == Type::Sent {
                sent += 1;
                if let Some(call) = self.call(raw, sent) {
                    let site = self.site(record);
                    events.push(Event { after, what: What::Call, offset: 0, target: call, site });
                    after = 0;
                }
                continue;
            }
            let Some((what, target)) = self.event(record, &mut held, &mut lines) else { continue };
            let site = self.site(record);
            let offset = match what {
                _ if what.is_access() => (record.address & 63) as u8,
                What::Acquire | What::AcquireShared => {
                    u8::from(self.table.name(record.acquire).contains("trylock"))
                }
                _ => 0,
            };
            events.push(Event { after, what, offset, target, site });
            after = 0;
        }
        self.recording.cpus[usize::from(raw.cpu)].push(Operation {
            count: counted.count,
            instructions: raw.instructions,
            locked: raw.locked,
            private_lines: lines[0].len() as u64,
            read_only_lines: lines[1].len() as u64,
            switches: switches(raw),
            events,
        });
    }

    /// Returns the number of the call that an operation sends as its `sent`th; `None` if no CPU
    /// answers it before the operation ends.
    fn call(&mut self, raw: &RawOperation, sent: u32) -> Option<u32> {
        let cpus = self.recording.cpus.len();
        let mut receivers: BTreeMap<u32, AnswerId> = BTreeMap::new();
        let mut is_flush = false;
        for answer in raw.answers.iter().filter(|answer| answer.sent == sent) {
            if answer.cpu == raw.cpu || usize::from(answer.cpu) >= cpus {
                continue;
            }
            let flushes = |record: &Raw| self.table.name(record.function).starts_with("flush_tlb");
            is_flush |= answer.records.iter().any(flushes);
            let events = self.answered(&answer.records);
            let (sender, receiver) = (raw.cpu.into(), answer.cpu.into());
            let made = Answer { sender, receiver, instructions: answer.instructions, events };
            receivers.entry(receiver).or_insert(self.answers.answer(made));
        }
        let receivers: Vec<(u32, AnswerId)> = receivers.into_iter().collect();
        (!receivers.is_empty()).then(|| self.answers.call(Call { is_flush, receivers }))
    }

    /// Returns the events of an interrupt.
    fn answered(&mut self, records: &[Raw]) -> Vec<Event> {
        let mut events = Vec::new();
        let mut after = 0_u32;
        for record in records {
            after = after.saturating_add(record.after);
            // Locks are not recorded here, and so none are looked at.
            let event = self.event(record, &mut Vec::new(), &mut Default::default());
            let Some((what, target)) = event else { continue };
            let (site, offset) = (self.site(record), (record.address & 63) as u8);
            events.push(Event { after, what, offset, target, site });
            after = 0;
        }
        events
    }

    /// Adds interrupts of timers, and the RCU callbacks in them.
    fn add_ticks(&mut self, kept: &[Counted<'_>]) {
        let cpus = self.recording.cpus.len();
        let mut of_cpus: Vec<Vec<&RawAnswer>> = vec![Vec::new(); cpus];
        for tick in kept.iter().flat_map(|counted| &counted.raw.ticks) {
            if let Some(of_cpu) = of_cpus.get_mut(usize::from(tick.cpu)) {
                of_cpu.push(tick);
            }
        }
        let of_callbacks: u64 = kept.iter().map(|counted| counted.raw.callbacks).sum();
        let a_round = of_callbacks as f64 / kept.len().max(1) as f64;
        let Some(Sampled { ticks, callbacks, batches }) = ticks::sampled(&of_cpus, a_round) else {
            return;
        };
        let mut all = |of: Vec<Vec<ticks::Part>>| -> Vec<Vec<AnswerId>> {
            let of = of.into_iter().enumerate();
            of.map(|(cpu, parts)| {
                let answer = |part: ticks::Part| {
                    let events = self.answered(&part.records);
                    let of_events: u64 = events.iter().map(|event| u64::from(event.after)).sum();
                    let instructions = part.instructions.max(of_events);
                    let (sender, receiver) = (cpu as u32, cpu as u32);
                    self.answers.alone(Answer { sender, receiver, instructions, events })
                };
                parts.into_iter().map(answer).collect()
            })
            .collect()
        };
        let (ticks, callbacks) = (all(ticks), all(callbacks));
        self.recording.ticks = Some(Ticks { ticks, callbacks, batches });
    }

    /// Returns the kind and the target of a record's event, if it is one. Lines that are none are
    /// added to `lines`: those of one CPU, and those that no CPU writes.
    fn event(
        &mut self,
        record: &Raw,
        held: &mut Vec<u64>,
        lines: &mut [HashSet<u64>; 2],
    ) -> Option<(What, u32)> {
        let address = record.address;
        match record.what {
            Type::Access if is_device(address) => None,
            Type::Access if self.usage.is_shared(address) => {
                let line = self.line(address);
                *self.used[line.index()].entry(record.function).or_default() += 1;
                if record.writes {
                    let writers = [record.function, record.caller];
                    let says = |row: &i32| !objects::is_helper(self.table.name(*row));
                    let writer = writers.into_iter().find(says);
                    let first = &mut self.first_writer[line.index()];
                    *first = first.or(writer);
                }
                self.words[line.index()][(address % 64 / 8) as usize] += 1;
                let what = match (record.locked, record.writes) {
                    (true, _) => What::Atomic,
                    (_, true) => What::Write,
                    _ => What::Read,
                };
                Some((what, line.0))
            }
            Type::Access => {
                let number = line_at(address);
                let users = self.usage.lines[&number].users();
                lines[usize::from(users > 1)].insert(number);
                None
            }
            Type::Taken => {
                let acquire = self.table.name(record.acquire);
                let lock = self.lock(address, acquire);
                let place = [record.acquire, record.function, record.caller];
                *self.taken[lock.index()].entry(place).or_default() += 1;
                held.push(address);
                let is_shared = acquire.contains("read");
                Some((if is_shared { What::AcquireShared } else { What::Acquire }, lock.0))
            }
            Type::Released => {
                let at = held.iter().position(|lock| *lock == address)?;
                held.swap_remove(at);
                Some((What::Release, self.locks[&address].0))
            }
            Type::Downgraded => {
                held.contains(&address).then(|| (What::Downgrade, self.locks[&address].0))
            }
            Type::Cleared | Type::Copied => {
                let what = if record.what == Type::Cleared { What::Clear } else { What::Copy };
                Some((what, u32::try_from(address).unwrap_or(u32::MAX)))
            }
            Type::Waited => Some((What::Wait, 0)),
            Type::Switched | Type::Stack | Type::Begun | Type::Ended => None,
            Type::Sent | Type::Answering | Type::Answered => None,
            Type::Callbacks | Type::CallbacksDone => None,
        }
    }

    fn finish(mut self, class_of: &dyn Fn(&Taken<'_>) -> String) -> Result<Recording, String> {
        let layout = self.layout;
        let most = |places: &BTreeMap<[i32; 3], u64>| {
            places.iter().max_by_key(|(_, number)| **number).map(|(place, _)| *place)
        };
        for (lock, places) in self.recording.locks.iter_mut().zip(&self.taken) {
            let [acquire, caller, outer] =
                most(places).unwrap_or([-1; 3]).map(|row| self.table.name(row));
            let variable = match region(lock.address) {
                Region::Image => self.table.variable_near(lock.address),
                _ => None,
            };
            let object = match region(lock.address) {
                Region::Pages => Some(PAGE_TABLE.to_owned()),
                _ => layout.and_then(|layout| layout.name(lock.address)),
            };
            let object = object.as_deref();
            lock.class = class_of(&Taken { acquire, caller, outer, variable, object });
        }
        let mut locks: HashMap<u64, Vec<&str>> = HashMap::new();
        for lock in &self.recording.locks {
            locks.entry(line_at(lock.address)).or_default().push(&lock.class);
        }
        let none = Vec::new();
        let uses = self.used.iter().zip(&self.words).zip(&self.first_writer);
        for (line, ((used, words), first_writer)) in self.recording.lines.iter_mut().zip(uses) {
            let says = |row: &i32| !objects::is_helper(self.table.name(*row));
            let most = used
                .iter()
                .filter(|(row, _)| says(row) || used.len() == 1)
                .max_by_key(|(_, number)| **number);
            let function = first_writer.or(most.map(|(row, _)| *row));
            let function = function.map_or("?", |row| self.table.name(row));
            let own = locks.get(&line_at(line.address)).unwrap_or(&none);
            // The first of the most used words.
            let word = (0..words.len()).rev().max_by_key(|word| words[*word]).unwrap_or(0);
            let address = line.address + 8 * word as u64;
            let object = layout.and_then(|layout| layout.name(address));
            let is_of_cpu = layout.is_some_and(|layout| layout.is_of_cpu(address));
            let seen = Seen { address, object, is_of_cpu, locks: own, function };
            line.object = objects::name(self.table, seen);
        }
        (self.recording.calls, self.recording.answers) = self.answers.done();
        match self.recording.cpus.iter().position(Vec::is_empty) {
            Some(cpu) => {
                let Dropped { switched, unbalanced, too_long } = self.recording.origin.dropped;
                let what = match switched + unbalanced {
                    0 => "use fewer --cpus, or --set a smaller size",
                    _ => "try more --ops, or a script with shorter rounds on each CPU",
                };
                Err(format!(
                    "no operation of CPU {cpu} is left: of all CPUs {switched} went to other \
                     tasks, {unbalanced} left a lock held, {too_long} had no room in the \
                     recording: {what}"
                ))
            }
            None => Ok(self.recording),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::raw::RawAnswer;
    use super::*;

    const DATA: u64 = 0xffff_8880_0000_1000;
    const LOCK: u64 = 0xffff_8880_0000_2000;

    fn raw(what: Type, address: u64) -> Raw {
        Raw {
            address,
            after: 10,
            function: 0,
            caller: 1,
            acquire: 2,
            value: 0,
            what,
            writes: true,
            locked: false,
        }
    }

    fn operation(cpu: u16, records: &[Raw]) -> RawOperation {
        RawOperation {
            cpu,
            instructions: 10 * records.len() as u64 + 5,
            locked: 1,
            interrupts: 3,
            rest: 5,
            is_whole: true,
            records: records.iter().copied().collect(),
            answers: Vec::new(),
            ticks: Vec::new(),
            callbacks: 0,
        }
    }

    fn table() -> Table {
        Table::of(
            "ffffffff81000000 T free_pages\nffffffff81000100 T zap\n\
             ffffffff81000200 T _raw_spin_lock\n",
        )
    }

    const TWO: Counts<'_> = Counts { ops: &[1, 1], sleeps: 0 };

    fn reduced(operations: &[RawOperation]) -> Result<Recording, String> {
        reduced_with(operations, operations.len() as u64)
    }

    fn reduced_with(operations: &[RawOperation], sleeps: u64) -> Result<Recording, String> {
        let origin = Origin { node_of_cpu: vec![0, 0], ..Origin::default() };
        let counts = Counts { ops: &vec![1; operations.len()], sleeps };
        recording(&table(), None, operations, origin, counts, &|taken| taken.caller.to_owned())
    }

    fn own(cpu: u64) -> Raw {
        raw(Type::Access, DATA + 64 + 64 * cpu)
    }

    /// Both CPUs write a line under a lock, and each a line of its own.
    fn both(cpu: u16) -> Vec<Raw> {
        let shared = raw(Type::Access, DATA);
        let (taken, released) = (raw(Type::Taken, LOCK), raw(Type::Released, LOCK));
        vec![raw(Type::Stack, 7), own(cpu.into()), taken, shared, released]
    }

    #[test]
    fn shared_lines_and_locks_are_events_and_the_rest_are_sums() {
        let recording = reduced(&[operation(0, &both(0)), operation(1, &both(1))]).unwrap();
        let operation = &recording.cpus[1][0];
        let events: Vec<(u32, What)> =
            operation.events.iter().map(|event| (event.after, event.what)).collect();
        assert_eq!(events, [(30, What::Acquire), (10, What::Write), (10, What::Release)]);
        assert_eq!((operation.private_lines, operation.instructions), (1, 55));
        assert_eq!((recording.lines.len(), recording.locks.len()), (1, 1));
        let lock = &recording.locks[0];
        assert_eq!(
            (lock.class.as_str(), lock.share, lock.kind),
            ("free_pages", Share::All, LockKind::Spin)
        );
        assert_eq!(recording.lines[0].object, "data of free_pages");
        assert_eq!(recording.origin.interrupt_instructions, 6);
    }

    #[test]
    fn data_without_a_type_is_named_by_its_first_writer() {
        let table = Table::of(
            "ffffffff81000000 T kmem_cache_alloc\nffffffff81000100 T open_file\n\
             ffffffff81000200 T _raw_spin_lock\nffffffff81000300 T read_file\n",
        );
        let of = |writers: &[(i32, i32)]| {
            let read = Raw { function: 3, caller: 3, writes: false, ..raw(Type::Access, DATA) };
            let writes = writers.iter().map(|&(function, caller)| Raw {
                function,
                caller,
                ..raw(Type::Access, DATA)
            });
            let records: Vec<Raw> = [raw(Type::Stack, 7), read, read, read].into_iter().collect();
            let records: Vec<Raw> = records.into_iter().chain(writes).collect();
            let all = [0, 1].map(|cpu| operation(cpu, &records));
            let origin = Origin { node_of_cpu: vec![0, 0], ..Origin::default() };
            let made = recording(&table, None, &all, origin, TWO, &|_| String::new()).unwrap();
            made.lines[0].object.clone()
        };
        // An allocation counts for its caller, also before later writers.
        assert_eq!(of(&[(0, 1), (3, 3)]), "data of open_file");
        assert_eq!(of(&[(3, 1)]), "data of read_file");
        assert_eq!(of(&[(0, 0)]), "data of read_file", "the reader uses it most");
    }

    #[test]
    fn calls_of_other_cpus_have_what_these_do() {
        let calls = |cpu: u16| {
            let mut records = both(cpu);
            records.insert(2, raw(Type::Sent, 0));
            // It reads what the other CPU writes.
            records.insert(3, Raw { writes: false, ..raw(Type::Access, DATA + 1024) });
            let other = 1 - cpu;
            let answer = |sent: u32, instructions: u64| RawAnswer {
                cpu: other,
                sent,
                instructions,
                records: vec![raw(Type::Access, DATA + 1024), own(other.into())].into(),
            };
            let answers = vec![answer(1, 300 + u64::from(cpu)), answer(0, 77)];
            RawOperation { answers, ..operation(cpu, &records) }
        };
        let recording = reduced(&[calls(0), calls(0), calls(1)]).unwrap();
        let events = &recording.cpus[0][0].events;
        assert_eq!(events.iter().filter(|event| event.what == What::Call).count(), 1);
        let called = |cpu: usize| {
            let call = recording.cpus[cpu][0].events.iter().find(|event| event.what == What::Call);
            &recording.calls[call.unwrap().target as usize].receivers
        };
        assert_eq!(recording.calls.len(), 2, "equal ones are one");
        for cpu in [0, 1] {
            let [(receiver, answer)] = called(cpu)[..] else { panic!("{:?}", called(cpu)) };
            let answer = &recording.answers[answer.index()];
            assert_eq!((receiver, answer.sender), (1 - cpu as u32, cpu as u32));
            assert_eq!((answer.instructions, answer.events.len()), (300 + cpu as u64, 1));
        }
    }

    #[test]
    fn other_tasks_on_the_cpu_are_left_out() {
        let mut records = both(0);
        let queue = raw(Type::Taken, LOCK + 64);
        let away = [queue, raw(Type::Switched, 0), raw(Type::Stack, 8)];
        let there = [raw(Type::Released, LOCK + 64), raw(Type::Access, DATA + 640)];
        let back = [raw(Type::Stack, 7), own(0)];
        records.extend(away.iter().chain(&there).chain(&back));
        let whole = [operation(0, &both(0)), operation(1, &both(1)), operation(1, &both(1))];
        let cut = operation(0, &records);
        let recording = reduced(&[&whole[..], std::slice::from_ref(&cut)].concat()).unwrap();
        let operation = &recording.cpus[0][1];
        assert_eq!(operation.instructions, cut.instructions - 30);
        let sum: u32 = operation.events.iter().map(|event| event.after).sum();
        assert!(operation.events.iter().all(|event| event.what != What::Read) && sum <= 90);
        assert_eq!(recording.origin.dropped, Dropped::default());
    }

    #[test]
    fn an_exception_begins_on_a_stack_that_is_of_no_task() {
        let entry = raw(Type::Stack, 0xffff_fe00_0000_4000 >> STACK_SHIFT);
        let mut records = vec![entry];
        records.extend(both(0));
        let away = [raw(Type::Switched, 0), raw(Type::Stack, 8), entry, own(1)];
        records.extend(away.iter().chain(&[raw(Type::Stack, 7), own(0)]));
        let whole = operation(0, &records);
        let cut = without_others(&whole);
        let own = records.len() as u64 - 3;
        assert_eq!(cut.instructions, 10 * own + 5, "three records are of the other task");
        assert_eq!(cut.records.iter().filter(|raw| raw.what == Type::Access).count(), 3);
    }

    #[test]
    fn registers_of_devices_are_no_lines() {
        let with = |cpu: u16| {
            let mut records = both(cpu);
            records.insert(1, raw(Type::Access, 0xffff_ffff_ff5f_d0b0));
            operation(cpu, &records)
        };
        let recording = reduced(&[with(0), with(1)]).unwrap();
        assert_eq!((recording.lines.len(), recording.cpus[0][0].private_lines), (1, 1));
        assert_eq!(recording.cpus[0][0].events[0].after, 40);
    }

    #[test]
    fn operations_that_go_to_other_tasks_by_nature_are_kept_with_them() {
        let mut forks = both(0);
        forks.extend([raw(Type::Switched, 0), raw(Type::Stack, 8), own(0), raw(Type::Stack, 7)]);
        let other = RawOperation { cpu: 1, ..operation(1, &forks) };
        let long =
            RawOperation { is_whole: false, records: Packed::default(), ..operation(0, &forks) };
        let switch = raw(Type::Switched, 0);
        let often = operation(0, &[&forks[..], &[switch, switch]].concat());
        let all = [operation(0, &forks), other, often, long.clone(), long];
        let recording = reduced(&all).unwrap();
        assert_eq!(recording.cpus[0].len(), 1);
        assert_eq!(recording.cpus[0][0].instructions, all[0].instructions);
        assert_eq!((recording.cpus[0][0].switches, recording.origin.dropped.switched), (1, 1));
        // Programs that do not sleep are interrupted, however often.
        let long = reduced_with(&all, 1).unwrap();
        assert_eq!((long.cpus[0].len(), long.origin.dropped.switched), (2, 0));
        assert!(long.operations().all(|operation| operation.switches == 0));
        // One that stays with its task shows that the others do not switch by their nature.
        let recording = reduced(&[&all[..], &[operation(0, &both(0))]].concat()).unwrap();
        assert_eq!(recording.origin.dropped.switched, 0);
        assert!(recording.operations().all(|operation| operation.switches == 0));
    }

    #[test]
    fn broken_operations_are_counted_and_left_out() {
        let whole = [operation(0, &both(0)), operation(1, &both(1))];
        let held = operation(0, &[raw(Type::Stack, 7), raw(Type::Taken, LOCK)]);
        let long = RawOperation { is_whole: false, ..held.clone() };
        let all = [&whole[..], &[held.clone(), long.clone(), long.clone(), long]].concat();
        let Dropped { switched, unbalanced, too_long } = reduced(&all).unwrap().origin.dropped;
        assert_eq!((switched, unbalanced, too_long), (0, 1, 3));
        let why = reduced(&[held, operation(1, &both(1))]).unwrap_err();
        assert!(why.contains("no operation of CPU 0 is left"), "{why}");
    }

    #[test]
    fn a_lock_that_is_only_tried_is_marked() {
        let table = Table::of(
            "ffffffff81000000 T free_pages\nffffffff81000100 T zap\n\
             ffffffff81000200 T _raw_spin_lock\nffffffff81000300 T _raw_spin_trylock\n",
        );
        let with = |acquire: i32| {
            let records = |cpu| both(cpu).into_iter().map(|raw| Raw { acquire, ..raw });
            let all = [0, 1].map(|cpu| operation(cpu, &records(cpu).collect::<Vec<Raw>>()));
            let origin = Origin { node_of_cpu: vec![0, 0], ..Origin::default() };
            let made = recording(&table, None, &all, origin, TWO, &|_| String::new()).unwrap();
            made.cpus[0][0].events[0]
        };
        assert!(with(3).is_tried() && !with(2).is_tried());
    }
}
