//! Grace periods: waiting until every reader that may still use an old version is done.
//!
//! A reader is a [`ReadGuard`]: preemption is off inside it. A grace period ends when every CPU has
//! passed a quiescent state after it began: a context switch, idle, or a tick or inter-processor
//! interrupt that finds the CPU outside every reader. A normal grace period waits for these to
//! occur, at the latest with the CPU's next tick. An expedited one sends an interrupt to each CPU
//! that is neither idle nor done.
//!
//! One grace period runs at a time. A caller is served by a grace period that began after its call.
//! Callers of a normal one queue for the mutex. Callers of an expedited one first pass a funnel
//! ([`funnel`]): one of them takes the mutex, the others sleep. In Linux the two kinds of grace
//! period are independent. Here an expedited caller may find a normal grace period under way, or
//! one may begin before it has the mutex. Both are expedited then: the caller that has left the
//! funnel stores its request and interrupts the CPUs that owe; a grace period marks the CPUs and
//! then checks for requests. One of the two sees what the other did.
//!
//! # Why the current grace period is not enough
//!
//! | grace period 1 | CPU 7 | caller on CPU 3 |
//! |---|---|---|
//! | begins, waits for all CPUs | | |
//! | | context switch: reports, is done | |
//! | | begins a reader, loads the old pointer | |
//! | | | stores the new pointer, calls `synchronize` |
//! | ends: all CPUs have reported | still reads the old version | must not free it |
//!
//! Grace period 1 needs nothing from CPU 7 any more, so its end does not cover CPU 7's reader.
//! Grace period 2 begins after the store: it waits for a quiescent state of CPU 7 that is after the
//! reader, and later readers load the new pointer. So a caller that finds `begun` = n waits until
//! `ended` >= n + 1, and it runs that grace period itself unless another caller does.
//!
//! # CPU hotplug
//!
//! A CPU is waited for from the moment it is online until it is dead: between leaving the online
//! mask and dying it still runs readers.
//!
//! Lock order: the grace-period mutex (class Mutex) is outermost; nothing is taken under a reader's
//! guard here.
//!
//! Memory order: what a writer changed before the grace period is seen by every reader that begins
//! after the CPU's quiescent state, and what a reader did is seen by the writer after the grace
//! period. Each CPU's `owes` word and the count of CPUs carry both. For CPUs that are passed over,
//! `idle` carries what a reader did, and the fences in `idle_exit` and `grace_period` what the
//! writer changed. If a caller is served by another's grace period, the fences in `wait` and
//! `grace_period` order its changes before that grace period.

mod funnel;

use core::cell::Cell;
use core::sync::atomic::Ordering::SeqCst;
use funnel::Funnel;
use mmscale_arch::sync::{Completion, EachCpu, Mutex, MutexGuard, NoPreempt, PerCpu, PreemptGuard};
use mmscale_arch::{Atomic, CpuId, CpuMask, DataLine, Func, Ipi, LockClass, Machine, Span};

/// The way in which a grace period gets the CPUs' quiescent states.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Speed {
    /// It waits until they occur.
    Normal,
    /// It sends interrupts to request them.
    Expedited,
}

/// See [`GraceState::owes`].
const OWES: u32 = 1;
/// See [`GraceState::owes`].
const DEAD: u32 = 2;

/// Per-CPU state that other CPUs use.
struct GraceState<A: Machine> {
    /// [`OWES`]: the current grace period waits for this CPU. [`DEAD`]: it died since it last owed
    /// anything. 0 otherwise.
    owes: A::AtomicU32,
    /// Not zero: the CPU is idle, and so outside every reader.
    idle: A::AtomicU32,
    /// Not zero: the CPU is or was online and is not dead.
    alive: A::AtomicU32,
}

/// Per-CPU state of the CPU itself; its interrupts use it too, so each use is one load or one
/// store.
#[derive(Default)]
struct ReaderState {
    /// Depth of nested readers.
    depth: Cell<u32>,
    /// A quiescent state was requested during a reader: the end of the outermost one reports it.
    asked: Cell<bool>,
}

/// The state of readers and grace periods.
pub struct Rcu<A: Machine> {
    seen: EachCpu<GraceState<A>>,
    own: PerCpu<A, ReaderState>,
    /// Grace periods begun, and ended.
    begun: A::AtomicU64,
    ended: A::AtomicU64,
    /// The last one that began as an expedited one.
    expedited: A::AtomicU64,
    funnel: Funnel<A>,
    /// CPUs that the current one waits for, plus one until all CPUs have been marked.
    owing: A::AtomicU32,
    all_passed: Completion<A>,
    one_at_a_time: Mutex<A, ()>,
}

impl<A: Machine> Rcu<A> {
    /// Creates the state without readers and grace periods. CPUs that are online now count as
    /// alive.
    #[expect(clippy::new_without_default, reason = "it looks at the machine")]
    pub fn new() -> Self {
        let seen = |cpu| GraceState {
            owes: A::AtomicU32::named(0, DataLine::Rcu),
            idle: A::AtomicU32::named(0, DataLine::Rcu),
            alive: A::AtomicU32::new(A::is_online(cpu).into()),
        };
        Self {
            seen: EachCpu::new::<A>(seen),
            own: PerCpu::new(|_| ReaderState::default()),
            begun: A::AtomicU64::named(0, DataLine::Rcu),
            ended: A::AtomicU64::named(0, DataLine::Rcu),
            expedited: A::AtomicU64::named(0, DataLine::Rcu),
            funnel: Funnel::new(A::cpus_possible()),
            owing: A::AtomicU32::named(0, DataLine::Rcu),
            all_passed: Completion::new(),
            one_at_a_time: Mutex::new(LockClass::Mutex, ()),
        }
    }

    // -- Readers.

    /// Begins a reader; nests, also in interrupts.
    #[inline]
    pub fn read(&self) -> ReadGuard<'_, A> {
        let pinned = PreemptGuard::new();
        let own = self.own.get(&pinned);
        own.depth.set(own.depth.get() + 1);
        ReadGuard { rcu: self, pinned }
    }

    fn reader_ends(&self, pinned: &PreemptGuard<A>) {
        let own = self.own.get(pinned);
        // A machine that is interrupted drops the guards of all CPUs on the last one.
        own.depth.set(own.depth.get().saturating_sub(1));
        if own.depth.get() == 0 && own.asked.replace(false) {
            self.report(pinned.cpu());
        }
    }

    // -- Quiescent states. Interrupts are off in all of these.

    /// Reports that this CPU switches tasks: it is outside every reader.
    #[inline]
    pub fn context_switch(&self) {
        self.report(A::cpu());
    }

    /// Reports from the tick, if that interrupted no reader.
    #[inline]
    pub fn tick(&self) {
        self.report_if_outside(false);
    }

    /// Handles a request for a quiescent state: reports it now, or at the end of the current
    /// reader.
    pub fn expedited_ipi(&self) {
        self.report_if_outside(true);
    }

    fn report_if_outside(&self, ask: bool) {
        let pinned = PreemptGuard::new();
        let own = self.own.get(&pinned);
        if own.depth.get() == 0 {
            self.report(pinned.cpu());
        } else if ask {
            own.asked.set(true);
        }
    }

    /// Reports that this CPU goes idle.
    pub fn idle_enter(&self) {
        let seen = self.seen.of(A::cpu());
        // Pairs with the loads in `grace_period` and `wait_for_idle`: the writer sees what earlier
        // readers on this CPU did.
        seen.idle.store(1, SeqCst);
        self.report(A::cpu());
    }

    /// Returns whether `cpu` is idle: a hint.
    pub fn is_idle(&self, cpu: CpuId) -> bool {
        // Pairs with the store in `idle_enter` and the swap in `idle_exit`.
        self.seen.of(cpu).idle.load_uncharged(SeqCst) != 0
    }

    /// Marks this CPU as not idle, before it runs a reader.
    pub fn idle_exit(&self) {
        // Pairs with the load in `grace_period`. If that still finds the CPU idle, the fence below
        // makes the writer's changes visible.
        self.seen.of(A::cpu()).idle.swap(0, SeqCst);
        // Pairs with the fence in `grace_period`: later readers see the changes that preceded the
        // load of the flag that passed this CPU over.
        A::fence(SeqCst);
    }

    /// Records that `cpu` has passed a quiescent state.
    #[inline]
    fn report(&self, cpu: CpuId) {
        let owes = &self.seen.of(cpu).owes;
        // Pairs with the swap in `grace_period`: later readers come after its begin.
        if owes.load(SeqCst) == OWES && owes.swap(0, SeqCst) == OWES {
            self.one_less();
        }
    }

    /// Records that `cpu` is dead: it owes nothing to the current grace period, nor to one that
    /// reads the mask of online CPUs before and asks it afterwards.
    fn bury(&self, cpu: CpuId) {
        // Pairs with the swap in `grace_period`: it finds `DEAD`, or this finds `OWES`.
        if self.seen.of(cpu).owes.swap(DEAD, SeqCst) == OWES {
            self.one_less();
        }
    }

    fn one_less(&self) {
        // Pairs with itself on other CPUs and with `all_passed`: earlier readers precede the end.
        if self.owing.fetch_sub(1, SeqCst) == 1 {
            self.all_passed.complete();
        }
    }

    // -- Grace periods. Tasks only; these sleep.

    /// Waits until every reader that has begun by now has ended.
    pub fn synchronize(&self) {
        let _span = Span::<A>::enter(Func::SynchronizeRcu);
        self.wait(Speed::Normal);
    }

    /// Waits like [`Rcu::synchronize`], after interrupting every CPU that could delay it.
    pub fn synchronize_expedited(&self) {
        let _span = Span::<A>::enter(Func::SynchronizeRcuExpedited);
        self.wait(Speed::Expedited);
    }

    fn wait(&self, speed: Speed) {
        // Pairs with the fence in `grace_period`: a grace period that begins after the load of
        // `begun` covers the caller's changes.
        A::fence(SeqCst);
        let enough = self.begun.load(SeqCst) + 1;
        let one = match speed {
            Speed::Normal => self.one_at_a_time.lock(),
            Speed::Expedited => match self.pass_funnel(enough) {
                Some(one) => one,
                None => return,
            },
        };
        // Pairs with the store in `grace_period`; this task holds the mutex, under which `ended`
        // changes.
        let late = self.ended.load(SeqCst) < enough;
        let number = late.then(|| self.grace_period(speed));
        // The next grace period may begin before the callers of this one have been woken.
        drop(one);
        if let Some(number) = number {
            self.funnel.wake(number);
        }
    }

    /// Returns the mutex for the caller that has to run grace period `enough`, or `None` when that
    /// one has ended.
    fn pass_funnel(&self, enough: u64) -> Option<MutexGuard<'_, A, ()>> {
        let cpu = A::cpu();
        if self.funnel.is_unrequested(cpu, enough)
            && let Some(one) = self.one_at_a_time.try_lock()
        {
            return Some(one);
        }
        // `ended` pairs with its store in `grace_period`, here without the mutex: the caller sees
        // what the readers did.
        if self.funnel.climb(cpu, enough, || self.ended.load(SeqCst) >= enough) {
            return None;
        }
        // A normal grace period in progress must end first: expedite it too. Pairs with the load of
        // the request in `grace_period`.
        if self.expedited.load(SeqCst) < self.begun.load(SeqCst) {
            self.interrupt_remaining();
        }
        Some(self.one_at_a_time.lock())
    }

    /// Runs a grace period and returns its number. The caller holds the mutex.
    fn grace_period(&self, speed: Speed) -> u64 {
        // Only the holder of the mutex changes `begun`.
        let number = self.begun.load(SeqCst) + 1;
        if speed == Speed::Expedited {
            // Pairs with the load in `pass_funnel`. If that misses it and finds the new `begun`, it
            // sends interrupts that this grace period sends too.
            self.expedited.store(number, SeqCst);
        }
        // Pairs with the loads in `wait` and `pass_funnel`: a caller that reads this number needs
        // the next grace period.
        self.begun.store(number, SeqCst);
        // Pairs with the fences in `wait` and `idle_exit`.
        A::fence(SeqCst);
        self.all_passed.reset();
        self.owing.store(1, SeqCst);
        let mut online = CpuMask::EMPTY;
        A::online(&mut online);
        for (cpu, seen) in self.seen.iter() {
            // Pairs with the stores in `cpu_online` and `cpu_dead`: a CPU that has left the mask is
            // waited for until it is dead.
            if !online.contains(cpu) && seen.alive.load(SeqCst) == 0 {
                continue;
            }
            // The count first: a CPU that finds `OWES` subtracts. The swap pairs with those in
            // `report` and `bury`: later readers of the CPU see the writer's changes.
            self.owing.fetch_add(1, SeqCst);
            let before = seen.owes.swap(OWES, SeqCst);
            // A CPU that died after the mask was read reported to no grace period. One that is
            // online again may have readers.
            if before == DEAD && !A::is_online(cpu) {
                self.bury(cpu);
                continue;
            }
            // An idle CPU is passed over. If it has just left idle, its readers see what the writer
            // did before. It may report at the same time: the exchange in `report` counts one of
            // the two.
            if seen.idle.load(SeqCst) != 0 {
                self.report(cpu);
            }
        }
        self.one_less();
        // Pairs with the store of a request in the funnel: its caller sees the CPUs that owe, or
        // this load sees the request.
        if speed == Speed::Expedited || self.funnel.requested() >= number {
            self.interrupt_remaining();
        }
        self.all_passed.wait();
        // Pairs with the loads of `ended` in `wait` and `pass_funnel`: see there.
        self.ended.store(number, SeqCst);
        number
    }

    /// Sends an interrupt to every CPU that the current grace period waits for.
    fn interrupt_remaining(&self) {
        for (cpu, seen) in self.seen.iter() {
            // Pairs with the swaps in `grace_period` and `report`. A CPU that is marked later is
            // interrupted by the grace period, which sees the request then.
            if seen.owes.load(SeqCst) != OWES {
                continue;
            }
            let pinned = PreemptGuard::<A>::new();
            if cpu == pinned.cpu() {
                self.report_if_outside(true);
            } else if A::is_online(cpu) {
                A::ipi_send(cpu, Ipi::RcuExpedited);
            }
        }
    }

    /// Waits until every other CPU is idle and in no interrupt. The caller knows that nothing keeps
    /// them from that. A grace period is less: a CPU has reported to it before it folds its
    /// counters on its way to idle.
    pub fn wait_for_idle(&self) {
        let mut others = CpuMask::EMPTY;
        A::online(&mut others);
        others.remove(A::cpu());
        for cpu in others.iter() {
            // Pairs with the store in `idle_enter`: the caller sees what the CPU did before.
            while self.seen.of(cpu).idle.load(SeqCst) == 0 {
                A::relax();
            }
        }
    }

    // -- Hotplug.

    /// Counts `cpu`, which is online, in later grace periods.
    pub fn cpu_online(&self, cpu: CpuId) {
        self.seen.of(cpu).alive.store(1, SeqCst);
    }

    /// Excludes `cpu`, which is dead, from grace periods.
    pub fn cpu_dead(&self, cpu: CpuId) {
        let seen = self.seen.of(cpu);
        // The CPU is dead. Pairs with the loads in `grace_period`, which then passes it over.
        seen.alive.store(0, SeqCst);
        seen.idle.store(0, SeqCst);
        self.bury(cpu);
    }
}

/// A reader, until this is dropped. Preemption is off.
#[must_use]
pub struct ReadGuard<'a, A: Machine> {
    rcu: &'a Rcu<A>,
    pinned: PreemptGuard<A>,
}

impl<A: Machine> Drop for ReadGuard<'_, A> {
    #[inline]
    fn drop(&mut self) {
        self.rcu.reader_ends(&self.pinned);
    }
}

// SAFETY: `pinned` keeps preemption off for as long as the guard lives.
unsafe impl<A: Machine> NoPreempt<A> for ReadGuard<'_, A> {}
