//! The lines and locks of a machine: those of the recording, as often as its CPUs need copies.

use crate::code::{Code, CodeLine, CodeLock};
use crate::place::{CpuPlace, Places};
use mmscale_arch::sync::{
    Mutex, MutexGuard, PreemptGuard, ReadGuard, RwSem, SpinGuard, SpinLock, WriteGuard,
};
use mmscale_arch::{Atomic, Cpu, LockClass, LockInstance};
use mmscale_document::LockName;
use mmscale_lift::{LineId, LockId, LockKind, Share};
use mmscale_sim::Sim;

/// A line of the machine.
pub(crate) type Line = <Sim as Cpu>::AtomicU64;

/// A lock of the machine. Their order is not known: they are of classes that the machine does not
/// order.
enum Lock {
    Spin(SpinLock<Sim, ()>),
    Rwsem(RwSem<Sim, ()>),
    Mutex(Mutex<Sim, ()>),
}

impl Lock {
    /// Makes a lock, whose name has the number `name`.
    fn new(of: &CodeLock, name: u32) -> Self {
        match of.kind {
            LockKind::Spin => {
                let instance = LockInstance::Numbered(name);
                Self::Spin(SpinLock::named(LockClass::Other, instance, ()))
            }
            LockKind::Rwsem => Self::Rwsem(RwSem::new(LockClass::Rwsem, ())),
            LockKind::Mutex => Self::Mutex(Mutex::new(LockClass::Mutex, ())),
        }
    }
}

/// A lock that is held until this is dropped. The guards are only dropped.
pub(crate) enum Guard<'a> {
    /// One that no other CPU takes.
    Private,
    /// A spin lock, with preemption off.
    Spin { _guard: SpinGuard<'a, Sim, (), PreemptGuard<Sim>> },
    /// A semaphore, for writing.
    Write(WriteGuard<'a, Sim, ()>),
    /// A semaphore, for reading.
    Read { _guard: ReadGuard<'a, Sim, ()> },
    /// A mutex.
    Mutex { _guard: MutexGuard<'a, Sim, ()> },
}

impl Guard<'_> {
    /// Holds a semaphore for reading that was held for writing.
    pub(crate) fn downgraded(self) -> Self {
        match self {
            Self::Write(guard) => Self::Read { _guard: guard.downgrade() },
            other => other,
        }
    }
}

/// Objects of which a machine has copies, each with the first of its copies.
struct Copies<T> {
    first: Vec<(Share, usize)>,
    all: Vec<T>,
}

impl<T> Copies<T> {
    fn new<S>(
        of: &[S],
        share: impl Fn(&S) -> Share,
        places: &Places,
        make: impl Fn(&S, usize) -> T,
    ) -> Self {
        let mut copies = Self { first: Vec::with_capacity(of.len()), all: Vec::new() };
        for object in of {
            let share = share(object);
            let first = copies.all.len();
            copies.first.push((share, first));
            let all = first..first + places.copies(share);
            copies.all.extend(all.map(|number| make(object, number)));
        }
        copies
    }
    /// Returns the copy of a CPU; `None` if it is of this CPU alone.
    fn of(&self, index: usize, place: &CpuPlace) -> Option<&T> {
        let (share, first) = self.first[index];
        (share != Share::Private).then(|| &self.all[first + place.copy(share)])
    }
}

/// Lines with other copies than their share says: of each of all lines the first of its copies.
struct Own {
    first: Vec<Option<u32>>,
    all: Vec<Line>,
}

impl Own {
    fn new(of: &[CodeLine], is: impl Fn(&CodeLine) -> bool, copies: usize) -> Self {
        let mut all = Vec::new();
        let first = of.iter().map(|line| {
            let first = all.len() as u32;
            is(line).then(|| {
                all.extend((0..copies).map(|_| Line::new(0)));
                first
            })
        });
        Self { first: first.collect(), all }
    }
    fn of(&self, line: LineId, copy: impl FnOnce() -> usize) -> Option<&Line> {
        self.first[line.index()].map(|first| &self.all[first as usize + copy()])
    }
}

/// Returns the names of the locks of a machine by their numbers: the class; which of the class, if
/// the recording has several; whose copy it is.
pub(crate) fn lock_names(code: &Code, places: &Places) -> Vec<LockName> {
    let mut names = Vec::new();
    for lock in &code.locks {
        let class = &code.line_names[lock.name as usize];
        let number = lock.number.map_or(String::new(), |number| format!(" {number}"));
        for copy in 0..places.copies(lock.share) {
            let whose = match lock.share {
                Share::Few => format!(" of group {copy}"),
                Share::Node => format!(" of node {copy}"),
                Share::Private | Share::All => String::new(),
            };
            names.push(LockName { class: class.clone(), name: format!("{class}{number}{whose}") });
        }
    }
    names
}

/// The lines and locks of a machine.
pub(crate) struct Shared {
    lines: Copies<Line>,
    /// The lines of CPUs for those that they call: for each group, as often as a node has groups.
    by_called: Own,
    /// The lines of which each CPU has one: as often as a node has groups.
    of_each: Own,
    turns: usize,
    locks: Copies<Lock>,
}

impl Shared {
    pub(crate) fn new(code: &Code, places: &Places) -> Self {
        let (groups, turns) = (places.groups(), places.turns());
        Self {
            by_called: Own::new(&code.lines, |line| line.by_called, groups * turns),
            of_each: Own::new(&code.lines, |line| line.is_of_each, turns),
            turns,
            lines: Copies::new(&code.lines, |line| line.share, places, |_, _| Line::new(0)),
            locks: Copies::new(
                &code.locks,
                |lock| lock.share,
                places,
                |lock, number| Lock::new(lock, number as u32),
            ),
        }
    }
    /// Returns a line as a CPU has it; `None` if it is of this CPU alone.
    pub(crate) fn line(&self, line: LineId, place: &CpuPlace) -> Option<&Line> {
        let by_called = self.by_called.of(line, || place.group * self.turns + place.called);
        let own = by_called.or_else(|| self.of_each.of(line, || place.turn));
        own.or_else(|| self.lines.of(line.index(), place))
    }
    /// Takes a lock if it is free.
    pub(crate) fn try_lock(
        &self,
        lock: LockId,
        place: &CpuPlace,
        shared: bool,
    ) -> Option<Guard<'_>> {
        match (self.locks.of(lock.index(), place), shared) {
            (None, _) => Some(Guard::Private),
            (Some(Lock::Spin(lock)), _) => {
                lock.try_lock().map(|guard| Guard::Spin { _guard: guard })
            }
            (Some(Lock::Rwsem(lock)), true) => {
                lock.try_read().map(|guard| Guard::Read { _guard: guard })
            }
            (Some(Lock::Rwsem(lock)), false) => lock.try_write().map(Guard::Write),
            (Some(Lock::Mutex(lock)), _) => {
                lock.try_lock().map(|guard| Guard::Mutex { _guard: guard })
            }
        }
    }
    /// Takes a lock.
    pub(crate) fn lock(&self, lock: LockId, place: &CpuPlace, shared: bool) -> Guard<'_> {
        match (self.locks.of(lock.index(), place), shared) {
            (None, _) => Guard::Private,
            (Some(Lock::Spin(lock)), _) => Guard::Spin { _guard: lock.lock() },
            (Some(Lock::Rwsem(lock)), true) => Guard::Read { _guard: lock.read() },
            (Some(Lock::Rwsem(lock)), false) => Guard::Write(lock.write()),
            (Some(Lock::Mutex(lock)), _) => Guard::Mutex { _guard: lock.lock() },
        }
    }
}
