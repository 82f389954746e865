//! Weak memory: a load may return a value that another CPU has replaced, wherever the orderings of
//! the code under test allow that.
//!
//! The model is that of `core::sync::atomic`, in the form of views. Every atomic is a [`Place`]
//! with the list of its writes. A CPU has a view: for each place, the oldest write that it can
//! still read. A write has a view too: its CPU's view at that time if it is a release, otherwise
//! the view at the CPU's last release fence. An acquire load adds the view of the write that it
//! reads to the CPU's view; after a relaxed load, the CPU's next acquire fence does. One more view,
//! `fenced`, is shared by all sequentially consistent operations: a fence merges its CPU's view
//! with it in both directions, an access only the entry of its own place.
//!
//! Limits: a write is listed when it runs. So a load never returns a value of a later step of any
//! CPU (no load buffering), and the writes to a place are listed in the order of the schedule. Data
//! dependencies order nothing, as in `core`. A list keeps the last [`KEPT`] writes.

use core::cell::{Cell, RefCell};
use core::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release, SeqCst};
use shuttle::rand::{RngCore as _, thread_rng};
use std::collections::VecDeque;
use std::sync::atomic::AtomicU64;

/// Number of writes of a place that a load can return, including the newest.
const KEPT: usize = 8;

/// The name of an atomic, a lock or anything else that carries a view. It has a number after its
/// first use.
#[derive(Default)]
pub(crate) struct Id(AtomicU64);

/// For each place, the number of the oldest write that may still be read there.
#[derive(Clone, Default)]
struct View(Vec<u32>);

impl View {
    fn get(&self, place: usize) -> u32 {
        self.0.get(place).copied().unwrap_or(0)
    }
    fn raise(&mut self, place: usize, to: u32) {
        if self.0.len() <= place {
            self.0.resize(place + 1, 0);
        }
        self.0[place] = self.0[place].max(to);
    }
    fn join(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(mine, theirs)| *mine = (*mine).max(*theirs));
    }
}

/// One write.
struct Write {
    value: u64,
    /// The view that an acquire load of this write adds.
    view: View,
}

/// The last writes of an atomic, and the number of the first of them.
struct Place {
    writes: VecDeque<Write>,
    first: u32,
}

impl Place {
    fn last(&self) -> u32 {
        self.first + self.writes.len() as u32 - 1
    }
    fn push(&mut self, write: Write) {
        self.writes.push_back(write);
        if self.writes.len() > KEPT {
            self.writes.pop_front();
            self.first += 1;
        }
    }
}

/// The views of a CPU.
#[derive(Clone, Default)]
struct Cpu {
    now: View,
    /// The views of writes that were read, which the next acquire fence adds.
    read: View,
    /// The view at the last release fence.
    released: View,
}

#[derive(Default)]
struct State {
    cpus: Vec<Cpu>,
    fenced: View,
    places: Vec<Place>,
    /// Views that locks, interrupts and wake-ups hand over.
    carried: Vec<View>,
}

/// The memory of one machine.
pub(crate) struct Memory {
    /// Whether loads may return old values.
    weak: Cell<bool>,
    /// Distinguishes this memory's numbers from those of another.
    epoch: u64,
    state: RefCell<State>,
}

std::thread_local! {
    static EPOCHS: Cell<u64> = const { Cell::new(1) };
}

fn acquires(order: Ordering) -> bool {
    matches!(order, Acquire | AcqRel | SeqCst)
}

fn releases(order: Ordering) -> bool {
    matches!(order, Release | AcqRel | SeqCst)
}

/// Draws which of the last `count` writes is read, counted from the newest: in half of all cases
/// the newest.
fn steps_back(count: u32) -> u32 {
    if count == 1 {
        return 0;
    }
    let drawn = thread_rng().next_u64();
    if drawn & 1 == 0 { 0 } else { 1 + (drawn >> 1) as u32 % (count - 1) }
}

impl Memory {
    /// Creates a memory in which all operations take effect in one order.
    pub(crate) fn new() -> Self {
        let epoch = EPOCHS.replace(EPOCHS.get() + 1);
        Self { weak: Cell::new(false), epoch, state: RefCell::default() }
    }
    /// Makes memory weak, for `cpus` CPUs that have seen all writes so far.
    pub(crate) fn weaken(&self, cpus: usize) {
        self.state.borrow_mut().cpus = vec![Cpu::default(); cpus];
        self.weak.set(true);
    }
    /// Makes loads return the last value again, after all CPUs have ended.
    pub(crate) fn settle(&self) {
        self.weak.set(false);
    }
    pub(crate) fn is_weak(&self) -> bool {
        self.weak.get()
    }

    fn number(&self, id: &Id) -> Option<usize> {
        let word = id.0.load(Relaxed);
        (word >> 32 == self.epoch).then_some(word as u32 as usize)
    }
    fn set_number(&self, id: &Id, number: usize) -> usize {
        id.0.store(self.epoch << 32 | number as u64, Relaxed);
        number
    }
    /// Returns the place of `id`, whose value was `value` before its first write.
    fn place(&self, state: &mut State, id: &Id, value: u64) -> usize {
        self.number(id).unwrap_or_else(|| {
            let writes = VecDeque::from([Write { value, view: View::default() }]);
            state.places.push(Place { writes, first: 0 });
            self.set_number(id, state.places.len() - 1)
        })
    }

    /// Returns the value that `cpu` loads from an atomic whose last value is `last`.
    pub(crate) fn load(&self, cpu: usize, id: &Id, last: u64, order: Ordering) -> u64 {
        self.read(cpu, id, last, order, |_| true)
    }
    /// Returns the value that a failed compare-and-exchange reads, which is not `sought`; nor is
    /// `last`.
    pub(crate) fn fail(&self, cpu: usize, id: &Id, last: u64, sought: u64, order: Ordering) -> u64 {
        self.read(cpu, id, last, order, |value| value != sought)
    }
    /// Loads the drawn write if `is_right` accepts its value, otherwise the last write.
    fn read(
        &self,
        cpu: usize,
        id: &Id,
        last: u64,
        order: Ordering,
        is_right: impl Fn(u64) -> bool,
    ) -> u64 {
        let Some(at) = self.number(id).filter(|_| self.is_weak()) else { return last };
        let state = &mut *self.state.borrow_mut();
        let (place, me) = (&state.places[at], &mut state.cpus[cpu]);
        let mut oldest = me.now.get(at).max(place.first);
        if order == SeqCst {
            oldest = oldest.max(state.fenced.get(at));
        }
        let drawn = place.last() - steps_back(place.last() - oldest + 1);
        let of = |number: u32| &place.writes[(number - place.first) as usize];
        let read = if is_right(of(drawn).value) { drawn } else { place.last() };
        let write = of(read);
        me.now.raise(at, read);
        if acquires(order) {
            me.now.join(&write.view);
        }
        me.read.join(&write.view);
        if order == SeqCst {
            state.fenced.raise(at, read);
        }
        write.value
    }

    /// Writes `value` for `cpu`. The last value is `before`.
    pub(crate) fn store(&self, cpu: usize, id: &Id, before: u64, value: u64, order: Ordering) {
        if self.is_weak() {
            self.write(cpu, id, before, value, order, View::default());
        }
    }

    /// Reads the last value `before` and writes `value` for `cpu`, in one step.
    pub(crate) fn modify(&self, cpu: usize, id: &Id, before: u64, value: u64, order: Ordering) {
        if !self.is_weak() {
            return;
        }
        // The write continues the release sequence of the last one.
        let found = {
            let state = &mut *self.state.borrow_mut();
            let at = self.place(state, id, before);
            let (place, me) = (&state.places[at], &mut state.cpus[cpu]);
            let found = place.writes.back().map(|write| write.view.clone()).unwrap_or_default();
            if acquires(order) {
                me.now.join(&found);
            }
            me.read.join(&found);
            found
        };
        self.write(cpu, id, before, value, order, found);
    }

    fn write(&self, cpu: usize, id: &Id, before: u64, value: u64, order: Ordering, mut view: View) {
        let state = &mut *self.state.borrow_mut();
        let at = self.place(state, id, before);
        let (place, me) = (&mut state.places[at], &mut state.cpus[cpu]);
        let number = place.last() + 1;
        me.now.raise(at, number);
        view.join(if releases(order) { &me.now } else { &me.released });
        view.raise(at, number);
        place.push(Write { value, view });
        if order == SeqCst {
            state.fenced.raise(at, number);
        }
    }

    /// Executes a fence of `cpu`.
    pub(crate) fn fence(&self, cpu: usize, order: Ordering) {
        if !self.is_weak() {
            return;
        }
        let state = &mut *self.state.borrow_mut();
        let me = &mut state.cpus[cpu];
        if acquires(order) {
            me.now.join(&me.read);
        }
        if order == SeqCst {
            me.now.join(&state.fenced);
            state.fenced.clone_from(&me.now);
        }
        if releases(order) {
            me.released.clone_from(&me.now);
        }
    }

    /// Adds the view of `cpu` to `id`, for CPUs that [`Memory::learn`] from it.
    pub(crate) fn teach(&self, cpu: usize, id: &Id) {
        if !self.is_weak() {
            return;
        }
        let state = &mut *self.state.borrow_mut();
        let at = self.number(id).unwrap_or_else(|| {
            state.carried.push(View::default());
            self.set_number(id, state.carried.len() - 1)
        });
        state.carried[at].join(&state.cpus[cpu].now);
    }
    /// Adds the view of `id` to that of `cpu`.
    pub(crate) fn learn(&self, cpu: usize, id: &Id) {
        let Some(at) = self.number(id).filter(|_| self.is_weak()) else { return };
        let state = &mut *self.state.borrow_mut();
        state.cpus[cpu].now.join(&state.carried[at]);
    }

    /// Returns whether `cpu` can read the last write only.
    pub(crate) fn is_up_to_date(&self, cpu: usize, id: &Id) -> bool {
        let Some(at) = self.number(id).filter(|_| self.is_weak()) else { return true };
        let state = self.state.borrow();
        state.cpus[cpu].now.get(at) == state.places[at].last()
    }
}
