//! Calls by requests that own their completion: the policy `requests`.
//!
//! A request has a slot: the call, the number of targets that have not run it, and the waiter.
//! There are [`SLOTS`] slots on a machine, and a word for each CPU with a bit for each slot, so
//! memory grows with the number of CPUs, not with its square. A caller that finds no free slot
//! waits for one with preemption on.
//!
//! | bit of a CPU's word | meaning |
//! |---|---|
//! | below [`SLOTS`] | the CPU has to run this slot's call |
//! | [`FLUSH`] | the CPU has to flush to the current generation; no slot, no count |
//! | [`CLOSED`] | the CPU has stopped: no bit can be set |
//!
//! The CPU that sets the first bit of a word interrupts the target, and the target takes the word
//! once for each interrupt. As with [`super::queue`], a word that is 0 has no interrupt on its way
//! and can be closed.
//!
//! # Life of a slot
//!
//! | state | bit in `free` | `remaining` | entered by |
//! |---|---|---|---|
//! | free | 1 | 0 | `free_slot`: the waiter, or the last subtraction if unattended |
//! | queueing | 0 | [`QUEUEING`] - targets done | `try_slot`; then the caller fills the slot |
//! | pending | 0 | targets not done | the caller subtracts [`QUEUEING`] - targets queued |
//! | done | 0 | 0 | the subtraction that makes it 0: a target's, or the caller's |
//!
//! * `remaining`: the caller writes it before the first bit is set; after that it is only
//!   subtracted from, 1 by each target and the rest by the caller. The sum of all subtractions is
//!   [`QUEUEING`].
//! * The [`QUEUEING`] bias keeps `remaining` above 0 while the caller still counts its targets.
//!   Without it, the first target could finish and reach 0 before the second was queued.
//! * `unattended` is 1 for [`Wait::No`]: no caller waits, so the CPU whose subtraction reaches 0
//!   frees the slot. That may be the caller, if all targets were faster. The flag is read before
//!   the subtraction: after it, a waiting caller may already have freed the slot for another
//!   request.
//! * `waiter`: a sleeper stores its task, then loads `remaining`; the last target subtracts, then
//!   loads `waiter`. All four are SeqCst: either the sleeper sees 0 or the target sees the task.
//! * A stale unpark: between the last target's subtraction and its load of `waiter` the slot may
//!   have gone to another request. Then the target unparks the wrong task, or one that has left the
//!   wait. `park` may always return early, and each waiter checks its own condition in a loop, so
//!   an extra wakeup costs one check. A wakeup is not lost: the task that was to be woken has
//!   already seen 0, or it could not have freed the slot.
//!
//! # Independence of requests
//! A slot belongs to one request until its waiter has seen it done, so a caller never waits for
//! another use of its slot. A target runs its calls in order of the requests' tickets, so no
//! request waits for one that began later.
//!
//! # Bounds
//! Queueing goes in pieces ([`super::pieces`]); between two pieces the caller may be preempted or
//! migrated. Each piece evaluates the targets anew: a CPU that has stopped meanwhile has closed its
//! word.

use super::CallCounters;
use super::call::{Call, CallWords, Here, Reached, Wait};
use super::watch::Watch;
use super::{SPIN_NS, SmpConfig, in_pieces, may_call};
use alloc::boxed::Box;
use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use core::sync::atomic::{AtomicU32, AtomicU64};
use mmscale_arch::sync::{EachCpu, NoPreempt, WaitQueue};
use mmscale_arch::{Atomic, CallEvent, CpuId, DataLine, Func, Ipi, Machine, Span, TaskId, Trace};

/// Maximum of requests in flight.
pub(super) const SLOTS: usize = 62;
const FLUSH: u64 = 1 << 62;
const CLOSED: u64 = 1 << 63;
const SLOT_BITS: u64 = (1 << SLOTS) - 1;
const _: () = assert!(SLOT_BITS & (FLUSH | CLOSED) == 0);

/// Bias of `remaining` while the caller queues: larger than any number of targets.
const QUEUEING: u64 = 1 << 32;

/// Size on hardware of a slot, of a CPU's word and of the shared words, each on cache lines of its
/// own.
const SLOT_BYTES: u64 = 64;
const WORD_BYTES: u64 = 64;
const SHARED_BYTES: u64 = 3 * 64;

/// One request.
struct CallSlot<A: Machine> {
    /// Targets that have not run the call.
    remaining: A::AtomicU64,
    /// The task that sleeps until they have, plus one; 0: none.
    waiter: A::AtomicU32,
    ticket: AtomicU64,
    /// 1: no caller waits, and the last subtraction frees the slot.
    unattended: AtomicU32,
    call: CallWords,
}

/// Result of setting a bit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SetBit {
    /// It is the word's first bit: the CPU was interrupted.
    Sent,
    /// An interrupt is on its way already.
    Elided,
    /// The CPU has stopped.
    Closed,
}

/// The slots of the machine and the words of its CPUs.
pub(super) struct Requests<A: Machine> {
    slots: Box<[CallSlot<A>]>,
    /// Free slots, one bit each.
    free: A::AtomicU64,
    /// Tasks that sleep until a slot is free, those about to sleep included.
    waiting: A::AtomicU32,
    slot_freed: WaitQueue<A>,
    tickets: A::AtomicU64,
    words: EachCpu<A::AtomicU64>,
}

impl<A: Machine> Requests<A> {
    pub(super) fn new() -> Self {
        let slot = |_| CallSlot {
            remaining: A::AtomicU64::named(0, DataLine::CallState),
            waiter: A::AtomicU32::new(0),
            ticket: AtomicU64::new(0),
            unattended: AtomicU32::new(0),
            call: CallWords::default(),
        };
        Self {
            slots: (0..SLOTS).map(slot).collect(),
            free: A::AtomicU64::named(SLOT_BITS, DataLine::CallState),
            waiting: A::AtomicU32::new(0),
            slot_freed: WaitQueue::new(),
            tickets: A::AtomicU64::named(0, DataLine::CallQueue),
            words: EachCpu::new::<A>(|_| A::AtomicU64::named(0, DataLine::CallQueue)),
        }
    }
    pub(super) fn bytes() -> u64 {
        A::cpus_possible() as u64 * WORD_BYTES + SLOTS as u64 * SLOT_BYTES + SHARED_BYTES
    }

    // -- Slots.

    fn try_slot(&self) -> Option<usize> {
        // The load is sequentially consistent too: either it finds the slot that `free_slot`
        // frees, or `free_slot` sees that this task waits.
        let taken = self.free.fetch_update(SeqCst, SeqCst, |free| {
            // Clears the lowest bit.
            (free != 0).then(|| free & (free - 1))
        });
        taken.ok().map(|free| free.trailing_zeros() as usize)
    }
    /// A slot; waits for one with preemption as the caller has it.
    fn slot(
        &self,
        (config, tally): (&SmpConfig, &CallCounters<A>),
        call: Call,
        wait: Wait,
    ) -> usize {
        if let Some(slot) = self.try_slot() {
            return slot;
        }
        let _span = Span::<A>::enter(Func::CsdLock);
        let mut watch = Watch::<A>::begin(config, A::cpu(), call.func);
        let slot = match wait {
            Wait::No | Wait::Spin => loop {
                if let Some(slot) = self.try_slot() {
                    break slot;
                }
                watch.turn(|| self.busy_cpu());
            },
            Wait::Sleep => {
                let mut found = None;
                // Store buffering with `free_slot`. Here: this add, then the load of `free` in
                // `try_slot`. There: the bit in `free`, then the load of `waiting`. One of the two
                // sees the other.
                self.waiting.fetch_add(1, SeqCst);
                tally.here().sleeps.add(1);
                self.slot_freed.wait_until(|| {
                    found = self.try_slot();
                    if found.is_none() {
                        watch.look(|| self.busy_cpu());
                    }
                    found.is_some()
                });
                // No partner: a `free_slot` that reads the old count only wakes once too often.
                self.waiting.fetch_sub(1, SeqCst);
                found.unwrap_or_else(|| unreachable!("the wait ends with a slot"))
            }
        };
        tally.here().csd_lock_total_ns.add(watch.age_ns());
        tally.here().csd_lock_max_ns.note(watch.age_ns());
        slot
    }
    fn free_slot(&self, slot: usize) {
        // `free` pairs with the exchange in `try_slot`: the next request in the slot comes after
        // the last use. `waiting`: store buffering with `slot`.
        self.free.fetch_or(1 << slot, SeqCst);
        if self.waiting.load(SeqCst) != 0 {
            self.slot_freed.wake_one();
        }
    }
    /// Returns a CPU that has calls to run, for a message.
    fn busy_cpu(&self) -> CpuId {
        let busy = |(_, word): &(_, &A::AtomicU64)| word.load(Relaxed) & SLOT_BITS != 0;
        self.words.iter().find(busy).map_or(A::cpu(), |(cpu, _)| cpu)
    }
    /// Returns a CPU that has not run the call in `slot`, for a message.
    fn cpu_not_done(&self, slot: usize) -> CpuId {
        let owes = |(_, word): &(_, &A::AtomicU64)| word.load(Relaxed) >> slot & 1 != 0;
        self.words.iter().find(owes).map_or_else(|| self.busy_cpu(), |(cpu, _)| cpu)
    }

    // -- Words.

    /// Sets a bit of the word of `cpu`, and interrupts the CPU if it is the first bit. Preemption
    /// is off.
    fn set(&self, tally: &CallCounters<A>, cpu: CpuId, bit: u64) -> SetBit {
        // Pairs with the exchange in `run_queued`: the target sees the filled slot, or the new
        // generation. Against `close`: this finds `CLOSED`, or `close` finds the bit and fails.
        let before = self.words.of(cpu).fetch_update(SeqCst, SeqCst, |word| {
            (word & (CLOSED | bit) == 0).then_some(word | bit)
        });
        match before {
            Ok(0) => {
                tally.here().ipis_sent.add(1);
                A::ipi_send(cpu, Ipi::CallFunction);
                SetBit::Sent
            }
            Err(word) if word & CLOSED != 0 => SetBit::Closed,
            Ok(_) | Err(_) => {
                tally.here().ipis_elided.add(1);
                SetBit::Elided
            }
        }
    }
    /// Asks `cpu` to flush its loaded address space to the generation that the caller has seen or
    /// made.
    pub(super) fn send_flush_ipi(&self, tally: &CallCounters<A>, cpu: CpuId) -> SetBit {
        self.set(tally, cpu, FLUSH)
    }
    /// Runs the calls that this CPU was asked for, in order of their tickets. Interrupts are off.
    /// Called once for each interrupt, and from no other place.
    pub(super) fn run_queued(&self, run: &impl Fn(Call)) {
        let _span = Span::<A>::enter(Func::FlushSmpCallFunctionQueue);
        // Pairs with the exchange in `set`: this CPU sees the slots as filled, and the generations
        // that flushers have begun.
        let word = self.words.of(A::cpu()).swap(0, SeqCst);
        if word & FLUSH != 0 {
            run(Call::bare(super::CallFunc::FlushToCurrentGen));
        }
        let mut left = word & SLOT_BITS;
        while left != 0 {
            let of = |slot: &usize| self.slots[*slot].ticket.load(Relaxed);
            let next = (0..SLOTS).filter(|slot| left >> slot & 1 != 0).min_by_key(of);
            let Some(slot) = next else { return };
            left &= !(1 << slot);
            run(self.slots[slot].call.get());
            self.complete(slot, 1);
        }
    }
    /// Subtracts `count` from `remaining` of a request. Returns whether that completed it.
    fn complete(&self, at: usize, count: u64) -> bool {
        let slot = &self.slots[at];
        // Read before the subtraction: when the count is 0 the slot may belong to another request.
        let unattended = slot.unattended.load(Relaxed) != 0;
        // Pairs with the loads in `wait`: the caller sees what the calls did.
        if slot.remaining.fetch_sub(count, SeqCst) != count {
            return false;
        }
        if unattended {
            // If it is attended, `waiter` is loaded after `remaining` was subtracted: see `wait`.
            self.free_slot(at);
        } else if let Some(task) = slot.waiter.load(SeqCst).checked_sub(1) {
            // The slot may belong to another request by now: its waiter checks, and parks again.
            A::unpark(TaskId::new(task as usize));
        }
        true
    }
    pub(super) fn close(&self) -> bool {
        let word = self.words.of(A::cpu());
        // Against the exchange in `set` of the same word: `set` finds `CLOSED`, or this finds its
        // bit and fails.
        matches!(word.compare_exchange(0, CLOSED, SeqCst, SeqCst), Ok(_) | Err(CLOSED))
    }
    pub(super) fn open(&self, cpu: CpuId) {
        // The exchange in `set` succeeds again after this.
        let _ = self.words.of(cpu).compare_exchange(CLOSED, 0, SeqCst, SeqCst);
    }
    pub(super) fn is_queued(&self, cpu: CpuId) -> bool {
        // Pairs with the exchanges in `set` and `run_queued`. A hint, for tests.
        self.words.of(cpu).load(Acquire) & !CLOSED != 0
    }

    // -- Calls.

    /// Calls the CPUs of `targets`; see [`super::Smp::call_function_many`].
    pub(super) fn call_many(
        &self,
        on: (&SmpConfig, &CallCounters<A>),
        targets: impl Iterator<Item = CpuId>,
        cond: impl Fn(CpuId) -> bool,
        call: Call,
        (here, wait): (Here, Wait),
        run: &impl Fn(Call),
    ) -> Reached {
        may_call::<A>();
        let (config, tally) = on;
        let at = self.slot(on, call, wait);
        let slot = &self.slots[at];
        slot.call.put(call);
        slot.unattended.store(u32::from(wait == Wait::No), Relaxed);
        slot.waiter.store(0, Relaxed);
        slot.remaining.store(QUEUEING, Relaxed);
        // Pairs with itself on other CPUs: a request that begins after another one gets the higher
        // ticket. The exchange in `set` publishes it.
        slot.ticket.store(self.tickets.fetch_add(1, SeqCst), Relaxed);
        let (caller, reached) = self.queue(tally, at, targets, cond, (call, here), run);
        if reached.others > 0 {
            tally.here().calls.add(1);
        }
        let over = self.complete(at, QUEUEING - u64::from(reached.others));
        if wait != Wait::No {
            if !over {
                self.wait(config, tally, at, wait, caller);
            }
            self.free_slot(at);
        }
        reached
    }
    /// Runs the queue phase, in pieces. Returns the CPU on which it began, and the CPUs reached.
    fn queue(
        &self,
        tally: &CallCounters<A>,
        at: usize,
        targets: impl Iterator<Item = CpuId>,
        cond: impl Fn(CpuId) -> bool,
        (call, here): (Call, Here),
        run: &impl Fn(Call),
    ) -> (CpuId, Reached) {
        let mut reached = Reached::default();
        let mut caller = None;
        in_pieces::<A>(tally, targets, |off, target| {
            let current = off.cpu();
            let origin = *caller.get_or_insert(current);
            if target == origin && here == Here::Skip || !cond(target) {
                return;
            }
            if target == current {
                run(call);
                reached.here += u32::from(target == origin);
            } else if self.set(tally, target, 1 << at) != SetBit::Closed {
                reached.others += 1;
            }
        });
        (caller.unwrap_or_else(A::cpu), reached)
    }
    fn wait(
        &self,
        config: &SmpConfig,
        tally: &CallCounters<A>,
        at: usize,
        wait: Wait,
        caller: CpuId,
    ) {
        let _span = Span::<A>::enter(Func::CsdLockWait);
        let slot = &self.slots[at];
        let mut watch = Watch::<A>::begin(config, caller, slot.call.get().func);
        let mut last = None;
        // Pairs with the subtraction in `complete`: this task sees what the calls did.
        while slot.remaining.load(SeqCst) != 0 {
            last.get_or_insert_with(|| self.cpu_not_done(at));
            if wait == Wait::Sleep && watch.age_ns() >= SPIN_NS {
                // Store buffering with `complete`. Here: the task, then `remaining`. There:
                // `remaining`, then the task. This finds 0, or `complete` finds the task.
                slot.waiter.store(A::current().index() as u32 + 1, SeqCst);
                tally.here().sleeps.add(1);
                while slot.remaining.load(SeqCst) != 0 {
                    watch.look(|| self.cpu_not_done(at));
                    A::park();
                }
                // No partner: a CPU that reads the old task only wakes it too early.
                slot.waiter.store(0, SeqCst);
                break;
            }
            watch.turn(|| self.cpu_not_done(at));
        }
        let ns = watch.age_ns();
        tally.here().csd_wait_total_ns.add(ns);
        tally.here().csd_wait_max_ns.note(ns);
        if let Some(target) = last {
            A::trace(Trace::Call(CallEvent::Wait { target, ns }));
        }
    }
    /// Wakes all tasks that sleep for a slot or for a target, so that they check for a timeout.
    pub(super) fn wake_all(&self) {
        for slot in &self.slots {
            // Pairs with the store in `wait`. A task that is missed is woken an interval later.
            if let Some(task) = slot.waiter.load(SeqCst).checked_sub(1) {
                A::unpark(TaskId::new(task as usize));
            }
        }
        // Pairs with the add in `slot`, in the same way.
        if self.waiting.load(SeqCst) != 0 {
            self.slot_freed.wake_all();
        }
    }
}
